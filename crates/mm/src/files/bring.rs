//! Giving files in memory their pages.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, OrderSet};

use super::OpenFile;
use crate::base::Error;
use crate::cache::FilePages;
use crate::folio::FolioFlags;
use crate::space::{Advice, Space};

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// The orders that folios of a file in memory may have where an area shows it.
    pub(crate) fn sizes_in_memory(&self, advice: Advice, space: &Space<A>) -> OrderSet {
        let base = self.base();
        base.file_policy.candidates(&base.policy, advice, space.opt_out())
    }

    /// Inserts a page of zeroes, or a larger folio as the file's `sizes` allow, into a file in
    /// memory.
    pub(crate) fn bring(
        &self,
        page: u64,
        sizes: OrderSet,
        resched: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        if let Some(order) = self.whole() {
            let wanted = page - FilePages::block(page, order).start;
            let zeroes = &mut |run: FrameRun| {
                self.base().clear(&run, wanted, resched);
                Ok(run)
            };
            return self.bring_reserved(page, order, zeroes).map(drop);
        }
        let (run, order) = self.room_for(page, FilePages::new(0, self.pages()), sizes)?;
        let start = FilePages::block(page, order).start;
        self.base().clear(&run, page - start, resched);
        self.enter(start, run, order, FolioFlags::UPTODATE).map(drop)
    }

    /// Frames for a folio at `page` that fits into `within`, as large as `sizes` allow, and its
    /// order. The smallest one may exceed `within`.
    pub(crate) fn room_for(
        &self,
        page: u64,
        within: FilePages,
        sizes: OrderSet,
    ) -> Result<(FrameRun, Order), Error> {
        let smallest = self.smallest();
        let fits = |order: &Order| {
            let block = FilePages::block(page, *order);
            within.covers(block) && self.index.next_content(block).is_none()
        };
        let large = sizes.descending(smallest.up()).filter(fits);
        self.base().first_free(large, smallest)
    }
}
