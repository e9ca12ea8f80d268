//! Memory that fails in a file's folio: a folio that its store has as well leaves the cache;
//! another stays there, and no access to it is allowed (row D4).

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Pfn;

use super::Files;
use crate::base::AllSpaces;
use crate::base::Error;
use crate::cache::{FilePages, Store, file_of, page_of};
use crate::folio::FolioFlags;
use crate::spaces::Loss;
use crate::sync::spin_loop;

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Handles failed memory of a file; `None` if no file has the frame.
    pub(crate) fn fail_in_file(
        &self,
        frame: Pfn,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Option<Result<Loss, Error>> {
        let folios = self.base().folios();
        let folio = folios.of(frame)?;
        while folios.is_secluded(folio) {
            spin_loop();
        }
        let (cached, owner) = folios.identified(folio)?;
        let (id, at) = (file_of(owner), FilePages::block(page_of(owner), folio.order));
        let file = self.opened(id).ok()?;
        let known = cached.known();
        let store = file.store();
        let swapped = store == Some(Store::Swap);
        if swapped || !known.contains(FolioFlags::POISONED) && !cached.hold() {
            return None;
        }
        cached.learn(known | FolioFlags::POISONED);
        drop(cached);
        let mut done = Ok(());
        // The programs' private copies stay.
        spaces.visit(&mut |space| {
            done = done.and(file.where_shown(space, at, |change, span| {
                self.spaces().detach(space, span, change.gathered(), &|one| one == folio);
                Ok(())
            }));
        });
        let is_clean = file.index.is_clean(at.start, folio);
        // A write to the store that is under way may not arrive.
        let has_it = is_clean && !known.contains(FolioFlags::WRITING);
        if !has_it || store.is_some_and(Store::is_memory) {
            return Some(done.map(|()| Loss::Content));
        }
        file.forget_folio(at.start, folio, None);
        Some(done.map(|()| Loss::Nothing))
    }
}
