//! Truncating and closing files, and dropping clean pages.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::{Files, OpenFile};
use crate::base::{AllSpaces, Error, folios_within};
use crate::cache::{Entry, FILE_PAGES_MAX, FileId, FilePages, Note};
use crate::folio::Folio;
use crate::sync::{Ordering, fence, spin_loop};

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Gives a file another length, in pages. When this returns no program sees a page beyond its
    /// end any more; an access to one fails as [missing](Error::Missing), and guards stay. A folio
    /// across the end is split in place; where that is impossible now, for example because it has
    /// another reference, its pages beyond are zero. The embedder zeroes the bytes of the last page
    /// beyond the end.
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Error::Invalid`] for a file that is too large; [`Error::NoMemory`] when
    /// a leaf across the end, or a block on a swap device, must be split and there is no frame for
    /// that: the file is shorter, and some pages beyond its end may still be mapped or kept. Repeat
    /// the call.
    pub fn truncate(
        &self,
        id: FileId,
        pages: u64,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<(), Error> {
        let file = self.opened(id)?;
        if pages > FILE_PAGES_MAX {
            return Err(Error::Invalid);
        }
        let grows = pages > file.pages();
        file.set_pages(pages);
        if grows {
            return Ok(());
        }
        fence(Ordering::SeqCst);
        let beyond = FilePages::new(pages, FILE_PAGES_MAX);
        file.drop_pages(beyond);
        file.unmap_all(beyond, spaces).and(file.cut(beyond, spaces))
    }

    /// Ends the use of a file. No area maps it any more. Reads under way are dropped when they end.
    ///
    /// # Errors
    /// [`Error::NoFile`].
    pub fn close(&self, id: FileId) -> Result<(), Error> {
        let file = self.opened(id)?;
        file.set_pages(0);
        fence(Ordering::SeqCst);
        let all = FilePages::new(0, FILE_PAGES_MAX);
        file.renounce(all);
        file.drop_pages(all);
        file.index.prune(all, &mut |run| self.base().free(run));
        file.close();
        self.free_file.fetch_min(id.0, Ordering::Relaxed);
        Ok(())
    }

    /// Drops those of `pages` that are clean and have no other reference (`POSIX_FADV_DONTNEED`,
    /// `drop_caches`); returns how many. A folio partly among them stays.
    ///
    /// # Errors
    /// [`Error::NoFile`].
    pub fn drop_clean(&self, id: FileId, pages: FilePages) -> Result<u64, Error> {
        let file = self.opened(id)?;
        let dropped = folios_within(&file.index, pages)
            .filter(|(folio, at)| file.drop_idle(*folio, *at, None))
            .map(|(_, at)| at.count())
            .sum();
        file.index.prune_such(pages, &|_| false, &mut |run| self.base().free(run));
        Ok(dropped)
    }
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Takes a folio out of its file if it is clean and has no other reference, and leaves `note`
    /// there, except on a swap device.
    pub(crate) fn drop_idle(&self, folio: Folio, at: FilePages, note: Option<Note>) -> bool {
        if let Some(dropped) = self.base().drop_idle_swapped(self.index.id, folio, at) {
            return dropped;
        }
        let Some(cached) = self.cached(at.start, folio) else { return false };
        let may_go = cached.is_idle() && self.index.is_clean(at.start, folio);
        if !may_go || self.is_memory() {
            return false;
        }
        // The check and the end of its identity are under one lock: no CPU can map and write it in
        // between. A CPU that still finds it in the index waits until it is out.
        cached.disclaim();
        let removed = self.base().take_out(&self.index, at.start, folio, note);
        // A truncation meanwhile found no identity, and left the index's reference to this CPU.
        self.base().put(folio);
        removed
    }

    /// Takes the folios that lie wholly in `pages` out of their file, and forgets those that are
    /// elsewhere.
    fn drop_pages(&self, pages: FilePages) {
        let mut left = pages;
        while let Some((entry, at)) = self.index.next_content(left) {
            left = FilePages::new(at.end, left.end);
            let dropped = match entry {
                _ if !pages.covers(at) => true,
                Entry::Folio { folio, .. } => self.drop_folio(at.start, folio),
                _ => self.drop_away(entry, at),
            };
            if !dropped {
                // Another CPU is about to take it out, or has inserted another folio.
                left = FilePages::new(at.start, left.end);
                spin_loop();
            }
        }
    }
}
