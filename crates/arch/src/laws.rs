//! The laws of [`Arch`] as functions: one suite for every page-table format, also for formats
//! that are not in this crate.
//!
//! [`check`] runs all of them, over every combination of attributes, every level, frames that set
//! each address bit alone and all together, and words from a small deterministic generator. It
//! returns the first violation as [`Broken`]. It needs no heap and no clock.
//!
//! The laws compare encoder and decoder with one another, not with the manual. This crate's tests
//! are the second witness: they read each word by rules written from the manuals alone.

mod fold;

pub use fold::folding;

use core::fmt;

use quire_units::{Order, Pfn, Vpn};

use crate::rules::must_flush;
use crate::{Arch, Attrs, Entry, Level, Transition};

/// A law of [`Arch`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Law {
    /// The constants and the functions derived from them agree: orders are sums of index bits, the
    /// last level holds leaves, an index is below the number of entries, programs' pages fit the
    /// root, contiguous groups fit a table, the preferred order for code is larger than a page and
    /// fits a table, too.
    Geometry,
    /// Zero decodes as absent at every level, and no other encoded word does.
    Zero,
    /// A table's word names its frame, at every level but the last.
    Table,
    /// A leaf's word gives back frame and attributes, plus at most `READ` where `WRITE` or `EXEC`
    /// ties it in; a hidden leaf's exactly. At a level without leaves it is no leaf.
    Leaf,
    /// A marker's word gives back its payload, at every level.
    Marker,
    /// The words of a run of leaves are an arithmetic sequence.
    Run,
    /// Any word decodes, and encoding its meaning and decoding that gives the same meaning.
    Stable,
    /// A change that the hardware cannot see, and a word that stays the same, demand nothing.
    Unseen,
    /// Taking something away demands at least a flush, and two memories at one address a break.
    TooWeak,
    /// Granting more, ageing and soft bits demand nothing; hiding an entry demands no break.
    TooStrong,
    /// [`must_flush`] says of a leaf's new attributes what the transition does.
    Regrant,
    /// A relaxed CPU demands no more than another.
    Relaxed,
    /// A folded word is folded, and no other word is; it unfolds to the word it was made from. A
    /// block's words are an arithmetic sequence. Records have the same bits in folded as in plain
    /// words, and changing folded words demands the same. Folding and unfolding demand what a
    /// change of size does.
    Fold,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Law::Geometry => "the shape of the levels contradicts itself",
            Law::Zero => "the zero word and the absent entry are not the same",
            Law::Table => "a table's word does not give back its frame",
            Law::Leaf => "a leaf's word does not give back its frame and attributes",
            Law::Marker => "a marker's word does not give back its payload",
            Law::Run => "a run of leaves is not an arithmetic sequence",
            Law::Stable => "a word's meaning changes when it is written again",
            Law::Unseen => "a change that no CPU can see demands something",
            Law::TooWeak => "a change demands too little",
            Law::TooStrong => "a change demands too much",
            Law::Regrant => "the rule for new attributes differs from that of the transition",
            Law::Relaxed => "a relaxed CPU demands more than another",
            Law::Fold => "a folded word and its plain one contradict each other",
        })
    }
}

/// A law that does not hold, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The format's name.
    pub arch: &'static str,
    /// Which law.
    pub law: Law,
    /// At which level.
    pub level: Level,
    /// The word for which it does not hold; of a transition, the old one.
    pub word: u64,
    /// The second word, where the law is about two; else the first again.
    pub other: u64,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { arch, law, level, word, other } = self;
        write!(f, "{arch}: {law}: {word:#018x} and {other:#018x} at {level:?}")
    }
}

impl core::error::Error for Broken {}

/// Runs all laws over their whole domains.
///
/// # Errors
/// The first law that does not hold.
pub fn check<A: Arch>() -> Result<(), Broken> {
    geometry::<A>()?;
    zero::<A>()?;
    tables::<A>()?;
    leaves::<A>()?;
    markers::<A>()?;
    runs::<A>()?;
    random_words::<A>(10_000)?;
    transitions::<A>()?;
    folding::<A>()
}

/// [`Law::Geometry`].
///
/// # Errors
/// At the level whose shape is wrong; the words are 0.
pub fn geometry<A: Arch>() -> Result<(), Broken> {
    let mut bits = 0;
    for level in levels::<A>() {
        let shape = A::LEVELS[level.index()];
        let first = A::order(level).pages();
        let fine = A::order(level) == Order::new(bits)
            && A::entries(level) == 1 << shape.index_bits
            && A::index(Vpn::new(first - 1), level) == 0
            && A::index(Vpn::new(first), level) == 1
            && A::index(Vpn::new(u64::MAX), level) == A::entries(level) - 1
            && shape.contiguous < shape.index_bits.max(1)
            && (shape.leaf || shape.contiguous == 0)
            && A::fold_order(level) == block_order(bits, shape.contiguous)
            && (!shape.leaf || A::leaf_level(Order::new(bits)) == level);
        hold::<A>(Law::Geometry, level, 0, 0, fine)?;
        bits += shape.index_bits;
    }
    let reach = 1 << bits;
    let fine = A::LEVELS[0].leaf
        && A::order(Level::LAST) == Order::ZERO
        && A::ROOT.index() + 1 == A::LEVELS.len()
        && (A::USER_PAGES == reach || A::USER_PAGES == reach / 2)
        && u32::from(bits) + A::PAGE_SHIFT <= 64
        && A::FRAMES.is_power_of_two()
        && A::ASID_BITS <= u16::BITS
        && A::exec_order().is_none_or(|order| Order::ZERO < order && order <= A::block_order());
    hold::<A>(Law::Geometry, A::ROOT, 0, 0, fine)
}

/// The order of a contiguous block of 2^`contiguous` leaves of the order `bits`.
fn block_order(bits: u8, contiguous: u8) -> Option<Order> {
    (contiguous > 0).then(|| Order::new(bits + contiguous))
}

/// [`Law::Zero`]; the other laws show that no other encoded word is absent.
///
/// # Errors
/// The level at which zero is something else.
pub fn zero<A: Arch>() -> Result<(), Broken> {
    levels::<A>().try_for_each(|level| {
        hold::<A>(Law::Zero, level, 0, 0, A::decode(0, level) == Entry::Absent)
    })
}

/// [`Law::Table`].
///
/// # Errors
/// The first word that fails.
pub fn tables<A: Arch>() -> Result<(), Broken> {
    for level in levels::<A>() {
        for frame in frames::<A>(Level::LAST) {
            let word = A::table(frame);
            let entry = A::decode(word, level);
            let fine = (entry == Entry::Table(frame)) != level.is_last();
            hold::<A>(Law::Table, level, word, word, fine)?;
        }
    }
    Ok(())
}

/// [`Law::Leaf`].
///
/// # Errors
/// The first word that fails.
pub fn leaves<A: Arch>() -> Result<(), Broken> {
    for level in leaf_levels::<A>() {
        for frame in frames::<A>(level) {
            for attrs in all_attrs() {
                let word = A::leaf(frame, level, attrs);
                let fine = match A::decode(word, level) {
                    Entry::Leaf { frame: back, attrs: got } => back == frame && ties(attrs, got),
                    _ => false,
                };
                hold::<A>(Law::Leaf, level, word, word, fine)?;
            }
        }
    }
    for level in levels::<A>().filter(|&level| !A::is_leaf_level(level)) {
        for attrs in all_attrs() {
            let word = A::leaf(Pfn::new(0), Level::LAST, attrs);
            let fine = !matches!(A::decode(word, level), Entry::Leaf { .. });
            hold::<A>(Law::Leaf, level, word, word, fine)?;
        }
    }
    Ok(())
}

/// [`Law::Marker`].
///
/// # Errors
/// The first word that fails.
pub fn markers<A: Arch>() -> Result<(), Broken> {
    let single = (0..56).map(|bit| 1 << bit);
    let edges = [0, PAYLOADS - 1, PAYLOADS / 3, PAYLOADS / 3 * 2];
    let random = Words::new(0x006d_6172_6b65_7273).map(|word| word % PAYLOADS).take(1000);
    for payload in single.chain(edges).chain(random) {
        let word = A::marker(payload);
        for level in levels::<A>() {
            let fine = A::decode(word, level) == Entry::Marker(payload);
            hold::<A>(Law::Marker, level, word, word, fine)?;
        }
    }
    Ok(())
}

/// [`Law::Run`].
///
/// # Errors
/// The leaf that breaks the sequence, and the word that the sequence has instead.
pub fn runs<A: Arch>() -> Result<(), Broken> {
    for level in leaf_levels::<A>() {
        let pages = A::order(level).pages();
        let starts = frames::<A>(level).map(|frame| frame.get());
        for (start, attrs) in starts.flat_map(|start| all_attrs().map(move |a| (start, a))) {
            let first = A::leaf(Pfn::new(start), level, attrs);
            for count in [1, 2, 511, A::FRAMES / pages / 2] {
                let frame = start + count * pages;
                if frame < A::FRAMES {
                    let word = A::leaf(Pfn::new(frame), level, attrs);
                    let sum = first.wrapping_add(count.wrapping_mul(A::step(level)));
                    hold::<A>(Law::Run, level, word, sum, word == sum)?;
                }
            }
        }
    }
    Ok(())
}

/// [`Law::Stable`] for `count` words of each kind: any, and nearly a leaf.
///
/// # Errors
/// The first word that fails.
pub fn random_words<A: Arch>(count: usize) -> Result<(), Broken> {
    for level in levels::<A>() {
        for word in Words::new(level.index() as u64).take(count) {
            stable::<A>(word, level)?;
        }
    }
    for level in leaf_levels::<A>() {
        let mut words = Words::new(!(level.index() as u64));
        for _ in 0..count {
            let frame = Pfn::new(words.draw() % A::FRAMES).align_down(A::order(level).pages());
            let mut attrs = Attrs::from_bits_truncate(words.draw() as u16);
            attrs.set(Attrs::COMBINING, attrs & Attrs::MEMORY == Attrs::COMBINING);
            let leaf = A::leaf(frame, level, attrs);
            let flips = 1 << (words.draw() % 64) | 1 << (words.draw() % 64);
            stable::<A>(leaf ^ flips, level)?;
        }
    }
    Ok(())
}

/// [`Law::Stable`] for one word.
///
/// # Errors
/// The word and what it became.
pub fn stable<A: Arch>(word: u64, level: Level) -> Result<(), Broken> {
    let entry = A::decode(word, level);
    let again = match entry {
        Entry::Absent => 0,
        Entry::Table(frame) if frame.get() < A::FRAMES => A::table(frame),
        Entry::Leaf { frame, attrs } if nameable::<A>(frame, level) => A::leaf(frame, level, attrs),
        Entry::Marker(payload) if payload < PAYLOADS => A::marker(payload),
        Entry::Malformed => return Ok(()),
        _ => return hold::<A>(Law::Stable, level, word, word, false),
    };
    hold::<A>(Law::Stable, level, word, again, A::decode(again, level) == entry)
}

/// [`Law::Unseen`], [`Law::TooWeak`], [`Law::TooStrong`] and [`Law::Relaxed`], over all pairs of
/// attributes that the hardware uses, with equal and with different frames, and over tables,
/// markers and zero. The library's own flags change in all ways beside each pair, but in all
/// combinations only where nothing else changes.
///
/// # Errors
/// The first pair of words that fails.
pub fn transitions<A: Arch>() -> Result<(), Broken> {
    for level in leaf_levels::<A>() {
        let here = Pfn::new(A::order(level).pages());
        let there = Pfn::new(0);
        for (attrs, next) in hardware_pairs() {
            for (own, becomes) in OWN_CHANGES {
                let old = A::leaf(here, level, attrs | own);
                pair::<A>(old, A::leaf(here, level, next | becomes), level)?;
                pair::<A>(old, A::leaf(there, level, next | becomes), level)?;
            }
        }
        for attrs in all_attrs() {
            let old = A::leaf(here, level, attrs);
            for own in [Attrs::SOFT, Attrs::COW, Attrs::OWN] {
                pair::<A>(old, A::leaf(here, level, attrs ^ own), level)?;
            }
            for other in others::<A>() {
                pair::<A>(old, other, level)?;
                pair::<A>(other, old, level)?;
            }
        }
    }
    for level in levels::<A>() {
        for old in others::<A>() {
            for new in others::<A>() {
                pair::<A>(old, new, level)?;
            }
        }
    }
    Ok(())
}

/// The laws of transitions for one pair of words.
fn pair<A: Arch>(old: u64, new: u64, level: Level) -> Result<(), Broken> {
    let base = A::transition(old, new, level, false);
    let relaxed = A::transition(old, new, level, true);
    hold::<A>(Law::Relaxed, level, old, new, relaxed <= base)?;
    let (from, to) = (A::decode(old, level), A::decode(new, level));
    if from == Entry::Malformed || to == Entry::Malformed {
        return Ok(());
    }
    if old == new || !seen(from) {
        return hold::<A>(Law::Unseen, level, old, new, base == Transition::Nothing);
    }
    let (least, most) = bounds(from, to);
    hold::<A>(Law::TooWeak, level, old, new, relaxed >= least)?;
    hold::<A>(Law::TooStrong, level, old, new, base <= most)?;
    if let (Entry::Leaf { frame, attrs }, Entry::Leaf { frame: target, attrs: next }) = (from, to)
        && frame == target
        && !(attrs ^ next).intersects(Attrs::MEMORY | Attrs::GLOBAL)
    {
        let agrees = must_flush(attrs, next) == (base != Transition::Nothing);
        hold::<A>(Law::Regrant, level, old, new, agrees)?;
    }
    Ok(())
}

/// The least and the most that a change from an entry seen by the hardware may demand.
fn bounds(from: Entry, to: Entry) -> (Transition, Transition) {
    use Transition::{BreakBeforeMake, Flush, Nothing};
    let (Entry::Leaf { frame, attrs: old }, Entry::Leaf { frame: target, attrs: new }) = (from, to)
    else {
        // Tables come or go: another size, or out of sight.
        return (Flush, if seen(to) { BreakBeforeMake } else { Flush });
    };
    if !seen(to) {
        return (Flush, Flush);
    }
    let changed = old ^ new;
    let lost = old - new;
    let writable = (old | new).contains(Attrs::WRITE);
    if changed.intersects(Attrs::MEMORY) || frame != target && writable {
        return (BreakBeforeMake, BreakBeforeMake);
    }
    if frame != target || changed.contains(Attrs::GLOBAL) {
        return (Flush, BreakBeforeMake);
    }
    let unrecorded = lost.contains(Attrs::DIRTY) && old.contains(Attrs::WRITE);
    if lost.intersects(Attrs::RIGHTS) || changed.contains(Attrs::USER) || unrecorded {
        return (Flush, Flush);
    }
    (Nothing, Nothing)
}

/// Whether the hardware uses such an entry.
fn seen(entry: Entry) -> bool {
    match entry {
        Entry::Table(_) => true,
        Entry::Leaf { attrs, .. } => attrs.intersects(Attrs::RIGHTS),
        Entry::Absent | Entry::Marker(_) | Entry::Malformed => false,
    }
}

/// Whether `got` is a faithful decoding of a leaf written with `asked`.
fn ties(asked: Attrs, got: Attrs) -> bool {
    let tied = asked.intersects(Attrs::WRITE | Attrs::EXEC) && got == asked | Attrs::READ;
    let exact = got == asked && (asked.contains(Attrs::READ) || !asked.contains(Attrs::WRITE));
    tied || exact
}

/// Whether a leaf of `level` may stand for the block at `frame`.
fn nameable<A: Arch>(frame: Pfn, level: Level) -> bool {
    let fits = frame.get() < A::FRAMES && frame.is_aligned(A::order(level).pages());
    fits && A::is_leaf_level(level)
}

/// Words that are no leaves: zero, markers, tables.
fn others<A: Arch>() -> impl Iterator<Item = u64> {
    let tables = [A::table(Pfn::new(3)), A::table(Pfn::new(A::FRAMES - 1))];
    [0, A::marker(0), A::marker(PAYLOADS - 1)].into_iter().chain(tables)
}

/// Payloads of markers are below this.
const PAYLOADS: u64 = 1 << 56;

fn levels<A: Arch>() -> impl Iterator<Item = Level> {
    (0..A::LEVELS.len() as u8).map(Level::new)
}

fn leaf_levels<A: Arch>() -> impl Iterator<Item = Level> {
    levels::<A>().filter(|&level| A::is_leaf_level(level))
}

fn all_attrs() -> impl Iterator<Item = Attrs> {
    let all = (0..=Attrs::all().bits()).map(Attrs::from_bits_truncate);
    // A leaf has one memory type.
    all.filter(|attrs| !attrs.contains(Attrs::MEMORY))
}

/// All pairs of attributes without the library's own flags, which would make 16 times as many.
fn hardware_pairs() -> impl Iterator<Item = (Attrs, Attrs)> {
    let hardware = || all_attrs().filter(|attrs| !attrs.intersects(Attrs::OWN));
    hardware().flat_map(move |attrs| hardware().map(move |next| (attrs, next)))
}

/// Changes of the library's own flags beside the others: each is kept, set, cleared and absent.
const OWN_CHANGES: [(Attrs, Attrs); 4] = [
    (Attrs::empty(), Attrs::empty()),
    (Attrs::COW, Attrs::SOFT),
    (Attrs::OWN, Attrs::COW),
    (Attrs::SOFT, Attrs::OWN),
];

/// Frames of blocks of `level`: each address bit alone, no bit, and patterns up to all bits.
fn frames<A: Arch>(level: Level) -> impl Iterator<Item = Pfn> {
    let pages = A::order(level).pages();
    let top = A::FRAMES - 1;
    let single = (0..A::FRAMES.ilog2()).map(|bit| 1 << bit).filter(move |&bit| bit >= pages);
    let patterns = [0, top, top / 3, top / 3 * 2, top / 7];
    single.chain(patterns).map(move |frame| Pfn::new(frame).align_down(pages))
}

fn hold<A: Arch>(law: Law, level: Level, word: u64, other: u64, holds: bool) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { arch: A::NAME, law, level, word, other }) }
}

/// An endless sequence of words from a seed, the same each time (Steele, Lea and Flood: *Fast
/// splittable pseudorandom number generators*, OOPSLA 2014: SplitMix64).
struct Words(u64);

impl Words {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl Iterator for Words {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        Some(self.draw())
    }
}
