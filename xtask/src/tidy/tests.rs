//! Each rule meets code that breaks it, and code that only looks as if it did.

use std::collections::BTreeMap;

use super::rooms::{Rooms, Walk};
use super::{
    Finding, Package, Source, Tree, docs, files, lex, lines, rows, sizes, table, unsafety, words,
};

fn source(package: &str, path: &str, text: &str, module: &[&str]) -> Source {
    let module = module.iter().map(|part| (*part).to_owned()).collect();
    Source::parse(package, path, text.to_owned(), module, false).expect("the test's source parses")
}

fn lines(findings: &[Finding]) -> Vec<(usize, &str)> {
    findings.iter().map(|finding| (finding.line, finding.rule)).collect()
}

mod rooms {
    use super::*;

    /// The findings for a source in room `table`, between `phys` and `fault`.
    fn found(text: &str) -> Vec<String> {
        found_in(text, &["table", "walk"])
    }

    fn found_in(text: &str, module: &[&str]) -> Vec<String> {
        let order = ["sync", "phys", "table", "fault", "engine"].map(str::to_owned).to_vec();
        let offered = BTreeMap::from([
            ("Mm".to_owned(), Some("engine".to_owned())),
            ("Phys".to_owned(), Some("phys".to_owned())),
            ("arch".to_owned(), None),
        ]);
        let rooms = Rooms { order, offered };
        let source = source("quire", "crates/mm/src/table/walk.rs", text, module);
        let mut findings = Vec::new();
        let tokens = lex::without_tests(&source.tokens);
        Walk { rooms: &rooms, source: &source, findings: &mut findings }
            .level(&tokens, &source.module);
        findings.into_iter().map(|finding| finding.sentence).collect()
    }

    #[test]
    fn rooms_to_the_left_may_be_named() {
        let text = "use crate::{phys::{Meta, Slot}, sync}; use super::Place; use crate::arch::Arch;
            fn f(x: crate::phys::Pfn) -> crate::Phys { crate::table::g(self.x) }";
        assert!(found(text).is_empty());
    }

    #[test]
    fn a_plain_import_from_the_right_is_found() {
        let sentence = "room `table` names `fault`, which lies to its right.";
        assert_eq!(found("use crate::fault::step;"), [sentence]);
    }

    #[test]
    fn a_grouped_import_that_a_text_search_misses_is_found() {
        assert_eq!(found("use crate::{phys::Meta, fault::step};").len(), 1);
        assert_eq!(found("use crate::{phys, self as all};").len(), 1);
        assert_eq!(found("use crate::{{phys}, {sync, {engine}}};").len(), 1);
        assert_eq!(found("use {crate::phys, crate::engine::Mm as M};").len(), 1);
    }

    #[test]
    fn super_is_followed_up_to_the_root() {
        assert_eq!(found("use super::super::fault::step;").len(), 1);
        assert_eq!(found("use super::{super::{fault, phys}, Place};").len(), 1);
        assert_eq!(found("mod inner { use super::super::super::engine; }").len(), 1);
        assert!(found("mod inner { use super::super::fault; }").is_empty(), "a child of table");
        assert_eq!(found("use self::super::super::fault;").len(), 1);
    }

    #[test]
    fn paths_in_expressions_types_macros_and_visibility_are_found() {
        for text in [
            "fn f() { crate::fault::step() }",
            "fn f(x: &dyn crate::engine::T) {}",
            "fn f() { assert_eq!(1, crate::fault::N); }",
            "macro_rules! m { () => { $crate::fault::N } }",
            "impl crate::engine::T for X {}",
            "#[derive(crate::engine::D)] struct X;",
            "fn f() { let x = crate :: fault :: N; }",
        ] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_name_of_the_root_counts_as_its_room() {
        assert_eq!(found("use crate::Mm;").len(), 1);
        assert_eq!(found("use crate::{Phys, Mm as M};").len(), 1);
    }

    #[test]
    fn a_path_that_cannot_be_followed_is_found() {
        for text in ["use crate::*;", "use crate as q;", "use crate::{self};", "use crate::{*};"] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
        assert_eq!(found_in("use super::*;", &["table"]).len(), 1, "the root's glob");
        assert!(found("use super::*;").is_empty(), "the room's own glob");
        assert_eq!(found("use crate::unknown::X;").len(), 1);
    }

    #[test]
    fn tests_and_models_are_exempt() {
        assert!(found("#[cfg(test)] mod tests { use crate::engine::Mm; }").is_empty());
        assert!(found("#[cfg(all(test, not(loom)))] use crate::engine::Mm;").is_empty());
        assert!(found("#[test] fn f() { crate::engine::g() }").is_empty());
        assert_eq!(found("#[cfg(not(test))] use crate::engine::Mm;").len(), 1);
        assert_eq!(found("#[cfg(any(test, unix))] use crate::engine::Mm;").len(), 1);
        assert_eq!(found("#[cfg(test)] use crate::phys; use crate::engine::Mm;").len(), 1);
    }
}

#[test]
fn long_files_functions_and_lines_are_found() {
    let long = format!("fn f() {{\n{}}}\nfn g() {{}}\n", "    g();\n".repeat(69));
    let fits = long.replacen("    g();\n", "", 1);
    let check = |text: &str| {
        let source = source("quire", "a.rs", text, &[]);
        let mut findings = Vec::new();
        sizes::check(&Tree { sources: vec![source], ..Tree::default() }, &mut findings);
        findings
    };
    assert_eq!(lines(&check(&long)), [(1, "function-length")]);
    assert!(check(&fits).is_empty());
    assert_eq!(lines(&check(&format!("m! {{ {long} }}"))), [(1, "function-length")]);
    assert_eq!(lines(&check(&"fn f() {}\n".repeat(601))), [(601, "file-length")]);
    assert_eq!(lines(&check(&format!("// {}\n", "x".repeat(98)))), [(1, "line-length")]);
    assert!(check(&format!("//! | {} |\n", "x".repeat(98))).is_empty(), "a table's row");
}

#[test]
fn unsafe_is_found_outside_its_files_and_without_argument() {
    let check = |text: &str, named: bool| {
        let mut findings = Vec::new();
        unsafety::source_rules(&source("quire", "a.rs", text, &[]), named, &mut findings);
        findings.into_iter().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    let argued = "fn f() {\n    // SAFETY: it is ours.\n    let x =\n        unsafe { g() };\n}";
    assert_eq!(check(argued, false), ["unsafe-place"]);
    assert!(check(argued, true).is_empty());
    assert_eq!(check("#![allow(unsafe_code)]", false), ["unsafe-place"]);
    assert!(check("#![deny(unsafe_code)]", false).is_empty());
    assert_eq!(check("fn f() { unsafe { g() } }", true), ["unsafe-argued"]);
    assert_eq!(check("m! { unsafe { g() } }", true), ["unsafe-argued"]);
    let other = "// SAFETY: of another line.\nfn f() {}\n\nunsafe impl Send for X {}";
    assert_eq!(check(other, true), ["unsafe-argued"]);
    let outer = "/// # Safety\n/// None.\nunsafe fn f() {\n    unsafe { g() }\n}";
    assert_eq!(check(outer, true), ["unsafe-argued"], "the section does not argue for the body");
    assert!(check("type F = unsafe fn(u8);", true).is_empty());
    assert!(check("/// # Safety\n/// None.\n#[inline]\npub unsafe fn f() {}", true).is_empty());
}

#[test]
fn unfinished_work_is_found() {
    let check = |text: &str| {
        let mut findings = Vec::new();
        words::unfinished(&source("quire", "a.rs", text, &[]), &mut findings);
        findings.into_iter().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    let mark = concat!("TO", "DO");
    assert_eq!(check(&format!("// {mark}: later\nfn f() {{}}")), ["banned-word"]);
    assert_eq!(check(&format!("/* a\n {mark} */ fn f() {{}}")), ["banned-word"]);
    assert!(check(&format!("fn f() {{ g(\"// {mark}\", '\"', 'a'); }}")).is_empty());
    assert!(check(&format!("fn f() {{ g(r#\"// \" {mark}\"#); }}")).is_empty());
    assert_eq!(check(&format!("fn f<'a>() {{ g('\\'', \"\\\"\"); }} // {mark}")), ["banned-word"]);
    assert_eq!(check("fn f() { todo!() }"), ["banned-word"]);
    assert_eq!(check("fn f() { assert!(dbg!(true)); }"), ["banned-word"]);
    assert_eq!(check("#[test]\n#[ignore]\nfn f() {}"), ["ignored-test"]);
    assert_eq!(check("m! { #[ignore = \"slow\"] fn f() {} }"), ["ignored-test"]);
}

#[test]
fn panics_in_the_library_are_found_but_not_in_tests_or_constants() {
    let check = |text: &str| {
        let mut findings = Vec::new();
        words::panics(&source("quire", "a.rs", text, &[]), &mut findings);
        findings.len()
    };
    assert_eq!(check("fn f() { a.unwrap(); b.expect(\"x\"); panic!(\"y\"); }"), 3);
    assert_eq!(check("fn f() { g(|| a[0].unwrap()) }"), 1);
    assert_eq!(check("fn f() { a.unwrap_or(b); expect(c); #[expect(dead_code)] let x = 1; }"), 0);
    assert_eq!(check("#[cfg(test)] mod tests { fn f() { a.unwrap(); } }"), 0);
    assert_eq!(check("const A: u8 = match B { 1 => 2, _ => panic!(\"no\") }; fn f() {}"), 0);
    assert_eq!(check("fn f() -> u8 { const { C.unwrap() } }"), 0);
    assert_eq!(check("impl<const N: u8> X<N> { fn f() { panic!() } }"), 1);
    assert_eq!(check("const fn f() { panic!() }"), 1);
}

#[test]
fn switches_within_functions_are_found() {
    let check = |text: &str| {
        let source = source("quire", "a.rs", text, &[]);
        let mut findings = Vec::new();
        words::switches(&source, &source.tokens, &mut findings);
        findings.len()
    };
    assert_eq!(check("fn f() { if cfg!(test) { g() } }"), 1);
    assert_eq!(check("impl X { fn f() { #[cfg(target_arch = \"x86_64\")] g(); } }"), 1);
    assert_eq!(check("fn f() { #[cfg(all(not(test), unix))] g(); }"), 1);
    assert_eq!(check("#[cfg(test)] fn f() { cfg!(test); } #[cfg(target_arch = \"x\")] mod a;"), 0);
    assert_eq!(check("fn f() { if cfg!(debug_assertions) { g() } }"), 0);
}

#[test]
fn places_of_one_machine_are_found() {
    let check = |text: &str| {
        let mut findings = Vec::new();
        words::places("a.md", text, &mut findings);
        findings.len()
    };
    assert_eq!(check(concat!("see /ho", "me/someone/x and\n/ro", "ot/x")), 2);
    assert_eq!(check("see docs/home.md and https://example.org"), 0);
}

#[test]
fn files_are_reachable_documented_and_lists_stay_lists() {
    let long = format!("//! Doc.\nmod a;\nfn f() {{\n{}}}\n", "g();\n".repeat(60));
    let tree = Tree {
        sources: vec![
            source("quire", "a/mod.rs", "fn undocumented() {}", &[]),
            source("quire", "b/mod.rs", &long, &[]),
            source("quire", "b/other.rs", &long, &[]),
        ],
        files: vec![("a/mod.rs".into(), String::new()), ("c.rs".into(), String::new())],
        ..Tree::default()
    };
    let mut findings = Vec::new();
    files::check(&tree, &mut findings);
    let found: Vec<_> = findings.iter().map(|f| (f.path.as_str(), f.rule)).collect();
    let expected = [("c.rs", "dead-file"), ("a/mod.rs", "module-doc"), ("b/mod.rs", "module-list")];
    assert_eq!(found, expected);
}

#[test]
fn names_of_tests_are_found_in_macros_too() {
    let text = "#[test] fn e1_a() {} #[cfg(test)] fn no() {}
        proptest! { #[test] #[inline] fn e2_b(x in 0..4u8) { } }
        macro_rules! laws { ($a:ty) => { #[test] fn e2_c() { law::<$a>() } } }";
    let names: Vec<_> =
        rows::test_names(&lex::trees(text)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["e1_a", "e2_b", "e2_c"]);
}

#[test]
fn rows_and_tests_must_agree() {
    let table = |name: &str, rows: &str| {
        format!("<!-- tidy: {name} -->\n\n| id | state |\n|---|---|\n{rows}\n")
    };
    let tree = Tree {
        sources: vec![source("quire", "a.rs", "#[test] fn e1_x() {} #[test] fn b9_x() {}", &[])],
        files: vec![
            (
                "docs/rows.md".into(),
                table("rows", "| E1 | built |\n| E2 | built |\n| E3 | planned |"),
            ),
            ("docs/invariants.md".into(), table("invariants", "| I1 | planned |")),
        ],
        ..Tree::default()
    };
    let mut findings = Vec::new();
    rows::check(&tree, &mut findings);
    assert_eq!(lines(&findings), [(6, "row-tested"), (1, "row-known")]);
}

#[test]
fn dependencies_must_stand_in_the_table() {
    let architecture = "<!-- tidy: crates -->\n| crate | a | b | c | d |\n|---|---|---|---|---|\n\
        | `quire` | `quire-hw` | `quire-machine` | `spin` `gone` | |\n";
    let uses = [
        ("quire-hw", true, false),
        ("quire-machine", true, true),
        ("quire-cli", true, false),
        ("spin", false, false),
        ("rand", false, true),
    ];
    let package = |name: &str, uses: &[(&str, bool, bool)]| Package {
        name: name.to_owned(),
        dir: format!("crates/{name}"),
        dependencies: uses.iter().map(|&(name, ours, test)| (name.into(), ours, test)).collect(),
    };
    let tree = Tree {
        packages: vec![package("quire", &uses), package("unlisted", &[])],
        files: vec![("ARCHITECTURE.md".into(), architecture.to_owned())],
        ..Tree::default()
    };
    let mut findings = Vec::new();
    super::crates::check(&tree, &mut findings);
    let found: Vec<_> = findings.iter().map(|finding| finding.sentence.as_str()).collect();
    assert_eq!(
        found,
        [
            "`quire` may not use `quire-cli`.",
            "`quire` may not use `rand` in its tests.",
            "`unlisted` has no row in the table of ARCHITECTURE.md.",
            "`quire` does not use `gone`.",
        ]
    );
}

#[test]
fn the_guide_shows_pieces_of_code_to_the_letter() {
    let source =
        "//! A file.\n\n/// Why.\n#[inline]\nfn a() {\n    b();\n}\n\n    const C: u8 = 1;\n";
    let code = |name: &str| (name == "a.rs").then(|| source.to_owned());
    assert_eq!(
        docs::piece(source, "fn a").unwrap(),
        "/// Why.\n#[inline]\nfn a() {\n    b();\n}\n"
    );
    assert_eq!(docs::piece(source, "const C").unwrap(), "const C: u8 = 1;\n");
    assert_eq!(docs::piece(source, "fn b"), None);
    let guide = |place: &str, shown: &str| {
        format!("text\n<!-- tidy: code {place} -->\n```rust\n{shown}```\n```sh\nls\n```\n")
    };
    let good = guide("a.rs const C", "const C: u8 = 1;\n");
    assert_eq!(docs::guided(&good, &code), (good.clone(), Vec::new()));
    let (mended, wrong) = docs::guided(&guide("a.rs const C", "const C: u8 = 2;\n"), &code);
    assert_eq!((mended, wrong.len(), wrong[0].0), (good, 1, 3));
    for place in ["a.rs fn b", "b.rs const C"] {
        let (text, wrong) = docs::guided(&guide(place, "x\n"), &code);
        assert_eq!((text, wrong.len()), (guide(place, "x\n"), 1));
    }
    assert_eq!(docs::guided("<!-- tidy: code a.rs fn a -->\n", &code).1.len(), 1);
}

#[test]
fn the_readme_shows_the_example_to_the_letter() {
    let example = "//! Doc.\nfn other() {}\nfn main() {\n    other();\n}\n";
    assert_eq!(docs::shown(example).as_deref(), Some("fn main() {\n    other();\n}\n"));
    let marked =
        "fn main() {\n    // README: from here\n    a();\n\n    b();\n    // README: to here\n}";
    assert_eq!(docs::shown(marked).as_deref(), Some("a();\n\nb();\n"));
    let check = |code: &str| {
        let readme = format!("text\n<!-- tidy: embed -->\n\n```rust\n{code}```\n");
        let files = vec![
            ("README.md".into(), readme),
            ("crates/mm/examples/embed.rs".into(), example.to_owned()),
        ];
        let mut findings = Vec::new();
        docs::check(&Tree { files, ..Tree::default() }, &mut findings);
        findings.len()
    };
    assert_eq!(check("fn main() {\n    other();\n}\n"), 0);
    assert_eq!(check("fn main() {\n    others();\n}\n"), 1);
}

#[test]
fn the_examples_lines_are_those_that_the_guide_says() {
    let code = "//! A.\n\nfn main() {\n    // No.\n    a();\n}\n";
    let script = "/* A\n * b */\n/* c */\nENTRY(a)\n";
    assert_eq!((lines::code_lines(code), lines::code_lines(script)), (3, 1));
    let check = |count: &str, names: &str, long: bool| {
        let guide = "<!-- tidy: example-lines -->\n| a | files | n |\n|---|---|---|\n";
        let code = if long { "a();\n".repeat(601) } else { code.to_owned() };
        let files = vec![
            ("docs/embedding.md".into(), format!("{guide}| a | {names} | {count} |\n")),
            ("examples/tiny/src/a.rs".into(), code),
            ("examples/tiny/a.ld".into(), script.to_owned()),
        ];
        let mut findings = Vec::new();
        lines::check(&Tree { files, ..Tree::default() }, &mut findings);
        findings.into_iter().map(|finding| finding.sentence).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(check("4", "`src/a.rs`, `a.ld`", false), "");
    assert!(check("5", "`src/a.rs`, `a.ld`", false).contains("4 lines of code, not 5"));
    assert!(check("3", "`src/a.rs`", false).contains("a.ld is in no row"));
    assert!(check("4", "`src/a.rs`, `a.ld`, `b.rs`", false).contains("there is no"));
    assert!(check("602", "`src/a.rs`, `a.ld`", true).contains("at most 600"));
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let files = vec![
        ("docs/a.md".into(), "[b](b/c.md#x) [up](../d.md) [no](e.md) [web](https://f.g)".into()),
        ("docs/b/c.md".into(), String::new()),
        ("d.md".into(), "[dir](docs/b) [here](#there)".into()),
    ];
    let mut findings = Vec::new();
    docs::check(&Tree { files, ..Tree::default() }, &mut findings);
    let found: Vec<_> = findings.iter().map(|finding| finding.sentence.as_str()).collect();
    assert_eq!(found, ["the link leads to `e.md`, which is not there."]);
}

#[test]
fn tables_are_read_where_they_are_marked() {
    let text = "| not | this |\n|---|---|\n| `x` | y |\n\n<!-- tidy: t -->\n\n| a | b |\n\
        |---|---|\n| `p` `q` | r |\n| s |\n\n| no | more |\n";
    let rows = table::rows(text, "t").expect("the table is marked");
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].line, rows[0].codes(0), rows[0].cell(1)),
        (9, vec!["p".into(), "q".into()], "r")
    );
    assert_eq!(rows[1].cell(1), "");
    assert_eq!(table::rows(text, "other"), None);
}

#[test]
fn the_public_face_is_listed_through_re_exports() {
    let root = "pub mod a; mod b; pub use b::B; pub use b::hidden::C as D; pub use quire_hw as hw;
        pub(crate) fn not_listed() {}";
    let b = "pub struct B<T> { pub x: T, y: u8 }
        impl<T> B<T> { pub const fn new(
            x: T,
        ) -> Self { todo() } fn own(&self) {} }
        pub mod hidden { pub enum C { One, Two(u8) } }
        #[cfg(test)] pub fn tested() {}";
    let a = "pub use crate::b::B as Other; pub const N: usize = 3; pub trait T { fn t(&self); }
        bitflags! { pub struct Bits: u8 { const ONE = 1; const TWO = 2; } }
        pub struct Mm; impl Mm { pub fn one(&self) {} pub fn two(&self) {} pub const C: u8 = 1; }";
    let sources = [
        source("quire-mm", "src/lib.rs", root, &[]),
        source("quire-mm", "src/a.rs", a, &["a"]),
        source("quire-mm", "src/b.rs", b, &["b"]),
    ];
    let api = super::api::Api::of(&sources.iter().collect::<Vec<_>>());
    assert_eq!(api.methods, 2);
    let all: Vec<String> = api
        .modules
        .into_iter()
        .flat_map(|(module, lines)| lines.into_iter().map(move |line| format!("{module} {line}")))
        .collect();
    let expected = [
        "quire B.x: T",
        "quire B::fn new(x: T) -> Self {const}",
        "quire D::One",
        "quire D::Two(u8)",
        "quire enum D",
        "quire struct B<T>",
        "quire use quire_hw as hw",
        "quire::a Bits::ONE",
        "quire::a Bits::TWO",
        "quire::a Mm::const C: u8",
        "quire::a Mm::fn one(&self)",
        "quire::a Mm::fn two(&self)",
        "quire::a T::fn t(&self)",
        "quire::a bitflags Bits",
        "quire::a const N: usize",
        "quire::a struct Mm",
        "quire::a trait T",
        "quire::a use quire::B as Other",
    ];
    assert_eq!(all, expected);
}
