//! The hardware's view of a word: a second reading of the manuals, which shares no constant with
//! the encoders, and tests that both readings agree.

use quire_units::{MemoryType, Pfn};

use super::each_format;
use crate::aarch64::Arm64;
use crate::riscv64::Riscv64;
use crate::x86_64::X86;
use crate::{Arch, Attrs, Entry, Level};

/// Loads, stores, instruction fetches.
type Rights = [bool; 3];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sees {
    Fault,
    Table(u64),
    Block {
        frame: u64,
        user: Rights,
        kernel: Rights,
        global: bool,
        memory: MemoryType,
        marks: Marks,
    },
    /// A memory type that no part of the library asks for.
    Surprise(&'static str),
}

/// The bits that the hardware sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marks {
    young: bool,
    stored: bool,
}

/// The hardware of a format, with protection of kernel from user pages (SMEP, SMAP; PAN; SUM = 0).
trait Manual: Arch {
    /// Its reading of a plain word.
    fn sees(word: u64, level: Level) -> Sees;
    /// Its reading of the word at place `index` of a table, and how many entries around it the word
    /// allows the CPU to take as one.
    fn sees_at(word: u64, level: Level, index: u64) -> (Sees, u64);
    /// The word after the CPU recorded a load or a store in it.
    fn record(word: u64, store: bool) -> u64;
}

fn bit(word: u64, at: u32) -> bool {
    word >> at & 1 == 1
}

/// Bits `high` to `low`, both inclusive, moved down to 0.
fn bits(word: u64, high: u32, low: u32) -> u64 {
    (word >> low) % (1 << (high - low + 1))
}

impl<const LEVELS: usize> Manual for X86<LEVELS> {
    /// SDM tables 4-14 to 4-20 and §4.6, §4.9.2; CPUID reports 52 physical address bits.
    fn sees(word: u64, level: Level) -> Sees {
        let height = level.index();
        if !bit(word, 0) || height > 2 && bit(word, 7) {
            return Sees::Fault;
        }
        if height > 0 && !bit(word, 7) {
            let grants_all = bit(word, 1) && bit(word, 2) && !bit(word, 63);
            let cached = bits(word, 4, 3) == 0;
            let fine = grants_all && cached && bits(word, 62, 52) == 0;
            return if fine { Sees::Table(bits(word, 51, 12)) } else { Sees::Surprise("table") };
        }
        let (pat, must_be_zero) = match height {
            0 => (bit(word, 7), 0),
            1 => (bit(word, 12), bits(word, 20, 13)),
            _ => (bit(word, 12), bits(word, 29, 13)),
        };
        if must_be_zero != 0 {
            return Sees::Fault;
        }
        if bits(word, 62, 59) != 0 {
            return Sees::Surprise("protection key");
        }
        let (write, user, exec) = (bit(word, 1), bit(word, 2), !bit(word, 63));
        if !write && bit(word, 6) {
            return Sees::Surprise("shadow stack");
        }
        // The PAT that the format asks of the embedder: WB, WC, UC-, UC.
        let memory = match (pat, bits(word, 4, 3)) {
            (false, 0) => MemoryType::Usual,
            (false, 1) => MemoryType::Combining,
            (false, 3) => MemoryType::Device,
            _ => return Sees::Surprise("memory type"),
        };
        let low = 12 + 9 * height as u32;
        let rights = [true, write, exec];
        let (user, kernel) = if user { (rights, [false; 3]) } else { ([false; 3], rights) };
        let marks = Marks { young: bit(word, 5), stored: bit(word, 6) };
        let frame = bits(word, 51, low) << (low - 12);
        Sees::Block { frame, user, kernel, global: bit(word, 8), memory, marks }
    }

    /// No word describes its neighbours.
    fn sees_at(word: u64, level: Level, _index: u64) -> (Sees, u64) {
        (Self::sees(word, level), 1)
    }

    fn record(word: u64, store: bool) -> u64 {
        if store { word | 0x60 } else { word | 0x20 }
    }
}

impl<const GRANULE: u32> Manual for Arm64<GRANULE> {
    /// Arm ARM §D8.3 to §D8.5: stage 1, EL1&0, 48-bit output addresses, no WXN.
    fn sees(word: u64, level: Level) -> Sees {
        let height = level.index() as u32;
        let may_block = match GRANULE {
            12 => height <= 2,
            _ => height <= 1,
        };
        let table = match (bits(word, 1, 0), height) {
            (0 | 2, _) | (1, 0) => return Sees::Fault,
            (3, 0) => false,
            (3, _) => true,
            _ if may_block => false,
            _ => return Sees::Fault,
        };
        if table {
            // NSTable, APTable, UXNTable and PXNTable take rights away.
            let fine = bits(word, 63, 59) == 0 && bits(word, 50, 48) == 0;
            let frame = bits(word, 47, GRANULE);
            return if fine { Sees::Table(frame) } else { Sees::Surprise("table") };
        }
        let low = GRANULE + height * (GRANULE - 3);
        let below = (word % (1 << low)) >> 12;
        let reserved = below != 0 || bits(word, 50, 48) != 0;
        if reserved || bit(word, 5) || bits(word, 9, 8) != 3 || bits(word, 63, 59) != 0 {
            return Sees::Surprise("reserved bits, NS, SH or PBHA");
        }
        let memory = match bits(word, 4, 2) {
            0 => MemoryType::Usual,
            1 => MemoryType::Device,
            2 => MemoryType::Combining,
            _ => return Sees::Surprise("MAIR index"),
        };
        let (stored, write) = (!bit(word, 7), !bit(word, 7) || bit(word, 51));
        let open = bit(word, 6);
        let user = [open, open && write, !bit(word, 54)];
        // The kernel never executes pages that programs may store to; PAN keeps it off user pages.
        let kernel_exec = !(bit(word, 53) || open && write);
        let kernel = [!open, !open && write, kernel_exec];
        let marks = Marks { young: bit(word, 10), stored };
        let frame = bits(word, 47, low) << (low - GRANULE);
        Sees::Block { frame, user, kernel, global: !bit(word, 11), memory, marks }
    }

    /// Arm ARM, the table of the Contiguous bit by granule and level of lookup.
    fn sees_at(word: u64, level: Level, _index: u64) -> (Sees, u64) {
        let seen = Self::sees(word, level);
        let group = match (GRANULE, level.index()) {
            (12, 0..=2) => 16,
            (14, 0) => 128,
            (14, 1) | (16, 0 | 1) => 32,
            _ => 1,
        };
        let joined = bit(word, 52) && matches!(seen, Sees::Block { .. });
        (seen, if joined { group } else { 1 })
    }

    fn record(word: u64, store: bool) -> u64 {
        let touched = word | 1 << 10;
        if store { touched & !(1 << 7) } else { touched }
    }
}

impl<const LEVELS: usize> Manual for Riscv64<LEVELS> {
    /// Privileged Architecture, *Virtual Address Translation Process*, with Svpbmt.
    fn sees(word: u64, level: Level) -> Sees {
        let rights = [bit(word, 1), bit(word, 2), bit(word, 3)];
        if !bit(word, 0) || rights[1] && !rights[0] || bits(word, 60, 54) != 0 {
            return Sees::Fault;
        }
        let height = level.index() as u32;
        if rights == [false; 3] {
            let reserved = bit(word, 4) || bits(word, 7, 6) != 0 || bits(word, 63, 61) != 0;
            let fault = height == 0 || reserved;
            return if fault { Sees::Fault } else { Sees::Table(bits(word, 53, 10)) };
        }
        let low = 10 + 9 * height;
        if height > 0 && bits(word, low - 1, 10) != 0 || bits(word, 62, 61) == 3 {
            return Sees::Fault;
        }
        let memory = match bits(word, 62, 61) {
            _ if bit(word, 63) => return Sees::Surprise("napot"),
            0 => MemoryType::Usual,
            1 => MemoryType::Combining,
            2 => MemoryType::Device,
            _ => return Sees::Surprise("memory type"),
        };
        let user = bit(word, 4);
        let (user, kernel) = if user { (rights, [false; 3]) } else { ([false; 3], rights) };
        let marks = Marks { young: bit(word, 6), stored: bit(word, 7) };
        Sees::Block { frame: bits(word, 53, 10), user, kernel, global: bit(word, 5), memory, marks }
    }

    /// The chapter on Svnapot: an implicit read yields the word with the low four bits of its PPN
    /// replaced by those of the page number; all encodings but one are reserved and fault.
    fn sees_at(word: u64, level: Level, index: u64) -> (Sees, u64) {
        if !bit(word, 63) {
            return (Self::sees(word, level), 1);
        }
        if level.index() > 0 || bits(word, 13, 10) != 8 {
            return (Sees::Fault, 1);
        }
        let copy = word % (1 << 63) - (8 << 10) + ((index % 16) << 10);
        match Self::sees(copy, level) {
            Sees::Block { .. } => (Self::sees(copy, level), 16),
            other => (other, 1),
        }
    }

    fn record(word: u64, store: bool) -> u64 {
        if store { word | 0xc0 } else { word | 0x40 }
    }
}

fn all_attrs() -> impl Iterator<Item = Attrs> {
    let all = (0..=Attrs::all().bits()).map(Attrs::from_bits_truncate);
    all.filter(|attrs| !attrs.contains(Attrs::MEMORY))
}

fn levels<A: Arch>() -> impl Iterator<Item = Level> {
    (0..A::LEVELS.len() as u8).map(Level::new)
}

fn frames<A: Arch>(level: Level) -> [Pfn; 4] {
    let top = A::FRAMES - 1;
    [0, top, top / 3, top / 3 * 2].map(|n| Pfn::new(n).align_down(A::order(level).pages()))
}

/// Every leaf that can be written: level, frame, attributes asked for.
fn all_leaves<A: Arch>() -> impl Iterator<Item = (Level, Pfn, Attrs)> {
    levels::<A>().filter(|&level| A::is_leaf_level(level)).flat_map(|level| {
        frames::<A>(level)
            .into_iter()
            .flat_map(move |frame| all_attrs().map(move |attrs| (level, frame, attrs)))
    })
}

fn hidden_leaves_markers_and_zero_fault<A: Manual>() {
    for (level, frame, attrs) in all_leaves::<A>() {
        let fault = A::sees(A::leaf(frame, level, attrs), level) == Sees::Fault;
        assert_eq!(fault, !attrs.intersects(Attrs::RIGHTS), "{attrs:?} at {level:?}");
    }
    for level in levels::<A>() {
        assert_eq!(A::sees(0, level), Sees::Fault);
        for payload in (0..56).map(|bit| 1 << bit).chain([0, u64::MAX >> 8]) {
            assert_eq!(A::sees(A::marker(payload), level), Sees::Fault, "{payload:#x}");
        }
    }
}

fn leaves_grant_what_they_say<A: Manual>() {
    for (level, frame, asked) in all_leaves::<A>().filter(|(.., a)| a.intersects(Attrs::RIGHTS)) {
        let word = A::leaf(frame, level, asked);
        let Entry::Leaf { attrs, .. } = A::decode(word, level) else {
            panic!("{word:#x} is no leaf")
        };
        let [read, write, exec] =
            [Attrs::READ, Attrs::WRITE, Attrs::EXEC].map(|right| attrs.contains(right));
        let Sees::Block { frame: at, user, kernel, global, memory, marks } = A::sees(word, level)
        else {
            panic!("{word:#x} is {:?}", A::sees(word, level))
        };
        assert_eq!(at, frame.get());
        assert_eq!(global, attrs.contains(Attrs::GLOBAL));
        assert_eq!(Attrs::memory(memory), attrs & Attrs::MEMORY);
        assert_eq!(marks.young, attrs.contains(Attrs::YOUNG));
        if write {
            assert_eq!(marks.stored, attrs.contains(Attrs::DIRTY), "{attrs:?}");
        }
        if attrs.contains(Attrs::USER) {
            assert_eq!(user, [read, write, exec], "{attrs:?}");
            assert!(!kernel[2], "the kernel may execute {attrs:?}");
        } else {
            assert_eq!((user, kernel), ([false; 3], [read, write, exec]), "{attrs:?}");
        }
    }
}

fn tables_take_nothing_away<A: Manual>() {
    for level in levels::<A>().filter(|level| !level.is_last()) {
        for frame in frames::<A>(Level::LAST) {
            assert_eq!(A::sees(A::table(frame), level), Sees::Table(frame.get()));
        }
    }
}

/// The CPU's records (accessed, dirty) give the word that the encoder would have written.
fn records_are_spelled_alike<A: Manual>() {
    for (level, frame, attrs) in all_leaves::<A>().filter(|(.., a)| a.intersects(Attrs::RIGHTS)) {
        let word = A::leaf(frame, level, attrs);
        let young = attrs | Attrs::YOUNG;
        assert_eq!(A::record(word, false), A::leaf(frame, level, young), "{attrs:?}");
        if attrs.contains(Attrs::WRITE) {
            let dirty = A::leaf(frame, level, young | Attrs::DIRTY);
            assert_eq!(A::record(word, true), dirty, "{attrs:?}");
        }
    }
}

/// A word that the decoder accepts means the same to the hardware, whatever wrote it.
fn decoded_leaves_are_seen<A: Manual>(word: u64, level: Level) {
    match A::decode(word, level) {
        Entry::Leaf { frame, attrs } if attrs.intersects(Attrs::RIGHTS) => {
            let Sees::Block { frame: at, user, .. } = A::sees(word, level) else {
                // Dirty without write permission: the race of older CPUs, see `x86_64`.
                assert_eq!(A::sees(word, level), Sees::Surprise("shadow stack"), "{word:#x}");
                return;
            };
            assert_eq!(at, frame.get());
            assert_eq!(user != [false; 3], attrs.contains(Attrs::USER), "{word:#x}");
        }
        Entry::Table(frame) => assert_eq!(A::sees(word, level), Sees::Table(frame.get())),
        Entry::Malformed => {}
        _ => assert_eq!(A::sees(word, level), Sees::Fault, "{word:#x}"),
    }
}

/// Each leaf with each bit, and each pair of bits, turned over.
fn damaged_leaves_mean_what_the_hardware_sees<A: Manual>() {
    for (level, frame, attrs) in all_leaves::<A>().filter(|(.., a)| a.bits() % 23 == 0) {
        let word = A::leaf(frame, level, attrs);
        for (one, two) in (0..64).flat_map(|one| (0..=one).map(move |two| (one, two))) {
            decoded_leaves_are_seen::<A>(word ^ (1 << one | 1 << two), level);
        }
    }
}

/// Leaves within contiguous blocks: level, place in the table, attributes, word.
fn members<A: Arch>() -> impl Iterator<Item = (Level, u64, Attrs, u64)> {
    let leaves = all_leaves::<A>().filter(|(.., attrs)| attrs.intersects(Attrs::RIGHTS));
    leaves.filter_map(|(level, frame, attrs)| {
        A::fold_order(level)?;
        let index = frame.get() >> A::order(level).get() & (A::entries(level) as u64 - 1);
        Some((level, index, attrs, A::leaf(frame, level, attrs)))
    })
}

/// A folded word means the same as the plain one, and the CPU may take all the block's entries as
/// one.
fn folded_leaves_are_joined<A: Manual>() {
    for (level, index, attrs, word) in members::<A>() {
        let folded = A::fold(word, level);
        let block = 1 << A::LEVELS[level.index()].contiguous;
        assert_eq!(A::sees_at(word, level, index), (A::sees(word, level), 1), "{attrs:?}");
        assert_eq!(A::sees_at(folded, level, index), (A::sees(word, level), block), "{attrs:?}");
        for store in [false, true].into_iter().filter(|s| !s || attrs.contains(Attrs::WRITE)) {
            let recorded = A::fold(A::record(word, store), level);
            assert_eq!(A::record(folded, store), recorded, "{attrs:?}");
        }
    }
}

/// Whatever bit is damaged, `is_folded` and the unfolded word agree with the hardware.
fn damaged_folds_mean_what_the_hardware_sees<A: Manual>() {
    for (level, index, _, word) in members::<A>().filter(|(_, _, a, _)| a.bits() % 23 == 0) {
        let folded = A::fold(word, level);
        for (one, two) in (0..64).flat_map(|one| (0..=one).map(move |two| (one, two))) {
            let damaged = folded ^ (1 << one | 1 << two);
            let (seen, joined) = A::sees_at(damaged, level, index);
            if joined > 1 {
                assert!(A::is_folded(damaged, level), "{damaged:#x}");
            }
            if A::is_folded(damaged, level) {
                let plain = A::unfold(damaged, level, index as usize);
                assert_eq!(A::sees(plain, level), seen, "{damaged:#x}");
            }
        }
    }
}

each_format!(hidden, A => hidden_leaves_markers_and_zero_fault::<A>());
each_format!(grants, A => leaves_grant_what_they_say::<A>());
each_format!(tables, A => tables_take_nothing_away::<A>());
each_format!(records, A => records_are_spelled_alike::<A>());
each_format!(damaged, A => damaged_leaves_mean_what_the_hardware_sees::<A>());
each_format!(c1_folded, A => folded_leaves_are_joined::<A>());
each_format!(c1_damaged_folds, A => damaged_folds_mean_what_the_hardware_sees::<A>());
