//! A copy of the workspace in which a switch decides, when a test runs, which mutant it runs.
//!
//! ```text
//!   a < b    becomes    (if ::quire_units::mutants::on(7) { a <= b } else { a < b })
//! ```
//!
//! `quire-units` holds the switch, since all packages of the library use it. The environment
//! variable [`CHOSEN`] has the number of the mutant. In a test's first run, without a mutant,
//! [`REACHED`] names a file that gets the number of each mutant whose code the test reaches.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::draw::Mutant;
use super::operators::ON;

/// The environment variable that holds the number of the mutant.
pub(crate) const CHOSEN: &str = "QUIRE_MUTANT";

/// The environment variable that holds the path of the file for what is reached.
pub(crate) const REACHED: &str = "QUIRE_MUTANTS_REACHED";

/// The crate of the switch, and what it needs to be asked in `const fn` as well.
pub(crate) const HOME: &str = "quire_units";
pub(crate) const HEAD: &str = "#![feature(core_intrinsics, const_eval_select)]
#![allow(internal_features)]
";

/// The switch. The compiler's own evaluation never meets a mutant.
pub(crate) const SWITCH: &str = r#"//! The switch of mutants.
extern crate std;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::io::Write;

const UNREAD: u32 = u32::MAX;
const RECORDS: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
static REACHED: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];

/// Whether `mutant` is the chosen one.
#[inline]
pub const fn on(mutant: u32) -> bool {
    core::intrinsics::const_eval_select((mutant,), never, now)
}

const fn never(_: u32) -> bool {
    false
}

#[inline]
fn now(mutant: u32) -> bool {
    let chosen = CHOSEN.load(Relaxed);
    chosen == mutant || chosen >= RECORDS && unusual(mutant, chosen)
}

#[cold]
fn unusual(mutant: u32, chosen: u32) -> bool {
    let path = std::env::var_os("QUIRE_MUTANTS_REACHED");
    if chosen == UNREAD {
        let named = std::env::var("QUIRE_MUTANT").ok().and_then(|text| text.parse().ok());
        let chosen = if path.is_some() { RECORDS } else { named.unwrap_or(0) };
        CHOSEN.store(chosen, Relaxed);
        return now(mutant);
    }
    if !REACHED[mutant as usize].swap(true, Relaxed) && let Some(path) = path {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let line = std::format!("{mutant}\n");
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
    false
}
"#;

/// Where the mutants are in a file of the copy.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<String, Vec<(Range<usize>, usize)>>);

impl Places {
    /// Adds those of a file.
    pub(crate) fn add(&mut self, file: &str, places: Vec<(Range<usize>, usize)>) {
        self.0.insert(file.to_owned(), places);
    }

    /// The mutants, by number, that a message about `range` of `file` is about: those within; if
    /// there is none and `near`, the nearest one.
    pub(crate) fn accused(&self, file: &str, range: Range<usize>, near: bool) -> Vec<usize> {
        let Some(all) = self.0.get(file) else { return Vec::new() };
        let meets = |place: &Range<usize>| place.start < range.end && range.start < place.end;
        let within = all.iter().filter(|(place, _)| meets(place)).map(|(_, number)| *number);
        let within: Vec<usize> = within.collect();
        if !within.is_empty() || !near {
            return within;
        }
        let distance = |place: &Range<usize>| {
            place.start.saturating_sub(range.end).max(range.start.saturating_sub(place.end))
        };
        let nearest = all.iter().min_by_key(|(place, _)| distance(place));
        nearest.map(|(_, number)| *number).into_iter().collect()
    }
}

/// A text with some mutants, each with its number, and their places in it.
pub(crate) fn switched(
    text: &str,
    mutants: &[(usize, &Mutant)],
    switch: &str,
) -> (String, Vec<(Range<usize>, usize)>) {
    let mut mutants = mutants.to_vec();
    mutants.sort_by_key(|(_, mutant)| mutant.site.range.start);
    let (mut new, mut places, mut done) = (String::new(), Vec::new(), 0);
    for (number, mutant) in mutants {
        let range = &mutant.site.range;
        new.push_str(&text[done..range.start]);
        let start = new.len();
        let call = format!("{switch}::mutants::on({number})");
        new.push_str(&mutant.site.switched.replace(ON, &call));
        places.push((start..new.len(), number));
        done = range.end;
    }
    new.push_str(&text[done..]);
    (new, places)
}

/// Makes the workspace at `root` again in `copy`, with these mutants by number. A file that is the
/// same already stays, so that only what has changed is compiled.
pub(crate) fn make(
    root: &Path,
    copy: &Path,
    mutants: &BTreeMap<usize, Mutant>,
) -> Result<Places, String> {
    let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (&number, mutant) in mutants {
        by_file.entry(&mutant.file).or_default().push((number, mutant));
    }
    let mut places = Places::default();
    let mut kept = vec![PathBuf::from("crates/units/src/mutants.rs")];
    for path in files(root)? {
        let source = root.join(&path);
        let bytes = fs::read(&source).map_err(|error| format!("{}: {error}", source.display()))?;
        let name = path.to_string_lossy().replace('\\', "/");
        let bytes = match (String::from_utf8(bytes), by_file.get(name.as_str())) {
            (Ok(text), Some(mutants)) => {
                let own = name.starts_with("crates/units/");
                let switch = if own { "crate" } else { "::quire_units" };
                let (text, within) = switched(&text, mutants, switch);
                places.add(&name, within);
                changed(&name, text).into_bytes()
            }
            (Ok(text), None) => changed(&name, text).into_bytes(),
            (Err(other), _) => other.into_bytes(),
        };
        write(&copy.join(&path), &bytes)?;
        kept.push(path);
    }
    write(&copy.join(&kept[0]), SWITCH.as_bytes())?;
    kept.sort();
    for path in files(copy)? {
        if kept.binary_search(&path).is_err() {
            let path = copy.join(path);
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(places)
}

/// The other differences of the copy: the switch, and no lints, since mutants are no style.
fn changed(name: &str, text: String) -> String {
    match name {
        "Cargo.toml" => text.replace("\"deny\"", "\"allow\""),
        "crates/units/src/lib.rs" => {
            let head = format!("{HEAD}#![no_std]");
            text.replace("#![no_std]", &head) + "\n#[allow(missing_docs)]\npub mod mutants;\n"
        }
        _ => text,
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// All files below `root` but build products and version control, relative to it.
fn files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let (path, name) = (entry.path(), entry.file_name());
            let apart = ["target", ".git", "proptest-regressions"].iter().any(|one| name == *one);
            if apart {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if let Ok(path) = path.strip_prefix(root) {
                found.push(path.to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}
