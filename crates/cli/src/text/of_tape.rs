//! From a tape to a map.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::map::{Hot, TextMap};
use crate::advise::Areas;
use crate::tape::{Access, Backing, Event, Tape};

/// Pages around a touched one that Linux maps with it: the recording has one touch for all.
const AROUND: u64 = 16;
/// Folders of libraries.
const FOLDERS: [&str; 8] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/riscv64-linux-gnu",
];

/// The hot text of `tape`, whose program is the file `program`, and the names of files that are
/// not found.
pub(crate) fn of_tape(tape: &Tape, program: &Path) -> (TextMap, Vec<String>) {
    let mut hot: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (file, page) in touched(tape) {
        let Some(name) = tape.files.get(file as usize) else { continue };
        let first = page / AROUND * AROUND;
        hot.entry(name).or_default().extend(first..first + AROUND);
    }
    let (mut map, mut missing) = (TextMap::default(), Vec::new());
    for (name, pages) in hot {
        match locate(name, program).and_then(|path| Hot::of(&path, pages.into_iter(), AROUND)) {
            Some(hot) => map.files.push(hot),
            None => missing.push(name.to_owned()),
        }
    }
    (map, missing)
}

/// Pages of files that were fetched or read, in the order of time.
fn touched(tape: &Tape) -> Vec<(u32, u64)> {
    let mut spaces: Vec<Areas> = Vec::new();
    let (mut at, mut all) = (0, Vec::new());
    for event in tape.events() {
        if let Event::Space(number) = event {
            at = number as usize;
            let most = spaces.len().max(at + 1);
            spaces.resize_with(most, Areas::default);
        }
        let Some(areas) = spaces.get_mut(at) else { continue };
        match event {
            Event::Touch { page, access } if access != Access::Write => {
                if let Some(area) = areas.find(page)
                    && let Backing::File { file, first } = area.backing
                {
                    all.push((file, first + (page - area.span.start)));
                }
            }
            Event::Map(area) => {
                areas.cut(area.span);
                areas.add(area);
            }
            Event::Unmap(span) => drop(areas.cut(span)),
            Event::Move { from, to, keep } => {
                areas.cut(to);
                areas.relocate(from, to, keep);
            }
            Event::Fork(child) => {
                let copy = areas.clone();
                let number = child as usize;
                let most = spaces.len().max(number + 1);
                spaces.resize_with(most, Areas::default);
                spaces[number] = copy;
            }
            Event::Exit => *areas = Areas::default(),
            _ => {}
        }
    }
    all
}

/// Where the file with this name is: the program, or a library beside it or in a usual folder.
fn locate(name: &str, program: &Path) -> Option<PathBuf> {
    if program.file_name().is_some_and(|own| own == name) {
        return Some(program.to_owned());
    }
    let own = program.parent().map(Path::to_owned);
    let beside = own.iter().flat_map(|own| [own.clone(), own.join("../lib")]);
    let usual = FOLDERS.iter().map(PathBuf::from);
    let named = beside.chain(usual).map(|folder| folder.join(name));
    named.filter(|path| path.is_file()).find_map(|path| path.canonicalize().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Area, Rights, Span, Writer};

    #[test]
    fn b7_touches_of_text_become_runs_of_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("p");
        std::fs::write(&program, vec![0; 200 << 12]).unwrap();
        let rights = Rights { read: true, write: false, fetch: true };
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        writer.push(Event::Map(Area::file(Span::of(1000, 100), rights, 0, 100)));
        writer.push(Event::Map(Area::file(Span::of(2000, 1), rights, 1, 0)));
        let touch = |page, access| Event::Touch { page, access };
        writer.push(touch(1001, Access::Fetch));
        writer.push(touch(1064, Access::Read));
        writer.push(touch(1090, Access::Write));
        writer.push(touch(2000, Access::Fetch));
        let files = vec!["p".to_owned(), "no-such.so".to_owned()];
        let tape = Tape { page: 4096, files, body: writer.finish(), ..Tape::default() };
        let (map, missing) = of_tape(&tape, &program);
        assert_eq!(map.files[0].runs, [(96, 16), (160, 16)]);
        assert_eq!(missing, ["no-such.so"]);
    }
}
