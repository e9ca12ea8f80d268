//! Write-protection for a watcher (Linux: the uffd-wp bit): set and taken by runs, block for block.
//!
//! ```text
//!   exclusive RW  ──shield──►  SOFT | COW, no WRITE  ──unshield──►  RW, if no other space maps it
//!   COW           ──shield──►  SOFT | COW            ──unshield──►  COW
//!   absent        ──shield──►  a marker, if wanted   ──unshield──►  absent
//! ```

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Pfn, Prot};

use super::grant::Regrant;
use super::visit::{Found, Step};
use super::word::{FOREIGN, WATCHED, is_foreign};
use super::{Gather, Locked, MarkKind, Marks, Tables, What};
use crate::folio::Folios;

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Makes every leaf of `span` wait for a watcher before it is written, but no foreign one. No
    /// leaf may reach across an end of the span. `remark` returns the markers that replace others.
    /// `gather` takes the flush. Returns how many entries were written.
    pub(crate) fn shield(
        &self,
        span: PageSpan,
        remark: impl Fn(Marks) -> Marks,
        gather: &mut Gather,
    ) -> u64 {
        let mut written = 0;
        self.runs(span, |found| -> Step<()> {
            let (table, index) = (found.table, found.run.index);
            let count = match found.run.what {
                What::Leaf { frame, attrs, .. }
                    if !is_foreign(attrs) && !attrs.contains(WATCHED) =>
                {
                    let shielded = Regrant::LENT.with(WATCHED);
                    found.regrant::<false>((frame, attrs), shielded, gather)
                }
                What::Marker(marks) => found.remark(marks, &remark),
                _ => return Step::Next,
            };
            written += count as u64;
            Step::To(table.page(index + count))
        });
        written
    }

    /// Takes the watcher's mark from every leaf of `span`; those of pages that no other space maps
    /// get the rights `prot`. No leaf may reach across an end of the span. `remark` returns the
    /// markers that replace others; `None`: nothing does. No flush is needed: leaves only grant
    /// more. Returns how many entries were written.
    pub(crate) fn unshield(
        &self,
        span: PageSpan,
        prot: Prot,
        remark: impl Fn(Marks) -> Marks,
    ) -> u64 {
        let mut written = 0;
        self.runs(span, |found| -> Step<()> {
            let (table, index, count) = (found.table, found.run.index, found.run.count);
            match found.run.what {
                What::Leaf { frame, attrs, .. } if attrs.contains(WATCHED) => {
                    table.unshield(found.pages, frame, prot);
                }
                What::Marker(marks) if marks.kind() == Some(MarkKind::Watched) => {
                    table.clear(index, count);
                }
                What::Marker(marks) => {
                    let _ = found.remark(marks, &remark);
                }
                _ => return Step::Next,
            }
            written += count as u64;
            Step::To(table.page(index + count))
        });
        written
    }

    /// Takes the watcher's markers of `span` away, which reach across no end of it. The pages are
    /// absent then.
    pub(crate) fn unmark_watched(&self, span: PageSpan) {
        self.runs(span, |found| -> Step<()> {
            if let What::Marker(marks) = found.run.what
                && marks.kind() == Some(MarkKind::Watched)
            {
                found.table.clear(found.run.index, found.run.count);
            }
            Step::Next
        });
    }
}

impl<A: Arch, H: Hardware> Found<'_, '_, A, H> {
    /// Replaces the markers of the run. Returns how many entries it has.
    fn remark(&self, marks: Marks, remark: &impl Fn(Marks) -> Marks) -> usize {
        let (table, run, now) = (self.table, &*self.run, remark(marks));
        if now != marks {
            table.overwrite(run.index, run.count, now);
        }
        run.count
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Takes the mark from the leaves of `pages`, a run that maps the frames from `frame` on.
    /// Neighbouring folios that become the same are changed at once.
    fn unshield(&self, pages: PageSpan, frame: Pfn, prot: Prot) {
        let folios = Folios::new(self.tables.meta);
        // Pages, the largest of their folios, and whether they become writable.
        let mut group: Option<(PageSpan, Order, bool)> = None;
        let settle = |group: Option<(PageSpan, Order, bool)>| {
            let Some((pages, largest, own)) = group else { return };
            let entries = self.entries(pages);
            let run = self.run(entries.start, entries.end);
            let change = match own {
                true => Regrant::rights(prot).without(WATCHED),
                false => Regrant::NONE.without(FOREIGN),
            };
            self.grant(run, largest, change);
        };
        self.each_folio(pages, frame, |folio, pages, frames| {
            let own = self.is_own(&folios, folio, pages, frames);
            group = match group {
                Some((before, largest, same)) if same == own => {
                    let all = PageSpan::new(before.start, pages.end);
                    Some((all, largest.max(folio.order), own))
                }
                other => {
                    settle(other);
                    Some((pages, folio.order, own))
                }
            };
        });
        settle(group);
    }
}
