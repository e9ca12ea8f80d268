//! Deciding the steps of a fault, without a lock.

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::Hardware;
use quire_units::{Access, Order, OrderSet, PageSpan, Prot, Vpn};

use super::policy::Policy;
use super::size::{Choice, choose, fitting};
use super::unshare::Unshare;
use crate::limits::{ORDER_MAX, POPULATE_ORDER};
use crate::space::{
    Advice, Area, AreaFlags, Backing, FileId, Recent, Seq, View, WatchFor, Watched,
};
use crate::table::{MarkKind, Place, WATCHED, shielded};

/// The next step for a fault.
#[derive(Clone, Copy, Debug)]
pub enum Decision {
    /// Frames are needed: allocate them, clear them, install them.
    Fill(Plan),
    /// A lower table is needed below this place first, if the areas are unchanged.
    Below(Place, Seq),
    /// A leaf is there: note the access in it, and give it these rights, those of its area, if the
    /// areas are unchanged.
    Touch(Prot, Seq),
    /// A leaf is there that others may map, too, and is to be written.
    Unshare(Unshare),
    /// A marker is present, such as a swap entry.
    Marked(MarkedPage),
    /// A page of a file is needed, or a shared page of one is written for the first time.
    File(FilePage),
    /// A stack may grow down to the page: its area.
    Grow(Area),
    /// The area's watcher answers the access.
    Watched(Watched),
    /// The page's protection ends with this write to it.
    Unshield,
    /// The program may not access it.
    Refuse(Refusal),
}

/// The reason to refuse a program its access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No area holds the page (Linux: `SEGV_MAPERR`).
    NoArea,
    /// The area's rights do not allow the access (Linux: `SEGV_ACCERR`).
    Denied(Prot),
    /// It is a page of a file beyond the file's end (Linux: SIGBUS with `BUS_ADRERR`).
    Missing,
}

/// The place and the sizes of frames to be mapped: all that can be found without a lock.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The page that faulted.
    pub page: Vpn,
    /// The sizes that are possible here.
    pub choice: Choice,
    /// The advice for the area.
    pub advice: Advice,
    /// Empty pages from the block's start on that are wanted at once: one block for a fault, more
    /// for populating. Never shorter than the largest block.
    pub wanted: PageSpan,
    /// The table that they go into: perhaps out of date, like the rest of a plan.
    pub(crate) place: Place,
    pub(super) attrs: Attrs,
    pub(crate) seq: Seq,
}

/// A page whose entry is a marker, as found without a lock.
#[derive(Clone, Copy, Debug)]
pub struct MarkedPage {
    /// The page.
    pub page: Vpn,
    /// The payload.
    pub payload: u64,
    pub(crate) area: Area,
    pub(crate) seq: Seq,
}

/// A page of a file that an area maps, as found without a lock.
#[derive(Clone, Copy, Debug)]
pub struct FilePage {
    /// The page that faulted.
    pub page: Vpn,
    /// Which file.
    pub file: FileId,
    /// Which page of it.
    pub at: u64,
    /// The size of the entry that is to map it, where there is no lower table yet; zero where an
    /// entry maps it already.
    pub place_order: Order,
    /// Whether a leaf is present that must fault before it is written.
    pub is_there: bool,
    /// Whether the pages that are mapped for it wait for a watcher before they are written.
    pub(crate) shields: bool,
    pub(crate) area: Area,
    pub(crate) seq: Seq,
}

impl MarkedPage {
    /// Whether the page is absent but for its area's watcher, who answers its first write.
    pub(crate) fn is_shielded(&self) -> bool {
        MarkKind::of(self.payload) == Some(MarkKind::Watched)
    }
}

impl FilePage {
    /// The pages around the one that faulted that map the block of `order` around its file page; if
    /// they lie in the area and are such a block as well.
    #[cfg(feature = "files")]
    pub(crate) fn whole_block(&self, order: Order) -> Option<PageSpan> {
        let pages = PageSpan::block(self.page, order);
        let agrees = (self.page.get() ^ self.at) & (order.pages() - 1) == 0;
        (agrees && self.area.span.covers(pages)).then_some(pages)
    }

    /// The page of the file that `page` of the area maps.
    pub fn file_page(&self, page: Vpn) -> u64 {
        self.at.wrapping_add(page.get().wrapping_sub(self.page.get()))
    }

    /// The page in `room`, a part of the area, that maps page `at` of the file, or the nearest;
    /// pages beyond `room` give its end.
    pub fn page_of(&self, at: u64, room: PageSpan) -> Vpn {
        let ahead = at.saturating_sub(self.file_page(room.start));
        Vpn::new(room.start.get().saturating_add(ahead)).min(room.end)
    }
}

/// The amount that is wanted at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The folio around the page.
    Folio,
    /// Everything up to this page that one table translates: populating.
    Upto(Vpn),
    /// The same, and nothing before the page: the answer of a watcher, whatever rights the area
    /// has.
    Answer(Vpn),
}

/// The end of a search for a page: all that was read without a lock.
struct Found {
    /// The first area that ends after the page.
    area: Option<Area>,
    seq: Seq,
    /// The end of the walk.
    place: Place,
}

/// Searches for `page`, and records what it finds for the next fault.
#[inline(always)]
fn search<A: Arch, H: Hardware>(view: &View<'_, A, H>, page: Vpn) -> Found {
    let (area, seq) = view.areas().next_at_or_after(page);
    let place = view.tables().walk(page, Level::LAST);
    if let Some(area) = area
        && place.level == Level::LAST
        && area.span.contains(page)
    {
        let recent = Recent { area, seq, table: place.frame };
        view.space.note_recent(view.hw.cpu().index(), page, &recent);
    }
    Found { area, seq, place }
}

/// Decides what `access` to `page` needs.
#[inline(never)]
pub fn decide<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    policy: &Policy,
    page: Vpn,
    access: Access,
    reach: Reach,
) -> Decision {
    let Found { area, seq, place } = search(view, page);
    let Some(mut area) = area else { return Decision::Refuse(Refusal::NoArea) };
    if !area.span.contains(page) {
        let stack = reach == Reach::Folio && area.flags.contains(AreaFlags::GROWS_DOWN);
        let room = area.span.end.offset_from(page) <= view.space.stack_pages();
        let grows = stack && room && area.prot.allows(access);
        return if grows { Decision::Grow(area) } else { Decision::Refuse(Refusal::NoArea) };
    }
    if !area.prot.allows(access) && !matches!(reach, Reach::Answer(_)) {
        return Decision::Refuse(Refusal::Denied(area.prot));
    }
    match A::decode(place.word, place.level) {
        Entry::Absent if area.backing == Backing::Anon => {}
        Entry::Absent => return file_page(page, A::order(place.level), false, area, seq),
        Entry::Marker(first) => {
            // The pages of a block's entry have consecutive payloads.
            let payload = first + page.offset_from(page.align_down(A::order(place.level).pages()));
            let is_shielded = MarkKind::of(payload) == Some(MarkKind::Watched);
            if is_shielded && area.backing != Backing::Anon {
                return file_page(page, A::order(place.level), false, area, seq);
            }
            return Decision::Marked(MarkedPage { page, payload, area, seq });
        }
        Entry::Leaf { attrs, .. }
            if access == Access::Write
                && attrs.contains(WATCHED)
                && area.flags.contains(AreaFlags::WATCH_WRITE) =>
        {
            let tells = !area.flags.contains(AreaFlags::WATCH_ASYNC);
            let event = area.watched(page, WatchFor::WRITE, access).filter(|_| tells);
            return event.map_or(Decision::Unshield, Decision::Watched);
        }
        Entry::Leaf { frame, attrs } if access == Access::Write && attrs.contains(Attrs::COW) => {
            if area.flags.contains(AreaFlags::SHARED) {
                return file_page(page, Order::ZERO, true, area, seq);
            }
            let leaf = Some((frame, attrs));
            return Decision::Unshare(Unshare { page, place, leaf, area, seq });
        }
        _ => return Decision::Touch(area.prot, seq),
    }
    if area.flags.intersects(AreaFlags::WATCH) {
        match of_watcher(&area, page, access, reach) {
            Ok(part) => area = part,
            Err(event) => return Decision::Watched(event),
        }
    }
    let mut plan = Plan::around(view, policy, page, access, &area, place, seq);
    let largest = plan.choice.largest();
    if place.level.is_above(A::leaf_level(largest)) {
        return Decision::Below(place, seq);
    }
    if let Reach::Upto(end) | Reach::Answer(end) = reach {
        plan.wanted = wanted(view, plan.wanted, largest, end.min(area.span.end));
    }
    Decision::Fill(plan)
}

impl Plan {
    /// The pages will wait for their area's watcher before they are written.
    pub(crate) fn shield(&mut self) {
        self.attrs = shielded(self.attrs);
    }

    /// The plan to fill the largest block around `page` of `area` that is wanted and empty. The
    /// entry at `place` is absent, and the lowest for the page.
    #[inline(always)]
    pub(super) fn around<A: Arch, H: Hardware>(
        view: &View<'_, A, H>,
        policy: &Policy,
        page: Vpn,
        access: Access,
        area: &Area,
        place: Place,
        seq: Seq,
    ) -> Self {
        let advice = Advice::of(area.flags);
        let candidates = policy.candidates(advice, view.space.opt_out());
        let fits = fitting(area.span, page);
        let empty = match candidates.is_empty() {
            true => Order::ZERO,
            false => empty_order(view, place, page, candidates & OrderSet::up_to(fits)),
        };
        let choice = choose(fits, candidates, empty, A::block_order());
        let wanted = PageSpan::block(page, choice.largest());
        Plan { page, choice, advice, wanted, place, attrs: attrs(area, access), seq }
    }

    /// The plan to map one folio of its own for all of `pages`, a block of a private area that
    /// shows a file of reserved folios. `None` if something is there that is no watcher's marker,
    /// or the table for it is not (again): a discard beside this one gives an empty table back.
    #[cfg(feature = "files")]
    pub(crate) fn whole<A: Arch, H: Hardware>(
        view: &View<'_, A, H>,
        fault: &FilePage,
        pages: PageSpan,
        access: Access,
    ) -> Option<Self> {
        let FilePage { page, area, seq, .. } = *fault;
        let order = Order::fitting(pages.count()).unwrap_or_default();
        let (orders, none) = (OrderSet::of(order), OrderSet::EMPTY);
        let choice = Choice { orders, geometry: none, occupied: none, policy: None };
        let place = view.tables().walk(pages.start, Level::LAST);
        let level = A::leaf_level(order.min(A::block_order()));
        if place.level.is_above(level) {
            return None;
        }
        let shields = match A::decode(place.word, place.level) {
            Entry::Absent => fault.shields,
            Entry::Marker(payload) if MarkKind::of(payload) == Some(MarkKind::Watched) => true,
            _ => return None,
        };
        let (advice, attrs) = (Advice::of(area.flags), attrs(&area, access));
        let attrs = if shields { shielded(attrs) } else { attrs };
        Some(Plan { page, choice, advice, wanted: pages, place, attrs, seq })
    }
}

/// The attributes of the leaves for an access to missing pages of a private area.
#[inline(always)]
fn attrs(area: &Area, access: Access) -> Attrs {
    let mut attrs = Attrs::user(area.prot) | Attrs::YOUNG;
    // A writable page is mapped dirty at once: that saves the hardware a second walk. In a tracked
    // area the dirty bit must tell the written pages.
    let writes = access == Access::Write || !area.flags.contains(AreaFlags::TRACKED);
    attrs.set(Attrs::DIRTY, writes && area.prot.contains(Prot::WRITE));
    attrs
}

/// The part of a watched area that an access to its missing page may fill; or what to tell its
/// watcher.
#[cold]
#[inline(never)]
fn of_watcher(area: &Area, page: Vpn, access: Access, reach: Reach) -> Result<Area, Watched> {
    match (reach, area.watched(page, WatchFor::MISSING, access)) {
        (Reach::Answer(end), _) => Ok(area.clipped(PageSpan::new(page, end))),
        (_, Some(event)) => Err(event),
        (_, None) => Ok(*area),
    }
}

fn file_page(page: Vpn, place_order: Order, is_there: bool, area: Area, seq: Seq) -> Decision {
    match area.backing_of(page) {
        Backing::File { id: file, page: at } => {
            let shields = false;
            Decision::File(FilePage { page, file, at, place_order, is_there, shields, area, seq })
        }
        // An area of frames has all its leaves as long as it is there.
        Backing::Anon | Backing::Frames { .. } => Decision::Refuse(Refusal::Missing),
    }
}

/// The largest of the `candidates` whose block around `page` is empty; where none is, the order of
/// the entry at `place`, which is absent, and the lowest for the page.
#[inline(never)]
fn empty_order<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    place: Place,
    page: Vpn,
    candidates: OrderSet,
) -> Order {
    let block = A::order(place.level);
    // A block as large as the table would replace the entry that points at the table.
    let table = block.get() + A::LEVELS[place.level.index()].index_bits;
    let is_empty = |order: &Order| {
        let index = A::index(page.align_down(order.pages()), place.level);
        let count = (order.pages() >> block.get()) as usize;
        view.hw.count_run(place.frame, index, count, 0, 0) == count
    };
    let within = candidates & OrderSet::up_to(Order::new(table - 1));
    within.descending(block.up()).find(is_empty).unwrap_or(block).min(ORDER_MAX)
}

/// The empty pages from `block` on, in whole blocks, within one table and up to `end`, as far as it
/// pays to take frames at once.
fn wanted<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    block: PageSpan,
    order: Order,
    end: Vpn,
) -> PageSpan {
    let level = A::leaf_level(order);
    let place = view.tables().walk(block.start, level);
    let reach = PageSpan::block(block.start, POPULATE_ORDER.max(order));
    let end = end.min(reach.end);
    let unit = A::order(level);
    let index = A::index(block.start, level);
    let limit = (end.get().saturating_sub(block.start.get()) >> unit.get()) as usize;
    let limit = limit.min(A::entries(level) - index);
    let empty = (index..index + limit).take_while(|&at| view.hw.load(place.frame, at) == 0).count();
    let pages = (empty as u64) << unit.get() >> order.get() << order.get();
    PageSpan::new(block.start, block.start.add(pages.max(order.pages())))
}
