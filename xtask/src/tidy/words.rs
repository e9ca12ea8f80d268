//! Words that must not stand in the tree: unfinished work, panics in the library, places of one
//! machine.

use proc_macro2::{Delimiter, TokenTree};

use super::{Finding, Source, Tree, lex, sizes, table};

/// Packages whose code runs inside a kernel, where a panic is the end of everything.
const KERNEL_SIDE: [&str; 4] = ["quire-units", "quire-arch", "quire-hw", "quire-mm"];

/// Macros that mark code as unfinished.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Words in comments that say the same. Spelled in halves so that this file passes its own rule.
const MARKS: [&str; 4] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), "HACK"];

/// Places that exist on one machine or belong to one service only.
const PLACES: [&str; 8] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("crates", ".io"),
    concat!("deb.debian", ".org"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
    concat!("proxy.golang", ".org"),
];

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let excused = tree.file("STYLE.md").and_then(|text| table::rows(text, "panics"));
    let excused: Vec<String> = excused.iter().flatten().flat_map(|row| row.codes(0)).collect();
    for source in &tree.sources {
        unfinished(source, findings);
        if KERNEL_SIDE.contains(&source.package.as_str()) && !source.is_test {
            if !excused.contains(&source.path) {
                panics(source, findings);
            }
            if source.package == "quire-mm" {
                switches(source, &source.tokens, findings);
            }
        }
    }
    for package in KERNEL_SIDE.iter().filter(|package| tree.library(package).next().is_none()) {
        let sentence = format!("there is no package `{package}` to check.");
        findings.push(Finding::new("Cargo.toml", 1, "no-panic", sentence));
    }
    for (path, text) in &tree.files {
        places(path, text, findings);
    }
}

/// `banned-word` and `ignored-test`.
pub(crate) fn unfinished(source: &Source, findings: &mut Vec<Finding>) {
    for comment in lex::comments(&source.text) {
        let words = || comment.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if let Some(mark) = MARKS.iter().find(|&&mark| words().any(|word| word == mark)) {
            let sentence = format!("`{mark}` in a comment: finish it, or open an issue.");
            findings.push(Finding::new(&source.path, comment.line, "banned-word", sentence));
        }
    }
    lex::each_level(&source.tokens, &mut |trees| {
        for at in 0..trees.len() {
            let line = lex::line(&trees[at]);
            let mut called = UNFINISHED.iter().filter(|name| lex::is_ident(trees, at, name));
            if let (Some(name), true) = (called.next(), lex::is_punct(trees, at + 1, '!')) {
                let sentence = format!("`{name}!` marks what is not finished.");
                findings.push(Finding::new(&source.path, line, "banned-word", sentence));
            }
            let attribute = lex::group(trees, at + 1, Delimiter::Bracket);
            if let (true, Some(attribute)) = (lex::is_punct(trees, at, '#'), attribute)
                && lex::is_ident(&lex::inside(attribute), 0, "ignore")
            {
                let sentence = "an ignored test guards nothing.";
                findings.push(Finding::new(&source.path, line, "ignored-test", sentence));
            }
        }
    });
}

/// `no-panic`: calls that end the kernel when a caller, a disk or memory pressure can cause them.
pub(crate) fn panics(source: &Source, findings: &mut Vec<Finding>) {
    lex::each_level(&run_time(&lex::without_tests(&source.tokens)), &mut |trees| {
        for at in 0..trees.len() {
            if !matches!(trees[at], TokenTree::Ident(_)) {
                continue;
            }
            let name = trees[at].to_string();
            let is_call = matches!(name.as_str(), "unwrap" | "expect")
                && at > 0
                && lex::is_punct(trees, at - 1, '.')
                && lex::group(trees, at + 1, Delimiter::Parenthesis).is_some();
            let is_macro = name == "panic" && lex::is_punct(trees, at + 1, '!');
            if is_call || is_macro {
                let line = lex::line(&trees[at]);
                let sentence = format!("`{name}` can end the kernel: return an error instead.");
                findings.push(Finding::new(&source.path, line, "no-panic", sentence));
            }
        }
    });
}

/// The tokens without what is computed at compile time, where a panic is an error message: the
/// values of constants, and `const` blocks.
fn run_time(trees: &[TokenTree]) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < trees.len() {
        let is_parameter =
            at > 0 && (lex::is_punct(trees, at - 1, '<') || lex::is_punct(trees, at - 1, ','));
        if lex::is_ident(trees, at, "const") && !is_parameter {
            let is_item = lex::is_punct(trees, at + 2, ':');
            let is_block = lex::group(trees, at + 1, Delimiter::Brace).is_some();
            if is_item {
                at += trees[at..].iter().take_while(|tree| tree.to_string() != ";").count();
            } else if is_block {
                at += 2;
                continue;
            }
        }
        match trees.get(at) {
            Some(TokenTree::Group(group)) => {
                let inner = run_time(&lex::inside(group)).into_iter().collect();
                kept.push(lex::regroup(group, inner));
            }
            Some(other) => kept.push(other.clone()),
            None => {}
        }
        at += 1;
    }
    kept
}

/// `body-cfg`: a function of the library that is another one under test or on another ISA.
pub(crate) fn switches(source: &Source, trees: &[TokenTree], findings: &mut Vec<Finding>) {
    let mut at = 0;
    while at < trees.len() {
        if let Some(end) = lex::test_item(trees, at) {
            at = end;
            continue;
        }
        if let Some(body) = sizes::body(trees, at) {
            lex::each_level(&lex::inside(body), &mut |trees| within(source, trees, findings));
            while !matches!(&trees[at], TokenTree::Group(g) if g.delimiter() == Delimiter::Brace) {
                at += 1;
            }
        } else if let TokenTree::Group(group) = &trees[at] {
            switches(source, &lex::inside(group), findings);
        }
        at += 1;
    }
}

fn within(source: &Source, trees: &[TokenTree], findings: &mut Vec<Finding>) {
    for at in 0..trees.len() {
        if !lex::is_ident(trees, at, "cfg") && !lex::is_ident(trees, at, "cfg_attr") {
            continue;
        }
        let argument = at + 1 + usize::from(lex::is_punct(trees, at + 1, '!'));
        let Some(condition) = lex::group(trees, argument, Delimiter::Parenthesis) else {
            continue;
        };
        lex::each_level(&lex::inside(condition), &mut |parts| {
            for name in parts.iter().map(TokenTree::to_string) {
                if matches!(name.as_str(), "test" | "target_arch") {
                    let line = lex::line(&trees[at]);
                    let sentence = format!("`cfg({name})` within a function of the library.");
                    findings.push(Finding::new(&source.path, line, "body-cfg", sentence));
                }
            }
        });
    }
}

/// `no-places`.
pub(crate) fn places(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (at, line) in text.lines().enumerate() {
        if let Some(place) = PLACES.iter().find(|&&place| line.contains(place)) {
            let sentence = format!("`{place}` names one machine or service.");
            findings.push(Finding::new(path, at + 1, "no-places", sentence));
        }
    }
}
