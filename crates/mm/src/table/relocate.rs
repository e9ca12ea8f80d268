//! Moving what is mapped to other pages (`mremap`): words move, memory does not. Where the
//! alignment of both places allows it, whole tables move.
//!
//! There are two passes, so that the second cannot fail. [`prepare_move`](Tables::prepare_move)
//! makes the tables at the new place, and splits leaves that are aligned there less than here;
//! [`move_entries`](Tables::move_entries) moves piece after piece. The caller keeps faults out of
//! both places meanwhile.

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::visit::Step;
use super::word::is_settled;
use super::{Gather, Lack, Locked, Run, Tables, What};
use crate::folio::Folios;
use crate::stats::Event;

/// The entries that move in one step.
struct Piece {
    pages: PageSpan,
    level: Level,
    /// It is one entry, and the table that it leads to moves with all it maps. Otherwise no entry
    /// leads to a table.
    is_table: bool,
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
        let mut left = from;
        while let Some((Piece { pages, level, .. }, new)) = self.next_piece(left, from.start, to) {
            left.start = pages.start;
            if alignment(new.get()) < A::order(level) {
                let aligned = pages.start.add(alignment(new.get()).pages());
                self.isolate(aligned, spare, gather.due())?;
            } else {
                self.reach_down(new, level, spare)?;
                left.start = pages.end;
            }
        }
        Ok(())
    }

    /// Moves what is mapped in `from` to as many pages from `to` on, after
    /// [`prepare_move`](Self::prepare_move). `gather` takes the flush of the old translations.
    /// Returns how many entries moved, where a table that moved whole counts as one.
    pub fn move_entries(&self, from: PageSpan, to: Vpn, gather: &mut Gather) -> u64 {
        let (mut left, mut entries) = (from, 0);
        while let Some((piece, new)) = self.next_piece(left, from.start, to) {
            let Piece { pages, level, is_table } = piece;
            if is_table {
                self.shift_table(pages, new, level, gather);
                gather.flush_tables(pages, Order::ZERO);
                entries += 1;
            } else {
                let (old, target) = self.lock_both(pages.start, new, level);
                entries += old.hand_over(pages, target.as_ref().unwrap_or(&old), new, gather);
            }
            left.start = pages.end;
        }
        entries
    }

    /// The first piece in `span` that moves when `from` goes to `to`, as far as one table takes it,
    /// and its new place.
    fn next_piece(&self, span: PageSpan, from: Vpn, to: Vpn) -> Option<(Piece, Vpn)> {
        // A table moves whole if its reach is not larger than the alignment that both places have
        // in common.
        let alike = alignment(from.get() ^ to.get());
        let mut piece = match alike < A::order(Level::LAST.parent()) {
            true => self.next_entries(span),
            false => self.next_aligned(span, alike),
        }?;
        let new = to.add(piece.pages.start.offset_from(from));
        let room = Self::reach(new, piece.level).end.offset_from(new);
        piece.pages.end = piece.pages.end.min(piece.pages.start.add(room));
        Some((piece, new))
    }

    /// The first piece in `span`, where whole tables of an alignment up to `alike` move.
    fn next_aligned(&self, span: PageSpan, alike: Order) -> Option<Piece> {
        let mut at = span.start;
        while at < span.end {
            let place = self.walk(at, Level::LAST.parent());
            let block = PageSpan::block(at, A::order(place.level));
            let whole = block.start == at && block.end <= span.end;
            match A::decode(place.word, place.level) {
                Entry::Absent => {}
                Entry::Table(_) if whole => {
                    return Some(self.highest_table(block, span.end, alike));
                }
                _ => {
                    let part = PageSpan::new(at, block.end.min(span.end));
                    if let Some(entries) = self.next_entries(part) {
                        return Some(entries);
                    }
                }
            }
            at = block.end;
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

    /// The first entries in `span` that are not absent: a run, or the rest of a last-level table.
    fn next_entries(&self, span: PageSpan) -> Option<Piece> {
        self.runs(span, |found| {
            let (level, start) = (found.table.level(), found.pages.start);
            let all = found.table.reach().end.min(span.end);
            let end = if level.is_last() { all } else { found.pages.end };
            Step::Stop(Piece { pages: PageSpan::new(start, end), level, is_table: false })
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

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Moves the entries of `pages`, runs of this table, to `new` in `target`, with all bits noted.
    fn hand_over(&self, pages: PageSpan, target: &Self, new: Vpn, gather: &mut Gather) -> u64 {
        let mut moved = 0;
        self.runs(pages, |found| -> Step<()> {
            let index = target.index(new.add(found.pages.start.offset_from(pages.start)));
            match found.run.what {
                What::Leaf { frame, .. } => {
                    self.part_run(found.run);
                    self.hand_over_run(found.run, target, index, frame);
                }
                What::Marker(marks) => {
                    self.clear(found.run.index, found.run.count);
                    target.mark(index, found.run.count, marks);
                }
                What::Absent | What::Table(_) => {}
            }
            moved += found.run.count as u64;
            gather.flush(found.pages, self.unit());
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
            let frame = self.frames(frame, ahead).end();
            let Some((_, attrs)) = self.leaf_at(at) else { return };
            let mut noted = Attrs::empty();
            if run.uniform && is_settled(attrs) {
                self.clear(at, count);
            } else {
                let folded = self.folded_in(at, count);
                noted = self.clear_noted(at, count);
                self.add(-(count as i64), -(folded as i64));
            }
            target.put_any(index + ahead, count, frame, attrs | noted);
            // The home of a folio that other spaces may map stays what it is for them.
            if !attrs.contains(Attrs::COW) {
                target.settle_in(index + ahead, count, frame);
            }
            at += count;
        }
    }

    /// Records the new homes of the folios of leaves that map the frames from `frame` on.
    fn settle_in(&self, index: usize, count: usize, frame: Pfn) {
        let folios = Folios::new(self.tables.meta);
        self.each_folio(self.span(index, count), frame, |folio, pages, frames| {
            let head = pages.start.get().wrapping_sub(frames.start.offset_from(folio.head));
            folios.set_home(folio, self.tables.home(Vpn::new(head)));
        });
    }

    /// How many entries from `at` on have the same bits noted: a contiguous block, or a stretch.
    fn alike(&self, at: usize, end: usize) -> usize {
        let raw = self.raw(at);
        if self.is_folded(raw) { self.width() } else { self.stretch(at, end, raw).count }
    }
}
