//! The events of a recording.

/// Consecutive pages of an address space; the end does not belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Span {
    /// The first page.
    pub(crate) start: u64,
    /// The page behind the last.
    pub(crate) end: u64,
}

impl Span {
    /// `count` pages from `start` on.
    pub(crate) fn of(start: u64, count: u64) -> Span {
        Span { start, end: start.saturating_add(count) }
    }

    /// How many pages it has.
    pub(crate) fn count(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether `page` belongs to it.
    pub(crate) fn has(self, page: u64) -> bool {
        self.start <= page && page < self.end
    }

    /// Whether all of `other` belongs to it.
    pub(crate) fn covers(self, other: Span) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The pages that belong to both; empty when there are none.
    pub(crate) fn with(self, other: Span) -> Span {
        let start = self.start.max(other.start);
        Span { start, end: self.end.min(other.end).max(start) }
    }
}

/// The access of a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
    Fetch,
}

/// The rights of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) fetch: bool,
}

impl Rights {
    /// From the bits of `mmap`: 1 read, 2 write, 4 execute.
    pub(crate) fn of_bits(bits: u64) -> Rights {
        Rights { read: bits & 1 != 0, write: bits & 2 != 0, fetch: bits & 4 != 0 }
    }

    /// The bits of `mmap`.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.read) | u64::from(self.write) << 1 | u64::from(self.fetch) << 2
    }

    /// Whether an access is allowed. Every right allows to read, as on all machines with Linux.
    pub(crate) fn allow(self, access: Access) -> bool {
        match access {
            Access::Read => self.read || self.write || self.fetch,
            Access::Write => self.write,
            Access::Fetch => self.fetch,
        }
    }
}

/// The memory behind an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// Private memory without a file.
    Anon,
    /// A file, from this page of it on.
    File { file: u32, first: u64 },
    /// Shared memory without a file of a disk.
    Shared,
    /// Pages that are no memory of the program: of the kernel, of a device, of a hugetlb pool.
    Other,
}

/// Advice for an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// Give large folios (`MADV_HUGEPAGE`).
    Huge,
    /// Give none (`MADV_NOHUGEPAGE`).
    NoHuge,
    /// Forget the content (`MADV_DONTNEED`), also where the kernel may do it later (`MADV_FREE`).
    Forget,
    /// No child gets it (`MADV_DONTFORK`), or again each (`MADV_DOFORK`).
    Alone(bool),
    /// Bring all pages in to be written (`MADV_POPULATE_WRITE`).
    Populate,
    /// Make large folios of what is there (`MADV_COLLAPSE`).
    Collapse,
}

/// Consecutive pages with equal rights and equal backing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Area {
    pub(crate) span: Span,
    pub(crate) rights: Rights,
    pub(crate) backing: Backing,
    /// Other processes see what is written.
    pub(crate) shared: bool,
    /// A stack: it grows down to the page that is touched.
    pub(crate) grows: bool,
    /// All pages come in when it is mapped.
    pub(crate) populate: bool,
    /// Advice about large folios, if there was any.
    pub(crate) huge: Option<bool>,
    /// No child gets it.
    pub(crate) alone: bool,
}

impl Area {
    /// Private memory without a file that may be read and written.
    pub(crate) fn anon(span: Span) -> Area {
        Area {
            span,
            rights: Rights { read: true, write: true, fetch: false },
            backing: Backing::Anon,
            shared: false,
            grows: false,
            populate: false,
            huge: None,
            alone: false,
        }
    }

    /// A private view of a file from page `first` on.
    pub(crate) fn file(span: Span, rights: Rights, file: u32, first: u64) -> Area {
        Area { backing: Backing::File { file, first }, rights, ..Area::anon(span) }
    }

    /// Whether its pages are of private memory without a file.
    pub(crate) fn is_anon(&self) -> bool {
        self.backing == Backing::Anon && !self.shared
    }

    /// The part of it within `span`.
    pub(crate) fn part(&self, span: Span) -> Area {
        let span = self.span.with(span);
        let backing = match self.backing {
            Backing::File { file, first } => {
                Backing::File { file, first: first + span.start - self.span.start }
            }
            other => other,
        };
        Area { span, backing, ..*self }
    }

    /// Whether `next`, which begins where this one ends, can become one area with it.
    pub(crate) fn joins(&self, next: &Area) -> bool {
        let behind = match self.backing {
            Backing::File { file, first } => {
                Backing::File { file, first: first + self.span.count() }
            }
            other => other,
        };
        let like = Area { span: next.span, backing: behind, ..*self };
        self.span.end == next.span.start
            && Area { populate: false, ..like } == Area { populate: false, ..*next }
            && self.backing != Backing::Other
    }
}

/// One thing that happened. All but `Space`, `Time`, `Begin` and `Mark` are about the space that
/// the last `Space` named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// The next events are about this space, which is new and empty when it occurs first.
    Space(u32),
    /// Milliseconds that have passed since the last `Time`.
    Time(u64),
    /// The events before are the state that the recording found; the rest is what it saw.
    Begin,
    /// Until now, uses of pages are known as touches, and from here on again: each page that is
    /// used until the next mark is touched once more.
    Mark,
    /// A page was touched.
    Touch {
        page: u64,
        access: Access,
    },
    /// Pages of files and shared memory came, or went: with the touch before, or without any.
    Held(i64),
    /// Pages are mapped; what was there is gone.
    Map(Area),
    Unmap(Span),
    Protect(Span, Rights),
    Advise(Span, Advice),
    /// Pages move, with all that is in them, to a place where none are; there the area may be
    /// shorter or longer. With `keep`, it also stays, empty. The target may begin where the source
    /// does: then nothing moves.
    Move {
        from: Span,
        to: Span,
        keep: bool,
    },
    /// The space gets a copy with this number.
    Fork(u32),
    /// The space ends.
    Exit,
}
