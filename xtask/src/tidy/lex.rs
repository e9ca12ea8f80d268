//! Tokens and comments: what rules look at below the level of items.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A comment, or the part of it that stands on one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Comment {
    /// Its line, counted from 1.
    pub(crate) line: usize,
    /// Its text, with the slashes.
    pub(crate) text: String,
}

/// All comments of a Rust source, doc comments among them.
pub(crate) fn comments(source: &str) -> Vec<Comment> {
    let mut found = Vec::new();
    scan(source, &mut |piece, line, text| {
        if piece == Piece::Comment {
            let parts = text.lines().enumerate();
            found.extend(parts.map(|(n, text)| Comment { line: line + n, text: text.into() }));
        }
    });
    found
}

/// The kinds of text that [`scan`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// A comment of one line, or a block.
    Comment,
    /// A string with its quotes.
    Quoted,
}

/// Calls `visit` with each comment and string, its line and its text. A parser drops plain
/// comments; this scan knows just enough of the syntax of Rust and C to find them.
pub(crate) fn scan(source: &str, visit: &mut dyn FnMut(Piece, usize, &str)) {
    let bytes = source.as_bytes();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let (piece, end) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => {
                let end = source[at..].find('\n').map_or(bytes.len(), |n| at + n);
                (Some(Piece::Comment), end)
            }
            b'/' if bytes[at..].starts_with(b"/*") => {
                (Some(Piece::Comment), end_of_block(bytes, at))
            }
            b'r' if !follows_word(bytes, at) => match end_of_raw(source, at) {
                Some(end) => (Some(Piece::Quoted), end),
                None => (None, at + 1),
            },
            b'"' => (Some(Piece::Quoted), end_of_quoted(bytes, at)),
            b'\'' => (None, end_of_char(bytes, at)),
            _ => (None, at + 1),
        };
        if let Some(piece) = piece {
            visit(piece, line, &source[at..end]);
        }
        line += bytes[at..end].iter().filter(|&&byte| byte == b'\n').count();
        at = end;
    }
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).map(|at| bytes[at]);
    let word = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    // `br"…"` and `cr"…"` are raw strings, too.
    if matches!(before(1), Some(b'b' | b'c')) { word(before(2)) } else { word(before(1)) }
}

fn end_of_block(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if bytes[at..].starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn end_of_raw(source: &str, start: usize) -> Option<usize> {
    let rest = source[start..].strip_prefix('r')?;
    let hashes = rest.bytes().take_while(|&byte| byte == b'#').count();
    rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let body = start + 1 + hashes + 1;
    Some(source[body..].find(&close).map_or(source.len(), |n| body + n + close.len()))
}

fn end_of_quoted(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// A quote begins a character or a lifetime; only the first can hold a quote or a slash.
fn end_of_char(bytes: &[u8], start: usize) -> usize {
    let escaped = bytes.get(start + 1) == Some(&b'\\');
    if escaped {
        let close = bytes[(start + 3).min(bytes.len())..].iter().position(|&byte| byte == b'\'');
        return close.map_or(bytes.len(), |n| start + 3 + n + 1);
    }
    if bytes.get(start + 2) == Some(&b'\'') { start + 3 } else { start + 1 }
}

/// The tokens of a Rust source; none for one that does not parse, which the compiler reports.
pub(crate) fn trees(source: &str) -> Vec<TokenTree> {
    source.parse::<TokenStream>().map_or_else(|_| Vec::new(), |tokens| tokens.into_iter().collect())
}

/// The tokens within a group.
pub(crate) fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// The line of a token, counted from 1.
pub(crate) fn line(tree: &TokenTree) -> usize {
    tree.span().start().line
}

/// Whether the token at `at` is the identifier `name`.
pub(crate) fn is_ident(trees: &[TokenTree], at: usize, name: &str) -> bool {
    matches!(trees.get(at), Some(TokenTree::Ident(ident)) if ident == name)
}

/// Whether the token at `at` is the character `mark`.
pub(crate) fn is_punct(trees: &[TokenTree], at: usize, mark: char) -> bool {
    matches!(trees.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// Whether `::` stands at `at`.
pub(crate) fn is_path_sep(trees: &[TokenTree], at: usize) -> bool {
    is_punct(trees, at, ':') && is_punct(trees, at + 1, ':')
}

/// The group at `at`, if it has this delimiter.
pub(crate) fn group(trees: &[TokenTree], at: usize, delimiter: Delimiter) -> Option<&Group> {
    match trees.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// Whether the tokens of an attribute (within its brackets) make what follows exist in tests or
/// model checks only.
pub(crate) fn is_test_only(attribute: &Group) -> bool {
    let trees = inside(attribute);
    if trees.len() == 1 && is_ident(&trees, 0, "test") {
        return true;
    }
    let condition = group(&trees, 1, Delimiter::Parenthesis);
    is_ident(&trees, 0, "cfg") && condition.is_some_and(|group| requires_test(&inside(group)))
}

fn requires_test(condition: &[TokenTree]) -> bool {
    if condition.len() == 1 {
        return ["test", "loom", "shuttle"].iter().any(|name| is_ident(condition, 0, name));
    }
    let Some(list) = group(condition, 1, Delimiter::Parenthesis) else { return false };
    let list = inside(list);
    let mut parts = list.split(|tree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ','));
    if is_ident(condition, 0, "all") {
        parts.any(requires_test)
    } else {
        is_ident(condition, 0, "any") && parts.filter(|part| !part.is_empty()).all(requires_test)
    }
}

/// If a test-only item begins at `at` (with `#[cfg(test)]`, `#[test]` and the like), the index
/// behind it.
pub(crate) fn test_item(trees: &[TokenTree], at: usize) -> Option<usize> {
    let attribute = group(trees, at + 1, Delimiter::Bracket)?;
    if !is_punct(trees, at, '#') || !is_test_only(attribute) {
        return None;
    }
    let mut end = at + 2;
    while end < trees.len() {
        if is_punct(trees, end, ';') || group(trees, end, Delimiter::Brace).is_some() {
            return Some(end + 1);
        }
        end += 1;
    }
    Some(end)
}

/// The tokens without test-only items, at any depth.
pub(crate) fn without_tests(trees: &[TokenTree]) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < trees.len() {
        if let Some(end) = test_item(trees, at) {
            at = end;
            continue;
        }
        kept.push(match &trees[at] {
            TokenTree::Group(group) => {
                let inner = without_tests(&inside(group)).into_iter().collect();
                regroup(group, inner)
            }
            other => other.clone(),
        });
        at += 1;
    }
    kept
}

/// The group with other content, at the same place in the source.
pub(crate) fn regroup(group: &Group, inner: TokenStream) -> TokenTree {
    let mut other = Group::new(group.delimiter(), inner);
    other.set_span(group.span());
    TokenTree::Group(other)
}

/// Calls `visit` with every sequence of tokens, from the outermost inwards.
pub(crate) fn each_level(trees: &[TokenTree], visit: &mut dyn FnMut(&[TokenTree])) {
    visit(trees);
    for tree in trees {
        if let TokenTree::Group(group) = tree {
            each_level(&inside(group), visit);
        }
    }
}

/// Whether a file says of itself, by an inner attribute, that it exists in tests only.
pub(crate) fn test_item_inner(trees: &[TokenTree]) -> bool {
    (0..trees.len()).any(|at| {
        is_punct(trees, at, '#')
            && is_punct(trees, at + 1, '!')
            && group(trees, at + 2, Delimiter::Bracket).is_some_and(is_test_only)
    })
}
