//! x86-64 with tables of four and of five levels.
//!
//! Sources: Intel SDM volume 3A, chapter *Paging* (here by the numbers of the editions in which it
//! is chapter 4; later ones count it as chapter 5): §4.5 entry formats, §4.6 access rights, §4.7
//! page faults, §4.8 accessed and dirty flags, §4.9 memory types, §4.10 caching of translations.
//! AMD APM volume 2: §5.3 and §5.4 entry formats, §5.5 TLB and its management, §5.6 protection.
//!
//! # Entries
//!
//! ```text
//!   63 62 59 58 57 52 51                       12 11 10  9  8  7  6  5   4   3   2   1  0
//! ┌───┬─────┬──┬─────┬───────────────────────────┬──┬──┬──┬──┬──┬──┬──┬───┬───┬───┬───┬──┐
//! │XD │  0  │CW│  0  │     frame (52-bit PA)     │ 0│SD│SW│ G│PS│ D│ A│PCD│PWT│U/S│R/W│ 1│ leaf
//! └───┴─────┴──┴─────┴───────────────────────────┴──┴──┴──┴──┴──┴──┴──┴───┴───┴───┴───┴──┘
//! ┌───┬──────────────┬───────────────────────────┬───────────┬──┬──┬──┬───┬───┬───┬───┬──┐
//! │ 0 │      0       │    frame of the table     │     0     │ 0│ 0│ 1│ 0 │ 0 │ 1 │ 1 │ 1│ table
//! └───┴──────────────┴───────────────────────────┴───────────┴──┴──┴──┴───┴───┴───┴───┴──┘
//! ┌─────────┬──┬───┬─────────────────────────────┬──┬──┬──┬──┬──┬──┬──┬───┬───┬───┬───┬──┐
//! │    0    │CW│ 0 │  frame + veil (bits 52:12)  │ 1│SD│SW│ G│ 0│ 0│ A│PCD│PWT│U/S│ 0 │ 0│ hidden
//! └─────────┴──┴───┴─────────────────────────────┴──┴──┴──┴──┴──┴──┴──┴───┴───┴───┴───┴──┘
//!  63  61 60              46 45 43 42                                            2  1  0
//! ┌──────┬──────────────────┬─────┬────────────────────────────────────────────────┬─┬─┐
//! │  0   │  payload 55:41   │1 1 1│                  payload 40:0                  │1│0│ marker
//! └──────┴──────────────────┴─────┴────────────────────────────────────────────────┴─┴─┘
//! ```
//!
//! * **P** (0), **R/W** (1), **U/S** (2), **XD** (63, AMD: NX): the rights. A present page can be
//!   read, so `WRITE` and `EXEC` bring `READ`. XD needs `EFER.NXE`. Rights are the conjunction over
//!   all levels; table entries grant everything, leaves decide.
//! * **PWT, PCD** (3, 4): the entry of the PAT, 0 to 3. The PAT is the embedder's, and so are the
//!   numbers ([`X86`]): unless it says otherwise 0 (WB), 1 for `COMBINING` (WC; WT after reset) and
//!   3 for `DEVICE` (UC). The PAT bit would be bit 7 in a 4 KiB leaf and bit 12 in a larger one; it
//!   stays 0, so bit 12 belongs to the alignment of large leaves.
//! * **A, D** (5, 6): `YOUNG`, `DIRTY`; set by the CPU. Tables are written with A set, which
//!   spares the CPU a locked write on the first walk.
//! * **PS** (7): a leaf above the last level: 2 MiB at level +1, 1 GiB at level +2 (if CPUID
//!   reports 1 GiB pages).
//! * **G** (8): `GLOBAL` (needs `CR4.PGE`).
//! * **SW** (9): `SOFT`. **SD** (10): `DIRTY` of a leaf that is not writable. A present leaf with
//!   R/W clear and D set is a *shadow-stack page* once `CR4.CET` is on (SDM §4.6.1), and a program
//!   could then write to it; so D is moved to SD when write permission goes. The decoder still
//!   accepts D with R/W clear: older CPUs may set D just after the write permission was taken away.
//!   Bits 9 to 11 are ignored in all entries (bit 11 but for HLAT, which is not used).
//! * **CW** (58): `COW`. Bits 52 to 58 are ignored in all entries, too; a hidden leaf's veil may
//!   need bit 52.
//! * No bit joins leaves into contiguous blocks, and no word is folded. Some CPUs join aligned
//!   neighbours with equal attributes by themselves (AMD, since Zen) and need no bit for it.
//!
//! # Entries that are not present, and L1TF
//!
//! With P clear the CPU ignores all other bits, architecturally. CPUs with the L1 Terminal Fault
//! (CVE-2018-3620; Intel, before Cascade Lake) still use the address bits of such an entry
//! speculatively and may disclose what the L1 cache holds at that physical address. Their caches
//! know 44 address bits (client parts) or 46 (servers). So every word here that is neither
//! present nor zero points far beyond memory:
//!
//! * A hidden leaf holds its address plus the *veil* 2^45 + 2^43. Adding, where Linux inverts,
//!   costs one instruction too but keeps runs of leaves arithmetic. An address below 2^43 gets bit
//!   43 (of 44), one below 2^45 - 2^43 gets bit 45 (of 46): nothing leaks on clients with less
//!   than 8 TiB and servers with less than 24 TiB.
//! * A marker has bits 45 to 43 set whatever its payload is.
//! * The zero word points at frame 0, where no secret should be kept.
//!
//! # Transitions
//!
//! The table of cases is in [`rules`](crate::rules). The manuals on each:
//!
//! * *From not present, and gaining rights: nothing.* Translations come only from entries with P
//!   set and no reserved bit (SDM §4.10.2.3); setting P, R/W, U/S or clearing XD costs a spurious
//!   fault at worst (§4.10.4.3), and the fault drops the stale translation (§4.10.4.1; APM §5.5.2).
//! * *Losing rights or presence, another frame: flush* (SDM §4.10.4.2, APM §5.5.2). A table must
//!   be flushed before its frame is used for anything else: the paging-structure caches may hold it
//!   (§4.10.3).
//! * *Clearing D of a writable leaf: flush*, or later stores go unrecorded; *clearing A: nothing*,
//!   since only a hint is lost (both SDM §4.10.4.3).
//! * *Another size: break.* SDM §4.10.2.3 asks software not to change size and frame, rights or
//!   attributes in one write, and prescribes the way through P = 0. The words do not show a table's
//!   contents, and some CPUs do not tolerate both sizes (AMD family 10h erratum 383; Intel's
//!   CVE-2018-12207), so a flush is enough only where the embedder vouches for the CPU (`relaxed`).
//! * *Another memory type: break*: the order "unmap, flush, map, flush caches" of SDM §12.12.4
//!   (*Programming the PAT*). Flushing the caches is the embedder's part.
//! * *Another frame with write permission: break.* No manual asks for it; the coherence of the
//!   program's own threads does.

mod format;

pub use format::{X86, X86_64, X86_64La57};
