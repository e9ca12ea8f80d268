//! The baseline: fork, zap and protect page by page, as kernels did before they batched.
//!
//! It works on tables of its own, plain words in the host's memory, which map the very folios that
//! the library has populated: the same slots, the same counts, the same words as the library
//! encodes them. For each entry it loads the word, finds the folio, changes one count, and writes
//! one word. It is as good as such a loop can be:
//!
//! * it takes no locks, and consults no policy;
//! * words are not encoded anew: a mask gives the frame, and the change of the other bits is worked
//!   out once for as long as they stay the same;
//! * a word that the hardware cannot change meanwhile is stored; only others are exchanged;
//! * frames are freed in batches, and flushed once for each of them.
//!
//! The folio of each page is looked up, as in kernels. A second form remembers the folio of the
//! page before, and looks further only where that ends: half a step towards runs.
//!
//! Like the library, it takes a frame for each table of the child, and clears it; that frame is not
//! in the caches, as it is not in a kernel. Its words then go into the host's memory, which is.

use quire::inject::{Folio, Folios};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::{Flush, FrameRun, Hardware, Memory, Pieces, Reuse};
use quire_units::{CpuSet, Order, Pfn, Prot};

use crate::bench::scene::{CPU, Scene};

/// Frames that are gathered before they are flushed and freed. Linux gathers up to 10,000.
const BATCH: usize = 8192;

/// Last-level tables, one after the other, as plain words.
pub(super) struct Words<A> {
    words: Vec<AtomicU64>,
    level: Level,
    /// The frames that these tables would be in.
    frames: Vec<FrameRun>,
    arch: PhantomData<A>,
}

/// The system as the loops see it.
pub(super) struct Pages<'s, 'm, 'r, A> {
    scene: &'s Scene<'s, 'm, 'r, A>,
    folios: Folios<'m>,
    /// The folio of the page before is tried first.
    remembers: bool,
    /// The CPUs that a flush goes to.
    cpus: CpuSet,
}

impl<A: Arch> Words<A> {
    /// The words of all leaves of the scene's area.
    pub(super) fn of(scene: &Scene<'_, '_, '_, A>) -> Result<Words<A>> {
        let (mut words, mut level) = (Vec::new(), Level::LAST);
        quire::check::leaves(scene.mm, &scene.space, |leaf| {
            level = leaf.level;
            words.push(AtomicU64::new(A::leaf(leaf.frame, leaf.level, leaf.attrs)));
        })?;
        Ok(Words { words, level, frames: Vec::new(), arch: PhantomData })
    }

    /// As many words of tables that are yet to be made; their memory has been touched.
    pub(super) fn unmade(&self) -> Words<A> {
        let words = (0..self.words.len()).map(|_| AtomicU64::new(1)).collect();
        let frames = Vec::with_capacity(self.words.len());
        Words { words, level: self.level, frames, arch: PhantomData }
    }

    /// How many entries they have; for tests.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// The attributes that all entries have in common; for tests.
    #[cfg(test)]
    pub(super) fn attrs(&self) -> Attrs {
        let attrs = |word: &AtomicU64| match A::decode(word.load(Ordering::Relaxed), self.level) {
            Entry::Leaf { attrs, .. } => attrs,
            _ => Attrs::empty(),
        };
        self.words.iter().map(attrs).fold(Attrs::all(), |a, b| a & b)
    }
}

impl<'s, 'm, 'r, A: Arch> Pages<'s, 'm, 'r, A> {
    pub(super) fn new(scene: &'s Scene<'s, 'm, 'r, A>, remembers: bool) -> Self {
        let cpus = CpuSet::new();
        cpus.insert(CPU);
        Pages { scene, folios: Folios::new(scene.mm.bare_phys().meta()), remembers, cpus }
    }

    /// Gives `child` what `parent` has, and takes the right to write from both.
    pub(super) fn fork(&self, parent: &Words<A>, child: &mut Words<A>) -> Result<()> {
        let (level, entries) = (parent.level, A::entries(parent.level));
        let mut found = Found { folios: self.folios, remembers: self.remembers, last: None };
        let mut flags = Flags::<A, _>::new(level, |attrs| {
            let shared = attrs.difference(Attrs::WRITE);
            shared | if attrs == shared { Attrs::empty() } else { Attrs::COW }
        });
        let mut lost = false;
        for (from, to) in parent.words.chunks(entries).zip(child.words.chunks_mut(entries)) {
            let frame = self.scene.mm.bare_phys().alloc(CPU, Order::ZERO);
            let frame = frame.context("no frame for a table")?;
            self.scene.machine.clear(&frame, 0..1, Reuse::Soon);
            child.frames.push(frame);
            for (from, to) in from.iter().zip(to) {
                let old = from.load(Ordering::Relaxed);
                *to.get_mut() = 0;
                let Some(frame) = flags.look(old) else { continue };
                let Some(folio) = found.folio(frame) else { continue };
                self.folios.get(folio);
                let new = flags.changed(old);
                if new != old {
                    flags.write(from, old, new);
                    lost = true;
                }
                *to.get_mut() = new;
            }
        }
        if lost {
            self.flush(level);
        }
        Ok(())
    }

    /// Clears all entries and drops their counts; frees folios without references, and the tables.
    pub(super) fn zap(&self, words: &mut Words<A>) {
        let mut found = Found { folios: self.folios, remembers: self.remembers, last: None };
        let mut gathered: Vec<Pfn> = Vec::with_capacity(BATCH);
        let level = words.level;
        let mut flags = Flags::<A, _>::new(level, |attrs| attrs);
        for batch in words.words.chunks(BATCH) {
            for word in batch {
                let old = word.load(Ordering::Relaxed);
                let Some(frame) = flags.look(old) else { continue };
                word.store(0, Ordering::Release);
                gathered.push(frame);
            }
            self.flush(level);
            for frame in gathered.drain(..) {
                let last = found.folio(frame).and_then(|folio| self.folios.put(folio));
                if let Some(run) = last {
                    self.scene.mm.bare_phys().free(CPU, run);
                    found.forget();
                }
            }
        }
        words.frames.drain(..).for_each(|frame| self.scene.mm.bare_phys().free(CPU, frame));
    }

    /// Gives all entries the rights `prot`.
    pub(super) fn protect(&self, words: &Words<A>, prot: Prot) {
        let mut flags = Flags::<A, _>::new(words.level, |attrs| {
            let shared = attrs.contains(Attrs::COW);
            attrs.with_prot(if shared { prot.difference(Prot::WRITE) } else { prot })
        });
        let mut lost = false;
        for word in &words.words {
            let old = word.load(Ordering::Relaxed);
            if flags.look(old).is_none() {
                continue;
            }
            let new = flags.changed(old);
            if new != old {
                flags.write(word, old, new);
                lost |= flags.loses;
            }
        }
        if lost {
            self.flush(words.level);
        }
    }

    /// Takes one reference for each entry, so that the folios live when their area is gone.
    pub(super) fn hold(&self, words: &Words<A>) {
        for word in &words.words {
            let word = word.load(Ordering::Relaxed);
            let Entry::Leaf { frame, .. } = A::decode(word, words.level) else { continue };
            self.folios.of(frame).into_iter().for_each(|folio| self.folios.get(folio));
        }
    }

    fn flush(&self, level: Level) {
        let space = &self.scene.space;
        self.scene.machine.flush(&Flush {
            asid: space.asid(),
            root: space.root(),
            pages: Some(Pieces::new(self.scene.span, A::order(level))),
            tables: false,
            cpus: &self.cpus,
        });
    }
}

/// The folio of one page after another.
struct Found<'m> {
    folios: Folios<'m>,
    remembers: bool,
    last: Option<Folio>,
}

impl Found<'_> {
    /// The folio that holds `frame`.
    #[inline]
    fn folio(&mut self, frame: Pfn) -> Option<Folio> {
        match self.last {
            Some(folio) if self.remembers && folio.span().contains(frame) => {}
            _ => self.last = self.folios.of(frame),
        }
        self.last
    }

    /// The folio found last is gone.
    #[inline]
    fn forget(&mut self) {
        self.last = None;
    }
}

/// The meaning of the bits beside the frame, for as long as they are the same.
struct Flags<A, C> {
    level: Level,
    /// The bits that name the frame, and the place of their lowest.
    frame_bits: u64,
    frame_at: u32,
    /// The change of a leaf's attributes.
    change: C,
    /// The other bits of the word seen last, and what they become; no leaf has all of them.
    now: u64,
    new: u64,
    /// Whether the hardware cannot change such a word.
    settled: bool,
    /// Whether the change takes a right away.
    loses: bool,
    arch: PhantomData<A>,
}

impl<A: Arch, C: Fn(Attrs) -> Attrs> Flags<A, C> {
    fn new(level: Level, change: C) -> Self {
        let word = |frame| A::leaf(Pfn::new(frame), Level::LAST, Attrs::READ | Attrs::USER);
        let frame_bits = word(0) ^ word(A::FRAMES - 1);
        let frame_at = (word(0) ^ word(1)).trailing_zeros();
        let (settled, loses, arch) = (false, false, PhantomData);
        Flags { level, frame_bits, frame_at, change, now: !0, new: 0, settled, loses, arch }
    }

    /// The frame that `word` maps, if it is a leaf.
    #[inline]
    fn look(&mut self, word: u64) -> Option<Pfn> {
        if word & !self.frame_bits != self.now {
            self.learn(word)?;
        }
        Some(Pfn::new((word & self.frame_bits) >> self.frame_at))
    }

    #[cold]
    fn learn(&mut self, word: u64) -> Option<()> {
        let Entry::Leaf { frame, attrs } = A::decode(word, self.level) else { return None };
        let new = (self.change)(attrs);
        self.now = word & !self.frame_bits;
        self.new = A::leaf(frame, self.level, new) & !self.frame_bits;
        self.settled = is_settled(attrs);
        self.loses = !new.contains(attrs & Attrs::RIGHTS);
        Some(())
    }

    /// The new word for `word`, which was looked at last.
    #[inline]
    fn changed(&self, word: u64) -> u64 {
        word & self.frame_bits | self.new
    }

    /// Replaces `old` by `new`, and keeps the accessed and dirty bits that the hardware sets
    /// meanwhile.
    #[inline]
    fn write(&self, word: &AtomicU64, mut old: u64, mut new: u64) {
        if self.settled {
            return word.store(new, Ordering::Release);
        }
        while let Err(now) = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed) {
            let Entry::Leaf { frame, attrs } = A::decode(now, self.level) else { return };
            (old, new) = (now, A::leaf(frame, self.level, (self.change)(attrs)));
        }
    }
}

/// Whether the accessed bit is set, and the dirty bit where the leaf is writable.
fn is_settled(attrs: Attrs) -> bool {
    let dirty = attrs.contains(Attrs::DIRTY) || !attrs.contains(Attrs::WRITE);
    dirty && attrs.contains(Attrs::YOUNG)
}

#[cfg(test)]
mod tests;
