//! The machine that the benches run on: its CPU, its memory, its kernel's huge-page settings, and
//! the cost of page faults in that kernel; swap areas and memory groups of our own.

pub(crate) mod cpu;
pub(crate) mod fault;
pub(crate) mod group;
pub(crate) mod keeper;
pub(crate) mod memory;
pub(crate) mod smaps;
pub(crate) mod swap;
pub(crate) mod thp;
pub(crate) mod uffd;

use std::fs;
use std::path::{Path, PathBuf};

/// Where the host's `/proc`, `/sys` and `/run` are: `/`, or a folder that plays them in tests.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    root: PathBuf,
}

impl Host {
    /// The host whose `/proc`, `/sys` and `/run` are under `root`.
    pub(crate) fn new(root: &Path) -> Host {
        Host { root: root.to_owned() }
    }

    /// Where `path`, written without its leading slash, really is.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// The text of `path` without white space at its ends; `None` if it cannot be read.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }
}
