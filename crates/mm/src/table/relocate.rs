//! Moving what is mapped to other pages (`mremap`): words move, memory does not. Where the
//! alignment of both places allows it, whole tables move.
//!
//! There are two passes, so that the second cannot fail. [`prepare_move`](Tables::prepare_move)
//! makes the tables at the new place, and splits leaves that are aligned there less than here;
//! [`move_entries`](Tables::move_entries) moves piece after piece. The caller keeps faults out of
//! both places meanwhile.

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::visit::Step;
use super::word::is_settled;
use super::{Gather, Lack, Locked, Run, Tables, What};
use crate::folio::Folios;
use crate::stats::Event;

/// A piece that moves in one step.
enum Piece {
    /// The table that the entry of this level at these pages leads to, with all it maps.
    Table(PageSpan, Level),
    /// Entries of one table of this level, none of which leads to a table.
    Entries(PageSpan, Level),
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Prepares to move what is mapped in `from` to `to`. Changes nothing that a program could see.
    ///
    /// # Errors
    /// [`Lack::Table`] when a table is needed and `spare` is empty: repeat with one. [`Lack::Room`]
    /// when something is mapped at the new place.
    pub fn prepare_move(
        &self,
        from: PageSpan,
        to: Vpn,
        spare: &mut Option<FrameRun>,
        gather: &mut Gather,
    ) -> Result<(), Lack> {
        let mut at = from.start;
        while let Some(piece) = self.next_piece(PageSpan::new(at, from.end), from.start, to) {
            match piece {
                Piece::Table(pages, upper) => {
                    self.reach_down(moved(pages.start, from.start, to), upper, spare)?;
                    at = pages.end;
                }
                Piece::Entries(pages, level) => {
                    let new = moved(pages.start, from.start, to);
                    let aligned = Order::new(new.get().trailing_zeros().min(63) as u8);
                    if aligned < A::order(level) {
                        self.isolate(pages.start.add(aligned.pages()), spare, gather)?;
                        at = pages.start;
                        continue;
                    }
                    self.reach_down(new, level, spare)?;
                    at = pages.start.add(Self::within(pages, new, level));
                }
            }
        }
        Ok(())
    }

    /// Moves what is mapped in `from` to as many pages from `to` on, after
    /// [`prepare_move`](Self::prepare_move). `gather` takes the flush of the old translations.
    /// Returns how many entries moved, where a table that moved whole counts as one.
    pub fn move_entries(&self, from: PageSpan, to: Vpn, gather: &mut Gather) -> u64 {
        let mut at = from.start;
        let mut entries = 0;
        while let Some(piece) = self.next_piece(PageSpan::new(at, from.end), from.start, to) {
            match piece {
                Piece::Table(pages, upper) => {
                    self.shift_table(pages, moved(pages.start, from.start, to), upper, gather);
                    gather.flush_tables(pages, Order::ZERO);
                    entries += 1;
                    at = pages.end;
                }
                Piece::Entries(pages, level) => {
                    let new = moved(pages.start, from.start, to);
                    at = pages.start.add(Self::within(pages, new, level));
                    let part = PageSpan::new(pages.start, at);
                    entries += self.shift_part(part, new, level, gather);
                }
            }
        }
        entries
    }

    /// How many of `pages` one table of `level` at `new` translates.
    fn within(pages: PageSpan, new: Vpn, level: Level) -> u64 {
        pages.count().min(Self::reach(new, level).end.offset_from(new))
    }

    /// The first piece in `span` that moves when `from` goes to `to`.
    fn next_piece(&self, span: PageSpan, from: Vpn, to: Vpn) -> Option<Piece> {
        // The alignment that both places have in common: a table moves whole if its reach is not
        // larger.
        let alike = from.get() ^ to.get();
        let alike = Order::new(alike.trailing_zeros().min(63) as u8);
        let table = A::order(Level::LAST.parent());
        let mut at = span.start;
        while at < span.end {
            if alike < table {
                return self.next_entries(PageSpan::new(at, span.end));
            }
            let place = self.walk(at, Level::LAST.parent());
            let block = PageSpan::block(at, A::order(place.level));
            match A::decode(place.word, place.level) {
                Entry::Absent => at = block.end,
                Entry::Table(_) if block.start == at && block.end <= span.end => {
                    return Some(self.highest_table(block, span.end, alike));
                }
                _ => {
                    let part = PageSpan::new(at, block.end.min(span.end));
                    if let Some(entries) = self.next_entries(part) {
                        return Some(entries);
                    }
                    at = block.end;
                }
            }
        }
        None
    }

    /// The highest entry that leads to the table behind `block` and to no table outside of the
    /// move. The root's entries stay: some of them belong to the embedder.
    fn highest_table(&self, block: PageSpan, end: Vpn, alike: Order) -> Piece {
        let mut best = (block, Level::LAST.parent());
        while best.1.parent() != A::ROOT {
            let upper = best.1.parent();
            let wider = PageSpan::block(block.start, A::order(upper));
            if wider.start != block.start || wider.end > end || alike < A::order(upper) {
                break;
            }
            best = (wider, upper);
        }
        Piece::Table(best.0, best.1)
    }

    /// The pages from the first entry in `span` that is not absent to the end of its run; in a
    /// table of the last level, where no entry leads to another table, to the end of the table.
    fn next_entries(&self, span: PageSpan) -> Option<Piece> {
        self.each(span, |table, part| {
            table.runs(part, |found| {
                let (level, start) = (table.level(), found.pages.start);
                let end = if level.is_last() { part.end } else { found.pages.end };
                Step::Stop(Piece::Entries(PageSpan::new(start, end), level))
            })
        })
    }

    /// Locks the tables of `level` that translate `one` and `other`, the one for the lower pages
    /// first; the second is `None` where both are the same.
    #[allow(clippy::type_complexity, reason = "a pair of tables, the second optional")]
    pub(super) fn lock_both(
        &self,
        one: Vpn,
        other: Vpn,
        level: Level,
    ) -> (Locked<'_, A, H>, Option<Locked<'_, A, H>>) {
        loop {
            let (at, to) = (self.walk(one, level), self.walk(other, level));
            let lock_one = || self.lock(at.frame, at.level, one);
            let lock_other = || self.lock(to.frame, to.level, other);
            if at.level != level || to.level != level {
                continue;
            }
            if at.frame == to.frame {
                if let Some(locked) = lock_one() {
                    return (locked, None);
                }
                continue;
            }
            let locked = if one < other {
                let first = lock_one();
                (first, lock_other())
            } else {
                let first = lock_other();
                (lock_one(), first)
            };
            if let (Some(old), Some(new)) = locked {
                return (old, Some(new));
            }
        }
    }

    /// Moves entries of one table to another (or the same).
    fn shift_part(&self, pages: PageSpan, new: Vpn, level: Level, gather: &mut Gather) -> u64 {
        let (old, target) = self.lock_both(pages.start, new, level);
        old.hand_over(pages, target.as_ref().unwrap_or(&old), new, gather)
    }

    /// Moves the table that the entry of `upper` at `pages` leads to, with all it maps.
    ///
    /// A table at the new place is empty: a fault that was planned before the place became free
    /// has left it there.
    fn shift_table(&self, pages: PageSpan, new: Vpn, upper: Level, gather: &mut Gather) {
        loop {
            let (old, target) = self.lock_both(pages.start, new, upper);
            let to = target.as_ref().unwrap_or(&old);
            let word = old.word(old.index(pages.start));
            let (Entry::Table(frame), Some(level)) = (A::decode(word, upper), upper.child()) else {
                return;
            };
            if to.word(to.index(new)) != 0 {
                drop((old, target));
                let there = PageSpan::block(new, A::order(upper));
                self.prune(there, there, gather);
                continue;
            }
            let Some(table) = self.lock(frame, level, pages.start) else { continue };
            old.clear(old.index(pages.start), 1);
            self.rebase(&table, new);
            to.make(to.index(new), word);
            return self.count(Event::TableMoved, 1);
        }
    }

    /// Records that `table`, which no entry leads to, and all tables below it, translate the
    /// pages from `base` on. Calls itself once for each level.
    fn rebase(&self, table: &Locked<'_, A, H>, base: Vpn) {
        let entries = if table.level().is_last() { 0 } else { A::entries(table.level()) };
        for index in 0..entries {
            let (Entry::Table(frame), Some(level)) =
                (A::decode(table.word(index), table.level()), table.level().child())
            else {
                continue;
            };
            if let Some(lower) = self.lock(frame, level, table.page(index)) {
                let offset = table.page(index).offset_from(table.page(0));
                self.rebase(&lower, base.add(offset));
            }
        }
        table.rebase(base);
    }
}

/// Where `page` goes when `from` goes to `to`.
fn moved(page: Vpn, from: Vpn, to: Vpn) -> Vpn {
    to.add(page.offset_from(from))
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Moves the entries of `pages`, runs of this table, to `new` in `target`. Bits that the
    /// hardware sets until they are gone move with them.
    fn hand_over(&self, pages: PageSpan, target: &Self, new: Vpn, gather: &mut Gather) -> u64 {
        let mut moved = 0;
        self.runs(pages, |mut found| -> Step<()> {
            let index = target.index(new.add(found.pages.start.offset_from(pages.start)));
            match found.run.what {
                What::Leaf { frame, .. } => {
                    self.part_run(&mut found.run);
                    self.hand_over_run(&found.run, target, index, frame);
                }
                What::Marker(marks) => {
                    self.clear(found.run.index, found.run.count);
                    target.mark(index, found.run.count, marks);
                }
                What::Absent | What::Table(_) => {}
            }
            moved += found.run.count as u64;
            gather.flush(found.pages, found.leaf_order());
            Step::Next
        });
        moved
    }

    /// Moves one run: at once if its first word determines the rest, otherwise piece by piece.
    fn hand_over_run(&self, run: &Run, target: &Self, index: usize, frame: Pfn) {
        let end = run.index + run.count;
        let mut at = run.index;
        while at < end {
            let count = if run.uniform { run.count } else { self.alike(at, end) };
            let ahead = at - run.index;
            let frame = frame.add((ahead as u64) << A::order(self.level()).get());
            let Some((_, attrs)) = self.leaf_at(at) else { return };
            let noted = if run.uniform && is_settled(attrs) {
                self.clear(at, count);
                Attrs::empty()
            } else {
                self.take_noted(at, count)
            };
            target.put_any(index + ahead, count, frame, attrs | noted);
            // The home of a folio that other spaces may map stays what it is for them.
            if !attrs.contains(Attrs::COW) {
                target.settle_in(index + ahead, count, frame);
            }
            at += count;
        }
    }

    /// Records the new homes of the folios of `count` leaves from `index` on, which map the frames
    /// from `frame` on.
    fn settle_in(&self, index: usize, count: usize, frame: Pfn) {
        let folios = Folios::new(self.tables.meta);
        let (first, block) = (self.page(index), A::order(self.level()));
        folios.each(FrameSpan::new(frame, (count as u64) << block.get()), |folio, piece| {
            let page = first.get() + piece.start.offset_from(frame);
            let head = page.wrapping_sub(piece.start.offset_from(folio.head));
            folios.set_home(folio, self.tables.home(Vpn::new(head)));
            true
        });
    }

    /// How many entries from `at` on have the same accessed and dirty bits: a contiguous block,
    /// whose words speak for each other, or a stretch.
    fn alike(&self, at: usize, end: usize) -> usize {
        let raw = self.raw(at);
        if A::is_folded(raw, self.level()) {
            self.width()
        } else {
            self.stretch(at, end, raw).count
        }
    }

    /// Zeroes leaves that the hardware may still change. Returns the bits that it had set in any of
    /// them.
    fn take_noted(&self, index: usize, count: usize) -> Attrs {
        let folded = self.folded_in(index, count);
        let noted = (index..index + count)
            .fold(Attrs::empty(), |noted, at| noted | self.noted_in(self.swap_out(at), at));
        self.add(-(count as i64), -(folded as i64));
        noted
    }
}
