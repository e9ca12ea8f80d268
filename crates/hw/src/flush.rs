//! Dropping translations, and what else an embedder owes the CPUs' table walkers: the laws of
//! [`Hardware`](crate::Hardware) for each ISA.
//!
//! # Dropping translations
//! When [`flush`](crate::Hardware::flush) returns,
//! 1. no CPU uses a translation of the named pages that it made from a word stored over before the
//!    call, and none will: an access that was under way with one is complete;
//! 2. where [`tables`](Flush::tables) is set, no CPU walks the named pages by way of an upper entry
//!    that was stored over before the call: the frames of tables may then hold other things;
//! 3. this is so for each CPU of [`cpus`](Flush::cpus) at a moment after the call began. A CPU that
//!    joins the set later reads the changed tables, see below.
//!
//! To drop more than was named is always right: other pages, other tags, other CPUs, walk caches
//! unasked. Global translations, which no program has, may stay. [`Pieces`] says how many
//! invalidations the pages take: one for the address of each piece. Both ends of the pages are
//! multiples of the piece's size.
//!
//! | duty | x86-64 | arm64 | riscv64 |
//! |---|---|---|---|
//! | before: stores to tables are done | nothing | `DSB ISHST` | `FENCE RW,RW` |
//! | one piece, this CPU | `INVLPG`; of a space that is not current, `INVPCID` type 0 | `TLBI VALE1`, then `DSB NSH`, `ISB` | `SFENCE.VMA rs1=address, rs2=ASID` |
//! | the same with `tables` | the same: both drop what paging-structure caches keep for the address | `TLBI VAE1`, for the last level alone does not do | `SFENCE.VMA rs1=x0, rs2=ASID`: with an address it orders leaves only |
//! | all of the space, this CPU | `MOV CR3` without bit 63; of another tag, `INVPCID` type 1 | `TLBI ASIDE1` | `SFENCE.VMA rs1=x0, rs2=ASID` |
//! | other CPUs | an interrupt to each, which does the same and answers | `TLBI VALE1IS`, `VAE1IS`, `ASIDE1IS`, then `DSB ISH`: no interrupt | SBI RFENCE `remote_sfence_vma_asid`, which does the same there; of all addresses (size −1) where `tables` is set |
//! | the call may return | when all have answered | when `DSB ISH` is complete | when the firmware returns |
//! | many pieces | one flush of the space costs less from some number on | the same; FEAT_TLBIRANGE names a range | the same |
//! | a tag of 0, no tags | all is dropped at each switch (CR4.PCIDE = 0) | as any | as any; `rs2=x0` drops global ones, too |
//! | a contiguous block | there is none | the CPU may keep the block, or each entry: name each | the same (Svnapot) |
//!
//! Sources: Intel SDM volume 3A, "Invalidation of TLBs and Paging-Structure Caches" (4.10.4), and
//! the instructions; Arm ARM (DDI 0487), "TLB maintenance instructions" and "Ordering and
//! completion of TLB maintenance instructions"; RISC-V Privileged Architecture, "Supervisor
//! Memory-Management Fence Instruction" and "Svnapot"; RISC-V SBI Specification, "RFENCE
//! Extension".
//!
//! # The order of stores and walks
//! `load` acquires, `fill` and `compare_exchange` release. A walker follows a word to a table by
//! its address, so it never sees a table before what was stored to it first.
//!
//! | duty | x86-64 | arm64 | riscv64 |
//! |---|---|---|---|
//! | `load` | `MOV` | `LDAR`, or `LDR` and `DMB ISHLD` | `LD`, `FENCE R,RW` |
//! | `fill`, `compare_exchange` | `MOV`, `LOCK CMPXCHG` | `STLR` or `DMB ISH` and `STR`; `CASAL` | `FENCE RW,W`, `SD`; `LR.D`/`SC.D` or `AMOCAS.D` with `.aqrl` |
//! | then, before a new entry is used | nothing | `DSB ISHST`, `ISB` | nothing: see below |
//! | a walk that comes too early | does not happen | does not happen after these barriers | faults once more |
//!
//! Only arm64 and riscv64 let a walk of *this* CPU come before its own store. On riscv64 there is
//! more: until an `SFENCE.VMA` a CPU may go on using that an entry was *not* valid, unless it has
//! Svvptc. The library takes care of that. The access faults once more, the library finds the entry
//! that allows it, drops what this CPU keeps for the page, with `tables`, and answers `Noted`. So a
//! kernel owes nothing for an entry that becomes valid. It saves the second fault if it executes
//! `SFENCE.VMA` for the page after each fault that was resolved, where Svvptc is missing. x86-64
//! and arm64 never keep an entry that is not valid.
//!
//! # CPUs that join, and CPUs that wait
//! *Joining.* The library changes tables, then calls `flush`, which executes a full fence and reads
//! the set of CPUs after it. An embedder calls `Space::enter`, executes a full fence, and loads the
//! root then. So the flush finds the CPU in the set, or the CPU's walks find the change. A CPU that
//! leaves a space and keeps its translations stays in the set, or drops them before it walks in the
//! space again, or steps aside (`Space::step_aside`): then it is not interrupted, and `enter_with`
//! says whether it must drop them. The set may change during the call: read it once where requests
//! and answers are counted.
//!
//! *Waiting.* The library may call `flush` with a page table locked, and other CPUs may spin for
//! that lock, or wait in a fault for the end of a change. They must obey meanwhile:
//!
//! | | x86-64 | arm64 | riscv64 |
//! |---|---|---|---|
//! | a CPU obeys | when it takes the interrupt | by itself | when the firmware interrupts it in machine mode |
//! | so it may call the library | with interrupts on, and never from a handler that the interrupt cannot interrupt; or its own loop that waits for answers must serve requests, too | in any state | in any state, where RFENCE is the firmware's; with interrupts of the kernel's own (IMSIC, `sip.SSIP`), as on x86-64 |
//! | asleep, or in the kernel for long | the interrupt wakes it; or it leaves the space first | nothing | nothing |
//!
//! # Tests
//! `crates/sim/tests/it/laws.rs` has a hardware that breaks each law of a flush in turn, and the
//! hosted machine's examiner finds each; a CPU that keeps absence is there as well. The machine has
//! the host's order of stores, so a missing barrier shows on real CPUs alone.

use quire_units::{Asid, CpuSet, Order, PageSpan, Pfn, Vpn};

/// Translations to drop; the [module](self) has the laws.
#[derive(Clone, Copy, Debug)]
pub struct Flush<'a> {
    /// The tag that the address space had after the change of its tables. By now it may have lost
    /// the tag to another space, whose translations then go as well: that costs time alone.
    pub asid: Asid,
    /// Its top-level table.
    pub root: Pfn,
    /// The pages; `None` for all of the space.
    pub pages: Option<Pieces>,
    /// Whether entries above the last level changed, so that walk caches must be dropped, too.
    pub tables: bool,
    /// CPUs that may hold translations of the space.
    pub cpus: &'a CpuSet,
}

/// Consecutive pages in pieces of one size: one invalidation for the address of each piece drops
/// all translations of them.
///
/// The piece, or *stride*, is as large as the smallest entry that mapped the pages, never as large
/// as a contiguous block: the CPU may keep each of a block's entries by itself. Both ends of the
/// pages are multiples of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    span: PageSpan,
    stride: Order,
}

impl Pieces {
    /// All pieces of size `stride` that have a page of `span`.
    ///
    /// A last piece that would reach beyond the numbers of pages ends with `span`.
    #[inline]
    pub fn new(span: PageSpan, stride: Order) -> Self {
        let start = span.start.align_down(stride.pages());
        let end = span.end.align_up(stride.pages()).unwrap_or(span.end);
        Self { span: PageSpan::new(start, end), stride }
    }

    /// Page `page` alone.
    #[inline]
    pub fn page(page: Vpn) -> Self {
        Self { span: PageSpan::block(page, Order::ZERO), stride: Order::ZERO }
    }

    /// The pages. They begin and end at multiples of the stride.
    #[inline]
    pub const fn span(self) -> PageSpan {
        self.span
    }

    /// The size of a piece.
    #[inline]
    pub const fn stride(self) -> Order {
        self.stride
    }

    /// How many pieces, and so invalidations, there are.
    #[inline]
    pub fn count(self) -> u64 {
        self.span.count().div_ceil(self.stride.pages())
    }

    /// The first page of each piece, ascending: one invalidation for each.
    #[inline]
    pub fn starts(self) -> impl Iterator<Item = Vpn> {
        (0..self.count()).map(move |piece| self.span.start.add(piece << self.stride.get()))
    }

    /// The pages from the first to the last of both, in pieces of the smaller size.
    #[inline]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let (one, two) = (self.span, other.span);
        let span = PageSpan::new(one.start.min(two.start), one.end.max(two.end));
        Self { span, stride: self.stride.min(other.stride) }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;
    use quire_units::{Order, PageSpan, Vpn};

    use super::Pieces;

    fn span(start: u64, count: u64) -> PageSpan {
        PageSpan::new(Vpn::new(start), Vpn::new(start + count))
    }

    /// Whether one invalidation for each piece drops a translation of `order` around `page`.
    fn drops(pieces: Pieces, page: u64, order: u8) -> bool {
        let held = PageSpan::block(Vpn::new(page), Order::new(order));
        pieces.starts().any(|start| held.contains(start))
    }

    proptest! {
        #[test]
        fn pieces_are_aligned_cover_the_pages_and_no_more_than_their_pieces(
            start in 0..4096_u64, count in 0..600_u64, stride in 0..10_u8,
        ) {
            let wanted = span(start, count);
            let pieces = Pieces::new(wanted, Order::new(stride));
            let size = 1 << stride;
            let starts: Vec<_> = pieces.starts().collect();
            prop_assert!(starts.iter().all(|at| at.is_aligned(size)));
            prop_assert!(pieces.span().start.is_aligned(size));
            prop_assert!(pieces.span().end.is_aligned(size));
            prop_assert!(pieces.span().covers(wanted));
            prop_assert_eq!(starts.len() as u64, pieces.count());
            prop_assert!(pieces.span().count() < count + 2 * size || count == 0);
            let naive = (0..4096 + 600 + 512).step_by(size as usize);
            let naive = naive.filter(|at| span(*at, size).overlaps(wanted)).count();
            prop_assert!(count == 0 || naive == starts.len());
        }

        #[test]
        fn an_invalidation_for_each_piece_drops_all_that_is_as_large_as_a_piece(
            start in 0..4096_u64, count in 1..600_u64, stride in 0..10_u8, at in 0..600_u64,
            more in 0..4_u8,
        ) {
            let pieces = Pieces::new(span(start, count), Order::new(stride));
            prop_assert!(drops(pieces, start + at % count, stride + more));
        }

        #[test]
        fn two_sets_of_pieces_together_drop_what_each_drops(
            one in (0..4096_u64, 1..300_u64, 0..10_u8), two in (0..4096_u64, 1..300_u64, 0..10_u8),
            at in 0..300_u64,
        ) {
            let of = |(start, count, stride)| Pieces::new(span(start, count), Order::new(stride));
            let both = of(one).and(of(two));
            prop_assert_eq!(both, of(two).and(of(one)));
            let size = both.stride().pages();
            prop_assert!(both.span().start.is_aligned(size) && both.span().end.is_aligned(size));
            for (start, count, stride) in [one, two] {
                prop_assert!(drops(both, start + at % count, stride));
            }
        }
    }
}
