//! Memory by the sizes of its folios, with the labels of Linux's tool `thpmaps`.
//!
//! A [`Folding`] takes pieces of an area in ascending order, and sorts them into [`Folios`]:
//!
//! ```text
//!   anon:                        4096 kB            of no file
//!   anon-thp-aligned-64kB:       1920 kB ( 47%)     large folios, whole, at an aligned address
//!   anon-thp-unaligned-64kB:       64 kB (  2%)     whole, at another address
//!   anon-thp-partial:              52 kB (  1%)     mapped in part
//!   anon-cont-aligned-64kB:      1984 kB ( 48%)     aligned blocks, in pages and in frames
//!   anon-by-blocks:                 0 kB (  0%)     mapped by leaves larger than a base page
//!   anon-folded:                 1920 kB ( 47%)     in contiguous blocks of the tables
//! ```
//!
//! and likewise `file` for pages of files and shared ones. Pages in no line of the second to fourth
//! kind are in folios of one page. The first five are `thpmaps`' own labels, in their first form:
//! it counts a folio as aligned whether blocks or entries map it. The last two are printed where
//! they are known. Lines of nothing are left out.

use crate::Result;
use crate::files::Text;

/// Orders with a line of their own; a folio of a higher one counts as the highest.
pub const ORDERS: usize = 24;

/// Pages of one folio that are mapped side by side; or of several, where each has one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first page.
    pub page: u64,
    /// The frame that it shows; those of the other pages follow.
    pub frame: u64,
    /// How many pages.
    pub count: u64,
    /// The folio's first frame; of no meaning in order 0.
    pub head: u64,
    /// The folio's order.
    pub order: u8,
    /// Whether it is of no file.
    pub anon: bool,
    /// Whether leaves larger than a base page map it.
    pub block: bool,
    /// Whether it is in contiguous blocks of the tables.
    pub folded: bool,
}

impl Piece {
    /// Whether `next` goes on where this ends, in the same folio.
    fn meets(&self, next: &Self) -> bool {
        let same = self.order == next.order && (self.order == 0 || self.head == next.head);
        let beside = self.page + self.count == next.page && self.frame + self.count == next.frame;
        same && beside && self.anon == next.anon
    }
}

/// The amount of one kind, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// All of it.
    pub total: u64,
    /// By order, from 1 on: in folios that are mapped whole, at an address aligned to their size.
    pub aligned: [u64; ORDERS],
    /// Likewise, at another address.
    pub unaligned: [u64; ORDERS],
    /// In large folios that are mapped in part.
    pub partial: u64,
    /// In blocks of a size that the CPU could hold as one, aligned in pages and in frames.
    pub cont: u64,
    /// Mapped by leaves larger than a base page.
    pub blocks: u64,
    /// In contiguous blocks of the tables.
    pub folded: u64,
}

impl Share {
    /// Adds the sums of `other`.
    fn add(&mut self, other: &Self) {
        self.total += other.total;
        let sizes = self.aligned.iter_mut().zip(&other.aligned);
        sizes.for_each(|(size, other)| *size += other);
        let sizes = self.unaligned.iter_mut().zip(&other.unaligned);
        sizes.for_each(|(size, other)| *size += other);
        self.partial += other.partial;
        self.cont += other.cont;
        self.blocks += other.blocks;
        self.folded += other.folded;
    }

    /// Sorts a stretch that is as long as it can be in its area.
    fn sort(&mut self, piece: &Piece, cont: u64) {
        if piece.order > 0 {
            let order = usize::from(piece.order).min(ORDERS - 1);
            let pages = 1_u64 << piece.order;
            match (piece.count == pages, piece.page.is_multiple_of(pages)) {
                (true, true) => self.aligned[order] += pages,
                (true, false) => self.unaligned[order] += pages,
                (false, _) => self.partial += piece.count,
            }
            self.cont += blocks(piece, cont);
        }
    }
}

/// Pages of `piece` in blocks of `cont` pages that are aligned in pages and in frames.
fn blocks(piece: &Piece, cont: u64) -> u64 {
    if piece.page % cont != piece.frame % cont {
        return 0;
    }
    let first = piece.page.next_multiple_of(cont);
    let end = (piece.page + piece.count) / cont * cont;
    end.saturating_sub(first)
}

/// An area's memory, or that of several, by the sizes of its folios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folios {
    /// Pages of no file.
    pub anon: Share,
    /// Pages of files, or shared ones.
    pub file: Share,
}

impl Folios {
    /// Adds the sums of `other`.
    pub fn add(&mut self, other: &Self) {
        self.anon.add(&other.anon);
        self.file.add(&other.file);
    }

    /// The share of anonymous pages, or of the rest.
    pub const fn of(&mut self, anon: bool) -> &mut Share {
        if anon { &mut self.anon } else { &mut self.file }
    }
}

/// Sizes that the figures of a table depend on, in bytes: powers of two, `cont` not below `page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// A base page.
    pub page: u64,
    /// The blocks of the label `cont-aligned`.
    pub cont: u64,
}

/// Folds the pieces of one area into [`Folios`].
#[derive(Debug)]
#[must_use = "the last piece is only counted by `done`"]
pub struct Folding {
    /// Pages of a block.
    cont: u64,
    sum: Folios,
    /// A stretch that may go on.
    open: Option<Piece>,
}

impl Folding {
    /// Nothing yet.
    pub fn new(grain: Grain) -> Self {
        Self { cont: (grain.cont / grain.page).max(1), sum: Folios::default(), open: None }
    }

    /// Adds a piece behind all earlier ones. Adjacent pieces of one folio count as one, however
    /// they were split.
    pub fn add(&mut self, piece: Piece) {
        let share = self.sum.of(piece.anon);
        share.total += piece.count;
        share.blocks += if piece.block { piece.count } else { 0 };
        share.folded += if piece.folded { piece.count } else { 0 };
        if let Some(open) = self.open.as_mut().filter(|open| open.meets(&piece)) {
            open.count += piece.count;
            return;
        }
        self.close();
        self.open = Some(piece);
    }

    /// The sums of the area.
    pub fn done(mut self) -> Folios {
        self.close();
        self.sum
    }

    fn close(&mut self) {
        if let Some(piece) = self.open.take() {
            self.sum.of(piece.anon).sort(&piece, self.cont);
        }
    }
}

/// Columns of a label, with its colon, and of a figure.
const LABEL: usize = 26;
const FIGURE: usize = 9;

impl Folios {
    /// Prints a line for each label.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print_table(&self, out: &mut Text, grain: Grain) -> Result<()> {
        self.each(grain, &mut |label, kib, percent| {
            let begin = out.bytes().len();
            out.print(label)?;
            let width = LABEL.saturating_sub(out.bytes().len() - begin) + FIGURE;
            out.print(format_args!("{kib:width$} kB"))?;
            percent.map_or(Ok(()), |percent| out.print(format_args!(" ({percent:3}%)")))?;
            out.push(b"\n")
        })
    }

    /// Prints all labels behind each other, each after two spaces, and no newline.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print_line(&self, out: &mut Text, grain: Grain) -> Result<()> {
        self.each(grain, &mut |label, kib, percent| {
            out.push(b"  ")?;
            out.print(label)?;
            out.print(format_args!(" {kib} kB"))?;
            percent.map_or(Ok(()), |percent| out.print(format_args!(" ({percent}%)")))
        })
    }

    fn each(&self, grain: Grain, tell: &mut Tell<'_>) -> Result<()> {
        each(&self.anon, "anon", grain, tell)?;
        each(&self.file, "file", grain, tell)
    }
}

/// Takes a line: its label with a colon, units of 1024 bytes, and percent of the kind.
type Tell<'a> = dyn FnMut(core::fmt::Arguments<'_>, u64, Option<u64>) -> Result<()> + 'a;

fn each(share: &Share, kind: &str, grain: Grain, tell: &mut Tell<'_>) -> Result<()> {
    if share.total == 0 {
        return Ok(());
    }
    let (page, cont) = (grain.page >> 10, grain.cont >> 10);
    tell(format_args!("{kind}:"), share.total * page, None)?;
    let mut part = |label: core::fmt::Arguments<'_>, pages: u64| match pages {
        0 => Ok(()),
        _ => tell(label, pages * page, Some((100 * pages + share.total / 2) / share.total)),
    };
    for (word, sizes) in [("aligned", &share.aligned), ("unaligned", &share.unaligned)] {
        for (order, pages) in sizes.iter().enumerate() {
            part(format_args!("{kind}-thp-{word}-{}kB:", page << order), *pages)?;
        }
    }
    part(format_args!("{kind}-thp-partial:"), share.partial)?;
    part(format_args!("{kind}-cont-aligned-{cont}kB:"), share.cont)?;
    part(format_args!("{kind}-by-blocks:"), share.blocks)?;
    part(format_args!("{kind}-folded:"), share.folded)
}

#[cfg(test)]
#[path = "folios_tests.rs"]
mod tests;
