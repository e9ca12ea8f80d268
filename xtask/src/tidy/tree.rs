//! The workspace as the rules see it: packages, their sources in the module tree, other files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand, TargetKind};
use proc_macro2::{Delimiter, TokenTree};
use syn::{Attribute, Expr, Item, ItemMod, Lit, Meta};

use super::lex;

/// A package of the workspace.
#[derive(Clone)]
pub struct Package {
    /// Its name in Cargo.toml.
    pub name: String,
    /// Its directory, relative to the workspace.
    pub dir: String,
    /// Its dependencies: name, whether it is one of the workspace, whether only for tests.
    pub dependencies: Vec<(String, bool, bool)>,
}

/// A Rust source that is part of some target.
#[derive(Clone)]
pub struct Source {
    /// The package it belongs to.
    pub package: String,
    /// The file, relative to the workspace.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenTree>,
    /// Its items.
    pub items: Vec<Item>,
    /// Whether it begins with documentation of the module.
    pub has_doc: bool,
    /// Its place in the module tree: empty for the root of a target.
    pub module: Vec<String>,
    /// A test, bench or example, or part of one.
    pub is_test: bool,
}

/// All that the rules look at.
#[derive(Clone, Default)]
pub struct Tree {
    /// The packages of the workspace.
    pub packages: Vec<Package>,
    /// The sources reachable from their targets.
    pub sources: Vec<Source>,
    /// All text files of the workspace, sources included: path and content.
    pub files: Vec<(String, String)>,
}

/// Modules of ours that are compiled in a package of another system: the package of ours that they
/// go with, the file, and the module's name there.
const OVERLAYS: [(&str, &str, &str); 1] =
    [("quire-starry", "embedders/starry/aspace/mod.rs", "aspace")];

impl Tree {
    /// Reads the workspace at `root`.
    ///
    /// # Errors
    /// A sentence that names the manifest or source that cannot be read.
    pub fn load(root: &Path) -> Result<Self, String> {
        let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
        let mut files = Vec::new();
        collect(&root, &root, &mut files)?;
        let mut loader = Loader { root: &root, seen: BTreeSet::new(), sources: Vec::new() };
        let mut packages = Vec::new();
        for manifest in manifests(&files) {
            for package in &metadata(&root, manifest)? {
                packages.push(describe(&root, package));
                loader.package(package)?;
            }
        }
        for (package, path, module) in OVERLAYS {
            let path = root.join(path);
            if path.is_file() {
                loader.load(package, &path, path.parent(), vec![module.to_owned()], false)?;
            }
        }
        Ok(Self { packages, sources: loader.sources, files })
    }

    /// The content of a text file.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str())
    }

    /// Whether there is a file or directory of this name.
    pub fn exists(&self, path: &str) -> bool {
        let dir = format!("{}/", path.trim_end_matches('/'));
        self.files.iter().any(|(name, _)| name == path || name.starts_with(&dir))
    }

    /// The packages of the workspace that `package` uses outside of tests, directly or not.
    pub fn used_by(&self, package: &str) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        let mut open = vec![package.to_owned()];
        while let Some(name) = open.pop() {
            let package = self.packages.iter().find(|package| package.name == name);
            for (name, ours, in_tests) in package.iter().flat_map(|one| &one.dependencies) {
                if *ours && !in_tests && used.insert(name.clone()) {
                    open.push(name.clone());
                }
            }
        }
        used
    }

    /// The sources of a package that are no tests.
    pub fn library<'a>(&'a self, package: &'a str) -> impl Iterator<Item = &'a Source> {
        self.sources.iter().filter(move |source| source.package == package && !source.is_test)
    }
}

/// The manifests that begin a workspace: the root's, and those of packages that stand apart because
/// they are built for other targets only.
fn manifests(files: &[(String, String)]) -> impl Iterator<Item = &str> {
    let begins = |text: &str| text.lines().any(|line| line.trim() == "[workspace]");
    files
        .iter()
        .filter(move |(path, text)| {
            path == "Cargo.toml" || path.ends_with("/Cargo.toml") && begins(text)
        })
        .map(|(path, _)| path.as_str())
}

fn metadata(root: &Path, manifest: &str) -> Result<Vec<cargo_metadata::Package>, String> {
    let mut command = MetadataCommand::new();
    let metadata = command.manifest_path(root.join(manifest)).no_deps().exec();
    Ok(metadata.map_err(|error| format!("{manifest}: {error}"))?.packages)
}

fn is_test_target(kinds: &[TargetKind]) -> bool {
    kinds
        .iter()
        .any(|kind| matches!(kind, TargetKind::Test | TargetKind::Bench | TargetKind::Example))
}

fn describe(root: &Path, package: &cargo_metadata::Package) -> Package {
    let dir = package.manifest_path.as_std_path().parent().unwrap_or(root);
    let dependencies = package.dependencies.iter().map(|dependency| {
        let for_tests = dependency.kind == DependencyKind::Development;
        (dependency.name.clone(), dependency.path.is_some(), for_tests)
    });
    Package {
        name: package.name.to_string(),
        dir: relative(root, dir),
        dependencies: dependencies.collect(),
    }
}

pub(crate) fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

struct Loader<'a> {
    root: &'a Path,
    seen: BTreeSet<PathBuf>,
    sources: Vec<Source>,
}

impl Loader<'_> {
    /// Reads the sources of all targets of `package`.
    fn package(&mut self, package: &cargo_metadata::Package) -> Result<(), String> {
        let mut targets: Vec<_> = package.targets.iter().collect();
        // A file that a library and a test share counts as the library's.
        targets.sort_by_key(|target| is_test_target(&target.kind));
        for target in targets {
            let is_test = is_test_target(&target.kind);
            let path = target.src_path.as_std_path();
            self.load(&package.name, path, path.parent(), Vec::new(), is_test)?;
        }
        Ok(())
    }

    /// Reads the source at `path`, whose child modules lie in `dir`, and all below it.
    fn load(
        &mut self,
        package: &str,
        path: &Path,
        dir: Option<&Path>,
        module: Vec<String>,
        is_test: bool,
    ) -> Result<(), String> {
        if !self.seen.insert(path.to_path_buf()) {
            return Ok(());
        }
        let name = relative(self.root, path);
        let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        let source = Source::parse(package, &name, text, module, is_test)?;
        let dir = dir.unwrap_or(self.root).to_path_buf();
        let (items, module, is_test) =
            (source.items.clone(), source.module.clone(), source.is_test);
        self.sources.push(source);
        self.children(package, &items, &dir, &module, is_test)
    }

    fn children(
        &mut self,
        package: &str,
        items: &[Item],
        dir: &Path,
        module: &[String],
        is_test: bool,
    ) -> Result<(), String> {
        for item in items {
            let Item::Mod(child) = item else { continue };
            let name = child.ident.to_string();
            let is_test = is_test || is_for_tests(&child.attrs);
            let module: Vec<_> = module.iter().chain([&name]).cloned().collect();
            if let Some((_, items)) = &child.content {
                self.children(package, items, &dir.join(&name), &module, is_test)?;
            } else if let Some((path, dir)) = find(child, dir, &name) {
                self.load(package, &path, Some(&dir), module, is_test)?;
            }
        }
        Ok(())
    }
}

impl Source {
    /// A source with the text `text`.
    ///
    /// # Errors
    /// A sentence that says where the text is no Rust.
    pub fn parse(
        package: &str,
        path: &str,
        text: String,
        module: Vec<String>,
        is_test: bool,
    ) -> Result<Self, String> {
        let file = syn::parse_file(&text)
            .map_err(|error| format!("{path}:{}: not Rust: {error}", error.span().start().line))?;
        let for_tests = lex::test_item_inner(&lex::trees(&text));
        Ok(Self {
            package: package.to_owned(),
            path: path.to_owned(),
            tokens: lex::trees(&text),
            has_doc: file.attrs.first().is_some_and(|first| first.path().is_ident("doc")),
            items: file.items,
            text,
            module,
            is_test: is_test || for_tests,
        })
    }
}

/// Whether attributes make an item exist in tests or model checks only.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if attribute.path().is_ident("cfg") => {
            let group = proc_macro2::Group::new(Delimiter::Parenthesis, list.tokens.clone());
            let name = proc_macro2::Ident::new("cfg", proc_macro2::Span::call_site());
            let tokens = [TokenTree::Ident(name), TokenTree::Group(group)];
            let tokens = tokens.into_iter().collect();
            lex::is_test_only(&proc_macro2::Group::new(Delimiter::Bracket, tokens))
        }
        _ => false,
    })
}

/// The file of a module, and the directory where its own children lie.
fn find(module: &ItemMod, dir: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
    let given = module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(path) => Some(path.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    if let Some(path) = given {
        // Beside the file that says so: for `a.rs` that is above the directory of its children.
        let places = [Some(dir), dir.parent()].into_iter().flatten();
        let path = places.map(|place| place.join(&path)).find(|path| path.is_file())?;
        let dir = path.parent()?.to_path_buf();
        return Some((path, dir));
    }
    let candidates = [dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")];
    let path = candidates.into_iter().find(|path| path.is_file())?;
    Some((path, dir.join(name)))
}

const TEXT: [&str; 10] = ["rs", "md", "toml", "sh", "yml", "yaml", "c", "S", "txt", "ld"];

/// Text files without an extension.
const NAMED: [&str; 4] = ["Makefile", "run", "LICENSE-MIT", "LICENSE-APACHE"];

/// All text files below `dir` but build products and what belongs to version control.
fn collect(root: &Path, dir: &Path, files: &mut Vec<(String, String)>) -> Result<(), String> {
    let sentence = |path: &Path, error| format!("{}: {error}", relative(root, path));
    let mut entries: Vec<PathBuf> = fs::read_dir(dir)
        .map_err(|error| sentence(dir, error))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "target" | ".git") {
                collect(root, &path, files)?;
            }
            continue;
        }
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let known = TEXT.contains(&&*extension) || NAMED.contains(&name.as_str());
        if known && path.is_file() {
            // A file that is no text has nothing to say to the rules.
            if let Ok(text) = fs::read_to_string(&path) {
                files.push((relative(root, &path), text));
            }
        }
    }
    Ok(())
}
