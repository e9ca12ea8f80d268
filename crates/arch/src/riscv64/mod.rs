//! riscv64 with tables of three (Sv39), four (Sv48) and five levels (Sv57).
//!
//! Source: *The RISC-V Instruction Set Manual, Volume II: Privileged Architecture*, chapter
//! *Supervisor-Level ISA*: the sections on Sv39, Sv48 and Sv57, on the *Supervisor
//! Memory-Management Fence Instruction* (SFENCE.VMA), and the chapters on the extensions Svnapot,
//! Svpbmt, Svadu/Svade and Svvptc.
//!
//! # Entries
//!
//! ```text
//!  63 62  61 60     54 53                                10  9  8  7  6  5  4  3  2  1  0
//! ┌──┬──────┬─────────┬────────────────────────────────────┬──┬──┬──┬──┬──┬──┬──┬──┬──┬──┐
//! │ 0│ PBMT │    0    │       frame (PPN, 44 bits)         │CW│SW│ D│ A│ G│ U│ X│ W│ R│ 1│ leaf
//! └──┴──────┴─────────┴────────────────────────────────────┴──┴──┴──┴──┴──┴──┴──┴──┴──┴──┘
//! ┌──┬──────┬─────────┬───────────────────────────┬────────┬──┬──┬──┬──┬──┬──┬──┬──┬──┬──┐
//! │ 1│ PBMT │    0    │ upper 40 bits of the frame│ 1 0 0 0│CW│SW│ D│ A│ G│ U│ X│ W│ R│ 1│ folded
//! └──┴──────┴─────────┴───────────────────────────┴────────┴──┴──┴──┴──┴──┴──┴──┴──┴──┴──┘
//! ┌──┬──────┬─────────┬────────────────────────────────────┬──┬──┬──┬──┬──┬──┬──┬──┬──┬──┐
//! │ 0│  0   │    0    │       frame of the table           │ 0│ 0│ 0│ 0│ 0│ 0│ 0│ 0│ 0│ 1│ table
//! └──┴──────┴─────────┴────────────────────────────────────┴──┴──┴──┴──┴──┴──┴──┴──┴──┴──┘
//! ┌──┬──────┬─────────┬────────────────────────────────────┬──┬──┬──┬──┬──┬──┬──┬──┬──┬──┐
//! │ 0│ PBMT │    0    │       frame (PPN, 44 bits)         │CW│SW│ D│ A│ G│ U│ 1│ 0│ 0│ 0│ hidden
//! └──┴──────┴─────────┴────────────────────────────────────┴──┴──┴──┴──┴──┴──┴──┴──┴──┴──┘
//!  63                                                               8 7           2  1  0
//! ┌──────────────────────────────────────────────────────────────────┬─────────────┬──┬──┐
//! │                             payload                              │      0      │ 1│ 0│ marker
//! └──────────────────────────────────────────────────────────────────┴─────────────┴──┴──┘
//! ```
//!
//! * **R, W, X** (1, 2, 3): the rights. W without R is reserved (Zicfiss makes it a shadow stack),
//!   so `WRITE` brings `READ`. A valid entry with none of them is a pointer to a table, so a hidden
//!   leaf has V clear; the CPU then ignores all other bits. Execute-only exists.
//! * **U** (4): `USER`. The kernel cannot execute such pages and reaches them with `sstatus.SUM`
//!   only. **G** (5): `GLOBAL`.
//! * **A, D** (6, 7): `YOUNG`, `DIRTY`. The CPU sets them (Svadu) or faults (Svade). D, A, U must
//!   be 0 in a pointer to a table.
//! * **SW** (8): `SOFT`. **CW** (9): `COW`. These are the two RSW bits for software; only
//!   Svrsw60t59b has more. So hidden leaves are marked by X, which has no meaning while V is clear,
//!   and markers by R.
//! * **PBMT** (62:61): 2 (IO) for `DEVICE`, 1 (NC) for `COMBINING`, else 0 (the type that the PMA
//!   gives). The numbers are the ISA's. It needs Svpbmt, enabled by `menvcfg.PBMTE`. Without it the
//!   bits are reserved and such a leaf faults. The PMAs describe the devices there: the embedder's
//!   `Profile` says so, and the library writes no such leaf.
//! * **N** (63): Svnapot, 16 leaves of the last level as one block of 64 KiB: a folded word. Its
//!   low four PPN bits encode the block's size, of which `1000` is the only one; the CPU takes
//!   those bits of the frame from the page number. So the 16 words of a block are equal but for A
//!   and D, which the CPU may set in any of them. The decoder does not know the entry's index and
//!   reports such a word as malformed: callers unfold it first.
//! * Any level may hold leaves: 4 KiB, 2 MiB, 1 GiB, 512 GiB (Sv48), 256 TiB (Sv57). A leaf that
//!   is not aligned to its size faults, and is malformed here.
//!
//! Nothing is done against L1TF: the CPUs named in CVE-2018-3620 are not of this ISA.
//!
//! # Transitions
//!
//! The table of cases is in [`rules`](crate::rules). The section on SFENCE.VMA allows a CPU, until
//! a fence that covers the address, to use any translation that was valid since the last such
//! fence. The choice is unpredictable, but it is always one of them, also when a leaf replaces a
//! table or a table a leaf. So a loss needs a flush, and the hardware itself never needs a break.
//! Two breaks remain for coherence: another frame that is written, and another memory type. N
//! follows the same rules: a translation of the whole block and one of its page differ only in the
//! range that they cover.
//!
//! *From invalid: nothing*, with one duty for fault handling: without Svvptc a CPU may
//! cache an invalid entry. So a fault whose entry is already sufficient must be answered with a
//! local SFENCE.VMA, or it may repeat for ever. `Mm::fault` does that, by `Hardware::flush` on the
//! faulting CPU; an embedder need not.

mod format;

pub use format::{Riscv64, Sv39, Sv48, Sv57};
