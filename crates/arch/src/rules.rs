//! The demands of a change to a live entry: one rule for all ISAs, with their differences as data.
//!
//! The rules weigh three dangers. First, a CPU may go on using the *old* translation from its TLB:
//! harmless where the new one only grants more (the CPU takes one spurious fault and finds the new
//! entry), but a loss of rights needs a flush. Second, one CPU may use the *new* translation while
//! another still uses the old one. Where the two name different memory that is written, a store
//! through one is not seen by a load through the other, although the program has one address: the
//! entry must pass through zero. The same holds for two memory types of one frame. Third, some
//! hardware does not tolerate two matching TLB entries at all; [`Rules`] says which changes can
//! produce them there.
//!
//! | from | to | demand | because |
//! |---|---|---|---|
//! | unseen by the hardware | anything | nothing | TLBs do not keep what faults; where they may (riscv64), one needless fault |
//! | anything seen | unseen | flush | the old translation stays usable until then |
//! | leaf | leaf with more of `READ`, `WRITE`, `EXEC` | nothing | one needless fault at worst |
//! | leaf | leaf with less of them | flush | or the right goes on being used |
//! | leaf | leaf with `USER` changed | flush | both ways: SMEP, PXN and riscv64's U take rights from the kernel when a program gets them |
//! | leaf | leaf with `DIRTY` cleared, was writable | flush | or the next store is not recorded, and its data lost |
//! | leaf | leaf with `DIRTY` cleared, was not writable | nothing | no CPU can store through it |
//! | leaf | leaf with `YOUNG` cleared | nothing | age is a hint: until the translation leaves the TLB, touches go unrecorded |
//! | leaf | leaf with `YOUNG`, `DIRTY` set, `SOFT` or `COW` changed | nothing | the hardware loses nothing |
//! | leaf | leaf with `GLOBAL` changed | flush, or break | [`Rules::global_breaks`] |
//! | leaf | leaf with `DEVICE` or `COMBINING` changed | break | two memory types of one frame at one time |
//! | leaf | leaf with another frame, one of them writable | break | two memories at one address |
//! | leaf | leaf with another frame, neither writable | flush, or break | [`Rules::move_breaks`] |
//! | table | leaf, and leaf to table | flush, or break | [`Rules::resize_breaks`], but for a relaxed CPU |
//! | leaf | folded leaf, and folded to plain | flush, or break | as another size: the TLB entry covers more, or less |
//! | table | another table | flush, or break | [`Rules::resize_breaks`]: the blocks below may differ in size |
//!
//! One change may be several of these; the strongest demand holds. Between two folded leaves the
//! rules are those of plain ones, entry by entry. The caller changes all entries of a block
//! together.
//!
//! A word does not show the contents of the table behind it. For a table the answer assumes that it
//! translates as the old entry did (a block split, folded or copied in place); a caller that
//! changes more must go through zero.

use crate::{Attrs, Entry, Transition};

/// The differences between ISAs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Changing the size of a block demands a break, unless the CPU is relaxed about it.
    pub resize_breaks: bool,
    /// Changing the frame demands a break even where neither leaf is writable.
    pub move_breaks: bool,
    /// Becoming global or ceasing to be so demands a break.
    pub global_breaks: bool,
}

impl Rules {
    /// The demand when both entries are seen by the hardware.
    #[inline]
    pub fn between(&self, old: Entry, new: Entry, relaxed: bool) -> Transition {
        match (old, new) {
            (Entry::Leaf { frame, attrs }, Entry::Leaf { frame: target, attrs: next }) => {
                let moved = self.moved(frame != target, attrs.union(next));
                moved.max(self.changed(attrs, next))
            }
            (Entry::Table(table), Entry::Table(next)) if table == next => Transition::Nothing,
            // This is no change of size, so a relaxed CPU's permission does not cover it.
            (Entry::Table(_), Entry::Table(_)) => flush_or_break(self.resize_breaks),
            (Entry::Malformed, _) | (_, Entry::Malformed) => Transition::BreakBeforeMake,
            _ => self.resized(relaxed),
        }
    }

    /// The demand of another size, or of any other change of how a block is put together.
    pub fn resized(&self, relaxed: bool) -> Transition {
        flush_or_break(self.resize_breaks && !relaxed)
    }

    /// The demand of another frame; `either` is the union of the old and the new leaf's attributes.
    fn moved(&self, moved: bool, either: Attrs) -> Transition {
        if !moved {
            return Transition::Nothing;
        }
        flush_or_break(self.move_breaks || either.contains(Attrs::WRITE))
    }

    /// The demand of other attributes.
    fn changed(&self, old: Attrs, new: Attrs) -> Transition {
        let differ = old.symmetric_difference(new);
        if differ.intersects(Attrs::MEMORY) {
            return Transition::BreakBeforeMake;
        }
        if differ.contains(Attrs::GLOBAL) {
            return flush_or_break(self.global_breaks);
        }
        if must_flush(old, new) { Transition::Flush } else { Transition::Nothing }
    }
}

/// Whether a leaf must be flushed that gets the attributes `new` in place of `old`, and keeps its
/// frame, size, memory type and `GLOBAL`: the same on all ISAs.
#[inline]
pub fn must_flush(old: Attrs, new: Attrs) -> bool {
    let lost = old.difference(new);
    let unseen_stores = lost.contains(Attrs::DIRTY) && old.contains(Attrs::WRITE);
    let is_seen = old.intersects(Attrs::RIGHTS);
    let other = old.symmetric_difference(new).contains(Attrs::USER);
    is_seen && (lost.intersects(Attrs::RIGHTS) || other || unseen_stores)
}

fn flush_or_break(must_break: bool) -> Transition {
    if must_break { Transition::BreakBeforeMake } else { Transition::Flush }
}
