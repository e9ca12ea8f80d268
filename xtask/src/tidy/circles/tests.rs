//! Circles of calls are found where imports do not show them, and calls that only look alike are
//! left out.

use super::super::{Finding, Source};
use super::find::within;
use super::graph;

/// The uses within circles among files of a crate, as `file:line name`.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> = files
        .iter()
        .map(|(path, text)| {
            let module = path.trim_end_matches(".rs").trim_end_matches("mod");
            let module = module.split('/').filter(|part| !part.is_empty() && *part != "lib");
            let module = module.map(str::to_owned).collect();
            Source::parse("p", path, (*text).to_owned(), module, false).expect("it parses")
        })
        .collect();
    let sources: Vec<&Source> = sources.iter().collect();
    let mut findings = Vec::new();
    within(&sources, &[], &|source| Some(source.path.clone()), &mut findings);
    let line = |finding: &Finding| {
        let name = finding.sentence.split('`').nth(1).unwrap_or_default();
        format!("{}:{} {name}", finding.path, finding.line)
    };
    findings.iter().map(line).collect()
}

const MM: (&str, &str) = ("mm.rs", "pub struct Mm { pub files: crate::files::Files }");

#[test]
fn methods_of_one_type_that_call_each_other_over_files_are_found() {
    let fault = ("fault.rs", "use crate::mm::Mm;\nimpl Mm {\n fn fault(&self) { self.shown() } }");
    let shown = ("shown.rs", "use crate::mm::Mm;\nimpl Mm {\n fn shown(&self) { self.fault() } }");
    let files = ("files.rs", "pub struct Files;");
    assert_eq!(found(&[MM, files, fault, shown]), ["fault.rs:3 shown", "shown.rs:3 fault"]);
    let straight = ("shown.rs", "use crate::mm::Mm;\nimpl Mm {\n fn shown(&self) {} }");
    assert!(found(&[MM, files, fault, straight]).is_empty());
}

#[test]
fn receivers_are_followed_through_fields_parameters_and_results() {
    let files = "use crate::mm::Mm;
        pub struct Files { pub n: u8 }
        impl Files { pub fn get(&self, mm: &Mm) -> Option<u8> { mm.map() } }";
    for call in [
        "self.files.get(self)",
        "{ let f = &self.files; f.get(self) }",
        "self.part().get(self)",
        "match self.maybe() { Some(f) => f.get(self), None => None }",
        "{ let Some(f) = self.maybe() else { return None }; f.get(self) }",
        "self.maybe().and_then(|f| f.get(self))",
        "{ debug_assert!(self.files.get(self).is_some()); None }",
    ] {
        let use_it = format!(
            "use crate::files as f;\npub struct Mm {{ files: f::Files }}\nimpl Mm {{
             fn part(&self) -> &f::Files {{ &self.files }}
             fn maybe(&self) -> Option<&f::Files> {{ Some(&self.files) }}
             pub fn map(&self) -> Option<u8> {{ {call} }} }}"
        );
        assert!(!found(&[("mm.rs", &use_it), ("files.rs", files)]).is_empty(), "{call}");
    }
}

#[test]
fn a_name_that_one_type_alone_has_is_followed_and_common_names_are_not() {
    let b = (
        "b.rs",
        "pub struct B;\nimpl B { pub fn probe(&self) { crate::a::run() }\n pub fn len(&self) {} }",
    );
    let probes = "pub fn run() { unknown().probe() }";
    assert_eq!(found(&[("a.rs", probes), b]), ["a.rs:1 probe", "b.rs:2 run"]);
    assert!(found(&[("a.rs", "pub fn run() { unknown().len() }"), b]).is_empty());
    let own = "pub fn run(x: &[u8]) { x.probe() }";
    assert!(found(&[("a.rs", own), b]).is_empty(), "a slice is not ours");
    let c = ("c.rs", "pub struct C;\nimpl C { pub fn probe(&self) {} }");
    assert!(found(&[("a.rs", probes), b, c]).is_empty(), "two types have it");
}

#[test]
fn imports_are_followed_through_re_exports_and_lists_are_no_members() {
    let list = ("lib.rs", "pub mod a;\npub mod b;\npub use a::A;\npub(crate) use self::b::B;");
    let a = ("a.rs", "pub struct A;\nfn f(_: crate::B) {}");
    let b = ("b.rs", "pub struct B;\nfn f(_: crate::A) {}");
    assert_eq!(found(&[list, a, b]), ["a.rs:2 B", "b.rs:2 A"]);
    let straight = ("b.rs", "pub struct B;");
    assert!(found(&[list, a, straight]).is_empty());
}

#[test]
fn tests_are_left_out() {
    let a = ("a.rs", "pub fn a() { crate::b::b() }");
    let b = ("b.rs", "pub fn b() {}\n#[cfg(test)] mod tests { fn t() { crate::a::a() } }");
    assert!(found(&[a, b]).is_empty());
}

#[test]
fn bounds_and_assoc_functions_are_followed() {
    let a = ("a.rs", "pub trait Do { fn go(&self); }\npub fn a() { crate::b::B::make() }");
    let b = (
        "b.rs",
        "pub struct B;\nimpl B { pub fn make() {} fn x<D: crate::a::Do>(d: &D) { d.go() } }",
    );
    assert_eq!(found(&[a, b]).len(), 2);
}

#[test]
fn components_of_a_graph_are_found() {
    let edges = [vec![1], vec![2], vec![0, 3], vec![4], vec![5], vec![4], vec![]];
    assert_eq!(graph::circles(&edges), [vec![0, 1, 2], vec![4, 5]]);
}
