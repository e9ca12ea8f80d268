//! Programs' address spaces, and the one that each CPU is in.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use quire::arch::Arch;
use quire::cache::Reads;
use quire::hw::{FrameRun, Memory as _, Reuse};
use quire::space::{AreaFlags, Space};
use quire::table::Sight;
use quire::units::{Access, Asid, Order, PageSpan, Vpn};
use quire::{Error, Need, Pinned, Populated, Resolved, Stop};
use quire_linux::Errno;
use spin::Once;
use spin::mutex::SpinMutex;

use super::policy::Policies;
use super::shared::{self, Objects};
use super::tags::TAGS;
use super::watchers::Watchers;
use super::{PAGE, PAGE_SHIFT, mm};
use crate::isa::{self, Format, MAX_CPUS};
use crate::task::compact;

/// Where areas are placed that may be anywhere: above the lowest TiB, below the stack's room.
const WINDOW: PageSpan =
    PageSpan { start: Vpn::new(0x10_0000_0000 >> 12), end: Vpn::new(PROGRAM_END >> 12) };

/// All that a program may map.
pub(crate) const ALL: PageSpan =
    PageSpan { start: Vpn::new(0), end: Vpn::new(isa::USER_END / PAGE) };

/// The stack's room at the upper end, 16 GiB: the largest stack a program may ask for, and a gap.
const STACK_ROOM: u64 = 16 << 30;

/// How often a fault is tried again after reclaim, when another CPU took the memory each time: then
/// there is none.
const TRIES: usize = 16;

/// How many pages are brought in at a time where a group has no room for all.
const PIECE: u64 = 16;

/// Where that room begins: programs and their files end there.
pub(crate) const PROGRAM_END: u64 = isa::USER_END - STACK_ROOM;

/// A new space's tag: it gets its own when a CPU enters it.
const UNTAGGED: Asid = Asid(0);

/// The program's heap (`brk`): bytes, half-open.
#[derive(Clone, Copy, Default)]
pub(crate) struct Break {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// An address space, which ends with its last owner.
pub(crate) struct Memory {
    /// There from the end of [`new`](Self::new) or [`fork`](Self::fork) on.
    space: Option<Space<Format>>,
    /// The program's heap.
    pub(crate) heap: SpinMutex<Break>,
    /// New mappings are locked (`MCL_FUTURE`).
    locks_future: AtomicBool,
    /// Its restrictions, as bits of `PR_SET_MDWE`.
    guards: AtomicU8,
    /// It may have guards.
    has_guards: AtomicBool,
    /// No fewer areas than it has.
    pub(super) areas_most: AtomicU64,
    /// The expedited barriers that it has registered for, as `membarrier` numbers these.
    pub(crate) barriers: AtomicU32,
    /// Where memory is to come from, for pages that have an answer of their own (`mbind`).
    pub(crate) policies: Policies,
    /// The files that it may show.
    pub(super) shared: Objects,
    /// The watchers of its areas.
    pub(super) watchers: Watchers,
    /// Its number among all spaces.
    number: u64,
}

impl Memory {
    /// A space without areas.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>, Errno> {
        Self::make(Break::default(), Objects::default(), |place| {
            mm().space_in(place, root()?, UNTAGGED, WINDOW).map(drop).map_err(errno)
        })
    }

    /// A copy of this one, all of whose memory is shared until it is written.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn fork(&self) -> Result<Arc<Self>, Errno> {
        let heap = *self.heap.lock();
        let (_until_known, shared) = self.shared.inherit();
        let shared = shared?;
        let child = Self::make(heap, shared, |place| {
            mm().fork_in(place, self.space(), root()?, UNTAGGED).map(drop).map_err(errno)
        })?;
        if self.has_guards() {
            child.set_has_guards();
        }
        child.policies.inherit(&self.policies)?;
        Ok(child)
    }

    /// Lets `begin` make the space where it stays: it is too large for the stack.
    fn make(
        heap: Break,
        objects: Objects,
        begin: impl FnOnce(&mut Option<Space<Format>>) -> Result<(), Errno>,
    ) -> Result<Arc<Self>, Errno> {
        let number = shared::new_number();
        let mut memory = Arc::new(Self {
            space: None,
            heap: SpinMutex::new(heap),
            locks_future: AtomicBool::new(false),
            guards: AtomicU8::new(0),
            has_guards: AtomicBool::new(false),
            areas_most: AtomicU64::new(u64::MAX / 2),
            barriers: AtomicU32::new(0),
            policies: Policies::default(),
            shared: objects,
            watchers: Watchers::default(),
            number,
        });
        Arc::get_mut(&mut memory).map_or(Err(Errno::ENOMEM), |own| begin(&mut own.space))?;
        shared::register(number, &memory);
        Ok(memory)
    }

    /// Whether new mappings are locked.
    pub(crate) fn locks_future(&self) -> bool {
        self.locks_future.load(Ordering::Relaxed)
    }

    /// Sets whether new mappings are locked.
    pub(crate) fn set_locks_future(&self, locks: bool) {
        self.locks_future.store(locks, Ordering::Relaxed);
    }

    /// Its restrictions, as bits of `PR_SET_MDWE`.
    pub(crate) fn guards(&self) -> u8 {
        self.guards.load(Ordering::Relaxed)
    }

    /// Adds restrictions.
    pub(crate) fn set_guards(&self, guards: u8) {
        self.guards.store(guards, Ordering::Relaxed);
    }

    /// Whether it may have guards.
    pub(crate) fn has_guards(&self) -> bool {
        self.has_guards.load(Ordering::Relaxed)
    }

    /// Notes that it may have guards, from now on, and its children as well.
    pub(crate) fn set_has_guards(&self) {
        self.has_guards.store(true, Ordering::Relaxed);
    }

    /// The pages that its tables show.
    pub(crate) fn resident_pages(&self) -> u64 {
        let mut pages = 0;
        mm().spaces().runs(self.space(), ALL, &mut |seen| {
            if matches!(seen.what, Sight::Leaf { .. }) {
                pages += seen.pages.count();
            }
        });
        pages
    }

    /// Its number among all spaces; no other has it later.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The library's space.
    #[inline]
    pub(crate) fn space(&self) -> &Space<Format> {
        self.space.as_ref().expect("it was made before any other code saw it")
    }
}

/// The access to memory of another space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// As the program reads.
    Read,
    /// As the program writes.
    Write,
    /// A write that the program's own rights do not allow, as debuggers do: the program gets a
    /// private copy.
    Change,
}

impl Memory {
    /// Whether other spaces may see writes at `address`.
    pub(crate) fn is_shared(&self, address: u64) -> bool {
        let page = Vpn::new(address / PAGE);
        let mut areas = mm().spaces().areas(self.space(), PageSpan::new(page, page.add(1)));
        areas.next().is_some_and(|area| area.flags.contains(AreaFlags::SHARED))
    }

    /// Brings in the missing pages of `span`, and makes it ready for `access`. Where its group has
    /// no room, pages come in pieces: the first may leave again for the next.
    ///
    /// # Errors
    /// See [`Mm::populate`](quire::Mm::populate).
    pub(crate) fn populate(&self, span: PageSpan, access: Access) -> Result<(), Stop> {
        match self.bring(span, access) {
            Err(Stop::Refuse(Error::OverLimit(_))) => {}
            other => return other.map(drop),
        }
        let mut at = span.start;
        while at < span.end {
            let piece = PageSpan::new(at, at.add(PIECE).min(span.end));
            self.populate_piece(piece, access)?;
            at = piece.end;
        }
        Ok(())
    }

    fn populate_piece(&self, piece: PageSpan, access: Access) -> Result<(), Stop> {
        let mut done = self.bring(piece, access);
        for _ in 0..TRIES {
            let Err(Stop::Refuse(Error::OverLimit(group))) = done else { break };
            if !super::relieve(group) {
                break;
            }
            done = self.bring(piece, access);
        }
        done.map(drop)
    }

    fn bring(&self, span: PageSpan, access: Access) -> Result<Populated, Stop> {
        loop {
            let done = match access {
                Access::Write => mm().populate_written(self.space(), span),
                _ => mm().populate(self.space(), span),
            };
            match done {
                Err(Stop::Need(Need::Compact(order))) => compact::for_fault(order),
                other => return other,
            }
        }
    }

    /// Pins a page. Brings it in first, from a disk if need be, and waits for that, as copies do.
    fn pin(&self, page: Vpn, how: Reach) -> Result<Pinned, Stop> {
        loop {
            let pinned = match how {
                Reach::Read => mm().pin_read(self.space(), page),
                Reach::Write => mm().pin(self.space(), page, Access::Write),
                Reach::Change => mm().pin_change(self.space(), page),
            };
            match pinned {
                Err(Stop::Need(Need::Compact(order))) => compact::for_fault(order),
                Err(Stop::Need(need)) => {
                    if !FETCH.get().is_some_and(|fetch| fetch(need)) {
                        return Err(need.into());
                    }
                }
                Err(Stop::Refuse(Error::NoMemory(_))) if super::shrink() => {}
                Err(Stop::Refuse(Error::OverLimit(group))) if super::lend(group) => {}
                other => return other,
            }
            core::hint::spin_loop();
        }
    }

    /// The physical address of `address`, which is made present for that.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(crate) fn physical(&self, address: u64) -> Result<u64, Errno> {
        let page = Vpn::new(address / PAGE);
        let pinned = self.pin(page, Reach::Read).map_err(|_| Errno::EFAULT)?;
        let frame = pinned.frame();
        mm().unpin(pinned);
        Ok((frame.get() << PAGE_SHIFT) + address % PAGE)
    }

    /// Reads or writes memory of this space, whichever space this CPU is in; how many bytes were
    /// moved before a page could not be brought in.
    pub(crate) fn reach(&self, address: u64, bytes: &mut [u8], how: Reach) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let Some(at) = address.checked_add(done as u64).filter(|at| *at < isa::USER_END) else {
                break;
            };
            let piece = ((PAGE - at % PAGE) as usize).min(bytes.len() - done);
            let Ok(pinned) = self.pin(Vpn::new(at / PAGE), how) else { break };
            let memory = mm().hardware().address(pinned.frame());
            let own = bytes[done..].as_mut_ptr();
            // SAFETY: the page is pinned: its frame is not freed meanwhile; the program may write
            // it at the same time, and the bytes are only bytes to us. The piece ends within the
            // page and within `bytes`.
            unsafe {
                let there = memory.add((at % PAGE) as usize);
                match how {
                    Reach::Read => own.copy_from_nonoverlapping(there, piece),
                    _ => there.copy_from_nonoverlapping(own, piece),
                }
            }
            mm().unpin(pinned);
            done += piece;
        }
        done
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let root = self.space.as_ref().map(Space::number);
        mm().destroy_in(&mut self.space);
        shared::forget(root, self.number);
    }
}

/// Begins to read a page of a disk that is missing; whether it may be there later.
static FETCH: Once<fn(Need) -> bool> = Once::new();

/// Sets the function that reads pages of a disk; rooms to the right have it.
pub(crate) fn set_fetch(how: fn(Need) -> bool) {
    FETCH.call_once(|| how);
}

/// A root table: zeroes, and the kernel's entries where its half is under the same root.
fn root() -> Result<FrameRun, Errno> {
    let board = mm().hardware();
    let run = mm().phys().alloc(Order::ZERO).ok_or(Errno::ENOMEM)?;
    board.clear(&run, 0..1, Reuse::Soon);
    let words = board.address(run.start()).cast::<u64>();
    for (at, word) in isa::root_template() {
        // SAFETY: the frame was just taken and is ours; the place is within it.
        unsafe { words.add(at).write(word) };
    }
    Ok(run.dirtied())
}

/// The errno for an error of the library.
pub(crate) fn errno(why: impl Into<Stop>) -> Errno {
    Errno::of_number(why.into().errno().0 as u16)
}

/// The space a CPU is in. Only that CPU touches its own.
struct Here(UnsafeCell<Option<Arc<Memory>>>);

// SAFETY: each CPU touches its own element only, and never in an interrupt handler.
unsafe impl Sync for Here {}

static HERE: [Here; MAX_CPUS] = [const { Here(UnsafeCell::new(None)) }; MAX_CPUS];

/// Puts this CPU into `memory`, or into none. The space that it leaves may be dropped by that.
pub(crate) fn switch(memory: Option<&Arc<Memory>>) {
    let cpu = isa::cpu();
    // SAFETY: this CPU's own element, and no reference to it is alive: `current` clones, and the
    // owner of an `Own` does not come here.
    let here = unsafe { &mut *HERE[cpu.index()].0.get() };
    if here.as_ref().map(Arc::as_ptr) == memory.map(Arc::as_ptr) {
        return;
    }
    match memory {
        Some(memory) => {
            let entered = memory.space().enter_with(&TAGS, cpu);
            isa::enter(memory.space().root(), entered);
        }
        None => isa::leave(TAGS.are_used()),
    }
    // The space that is left ends after the root was changed, if it ends here.
    let left = core::mem::replace(here, memory.cloned());
    match &left {
        Some(left) if isa::KEEPS && TAGS.are_used() => left.space().step_aside(cpu),
        Some(left) => left.space().leave(cpu),
        None => {}
    }
}

/// The space this CPU is in.
pub(crate) fn current() -> Option<Arc<Memory>> {
    // SAFETY: this CPU's own element, which `switch` alone changes, and not meanwhile.
    unsafe { (*HERE[isa::cpu().index()].0.get()).clone() }
}

/// The space this CPU is in, for the length of a call that stays in it: nothing is counted.
///
/// Its owner neither switches, as only `exec` and the end of a thread do, nor keeps it.
pub(crate) struct Own(NonNull<Memory>);

impl Own {
    /// The space this CPU is in.
    #[inline]
    pub(crate) fn get() -> Option<Self> {
        // SAFETY: as in `current`.
        let here = unsafe { (*HERE[isa::cpu().index()].0.get()).as_deref() };
        here.map(|memory| Self(NonNull::from(memory)))
    }
}

impl Deref for Own {
    type Target = Memory;

    #[inline]
    fn deref(&self) -> &Memory {
        // SAFETY: this CPU is in the space, and owns it by that, until it switches to another. It
        // does so in `switch` alone, which is called where a thread begins or ends to run, and by
        // `exec`, which has an `Arc` of `current` instead of this. No call waits, and
        // this cannot be sent to another CPU.
        unsafe { self.0.as_ref() }
    }
}

/// Resolves a fault of this CPU at `address` in the space it is in; returns the readahead that is
/// worth its time next.
///
/// # Errors
/// The reason there is no page: see [`Mm::fault`](quire::Mm::fault).
pub(crate) fn fault(address: u64, access: Access) -> Result<Option<Reads>, Stop> {
    // SAFETY: as in `current`; the space stays this CPU's own for the length of the call.
    let here = unsafe { &*HERE[isa::cpu().index()].0.get() };
    let page = Vpn::new(address / PAGE);
    let Some(memory) = here else { return Err(Error::NoArea(page).into()) };
    if address >= isa::USER_END {
        return Err(Error::NoArea(page).into());
    }
    if !super::ease() {
        return Err(Error::NoMemory(Order::ZERO).into());
    }
    for _ in 0..TRIES {
        let is_eased = match mm().fault(memory.space(), page, access) {
            Ok(Resolved::Paged { ahead, .. }) => return Ok(ahead),
            // The program tries again, and faults again if it must.
            Ok(_) => return Ok(None),
            Err(Stop::Refuse(Error::NoMemory(_))) => super::shrink(),
            Err(Stop::Refuse(Error::OverLimit(group))) => super::relieve(group),
            Err(Stop::Need(Need::Compact(order))) => {
                compact::for_fault(order);
                true
            }
            Err(stop) => return Err(stop),
        };
        if !is_eased {
            break;
        }
    }
    match mm().fault(memory.space(), page, access) {
        Ok(Resolved::Paged { ahead, .. }) => Ok(ahead),
        Ok(_) | Err(Stop::Need(Need::Compact(_))) => Ok(None),
        Err(stop) => Err(stop),
    }
}

const _: () = assert!(Format::PAGE_SHIFT == PAGE_SHIFT);
