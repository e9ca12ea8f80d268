//! Pages of a file that end while other pages of their folio stay: at a truncation, and at a hole.
//!
//! ```text
//!   | 0 .. 16                                  |       the file ends after page 5 from now on
//!   | 0 .. 4       | 4 |      free             |       no other reference: split in place
//!   | 0 .. 16         | zeroes                 |       another reference: it stays
//! ```

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order};

use super::{Files, OpenFile};
use crate::base::{AllSpaces, Error, folios_within};
use crate::cache::{Entry, FileId, FilePages, identity};
use crate::folio::{Folio, FolioFlags};
use crate::limits::POPULATE_ORDER;
use crate::stats::Event;
use crate::sync::spin_loop;

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Makes a hole in a file in memory (`FALLOC_FL_PUNCH_HOLE`, `MADV_REMOVE`): `pages` read as
    /// zero in all spaces that share the file, and their memory is free, except for folios with
    /// other references. Private copies stay, but those of whole reserved folios, as on Linux.
    /// `spaces` must be all that may map the file.
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Error::Invalid`] for a file with a store; [`Error::NoMemory`] when the
    /// pages at an end of the hole are on a swap device together with others, and there is no frame
    /// to record that: the hole ends there. Repeat the call.
    pub fn punch(
        &self,
        id: FileId,
        pages: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<(), Error> {
        let file = self.opened(id)?;
        if !file.is_memory() {
            return Err(Error::Invalid);
        }
        if let Some(order) = file.whole() {
            let mask = order.pages() - 1;
            let start = pages.start.next_multiple_of(order.pages());
            file.unmap_all(FilePages::new(start, pages.end & !mask), spaces)?;
        }
        file.cut(pages, spaces)
    }
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Ends the pages `gone` of all folios in memory, and those that are elsewhere: a folio that
    /// cannot be split now gets zeroes there.
    ///
    /// # Errors
    /// [`Error::NoMemory`] where pages that are elsewhere cannot be split.
    pub(crate) fn cut(
        &self,
        gone: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<(), Error> {
        self.renounce(gone);
        let (mut left, mut tried) = (gone, gone.start);
        while let Some((entry, at)) = self.index.next_content(left) {
            let Entry::Folio { folio, .. } = entry else {
                if self.cut_away(entry, at, gone)? {
                    left = FilePages::new(at.end, left.end);
                }
                continue;
            };
            let window = FilePages::block(at.start, POPULATE_ORDER).intersect(gone);
            if window.covers(at) && at.start >= tried {
                tried = window.end;
                if self.drop_all(window, spaces) {
                    // Folios that are only partly gone are still there.
                    continue;
                }
            }
            if self.divide_cached(folio, at, gone, spaces) || self.zero_pages(folio, at, gone) {
                left = FilePages::new(at.end, left.end);
            } else {
                // Another CPU is about to move these pages to other folios.
                spin_loop();
            }
        }
        self.index.prune(gone, &mut |run| self.base().free(run));
        Ok(())
    }

    /// Takes the folios that lie wholly in `pages` out of their file, if none of them has another
    /// reference; returns whether it did.
    fn drop_all(&self, pages: FilePages, spaces: &(impl AllSpaces<A> + ?Sized)) -> bool {
        let _reshaping = self.reshaping();
        if self.seclude(pages, spaces).is_err() {
            return false;
        }
        for (folio, at) in folios_within(&self.index, pages) {
            // A folio that was inserted meanwhile is zeroed already.
            if self.base().folios().is_secluded(folio) {
                self.drop_secluded(folio, at);
            }
        }
        true
    }

    /// Takes a secluded folio out of its file.
    fn drop_secluded(&self, folio: Folio, at: FilePages) {
        let removed = self.base().take_out(&self.index, at.start, folio, None);
        debug_assert!(removed, "a secluded folio stays in its index");
        self.base().put(folio);
    }

    /// Splits a folio of a file, and frees its pages that are `gone`; returns whether that was
    /// possible.
    fn divide_cached(
        &self,
        folio: Folio,
        at: FilePages,
        gone: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> bool {
        let unit = self.smallest().pages();
        let gone = FilePages::new(
            gone.start.max(at.start).next_multiple_of(unit),
            gone.end.min(at.end) & !(unit - 1),
        );
        if gone.is_empty() {
            return false;
        }
        let reshaping = self.reshaping();
        let hidden = self.seclude(at, spaces);
        let mapped = hidden.unwrap_or_else(|kept| kept.mapped);
        let is_ours = hidden.is_ok() && self.is_in(folio, at);
        let freed = is_ours && self.part(folio, at, gone, folio.order);
        if !freed {
            self.readmit(at);
        }
        drop(reshaping);
        match (freed, gone == at) {
            (true, true) => {}
            (true, false) => self.base().count(Event::FolioSplit, 1),
            (false, _) => self.base().count(Event::FolioSplitFailed, 1),
        }
        let kept = [FilePages::new(at.start, gone.start), FilePages::new(gone.end, at.end)];
        for pages in kept.into_iter().filter(|pages| !pages.is_empty()) {
            self.show_again(pages, mapped.ahead(pages.start - at.start), spaces);
        }
        freed
    }

    /// Whether a folio is secluded, and in its file.
    pub(super) fn is_in(&self, folio: Folio, at: FilePages) -> bool {
        let is_it = |entry| matches!(entry, Entry::Folio { folio: here, .. } if here == folio);
        is_it(self.index.find(at.start).0) && self.base().folios().is_secluded(folio)
    }

    /// The pages of a folio at `at` beyond the file's end: a truncation that could not divide it
    /// left it whole.
    pub(crate) fn beyond_end(&self, at: FilePages) -> FilePages {
        let end = self.pages().next_multiple_of(self.smallest().pages());
        FilePages::new(end.clamp(at.start, at.end), at.end)
    }

    /// Splits a secluded folio into folios of up to `most`, and frees its pages that are `gone`;
    /// fails without a frame for a node, or where the folio is larger than one. The caller is
    /// reshaping the file.
    pub(crate) fn part(&self, folio: Folio, at: FilePages, gone: FilePages, most: Order) -> bool {
        let folios = self.base().folios();
        if gone == at {
            self.drop_secluded(folio, at);
            return true;
        }
        // Its parts need a node of the lowest level.
        let whole = Entry::Folio { folio, dirty: false };
        let lower = self.base().with_spare(|spare| self.index.lower(at.start, whole, spare));
        if lower != Ok(true) {
            return false;
        }
        let known = folios.known(folio).0
            & (FolioFlags::UPTODATE
                | FolioFlags::IDLE_LOW
                | FolioFlags::IDLE_HIGH
                | FolioFlags::PUBLISHED);
        let Some(run) = folios.dissolve(folio) else { return false };
        let (run, tail) = run.split_at(gone.end - at.start);
        let (head, freed) = run.split_at(gone.start - at.start);
        let page_of = |part: Folio| at.start + part.head.offset_from(folio.head);
        let parts = |span: FrameSpan| span.blocks(most).map(|(head, order)| Folio { head, order });
        let kept = [head.span(), tail.span()].into_iter().flat_map(parts);
        let mut first = None;
        for mut left in [head, tail] {
            for part in parts(left.span()) {
                let (run, rest) = left.split_at(part.order.pages());
                left = rest;
                if part.head == folio.head {
                    first = Some((run, part));
                } else {
                    folios.adopt_cached(
                        &run,
                        part.order,
                        identity(self.index.id, page_of(part)),
                        known,
                    );
                }
            }
        }
        let kept = kept.map(|folio| (page_of(folio), Entry::Folio { folio, dirty: false }));
        let parted = self.index.part(at.start, whole, kept);
        debug_assert!(parted, "a secluded folio stays in its index");
        match first {
            Some((run, part)) => folios.readopt(run, part),
            None => folios.unadopt(folio),
        }
        self.base().free(Some(freed).filter(|freed| freed.count() > 0));
        self.count_cached(-(gone.count() as i64));
        true
    }

    /// Zeroes the pages of a folio that are `gone`, unless another CPU is about to move them to
    /// other folios.
    fn zero_pages(&self, folio: Folio, at: FilePages, gone: FilePages) -> bool {
        let Some(cached) = self.cached(at.start, folio) else { return false };
        if cached.known().contains(FolioFlags::UPTODATE) {
            let gone = gone.intersect(at);
            cached.zero(self.base().hw, gone.start - at.start..gone.end - at.start);
        }
        true
    }
}
