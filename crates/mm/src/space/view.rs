//! An address space, and the view through which the library works on it.

use core::marker::PhantomData;
use core::num::NonZeroU32;

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{Access, Asid, CpuId, PageSpan, Pfn, Vpn};

use super::tree::{AreaTree, TreeReader};
use super::{Area, OptOut};
use crate::folio::{Folios, Home};
use crate::limits::STACK_BYTES;
use crate::phys::Meta;
use crate::stats::{Counters, SpaceCounters};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::table::{Tables, Target, What};
use crate::tags::{Asids, Entered, Tag};

/// An address space: its areas, the root of its page tables, and the CPUs that run in it.
///
/// The embedder gives it a place, and ends it with [`Mm::destroy_in`](crate::Mm::destroy_in);
/// dropping it instead leaks its memory.
#[must_use = "a space that is dropped leaks its memory; destroy it"]
pub struct Space<A> {
    pub(crate) areas: AreaTree,
    root: Pfn,
    tag: Tag,
    window: PageSpan,
    opt_out: AtomicU32,
    stack_pages: AtomicU64,
    /// Rare events that happened here: bits of [`Ever`].
    ever: AtomicU32,
    /// The lowest page at which an area ever showed frames by number; else the highest number. A
    /// search for such areas skips all spans below.
    frames_from: AtomicU64,
    /// The number of the group it is in; 0: none.
    group: AtomicU32,
    /// How many callers take leaves out without a change of the space, and have not flushed yet.
    unflushed: AtomicU32,
    /// The number of the last space that was forked from this one, or else of that from which it
    /// was forked; 0: none.
    kin: AtomicU32,
    pub(crate) counters: SpaceCounters,
    arch: PhantomData<A>,
}

crate::sync::names!([A] Space<A>, "space" {
    root, window, opt_out, stack_pages, ever, frames_from, group, unflushed, kin, counters
} + areas + tag);

/// The number of a group of spaces; see [`Mm::new_group`](crate::Groups::create).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(NonZeroU32);

impl GroupId {
    /// The group with this number; `None` for 0.
    #[inline]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// A rare event. A search for its effects skips spaces where it never happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ever {
    /// Pages were moved: a folio may be mapped elsewhere than at its home.
    Moved = 1,
    /// An area was sealed.
    Sealed = 2,
    /// An area was mapped whose contents may be lost.
    Droppable = 4,
    /// An area was watched.
    Watched = 8,
    /// An area was mapped that shows a file of reserved folios.
    #[cfg_attr(not(feature = "files"), allow(dead_code))]
    Reserved = 16,
}

/// A caller takes leaves out of a space and flushes later. A concurrent change that finds them gone
/// cannot rely on that flush, so it must flush, too (Linux: the pending batch of `mm/rmap.c`).
pub(crate) struct Unflushed<'a>(&'a AtomicU32);

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<A: Arch> Space<A> {
    /// A space without areas, over the tables under `root`.
    pub(crate) fn new(root: Pfn, asid: Asid, window: PageSpan) -> Self {
        Self {
            areas: AreaTree::new(),
            root,
            tag: Tag::new(asid),
            window,
            opt_out: AtomicU32::new(0),
            stack_pages: AtomicU64::new(STACK_BYTES >> A::PAGE_SHIFT),
            ever: AtomicU32::new(0),
            frames_from: AtomicU64::new(u64::MAX),
            group: AtomicU32::new(0),
            unflushed: AtomicU32::new(0),
            kin: AtomicU32::new(0),
            counters: SpaceCounters::default(),
            arch: PhantomData,
        }
    }

    /// Announces that the caller takes leaves out without a change of the space. It drops the
    /// returned value after its flush.
    pub(crate) fn taking(&self) -> Unflushed<'_> {
        // A CPU that finds a leaf gone has locked its table after this store.
        self.unflushed.fetch_add(1, Ordering::Relaxed);
        Unflushed(&self.unflushed)
    }

    /// Whether a CPU may still have translations of leaves that were removed from the tables.
    #[inline]
    pub(crate) fn is_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Acquire) > 0
    }

    /// The frame of the top-level table, for the CPU's root register.
    #[inline]
    pub fn root(&self) -> Pfn {
        self.root
    }

    /// The number under which [`AllSpaces::visit_some`](crate::AllSpaces::visit_some) asks for
    /// the space: the low 20 bits of its root's frame, which other spaces may have as well.
    #[inline]
    pub fn number(&self) -> u32 {
        Home::new(self.root, Vpn::new(0)).space
    }

    /// Notes a fork: the likeliest space that maps folios of one of the two is the other.
    pub(crate) fn is_parent_of(&self, child: &Self) {
        // Relaxed: a hint.
        self.kin.store(child.number(), Ordering::Relaxed);
        child.kin.store(self.number(), Ordering::Relaxed);
    }

    /// The number of the space that is the likeliest to map the same folios.
    #[cfg(feature = "swap")]
    pub(crate) fn kin(&self) -> u32 {
        self.kin.load(Ordering::Relaxed)
    }

    /// The tag of its translations. It stays the same while a CPU is in the space.
    #[inline]
    pub fn asid(&self) -> Asid {
        self.tag.asid()
    }

    /// Changes the tag, for an embedder with an allocator of its own. No CPU is in the space; and
    /// each CPU drops the translations that it holds under `asid` before it next enters the space,
    /// and those under the old tag before it uses that for any space again. From now on, flushes
    /// reach only CPUs that [`enter`](Self::enter) after this. A flush under way may still name the
    /// old tag: see [the rules](crate::tags#how-a-tag-changes).
    pub fn set_asid(&self, asid: Asid) {
        self.tag.set(asid);
    }

    /// The pages in which areas without an address are placed.
    #[inline]
    pub fn window(&self) -> PageSpan {
        self.window
    }

    /// Announces that `cpu` is about to use the space: call it before the root register is written.
    /// From now on flushes reach that CPU. For an embedder with tags of its own: the tag is
    /// [`asid`](Self::asid).
    #[inline]
    pub fn enter(&self, cpu: CpuId) {
        self.tag.join(cpu);
    }

    /// As [`enter`](Self::enter), with a tag that `asids` gives; see [`Asids::enter`].
    #[inline]
    pub fn enter_with<const CPUS: usize>(&self, asids: &Asids<CPUS>, cpu: CpuId) -> Entered {
        asids.enter(&self.tag, cpu)
    }

    /// Announces that `cpu` uses no translation of the space any more: it has switched away *and*
    /// flushed the space's tag, or flushes that whenever it joins the space again
    /// ([`Entered::joined`]).
    #[inline]
    pub fn leave(&self, cpu: CpuId) {
        self.tag.leave(cpu);
    }

    /// Announces that `cpu` has switched away from the space, and keeps what it holds under the tag
    /// ([`Asids`]): flushes do not wait for it any more. If one comes before it enters the space
    /// again, [`Entered::joined`] says so, and the CPU drops what it holds then. The CPU itself
    /// calls this, after it has written another root.
    #[inline]
    pub fn step_aside(&self, cpu: CpuId) {
        self.tag.step_aside(cpu);
    }

    /// The process's choice about large folios.
    #[inline]
    pub fn opt_out(&self) -> OptOut {
        OptOut::of_number(self.opt_out.load(Ordering::Relaxed))
    }

    /// Sets the process's choice about large folios.
    pub fn set_opt_out(&self, choice: OptOut) {
        self.opt_out.store(choice as u32, Ordering::Relaxed);
    }

    /// How many pages a stack may have ([`GROWS_DOWN`](super::AreaFlags::GROWS_DOWN)) before a
    /// fault below it fails as elsewhere. At first [`STACK_BYTES`].
    #[inline]
    pub fn stack_pages(&self) -> u64 {
        self.stack_pages.load(Ordering::Relaxed)
    }

    /// Sets how many pages a stack may grow to (`RLIMIT_STACK`). A stack that is larger stays so.
    pub fn set_stack_pages(&self, pages: u64) {
        self.stack_pages.store(pages, Ordering::Relaxed);
    }

    /// Whether this ever happened here, or in a space whose pages and areas this one inherits.
    #[inline]
    pub(crate) fn has(&self, ever: Ever) -> bool {
        self.ever.load(Ordering::Relaxed) & ever as u32 != 0
    }

    /// Notes the event before it happens.
    pub(crate) fn note(&self, ever: Ever) {
        self.ever.fetch_or(ever as u32, Ordering::Relaxed);
    }

    /// Notes all events of `parent`, whose pages and areas this space inherits.
    pub(crate) fn note_all_of(&self, parent: &Self) {
        self.ever.fetch_or(parent.ever.load(Ordering::Relaxed), Ordering::Relaxed);
        self.frames_from.store(parent.frames_from.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether an area in `span` may show frames by number. Only changes of the space ask, and
    /// only they note it.
    #[inline]
    pub(crate) fn may_show_frames(&self, span: PageSpan) -> bool {
        self.frames_from.load(Ordering::Relaxed) < span.end.get()
    }

    /// Notes that an area is about to show frames from `page` on.
    pub(crate) fn note_frames(&self, page: Vpn) {
        let from = self.frames_from.load(Ordering::Relaxed).min(page.get());
        self.frames_from.store(from, Ordering::Relaxed);
    }

    /// The group whose limit it counts for.
    #[inline]
    pub fn group(&self) -> Option<GroupId> {
        GroupId::new(self.group.load(Ordering::Relaxed))
    }

    /// Sets the group whose limit it counts for.
    pub(crate) fn set_group(&self, group: Option<GroupId>) {
        self.group.store(group.map_or(0, GroupId::get), Ordering::Relaxed);
    }

    /// How many folios of each size faults got in this space.
    pub fn counters(&self) -> &SpaceCounters {
        &self.counters
    }

    /// How many areas there are.
    pub fn area_count(&self) -> u64 {
        self.areas.count()
    }

    /// Whether pages that showed a file, or frames by number, were unmapped, replaced or moved
    /// since the last such question: an embedder that keeps a file as long as an area shows it
    /// looks then for files that none shows.
    #[inline]
    pub fn take_hidden(&self) -> bool {
        self.areas.take_hid()
    }

    #[inline]
    pub(crate) fn target(&self) -> Target<'_> {
        Target { tag: Some(&self.tag), root: self.root }
    }

    /// All pages that programs may map.
    pub(crate) fn all() -> PageSpan {
        PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES))
    }

    /// Whether a program may map `span` at all.
    pub(crate) fn may_map(span: PageSpan) -> bool {
        !span.is_empty() && span.end <= Vpn::new(A::USER_PAGES)
    }
}

/// A space, with the hardware, the slots and the counters to work on it. Cheap to make and to copy.
pub struct View<'a, A, H> {
    /// The hardware.
    pub hw: &'a H,
    /// The slots of all frames.
    pub meta: Meta<'a>,
    /// The counters of each CPU.
    pub counters: &'a [Counters],
    /// The space.
    pub space: &'a Space<A>,
}

impl<A, H> Clone for View<'_, A, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, H> Copy for View<'_, A, H> {}

impl<'a, A: Arch, H: Hardware> View<'a, A, H> {
    /// Its page tables.
    #[inline]
    pub fn tables(&self) -> Tables<'a, A, H> {
        Tables::new(self.hw, self.meta, self.counters, self.space.target())
    }

    /// All folios.
    #[inline]
    pub(crate) fn folios(&self) -> Folios<'a> {
        Folios::new(self.meta)
    }

    /// Its areas, for reading.
    #[inline]
    pub fn areas(&self) -> TreeReader<'a, H> {
        self.space.areas.reader(self.hw, self.meta)
    }

    /// A question to ask with the table of `pages` locked: whether their areas, which are all
    /// `such` now, are still the same, and no change holds the pages. `None` if an area is not
    /// `such`.
    pub(crate) fn areas_allow(
        &self,
        pages: PageSpan,
        such: fn(&Area) -> bool,
    ) -> Option<impl FnOnce() -> bool + use<'a, A, H>> {
        let (areas, tree) = (self.areas(), &self.space.areas);
        let (_, seq) = areas.lookup(pages.start);
        let all = areas.overlapping(pages).all(|area| such(&area));
        all.then_some(move || tree.is_current(seq, pages))
    }

    /// The end, at most `end`, of the stretch of pages from `page` on that need no fault for
    /// `access`; `None` when `page` needs one. A page that is mapped can be read.
    pub fn ready_until(&self, page: Vpn, end: Vpn, access: Access) -> Option<Vpn> {
        let locked = self.tables().lock_lowest(page, Level::LAST);
        let (run, upto) = locked.run_in(page, end);
        let What::Leaf { attrs, settled, .. } = run.what else { return None };
        let is_written = settled && attrs.contains(Attrs::WRITE) && !attrs.contains(Attrs::COW);
        (access != Access::Write || is_written).then_some(upto)
    }
}
