//! The public face of the library: docs/api.md lists every item that other crates can name, one
//! line each. The rule `api` compares the list with the sources, so that a change of the face shows
//! in the change that makes it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Span, TokenTree};
use syn::spanned::Spanned;
use syn::{Fields, ImplItem, Item, Type, Visibility};

use super::names::{Found, Names, Place, each_import};
use super::tree::is_for_tests;
use super::{Finding, Source, Tree, lex};

const DOCUMENT: &str = "docs/api.md";
const PACKAGE: &str = "quire-mm";
const LIBRARY: &str = "quire";
const RULE: &str = "api";

/// The most public methods that `Mm` may have.
const METHODS_MOST: usize = 40;

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(document) = tree.file(DOCUMENT) else { return };
    let api = Api::of(&tree.library(PACKAGE).collect::<Vec<_>>());
    let wanted = api.document();
    if document != wanted {
        let same = document.lines().zip(wanted.lines()).take_while(|(a, b)| a == b).count();
        let sentence = "the list differs from the sources: run `cargo xtask api`.";
        findings.push(Finding::new(DOCUMENT, same + 1, RULE, sentence));
    }
    if api.methods > METHODS_MOST {
        let sentence = format!("`Mm` has {} public methods, at most {METHODS_MOST}.", api.methods);
        findings.push(Finding::new(DOCUMENT, 1, RULE, sentence));
    }
}

/// Writes docs/api.md in the workspace at `root`; returns one sentence about it.
///
/// # Errors
/// A sentence that names the file that cannot be read or written.
pub fn write(root: &Path) -> Result<String, String> {
    let tree = Tree::load(root)?;
    let api = Api::of(&tree.library(PACKAGE).collect::<Vec<_>>());
    fs::write(root.join(DOCUMENT), api.document())
        .map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let count: usize = api.modules.iter().map(|(_, lines)| lines.len()).sum();
    Ok(format!("{DOCUMENT}: {count} public items, {} methods of `Mm`.", api.methods))
}

/// The public items of a library, by module.
pub(crate) struct Api {
    pub(crate) modules: Vec<(String, Vec<String>)>,
    pub(crate) methods: usize,
}

/// An item with the source that it stands in.
type Definition<'a> = (&'a Source, &'a Item);

struct Reader<'a> {
    names: Names,
    items: BTreeMap<(Place, String), Definition<'a>>,
    /// Public functions and constants of a type.
    parts: BTreeMap<(Place, String), Vec<String>>,
    /// The path by which each item was listed first.
    listed: BTreeMap<(Place, String), String>,
}

impl Api {
    /// The public items of the library that consists of `sources`.
    pub(crate) fn of(sources: &[&Source]) -> Self {
        let mut reader = Reader {
            names: Names::new(sources),
            items: BTreeMap::new(),
            parts: BTreeMap::new(),
            listed: BTreeMap::new(),
        };
        for source in sources {
            reader.learn(source, &source.module, &source.items);
        }
        // Modules by depth, so that an item is listed where its path is shortest.
        let mut modules = Vec::new();
        let mut open = VecDeque::from([Place::new()]);
        while let Some(place) = open.pop_front() {
            let mut lines = Vec::new();
            for source in sources {
                let Some(items) = items_at(&source.module, &source.items, &place) else { continue };
                reader.module(source, &place, items, &mut lines, &mut open);
            }
            lines.sort();
            modules.push((path(&place), lines));
        }
        modules.retain(|(_, lines)| !lines.is_empty());
        modules.sort();
        let is_mm = |line: &&String| line.starts_with("Mm::fn ");
        let methods = modules.iter().flat_map(|(_, lines)| lines).filter(is_mm).count();
        Self { modules, methods }
    }

    /// The document that lists them.
    pub(crate) fn document(&self) -> String {
        let mut text = format!(
            "# The public items of `{LIBRARY}`\n\n\
             `cargo xtask api` writes this list and tidy compares it with the sources. \
             Public methods of `Mm` itself: {}; those of `Spaces` are reached through it, too.\n",
            self.methods
        );
        for (module, lines) in &self.modules {
            let _ = write!(text, "\n## `{module}`\n\n```text\n{}\n```\n", lines.join("\n"));
        }
        text
    }
}

fn path(place: &[String]) -> String {
    [&[LIBRARY.to_owned()], place].concat().join("::")
}

/// The items of the module `place`, where they stand in a source whose own module is `own`.
fn items_at<'a>(own: &[String], items: &'a [Item], place: &[String]) -> Option<&'a [Item]> {
    let rest = place.strip_prefix(own)?;
    let Some(first) = rest.first() else { return Some(items) };
    items.iter().find_map(|item| match item {
        Item::Mod(module) if module.ident == first => {
            let (_, inner) = module.content.as_ref()?;
            items_at(&place[..=own.len()], inner, place)
        }
        _ => None,
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

impl<'a> Reader<'a> {
    fn learn(&mut self, source: &'a Source, place: &[String], items: &'a [Item]) {
        for item in items {
            match item {
                Item::Mod(module) if !is_for_tests(&module.attrs) => {
                    let inner = [place, &[module.ident.to_string()]].concat();
                    let items = module.content.as_ref().map(|(_, items)| items.as_slice());
                    self.learn(source, &inner, items.unwrap_or_default());
                }
                Item::Impl(item) if item.trait_.is_none() && !is_for_tests(&item.attrs) => {
                    self.learn_impl(source, place, item);
                }
                other => {
                    for name in super::names::defined(other) {
                        self.items.insert((place.to_vec(), name), (source, other));
                    }
                }
            }
        }
    }

    fn learn_impl(&mut self, source: &Source, place: &[String], item: &syn::ItemImpl) {
        let Type::Path(own) = &*item.self_ty else { return };
        let own = own.path.segments.iter().map(|part| part.ident.to_string()).collect::<Vec<_>>();
        let Some(found) = self.names.find(place, &own) else { return };
        let parts = self.parts.entry((found.place, found.name)).or_default();
        for part in &item.items {
            match part {
                ImplItem::Fn(part) if is_public(&part.vis) && !is_for_tests(&part.attrs) => {
                    let signature = written(source, part.sig.span());
                    let name = signature.find("fn ").map_or(0, |at| at);
                    let (before, after) = signature.split_at(name);
                    let before = before.trim();
                    let before =
                        if before.is_empty() { String::new() } else { format!(" {{{before}}}") };
                    parts.push(format!("{after}{before}"));
                }
                ImplItem::Const(part) if is_public(&part.vis) => {
                    parts.push(format!(
                        "const {}: {}",
                        part.ident,
                        written(source, part.ty.span())
                    ));
                }
                _ => {}
            }
        }
    }

    /// The lines of one module; its public modules join `open`.
    fn module(
        &mut self,
        source: &'a Source,
        place: &[String],
        items: &'a [Item],
        lines: &mut Vec<String>,
        open: &mut VecDeque<Place>,
    ) {
        for item in items {
            match item {
                Item::Mod(module) if is_public(&module.vis) && !is_for_tests(&module.attrs) => {
                    open.push_back([place, &[module.ident.to_string()]].concat());
                }
                Item::Use(import) if is_public(&import.vis) && !is_for_tests(&import.attrs) => {
                    let mut offered = Vec::new();
                    each_import(&import.tree, &mut Vec::new(), &mut |name, path| {
                        offered.push((name, path.to_vec()));
                    });
                    for (name, path) in offered {
                        let found = self.names.find(place, &path);
                        self.offer(place, name, &path, found, lines);
                    }
                }
                other if visibility(other).is_some_and(is_public) => {
                    for name in super::names::defined(other) {
                        self.item(place, &name, (place, &name), lines);
                    }
                }
                Item::Macro(other) if other.ident.is_none() => {
                    for name in super::names::defined(item) {
                        if lex::is_ident(&lex::trees(&written(source, other.span())), 0, "bitflags")
                        {
                            self.item(place, &name, (place, &name), lines);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn offer(
        &mut self,
        place: &[String],
        name: Option<String>,
        path: &[String],
        found: Option<Found>,
        lines: &mut Vec<String>,
    ) {
        match (found, name) {
            (Some(found), Some(name)) => {
                self.item(place, &name, (&found.place, &found.name), lines)
            }
            (None, Some(name)) => lines.push(format!("use {} as {name}", path.join("::"))),
            (_, None) => lines.push(format!("use {}::*", path.join("::"))),
        }
    }

    /// The lines for the item `of`, which the module `place` offers as `name`.
    fn item(
        &mut self,
        place: &[String],
        name: &str,
        of: (&[String], &str),
        lines: &mut Vec<String>,
    ) {
        let key = (of.0.to_vec(), of.1.to_owned());
        if let Some(first) = self.listed.get(&key) {
            lines.push(format!("use {first} as {name}"));
            return;
        }
        let Some(&(source, item)) = self.items.get(&key) else { return };
        self.listed.insert(key.clone(), format!("{}::{name}", path(place)));
        declared(source, item, name, lines);
        for part in self.parts.get(&key).into_iter().flatten() {
            lines.push(format!("{name}::{part}"));
        }
    }
}

fn visibility(item: &Item) -> Option<&Visibility> {
    match item {
        Item::Const(item) => Some(&item.vis),
        Item::Enum(item) => Some(&item.vis),
        Item::Fn(item) => Some(&item.vis),
        Item::Static(item) => Some(&item.vis),
        Item::Struct(item) => Some(&item.vis),
        Item::Trait(item) => Some(&item.vis),
        Item::Type(item) => Some(&item.vis),
        Item::Union(item) => Some(&item.vis),
        _ => None,
    }
}

/// The lines of an item: its head, and its public fields, variants or required functions.
fn declared(source: &Source, item: &Item, name: &str, lines: &mut Vec<String>) {
    match item {
        Item::Const(item) => {
            lines.push(format!("const {name}: {}", written(source, item.ty.span())))
        }
        Item::Static(item) => {
            lines.push(format!("static {name}: {}", written(source, item.ty.span())));
        }
        Item::Fn(item) => lines.push(written(source, item.sig.span())),
        Item::Type(item) => {
            lines.push(format!("type {name} = {}", written(source, item.ty.span())))
        }
        Item::Struct(item) => {
            let generics = written(source, item.generics.span());
            lines.push(format!("struct {name}{generics}"));
            for (at, field) in item.fields.iter().enumerate().filter(|(_, f)| is_public(&f.vis)) {
                let field_name = field.ident.as_ref().map_or(at.to_string(), ToString::to_string);
                lines.push(format!("{name}.{field_name}: {}", written(source, field.ty.span())));
            }
        }
        Item::Enum(item) => {
            lines.push(format!("enum {name}{}", written(source, item.generics.span())));
            for variant in &item.variants {
                let fields = match &variant.fields {
                    Fields::Unit => String::new(),
                    fields => written(source, fields.span()),
                };
                lines.push(format!("{name}::{}{fields}", variant.ident));
            }
        }
        Item::Trait(item) => {
            lines.push(format!("trait {name}{}", written(source, item.generics.span())));
            for part in &item.items {
                match part {
                    syn::TraitItem::Fn(part) => {
                        lines.push(format!("{name}::{}", written(source, part.sig.span())));
                    }
                    syn::TraitItem::Const(part) => {
                        lines.push(format!("{name}::const {}", part.ident))
                    }
                    syn::TraitItem::Type(part) => {
                        lines.push(format!("{name}::type {}", part.ident))
                    }
                    _ => {}
                }
            }
        }
        Item::Macro(item) => in_macro(name, &item.mac, lines),
        _ => {}
    }
}

/// The constants of the type `name` in the argument of `bitflags!`.
fn in_macro(name: &str, call: &syn::Macro, lines: &mut Vec<String>) {
    lines.push(format!("bitflags {name}"));
    let trees: Vec<TokenTree> = call.tokens.clone().into_iter().collect();
    let Some(at) = (0..trees.len()).find(|&at| lex::is_ident(&trees, at, name)) else { return };
    let body = (at..trees.len()).find_map(|at| lex::group(&trees, at, Delimiter::Brace));
    let inner = body.map(lex::inside).unwrap_or_default();
    for pair in inner.windows(2).filter(|pair| pair[0].to_string() == "const") {
        lines.push(format!("{name}::{}", pair[1]));
    }
}

/// The text of a part of the source, comments left out, on one line.
fn written(source: &Source, span: Span) -> String {
    let (start, end) = (span.start(), span.end());
    let mut text = String::new();
    for (at, line) in source.text.lines().enumerate().take(end.line).skip(start.line - 1) {
        let from = if at + 1 == start.line { start.column } else { 0 };
        let to = if at + 1 == end.line { end.column } else { line.chars().count() };
        let part: String = line.chars().take(to).skip(from).collect();
        let part = part.trim();
        if part.starts_with("//") || part.starts_with("#[") {
            continue;
        }
        if !text.is_empty() && !text.ends_with(['(', '<', '[']) {
            text.push(' ');
        }
        text.push_str(part);
    }
    text.replace(",)", ")")
        .replace(", )", ")")
        .replace(" )", ")")
        .replace(",>", ">")
        .replace(", >", ">")
}
