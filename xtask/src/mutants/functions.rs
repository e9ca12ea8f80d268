//! The functions of the library that may have a slip, each with its places for one.

use std::collections::BTreeMap;

use syn::{Attribute, Block, ImplItem, Item, ItemImpl, ReturnType, Signature, TraitItem, Type};

use super::operators::{Site, sites};
use super::siblings::Names;
use crate::tidy::{Source, Tree, is_for_tests};

/// The packages that belong to the library.
const PACKAGES: [&str; 5] = ["quire-units", "quire-arch", "quire-hw", "quire-mm", "quire-zpool"];

/// The sources that are left out, by how their paths begin: they are there to notice slips, or no
/// build of the host has them.
const APART: [&str; 15] = [
    "crates/arch/src/laws",
    // Instructions of each ISA; `cargo xtask ci` runs them in emulators.
    "crates/hw/src/extent/",
    "crates/hw/src/frame.rs",
    "crates/hw/src/foreign.rs",
    "crates/mm/src/check/",
    "crates/mm/src/inject.rs",
    "crates/mm/src/phys/check.rs",
    "crates/mm/src/phys/fail.rs",
    "crates/mm/src/phys/fragment.rs",
    "crates/mm/src/phys/never.rs",
    "crates/mm/src/space/tree/check.rs",
    "crates/mm/src/swap/audit.rs",
    "crates/mm/src/base/no_",
    "crates/mm/src/files/no_",
    "crates/zpool/src/check.rs",
];

/// A function.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Its file, relative to the workspace.
    pub(crate) file: String,
    /// The room of `mm`, or the crate.
    pub(crate) room: String,
    /// Its name after that of its type.
    pub(crate) name: String,
    /// Its places for a slip; at least one.
    pub(crate) sites: Vec<Site>,
}

/// All of them, in the order of files and of their text.
pub(crate) fn all(tree: &Tree) -> Vec<Function> {
    let mut found = Vec::new();
    for package in PACKAGES {
        let mut sources: Vec<&Source> = tree.library(package).filter(|one| is_in(one)).collect();
        sources.sort_by(|one, other| one.path.cmp(&other.path));
        let files: BTreeMap<&str, syn::File> = sources
            .iter()
            .filter_map(|source| Some((source.path.as_str(), syn::parse_file(&source.text).ok()?)))
            .collect();
        let mut names = Names::default();
        files.values().for_each(|file| names.add(file));
        for source in sources {
            if let Some(file) = files.get(source.path.as_str()) {
                let room = room(source);
                Walk { source, room, names: &names, found: &mut found }.items(&file.items);
            }
        }
    }
    found
}

/// The functions of one file's text, for tests.
#[cfg(test)]
pub(crate) fn of_text(path: &str, text: &str) -> Vec<Function> {
    let source = Source::parse("quire-mm", path, text.to_owned(), vec!["room".into()], false);
    let source = source.expect("it is Rust");
    let file = syn::parse_file(text).expect("it is Rust");
    let (mut names, mut found) = (Names::default(), Vec::new());
    names.add(&file);
    let room = room(&source);
    Walk { source: &source, room, names: &names, found: &mut found }.items(&file.items);
    found
}

fn is_in(source: &Source) -> bool {
    !APART.iter().any(|begin| source.path.starts_with(begin))
}

fn room(source: &Source) -> String {
    match source.package.strip_prefix("quire-") {
        Some("mm") => source.module.first().map_or("mm", String::as_str).to_owned(),
        other => other.unwrap_or(&source.package).to_owned(),
    }
}

struct Walk<'a> {
    source: &'a Source,
    room: String,
    names: &'a Names,
    found: &'a mut Vec<Function>,
}

impl Walk<'_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Fn(one) => self.function(&one.attrs, "", &one.sig, &one.block),
                Item::Impl(block) if is_built(&block.attrs) => self.implementation(block),
                Item::Trait(one) if is_built(&one.attrs) => {
                    for item in &one.items {
                        if let TraitItem::Fn(method) = item
                            && let Some(body) = &method.default
                        {
                            let name = one.ident.to_string();
                            self.function(&method.attrs, &name, &method.sig, body);
                        }
                    }
                }
                Item::Mod(module) if is_built(&module.attrs) => {
                    if let Some((_, items)) = &module.content {
                        self.items(items);
                    }
                }
                _ => {}
            }
        }
    }

    fn implementation(&mut self, block: &ItemImpl) {
        // Texts for people promise nothing.
        let of = block.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        if of.is_some_and(|of| ["Debug", "Display", "Error"].iter().any(|name| of.ident == name)) {
            return;
        }
        let name = match &*block.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        for item in &block.items {
            if let ImplItem::Fn(method) = item {
                let name = name.as_deref().unwrap_or_default();
                self.function(&method.attrs, name, &method.sig, &method.block);
            }
        }
    }

    fn function(&mut self, attrs: &[Attribute], of: &str, signature: &Signature, body: &Block) {
        if !is_built(attrs) {
            return;
        }
        let is_unit = matches!(signature.output, ReturnType::Default);
        let sites = sites(&self.source.text, body, is_unit, self.names);
        if sites.is_empty() {
            return;
        }
        let name = signature.ident.to_string();
        let name = if of.is_empty() { name } else { format!("{of}::{name}") };
        let (file, room) = (self.source.path.clone(), self.room.clone());
        self.found.push(Function { file, room, name, sites });
    }
}

/// Whether the host's build has an item, and not for tests alone.
fn is_built(attrs: &[Attribute]) -> bool {
    let is_apart = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                let condition = list.tokens.to_string();
                ["\"inject\"", "\"check\"", "not (feature"]
                    .iter()
                    .any(|part| condition.contains(part))
            })
    };
    !is_for_tests(attrs) && !attrs.iter().any(is_apart)
}
