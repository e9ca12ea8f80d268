//! Frames that were taken out of a tree, in custody until the flush.

use arrayvec::ArrayVec;
use quire_hw::{Flush, FrameRun, Hardware, Pieces};
use quire_units::{FrameSpan, Order, PageSpan, Pfn};

use super::{MarkKind, Marks};
use crate::folio::{Folio, Folios};
use crate::limits::CACHED_ORDER_MAX;
use crate::phys::{Flushed, Meta, Mobility, Ownerless, Phys, Strays, WordsLock};
use crate::sync::{Ordering, fence};
use crate::tags::Tag;

/// The space whose translations are to be flushed.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The space's tag, and the CPUs that may hold translations of it; `None` for a tree that no
    /// CPU uses.
    pub tag: Option<&'a Tag>,
    /// Its top-level table.
    pub root: Pfn,
}

impl<'a> Target<'a> {
    /// The flush of `pages`, of all where there are none, after a change of the tables. `None`
    /// where no CPU uses the tree.
    ///
    /// The change comes first, then the fence, then the tag and the CPUs: a CPU that enters the
    /// space later, perhaps under another tag, sees the change ([the rules](crate::tags)).
    pub(crate) fn order(self, pages: Option<Pieces>, tables: bool) -> Option<Flush<'a>> {
        let tag = self.tag?;
        fence(Ordering::SeqCst);
        Some(Flush { asid: tag.asid(), root: self.root, pages, tables, cpus: tag.cpus() })
    }
}

/// How many blocks a flush names. A flush of all pages counts as one.
pub(crate) fn invalidations(flush: &Flush<'_>) -> u64 {
    flush.pages.map_or(1, Pieces::count)
}

/// How many runs of shared frames a gather takes before it must be settled.
const SHARED_MAX: usize = 32;

/// How many runs of markers a gather takes before it must be settled.
const MARKS_MAX: usize = 8;

/// The frames that a change took out of a tree, in custody, and the translations to flush before
/// they are freed. Settle it; dropping it leaks the frames (which is safe, and a bug).
///
/// Frames without another holder are chained through their own slots, so that one gather takes any
/// number of them. Only shared frames need a record here: their counts may not be dropped before
/// the flush, since the other holder could then free the frames first.
#[must_use = "settle the gather: its frames are in custody until the flush"]
#[derive(Debug)]
pub struct Gather {
    pages: Option<Pieces>,
    tables: bool,
    /// All pages of the space are to be flushed.
    space: bool,
    strays: Strays,
    /// Index of a run's first frame, and how many frames were mapped here, once each.
    shared: ArrayVec<(u32, u32), SHARED_MAX>,
    /// Swap entries that were taken out: the first payload of a run, and how many pages.
    marks: ArrayVec<(u64, u64), MARKS_MAX>,
    /// No CPU has translations of the space any more, as this proves.
    unused: Option<Flushed>,
}

impl Gather {
    /// Nothing taken yet.
    #[inline]
    pub fn new() -> Self {
        Self {
            pages: None,
            tables: false,
            space: false,
            strays: Strays::new(),
            shared: ArrayVec::new(),
            marks: ArrayVec::new(),
            unused: None,
        }
    }

    /// Nothing taken yet, for a space that no CPU uses and whose translations have been flushed:
    /// frames are freed without another flush.
    pub(crate) fn unused(flushed: Flushed) -> Self {
        Self { unused: Some(flushed), ..Self::new() }
    }

    /// Whether there is nothing to flush and nothing to free.
    pub fn is_empty(&self) -> bool {
        self.pages.is_none()
            && !self.tables
            && !self.space
            && self.strays.is_empty()
            && self.shared.is_empty()
            && self.marks.is_empty()
    }

    /// Whether it must be settled before it takes a mapping of a shared folio.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.shared.is_full()
    }

    /// Takes a run of markers for `pages` pages; `false` when it must be settled before. It keeps
    /// swap entries only: other markers refer to nothing.
    pub(super) fn mark(&mut self, marks: Marks, pages: u64) -> bool {
        if marks.kind() != Some(MarkKind::Swap) {
            return true;
        }
        match self.marks.last_mut() {
            Some((start, count)) if *start + *count == marks.first => {
                *count += pages;
                true
            }
            _ => self.marks.try_push((marks.first, pages)).is_ok(),
        }
    }

    /// The swap entries that were taken out: first payload and pages of each run. The caller gives
    /// their slots back.
    pub(crate) fn take_marks(&mut self) -> impl Iterator<Item = (u64, u64)> {
        self.marks.drain(..)
    }

    /// Notes that the translations of `pages`, mapped by blocks of `stride`, are to be flushed.
    #[inline]
    pub(super) fn flush(&mut self, pages: PageSpan, stride: Order) {
        Self::add(&mut self.pages, pages, stride);
    }

    /// Adds `pages`, mapped by blocks of `stride`, to those whose flush is `due`.
    #[inline]
    pub(super) fn add(due: &mut Option<Pieces>, pages: PageSpan, stride: Order) {
        let pieces = Pieces::new(pages, stride);
        *due = Some(due.map_or(pieces, |had| had.and(pieces)));
    }

    /// The pages whose translations are to be flushed.
    #[inline]
    pub fn due(&mut self) -> &mut Option<Pieces> {
        &mut self.pages
    }

    /// Whether all translations of the space are to be flushed.
    #[inline]
    pub(super) fn flushes_space(&self) -> bool {
        self.space
    }

    /// Notes that all translations of the space are to be flushed.
    #[inline]
    pub(crate) fn flush_space(&mut self) {
        self.space = true;
    }

    /// Notes that `pages` are to be flushed, which other tables translate from now on.
    pub(super) fn flush_tables(&mut self, pages: PageSpan, stride: Order) {
        self.flush(pages, stride);
        self.tables = true;
    }

    /// Takes the mapping of `frames`, all of one folio, whose entries the caller zeroes before it
    /// unlocks their table. It is not full.
    #[inline(always)]
    pub(super) fn mapping(&mut self, meta: Meta<'_>, folio: Folio, frames: FrameSpan) {
        let pages = frames.count as u32;
        if self.unused.is_some() {
            if let Some(gone) = Folios::new(meta).unmap_flushed(folio, pages) {
                self.dead(meta, gone);
            }
            return;
        }
        if let Some(gone) = Folios::new(meta).retire(folio, pages) {
            return self.dead(meta, gone);
        }
        let start = meta.index(frames.start);
        match self.shared.last_mut() {
            Some((first, count)) if first.checked_add(*count) == Some(start) => *count += pages,
            _ => self.shared.push((start, pages)),
        }
    }

    /// The same by a call, where folios lie anywhere.
    #[inline(never)]
    pub(super) fn mapping_of(&mut self, meta: Meta<'_>, folio: Folio, frames: FrameSpan) {
        self.mapping(meta, folio, frames);
    }

    /// Takes a table that has left its tree; one whose words are all zero (`zeroed`) need not be
    /// cleared again.
    pub(super) fn table(&mut self, meta: Meta<'_>, table: WordsLock<'_>, zeroed: bool) {
        self.tables = true;
        self.strays.take_table(meta, table, zeroed);
    }

    /// Takes frames that have lost their last owner.
    pub(super) fn dead(&mut self, meta: Meta<'_>, gone: Ownerless) {
        self.strays.take(meta, gone);
    }

    /// Flushes, then frees the frames in custody; the gather is empty then. The caller holds no
    /// lock.
    pub fn settle<H: Hardware>(&mut self, phys: &Phys<'_>, hw: &H, target: Target<'_>) -> Settled {
        let pages = self.pages.filter(|_| !self.space);
        let has_any = self.pages.is_some() || self.tables || self.space;
        let is_due = has_any && self.unused.is_none();
        let flush = if is_due { target.order(pages, self.tables) } else { None };
        let flush = flush.as_ref();
        let made = Flushed::by(hw, flush);
        let frames = self.release(phys, hw, &made);
        (self.pages, self.tables, self.space) = (None, false, false);
        let invalidations = flush.map_or(0, invalidations);
        Settled { flushes: flush.is_some().into(), invalidations, frames }
    }

    /// Frees what was in custody.
    fn release<H: Hardware>(&mut self, phys: &Phys<'_>, hw: &H, flushed: &Flushed) -> u64 {
        let (meta, cpu) = (phys.meta(), hw.cpu());
        let folios = Folios::new(meta);
        let mut freed = 0;
        let mut free = |run: FrameRun, mobility| {
            hw.freed(run.span());
            freed += run.count();
            let is_table = mobility == Mobility::Unmovable;
            let most = if is_table { Order::ZERO } else { CACHED_ORDER_MAX };
            phys.free_parts(cpu, run, mobility, most);
        };
        self.strays.free(meta, flushed, &mut free);
        for (first, count) in self.shared.drain(..) {
            let frames = FrameSpan::new(meta.frame(first), count.into());
            folios.each(frames, |folio, piece| {
                if let Some(run) = folios.unmap(folio, piece.count as u32) {
                    free(run, Mobility::Movable);
                }
                true
            });
        }
        freed
    }
}

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}

/// The outcome of settling a gather.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    /// Flushes asked of the hardware: 0 or 1.
    pub flushes: u64,
    /// Blocks that the flush named.
    pub invalidations: u64,
    /// Frames that became free.
    pub frames: u64,
}
