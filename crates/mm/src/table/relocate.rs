//! Moving what is mapped to other pages (`mremap`): words move, memory does not. Where the
//! alignment of both places allows it, whole tables move.
//!
//! There are two passes, so that the second cannot fail. [`prepare_move`](Tables::prepare_move)
//! makes the tables at the new place, those of a lower level where leaves are aligned there less
//! than here; [`move_entries`](Tables::move_entries) moves piece after piece, as many as the tables
//! of both places meet ([`carry`](super::carry)). The caller keeps faults out of both places
//! meanwhile.

use quire_arch::{Arch, Entry, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, PageSpan, Vpn};

use super::{Gather, Lack, Locked, Tables};
use crate::stats::Event;

/// The entries that move in one step.
struct Piece {
    pages: PageSpan,
    /// The level of their table.
    level: Level,
    /// It is one entry, and the table that it leads to moves with all it maps.
    is_table: bool,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Prepares to move what is mapped in `from` to `to`: makes the tables there. Changes nothing
    /// that a program could see. `left` is at first all of `from`, and shrinks from below by the
    /// pages that are prepared.
    ///
    /// # Errors
    /// [`Lack::Table`] when a table is needed and `spare` is empty: repeat with one. [`Lack::Room`]
    /// when something is mapped at the new place.
    pub fn prepare_move(
        &self,
        left: &mut PageSpan,
        from: Vpn,
        to: Vpn,
        spare: &mut Option<FrameRun>,
        gather: &mut Gather,
    ) -> Result<(), Lack> {
        while let Some((Piece { pages, level, is_table }, new)) = self.next_piece(*left, from, to) {
            left.start = pages.start;
            // All entries of a piece of the last level fit into one table at the new place.
            let end = match is_table || level.is_last() {
                true => pages.end,
                false => self.lock_lowest(pages.start, level).run_in(pages.start, pages.end).1,
            };
            let there = PageSpan::new(new, new.add(end.offset_from(pages.start)));
            // The new place of a table that moves whole is aligned to its reach.
            let level = if is_table { level } else { Self::level_there(level, new) };
            self.make_way(there, level, spare, gather)?;
            left.start = end;
        }
        Ok(())
    }

    /// Makes the tables of `level` that translate `pages`, where nothing is mapped, and removes
    /// empty ones below. Those of `level` stay, though they are empty so far, and `pages` may be
    /// all that one of them translates.
    fn make_way(
        &self,
        pages: PageSpan,
        level: Level,
        spare: &mut Option<FrameRun>,
        gather: &mut Gather,
    ) -> Result<(), Lack> {
        let mut at = pages.start;
        while at < pages.end {
            self.reach_down(at, level, spare)?;
            let part = PageSpan::new(at, pages.end.min(Self::reach(at, level).end));
            if !level.is_last() {
                self.prune_below(level, part, part, gather);
            }
            at = part.end;
        }
        Ok(())
    }

    /// The level at which leaves and markers of `level` fit at `new`, as the alignment there
    /// allows.
    fn level_there(level: Level, new: Vpn) -> Level {
        A::leaf_level(alignment(new.get()).min(A::order(level)))
    }

    /// Moves what is mapped in `from` to as many pages from `to` on, after
    /// [`prepare_move`](Self::prepare_move). `gather` takes the flush of the old translations.
    /// Returns how many entries moved, where a table that moved whole counts as one.
    pub fn move_entries(&self, from: PageSpan, to: Vpn, gather: &mut Gather) -> u64 {
        let (mut left, mut entries) = (from, 0);
        while let Some((piece, new)) = self.next_piece(left, from.start, to) {
            let Piece { pages, level, is_table } = piece;
            left.start = pages.end;
            if is_table {
                self.shift_table(pages, new, level, gather);
                gather.flush_tables(pages, Order::ZERO);
                entries += 1;
                continue;
            }
            let there = Self::level_there(level, new);
            let moved = if there == level {
                let (old, target) = self.lock_both(pages.start, new, level);
                old.hand_over(pages, target.as_ref().unwrap_or(&old), new)
            } else {
                self.lock_lowest(pages.start, level).hand_down(pages, there, new)
            };
            left.start = moved.upto;
            entries += moved.entries as u64;
            if moved.entries > 0 {
                gather.flush(PageSpan::new(pages.start, moved.upto), A::order(level));
            }
        }
        entries
    }

    /// The first piece in `span` that moves when `from` goes to `to`, as far as one table takes it,
    /// and its new place. Its first entry is not absent.
    fn next_piece(&self, span: PageSpan, from: Vpn, to: Vpn) -> Option<(Piece, Vpn)> {
        let mut at = span.start;
        while at < span.end {
            let place = self.walk(at, Level::LAST);
            let level = place.level;
            if place.word == 0 && !level.is_last() {
                at = self.beyond(place, at);
                continue;
            }
            let new = to.add(at.offset_from(from));
            let reach = Self::reach(at, level);
            // A table moves whole if its reach is not larger than the alignment that both places
            // have in common.
            let alike = alignment(from.get() ^ to.get());
            let whole = reach.start == at && reach.end <= span.end;
            if level.is_last() && whole && alike >= A::order(level.parent()) {
                return Some((self.highest_table(reach, span.end, alike), new));
            }
            let Some(locked) = self.lock(place.frame, level, at) else { continue };
            let room = Self::reach(new, level).end.offset_from(new);
            let end = reach.end.min(span.end).min(at.add(room));
            if locked.raw(locked.index(at)) == 0 {
                at = locked.run_in(at, end).1;
                continue;
            }
            return Some((Piece { pages: PageSpan::new(at, end), level, is_table: false }, new));
        }
        None
    }

    /// The highest entry that leads to the table behind `block` and to no table outside of the
    /// move. The root's entries stay: some of them belong to the embedder.
    fn highest_table(&self, block: PageSpan, end: Vpn, alike: Order) -> Piece {
        let mut best = Piece { pages: block, level: Level::LAST.parent(), is_table: true };
        while best.level.parent() != A::ROOT {
            let level = best.level.parent();
            let pages = PageSpan::block(block.start, A::order(level));
            if pages.start != block.start || pages.end > end || alike < A::order(level) {
                break;
            }
            best = Piece { pages, level, ..best };
        }
        best
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
        let (low, high) = (one.min(other), one.max(other));
        loop {
            let (at, to) = (self.walk(low, level), self.walk(high, level));
            if at.level != level || to.level != level {
                continue;
            }
            let Some(first) = self.lock(at.frame, level, low) else { continue };
            if at.frame == to.frame {
                return (first, None);
            }
            let Some(second) = self.lock(to.frame, level, high) else { continue };
            return if one < other { (first, Some(second)) } else { (second, Some(first)) };
        }
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

    /// Records that `table`, which no entry leads to, and all tables below it, translate the pages
    /// from `base` on. Calls itself once for each level.
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

/// The order to which a number of a page is aligned.
fn alignment(page: u64) -> Order {
    Order::new(page.trailing_zeros().min(63) as u8)
}
