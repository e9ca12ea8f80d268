//! The circles of the directories that are listed, or of any other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::names::Names;
use super::super::{Finding, Source, Tree, table};
use super::calls::{self, Use};
use super::graph;
use super::index::Index;

const RULE: &str = "file-circle";
const DOCUMENT: &str = "STYLE.md";

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(rows) = tree.file(DOCUMENT).and_then(|text| table::rows(text, RULE)) else {
        findings.push(Finding::new(DOCUMENT, 1, RULE, "the table `file-circle` is missing."));
        return;
    };
    for row in &rows {
        for path in row.codes(0) {
            if !tree.exists(path.trim_end_matches("/*")) {
                let sentence = format!("there is no `{path}`.");
                findings.push(Finding::new(DOCUMENT, row.line, RULE, sentence));
            }
            findings.extend(below(tree, &path));
        }
    }
}

/// The circles among the files at or below `path` in the workspace at `root`.
///
/// # Errors
/// A sentence that names the path or source that cannot be read.
pub fn look(root: &Path, path: &str) -> Result<Vec<Finding>, String> {
    let tree = Tree::load(root)?;
    let path = path.trim_start_matches("./").trim_end_matches('/');
    match tree.exists(path.trim_end_matches("/*")) {
        true => Ok(below(&tree, path)),
        false => Err(format!("there is no `{path}` in the workspace")),
    }
}

/// The circles among the files at or below `path`; each package is looked at alone. A path that
/// ends in `/*` stands for the directory's children, each with all its files as one.
fn below(tree: &Tree, path: &str) -> Vec<Finding> {
    let (path, by_child) = match path.strip_suffix("/*") {
        Some(dir) => (dir, true),
        None => (path, false),
    };
    let node = |source: &Source| -> Option<String> {
        let rest = source.path.strip_prefix(path)?;
        let inner = rest.strip_prefix('/').or_else(|| rest.is_empty().then_some(rest))?;
        let child = inner.split('/').next().unwrap_or_default();
        let is_list = matches!(child, "lib.rs" | "mod.rs");
        match by_child {
            true => (!is_list).then(|| child.to_owned()),
            false => Some(source.path.clone()),
        }
    };
    let packages: BTreeSet<&str> = tree
        .sources
        .iter()
        .filter(|source| !source.is_test && node(source).is_some())
        .map(|source| source.package.as_str())
        .collect();
    let mut findings = Vec::new();
    for package in packages {
        let sources: Vec<&Source> = tree.library(package).collect();
        let used = tree.used_by(package);
        let others: Vec<&Source> = used.iter().flat_map(|name| tree.library(name)).collect();
        within(&sources, &others, &node, &mut findings);
    }
    findings
}

/// The circles among the nodes that `sources` of one crate belong to.
pub(super) fn within(
    sources: &[&Source],
    others: &[&Source],
    node: &dyn Fn(&Source) -> Option<String>,
    findings: &mut Vec<Finding>,
) {
    let names = Names::new(sources);
    let index = Index::new(&names, sources, others);
    let nodes: Vec<Option<String>> = sources.iter().map(|source| node(source)).collect();
    let known: BTreeSet<&String> = nodes.iter().flatten().collect();
    let known: Vec<&String> = known.into_iter().collect();
    let number = |source: usize| {
        let name = nodes[source].as_ref()?;
        known.iter().position(|known| *known == name)
    };
    // For each node, the first use of each other node, and the source that makes it.
    let mut uses: Vec<BTreeMap<usize, (usize, Use)>> = vec![BTreeMap::new(); known.len()];
    for (at, source) in sources.iter().enumerate() {
        let Some(own) = number(at) else { continue };
        for one in calls::uses(&names, &index, at, source) {
            match number(one.target) {
                Some(target) if target != own => uses[own].entry(target).or_insert((at, one)),
                _ => continue,
            };
        }
    }
    let edges: Vec<Vec<usize>> = uses.iter().map(|uses| uses.keys().copied().collect()).collect();
    for circle in graph::circles(&edges) {
        let size = circle.len();
        let among = circle.iter().flat_map(|&node| &uses[node]);
        for (_, (source, one)) in among.filter(|(target, _)| circle.contains(target)) {
            let other = &sources[one.target].path;
            let sentence = format!("`{}` of {other} is used, in a circle of {size}.", one.name);
            findings.push(Finding::new(&sources[*source].path, one.line, RULE, sentence));
        }
    }
}
