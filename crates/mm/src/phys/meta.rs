//! One 32-byte slot for each frame, and the capabilities minted from it.
//!
//! ```text
//!          0        4        8                16       20       24               32
//!          +--------+--------+----------------+--------+--------+----------------+
//!          | state  | lock   | counts         | links[0] [1]    | owner          |
//!          +--------+--------+----------------+--------+--------+----------------+
//! free     Free|ord          -                  prev     next     -
//! folio    Folio|ord|flags   refs, pins, mapped home              which file's, from which page
//! table    Table|level       present, blocks    root     -        first page it translates
//! node     Node              -                  next spare -      -
//! index    Index|level       used places        -        -       which file's, from which page
//! cluster  Swap|order|list   used slots         list prev, next  first slot of its device
//! stray    Stray             frames, at its end run before -      -
//! other    None              -                  -        -        -
//! ```
//!
//! * `state` is valid for the *first* frame of a block only; the slots behind it are `None`. So one
//!   write takes or frees a block of any order, and a lookup finds the head of the block that holds
//!   a frame among the frame's aligned ancestors, with at most [`ORDERS`] loads and mostly one.
//! * `lock` belongs to the frame in every state. So a walker may follow a stale entry to a frame,
//!   lock it, read which block it is, and unlock it again: *lock first, then read*.
//! * In the slot of a group's first frame, `lock` also says which frames the group is for (see
//!   `group`): bit 0 is the lock, bits 1 to 3 are the [`Mobility`].
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ops::Deref;

use quire_hw::{FrameRun, TableFrame};
use quire_units::{FrameSpan, Pfn};

use super::mobility::Mobility;
use crate::limits::ORDERS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin_loop};

/// The use of a block, recorded in the slot of its first frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// No recorded first frame: inside a block, in a CPU's cache, or in a [`FrameRun`].
    None = 0,
    /// The first frame of a free block, in its zone's list.
    Free = 1,
    /// The first frame of a folio.
    Folio = 2,
    /// A page table.
    Table = 3,
    /// The first of a run of frames taken out of use that waits for the flush.
    Stray = 4,
    /// A node of an area tree.
    Node = 5,
    /// A node of a file's index.
    Index = 6,
    /// A node of the tree of a swap device's slots.
    Swap = 7,
    /// No RAM that was added: in a hole, or kept by the embedder. It never was the library's.
    Outside = 8,
}

/// Bit 0 of a slot's lock word: it is locked.
const LOCKED: u32 = 1;

/// The bit of a slot's lock word at which the mobility of a group begins.
const MOBILITY_AT: u32 = 1;

impl Kind {
    /// Whether the frame holds the library's own words.
    #[inline]
    const fn has_words(self) -> bool {
        matches!(self, Kind::Table | Kind::Node | Kind::Index | Kind::Swap)
    }
}

/// The `state` word: kind in bits 0..4, order or level in bits 4..9, flags above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State(u32);

impl State {
    /// No record.
    pub(crate) const NONE: State = State::new(Kind::None, 0);

    /// No RAM that was added.
    pub(crate) const OUTSIDE: State = State::new(Kind::Outside, 0);

    /// The same of a group's first frame, where others of the group were added.
    pub(super) const BEFORE_ADDED: State = State::new(Kind::Outside, 1);

    /// A block of `kind`, with its order (or a table's level).
    #[inline]
    pub(crate) const fn new(kind: Kind, order: u8) -> Self {
        Self(kind as u32 | (order as u32) << 4)
    }

    /// The kind of the block.
    #[inline]
    pub const fn kind(self) -> Kind {
        match self.0 & 15 {
            1 => Kind::Free,
            2 => Kind::Folio,
            3 => Kind::Table,
            4 => Kind::Stray,
            5 => Kind::Node,
            6 => Kind::Index,
            7 => Kind::Swap,
            8 => Kind::Outside,
            _ => Kind::None,
        }
    }

    /// The order of a free block or folio, the height of a table's level.
    #[inline]
    pub const fn order(self) -> u8 {
        (self.0 >> 4 & 31) as u8
    }

    /// Bits 9 and up; the kind defines what they mean.
    #[inline]
    pub(crate) const fn flags(self) -> u32 {
        self.0 >> 9
    }

    /// The same state with other flags.
    #[inline]
    pub(crate) const fn with_flags(self, flags: u32) -> Self {
        Self(self.0 & 0x1ff | flags << 9)
    }
}

/// The metadata of one frame; see the drawing above.
///
/// Memory that is all zero is a valid slot, the same as [`Slot::empty`]: an embedder whose pages
/// are zeroed need not write them.
#[repr(C, align(32))]
#[derive(Default)]
pub struct Slot {
    state: AtomicU32,
    lock: AtomicU32,
    /// Folio: references, pins, and in the high half mapped pages. Table: present entries, and in
    /// the high half contiguous blocks.
    pub(crate) counts: AtomicU64,
    pub(crate) links: [AtomicU32; 2],
    pub(crate) owner: AtomicU64,
}

crate::sync::names!([] Slot, "slot" { state, lock, counts, links, owner });

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(core::mem::size_of::<Slot>() == 32, "metadata is 32 bytes a frame (E1)");
    // No byte of a slot is outside of these fields: zeroed memory is a slot without a record.
    let Slot { state, lock, counts, links: [one, other], owner } = Slot::empty();
    assert!(state.into_inner() == 0 && lock.into_inner() == 0 && counts.into_inner() == 0);
    assert!(one.into_inner() == 0 && other.into_inner() == 0 && owner.into_inner() == 0);
};

impl Slot {
    /// A slot without a record.
    #[cfg(not(loom))]
    pub const fn empty() -> Self {
        Slot {
            state: AtomicU32::new(0),
            lock: AtomicU32::new(0),
            counts: AtomicU64::new(0),
            links: [AtomicU32::new(0), AtomicU32::new(0)],
            owner: AtomicU64::new(0),
        }
    }

    /// The recorded state of the frame.
    #[inline]
    pub fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Records `state`, after all earlier writes to the slot.
    #[inline]
    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state.0, Ordering::Release);
    }

    /// The frames of the folio at `head`, this slot's frame, which has no hold any more.
    #[inline]
    fn folio(&self, head: Pfn) -> Ownerless {
        let state = self.state();
        debug_assert_eq!(state.kind(), Kind::Folio);
        Ownerless { span: FrameSpan::new(head, 1 << state.order()), zeroed: false }
    }
}

/// The slots of all frames, and the only place that mints capabilities.
#[derive(Clone, Copy)]
pub struct Meta<'m> {
    first: Pfn,
    slots: &'m [Slot],
}

impl<'m> Meta<'m> {
    /// Slots for the frames from `first` on.
    pub(crate) fn new(first: Pfn, slots: &'m [Slot]) -> Self {
        Self { first, slots }
    }

    /// The frames that have a slot.
    #[inline]
    pub fn span(&self) -> FrameSpan {
        FrameSpan::new(self.first, self.slots.len() as u64)
    }

    /// The slot of `frame`; `None` for a frame that is not RAM of this system.
    #[inline]
    pub fn slot(&self, frame: Pfn) -> Option<&'m Slot> {
        self.slots.get(frame.get().wrapping_sub(self.first.get()) as usize)
    }

    /// All slots, for a count of the lines that CPUs share.
    #[cfg(feature = "lines")]
    pub fn slots(&self) -> &'m [Slot] {
        self.slots
    }

    /// The slots of all frames from `frame` on.
    #[inline]
    pub(crate) fn slots_from(&self, frame: Pfn) -> &'m [Slot] {
        let from = frame.get().wrapping_sub(self.first.get()) as usize;
        self.slots.get(from..).unwrap_or_default()
    }

    /// The number by which one slot names `frame` to another.
    #[inline]
    pub(crate) fn index(&self, frame: Pfn) -> u32 {
        frame.offset_from(self.first) as u32
    }

    /// The frame a slot named; the inverse of [`index`](Self::index).
    #[inline]
    pub(crate) fn frame(&self, index: u32) -> Pfn {
        self.first.add(index as u64)
    }

    /// The first frame and the state of the recorded block that holds `frame`. The caller must keep
    /// the block from changing meanwhile: it holds a reference or a lock.
    #[inline]
    pub fn head(&self, frame: Pfn) -> Option<(Pfn, State)> {
        let mut at = frame;
        for order in 0..ORDERS as u8 {
            let aligned = frame.align_down(1 << order);
            if order > 0 && aligned == at {
                continue;
            }
            at = aligned;
            let state = self.slot(at)?.state();
            if state.kind() != Kind::None {
                let covers = at.add(1 << state.order()) > frame;
                let sized = matches!(state.kind(), Kind::Free | Kind::Folio);
                return (at == frame || sized && covers).then_some((at, state));
            }
        }
        None
    }

    /// The right to frames without an owner.
    #[inline]
    pub(crate) fn mint(&self, Ownerless { span, zeroed }: Ownerless) -> FrameRun {
        debug_assert!(self.span().covers(span));
        // SAFETY: 1. an `Ownerless` is made where frames have just lost their last owner, once,
        // and is consumed here; see docs/safety/frames.md. 2. `Meta` spans RAM that the embedder
        // handed over. 3. only runs that carried `zeroed`, and tables without an entry, set it.
        unsafe { FrameRun::mint(span, zeroed) }
    }

    /// Takes `holds`, in the unit of `counts`, from the folio at `head`. A witness, if no hold is
    /// left: the folio is none any more.
    #[inline]
    pub(crate) fn drop_holds(&self, head: Pfn, holds: u64) -> Option<Ownerless> {
        let slot = self.at(head);
        let before = slot.counts.fetch_sub(holds, Ordering::Release);
        debug_assert!(before >= holds);
        if before != holds {
            return None;
        }
        crate::sync::fence(Ordering::Acquire);
        let gone = slot.folio(head);
        slot.set_state(State::NONE);
        Some(gone)
    }

    /// The same if these are the only holds; otherwise nothing changes.
    #[inline]
    pub(crate) fn drop_only_holds(&self, head: Pfn, holds: u64) -> Option<Ownerless> {
        let gone = self.take_only_holds(head, holds)?;
        self.at(head).set_state(State::NONE);
        Some(gone)
    }

    /// The same, but the slot says that it is a folio until the caller writes it.
    #[inline]
    pub(crate) fn take_only_holds(&self, head: Pfn, holds: u64) -> Option<Ownerless> {
        let slot = self.at(head);
        // To look costs less than an exchange that fails.
        if slot.counts.load(Ordering::Relaxed) != holds {
            return None;
        }
        slot.counts.compare_exchange(holds, 0, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(slot.folio(head))
    }

    /// Ends a part of a folio of which no page is mapped: the caller divides the folio, and has the
    /// lock of the one table that maps it.
    pub(crate) fn end_part(&self, part: FrameSpan) -> Ownerless {
        self.at(part.start).set_state(State::NONE);
        Ownerless { span: part, zeroed: false }
    }

    /// The slot of a frame that is known to be on record.
    #[inline]
    pub(crate) fn at(&self, frame: Pfn) -> &'m Slot {
        &self.slots[frame.offset_from(self.first) as usize]
    }

    /// Records the one frame of `run`, whose words are all zero, as the library's own. The caller
    /// writes the other fields (`owner`, `links[0]`) before.
    #[inline]
    pub(crate) fn adopt(&self, run: FrameRun, kind: Kind, level: u8) -> Pfn {
        debug_assert!(run.count() == 1 && kind.has_words());
        let slot = self.at(run.start());
        slot.counts.store(0, Ordering::Relaxed);
        slot.set_state(State::new(kind, level));
        run.start()
    }

    /// The inverse of [`adopt`](Self::adopt), for a frame that its owner has unlinked. Only CPUs
    /// that read may still be led to it.
    #[inline]
    pub(crate) fn disown(&self, node: WordsLock<'_>) -> FrameRun {
        node.slot().set_state(State::NONE);
        self.mint(Ownerless { span: FrameSpan::new(node.frame(), 1), zeroed: false })
    }

    /// Makes up a right, which a test knows to be true.
    #[cfg(test)]
    pub(crate) fn forge(&self, span: FrameSpan, zeroed: bool) -> FrameRun {
        self.mint(Ownerless { span, zeroed })
    }

    /// The slot number `index`, which came from [`index`](Self::index).
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub(crate) fn by_index(&self, index: u32) -> &'m Slot {
        &self.slots[index as usize]
    }

    /// The mobility of the group that begins at `frame`. It changes under the lock of its zone.
    #[inline]
    pub(super) fn mobility(&self, frame: Pfn) -> Mobility {
        Mobility::of(self.at(frame).lock.load(Ordering::Relaxed) >> MOBILITY_AT)
    }

    /// Records the mobility of the group that begins at `frame`; `false` while another CPU has
    /// locked that frame. The caller has the lock of the zone, so it may not wait for a slot's.
    pub(super) fn try_set_mobility(&self, frame: Pfn, mobility: Mobility) -> bool {
        let (lock, new) = (&self.at(frame).lock, (mobility.index() as u32) << MOBILITY_AT);
        let old = lock.load(Ordering::Relaxed);
        let is_idle = old & LOCKED == 0;
        let swap = || lock.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        is_idle && (old == new || swap().is_ok())
    }

    /// Locks the frame in any state, spinning while another CPU holds the lock.
    #[inline]
    pub(crate) fn lock(&self, frame: Pfn) -> Option<FrameLock<'m>> {
        let slot = self.slot(frame)?;
        let (mut idle, taken, missed) = (0, Ordering::Acquire, Ordering::Relaxed);
        while slot.lock.compare_exchange_weak(idle, idle | LOCKED, taken, missed).is_err() {
            idle = slot.lock.load(Ordering::Relaxed);
            while idle & LOCKED != 0 {
                spin_loop();
                idle = slot.lock.load(Ordering::Relaxed);
            }
        }
        // SAFETY: the frame's lock is held until the guard drops; `FrameLock::table` lends the
        // capability only when the slot records, under the lock, that the frame holds words of the
        // library.
        let table = unsafe { TableFrame::mint(frame) };
        Some(FrameLock { slot, table })
    }
}

/// Proof that frames have just lost their last owner: [`Meta::mint`] demands it. No code outside of
/// `phys` can make one up.
#[must_use = "dropping it leaks the frames"]
#[derive(Debug)]
pub(crate) struct Ownerless {
    pub(super) span: FrameSpan,
    pub(super) zeroed: bool,
}

/// A locked frame. Its kind does not change while the guard lives.
#[must_use]
pub(crate) struct FrameLock<'m> {
    slot: &'m Slot,
    table: TableFrame,
}

impl<'m> FrameLock<'m> {
    /// The frame.
    #[inline]
    pub(crate) fn frame(&self) -> Pfn {
        self.table.frame()
    }

    /// Lends the right to write the frames of the folio that begins here, while it is locked.
    pub(crate) fn lend(&self) -> Lent<'_> {
        let state = self.slot.state();
        debug_assert_eq!(state.kind(), Kind::Folio);
        let span = FrameSpan::new(self.frame(), 1 << state.order());
        // SAFETY: 1. the slot's lock keeps others from lending the same, the value ends before the
        // lock is released, and nothing moves the run out of it; 2. the folio lies in RAM.
        Lent { run: unsafe { FrameRun::mint(span, false) }, lock: PhantomData }
    }

    /// The right to write the frame's words, if it is a page table or a node.
    #[inline]
    pub(crate) fn table(&self) -> Option<&TableFrame> {
        self.slot.state().kind().has_words().then_some(&self.table)
    }

    /// The lock of a frame that is a table of this level, and stays so while the lock is held; any
    /// other frame is unlocked again.
    #[inline]
    pub(crate) fn table_of(self, level: u8) -> Option<WordsLock<'m>> {
        // The kind and the level are all of a table's state.
        (self.slot.state() == State::new(Kind::Table, level)).then_some(WordsLock(self))
    }

    /// The lock of a frame that is the library's own, and stays so while the lock is held; any
    /// other frame is unlocked again.
    #[inline]
    pub(crate) fn words(self) -> Option<WordsLock<'m>> {
        self.table().is_some().then_some(WordsLock(self))
    }
}

/// The right to the frames of a locked folio, lent.
pub(crate) struct Lent<'a> {
    run: FrameRun,
    lock: PhantomData<&'a ()>,
}

impl Deref for Lent<'_> {
    type Target = FrameRun;

    fn deref(&self) -> &FrameRun {
        &self.run
    }
}

/// A locked page table or node.
#[must_use]
pub(crate) struct WordsLock<'m>(FrameLock<'m>);

impl<'m> WordsLock<'m> {
    /// The frame.
    #[inline]
    pub(crate) fn frame(&self) -> Pfn {
        self.0.frame()
    }

    /// Its slot.
    #[inline]
    pub(crate) fn slot(&self) -> &'m Slot {
        self.0.slot
    }

    /// The right to write its words.
    #[inline]
    pub(crate) fn words(&self) -> &TableFrame {
        &self.0.table
    }
}

impl Drop for FrameLock<'_> {
    #[inline]
    fn drop(&mut self) {
        let idle = self.slot.lock.load(Ordering::Relaxed) & !LOCKED;
        self.slot.lock.store(idle, Ordering::Release);
    }
}
