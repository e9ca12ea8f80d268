//! The same pages in other folios: collapsed, and with holes in them.

use quire::cache::{FilePages, Store};
use quire::{Error, Hindrance, Need, Stop};
use quire_arch::Arch;
use quire_units::PageSpan;

use super::{Scene, Shown};

impl<A: Arch> Scene<'_, '_, '_, A> {
    /// Collapses the pages of a part of an area. No page is held.
    pub(super) fn collapse(&self, space: usize, slot: usize, from: u64, pages: u64) {
        let (part, Some(shown)) = (Self::part(slot, from, pages), &self.areas[space][slot]) else {
            return;
        };
        let spaces: Vec<_> = self.spaces.iter().collect();
        for span in shown.mapped.iter().map(|span| span.intersect(part)) {
            let done = loop {
                let _operation = self.cpu.operation("collapse");
                match self.mm.reclaim().collapse_file(&self.spaces[space], span, &spaces[..]) {
                    Err(Stop::Need(Need::Read(reads))) => self.carry(reads).unwrap(),
                    Err(Stop::Refuse(Error::Failed(id, page))) => {
                        assert_eq!(id, self.files[shown.file].id);
                        assert!(self.bad.contains_key(&(shown.file, page)), "{page} is readable");
                        return;
                    }
                    Err(Stop::Refuse(Error::Invalid)) if span.is_empty() => break None,
                    done => break Some(done.unwrap()),
                }
            };
            let Some(done) = done else { continue };
            assert!(done.why.is_none_or(may_be), "{done:?}");
            self.judge_blocks(shown, span, done.why == Some(Hindrance::Area));
        }
    }

    /// Each aligned block that lies in `span`, the area and the file is in a folio of its size.
    fn judge_blocks(&self, shown: &Shown, span: PageSpan, askew: bool) {
        let differs = (shown.span.start.get() ^ shown.from) & 1 != 0;
        assert_eq!(askew, differs && !span.is_empty());
        let first = shown.from + span.start.offset_from(shown.span.start);
        let end = (first + span.count()).min(self.files[shown.file].stamps.len() as u64);
        let agrees = (shown.span.start.get() ^ shown.from).trailing_zeros();
        for order in (1..7).filter(|order| !askew && *order <= agrees) {
            let mut at = first.next_multiple_of(1 << order);
            while at + (1 << order) <= end {
                let cached = self
                    .mm
                    .files()
                    .next_cached(self.files[shown.file].id, FilePages::new(at, at + 1));
                let folio = cached.unwrap().unwrap_or_default();
                let is_memory = self.files[shown.file].store == Store::Memory;
                let whole = FilePages::new(at, at + (1 << order));
                let empty = is_memory
                    && self
                        .mm
                        .files()
                        .next_cached(self.files[shown.file].id, whole)
                        .unwrap()
                        .is_none();
                assert!(folio.covers(whole) || empty, "{whole:?} is in {folio:?}");
                at += 1 << order;
            }
        }
    }

    pub(super) fn punch(&mut self, file: usize, from: u64, pages: u64) {
        let naive = &mut self.files[file];
        let hole = FilePages::new(from, from + pages);
        let spaces: Vec<_> = self.spaces.iter().collect();
        let _operation = self.cpu.operation("punch");
        let done = self.mm.files().punch(naive.id, hole, &spaces[..]);
        if naive.store != Store::Memory {
            return assert_eq!(done, Err(Error::Invalid));
        }
        done.unwrap();
        naive
            .stamps
            .iter_mut()
            .skip(from as usize)
            .take(pages as usize)
            .for_each(|stamp| *stamp = 0);
        assert_eq!(self.mm.files().next_cached(naive.id, hole), Ok(None), "its memory is free");
    }
}

/// Whether a block may stay as it is for this reason: no page is held here.
fn may_be(why: Hindrance) -> bool {
    matches!(why, Hindrance::Area | Hindrance::Copied | Hindrance::Empty)
}
