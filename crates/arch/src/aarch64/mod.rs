//! arm64: stage 1 of the EL1&0 regime, VMSAv8-64, for granules of 4 KiB, 16 KiB and 64 KiB.
//!
//! 48-bit virtual and 48-bit output addresses; programs have the half of `TTBR0_EL1`, all 2^48
//! bytes of it. Source: Arm ARM (DDI 0487), part D8: §D8.2 translation process, §D8.3 descriptor
//! formats, §D8.4 access control, §D8.5 hardware management of access flag and dirty state, the
//! section on the Contiguous bit, and §D8.16 TLB maintenance with break-before-make.
//!
//! # Levels
//!
//! | level | manual | 4 KiB: bits, leaf, contiguous | 16 KiB | 64 KiB |
//! |---|---|---|---|---|
//! | +0 | L3 | 9, 4 KiB, 16 = 64 KiB | 11, 16 KiB, 128 = 2 MiB | 13, 64 KiB, 32 = 2 MiB |
//! | +1 | L2 | 9, 2 MiB, 16 = 32 MiB | 11, 32 MiB, 32 = 1 GiB | 13, 512 MiB, 32 = 16 GiB |
//! | +2 | L1 | 9, 1 GiB, 16 = 16 GiB | 11, none | 6, none |
//! | +3 | L0 | 9, none | 1, none | |
//!
//! Leaves at L0 and, with the larger granules, at L1 belong to the 52-bit formats (FEAT_LPA,
//! FEAT_LPA2), which are other formats than these.
//!
//! # Entries
//!
//! From the top: a leaf, a hidden leaf, a pointer to a table, a marker.
//!
//! ```text
//!  63  59 58 57 56 55 54  53  52 51 50  48 47        g g-1 12 11 10 9  8 7   6   5 4  2  1  0
//! ┌──────┬──┬──┬──┬──┬───┬───┬──┬──┬──────┬───────────┬──────┬──┬──┬────┬───┬───┬─┬────┬──┬──┐
//! │  0   │CW│ 0│SW│SD│UXN│PXN│C │DB│  0   │   frame   │  0   │nG│AF│SH11│AP2│AP1│0│Attr│ L│ 1│
//! └──────┴──┴──┴──┴──┴───┴───┴──┴──┴──────┴───────────┴──────┴──┴──┴────┴───┴───┴─┴────┴──┴──┘
//! ┌──────┬──┬──┬──┬──┬───┬───┬──┬──┬──────┬───────────┬──────┬──┬──┬────┬───┬───┬─┬────┬──┬──┐
//! │  0   │CW│ 1│SW│SD│ 1 │ 1 │ 0│ 0│  0   │   frame   │  0   │nG│AF│SH11│ 1 │AP1│0│Attr│ 0│ 0│
//! └──────┴──┴──┴──┴──┴───┴───┴──┴──┴──────┴───────────┴──────┴──┴──┴────┴───┴───┴─┴────┴──┴──┘
//! ┌───────────────────────────────────────┬───────────┬──────┬──┬──┬───────────────────┬──┬──┐
//! │                   0                   │   table   │  0   │ 0│AF│         0         │ 1│ 1│
//! └───────────────────────────────────────┴───────────┴──────┴──┴──┴───────────────────┴──┴──┘
//!  63                                                                      8 7         2  1  0
//! ┌─────────────────────────────────────────────────────────────────────────┬───────────┬──┬──┐
//! │                                 payload                                 │     0     │ 1│ 0│
//! └─────────────────────────────────────────────────────────────────────────┴───────────┴──┴──┘
//! ```
//!
//! * **L** (1): 1 in a leaf at the last level, 0 in a larger one. *g* is 12, 14 or 16.
//! * **Attr** (4:2): index into `MAIR_EL1`. That register is the embedder's, and so are the numbers
//!   ([`Arm64`]). Unless it says otherwise, byte 0 is `0xff` (normal memory, write-back, read- and
//!   write-allocate), byte 1 `0x00` (Device-nGnRnE) or `0x04` (Device-nGnRE, the usual choice for
//!   `DEVICE`), and byte 2 `0x44` (normal memory, non-cacheable) for `COMBINING`.
//! * **AP1** (6): programs may read. **AP2** (7): no CPU may write *now*. **UXN** (54), **PXN**
//!   (53): programs, the kernel may not execute. A leaf is executable by one of them or by neither.
//!   A program's leaf with `EXEC` alone has AP1 and UXN clear: execute-only, yet readable by the
//!   kernel whatever PAN says (FEAT_PAN3 aside). The kernel can read every page that it can access,
//!   so for it `EXEC` brings `READ`.
//! * **SH** (9:8): inner shareable; device memory ignores it.
//! * **AF** (10): `YOUNG`. With it clear the CPU sets it (FEAT_HAFDBS) or faults. In a table it has
//!   a meaning with FEAT_HAFT only; it is tolerated there and never written.
//! * **nG** (11): not `GLOBAL`.
//! * **DB** (51, DBM): `WRITE`, "may be written". In a leaf with DBM, AP2 means *clean*: the CPU
//!   clears it at the first store (FEAT_HAFDBS, `TCR_EL1.HD`), or, where it cannot, faults so that
//!   software does. So "writable and dirty" is DBM with AP2 clear, in the hardware's records as in
//!   [`leaf`](crate::Arch::leaf).
//! * **SD** (55): `DIRTY` of a leaf without DBM. Taking write permission away sets AP2, which would
//!   lose the dirty state. **SW** (56): `SOFT`. **CW** (58): `COW`. Bits 58:55 are for software.
//! * **C** (52): the Contiguous bit, set in folded words and in nothing else. Each still holds its
//!   own frame, so decoding ignores the bit. AF and AP2 may differ within a block: the hardware
//!   records a touch or a store in any one of its entries.
//! * With bit 0 clear the CPU ignores all other bits. Bit 1 then tells a marker from a hidden leaf,
//!   and bit 57 confirms the latter. A descriptor of the last level that ends in `01` is reserved
//!   and decodes as malformed.
//!
//! Nothing is done against L1TF: the CPUs named in CVE-2018-3620 are not of this ISA.
//!
//! # Transitions
//!
//! The table of cases is in [`rules`](crate::rules). §D8.16 on each:
//!
//! * *From invalid: nothing* but the barrier that makes the store visible to the walker, which is
//!   the embedder's; entries that fault (invalid, or AF clear) are not held in TLBs.
//! * *Break-before-make* between two valid entries for: another memory type (`DEVICE`); another
//!   output address, where either may be written or the contents differ (the words do not show
//!   contents, so always); another block size; the Contiguous bit; becoming global or ceasing to be
//!   (else the two entries would match at once).
//! * *Another block size or Contiguous bit alone* needs a flush only on CPUs with FEAT_BBM level 2
//!   (`relaxed`). Level 2 allows TLB conflict aborts; only an embedder with CPUs that raise none
//!   sets it.
//! * *Rights, AF, dirty state, nothing else:* no break; losses need a flush.

mod format;

pub use format::{Arm4k, Arm16k, Arm64, Arm64k};
