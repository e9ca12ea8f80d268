//! One address space, and the view through which it is worked on.

use core::marker::PhantomData;

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{Access, Asid, CpuId, CpuSet, PageSpan, Pfn, Vpn};

use super::tree::{AreaTree, TreeReader};
use super::{GroupId, OptOut};
use crate::limits::STACK_BYTES;
use crate::phys::Meta;
use crate::stats::{Counters, SpaceCounters};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::table::{Tables, Target, What};

/// An address space: its areas, the root of its page tables, and who runs in it.
///
/// The embedder owns the value and gives it back to
/// [`Mm::destroy`](crate::mm::Mm::destroy); dropping it instead leaks its memory.
#[must_use = "a space that is dropped leaks its memory; destroy it"]
pub struct Space<A> {
    pub(crate) areas: AreaTree,
    root: Pfn,
    asid: Asid,
    window: PageSpan,
    cpus: CpuSet,
    opt_out: AtomicU32,
    stack_pages: AtomicU64,
    /// What has ever been done here: bits of [`Ever`].
    ever: AtomicU32,
    /// The number of the group it is in; 0: none.
    group: AtomicU32,
    /// How many take leaves out without a change of the space, and have not flushed yet.
    unflushed: AtomicU32,
    pub(crate) counters: SpaceCounters,
    arch: PhantomData<A>,
}

/// What is rare, so that whoever has to look for it looks only where it was ever done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ever {
    /// Pages were moved: a folio may be mapped elsewhere than at its home.
    Moved = 1,
    /// An area was sealed.
    Sealed = 2,
    /// An area was mapped whose content may be lost.
    Droppable = 4,
}

/// Somebody takes leaves out of a space, and flushes later. Who changes the space meanwhile, and
/// finds them gone, would rely on what is not true yet: so he flushes as well (Linux: the pending
/// batch of `mm/rmap.c`).
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
            asid,
            window,
            cpus: CpuSet::new(),
            opt_out: AtomicU32::new(0),
            stack_pages: AtomicU64::new(STACK_BYTES >> A::PAGE_SHIFT),
            ever: AtomicU32::new(0),
            group: AtomicU32::new(0),
            unflushed: AtomicU32::new(0),
            counters: SpaceCounters::default(),
            arch: PhantomData,
        }
    }

    /// From now on leaves are taken out without a change of the space, until the value that is
    /// returned is dropped: after the flush.
    pub(crate) fn taking(&self) -> Unflushed<'_> {
        // The lock of a table comes between this and whoever finds a leaf gone.
        self.unflushed.fetch_add(1, Ordering::Relaxed);
        Unflushed(&self.unflushed)
    }

    /// Whether a CPU may still have translations of leaves that are gone from the tables.
    #[inline]
    pub(crate) fn is_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Acquire) > 0
    }

    /// The frame of the top-level table, for the CPU's root register.
    #[inline]
    pub fn root(&self) -> Pfn {
        self.root
    }

    /// The tag of its translations.
    #[inline]
    pub fn asid(&self) -> Asid {
        self.asid
    }

    /// The pages in which areas are placed where the program does not say.
    #[inline]
    pub fn window(&self) -> PageSpan {
        self.window
    }

    /// Tells that `cpu` is about to use the space: call it before the root register is written.
    /// From now on flushes reach that CPU.
    #[inline]
    pub fn enter(&self, cpu: CpuId) {
        self.cpus.insert(cpu);
    }

    /// Tells that `cpu` holds no translation of the space any more: it has switched away *and*
    /// flushed the space's tag.
    #[inline]
    pub fn leave(&self, cpu: CpuId) {
        self.cpus.remove(cpu);
    }

    /// What the process chose about large folios.
    #[inline]
    pub fn opt_out(&self) -> OptOut {
        OptOut::of_number(self.opt_out.load(Ordering::Relaxed))
    }

    /// Sets what the process chose about large folios.
    pub fn set_opt_out(&self, choice: OptOut) {
        self.opt_out.store(choice as u32, Ordering::Relaxed);
    }

    /// How many pages a stack may have ([`GROWS_DOWN`](super::AreaFlags::GROWS_DOWN)) before a
    /// fault below it is a fault like any other. At first [`STACK_BYTES`].
    #[inline]
    pub fn stack_pages(&self) -> u64 {
        self.stack_pages.load(Ordering::Relaxed)
    }

    /// Sets how many pages a stack may grow to (`RLIMIT_STACK`). Those that are larger stay so.
    pub fn set_stack_pages(&self, pages: u64) {
        self.stack_pages.store(pages, Ordering::Relaxed);
    }

    /// Whether this was ever done here, or in a space whose pages and areas this one inherits.
    #[inline]
    pub(crate) fn has(&self, ever: Ever) -> bool {
        self.ever.load(Ordering::Relaxed) & ever as u32 != 0
    }

    /// Notes that it is done, before it is.
    pub(crate) fn note(&self, ever: Ever) {
        self.ever.fetch_or(ever as u32, Ordering::Relaxed);
    }

    /// Notes all that was ever done in `parent`, whose pages and areas this space inherits.
    pub(crate) fn note_all_of(&self, parent: &Self) {
        self.ever.fetch_or(parent.ever.load(Ordering::Relaxed), Ordering::Relaxed);
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

    /// What faults in this space got, by size.
    pub fn counters(&self) -> &SpaceCounters {
        &self.counters
    }

    /// How many areas there are.
    pub fn area_count(&self) -> u64 {
        self.areas.count()
    }

    #[inline]
    pub(crate) fn target(&self) -> Target<'_> {
        Target { asid: self.asid, root: self.root, cpus: &self.cpus }
    }

    /// Whether `span` lies in what a program may map at all.
    pub(crate) fn may_map(span: PageSpan) -> bool {
        !span.is_empty() && span.end <= Vpn::new(A::USER_PAGES)
    }
}

/// A space with what is needed to work on it. Cheap to make and to copy.
pub struct View<'a, A, H> {
    /// The effects.
    pub hw: &'a H,
    /// The slots of all frames.
    pub meta: Meta<'a>,
    /// Where each CPU counts what it does.
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

    /// Its areas, to read.
    #[inline]
    pub fn areas(&self) -> TreeReader<'a, H> {
        self.space.areas.reader(self.hw, self.meta)
    }

    /// Where a stretch of pages that begins at `page` and needs no fault for `access` ends, `end`
    /// at the latest; `None` when `page` needs one. To be read, a page need only be mapped.
    pub fn ready_until(&self, page: Vpn, end: Vpn, access: Access) -> Option<Vpn> {
        let locked = self.tables().lock_lowest(page, Level::LAST);
        let (run, upto) = locked.run_in(page, end);
        let What::Leaf { attrs, settled, .. } = run.what else { return None };
        let is_written = settled && attrs.contains(Attrs::WRITE) && !attrs.contains(Attrs::COW);
        (access != Access::Write || is_written).then_some(upto)
    }
}
