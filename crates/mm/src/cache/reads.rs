//! Reads that are planned, and reads under way.

use arrayvec::ArrayVec;
use quire_hw::FrameRun;

use super::{FileId, FilePages, Window};
use crate::folio::Folio;
use crate::limits::ROW_MOST;

/// A plan to read pages of a file into memory. It holds nothing: to drop it is to read less.
///
/// [`Files::next_read`](crate::Files::next_read) carries it out, folio by folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reads {
    pub(crate) file: FileId,
    pub(crate) window: Window,
    /// The page that a caller waits for; those around it are guesses.
    pub(crate) wanted: Option<u64>,
    /// How far it has been carried out.
    pub(crate) at: u64,
}

impl Reads {
    pub(crate) fn new(file: FileId, window: Window, wanted: Option<u64>) -> Self {
        Self { file, window, wanted, at: window.pages.start }
    }

    /// Which file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Which pages, as far as they are not in memory yet.
    pub fn pages(&self) -> FilePages {
        self.window.pages
    }
}

/// A folio that is being filled with pages of a file: the right to its frames until the embedder
/// gives it to [`Files::read_done`](crate::Files::read_done). Until then, a fault on one of its
/// pages has to wait.
#[derive(Debug)]
#[must_use = "faults on its pages wait until it is given to `read_done`"]
pub struct Read {
    pub(crate) file: FileId,
    pub(crate) page: u64,
    pub(crate) folio: Folio,
    pub(crate) run: FrameRun,
    pub(crate) wanted: bool,
}

impl Read {
    /// Which file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Which pages of it. The last may reach beyond the file's end: zeroes belong there.
    pub fn pages(&self) -> FilePages {
        FilePages::block(self.page, self.folio.order)
    }

    /// The frames for them. Every byte is to be written.
    pub fn frames(&self) -> &FrameRun {
        &self.run
    }

    /// Whether a caller waits for one of the pages; otherwise it is read ahead.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }
}

/// Folios of one size at consecutive pages of a file that are being filled, as a [`Read`] each. The
/// caller of [`Files::next_reads`](crate::Files::next_reads) lends an empty one.
#[derive(Debug, Default)]
#[must_use = "faults on their pages wait until they are given to `reads_done`"]
pub struct ReadRun {
    pub(crate) reads: ArrayVec<Read, ROW_MOST>,
}

impl ReadRun {
    /// One without reads.
    pub const fn new() -> Self {
        Self { reads: ArrayVec::new_const() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// The reads in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Read> {
        self.reads.iter_mut()
    }

    /// Takes the reads out, each of which ends by itself.
    pub fn drain(&mut self) -> impl Iterator<Item = Read> + '_ {
        self.reads.drain(..)
    }
}
