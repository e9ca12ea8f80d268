//! The model: a flat list of each process's pages, without tables, runs, folios or swap.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use quire::space::{AreaFlags, GroupId};
use quire_units::{Access, Prot, Vpn};

/// The source of a page that the process has not written for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// No area.
    Nothing,
    /// Zeroes.
    Anon,
    /// A page of a file; a store is seen by all processes if it is shared.
    File {
        /// Which file.
        file: u8,
        /// Which page of it.
        page: u32,
        /// Whether all processes see a store.
        shared: bool,
    },
    /// A frame that the embedder shows; each process that maps it sees a store.
    Frame {
        /// Which of the files has the words of all such frames.
        file: u8,
        /// Which page of it.
        page: u32,
    },
    /// A page of a file whose memory is reserved folios; they are mapped and copied whole.
    Whole {
        /// Which file.
        file: u8,
        /// Which page of it.
        page: u32,
        /// The order of its folios.
        order: u8,
        /// Whether all processes see a store.
        shared: bool,
    },
}

/// The content of a private page that was never written.
pub const UNOWNED: u64 = u64::MAX;

/// The last word of the page that begins with `first`.
#[inline]
#[must_use]
pub fn tail(first: u64) -> u64 {
    // Of zeroes it is zero.
    first.rotate_left(23) ^ first
}

/// Whether the memory of a page has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// It has not.
    No,
    /// It may have: a call failed half way, or another page of its folio has.
    Perhaps,
    /// It has.
    Yes,
}

/// Whether a page is protected: its next write ends that, and is noted by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shielded {
    /// It is not.
    No,
    /// It may be: a call may have written it, or its content may be gone.
    Perhaps,
    /// It is.
    Yes,
}

/// One page of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Its source.
    pub source: Source,
    /// Its rights.
    pub prot: Prot,
    /// The rights it may ever have.
    pub most: Prot,
    /// Its area's flags.
    pub flags: AreaFlags,
    /// Its first word, or [`UNOWNED`].
    pub own: u64,
    /// It may have another content. A page that was written may be new again, since a call failed
    /// half way or freed it lazily. A private page of a file may have any earlier content of the
    /// file's page, since a store to a page nearby may have copied it.
    pub unsure: bool,
    /// It is a guard: each access is refused.
    pub guard: bool,
    /// It was written since its writes are tracked.
    pub written: bool,
    /// Its content went with its memory.
    pub lost: Lost,
    /// It is protected.
    pub shielded: Shielded,
}

impl Page {
    /// No area.
    pub const FREE: Page = Page {
        source: Source::Nothing,
        prot: Prot::empty(),
        most: Prot::empty(),
        flags: AreaFlags::empty(),
        own: UNOWNED,
        unsure: false,
        guard: false,
        written: false,
        lost: Lost::No,
        shielded: Shielded::No,
    };

    /// Whether an area holds it.
    #[inline]
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.source != Source::Nothing
    }

    /// Whether it is a file's, and no longer once it is written.
    #[inline]
    #[must_use]
    pub fn is_private_file(&self) -> bool {
        matches!(self.source, Source::File { shared: false, .. })
    }

    /// Whether it is a file's, and all processes see a store.
    #[inline]
    #[must_use]
    pub fn is_shared_file(&self) -> bool {
        matches!(
            self.source,
            Source::File { shared: true, .. } | Source::Whole { shared: true, .. }
        )
    }

    /// Whether its memory is a part of a reserved folio.
    #[inline]
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.source, Source::Whole { .. })
    }

    /// Whether it belongs to a reserved folio, and is not the first page of it.
    #[inline]
    #[must_use]
    pub fn is_within_folio(&self) -> bool {
        matches!(self.source, Source::Whole { page, order, .. } if page & ((1 << order) - 1) != 0)
    }

    /// Whether it stays in memory.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.flags.contains(AreaFlags::LOCKED)
    }

    /// Whether it is memory without a file.
    #[inline]
    #[must_use]
    pub fn is_anon(&self) -> bool {
        self.source == Source::Anon
    }

    /// Whether it shows a frame: always the same one, which is in memory as long as it is mapped.
    #[inline]
    #[must_use]
    pub fn is_frame(&self) -> bool {
        matches!(self.source, Source::Frame { .. })
    }

    /// Whether an area may begin with this page at `place`.
    #[inline]
    #[must_use]
    pub fn may_begin_at(&self, place: Vpn) -> bool {
        match self.source {
            Source::Whole { order, .. } => place.is_aligned(1 << order),
            _ => true,
        }
    }

    /// The same attributes, `ahead` pages further on, never written.
    #[inline]
    #[must_use]
    pub fn ahead(self, ahead: u32) -> Page {
        let source = match self.source {
            Source::File { file, page, shared } => {
                Source::File { file, page: page + ahead, shared }
            }
            Source::Frame { file, page } => Source::Frame { file, page: page + ahead },
            Source::Whole { file, page, order, shared } => {
                Source::Whole { file, page: page + ahead, order, shared }
            }
            other => other,
        };
        Page { source, ..self }.plain()
    }

    /// Whether `next`, the page behind, is of the same area.
    #[inline]
    #[must_use]
    pub fn goes_on(&self, next: &Page) -> bool {
        self.is_mapped() && self.ahead(1) == next.plain()
    }

    /// Its area's attributes, and nothing of its own.
    pub(crate) fn plain(self) -> Page {
        Page {
            own: UNOWNED,
            unsure: false,
            guard: false,
            written: false,
            lost: Lost::No,
            shielded: Shielded::No,
            ..self
        }
    }

    /// Its content is gone. A guard stays.
    pub fn forget(&mut self) {
        *self = Page { guard: self.guard, ..self.plain() };
    }

    /// Its content may be gone.
    pub fn loosen(&mut self) {
        self.unsure |= !self.guard;
        self.written = false;
        if self.lost == Lost::Yes {
            self.lost = Lost::Perhaps;
        }
        self.bare();
    }

    /// It may be protected no longer.
    pub fn bare(&mut self) {
        if self.shielded == Shielded::Yes {
            self.shielded = Shielded::Perhaps;
        }
    }

    /// Its content is gone with its memory, which failed.
    pub fn lose(&mut self) {
        *self = Page { lost: Lost::Yes, ..self.plain() };
    }

    /// It becomes a guard, and its content is gone.
    pub fn fence(&mut self) {
        *self = Page { guard: true, ..self.plain() };
    }

    /// Its content moves away and leaves the area behind.
    pub fn leave(&mut self) {
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        *self = Page { flags: self.flags - locks, ..self.plain() };
    }

    /// The page of a child.
    fn inherited(self) -> Page {
        if self.flags.contains(AreaFlags::DONTFORK) {
            return Page::FREE;
        }
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        let flags = self.flags - locks - AreaFlags::WATCH;
        let page = Page { flags, shielded: Shielded::No, ..self };
        if self.flags.contains(AreaFlags::WIPEONFORK) { page.plain() } else { page }
    }
}

/// A file: the first word of each of its pages.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Those words; there are as many as the file has pages.
    pub stamps: Vec<u64>,
    /// The words that they were before.
    history: BTreeMap<u32, Vec<u64>>,
    /// Folios that were lost with their memory: the first page of each, and the number of pages.
    lost: BTreeMap<u32, u32>,
}

impl File {
    /// One with these words at the starts of its pages.
    #[must_use]
    pub fn new(stamps: Vec<u64>) -> Self {
        Self { stamps, ..Self::default() }
    }

    /// Stores to a page; beyond the end nothing happens.
    pub fn store(&mut self, page: u32, word: u64) {
        if let Some(stamp) = self.stamps.get_mut(page as usize) {
            let before = core::mem::replace(stamp, word);
            self.history.entry(page).or_default().push(before);
        }
    }

    /// Sets the length; pages that come back later are zero.
    pub fn resize(&mut self, pages: u32) {
        self.history.split_off(&pages);
        // A lost folio across the end stays lost.
        self.lost.split_off(&pages);
        self.stamps.resize(pages as usize, 0);
    }

    /// The memory of `count` pages has failed, and the disk does not have their content.
    pub fn lose(&mut self, first: u64, count: u64) {
        self.lost.insert(first as u32, count as u32);
    }

    /// Whether a page is lost.
    pub fn is_lost(&self, page: u32) -> bool {
        let before = self.lost.range(..=page).next_back();
        before.is_some_and(|(first, count)| page - first < *count)
    }

    /// Whether a page has held `word` before.
    fn has_held(&self, page: u32, word: u64) -> bool {
        self.history.get(&page).is_some_and(|words| words.contains(&word))
    }
}

/// Why a page cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// No area holds it.
    NoArea,
    /// Its rights do not allow it.
    Denied,
    /// It is a guard.
    Guarded,
    /// Its memory failed.
    Lost,
    /// The file ends before it.
    Missing,
}

/// A process: each page of its window.
#[derive(Clone, Debug)]
pub struct Process {
    /// From the first one of the window on.
    pub pages: Vec<Page>,
    /// The group that it is in.
    pub group: Option<GroupId>,
}

impl Process {
    /// One that has nothing.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self { pages: vec![Page::FREE; window], group: None }
    }

    /// The word that an access to page `at` must find.
    ///
    /// # Errors
    /// Why the page cannot be had.
    #[inline]
    pub fn access(&self, files: &[File], at: usize, access: Access) -> Result<u64, Why> {
        let page = &self.pages[at];
        if !page.is_mapped() {
            Err(Why::NoArea)
        } else if !page.prot.allows(access) {
            Err(Why::Denied)
        } else {
            self.content(files, at)
        }
    }

    /// The first word of page `at`, whatever its rights are.
    ///
    /// # Errors
    /// As for [`access`](Self::access), but for rights.
    #[inline]
    pub fn content(&self, files: &[File], at: usize) -> Result<u64, Why> {
        let page = &self.pages[at];
        match page.source {
            Source::Nothing => Err(Why::NoArea),
            _ if page.guard => Err(Why::Guarded),
            _ if page.lost == Lost::Yes => Err(Why::Lost),
            Source::Anon if page.own == UNOWNED => Ok(0),
            Source::Anon => Ok(page.own),
            Source::File { file, page: number, .. }
            | Source::Frame { file, page: number }
            | Source::Whole { file, page: number, .. } => {
                let file = &files[usize::from(file)];
                let under = *file.stamps.get(number as usize).ok_or(Why::Missing)?;
                match page.own {
                    // It may have been copied before.
                    UNOWNED if file.is_lost(number) && !page.unsure => Err(Why::Lost),
                    UNOWNED => Ok(under),
                    own => Ok(own),
                }
            }
        }
    }

    /// Whether the memory of page `at`, which may be accessed, may have failed all the same.
    pub fn may_be_lost(&self, files: &[File], at: usize) -> bool {
        let page = &self.pages[at];
        page.lost == Lost::Perhaps
            || matches!(page.source, Source::File { file, page: number, .. }
                if page.own == UNOWNED && files[usize::from(file)].is_lost(number))
    }

    /// Whether page `at` may hold `word`; if it does, that is what it holds from now on.
    #[inline]
    pub fn settle(&mut self, files: &[File], at: usize, word: u64) -> bool {
        if self.content(files, at) == Ok(word) {
            self.pages[at].lost = Lost::No;
            return true;
        }
        let page = &mut self.pages[at];
        if !page.unsure || page.guard {
            return false;
        }
        if page.own != UNOWNED {
            page.own = UNOWNED;
            // Of a file's page it is still not known whether it has been copied.
            page.unsure = page.is_private_file();
            return self.settle(files, at, word);
        }
        match page.source {
            Source::File { file, page: number, shared: false }
                if files[usize::from(file)].has_held(number, word) =>
            {
                (page.own, page.unsure) = (word, false);
                true
            }
            _ => false,
        }
    }

    /// `word` was stored to page `at`, and up to `copied` pages around it may have been copied.
    #[inline]
    pub fn store(&mut self, files: &mut [File], at: usize, word: u64, copied: usize) {
        match self.pages[at].source {
            Source::File { file, page: number, shared: true }
            | Source::Whole { file, page: number, shared: true, .. }
            | Source::Frame { file, page: number } => {
                files[usize::from(file)].store(number, word);
            }
            source => {
                if let Source::File { .. } = source {
                    let end = (at + copied).min(self.pages.len());
                    for near in &mut self.pages[at.saturating_sub(copied)..end] {
                        near.unsure |= near.is_private_file() && near.own == UNOWNED;
                    }
                }
                let page = &mut self.pages[at];
                (page.own, page.unsure, page.written) = (word, false, true);
                (page.lost, page.shielded) = (Lost::No, Shielded::No);
            }
        }
    }

    /// A child.
    #[must_use]
    pub fn fork(&self) -> Self {
        let pages = self.pages.iter().map(|page| page.inherited()).collect();
        Self { pages, group: self.group }
    }

    /// The first page from `at` on, of `count`, at which the area of `at` ends; none if it covers
    /// all of them.
    #[must_use]
    pub fn area_break(&self, at: usize, count: usize) -> Option<usize> {
        if !self.pages[at].is_mapped() {
            return Some(at);
        }
        (at + 1..at + count).find(|&next| !self.pages[next - 1].goes_on(&self.pages[next]))
    }

    /// Whether an end of a part lies within a reserved folio.
    #[must_use]
    pub fn cuts_folio(&self, (at, count): (usize, usize)) -> bool {
        let ends = [at, at + count].into_iter().filter_map(|end| self.pages.get(end));
        ends.into_iter().any(|page| page.is_within_folio())
    }

    /// The longest stretch of free pages.
    #[must_use]
    pub fn longest_gap(&self) -> usize {
        let gaps = self.pages.split(Page::is_mapped);
        gaps.map(<[Page]>::len).max().unwrap_or(0)
    }
}
