//! Words of page tables: any word has a meaning, and a decoder written from the manuals alone does
//! not contradict it.

use quire_arch::laws::stable;
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Attrs, Entry, Level};
use quire_arch::{Sv39, Sv48, Sv57, X86_64, X86_64La57};
use quire_machine::Config;
use quire_machine::mmu::{Isa, Meaning};
use quire_units::{Pfn, Prot};

/// Each eight bytes are a word, at every level of every format.
///
/// # Panics
/// When a word changes its meaning by being written again, or the two decoders disagree.
pub fn words(bytes: &[u8]) {
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u64::from_le_bytes(word);
        at_all_levels::<X86_64>(Config::x86_64().isa, word);
        at_all_levels::<X86_64La57>(Config::x86_64_la57().isa, word);
        at_all_levels::<Arm4k>(Config::arm64_4k().isa, word);
        at_all_levels::<Arm16k>(Config::arm64_16k().isa, word);
        at_all_levels::<Arm64k>(Config::arm64_64k().isa, word);
        at_all_levels::<Sv39>(Config::riscv64_sv39().isa, word);
        at_all_levels::<Sv48>(Config::riscv64_sv48().isa, word);
        at_all_levels::<Sv57>(Config::riscv64_sv57().isa, word);
    }
}

fn at_all_levels<A: Arch>(isa: Isa, word: u64) {
    for level in (0..A::LEVELS.len() as u8).map(Level::new) {
        // Folded words are unfolded first.
        let plain = match A::is_folded(word, level) {
            true if A::fold_order(level).is_none() => continue,
            true => A::unfold(word, level, 0),
            false => word,
        };
        stable::<A>(plain, level).unwrap_or_else(|broken| panic!("{}: {broken:?}", A::NAME));
        agree::<A>(isa, plain, level);
    }
}

/// The machine's x86-64 has this many physical address bits: higher bits are reserved.
const MACHINE_BITS: u32 = 46;

/// The hardware reads the word that the library writes as the library does.
fn agree<A: Arch>(isa: Isa, word: u64, level: Level) {
    let (entry, at) = (A::decode(word, level), level.index() as u8);
    match entry {
        Entry::Table(frame) if is_in_reach::<A>(frame) && at > 0 => {
            let meaning = isa.decode(A::table(frame), at, 0);
            let is_same = matches!(meaning, Meaning::Table(table) if table.frame == frame);
            assert!(is_same, "{} {word:#x} at {level:?}: {entry:?}, {meaning:?}", A::NAME);
        }
        Entry::Leaf { frame, attrs } if is_nameable::<A>(frame, level) => {
            let meaning = isa.decode(A::leaf(frame, level, attrs), at, 0);
            let is_same = match meaning {
                Meaning::Leaf(leaf) => leaf.frame == frame && grants(attrs, leaf.prot),
                _ => !attrs.intersects(Attrs::RIGHTS),
            };
            assert!(is_same, "{} {word:#x} at {level:?}: {entry:?}, {meaning:?}", A::NAME);
        }
        Entry::Absent | Entry::Marker(_) => {
            let meaning = isa.decode(word, at, 0);
            assert!(!meaning.is_valid(), "{} {word:#x}: {entry:?}, {meaning:?}", A::NAME);
        }
        _ => {}
    }
}

fn is_nameable<A: Arch>(frame: Pfn, level: Level) -> bool {
    let pages = A::order(level).pages();
    A::is_leaf_level(level) && frame.is_aligned(pages) && is_in_reach::<A>(frame)
}

fn is_in_reach<A: Arch>(frame: Pfn) -> bool {
    frame.get() < A::FRAMES.min(1 << (MACHINE_BITS - A::PAGE_SHIFT))
}

/// The attributes grant programs these rights, and no access to the kernel's pages.
fn grants(attrs: Attrs, prot: Prot) -> bool {
    !attrs.contains(Attrs::USER) && prot.is_empty() || attrs.prot().contains(prot)
}

/// A leaf of each format.
pub fn seeds() -> Vec<Vec<u8>> {
    let attrs = Attrs::user(Prot::RW) | Attrs::YOUNG;
    let block = Pfn::new(1 << 13);
    let words = [
        X86_64::leaf(block, Level::new(1), attrs),
        X86_64::leaf(block, Level::LAST, attrs),
        Arm4k::leaf(block, Level::LAST, attrs),
        Arm4k::fold(Arm4k::leaf(block, Level::LAST, attrs), Level::LAST),
        Sv39::leaf(block, Level::LAST, attrs),
        Sv39::fold(Sv39::leaf(block, Level::LAST, attrs), Level::LAST),
    ];
    words.map(|word| word.to_le_bytes().to_vec()).to_vec()
}
