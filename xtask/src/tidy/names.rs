//! The names of a crate: which item a path means, through imports and re-exports.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Item, UseTree};

use super::Source;
use super::tree::is_for_tests;

/// A module by its names from the root on.
pub(crate) type Place = Vec<String>;

/// One meaning of a name within a module.
#[derive(Clone, Debug)]
enum Meaning {
    /// An item of the source with this number.
    Item { source: usize },
    /// An import: the module it stands in, and its path as written.
    Import { path: Vec<String> },
}

/// An item that a path leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Found {
    /// The module that defines it.
    pub(crate) place: Place,
    /// Its name there.
    pub(crate) name: String,
    /// The number of the source.
    pub(crate) source: usize,
    /// The rest of the path: a variant, a method.
    pub(crate) rest: Vec<String>,
}

/// The names of one crate.
pub(crate) struct Names {
    modules: BTreeSet<Place>,
    meanings: BTreeMap<(Place, String), Vec<Meaning>>,
    globs: BTreeMap<Place, Vec<Vec<String>>>,
}

/// Imports that lead to imports end somewhere; code that does not compile may go round.
const DEPTH: usize = 12;

impl Names {
    /// The names of the crate that consists of `sources`.
    pub(crate) fn new(sources: &[&Source]) -> Self {
        let mut names =
            Self { modules: BTreeSet::new(), meanings: BTreeMap::new(), globs: BTreeMap::new() };
        for (number, source) in sources.iter().enumerate() {
            names.learn(number, &source.module, &source.items);
        }
        names
    }

    fn learn(&mut self, source: usize, place: &[String], items: &[Item]) {
        self.modules.insert(place.to_vec());
        for item in items {
            match item {
                Item::Mod(module) if is_for_tests(&module.attrs) => {}
                Item::Mod(module) => {
                    let inner: Place =
                        place.iter().cloned().chain([module.ident.to_string()]).collect();
                    self.modules.insert(inner.clone());
                    if let Some((_, items)) = &module.content {
                        self.learn(source, &inner, items);
                    }
                }
                Item::Use(import) if !is_for_tests(&import.attrs) => {
                    each_import(&import.tree, &mut Vec::new(), &mut |name, path| match name {
                        Some(name) => {
                            self.mean(place, name, Meaning::Import { path: path.to_vec() })
                        }
                        None => self.globs.entry(place.to_vec()).or_default().push(path.to_vec()),
                    });
                }
                other => {
                    for name in defined(other) {
                        self.mean(place, name, Meaning::Item { source });
                    }
                }
            }
        }
    }

    fn mean(&mut self, place: &[String], name: String, meaning: Meaning) {
        self.meanings.entry((place.to_vec(), name)).or_default().push(meaning);
    }

    /// The item that `path` means in the module `place`; `None` for what other crates define.
    pub(crate) fn find(&self, place: &[String], path: &[String]) -> Option<Found> {
        self.follow(place, path, DEPTH)
    }

    fn follow(&self, place: &[String], path: &[String], depth: usize) -> Option<Found> {
        let depth = depth.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.within(&[], rest, depth),
            "self" => self.within(place, rest, depth),
            "super" => self.follow_up(place, rest, depth),
            _ => self.within(place, path, depth),
        }
    }

    fn follow_up(&self, place: &[String], rest: &[String], depth: usize) -> Option<Found> {
        let (_, above) = place.split_last()?;
        match rest.split_first() {
            Some((next, after)) if next == "super" => self.follow_up(above, after, depth),
            _ => self.within(above, rest, depth),
        }
    }

    /// The item at `path` from the module `place` downwards.
    fn within(&self, place: &[String], path: &[String], depth: usize) -> Option<Found> {
        let (name, rest) = path.split_first()?;
        let inner: Place = place.iter().cloned().chain([name.clone()]).collect();
        if !rest.is_empty()
            && self.modules.contains(&inner)
            && let Some(found) = self.within(&inner, rest, depth)
        {
            return Some(found);
        }
        for meaning in self.meanings.get(&(place.to_vec(), name.clone())).into_iter().flatten() {
            match meaning {
                Meaning::Item { source } => {
                    let (place, name, rest) = (place.to_vec(), name.clone(), rest.to_vec());
                    return Some(Found { place, name, source: *source, rest });
                }
                Meaning::Import { path } => {
                    let path: Vec<String> = path.iter().chain(rest).cloned().collect();
                    // `use x::x` in a module with a child `x`: the child is meant.
                    if let Some(found) = self.follow(place, &path, depth) {
                        return Some(found);
                    }
                }
            }
        }
        self.globs.get(place).into_iter().flatten().find_map(|glob| {
            let path: Vec<String> = glob.iter().chain(path).cloned().collect();
            (glob.len() < DEPTH).then(|| self.follow(place, &path, depth)).flatten()
        })
    }

    /// Whether there is such a module.
    pub(crate) fn is_module(&self, place: &[String]) -> bool {
        self.modules.contains(place)
    }
}

/// The names that an item defines.
pub(crate) fn defined(item: &Item) -> Vec<String> {
    let (name, attributes) = match item {
        Item::Const(item) => (&item.ident, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.attrs),
        Item::Fn(item) => (&item.sig.ident, &item.attrs),
        Item::Static(item) => (&item.ident, &item.attrs),
        Item::Struct(item) => (&item.ident, &item.attrs),
        Item::Trait(item) => (&item.ident, &item.attrs),
        Item::Type(item) => (&item.ident, &item.attrs),
        Item::Union(item) => (&item.ident, &item.attrs),
        Item::Macro(item) => return in_macro(&item.attrs, item),
        _ => return Vec::new(),
    };
    if is_for_tests(attributes) { Vec::new() } else { vec![name.to_string()] }
}

/// The types in the argument of a macro such as `bitflags!`, and the name of a macro's definition.
fn in_macro(attributes: &[Attribute], item: &syn::ItemMacro) -> Vec<String> {
    if is_for_tests(attributes) {
        return Vec::new();
    }
    if let Some(name) = &item.ident {
        return vec![name.to_string()];
    }
    let tokens: Vec<_> = item.mac.tokens.clone().into_iter().collect();
    let pairs = tokens.windows(2);
    pairs
        .filter(|pair| matches!(pair[0].to_string().as_str(), "struct" | "enum"))
        .map(|pair| pair[1].to_string())
        .collect()
}

/// Calls `visit` with each name that an import brings, and its path; without a name for a glob.
pub(crate) fn each_import(
    tree: &UseTree,
    prefix: &mut Vec<String>,
    visit: &mut dyn FnMut(Option<String>, &[String]),
) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            each_import(&path.tree, prefix, visit);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            visit(prefix.last().cloned(), prefix);
        }
        UseTree::Name(name) => {
            prefix.push(name.ident.to_string());
            visit(Some(name.ident.to_string()), prefix);
            prefix.pop();
        }
        UseTree::Rename(name) => {
            prefix.push(name.ident.to_string());
            visit(Some(name.rename.to_string()), prefix);
            prefix.pop();
        }
        UseTree::Glob(_) => visit(None, prefix),
        UseTree::Group(group) => {
            for tree in &group.items {
                each_import(tree, prefix, visit);
            }
        }
    }
}
