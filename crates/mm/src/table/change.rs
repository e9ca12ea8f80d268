//! Changing what leaves grant.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{Access, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};

use super::run::NOTED;
use super::walk::Step;
use super::{Gather, Locked, Run, Tables, What};
use crate::folio::Folios;

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Grants `prot` on every leaf of `span`, and nothing else; but never to write where others may
    /// map the page, too. No leaf may reach across an end of the span. What must be flushed goes
    /// into `gather`. How many entries were written.
    pub fn protect(&self, span: PageSpan, prot: Prot, gather: &mut Gather) -> u64 {
        self.regrant_all(span, gather, |_, attrs| attrs_granted(attrs, prot))
    }

    /// Takes the right to write from every leaf of `span` that maps one of `frames`, so that the
    /// next write asks first, as where others may map the page; also from those that have it not
    /// just now, and would be given it back with their area's rights. Copies that a private area
    /// has instead stay as they are: somebody may have pinned them. Otherwise as
    /// [`protect`](Self::protect).
    pub fn withhold(&self, span: PageSpan, frames: FrameSpan, gather: &mut Gather) -> u64 {
        self.regrant_all(span, gather, |frame, attrs| match frames.contains(frame) {
            true => attrs.difference(Attrs::WRITE) | Attrs::COW,
            false => attrs,
        })
    }

    /// Makes every leaf of `span` one that others may map, too, so that the next write asks first;
    /// but for those of folios that somebody has pinned. Otherwise as [`protect`](Self::protect).
    pub fn lend(&self, span: PageSpan, gather: &mut Gather) -> u64 {
        let folios = Folios::new(self.meta);
        let free = |frame| folios.of(frame).is_some_and(|folio| folios.counts(folio).pins == 0);
        self.regrant_all(span, gather, |frame, attrs| match free(frame) {
            true => attrs.difference(Attrs::WRITE) | Attrs::COW,
            false => attrs,
        })
    }

    /// Gives every leaf of `span` the attributes that `change` makes of its own. It is asked once
    /// for each run of leaves, with the run's first frame.
    fn regrant_all(
        &self,
        span: PageSpan,
        gather: &mut Gather,
        change: impl Fn(Pfn, Attrs) -> Attrs + Copy,
    ) -> u64 {
        let mut written = 0;
        self.each(span, |locked, part| -> Step<()> {
            let mut at = part.start;
            while at < part.end {
                let (mut run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Absent | What::Marker(_) => {}
                    What::Leaf { frame, attrs, .. } if attrs != change(frame, attrs) => {
                        let change = |attrs| change(frame, attrs);
                        debug_assert_eq!(locked.pages(&run), PageSpan::new(at, end));
                        locked.part_run(&mut run);
                        if locked.regrant(&run, run.count, false, change) {
                            gather.flush(PageSpan::new(at, end), A::order(locked.level()));
                        }
                        locked.refold_ends(run.index, run.count);
                        written += run.count as u64;
                    }
                    What::Leaf { .. } => {}
                }
                at = end;
            }
            Step::To(at)
        });
        written
    }

    /// Takes the young flag from every leaf of `span`, so that the next access to it shows. What
    /// reaches across an end of the span, a large leaf or a contiguous block, keeps it. The flush
    /// goes into `gather`. How many entries were written.
    pub fn age(&self, span: PageSpan, gather: &mut Gather) -> u64 {
        let mut written = 0;
        self.each(span, |locked, part| -> Step<()> {
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Leaf { .. } => {
                        let pages = PageSpan::new(at, end);
                        if locked.forget(pages, Attrs::YOUNG, gather) {
                            written += run.count as u64;
                        }
                    }
                    What::Absent | What::Marker(_) => {}
                }
                at = end;
            }
            Step::To(at)
        });
        written
    }

    /// Notes an access to `page` that the leaf at it should have allowed: young, dirty after a
    /// write, and the rights of `prot`. Whether there is a leaf that may allow it, and `current`
    /// said, under the lock of its table, that the rights still hold.
    ///
    /// Only ever grants more, so that other CPUs need no flush; but this one may still hold the
    /// translation that made it fault, and must drop it before it tries again.
    pub fn touch(
        &self,
        page: Vpn,
        access: Access,
        prot: Prot,
        current: impl FnOnce() -> bool,
    ) -> bool {
        let locked = self.lock_lowest(page, Level::LAST);
        let index = locked.index(page);
        let Some((_, attrs)) = locked.leaf_at(index) else { return false };
        let grant = granted(attrs, prot | attrs.prot());
        if !grant.allows(access) || !current() {
            return false;
        }
        let noted = match access {
            Access::Write => NOTED,
            Access::Read | Access::Execute => Attrs::YOUNG,
        };
        locked.note(index, grant, noted);
        true
    }
}

/// What of `prot` is granted where a write is to be asked for first: who may write, may read.
pub(crate) fn unwritten(prot: Prot) -> Prot {
    if prot.contains(Prot::WRITE) { (prot - Prot::WRITE) | Prot::READ } else { prot }
}

/// What of `prot` a leaf with these attributes may grant.
fn granted(attrs: Attrs, prot: Prot) -> Prot {
    if attrs.contains(Attrs::COW) { unwritten(prot) } else { prot }
}

fn attrs_granted(attrs: Attrs, prot: Prot) -> Attrs {
    attrs.with_prot(granted(attrs, prot))
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Gives the leaves of a run, of a folio of order `each`, the attributes that `change` makes of
    /// theirs, which grant no less.
    #[inline]
    pub(crate) fn grant(&self, mut run: Run, each: Order, change: impl Fn(Attrs) -> Attrs + Copy) {
        self.part_run(&mut run);
        self.regrant(&run, run.count, true, change);
        if A::fold_order(self.level()).is_some_and(|block| each >= block) {
            self.refold_ends(run.index, run.count);
        }
    }

    /// Maps `count` leaves from `index` on to other frames, which belong to a folio of order
    /// `each`. Through zero: two CPUs must not see different memory at one address.
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
        let pages = PageSpan::new(self.page(index), self.page(index + count));
        self.tables.broken(pages, A::order(self.level()));
        self.put(index, count, frame, attrs, each);
    }

    /// The entries of a run of leaves that lie in `pages` whole, and so do their blocks: the
    /// first of them, and how many.
    pub(super) fn uncut(&self, run: &Run, pages: PageSpan) -> (usize, usize) {
        let cut = |edge: usize| {
            edge & (self.width() - 1) != 0 && A::is_folded(self.raw(edge), self.level())
        };
        let mut first = run.index + (self.page(run.index) < pages.start) as usize;
        let end = run.index + run.count;
        let mut end = end - (self.page(end) > pages.end) as usize;
        if first < end && cut(first) {
            first = first.next_multiple_of(self.width());
        }
        if first < end && cut(end) {
            end = self.block_at(end);
        }
        (first, end.saturating_sub(first))
    }

    /// Notes in the leaf at entry `index` that its page was written, by somebody who needs no
    /// right.
    pub fn note_written(&self, index: usize) {
        if let Some((_, attrs)) = self.leaf_at(index) {
            self.note(index, attrs.prot(), NOTED);
        }
    }

    /// Notes an access in the leaf at entry `index`, and gives it the rights `grant`.
    ///
    /// In a contiguous block, every word is asked for itself and told: the flags that one of them
    /// has hold for the block as far as software is concerned, but a CPU that does not set flags
    /// looks at the word of the page alone, and would fault on it for ever.
    fn note(&self, index: usize, grant: Prot, noted: Attrs) {
        let regrants = self.leaf_at(index).is_some_and(|(_, attrs)| attrs.prot() != grant);
        if regrants {
            self.part(index, 1);
        }
        let folded = A::is_folded(self.raw(index), self.level());
        let (first, count) = if folded { (self.block_at(index), self.width()) } else { (index, 1) };
        for at in first..first + count {
            self.exchange_leaf(at, None, |attrs| attrs.with_prot(grant) | noted);
        }
        if regrants {
            self.refold_ends(index, 1);
        }
    }
}
