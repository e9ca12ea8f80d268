//! Moving a folio of a file to other frames (row E7).
//!
//! ```text
//!   seclude ── copy ── the index names the copy ── free the old one ── map it again
//!   │ held     │ poisoned                                              at the next access, or here
//!   ▼          ▼
//!   all as before; pages are mapped again at their next access
//! ```

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Order;

use super::{Files, Mappings, OpenFile};
use crate::base::{AllSpaces, folios_within};
use crate::cache::{FilePages, file_of, identity, page_of};
use crate::folio::copy::copy;
use crate::folio::{Folio, FolioFlags};
use crate::stats::Event;

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Moves `folio`, which had the identity `owner` just now, to the frames of `to`, which are as
    /// many; whether it could. A page that is read, written, held or pinned stays, and so does one
    /// in an area where writes to the file are tracked.
    pub(crate) fn move_cached(
        &self,
        folio: Folio,
        owner: u64,
        to: FrameRun,
        spaces: &dyn AllSpaces<A>,
    ) -> bool {
        let (base, pages) = (self.base(), FilePages::block(page_of(owner), folio.order));
        let Ok(index) = base.index(file_of(owner)) else {
            base.free(to);
            return false;
        };
        let file = self.with(&index);
        let (replaced, mapped) = file.replace(folio, pages, to, &spaces);
        file.show_again(pages, mapped, &spaces);
        replaced
    }

    /// Divides `folio`, which had the identity `owner` just now, into folios of up to `most`, where
    /// it is; whether it could. It stays whole where it would not move, either.
    pub(crate) fn divide_whole(
        &self,
        folio: Folio,
        owner: u64,
        most: Order,
        spaces: &dyn AllSpaces<A>,
    ) -> bool {
        let (base, pages) = (self.base(), FilePages::block(page_of(owner), folio.order));
        let Ok(index) = base.index(file_of(owner)) else { return false };
        let (file, mut divided, mut mapped) = (self.with(&index), false, Mappings::Nowhere);
        if most >= file.smallest() {
            let _reshaping = file.reshaping();
            let hidden = file.seclude(pages, &spaces);
            let is_ours = hidden.is_ok() && file.is_in(folio, pages);
            divided = is_ours && file.part(folio, pages, file.beyond_end(pages), most);
            if !divided {
                file.readmit(pages);
            }
            mapped = hidden.unwrap_or_else(|kept| kept.mapped);
        }
        file.show_again(pages, mapped, &spaces);
        base.count(if divided { Event::FolioSplit } else { Event::FolioSplitFailed }, 1);
        divided
    }
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Gives `pages` of the file, which are those of `old`, to `to`, a copy; whether it could, and
    /// where they were mapped.
    fn replace(
        &self,
        old: Folio,
        pages: FilePages,
        to: FrameRun,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> (bool, Mappings) {
        let base = self.base();
        let _reshaping = self.reshaping();
        let is_there = || {
            let mut there = folios_within(&self.index, pages);
            there.next() == Some((old, pages))
        };
        if !is_there() {
            base.free(to);
            return (false, Mappings::Nowhere);
        }
        let mapped = match self.seclude(pages, spaces) {
            Ok(mapped) => mapped,
            Err(kept) => {
                base.free(to);
                return (false, kept.mapped);
            }
        };
        let copied = copy(base.hw, &to, old.span(), 0, base.pace, &mut || {});
        let to = to.dirtied();
        let joined = copied.is_ok() && self.enter_copy(old, pages.start, &to).is_some();
        if !joined {
            self.readmit(pages);
            base.free(to);
        }
        (joined, mapped)
    }

    /// Puts `to`, a copy of `old`, which is secluded, in its place in the index, which is at
    /// `page`. The caller is reshaping the file.
    pub(crate) fn enter_copy(&self, old: Folio, page: u64, to: &FrameRun) -> Option<Folio> {
        let (base, folios) = (self.base(), self.base().folios());
        let kept = FolioFlags::IDLE_LOW
            | FolioFlags::IDLE_HIGH
            | FolioFlags::UPTODATE
            | FolioFlags::READAHEAD
            | FolioFlags::LEAVING;
        let known = folios.known(old).0 & kept;
        let folio = folios.adopt_cached(to, old.order, identity(self.index.id, page), known);
        folios.set_home(folio, folios.home(old));
        let is_old = |there: Folio| there == old && folios.is_secluded(there);
        if !self.index.join(page, folio, &is_old, &mut |gone| base.put_back(gone)) {
            folios.unadopt(folio);
            return None;
        }
        Some(folio)
    }
}
