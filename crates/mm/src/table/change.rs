//! Changing what leaves grant.

use quire_arch::{Arch, Attrs, Entry, Level, Transition};
use quire_hw::{Hardware, Transitions};
use quire_units::{Access, PageSpan, Prot, Vpn};

use super::walk::Step;
use super::{Gather, Locked, Run, Tables, What};

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Grants `prot` on every leaf of `span`, and nothing else. No leaf may reach across an end of
    /// the span. What must be flushed goes into `gather`. How many entries were written.
    pub fn protect(&self, span: PageSpan, prot: Prot, gather: &mut Gather) -> u64 {
        let mut written = 0;
        self.each(span, |locked, part| -> Step<()> {
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Absent | What::Marker(_) => {}
                    What::Leaf { attrs, settled, .. } if attrs.prot() != prot => {
                        debug_assert_eq!(locked.pages(&run), PageSpan::new(at, end));
                        let flush = if settled {
                            locked.protect_settled(&run, prot)
                        } else {
                            locked.protect_each(&run, prot)
                        };
                        if flush {
                            gather.flush(PageSpan::new(at, end), A::order(locked.level()));
                        }
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

    /// Notes an access to `page` that the leaf at it should have allowed: young, dirty after a
    /// write, and the rights of `prot`. Whether there is a leaf, and `current` said, under the
    /// lock of its table, that the rights still hold.
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
        let noted = match access {
            Access::Write => Attrs::YOUNG | Attrs::DIRTY,
            Access::Read | Access::Execute => Attrs::YOUNG,
        };
        let leaf = matches!(A::decode(locked.word(index), locked.level()), Entry::Leaf { .. });
        if !leaf || !current() {
            return false;
        }
        locked.alter(index, |attrs| attrs.with_prot(prot | attrs.prot()) | noted);
        true
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Gives a run whose words the hardware cannot change other rights, in one go. Whether that
    /// needs a flush.
    fn protect_settled(&self, run: &Run, prot: Prot) -> bool {
        let level = self.level();
        let old = self.word(run.index);
        let What::Leaf { frame, attrs, .. } = run.what else { return false };
        let new = A::leaf(frame, level, attrs.with_prot(prot));
        self.rewrite(run.index, run.count, new, A::step(level));
        self.needs_flush(old, new)
    }

    /// The same, entry by entry, where the hardware may note accesses meanwhile.
    fn protect_each(&self, run: &Run, prot: Prot) -> bool {
        let entries = run.index..run.index + run.count;
        entries.fold(false, |flush, index| self.alter(index, |a| a.with_prot(prot)) | flush)
    }

    /// Gives the leaf at `index` other attributes, and loses nothing that the hardware notes
    /// meanwhile. Whether that needs a flush.
    fn alter(&self, index: usize, change: impl Fn(Attrs) -> Attrs) -> bool {
        let level = self.level();
        let mut old = self.word(index);
        loop {
            let Entry::Leaf { frame, attrs } = A::decode(old, level) else { return false };
            let new = A::leaf(frame, level, change(attrs));
            if new == old {
                return false;
            }
            match self.exchange(index, old, new) {
                Ok(()) => return self.needs_flush(old, new),
                Err(now) => old = now,
            }
        }
    }

    fn needs_flush(&self, old: u64, new: u64) -> bool {
        let relaxed = self.profile().transitions == Transitions::BbmLevel2;
        let transition = A::transition(old, new, self.level(), relaxed);
        debug_assert_ne!(transition, Transition::BreakBeforeMake, "rights never need it");
        transition != Transition::Nothing
    }
}
