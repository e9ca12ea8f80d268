//! The parts of a recording.

/// The order in which a program first touched the pages of its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Recording {
    /// The name of the program's file.
    pub(crate) program: String,
    /// Its work in one line; may be empty.
    pub(crate) note: String,
    /// Bytes of a page: a power of two.
    pub(crate) page: u64,
    /// The files that it mapped.
    pub(crate) files: Vec<Source>,
    /// The touched pages, in the order of time.
    pub(crate) touches: Vec<Touch>,
}

/// A mapped file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    /// Its name, without folders.
    pub(crate) name: String,
    /// How long it is.
    pub(crate) bytes: u64,
    /// The parts of it that a program maps, ascending by address.
    pub(crate) segments: Vec<Segment>,
}

/// A part of a file that is mapped with the same rights (ELF: `PT_LOAD`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// May be read, written, executed.
    pub(crate) rights: [bool; 3],
    /// Where in the file it begins, in bytes.
    pub(crate) offset: u64,
    /// How many bytes of the file belong to it.
    pub(crate) bytes: u64,
    /// At which address it begins, from where the file is mapped. It has the same place in a page
    /// as `offset`.
    pub(crate) address: u64,
}

/// The access to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It fetched an instruction.
    Exec,
    /// It read, or had the kernel read by a call.
    Read,
    /// It wrote: the page was copied for it.
    Write,
    /// The host does not say.
    Unknown,
}

/// Pages of a file that were touched one after the other, ascending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Touch {
    /// The access.
    pub(crate) kind: Kind,
    /// Which of the files.
    pub(crate) file: usize,
    /// The first page, counted from the begin of the file.
    pub(crate) first: u64,
    /// How many pages; at least one.
    pub(crate) count: u64,
}

impl Kind {
    /// All kinds with their letters.
    pub(super) const LETTERS: [(Kind, &str); 4] =
        [(Kind::Exec, "x"), (Kind::Read, "r"), (Kind::Write, "w"), (Kind::Unknown, "?")];
}

impl Source {
    /// How many pages of `page` bytes it has, the last one perhaps in part.
    pub(crate) fn pages(&self, page: u64) -> u64 {
        self.bytes.div_ceil(page)
    }

    /// Whether `number`, counted in pages of `page` bytes, is in a segment that may be executed.
    pub(crate) fn is_text(&self, number: u64, page: u64) -> bool {
        self.segments.iter().any(|segment| {
            let end = segment.offset.saturating_add(segment.bytes);
            let pages = segment.offset / page..end.div_ceil(page);
            segment.rights[2] && pages.contains(&number)
        })
    }
}

impl Recording {
    /// Adds a touch of one page; pages that follow each other become one run.
    pub(crate) fn touch(&mut self, kind: Kind, file: usize, page: u64) {
        match self.touches.last_mut() {
            Some(last)
                if (last.kind, last.file) == (kind, file) && last.first + last.count == page =>
            {
                last.count += 1;
            }
            _ => self.touches.push(Touch { kind, file, first: page, count: 1 }),
        }
    }

    /// How many pages were touched.
    pub(crate) fn pages(&self) -> u64 {
        self.touches.iter().map(|touch| touch.count).sum()
    }

    /// How many touched pages may be executed.
    pub(crate) fn text_pages(&self) -> u64 {
        let text = |touch: &Touch| {
            let file = self.files.get(touch.file);
            let is_text = |page: &u64| file.is_some_and(|file| file.is_text(*page, self.page));
            (touch.first..touch.first + touch.count).filter(is_text).count() as u64
        };
        self.touches.iter().map(text).sum()
    }
}
