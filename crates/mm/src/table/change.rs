//! Changing what the leaves of a span grant.

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::Hardware;
use quire_units::{Access, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};

use super::grant::Regrant;
use super::lock::BATCH;
use super::visit::Step;
use super::word::{NOTED, is_foreign, is_settled, unwritten};
use super::{Gather, Locked, Place, Run, Tables, What};
use crate::folio::{Folio, Folios};

/// When a leaf came to allow an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// Now.
    Now,
    /// It did before: the CPU used an older translation, or (riscv64 without Svvptc) that there was
    /// none, in this table or in one above.
    Before,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Grants `prot` on every leaf of `span`, and nothing else; but never to write where other
    /// spaces may map the page. No leaf may reach across an end of the span. `gather`
    /// takes the flush. Returns how many entries were written.
    pub fn protect(&self, span: PageSpan, prot: Prot, gather: &mut Gather) -> u64 {
        self.protect_from(None, span, prot, gather)
    }

    /// The same, where an earlier walk for the first page has ended at `from`.
    pub fn protect_from(
        &self,
        from: Option<Place>,
        span: PageSpan,
        prot: Prot,
        gather: &mut Gather,
    ) -> u64 {
        self.regrant::<false>(from, span, gather, |_, attrs| Regrant::rights(granted(attrs, prot)))
    }

    /// Takes the right to write from every leaf of `span` that maps one of `frames`, so that the
    /// next write faults, as with a page that other spaces map. Leaves without that right become
    /// COW as well, or a later `protect` would give it back. Copies that a private area has instead
    /// stay as they are: they may be pinned. Otherwise as [`protect`](Self::protect).
    pub fn withhold(&self, span: PageSpan, frames: FrameSpan, gather: &mut Gather) -> u64 {
        self.regrant::<true>(None, span, gather, |frame, _| match frames.contains(frame) {
            true => Regrant::LENT,
            false => Regrant::NONE,
        })
    }

    /// Makes every leaf of `span` COW, so that the next write faults; but not those of pinned
    /// folios, nor foreign ones. Otherwise as [`protect`](Self::protect).
    pub fn lend(&self, span: PageSpan, gather: &mut Gather) -> u64 {
        let folios = Folios::new(self.meta);
        let free = |frame| folios.of(frame).is_some_and(|folio| folios.counts(folio).pins == 0);
        self.regrant::<true>(None, span, gather, |frame, attrs| {
            match !is_foreign(attrs) && free(frame) {
                true => Regrant::LENT,
                false => Regrant::NONE,
            }
        })
    }

    /// Gives every leaf of `span` the attributes that `change` makes of its own; it is called with
    /// each run's first frame and attributes. `BY_FRAME`: it asks for the frame.
    #[inline]
    fn regrant<const BY_FRAME: bool>(
        &self,
        from: Option<Place>,
        span: PageSpan,
        gather: &mut Gather,
        change: impl Fn(Pfn, Attrs) -> Regrant,
    ) -> u64 {
        let mut written = 0;
        self.runs_from(from, span, |found| -> Step<()> {
            let What::Leaf { frame, attrs, .. } = found.run.what else { return Step::Next };
            let (table, index) = (found.table, found.run.index);
            let change = change(frame, attrs);
            if change.of(attrs) == attrs {
                return Step::Next;
            }
            let count = found.regrant::<BY_FRAME>((frame, attrs), change, gather);
            written += count as u64;
            Step::To(table.page(index + count))
        });
        written
    }

    /// Notes an access to `page` that the leaf at it should have allowed: the accessed bit, the
    /// dirty bit after a write, and the rights of `prot`. `None` unless there is a leaf that may
    /// allow the access, and `current` says, under the lock of its table, that the rights hold.
    ///
    /// This only grants more, so that other CPUs need no flush. This CPU may still hold the
    /// translation that made it fault, and must drop it before it tries again.
    pub fn touch(
        &self,
        page: Vpn,
        access: Access,
        prot: Prot,
        current: impl FnOnce() -> bool,
    ) -> Option<Touched> {
        let locked = self.lock_lowest(page, Level::LAST);
        let index = locked.index(page);
        let (_, attrs) = locked.leaf_at(index)?;
        let grant = granted(attrs, prot | attrs.prot());
        if !grant.allows(access) || !current() {
            return None;
        }
        let noted = match access {
            Access::Write => NOTED,
            Access::Read | Access::Execute => Attrs::YOUNG,
        };
        // In a contiguous block another word may say so already, and the CPU looks at this one.
        locked.note(index, grant, noted);
        let was = attrs.prot() == grant && attrs.contains(noted);
        Some(if was { Touched::Before } else { Touched::Now })
    }
}

/// The part of `prot` that a leaf with these attributes may grant.
fn granted(attrs: Attrs, prot: Prot) -> Prot {
    if attrs.contains(Attrs::COW) { unwritten(prot) } else { prot }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Gives the leaves of a run, of a folio of order `each`, the attributes that `change` makes of
    /// theirs. They grant no less than before, so that no flush is needed.
    #[inline]
    pub(crate) fn grant(&self, mut run: Run, each: Order, change: Regrant) {
        self.part_run(&mut run);
        let _ = self.regrant(&run, run.count, true, change);
        if self.may_fold_in(each) {
            self.refold_ends(run.index, run.count);
        }
    }

    /// Does the same for single leaves from entry `at` on, before entry `end`, that have equal
    /// attributes and are `such`: folios of one page. Other spaces could map them until now. Leaves
    /// that the hardware may change, or that would show code, are left. Returns how many.
    pub(crate) fn grant_pages(
        &self,
        at: usize,
        end: usize,
        change: Regrant,
        such: impl Fn(Pfn) -> bool,
    ) -> usize {
        let mut words = [0; BATCH];
        let words = &mut words[..BATCH.min(end - at)];
        self.load_batch(at, words);
        let Entry::Leaf { frame, attrs } = self.meaning(words[0], at) else { return 0 };
        let now = change.of(attrs);
        let plain = is_settled(attrs) && attrs.intersects(Attrs::RIGHTS);
        let shows_code = now.difference(attrs).contains(Attrs::EXEC);
        if !self.level().is_last() || !attrs.contains(Attrs::COW) || !plain || shows_code {
            return 0;
        }
        // The words differ in their frames alone, and so do those that they become.
        let (sample, more) = (self.sample(), self.spelled(frame, now).wrapping_sub(words[0]));
        let mut count = 0;
        while let Some(word) = words.get_mut(count)
            && let Some((frame, _)) = sample.read::<A>(*word)
            && such(frame)
        {
            *word = word.wrapping_add(more);
            count += 1;
        }
        self.store_batch(at, &words[..count]);
        count
    }

    /// Whether no other table maps a page of a folio that this one maps at `pages` to `frames`.
    /// Pins do not matter: a pinned page was exclusive when it was pinned, and a fork copies it for
    /// the child.
    pub(crate) fn is_own(
        &self,
        folios: &Folios<'_>,
        folio: Folio,
        pages: PageSpan,
        frames: FrameSpan,
    ) -> bool {
        let counts = folios.counts(folio);
        let most = folio.order.pages();
        if counts.refs > 0 || u64::from(counts.mapped) > most {
            return false;
        }
        let before = frames.start.offset_from(folio.head);
        let first = Vpn::new(pages.start.get().saturating_sub(before));
        let whole = PageSpan::new(first, pages.start.add(most - before)).intersect(self.reach());
        let whole = if u64::from(counts.mapped) == frames.count { pages } else { whole };
        let (mut at, mut mapped) = (whole.start, 0);
        while at < whole.end {
            let (run, end) = self.run_in(at, whole.end);
            if let What::Leaf { frame, .. } = run.what {
                let frame =
                    frame.get().wrapping_add(at.get().wrapping_sub(self.page(run.index).get()));
                let here = frame.wrapping_sub(at.get());
                let same = here == frames.start.get().wrapping_sub(pages.start.get());
                mapped += if same { end.offset_from(at) } else { 0 };
            }
            at = end;
        }
        u64::from(counts.mapped) == mapped
    }

    /// Maps `count` leaves from `index` on to other frames, of a folio of order `each`. The words
    /// are zero in between, with a flush: two CPUs must not see different memory at one address.
    pub(crate) fn replace(
        &self,
        index: usize,
        count: usize,
        frame: Pfn,
        attrs: Attrs,
        each: Order,
    ) {
        self.part(index, count);
        self.clear(index, count);
        self.tables.broken(self.span(index, count), self.unit());
        self.put(index, count, frame, attrs, each);
    }

    /// Sets the dirty bit of the leaf at entry `index`: the library or a device has written its
    /// page.
    pub fn note_written(&self, index: usize) {
        if let Some((_, attrs)) = self.leaf_at(index) {
            self.note(index, attrs.prot(), NOTED);
        }
    }

    /// Sets the bits `noted` in the leaf at entry `index`, and gives it the rights `grant`. In a
    /// contiguous block, this writes every word: a CPU that does not set the bits by itself looks
    /// only at the word of the page, and would fault on it for ever.
    fn note(&self, index: usize, grant: Prot, noted: Attrs) {
        let Some((frame, attrs)) = self.leaf_at(index) else { return };
        let regrants = attrs.prot() != grant;
        if regrants {
            self.publish(frame, 1, attrs, attrs.with_prot(grant));
            self.part(index, 1);
        }
        let folded = self.is_folded(self.raw(index));
        let (first, count) = if folded { (self.block_at(index), self.width()) } else { (index, 1) };
        for at in first..first + count {
            self.exchange_leaf(at, None, Regrant::rights(grant).with(noted));
        }
        if regrants {
            self.refold_ends(index, 1);
        }
    }
}
