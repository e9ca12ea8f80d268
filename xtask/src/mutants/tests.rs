//! The tool itself: what it changes, that the switch works, who is asked, what is told.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Build, Program};
use super::copy::{CHOSEN, HEAD, Places, REACHED, SWITCH, switched};
use super::draw::{Draw, Mutant};
use super::functions::{Function, all, of_text};
use super::judge::{Fate, groups};
use super::operators::Operator;
use super::process::{End, watch};
use super::records::{self, Name};
use super::report;
use super::suites::{Suite, Test, of};
use crate::tidy::Tree;

const FILE: &str = "crates/mm/src/room/file.rs";

fn functions(body: &str) -> Vec<Function> {
    of_text(FILE, &format!("fn f() {{ {body} }}"))
}

/// The changes to a body: names of operators, and the texts before and after.
fn changes(body: &str) -> Vec<(&'static str, String, String)> {
    let sites = functions(body).into_iter().flat_map(|function| function.sites);
    sites.map(|site| (site.operator.name(), site.was, site.becomes)).collect()
}

#[track_caller]
fn assert_change(body: &str, operator: &str, was: &str, becomes: &str) {
    let all = changes(body);
    let one = |(name, from, to): &(&str, String, String)| {
        *name == operator && from == was && to == becomes
    };
    assert!(all.iter().any(one), "{all:#?}");
}

#[test]
fn each_operator_finds_its_slip() {
    let cases = [
        ("if a < b { g(); }", "edge", "a < b", "a <= b"),
        ("if a >= b { g(); }", "edge", "a >= b", "a > b"),
        ("h(a + 1);", "one", "a + 1", "a"),
        ("h(0..end);", "one", "0..end", "0..(end) - 1"),
        ("h(first..=last);", "one", "first..=last", "first..last"),
        ("h(7_u64);", "constant", "7_u64", "8u64"),
        ("h(true);", "constant", "true", "false"),
        ("h(span.start);", "pair", "span.start", "span.end"),
        ("h(a.min(b));", "pair", "a.min(b)", "a.max(b)"),
        ("if a.id == b.id { g(); }", "compare", "a.id == b.id", "true"),
        ("if a != b { g(); }", "compare", "a != b", "false"),
        ("if a() && b() { g(); }", "condition", "b()", "true"),
        ("if a() || b() { g(); }", "condition", "a()", "false"),
        ("match a { X if b() => g(), _ => {} }", "condition", "b()", "true"),
        ("if !a { g(); }", "not", "!a", "a"),
        ("if a { return; }", "skip", "a", "false"),
        ("tlb.flush(pages);", "call", "tlb.flush(pages);", ""),
        ("g(); tlb.flush(pages)", "call", "tlb.flush(pages)", ""),
        ("self.closing = true;", "store", "self.closing = true;", ""),
        ("self.count += n;", "store", "self.count += n;", ""),
        ("g()?;", "ignore", "g()?;", "let _ = g();"),
        ("a(); b();", "swap", "a(); b();", "b(); a();"),
        (
            "let _lock = m.lock();",
            "guard",
            "let _lock = m.lock();",
            "let _lock = m.lock(); drop(_lock);",
        ),
        ("fence(Ordering::SeqCst);", "fence", "fence(Ordering::SeqCst);", ""),
        ("h(a.load(Ordering::Acquire));", "weaken", "Ordering::Acquire", "Ordering::Relaxed"),
        ("h(Kind::Table); h(Kind::Folio);", "sibling", "Kind::Table", "Kind::Folio"),
    ];
    for (body, operator, was, becomes) in cases {
        assert_change(body, operator, was, becomes);
    }
}

#[test]
fn a_place_that_the_switch_cannot_stand_in_stays() {
    let none = [
        "let a = [0; 4];",
        "match a { 1 => {} _ => {} }",
        "const LIMIT: u64 = 8;",
        "let a: [u8; 2] = b;",
        "debug_assert!(a < b);",
        "fence(Ordering::Release);",
    ];
    for body in none {
        let all = changes(body);
        let fitting = |name: &str| name != "call" && name != "fence";
        let numbers = all.iter().filter(|(name, was, _)| fitting(name) && was != "0").count();
        assert_eq!(numbers, 0, "{body}: {all:?}");
    }
    let all = changes("if let Some(b) = a && b < 1 { g(); }");
    assert!(all.iter().all(|(_, was, _)| !was.contains("let")), "names would be lost: {all:?}");
}

#[test]
fn code_for_tests_or_people_has_no_mutants() {
    let text = "#[cfg(test)] mod tests { fn f() { g(1); } }
        #[cfg(feature = \"inject\")] fn f() { g(1); }
        impl fmt::Debug for A { fn fmt(&self) { g(1); } }
        impl A { #[cfg(loom)] fn new() { g(1); } #[test] fn t() { g(1); } }";
    assert!(of_text(FILE, text).is_empty());
    assert_eq!(of_text(FILE, "impl A { fn new() { g(1); } }")[0].name, "A::new");
}

const TEXT: &str = "fn f() { a(); b(); if x < 1 && y > 2 { c(3); } }
fn g() { let _held = lock(); h(self.start + 1); self.flag = true; }";

fn drawn(seed: u64, count: usize) -> Vec<Mutant> {
    let functions = of_text(FILE, TEXT);
    Draw::new(&functions, None, seed, &|_| TEXT).take(count).collect()
}

#[test]
fn a_seed_draws_the_same_mutants_again() {
    assert_eq!(drawn(7, 6), drawn(7, 6));
    assert_ne!(drawn(7, 6), drawn(8, 6));
    assert_eq!(drawn(7, 6)[..3], drawn(7, 3), "a larger number begins alike");
    let lines: BTreeSet<usize> = drawn(7, 6).iter().map(|mutant| mutant.line).collect();
    assert!(lines.iter().all(|line| [1, 2].contains(line)), "{lines:?}");
    let functions = of_text(FILE, TEXT);
    assert_eq!(Draw::new(&functions, Some("elsewhere"), 7, &|_| TEXT).count(), 0);
}

#[test]
fn the_mutants_of_a_draw_do_not_overlap_and_the_text_with_all_of_them_is_rust() {
    for seed in 0..50 {
        let mutants = drawn(seed, 100);
        let numbered: Vec<(usize, &Mutant)> = (1..).zip(&mutants).collect();
        let (text, places) = switched(TEXT, &numbered, "crate");
        assert_eq!(places.len(), mutants.len());
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    }
}

#[test]
fn a_message_accuses_the_mutants_in_its_place_or_else_the_nearest() {
    let mutants = drawn(7, 3);
    let numbered: Vec<(usize, &Mutant)> = (1..).zip(&mutants).collect();
    let (_, found) = switched(TEXT, &numbered, "crate");
    let mut places = Places::default();
    places.add(FILE, found.clone());
    for (range, number) in &found {
        let inner = range.start + 1..range.start + 2;
        assert_eq!(places.accused(FILE, inner, false), [*number]);
    }
    assert!(places.accused(FILE, 0..1, false).is_empty());
    assert_eq!(places.accused(FILE, 0..1, true), [found[0].1]);
    assert!(places.accused("other.rs", 0..1, true).is_empty());
}

/// A directory of this test alone.
fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("quire-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("the directory is made");
    dir
}

#[test]
fn the_switch_chooses_one_mutant_and_notes_what_is_reached() {
    let text = "const fn f(a: u64) -> u64 { a + 1 }
const FIXED: u64 = f(1);
fn main() { print!(\"{} {}\", FIXED, f(std::env::args().count() as u64)); }";
    let functions = of_text(FILE, text);
    let first = |seed| Draw::new(&functions, None, seed, &|_| text).next();
    let mut drawn = (1..).filter_map(first);
    let mutant = drawn.find(|mutant| mutant.site.operator == Operator::One).expect("there is one");
    let (text, _) = switched(text, &[(3, &mutant)], "crate");
    let dir = scratch("switch");
    let (source, program) = (dir.join("p.rs"), dir.join("p"));
    let all = format!("{HEAD}{text}\nmod mutants {{\n{}\n}}", SWITCH.replace("//!", "//"));
    fs::write(&source, all).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition", "2024", "--crate-name", "p", "--cap-lints", "allow", "-o"]);
    rustc.arg(&program).arg(&source).env("RUSTC_BOOTSTRAP", "p");
    assert!(rustc.status().unwrap().success());
    let said = |name: &str, value: &str| {
        let output = Command::new(&program).env(name, value).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // The compiler's own result is never changed.
    assert_eq!(said(CHOSEN, "3"), "2 1");
    assert_eq!(said(CHOSEN, "4"), "2 2");
    let reached = dir.join("reached");
    assert_eq!(said(REACHED, reached.to_str().unwrap()), "2 2");
    assert_eq!(fs::read_to_string(&reached).unwrap(), "3\n");
    fs::remove_dir_all(dir).unwrap();
}

fn document(functions: &[Function], argument: &str) -> String {
    let mutant = Draw::new(functions, None, 3, &|_| TEXT).next().expect("there is one");
    format!("# Mutants\n\n{}\n{argument}\n", Name::of(&mutant).block())
}

#[test]
fn an_equivalent_is_known_again_and_reported_when_it_is_stale() {
    let functions = of_text(FILE, TEXT);
    let text = document(&functions, "Nothing depends on it.");
    let read = records::read(&text);
    assert_eq!(read.len(), 1);
    assert_eq!(records::findings(&read, &functions), [""; 0]);
    let mutant = Draw::new(&functions, None, 3, &|_| TEXT).next().unwrap();
    assert_eq!(read[0].name, Name::of(&mutant));
    // Another file, or another text there.
    let moved = of_text("crates/mm/src/room/new.rs", TEXT);
    let other = of_text(FILE, &TEXT.replace(['1', '3'], "9").replace("a()", "z()"));
    for functions in [moved, other] {
        let findings = records::findings(&read, &functions);
        assert!(findings.len() == 1 && findings[0].contains(":3: stale: "), "{findings:?}");
    }
    // Formatting and comments do not matter.
    let spread = TEXT.replace(' ', "\n ").replace("a();", "a(); // why");
    assert_eq!(records::findings(&read, &of_text(FILE, &spread)), [""; 0]);
}

#[test]
fn an_equivalent_needs_an_argument() {
    let functions = of_text(FILE, TEXT);
    let read = records::read(&document(&functions, ""));
    let findings = records::findings(&read, &functions);
    assert!(findings.len() == 1 && findings[0].contains("no argument"), "{findings:?}");
}

#[test]
fn the_records_of_this_workspace_are_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let tree = Tree::load(root).expect("it can be read");
    let read = records::read(tree.file(records::DOCUMENT).expect("the document is there"));
    assert_eq!(records::findings(&read, &all(&tree)), [""; 0]);
}

#[test]
fn a_long_text_is_wrapped_and_read_again() {
    let long = format!("fn f() {{ g({}); }}", ["argument"; 40].join(", "));
    let functions = of_text(FILE, &long);
    let mutant = Draw::new(&functions, None, 3, &|_| &long).next();
    let name = Name::of(&mutant.unwrap());
    assert!(name.block().lines().all(|line| line.len() <= 100), "{}", name.block());
    assert_eq!(records::read(&name.block())[0].name, name);
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn a_process_is_ended_at_its_first_failure_or_after_its_time_on_a_cpu() {
    let alarm = |line: &str| line.strip_prefix("bad: ").map(str::to_owned);
    let run = |script: &str| watch(shell(script), 0.5, alarm).expect("it starts").0;
    assert_eq!(run("echo bad luck"), End::Passed);
    assert_eq!(run("echo good; echo bad: a; exec sleep 600"), End::Failed("a".into()));
    assert_eq!(run("exec 1>&2; echo bad: b"), End::Failed("b".into()));
    assert_eq!(run("exit 3"), End::Failed("exit status: 3".into()));
    let busy = run("printf 'test a ... '; while true; do :; done");
    assert_eq!(busy, End::TookTooLong("test a ...".into()));
}

fn suites() -> Vec<Suite> {
    let program = |name: &str| Program { name: name.into(), path: "p".into(), dir: ".".into() };
    let mut suites =
        of(Build::Tests, ["sim it", "mm quire", "units quire_units"].map(program).into());
    suites.extend(of(Build::Simulator, ["cli quire", "mm quire"].map(program).into()));
    suites.extend(of(Build::Loom, vec![program("mm quire")]));
    suites
}

fn test(suite: usize, name: &str, seconds: f64, reaches: &[usize]) -> Test {
    Test { suite, name: name.to_owned(), seconds, reaches: reaches.iter().copied().collect() }
}

#[test]
fn suites_come_from_the_smallest_package_on() {
    let names: Vec<String> = suites().iter().map(Suite::name).collect();
    assert_eq!(names, ["units quire_units", "mm quire", "sim it", "simulator", "loom"]);
}

#[test]
fn the_cheapest_tests_that_reach_a_mutant_are_asked_first() {
    let tests = [
        test(1, "other::a", 0.1, &[1]),
        test(1, "room::slow", 9.0, &[1]),
        test(1, "room::a", 0.2, &[1]),
        test(1, "room::elsewhere", 0.1, &[2]),
        test(0, "b", 0.3, &[1, 2]),
        test(3, "x86_64 1", 0.1, &[1]),
        test(3, "x86_64 2", 0.1, &[1]),
        test(4, "loom_a", 1.0, &[1]),
    ];
    let ordered = |mutant: &Mutant| -> Vec<Vec<String>> {
        let all = groups(1, mutant, &suites(), &tests).into_iter();
        all.map(|group| group.iter().map(|test| test.name.clone()).collect()).collect()
    };
    let mutant = drawn(7, 1).remove(0);
    let all: [&[&str]; 7] = [
        &["b"],
        &["room::a"],
        &["room::slow"],
        &["other::a"],
        &["x86_64 1"],
        &["x86_64 2"],
        &["loom_a"],
    ];
    assert_eq!(ordered(&mutant), all);
    let mut weak = mutant;
    weak.site.operator = Operator::Weaken;
    assert_eq!(ordered(&weak), [["loom_a"]], "only a model may notice it");
}

#[test]
fn rates_leave_equivalents_out() {
    let mutants = drawn(7, 4);
    let by = |suite| Fate::Noticed { suite, by: "t".into() };
    let fates = [by(1), by(2), Fate::Survived(3), Fate::Equivalent];
    let judged: Vec<_> = mutants.iter().zip(&fates).collect();
    assert_eq!(report::total(&judged).percent(), 66);
    let table = report::table("room", &judged, |mutant| mutant.room.clone());
    assert!(table.contains("| `room` | 4 | 1 | 2 | 66 % |"), "{table}");
    assert_eq!(report::by_suite(&judged, &suites()), "noticed by: mm quire 1, sim it 1");
    let told = report::shown(&mutants[2], &report::passed(3));
    assert!(told.starts_with(&format!("{FILE}:{}: 3 tests", mutants[2].line)), "{told}");
}
