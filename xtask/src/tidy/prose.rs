//! The sentences that people read: comments, documents and messages, as sequences of words.
//!
//! ```text
//!   file ──► blocks: comment lines that belong together, a paragraph, a list item, a string
//!        ──► sentences: words with their lines; code between backticks is one word without meaning
//! ```

use super::lex::{self, Piece};

/// A word with the marks around it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    /// As written.
    pub(crate) raw: String,
    /// In lower case, without marks around it.
    pub(crate) plain: String,
    /// Its line in the file, counted from 1.
    pub(crate) line: usize,
}

/// Lines of text that belong together, with their line numbers.
type Block = Vec<(usize, String)>;

/// Stands for code between backticks.
const CODE: &str = "\u{2022}";

/// The sentences of the file at `path`; none for a kind of file that has no prose.
pub(crate) fn sentences(path: &str, text: &str) -> Vec<Vec<Word>> {
    let blocks = match path.rsplit_once('.').map_or(path, |(_, extension)| extension) {
        "rs" => rust(text),
        "c" | "h" => slashed(text),
        "md" => markdown(numbered(text)),
        "sh" | "toml" | "yml" | "Makefile" => hashed(text),
        _ if path.ends_with("/Makefile") => hashed(text),
        _ => Vec::new(),
    };
    blocks.iter().flat_map(|block| split(&words(block))).collect()
}

/// Whether a string says anything: a word alone is a name or a key.
fn is_message(block: &Block) -> bool {
    block.iter().any(|(_, text)| text.trim().contains(' '))
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// Comments and strings of a Rust source, and the names of its tests.
fn rust(text: &str) -> Vec<Block> {
    let mut blocks = slashed(text);
    for (name, line) in super::rows::test_names(&lex::trees(text)) {
        blocks.push(vec![(line, name.replace('_', " "))]);
    }
    blocks
}

/// Comments and strings where comments begin with slashes.
fn slashed(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    // The comment that later lines may continue: its marker, its last line, its lines.
    let mut open: Option<(&str, usize, Block)> = None;
    let close = |open: &mut Option<(&str, usize, Block)>, blocks: &mut Vec<Block>| {
        if let Some((_, _, lines)) = open.take() {
            blocks.extend(markdown(lines.iter().map(|(line, text)| (*line, text.as_str()))));
        }
    };
    lex::scan(text, &mut |piece, line, text| {
        if piece == Piece::Quoted {
            blocks.extend(Some(unquoted(line, text)).filter(is_message));
            return;
        }
        let marker = ["///", "//!", "//", "/*"].into_iter().find(|marker| text.starts_with(marker));
        let marker = marker.unwrap_or("//");
        if marker == "/*" {
            close(&mut open, &mut blocks);
            let inner = text.trim_start_matches(['/', '*', '!']).trim_end_matches(['/', '*']);
            let lines = inner.lines().map(|line| line.trim_start().trim_start_matches('*'));
            let lines: Block = (line..).zip(lines.map(str::to_owned)).collect();
            blocks.extend(markdown(lines.iter().map(|(line, text)| (*line, text.as_str()))));
            return;
        }
        if !open.as_ref().is_some_and(|(was, last, _)| *was == marker && *last + 1 == line) {
            close(&mut open, &mut blocks);
        }
        let (_, last, lines) = open.get_or_insert((marker, line, Vec::new()));
        *last = line;
        lines.push((line, text[marker.len()..].to_owned()));
    });
    close(&mut open, &mut blocks);
    blocks
}

/// The text of a string, without escapes.
fn unquoted(line: usize, text: &str) -> Block {
    let inner = text.trim_start_matches(['r', '#', '"']).trim_end_matches(['"', '#']);
    let inner = inner.replace("\\n", " ").replace("\\\"", "\"");
    (line..).zip(inner.lines().map(|line| line.trim_end_matches('\\').to_owned())).collect()
}

/// Comments that begin with a hash.
fn hashed(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![Vec::new()];
    for (at, line) in numbered(text) {
        let line = line.trim_start().trim_start_matches('@');
        match line.strip_prefix('#').filter(|rest| !rest.starts_with('!')) {
            Some(rest) if !rest.trim().is_empty() => {
                blocks.last_mut().expect("there is one").push((at, rest.to_owned()));
            }
            _ => {
                blocks.push(Vec::new());
                let trailing = line.split_once(" # ").map(|(_, rest)| rest);
                let described = line.strip_prefix("description = ");
                blocks.extend(trailing.or(described).map(|text| vec![(at, text.to_owned())]));
                blocks.push(Vec::new());
            }
        }
    }
    blocks
}

/// Paragraphs, list items, headings and cells of tables; code and drawings are left out.
fn markdown<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![Vec::new()];
    let mut is_code = false;
    for (at, line) in lines {
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            is_code = !is_code;
            blocks.push(Vec::new());
            continue;
        }
        if is_code {
            continue;
        }
        if line.is_empty() || line.starts_with("<!--") {
            blocks.push(Vec::new());
        } else if line.starts_with('|') {
            let cells = line.split('|').map(|cell| vec![(at, cell.to_owned())]);
            blocks.extend(cells);
            blocks.push(Vec::new());
        } else if line.starts_with('#') {
            blocks.push(vec![(at, line.trim_start_matches('#').to_owned())]);
            blocks.push(Vec::new());
        } else {
            if is_item(line) {
                blocks.push(Vec::new());
            }
            blocks.last_mut().expect("there is one").push((at, line.to_owned()));
        }
    }
    blocks
}

/// Whether `line` begins an item of a list.
fn is_item(line: &str) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    let number = first.strip_suffix(['.', ')']);
    matches!(first, "*" | "-" | "+")
        || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

fn words(block: &Block) -> Vec<Word> {
    let mut words = Vec::new();
    let mut in_code = false;
    for (line, text) in block {
        let mut kept = String::new();
        for c in text.chars() {
            match c {
                '`' if !in_code => kept.push_str(CODE),
                '*' => continue,
                _ if c != '`' && !in_code => kept.push(c),
                _ => {}
            }
            in_code ^= c == '`';
        }
        for raw in kept.split_whitespace() {
            let plain = raw.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
            // Marks alone (bullets, dashes) are no words.
            if !plain.is_empty() || raw.contains(CODE) {
                words.push(Word { raw: raw.to_owned(), plain, line: *line });
            }
        }
    }
    words
}

/// Words up to a full stop, a question mark or an exclamation mark, or up to a colon that a capital
/// follows.
fn split(words: &[Word]) -> Vec<Vec<Word>> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for at in 0..words.len() {
        let next = words.get(at + 1).map_or("", |word| word.raw.as_str());
        let next = next.trim_start_matches(['(', '[', '"', '“', '\'']);
        let begins = next.chars().next().is_none_or(|c| !c.is_lowercase());
        let is_capital = next.starts_with(char::is_uppercase);
        let raw = words[at].raw.trim_end_matches([')', ']', '"', '”', '\'']);
        if raw.ends_with(['.', '?', '!']) && begins || raw.ends_with(':') && is_capital {
            sentences.push(words[start..=at].to_vec());
            start = at + 1;
        }
    }
    sentences.push(words[start..].to_vec());
    sentences.retain(|words| !words.is_empty());
    sentences
}
