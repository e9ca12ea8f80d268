//! Which room of `quire` may name which: the table `rooms` in ARCHITECTURE.md.
//!
//! A room is a child module of the library's root. Every path that begins with `crate`, `self` or
//! `super` is followed to the room it ends in, through groups in imports and in the arguments of
//! macros, too. A path that cannot be followed (a glob of the root, the root under another
//! name) is a finding itself.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenTree};
use syn::{Item, UseTree};

use super::{Finding, Source, Tree, lex, table};

const RULE: &str = "room-direction";
const DOCUMENT: &str = "ARCHITECTURE.md";
const PACKAGE: &str = "quire-mm";

/// The meaning of the names in the library's root.
pub(crate) struct Rooms {
    /// The rooms in the order of data flow.
    pub(crate) order: Vec<String>,
    /// Names the root offers beside its rooms, each with the room it comes from, if any.
    pub(crate) offered: BTreeMap<String, Option<String>>,
}

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(rows) = tree.file(DOCUMENT).and_then(|text| table::rows(text, "rooms")) else {
        findings.push(Finding::new(DOCUMENT, 1, RULE, "the table `rooms` is missing."));
        return;
    };
    if tree.library(PACKAGE).next().is_none() {
        let sentence = format!("there is no package `{PACKAGE}` to check.");
        findings.push(Finding::new(DOCUMENT, 1, RULE, sentence));
    }
    let order: Vec<String> = rows.iter().flat_map(|row| row.codes(0)).collect();
    let mut rooms = Rooms { order, offered: BTreeMap::new() };
    for source in tree.library(PACKAGE).filter(|source| source.module.is_empty()) {
        root(source, &mut rooms, findings);
    }
    for source in tree.library(PACKAGE).filter(|source| !source.module.is_empty()) {
        let tokens = lex::without_tests(&source.tokens);
        Walk { rooms: &rooms, source, findings }.level(&tokens, &source.module);
    }
}

/// Learns what the root offers, and checks that it declares the rooms in order.
fn root(source: &Source, rooms: &mut Rooms, findings: &mut Vec<Finding>) {
    let mut last = 0;
    for item in &source.items {
        match item {
            Item::Mod(module) if module.content.is_none() => {
                let name = module.ident.to_string();
                let line = module.ident.span().start().line;
                let place = rooms.order.iter().position(|room| *room == name);
                let sentence = match place {
                    None => format!("`{name}` is no room of the table in {DOCUMENT}."),
                    Some(place) if place < last => {
                        format!("`{name}` is declared after `{}`.", rooms.order[last])
                    }
                    Some(place) => {
                        last = place;
                        continue;
                    }
                };
                findings.push(Finding::new(&source.path, line, RULE, sentence));
            }
            Item::Use(import) => {
                offered(&import.tree, &mut Vec::new(), rooms);
            }
            Item::Const(item) => drop(rooms.offered.insert(item.ident.to_string(), None)),
            Item::Type(item) => drop(rooms.offered.insert(item.ident.to_string(), None)),
            Item::Trait(item) => drop(rooms.offered.insert(item.ident.to_string(), None)),
            _ => {}
        }
    }
}

fn offered(tree: &UseTree, prefix: &mut Vec<String>, rooms: &mut Rooms) {
    let mut offer = |name: String, prefix: &[String], own: &str| {
        let first = prefix.iter().find(|part| !matches!(part.as_str(), "crate" | "self"));
        let first = first.map_or(own, String::as_str);
        let room = rooms.order.iter().find(|room| *room == first).cloned();
        rooms.offered.insert(name, room);
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            offered(&path.tree, prefix, rooms);
            prefix.pop();
        }
        UseTree::Name(name) => offer(name.ident.to_string(), prefix, &name.ident.to_string()),
        UseTree::Rename(name) => offer(name.rename.to_string(), prefix, &name.ident.to_string()),
        UseTree::Group(group) => {
            for tree in &group.items {
                offered(tree, prefix, rooms);
            }
        }
        _ => {}
    }
}

/// A walk over the tokens of one source.
pub(crate) struct Walk<'a> {
    pub(crate) rooms: &'a Rooms,
    pub(crate) source: &'a Source,
    pub(crate) findings: &'a mut Vec<Finding>,
}

impl Walk<'_> {
    /// One sequence of tokens, which stands in the module `module`, and all within it.
    pub(crate) fn level(&mut self, trees: &[TokenTree], module: &[String]) {
        let mut at = 0;
        while at < trees.len() {
            let after_sep = at >= 2 && lex::is_path_sep(trees, at - 2);
            match &trees[at] {
                TokenTree::Ident(word) if !after_sep && starts_path(&word.to_string()) => {
                    self.path(trees, at, module);
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let Some(body) = lex::group(trees, at + 2, Delimiter::Brace) {
                        let name = trees[at + 1].to_string();
                        let inner: Vec<_> = module.iter().cloned().chain([name]).collect();
                        self.level(&lex::inside(body), &inner);
                        at += 2;
                    }
                }
                TokenTree::Group(group) => self.level(&lex::inside(group), module),
                _ => {}
            }
            at += 1;
        }
    }

    /// The path that begins at `at` with `crate`, `self` or `super`.
    fn path(&mut self, trees: &[TokenTree], at: usize, module: &[String]) {
        let line = lex::line(&trees[at]);
        let mut reached: Vec<String> = match trees[at].to_string().as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            _ => module[..module.len().saturating_sub(1)].to_vec(),
        };
        if !lex::is_path_sep(trees, at + 1) {
            if reached.is_empty() && lex::is_ident(trees, at + 1, "as") {
                self.find(line, "the root of the crate gets another name here.".into());
            }
            return;
        }
        self.rest(trees, at + 1, &mut reached, line);
    }

    /// The path that continues `reached` from the `::` at `at` on.
    fn rest(&mut self, trees: &[TokenTree], mut at: usize, reached: &mut Vec<String>, line: usize) {
        while lex::is_path_sep(trees, at) {
            at += 2;
            match trees.get(at) {
                Some(TokenTree::Ident(word)) if word == "super" => drop(reached.pop()),
                Some(TokenTree::Ident(word)) => reached.push(word.to_string()),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    return self.group(&lex::inside(group), reached);
                }
                Some(TokenTree::Punct(mark)) if mark.as_char() == '*' && reached.is_empty() => {
                    let sentence = "a glob of the crate's root hides which rooms are named.";
                    return self.find(line, sentence.into());
                }
                _ => break,
            }
            at += 1;
        }
        self.judge(reached, line);
    }

    /// Each part of a group in an import: `{a, b::c, self as d}`.
    fn group(&mut self, trees: &[TokenTree], prefix: &[String]) {
        for part in trees.split(|tree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ',')) {
            let Some(first) = part.first() else { continue };
            let (mut reached, line) = (prefix.to_vec(), lex::line(first));
            match first {
                TokenTree::Ident(word) if word == "self" => {
                    if reached.is_empty() {
                        self.find(line, "the root of the crate gets another name here.".into());
                    } else {
                        self.judge(&reached, line);
                    }
                }
                TokenTree::Ident(word) if word == "super" => {
                    reached.pop();
                    self.rest(part, 1, &mut reached, line);
                }
                TokenTree::Ident(word) => {
                    reached.push(word.to_string());
                    self.rest(part, 1, &mut reached, line);
                }
                TokenTree::Group(group) => self.group(&lex::inside(group), prefix),
                TokenTree::Punct(mark) if mark.as_char() == '*' && reached.is_empty() => {
                    let sentence = "a glob of the crate's root hides which rooms are named.";
                    self.find(line, sentence.into());
                }
                _ => self.judge(&reached, line),
            }
        }
    }

    /// Whether the room of this source may name the place `reached`.
    fn judge(&mut self, reached: &[String], line: usize) {
        let (Some(own), Some(first)) = (self.source.module.first(), reached.first()) else {
            return;
        };
        let place = |name: &String| self.rooms.order.iter().position(|room| room == name);
        let target = match (place(first), self.rooms.offered.get(first)) {
            (Some(_), _) => first,
            (None, Some(Some(room))) => room,
            (None, Some(None)) => return,
            (None, None) => {
                let sentence = format!("`crate::{first}` belongs to no room that tidy can find.");
                return self.find(line, sentence);
            }
        };
        if place(own).is_some() && place(target) > place(own) {
            let sentence = format!("room `{own}` names `{target}`, which lies to its right.");
            self.find(line, sentence);
        }
    }

    fn find(&mut self, line: usize, sentence: String) {
        self.findings.push(Finding::new(&self.source.path, line, RULE, sentence));
    }
}

fn starts_path(word: &str) -> bool {
    matches!(word, "crate" | "self" | "super")
}
