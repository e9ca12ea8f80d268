//! Page-table formats of x86-64, arm64 and riscv64, as pure data and pure functions.
//!
//! An [`Arch`] gives the number of levels of a table, the levels that may hold leaves, the encoding
//! of an entry, and the demands of a change to a live entry. It has no effect and executes no
//! instruction of its ISA, so all formats are tested on any host; [`laws`] is the one suite that
//! each passes. The modules of the ISAs draw their entries and cite the manuals; [`rules`] gives
//! the demands of each change of a live entry, with reasons. Read one ISA, then `rules`, then
//! `laws`.
#![no_std]

#[cfg(test)]
extern crate std;

mod entry;
mod level;
mod bits;
mod slots;
pub mod rules;
pub mod x86_64;
pub mod aarch64;
pub mod riscv64;
pub mod laws;

#[cfg(test)]
mod tests;

pub use aarch64::{Arm4k, Arm16k, Arm64k};
pub use entry::{Attrs, Entry, Transition};
pub use level::{Level, LevelShape};
pub use riscv64::{Sv39, Sv48, Sv57};
pub use slots::memory_slots;
pub use x86_64::{X86_64, X86_64La57};

use quire_units::{Order, Pfn, Vpn};

/// A page-table format. A type with no value: all its items are constants and functions.
///
/// Laws (checked for every implementation by one suite):
/// * `decode(encode(x)) = x` after normalising what the ISA cannot tell apart. The normal form
///   grants no right that the caller did not ask for, except those that the ISA ties together (see
///   [`Attrs`]).
/// * The zero word is [`Entry::Absent`], at every level.
/// * `leaf(f + n·pages, …) = leaf(f, …) + n·step(level)`: a run of leaves is an arithmetic
///   sequence.
/// * `unfold(fold(x)) = x` for leaves, and the words of a folded block are an arithmetic sequence,
///   too, of [`fold_step`](Self::fold_step). The hardware records accesses and stores in a folded
///   word as it would in the plain one.
/// * A transition depends on the two words, the level and the CPU's permission alone. Making an
///   absent entry present needs nothing, and neither does granting more: at worst a CPU takes a
///   spurious fault (which the handler must answer with a flush on that CPU, since some CPUs cache
///   entries that faulted). A change of target, a loss of rights, and clearing [`Attrs::DIRTY`] of
///   a writable leaf need at least [`Transition::Flush`]. Clearing [`Attrs::YOUNG`] needs nothing:
///   age is a hint, and a caller that needs it exact flushes. [`Transition::BreakBeforeMake`] is
///   due wherever two CPUs would else see different memory, or the same memory with different
///   types, at one address.
pub trait Arch: Copy + Send + Sync + 'static {
    /// The name for messages: `x86-64`, `arm64-16k`, `riscv64-sv48`.
    const NAME: &'static str;
    /// The base-two logarithm of the base page in bytes.
    const PAGE_SHIFT: u32;
    /// The levels from the last, whose entries map base pages, up to the root.
    const LEVELS: &'static [LevelShape];
    /// How many pages a program may map, from page 0 on: the lower half of the address space.
    const USER_PAGES: u64;
    /// How many frames an entry can name, from frame 0 on. Memory beyond cannot be mapped, so the
    /// embedder must not offer it.
    const FRAMES: u64;
    /// Bits of the tag of a space (PCID, ASID) beside the root: at most 16. A CPU may have fewer:
    ///
    /// | ISA | how many | found by |
    /// |---|---|---|
    /// | x86-64 | 12, or none | none without `CPUID.01H:ECX.PCID` (SDM volume 3A §4.10.1) |
    /// | arm64 | 16 or 8 | `ID_AA64MMFR0_EL1.ASIDBits` is 2 or 0; `TCR_EL1.AS` selects 16 (D8.16) |
    /// | riscv64 | 0 to 16 | ones that are written to `satp.ASID` and read back (*satp Register*) |
    const ASID_BITS: u32;

    /// The word that points at a lower table, anywhere below [`FRAMES`](Self::FRAMES).
    fn table(frame: Pfn) -> u64;

    /// The word that maps the block that begins at `frame`; the frame is aligned to the level's
    /// block and lies below [`FRAMES`](Self::FRAMES), and `level` may hold leaves. Without any of
    /// [`Attrs::READ`], [`Attrs::WRITE`] and [`Attrs::EXEC`] the word is hidden from the hardware,
    /// which faults, but keeps frame and attributes for [`decode`](Self::decode).
    ///
    /// When the hardware records a touch or a store in a leaf's word, the result is the word of
    /// the same leaf with [`Attrs::YOUNG`], and with [`Attrs::DIRTY`] for a store.
    ///
    /// # Panics
    /// In debug builds for a frame or level that breaks the conditions above.
    fn leaf(frame: Pfn, level: Level, attrs: Attrs) -> u64;

    /// The difference between a leaf's word and that of the next block of the same level.
    fn step(level: Level) -> u64;

    /// A word that the hardware takes for absent but that carries `payload`, below 2^56, to
    /// [`decode`](Self::decode), at any level.
    ///
    /// # Panics
    /// In debug builds when `payload` is 2^56 or more.
    fn marker(payload: u64) -> u64;

    /// The meaning of a word at a level that the format has. Total: any word has a meaning, if only
    /// [`Entry::Malformed`]. Callers make a folded word plain with [`unfold`](Self::unfold) first.
    fn decode(word: u64, level: Level) -> Entry;

    /// The steps that must accompany a change from `old` to `new` in a table that may be live.
    /// `relaxed` is the CPU's permission to change block size and contiguity without
    /// break-before-make. Either word may be folded. Where only one is, a plain leaf's frame is
    /// assumed to match the entry's place in its block, since a folded word may not encode its own
    /// place.
    ///
    /// Where either word is a table, it is assumed to translate as the other side does: a block is
    /// split, folded or copied in place. A caller that changes more must go through zero.
    fn transition(old: u64, new: u64, level: Level, relaxed: bool) -> Transition;

    /// Whether `word` is of a leaf that the hardware may take together with its neighbours as one
    /// translation. False for plain and hidden leaves, tables, markers and zero.
    #[inline]
    fn is_folded(_word: u64, _level: Level) -> bool {
        false
    }

    /// The word of a visible leaf as part of a contiguous block: the value of the same entry when
    /// all entries of the block are folded. It keeps all attributes. The block's entries have an
    /// aligned place in their table, and their frames are consecutive, from an aligned one on.
    ///
    /// # Panics
    /// In debug builds when `word` is not a plain visible leaf's, or
    /// [`fold_order`](Self::fold_order) says that the level has no contiguous blocks.
    #[inline]
    fn fold(word: u64, _level: Level) -> u64 {
        word
    }

    /// The plain word that [`fold`](Self::fold) made `word` from, with the accessed and dirty bits
    /// that the hardware has set since. `index` is the entry's index in its table; only its place
    /// within the block matters.
    ///
    /// # Panics
    /// In debug builds when `word` is not folded, on formats that can fold.
    #[inline]
    fn unfold(word: u64, _level: Level, _index: usize) -> u64 {
        word
    }

    /// The difference between a folded word and that of the next entry of the same block.
    #[inline]
    fn fold_step(level: Level) -> u64 {
        Self::step(level)
    }

    /// The order of a contiguous block of `level`; `None` where it has none.
    #[inline]
    fn fold_order(level: Level) -> Option<Order> {
        match Self::LEVELS[level.index()].contiguous {
            0 => None,
            bits => Some(Order::new(Self::order(level).get() + bits)),
        }
    }

    /// The level of the root table.
    const ROOT: Level = Level::new(Self::LEVELS.len() as u8 - 1);

    /// The order of one entry's block at `level`: 0 at the last level.
    #[inline]
    fn order(level: Level) -> Order {
        let mut bits = 0;
        let mut at = 0;
        while at < level.index() {
            bits += Self::LEVELS[at].index_bits;
            at += 1;
        }
        Order::new(bits)
    }

    /// How many entries a table of `level` has.
    #[inline]
    fn entries(level: Level) -> usize {
        1 << Self::LEVELS[level.index()].index_bits
    }

    /// The entry of a table of `level` that translates `page`.
    #[inline]
    fn index(page: Vpn, level: Level) -> usize {
        (page.get() >> Self::order(level).get()) as usize & (Self::entries(level) - 1)
    }

    /// Whether entries of `level` may map memory.
    #[inline]
    fn is_leaf_level(level: Level) -> bool {
        Self::LEVELS[level.index()].leaf
    }

    /// The highest level whose leaf is not larger than `order`.
    #[inline]
    fn leaf_level(order: Order) -> Level {
        let mut best = Level::LAST;
        let mut at = 1;
        while at < Self::LEVELS.len() {
            let level = Level::new(at as u8);
            if Self::is_leaf_level(level) && Self::order(level) <= order {
                best = level;
            }
            at += 1;
        }
        best
    }

    /// The smallest block above a base page that one entry maps: 2 MiB with 4 KiB pages. Linux
    /// calls it the PMD size.
    #[inline]
    fn block_order() -> Order {
        Self::order(Level::new(1))
    }

    /// The preferred order of folios for code in files (row B2; Linux: `exec_folio_order`); `None`
    /// where base pages do as well. It is a preference that no operation depends on.
    ///
    /// It is 64 KiB on formats that can write a contiguous block of base pages and whose base page
    /// is smaller. With pages of 4 KiB that is exactly such a block (arm64, riscv64's Svnapot).
    /// With arm64's pages of 16 KiB a contiguous block has 2 MiB, more than most text segments; but
    /// CPUs that merge aligned neighbours by themselves merge four (Arm: hardware page
    /// aggregation). x86-64 has no preference: it has no such bit, and the runs that its CPUs merge
    /// are smaller than the folios that readahead makes anyway.
    #[inline]
    fn exec_order() -> Option<Order> {
        Self::fold_order(Level::LAST)?;
        Order::of_bytes(64 << 10, Self::PAGE_SHIFT).filter(|&order| order > Order::ZERO)
    }
}
