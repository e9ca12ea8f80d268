//! A write to a shared page (copy-on-write): keep the folio or copy from it.
//!
//! ```text
//!   a COW leaf is written ── is all of its folio mapped by this table alone, without other holds?
//!                               │ yes                          │ no
//!                               ▼                              ▼
//!                        keep it: the whole run         take a reference; copy the largest block
//!                        gets its rights back           that is allowed; map the copy
//!                               │ the page before is exclusive already
//!                               ▼
//!                        the same for the next leaves: they are about to be written
//! ```
//!
//! One comparison tells whether a folio is shared: the folio counts its mapped pages, and this code
//! counts those that this table maps. If both agree, no other table maps a page of it, and none can
//! begin to: that takes the lock of a table that maps it, and this is the only one. A folio across
//! two tables counts as shared and is copied, which costs time, not correctness.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order, OrderSet, PageSpan, Pfn, Prot, Vpn};

use super::policy::Policy;
use crate::folio::{Folio, Folios};
use crate::limits::{KEEP_AHEAD, KEEP_MOST};
use crate::space::{Advice, Area, AreaFlags, Backing, Seq, View};
use crate::table::{Locked, Place, Regrant, Run, WATCHED, What, is_cow};

/// A COW leaf that is to become its space's own, as it was read without a lock.
#[derive(Clone, Copy, Debug)]
pub struct Unshare {
    /// The page that the program writes.
    pub page: Vpn,
    /// The place where a walk for it ended.
    pub(super) place: Place,
    /// The leaf that the walk found there, if it did.
    pub(super) leaf: Option<(Pfn, Attrs)>,
    pub(super) area: Area,
    pub(super) seq: Seq,
}

/// The result of a look under the table's lock.
#[derive(Debug)]
pub enum Claim {
    /// The folio was not shared: these pages are exclusive now.
    Kept(PageSpan),
    /// The folio is shared: copy from it. It is held until [`Source::release`].
    Copy(Source),
    /// The leaf or the areas have changed.
    Stale,
}

/// The folio to copy from.
#[derive(Debug)]
#[must_use = "the folio is held: release it"]
pub struct Source {
    folio: Folio,
    /// Pages around the one that is written that are COW, in its area, and mapped to consecutive
    /// frames of the folio.
    pub pages: PageSpan,
    frame: Pfn,
    /// The size of each leaf.
    pub leaf: Order,
    /// The sizes that a copy may have.
    pub orders: OrderSet,
    /// As many pages from the written one on, it included, the program is about to write.
    pub ahead: Order,
}

/// Some frames of a folio, in two words.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    start: Pfn,
    count: u32,
    order: Order,
}

impl Part {
    /// The frames `frames` of `folio`.
    pub fn new(folio: Folio, frames: FrameSpan) -> Self {
        Self { start: frames.start, count: frames.count as u32, order: folio.order }
    }

    /// The folio.
    pub fn folio(self) -> Folio {
        Folio { head: self.start.align_down(self.order.pages()), order: self.order }
    }

    /// The frames.
    pub fn frames(self) -> FrameSpan {
        FrameSpan::new(self.start, self.count.into())
    }
}

impl Source {
    /// The frames of `pages`, which are some of its pages.
    pub fn part(&self, pages: PageSpan) -> Part {
        let ahead = pages.start.offset_from(self.pages.start);
        Part::new(self.folio, FrameSpan::new(self.frame.add(ahead), pages.count()))
    }

    /// Drops the hold; returns the folio's frames, if it was the last hold.
    #[must_use = "the last reference returns the frames"]
    pub fn release<A: Arch, H: Hardware>(self, view: &View<'_, A, H>) -> Option<FrameRun> {
        view.folios().put(self.folio)
    }
}

impl Unshare {
    /// The request to make `page` exclusive, whatever is mapped there.
    pub fn of<A: Arch, H: Hardware>(view: &View<'_, A, H>, page: Vpn) -> Option<Self> {
        let (area, seq) = view.areas().lookup(page);
        let place = view.tables().walk(page, Level::LAST);
        area.map(|area| Self { page, place, leaf: None, area, seq })
    }

    /// The rights of the area.
    pub fn prot(&self) -> Prot {
        self.area.prot
    }

    /// The advice for the area.
    pub fn advice(&self) -> Advice {
        Advice::of(self.area.flags)
    }

    /// Whether the page is written like any other page of a private area: not by a debugger, and
    /// not in an area with tracked writes or a watcher. Then pages around it may be copied as well.
    pub(crate) fn is_plain(&self) -> bool {
        let (flags, prot) = (self.area.flags, self.area.prot);
        let told_apart =
            flags.intersects(AreaFlags::SHARED | AreaFlags::TRACKED | AreaFlags::WATCH);
        prot.contains(Prot::WRITE) && !told_apart
    }

    /// Whether such a page maps a file.
    #[cfg(feature = "files")]
    pub(crate) fn is_of_file(&self) -> bool {
        self.area.backing != Backing::Anon && self.is_plain()
    }

    /// The backing of the area.
    pub(crate) fn backing(&self) -> Backing {
        self.area.backing
    }

    /// Keeps the folio if it is not shared; otherwise holds it, to be copied from. `policy` has the
    /// sizes of copies, unless it is a `whole` folio: the search ends at the largest.
    #[inline]
    pub fn claim<A: Arch, H: Hardware>(
        &self,
        view: &View<'_, A, H>,
        policy: &Policy,
        whole: Option<Order>,
    ) -> Claim {
        let locked = self.lock(view, self.page);
        let folios = view.folios();
        let index = locked.index(self.page);
        let block = PageSpan::block(self.page, A::order(locked.level()));
        let leaf = locked.entry(index);
        let What::Leaf { frame, attrs, .. } = leaf.what else { return Claim::Stale };
        if !self.may_own(attrs) || !view.space.areas.is_current(self.seq, block) {
            return Claim::Stale;
        }
        let Some(folio) = folios.of(frame) else { return Claim::Stale };
        // If more pages are mapped than the folio has, other tables map it, too.
        let copies = || match whole {
            Some(order) => OrderSet::of(order),
            None => policy.copies(folio.order, self.advice(), view.space.opt_out()),
        };
        let reach = match folios.may_be_sole(folio) {
            true => folio.order,
            false => copies().largest().unwrap_or_default(),
        };
        let (run, mapped) = around(&locked, leaf, frame, folio, reach);
        let pages = locked.pages(&run).intersect(self.area.span);
        if folios.is_sole(folio, mapped) {
            let first = locked.index(pages.start);
            let count = (pages.count() >> A::order(locked.level()).get()) as usize;
            let whole = (run.index, run.count) == (first, count);
            let run = if whole { run } else { locked.run(first, first + count) };
            // They get the dirty bit: the program is about to write one of them, and the others
            // save the hardware a second walk.
            let mut noted = Attrs::YOUNG;
            noted.set(Attrs::DIRTY, self.area.prot.contains(Prot::WRITE));
            locked.grant(run, folio.order, self.exclusive().with(noted));
            let end = self.keep_ahead(&locked, &folios, &run);
            return Claim::Kept(PageSpan::new(pages.start, locked.page(end)));
        }
        folios.get(folio);
        let orders = copies();
        // Where a larger size is wanted, it has the next pages.
        let ahead = match orders.largest() > Some(Order::ZERO) {
            true => Order::ZERO,
            false => about_to_write(&locked, index, Order::new(1), policy.copy_most()),
        };
        let back = self.page.align_down(block.count()).offset_from(pages.start);
        let frame = Pfn::new(frame.get() - back);
        Claim::Copy(Source { folio, pages, frame, leaf: A::order(locked.level()), orders, ahead })
    }

    /// The table of `page`, which the walk has found already unless it changed meanwhile.
    #[inline]
    fn lock<'a, A: Arch, H: Hardware>(&self, view: &View<'a, A, H>, page: Vpn) -> Locked<'a, A, H> {
        let locked = view.tables().lock_lowest_from(self.place, page);
        if let Some((frame, attrs)) = self.leaf {
            locked.recall(self.place, frame, attrs);
        }
        locked
    }

    /// All rights of the area, and no sharing.
    #[inline]
    fn exclusive(&self) -> Regrant {
        Regrant::rights(self.area.prot).without(WATCHED)
    }

    /// Whether a leaf is COW, and no watcher answers its write.
    #[inline]
    fn may_own(&self, attrs: Attrs) -> bool {
        is_cow(attrs)
            || attrs.contains(WATCHED) && !self.area.flags.contains(AreaFlags::WATCH_WRITE)
    }

    /// Keeps the folios behind `run`, which was kept, too, as far as they are not shared; but only
    /// where the page before `run` is exclusive already, so that a program that writes page after
    /// page faults once for many. Returns the entry where that ends.
    #[inline(never)]
    fn keep_ahead<A: Arch, H: Hardware>(
        &self,
        locked: &Locked<'_, A, H>,
        folios: &Folios<'_>,
        run: &Run,
    ) -> usize {
        let mut at = run.index + run.count;
        // Only single pages of a watched area may have lost their mark.
        if self.area.flags.contains(AreaFlags::WATCH_WRITE) {
            return at;
        }
        let more = about_to_write(locked, run.index, KEEP_AHEAD, KEEP_MOST);
        if more == Order::ZERO {
            return at;
        }
        let room = self.area.span.end.min(locked.reach().end).offset_from(locked.page(at));
        let end =
            at + (more.pages() as usize).min((room >> A::order(locked.level()).get()) as usize);
        while at < end {
            let alone =
                locked.grant_pages(at, end, self.exclusive(), |frame| folios.is_sole_page(frame));
            at += alone;
            if alone > 0 {
                continue;
            }
            let leaf = locked.entry(at);
            let What::Leaf { frame, attrs, .. } = leaf.what else { break };
            let folio = folios.of(frame).filter(|folio| folios.may_be_sole(*folio));
            let Some(folio) = folio.filter(|_| attrs.contains(Attrs::COW)) else { break };
            let (next, mapped) = around(locked, leaf, frame, folio, folio.order);
            let fits = next.index == at && at + next.count <= end;
            if !fits || !folios.is_sole(folio, mapped) {
                break;
            }
            locked.grant(next, folio.order, self.exclusive());
            at += next.count;
        }
        at
    }

    /// Maps `run`, folios of order `each` with the copy of `parts`, as exclusive at `pages`, which
    /// map these parts by leaves of order `leaf`, and flushes. Returns the frames of an old folio
    /// of which this was the last hold: of one at most.
    ///
    /// # Errors
    /// The run, when the areas or the leaves have changed.
    // Not inlined: its stack is free again where frames are freed.
    #[inline(never)]
    pub fn replace<A: Arch, H: Hardware>(
        &self,
        view: &View<'_, A, H>,
        parts: &[Part],
        leaf: Order,
        (pages, each): (PageSpan, Order),
        run: FrameRun,
    ) -> Result<Option<FrameRun>, FrameRun> {
        let locked = self.lock(view, pages.start);
        let index = locked.index(pages.start);
        let mut at = index;
        let is_mapped = |part: &Part| {
            let frames = part.frames();
            let count = (frames.count >> leaf.get()) as usize;
            let run = locked.run(at, at + count);
            at += count;
            matches!(run.what, What::Leaf { frame, attrs, .. }
                if self.may_own(attrs) && (frame, run.count) == (frames.start, count))
        };
        let current = A::order(locked.level()) == leaf
            && view.space.areas.is_current(self.seq, pages)
            && parts.iter().all(is_mapped);
        if !current {
            return Err(run);
        }
        let frame = run.start();
        let folios = view.folios();
        folios.adopt_mapped(run, each, view.tables().home(pages.start));
        let attrs = Attrs::user(self.area.prot) | Attrs::YOUNG | Attrs::DIRTY;
        let count = (pages.count() >> leaf.get()) as usize;
        locked.replace(index, count, frame, attrs, each);
        // The flush is over.
        let unmapped = parts.iter().map(|part| folios.unmap(part.folio(), part.count));
        Ok(unmapped.fold(None, Option::or))
    }
}

/// As many leaves from entry `index` on the program is about to write, if it writes leaf after
/// leaf: one where the leaf before is not exclusive; else as many as it wrote before, as far as a
/// few of them tell, at least `least` and at most `most`.
#[inline(never)]
fn about_to_write<A: Arch, H: Hardware>(
    locked: &Locked<'_, A, H>,
    index: usize,
    least: Order,
    most: Order,
) -> Order {
    let is_own = |back: u64| {
        let what = index.checked_sub(back as usize).map(|index| locked.entry(index).what);
        matches!(what, Some(What::Leaf { attrs, .. })
            if attrs.contains(Attrs::WRITE) && !attrs.contains(Attrs::COW))
    };
    if !is_own(1) {
        return Order::ZERO;
    }
    let mut order = least.min(most);
    while order < most && is_own(order.pages()) {
        order = Order::new(order.get() + 1);
    }
    order
}

/// The run around the entry `leaf`, which maps `frame` of `folio`, as far as it maps the folio
/// within the block of order `reach` around it; and how many pages of the folio this table maps
/// there at the same offset, whatever their attributes.
#[inline]
fn around<A: Arch, H: Hardware>(
    locked: &Locked<'_, A, H>,
    leaf: Run,
    frame: Pfn,
    folio: Folio,
    reach: Order,
) -> (Run, u32) {
    let (index, order) = (leaf.index, A::order(locked.level()).get());
    if folio.order.get() == order {
        return (leaf, 1 << order);
    }
    let before = (frame.offset_from(folio.head) >> order) as usize;
    let whole = (folio.order.pages() >> order).max(1) as usize;
    let table = A::entries(locked.level());
    let (mut first, mut end) = (index.saturating_sub(before), (index + whole - before).min(table));
    if reach < folio.order {
        let units = ((reach.pages() >> order) as usize).max(1);
        let block = index / units * units;
        (first, end) = (first.max(block), end.min(block + units));
    }
    let (mut own, mut mapped, mut at) = (leaf, 0, first);
    while at < end {
        let run = locked.run(at, end);
        let behind = frame.get() + ((at as u64) << order) - ((index as u64) << order);
        if let What::Leaf { frame, .. } = run.what
            && frame.get() == behind
        {
            mapped += (run.count as u32) << order;
            if (run.index..run.index + run.count).contains(&index) {
                own = run;
            }
        }
        at += run.count;
    }
    (own, mapped)
}
