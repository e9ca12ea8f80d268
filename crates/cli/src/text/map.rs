//! The map: text, one thing in a line.
//!
//! ```text
//!   quire text map 1
//!   file 6616880 1714501234 /usr/bin/python3.11    bytes, seconds of its last change, path
//!   run 0 16                                       first page of 4 KiB, count
//! ```

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Bytes of a page of a map.
pub(crate) const PAGE: u64 = 4096;
const HEAD: &str = "quire text map 1";

/// The hot parts of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hot {
    pub(crate) path: PathBuf,
    /// Its length, and the seconds of its last change: of another file the map says nothing.
    pub(crate) bytes: u64,
    pub(crate) changed: i64,
    /// First page and count, ascending.
    pub(crate) runs: Vec<(u64, u64)>,
}

/// The hot parts of all files of a program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct TextMap {
    pub(crate) files: Vec<Hot>,
}

impl Hot {
    /// Of the file at `path`, with these pages, which ascend. Runs at most `gap` pages apart are
    /// one.
    pub(crate) fn of(path: &Path, pages: impl Iterator<Item = u64>, gap: u64) -> Option<Hot> {
        let about = std::fs::metadata(path).ok()?;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in pages.take_while(|page| page * PAGE < about.len()) {
            match runs.last_mut() {
                Some((first, count)) if page <= *first + *count + gap => {
                    *count = (*count).max(page - *first + 1);
                }
                _ => runs.push((page, 1)),
            }
        }
        let path = path.to_owned();
        Some(Hot { path, bytes: about.len(), changed: about.mtime(), runs })
    }

    /// Whether the file is the one that was recorded.
    pub(crate) fn is_current(&self) -> bool {
        std::fs::metadata(&self.path)
            .is_ok_and(|about| about.len() == self.bytes && about.mtime() == self.changed)
    }

    /// How many pages it has.
    pub(crate) fn pages(&self) -> u64 {
        self.runs.iter().map(|(_, count)| count).sum()
    }

    /// The blocks of `size` pages of which at least half is in runs, by their numbers.
    pub(crate) fn dense(&self, size: u64) -> Vec<u64> {
        let inside = |block: u64| {
            let (start, end) = (block * size, (block + 1) * size);
            let part = |(first, count): &(u64, u64)| {
                (first + count).min(end).saturating_sub((*first).max(start))
            };
            self.runs.iter().map(part).sum::<u64>()
        };
        let last = self.bytes / PAGE / size;
        (0..last).filter(|block| 2 * inside(*block) >= size).collect()
    }
}

impl fmt::Display for TextMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for Hot { path, bytes, changed, runs } in &self.files {
            writeln!(f, "file {bytes} {changed} {}", path.display())?;
            for (first, count) in runs {
                writeln!(f, "run {first} {count}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for TextMap {
    type Err = String;

    fn from_str(text: &str) -> Result<TextMap, String> {
        let mut map = TextMap::default();
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(format!("it does not begin with `{HEAD}`"));
        }
        for line in lines {
            map.line(line).ok_or_else(|| format!("this line is damaged: {line}"))?;
        }
        Ok(map)
    }
}

impl TextMap {
    fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.splitn(4, ' ');
        let (kind, one, two) = (words.next()?, words.next()?, words.next()?);
        match (kind, words.next()) {
            ("file", Some(path)) => {
                let (bytes, changed) = (one.parse().ok()?, two.parse().ok()?);
                let path = PathBuf::from(path);
                self.files.push(Hot { path, bytes, changed, runs: Vec::new() });
            }
            ("run", None) => {
                let run = (one.parse().ok()?, two.parse().ok()?);
                self.files.last_mut()?.runs.push(run);
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(runs: &[(u64, u64)]) -> Hot {
        Hot { path: "/a b/c".into(), bytes: 64 * PAGE, changed: -1, runs: runs.to_vec() }
    }

    #[test]
    fn b7_a_map_reads_back_as_it_was_written() {
        let map = TextMap { files: vec![hot(&[(0, 3), (9, 1)]), hot(&[])] };
        assert_eq!(map.to_string().parse::<TextMap>(), Ok(map));
        for (bad, why) in [("", "begin"), (&format!("{HEAD}\nrun 1 2"), "run 1 2")] {
            assert!(bad.parse::<TextMap>().unwrap_err().contains(why));
        }
    }

    #[test]
    fn b7_near_pages_are_one_run_and_a_block_is_dense_from_its_half_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![0; 64 << 12]).unwrap();
        let it = Hot::of(&path, [1, 2, 5, 20, 21, 99].into_iter(), 3).unwrap();
        assert_eq!(it.runs, [(1, 5), (20, 2)]);
        assert!(it.is_current() && it.pages() == 7);
        std::fs::write(&path, "other").unwrap();
        assert!(!it.is_current());
        assert_eq!(hot(&[(0, 7), (8, 9), (40, 7)]).dense(16), [0]);
    }
}
