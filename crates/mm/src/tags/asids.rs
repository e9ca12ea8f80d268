//! The allocator of tags: generations and rollover.

use quire_units::{Asid, CpuId};

use super::tag::{NUMBER_BITS, Tag};
use crate::sync::{AtomicU64, Lock, Ordering};

/// The first generation. Below it: identities of the embedder's own, and no tags at all.
const FIRST: u64 = 1;

/// Gives tags to spaces as they are entered, and takes all back when none is left. See [the
/// room](super) for the scheme.
///
/// `CPUS` is how many CPUs the system may have: a CPU's number is below it. The size is 144 bytes
/// for each CPU and at most 256 more, whatever the number of tags; a static is a good place.
///
/// Until [`start`](Self::start) is called, and on CPUs with too few tags, there are none: all
/// spaces have tag 0, and each entry flushes.
pub struct Asids<const CPUS: usize> {
    /// The present generation; 0 while there are no tags.
    generation: AtomicU64,
    cpus: [Own; CPUS],
    book: Lock<Book<CPUS>>,
}

/// The identity of the space that a CPU entered last, for others to see at a rollover; 0 if it
/// has entered none since.
#[repr(align(128))]
struct Own(AtomicU64);

struct Book<const CPUS: usize> {
    /// Tags that the CPUs have, tag 0 included.
    count: u32,
    /// The next number to give out in this generation.
    next: u32,
    kept: [Kept; CPUS],
}

/// A CPU's part in the last rollover.
#[derive(Clone, Copy)]
struct Kept {
    /// The identity of the space it was in then. Its number is given to no other space in this
    /// generation, since the CPU goes on using it until it enters another; 0: none.
    identity: u64,
    /// It has entered no space since, so it has not flushed yet.
    must_flush: bool,
}

/// The outcome of entering a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the CPU may have to flush before it writes the root register"]
pub struct Entered {
    /// The tag to write beside the root. It is the space's until this CPU enters another.
    pub asid: Asid,
    /// The CPU must drop all translations that are not the kernel's, of all tags, before it writes
    /// the root register; where [there are no tags](Asids::are_used), after it has written that.
    pub must_flush: bool,
    /// The CPU was not among those that may hold translations of the space, or it stepped
    /// [aside](crate::space::Space::step_aside) and a flush came since. It must drop what it holds
    /// under the tag if it has ever stepped aside from a space. Where the ISA orders a walk after
    /// another CPU's store by a fence alone (riscv64: `SFENCE.VMA`), one is due.
    pub joined: bool,
}

impl<const CPUS: usize> Asids<CPUS> {
    /// No tags yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            cpus: [const { Own(AtomicU64::new(0)) }; CPUS],
            book: Lock::new(Book::new()),
        }
    }

    /// No tags yet.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            cpus: core::array::from_fn(|_| Own(AtomicU64::new(0))),
            book: Lock::new(Book::new()),
        }
    }

    /// Begins to give tags to the spaces that `cpus` CPUs enter. The CPUs have `count`; numbers 1
    /// up to but not including that are given, and tag 0 stays the embedder's, for CPUs that are in
    /// no space. To be called before the first entry, once it is known how many tags the CPU has
    /// that has the fewest: 2^[`ASID_BITS`] at most, and where that says so, less.
    ///
    /// Returns whether tags are used. They are not where `count` is below `cpus + 2`: each CPU
    /// keeps one in a rollover, and one must be left for a CPU that enters another space.
    ///
    /// [`ASID_BITS`]: quire_arch::Arch::ASID_BITS
    pub fn start(&self, count: u32, cpus: usize) -> bool {
        let mut book = self.book.lock();
        book.count = count.min(1 << NUMBER_BITS);
        let is_enough = book.count as usize >= cpus + 2;
        self.generation.store(if is_enough { FIRST } else { 0 }, Ordering::Relaxed);
        is_enough
    }

    /// Whether spaces have tags. Otherwise a CPU that leaves a space holds nothing of it once it
    /// has flushed for the next, and says so by [`Tag::leave`].
    #[inline]
    pub fn are_used(&self) -> bool {
        self.generation.load(Ordering::Relaxed) != 0
    }

    /// How many rollovers there were.
    pub fn rollovers(&self) -> u64 {
        self.generation.load(Ordering::Relaxed).saturating_sub(FIRST)
    }

    /// `cpu`, which runs the caller, is about to enter the space with `tag`, and from now on
    /// flushes of the space reach it. The caller is not interrupted by another entry on this CPU.
    /// It may be in a space already, also in this one, and stays in it until it writes the root
    /// register.
    ///
    /// A CPU that leaves a space without entering another (for the kernel's own tables) need not
    /// say so: its tag stays as it is.
    ///
    /// # Panics
    /// When `cpu` is not below `CPUS`.
    #[inline]
    pub fn enter(&self, tag: &Tag, cpu: CpuId) -> Entered {
        let own = &self.cpus[cpu.index()].0;
        let identity = tag.identity();
        let before = own.load(Ordering::Relaxed);
        // A rollover takes the word away, so the exchange fails then. If the exchange came first,
        // the rollover finds the tag here and keeps it.
        if before != 0
            && self.is_current(identity)
            && own.compare_exchange(before, identity, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let joined = tag.join(cpu);
            return Entered { asid: Asid(identity as u16), must_flush: false, joined };
        }
        self.enter_anew(tag, cpu)
    }

    #[inline]
    fn is_current(&self, identity: u64) -> bool {
        identity >> NUMBER_BITS == self.generation.load(Ordering::Relaxed)
    }

    /// Enters where the space has no tag of this generation, or the CPU no space.
    #[cold]
    fn enter_anew(&self, tag: &Tag, cpu: CpuId) -> Entered {
        if !self.are_used() {
            return Entered { asid: Asid(0), must_flush: true, joined: tag.join(cpu) };
        }
        let mut book = self.book.lock();
        if !self.is_current(tag.identity()) {
            self.renew(&mut book, tag);
        }
        let identity = tag.identity();
        let must_flush = core::mem::take(&mut book.kept[cpu.index()].must_flush);
        self.cpus[cpu.index()].0.store(identity, Ordering::Relaxed);
        let joined = tag.join(cpu);
        Entered { asid: Asid(identity as u16), must_flush, joined }
    }

    /// Gives `tag` a number of this generation: its own, if a CPU keeps that.
    fn renew(&self, book: &mut Book<CPUS>, tag: &Tag) {
        let old = tag.identity();
        let same = self.generation.load(Ordering::Relaxed) << NUMBER_BITS | number(old);
        if old != 0 && book.replace(old, same) {
            return tag.renew(same);
        }
        let number = match book.take() {
            Some(number) => number,
            None => {
                self.roll_over(book);
                // There are two tags more than CPUs, and each CPU keeps one at most.
                book.take().unwrap_or_default()
            }
        };
        tag.change(self.generation.load(Ordering::Relaxed) << NUMBER_BITS | number);
    }

    /// Begins the next generation.
    #[cold]
    fn roll_over(&self, book: &mut Book<CPUS>) {
        let next = self.generation.load(Ordering::Relaxed) + 1;
        self.generation.store(next, Ordering::Relaxed);
        for (own, kept) in self.cpus.iter().zip(&mut book.kept) {
            // A CPU that has entered no space since the last rollover still uses the same one.
            let last = own.0.swap(0, Ordering::Relaxed);
            if last != 0 {
                kept.identity = last;
            }
            kept.must_flush = true;
        }
        book.next = 1;
    }
}

#[cfg(not(loom))]
impl<const CPUS: usize> Default for Asids<CPUS> {
    fn default() -> Self {
        Self::new()
    }
}

fn number(identity: u64) -> u64 {
    identity & ((1 << NUMBER_BITS) - 1)
}

impl<const CPUS: usize> Book<CPUS> {
    const fn new() -> Self {
        // A CPU's TLB may hold anything before its first entry.
        let kept = Kept { identity: 0, must_flush: true };
        Self { count: 0, next: 1, kept: [kept; CPUS] }
    }

    /// Whether CPUs keep `old`; they keep `new` from now on.
    fn replace(&mut self, old: u64, new: u64) -> bool {
        let mut is_kept = false;
        for kept in self.kept.iter_mut().filter(|kept| kept.identity == old) {
            kept.identity = new;
            is_kept = true;
        }
        is_kept
    }

    /// The next number that no CPU keeps.
    fn take(&mut self) -> Option<u64> {
        while self.next < self.count {
            let next = u64::from(self.next);
            self.next += 1;
            if self.kept.iter().all(|kept| number(kept.identity) != next) {
                return Some(next);
            }
        }
        None
    }
}

const _: () = assert!(size_of::<Own>() == 128 && size_of::<Kept>() == 16);
