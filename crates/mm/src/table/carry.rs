//! Carrying entries from one table to others.
//!
//! ```text
//!   old table       |   | A+7 | B | C+2 | C+3 |   |  marks  |
//!                          │ load a batch of words, zero them, store them there
//!   new table   |         | A+7 | B | C+2 | C+3 |   |  marks  |
//! ```
//!
//! The word of a leaf says nothing of its page. So leaves that differ in their frames alone move as
//! words, a batch at a time, whatever folios they map: nothing is decoded but the first. Contiguous
//! blocks stay folded where the new place is aligned alike, and become single leaves elsewhere. All
//! other runs (markers, foreign leaves, leaves in which the hardware may still set bits of a whole
//! block) move one by one.

use core::ops::Range;

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Pfn, Vpn};

use super::lock::BATCH;
use super::run::Stretch;
use super::word::{is_foreign, is_settled, plain};
use super::{Locked, Marks, Run, Tables, What};
use crate::folio::{Folios, Home};

/// Leaves of at least this many consecutive frames are written as a sequence.
const LONG: usize = 8;

/// How far entries were moved.
#[derive(Clone, Copy)]
pub(super) struct Moved {
    /// All entries before this page have moved.
    pub(super) upto: Vpn,
    /// How many.
    pub(super) entries: usize,
}

/// The homes of folios that come to other pages.
struct Homes<'a> {
    folios: Folios<'a>,
    /// The new home of the tree's page 0.
    zero: Home,
    /// The folio that came last.
    last: FrameSpan,
    /// The difference of its pages and frames.
    ahead: u64,
}

impl Homes<'_> {
    /// Records that pages from `page` on map `frames`. Frames of no folio have no home.
    #[inline(always)]
    fn settle(&mut self, mut page: Vpn, mut frames: FrameSpan) {
        while frames.count > 0 {
            let home = Home { page, ..self.zero };
            let done = match self.folios.settle_pages(frames, home) {
                0 => self.settle_part(home, frames.start).min(frames.count),
                pages => pages,
            };
            (page, frames) =
                (page.add(done), FrameSpan::new(frames.start.add(done), frames.count - done));
        }
    }

    /// The same for the first frame, which may be part of a larger folio. Returns how many pages
    /// from there on may belong to it.
    #[inline(never)]
    fn settle_part(&mut self, home: Home, frame: Pfn) -> u64 {
        let ahead = home.page.get().wrapping_sub(frame.get());
        if !self.last.contains(frame) || ahead != self.ahead {
            let Some(folio) = self.folios.settle(frame, home) else { return 1 };
            (self.last, self.ahead) = (folio.span(), ahead);
        }
        self.last.end().offset_from(frame)
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Moves the entries of `pages` to `new` in `target`, a table of the same level, up to one that
    /// leads to a lower table.
    pub(super) fn hand_over(&self, pages: PageSpan, target: &Self, new: Vpn) -> Moved {
        let Range { start, end } = self.entries(pages);
        let (to, mut at, mut entries) = (target.index(new), start, 0);
        self.part(start, end - start);
        let in_step = (to ^ start) & (self.width() - 1) == 0;
        let mut homes = Homes {
            folios: Folios::new(self.tables.meta),
            zero: self.tables.home(Vpn::new(0)),
            last: FrameSpan::new(Pfn::new(0), 0),
            ahead: 0,
        };
        while at < end && self.present() > 0 {
            let there = (target, to + (at - start));
            let mut count = self.hand_over_words(at..end, there, in_step, &mut homes);
            if count == 0 {
                let run = self.run(at, end);
                match run.what {
                    What::Table(_) => return Moved { upto: self.page(at), entries },
                    What::Absent => {
                        at += run.count;
                        continue;
                    }
                    _ => self.hand_over_run(&run, target, there.1),
                }
                count = run.count;
            }
            (at, entries) = (at + count, entries + count);
        }
        if entries > 0 {
            match in_step {
                // Whole blocks stay as they were; a part may complete one that is there.
                true => target.refold_ends(to, end - start),
                false => target.refold(to, end - start),
            }
        }
        Moved { upto: pages.end, entries }
    }

    /// Moves leaves that differ in their frames alone, from the first of `entries` on, to another
    /// table and entry. Returns how many: none where they do not go as words.
    #[inline(always)]
    fn hand_over_words(
        &self,
        entries: Range<usize>,
        (target, to): (&Self, usize),
        in_step: bool,
        homes: &mut Homes<'_>,
    ) -> usize {
        let (at, raw) = (entries.start, self.raw(entries.start));
        let Entry::Leaf { frame, attrs } = self.meaning(raw, at) else { return 0 };
        // The home of a folio that other spaces may map stays what it is for them.
        let homes = (!attrs.contains(Attrs::COW)).then_some(homes);
        let settled = is_settled(attrs);
        if is_foreign(attrs) || !settled && self.folded() > 0 {
            return 0;
        }
        let stretch = self.stretch(at, entries.end, raw);
        if settled && stretch.count >= LONG {
            self.hand_over_stretch(stretch, frame, (target, to), in_step, homes);
            return stretch.count;
        }
        self.hand_over_batch(entries, settled, (target, to), in_step, homes)
    }

    /// Moves leaves of consecutive frames, from `frame` on.
    #[inline(always)]
    fn hand_over_stretch(
        &self,
        s: Stretch,
        frame: Pfn,
        (target, to): (&Self, usize),
        in_step: bool,
        homes: Option<&mut Homes<'_>>,
    ) {
        let raw = if in_step { s.raw } else { plain::<A>(s.raw, self.level(), s.index) };
        let blocks = |raw| if self.is_folded(raw) { (s.count / self.width()) as i64 } else { 0 };
        self.fill(s.index, s.count, 0, 0);
        self.add(-(s.count as i64), -blocks(s.raw));
        target.fill_stretch(&Stretch { index: to, raw, ..s });
        target.add(s.count as i64, blocks(raw));
        if let Some(homes) = homes {
            homes.settle(target.page(to), self.frames(frame, s.count));
        }
    }

    /// Moves leaves of any frames, as many as a batch holds.
    #[inline(always)]
    fn hand_over_batch(
        &self,
        entries: Range<usize>,
        settled: bool,
        (target, to): (&Self, usize),
        in_step: bool,
        homes: Option<&mut Homes<'_>>,
    ) -> usize {
        let (at, mut most) = (entries.start, BATCH.min(entries.end - entries.start));
        let has_blocks = self.folded() > 0;
        if has_blocks && at + most < entries.end {
            // No batch ends within a contiguous block.
            most = most.saturating_sub((at + most) & (self.width() - 1));
        }
        let mut words = [0; BATCH];
        self.load_words(at, &mut words[..most]);
        let homes = homes.map(|homes| (homes, target.page(to)));
        let (mut count, mut blocks) = (self.alike_in(&words[..most], at, homes), 0);
        if has_blocks {
            (count, blocks) = self.whole_blocks(&mut words[..count], at, in_step);
        }
        if settled {
            self.fill(at, count, 0, 0);
        } else {
            // The hardware may still set bits: a word that has changed is read anew.
            let gone = |&ahead: &usize| self.exchange(at + ahead, words[ahead], 0).is_ok();
            count = (0..count).take_while(gone).count();
        }
        self.add(-(count as i64), -blocks);
        target.store_words(to, &words[..count]);
        target.add(count as i64, if in_step { blocks } else { 0 });
        count
    }

    /// How many of `words`, those from entry `at` on, are leaves that differ from the one decoded
    /// last in their frames alone. `homes` gets those of the folios, from this page on.
    #[inline(always)]
    fn alike_in(&self, words: &[u64], at: usize, homes: Option<(&mut Homes<'_>, Vpn)>) -> usize {
        let (sample, unit) = (self.sample(), self.unit().pages());
        let frame = |(ahead, word): (usize, &u64)| {
            sample.read::<A>(plain::<A>(*word, self.level(), at + ahead)).map(|(frame, _)| frame)
        };
        let frames = words.iter().enumerate().map_while(frame);
        let Some((homes, mut page)) = homes else { return frames.count() };
        frames.fold(0, |count, frame| {
            homes.settle(page, FrameSpan::new(frame, unit));
            page = page.add(unit);
            count + 1
        })
    }

    /// How many of `words`, those from entry `at` on, belong to no contiguous block or to a whole
    /// one, and how many blocks these are. Where they cannot stay blocks (`in_step`), their words
    /// become those of single leaves.
    fn whole_blocks(&self, words: &mut [u64], at: usize, in_step: bool) -> (usize, i64) {
        let (width, mut count, mut blocks) = (self.width(), words.len(), 0);
        let cut = (at + count) & (width - 1);
        if cut > 0 && cut <= count && self.is_folded(words[count - cut]) {
            count -= cut;
        }
        for (ahead, word) in words[..count].iter_mut().enumerate() {
            let is_first = (at + ahead) & (width - 1) == 0;
            blocks += i64::from(is_first && self.is_folded(*word));
            *word = if in_step { *word } else { plain::<A>(*word, self.level(), at + ahead) };
        }
        (count, blocks)
    }

    /// Moves one run of leaves or markers to entry `to`, with all bits noted.
    fn hand_over_run(&self, run: &Run, target: &Self, to: usize) {
        match run.what {
            What::Marker(marks) => {
                self.clear(run.index, run.count);
                target.mark(to, run.count, marks);
            }
            What::Leaf { frame, .. } => self.withdraw(run, |ahead, count, attrs| {
                let from = self.frames(frame, ahead).end();
                target.put_any(to + ahead, count, from, attrs);
                target.settle_in(to + ahead, count, from, attrs);
            }),
            What::Absent | What::Table(_) => {}
        }
    }

    /// Moves the entries of `pages` to `new`, where they go into tables of the lower `level`, up to
    /// one that leads to a lower table here.
    pub(super) fn hand_down(&self, pages: PageSpan, level: Level, new: Vpn) -> Moved {
        let all = self.entries(pages);
        self.part(all.start, all.len());
        let (mut at, mut entries) = (pages.start, 0);
        while at < pages.end {
            let (run, end) = self.run_in(at, pages.end);
            let there = new.add(at.offset_from(pages.start));
            match run.what {
                What::Table(_) => break,
                What::Absent => {}
                What::Leaf { frame, .. } => {
                    self.spread_leaves(&run, frame, level, there);
                    entries += run.count;
                }
                What::Marker(_) => {
                    self.spread_marks(&run, level, there);
                    entries += run.count;
                }
            }
            at = end;
        }
        Moved { upto: at, entries }
    }

    /// Moves a run of leaves, from `frame` on, to `new` in tables of the lower `level`.
    fn spread_leaves(&self, run: &Run, frame: Pfn, level: Level, new: Vpn) {
        self.withdraw(run, |ahead, count, attrs| {
            let frames = self.frames(frame, ahead);
            let start = new.add(frames.count);
            let pages = PageSpan::new(start, start.add(self.frames(frame, count).count));
            self.tables.each_at(pages, level, |table, index, count, ahead| {
                table.put_any(index, count, frames.end().add(ahead), attrs);
                table.settle_in(index, count, frames.end().add(ahead), attrs);
            });
        });
    }

    /// Moves markers, each of which has the payload of its first page, to `new` in tables of the
    /// lower `level`.
    fn spread_marks(&self, run: &Run, level: Level, new: Vpn) {
        let block = self.unit().pages();
        for ahead in 0..run.count {
            let index = run.index + ahead;
            let Entry::Marker(first) = self.meaning(self.raw(index), index) else { continue };
            self.clear(index, 1);
            let start = new.add(block * ahead as u64);
            let pages = PageSpan::new(start, start.add(block));
            self.tables.each_at(pages, level, |table, index, count, ahead| {
                table.mark(index, count, Marks { first: first + ahead, ascending: true });
            });
        }
    }

    /// Zeroes a run of leaves, and calls `put` with pieces that have the same bits noted: how many
    /// entries are before it, how many it has, and their attributes.
    fn withdraw(&self, run: &Run, mut put: impl FnMut(usize, usize, Attrs)) {
        let (mut at, end) = (run.index, run.index + run.count);
        while at < end {
            let count = if run.uniform { run.count } else { self.alike(at, end) };
            let Some((_, mut attrs)) = self.leaf_at(at) else { return };
            if run.uniform && is_settled(attrs) {
                self.clear(at, count);
            } else {
                let folded = self.folded_in(at, count);
                attrs |= self.clear_noted(at, count);
                self.add(-(count as i64), -(folded as i64));
            }
            put(at - run.index, count, attrs);
            at += count;
        }
    }

    /// How many entries from `at` on have the same bits noted: a contiguous block, or a stretch.
    fn alike(&self, at: usize, end: usize) -> usize {
        let raw = self.raw(at);
        if self.is_folded(raw) { self.width() } else { self.stretch(at, end, raw).count }
    }

    /// Records the new homes of the folios of leaves that map the frames from `frame` on.
    fn settle_in(&self, index: usize, count: usize, frame: Pfn, attrs: Attrs) {
        // The home of a folio that other spaces may map stays what it is for them.
        if attrs.contains(Attrs::COW) {
            return;
        }
        let folios = Folios::new(self.tables.meta);
        self.each_folio(self.span(index, count), frame, |folio, pages, frames| {
            let head = pages.start.get().wrapping_sub(frames.start.offset_from(folio.head));
            folios.set_home(folio, self.tables.home(Vpn::new(head)));
        });
    }
}

impl<'a, A: Arch, H: Hardware> Tables<'a, A, H> {
    /// Calls `act` with each table of `level` that translates a part of `pages`, locked, and that
    /// part: its first entry, how many entries, and how many of the pages are before it.
    fn each_at(
        &self,
        pages: PageSpan,
        level: Level,
        mut act: impl FnMut(&Locked<'a, A, H>, usize, usize, u64),
    ) {
        let mut at = pages.start;
        while at < pages.end {
            let place = self.walk(at, level);
            let Some(table) = self.lock(place.frame, level, at) else { continue };
            let part = PageSpan::new(at, pages.end).intersect(table.reach());
            let count = (part.count() >> A::order(level).get()) as usize;
            act(&table, table.index(at), count, at.offset_from(pages.start));
            at = part.end;
        }
    }
}
