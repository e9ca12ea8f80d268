//! docs/planted.md: slips that are planted by hand, each of which the simulator must find.
//!
//! ````text
//!   ```planted
//!   crates/mm/src/room/file.rs the-name-of-the-slip     file, name
//!   - a.b(c)                                            a piece of the file that occurs once
//!   + d                                                 the text that takes its place
//!   ```
//! ````
//!
//! Each piece is an expression, or whole statements without `let`. One copy of the workspace has
//! all of them, and a switch chooses one, as for drawn mutants: so the library's text stays clean.
//!
//! Drawn mutants tell how good the tests are on average. These tell whether the simulator alone
//! finds certain slips, and after how many steps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use super::build::{self, Build};
use super::draw::Mutant;
use super::operators::{ON, Operator, Site};
use super::process::End;
use super::records;
use super::suites::{self, FORMATS, Suite, chosen};
use crate::tidy::Tree;

/// The document.
const DOCUMENT: &str = "docs/planted.md";

const BEGIN: &str = "```planted";

/// How many seeds of each format look for a slip, and how many steps each has: four million, which
/// one core does in a minute.
const SEEDS: u64 = 25;
const STEPS: u64 = 20_000;

/// How long one seed may take on a CPU. A slip that makes it wait for ever is found, too.
const SECONDS: f64 = 120.0;

/// Plants what the document names, and prints which slips the simulator finds, and when. Returns
/// whether it finds all. With `only`, those whose names contain it.
///
/// # Errors
/// A sentence that says what cannot be read, built or started.
pub fn run(root: &Path, only: Option<&str>) -> Result<bool, String> {
    let tree = Tree::load(root)?;
    let document = tree.file(DOCUMENT).unwrap_or_default();
    let all = read(document, &|path| tree.file(path))?;
    let such = |slip: &Mutant| only.is_none_or(|part| slip.function.contains(part));
    let all: Vec<Mutant> = all.into_iter().filter(such).collect();
    let (count, begin) = (all.len(), Instant::now());
    let (slips, mut programs) = build::all(root, &mut all.into_iter(), count, &[Build::Swarm])?;
    if slips.len() < count {
        return Err(format!("{} slips of {DOCUMENT} do not compile.", count - slips.len()));
    }
    let suites = suites::of(Build::Swarm, programs.pop().unwrap_or_default());
    let simulator = suites.first().ok_or("there is no simulator")?;
    println!("Built after {:.0} s.", begin.elapsed().as_secs_f64());
    if let Some(found) = search(simulator, 0, 1)? {
        return Err(format!("nothing is planted, and the simulator finds: {found}"));
    }
    told(simulator, &slips)
}

/// Prints the fate of each slip; returns whether all are found.
fn told(simulator: &Suite, slips: &BTreeMap<usize, Mutant>) -> Result<bool, String> {
    let mut missed = 0;
    for (number, slip) in slips {
        match search(simulator, *number, SEEDS)? {
            Some(found) => println!("found   {}: {found}", slip.function),
            None => {
                println!("MISSED  {}: {}:{}", slip.function, slip.file, slip.line);
                missed += 1;
            }
        }
    }
    println!("{} of {} found.", slips.len() - missed, slips.len());
    Ok(missed == 0)
}

/// Looks for a slip with `seeds` seeds of each format; returns what was found, and where.
fn search(simulator: &Suite, number: usize, seeds: u64) -> Result<Option<String>, String> {
    let (name, value) = chosen(number);
    let mut runs = 0;
    for seed in 1..=seeds {
        for isa in FORMATS {
            let names = [format!("{isa} {seed}")];
            let names = names.each_ref().map(String::as_str);
            let by = match simulator.run(&names, (name, &value), SECONDS)?.0 {
                End::Passed => {
                    runs += 1;
                    continue;
                }
                End::Failed(by) => by,
                End::TookTooLong(last) => format!("too much time, after: {last}"),
            };
            return Ok(Some(format!("{isa}, {by}; {} steps before", runs * STEPS)));
        }
    }
    Ok(None)
}

/// All slips of the document; `text` gives the file of a path.
fn read<'a>(document: &str, text: &dyn Fn(&str) -> Option<&'a str>) -> Result<Vec<Mutant>, String> {
    let mut all: Vec<Mutant> = Vec::new();
    for record in records::read_as(BEGIN, document) {
        let (of, was, becomes) = record.name.parts();
        let wrong = |what: &str| format!("{DOCUMENT}:{}: {what}.", record.line);
        let (path, name) = of.split_once(' ').ok_or_else(|| wrong("no file and name"))?;
        let text = text(path).ok_or_else(|| wrong("there is no such file"))?;
        let mut places = places(text, was);
        let (Some(range), None) = (places.next(), places.next()) else {
            return Err(wrong("stale: the text must occur once in the file"));
        };
        let meets = |other: &Mutant| {
            let there = &other.site.range;
            other.file == path && there.start < range.end && range.start < there.end
        };
        if let Some(other) = all.iter().find(|other| meets(other)) {
            return Err(wrong(&format!("it overlaps {}", other.function)));
        }
        let was = text[range.clone()].to_owned();
        let switched = switched(&was, becomes);
        let line = text[..range.start].matches('\n').count() + 1;
        let operator = Operator::Planted;
        let site = Site { operator, range, was, becomes: becomes.to_owned(), switched };
        let (file, function) = (path.to_owned(), name.to_owned());
        all.push(Mutant { file, line, room: String::new(), function, site });
    }
    if all.is_empty() {
        return Err(format!("{DOCUMENT} has no slips."));
    }
    Ok(all)
}

/// The text in which the switch decides.
fn switched(was: &str, becomes: &str) -> String {
    let is_value = |text: &str| syn::parse_str::<syn::Expr>(text).is_ok();
    match is_value(was) && is_value(becomes) {
        true => format!("(if {ON} {{ {becomes} }} else {{ {was} }})"),
        false => format!("if {ON} {{ {becomes} }} else {{ {was} }}"),
    }
}

/// The places of `text` that are `piece`, whatever blanks either has.
fn places(text: &str, piece: &str) -> impl Iterator<Item = Range<usize>> {
    let solid = |text: &str| -> Vec<(usize, char)> {
        text.char_indices().filter(|(_, one)| !one.is_whitespace()).collect()
    };
    let (text, piece) = (solid(text), solid(piece));
    let last = text.len().saturating_sub(piece.len());
    let mut at = 0;
    std::iter::from_fn(move || {
        while at <= last && !piece.is_empty() {
            let here = &text[at..];
            at += 1;
            if piece.iter().zip(here).all(|((_, one), (_, other))| one == other) {
                let (end, one) = here[piece.len() - 1];
                return Some(here[0].0..end + one.len_utf8());
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn f() {\n    a.b(\n        c,\n    );\n    g(1);\n    g(1);\n}\n";

    fn slips(record: &str) -> Result<Vec<Mutant>, String> {
        let text = |path: &str| (path == "a.rs").then_some(TEXT);
        read(&format!("# T\n\n```planted\n{record}\n```\n"), &text)
    }

    #[test]
    fn a_record_finds_its_place_whatever_blanks_are_there() {
        let all = slips("a.rs gone\n- a.b( c,\n-  );\n+").expect("it is a record");
        let slip = &all[0];
        assert_eq!((slip.line, slip.function.as_str()), (2, "gone"));
        assert_eq!(&TEXT[slip.site.range.clone()], "a.b(\n        c,\n    );");
        assert!(slip.site.switched.starts_with("if @on@ {  } else { a.b("));
    }

    #[test]
    fn an_expression_stays_one() {
        let all = slips("a.rs other\n- a.b(c,)\n+ d").expect("it is a record");
        assert!(all[0].site.switched.starts_with("(if @on@ { d } else { a.b("));
    }

    #[test]
    fn a_record_that_fits_no_place_or_two_is_refused() {
        for (record, word) in [
            ("a.rs x\n- h(1);\n+", "stale"),
            ("a.rs x\n- g(1);\n+", "stale"),
            ("b.rs x\n- g(1);\n+", "no such file"),
            ("a.rs\n- g(1);\n+", "no file and name"),
            ("a.rs x\n- a.b(c,)\n+ d\n```\n```planted\na.rs y\n- b(c,)\n+ e", "overlaps x"),
        ] {
            let refused = slips(record).expect_err("it is refused");
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn the_records_of_this_repository_are_not_stale() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let tree = Tree::load(root).expect("it can be read");
        let all = read(tree.file(DOCUMENT).unwrap_or_default(), &|path| tree.file(path));
        assert!(all.expect("each fits its place").len() >= 10);
    }
}
