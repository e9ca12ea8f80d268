//! Memory that fails: one frame of a folio is lost, and the others are not (row D4).
//!
//! ```text
//!   anonymous   | A+0 | A+1 | A+2 ✗ | A+3 |   ──►   | A+0 | A+1 | marker | A+3 |
//!   of a file, and its store has it            ──►   out of the cache: read again
//!   of a file, and nobody else has it          ──►   in the cache, and nobody may look
//! ```
//!
//! The frame never becomes free again: somebody refers to its folio for ever. So an anonymous
//! folio is divided around it first, if nobody else has that.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::error::Error;
use super::mm::Mm;
use super::truncate::Spaces;
use crate::cache::{Entry, FileId, FilePages, Store, file_of, page_of};
use crate::folio::{Folio, Folios, Known};
use crate::space::Space;
use crate::sync::spin_loop;
use crate::table::{Division, Eviction, Gather, MarkKind, Seen, Sight};

/// What failed memory came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// It held what a file's store has as well: that is read again when it is wanted.
    Nothing,
    /// It held what nobody else has. Who touches a page of it is told
    /// [`Error::Poisoned`](super::Error::Poisoned).
    Content,
    /// Nobody maps it, and no file has it: it is free, a table, or the embedder's. Nothing has
    /// changed, and it is not kept out of use.
    Elsewhere,
}

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Tells that the memory of `frame` has failed: it reported an error that cannot be corrected,
    /// or too many that could. What programs have of it, in `spaces`, which are all there are, they
    /// have no more; it is not used for anything again, nor is the rest of its folio once that is
    /// given back, where it could not be divided.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when a leaf must be split and there is no frame for its table: some may
    /// have lost it by then, and others not. Repeat the call.
    pub fn memory_failed<S: Spaces<A> + ?Sized>(
        &self,
        frame: Pfn,
        spaces: &S,
    ) -> Result<Loss, Error> {
        if let Some(loss) = self.fail_in_file(frame, spaces) {
            return loss;
        }
        let (mut keeps, mut done) = (false, Ok(()));
        spaces.visit(&mut |space| {
            done = done.and_then(|()| self.fail_in_space(space, frame, &mut keeps));
        });
        done.map(|()| if keeps { Loss::Content } else { Loss::Elsewhere })
    }

    /// Takes a frame into use again that [failed](Self::memory_failed), as anonymous memory or a
    /// file's that was dropped, and with it all others of the same folio: it was replaced, or the
    /// report was wrong. Whether it had. What was lost stays lost.
    pub fn memory_mended(&self, frame: Pfn) -> bool {
        let folios = Folios::new(self.phys.meta());
        let mended = folios.of(frame).filter(|folio| folios.mend(*folio));
        if let Some(run) = mended.and_then(|folio| folios.put(folio)) {
            self.free(run);
        }
        mended.is_some()
    }

    /// Puts markers where a space maps `frame` as anonymous memory.
    fn fail_in_space(&self, space: &Space<A>, frame: Pfn, keeps: &mut bool) -> Result<(), Error> {
        let mut at = Vpn::new(0);
        while let Some((page, leaf)) = self.next_of(space, at, frame) {
            // Whether it is divided, or others have it as well: it is in leaves of a page then.
            if leaf > Order::ZERO || Folios::new(self.phys.meta()).of(frame).is_some() {
                self.divide(space, page, Division::Around(page, Order::ZERO))?;
            }
            if self.next_of(space, page, frame).is_some_and(|(_, leaf)| leaf > Order::ZERO) {
                self.split_leaf(space, page, &mut Gather::new())?;
                continue;
            }
            self.mark_failed(space, page, frame, keeps);
            at = page.add(1);
        }
        Ok(())
    }

    /// The first page from `at` on that maps `frame`, and the size of its leaf.
    fn next_of(&self, space: &Space<A>, at: Vpn, frame: Pfn) -> Option<(Vpn, Order)> {
        let ahead = |seen: &Seen| match seen.what {
            Sight::Leaf { frame: first, .. } if !seen.is_foreign() => {
                frame.get().checked_sub(first.get()).filter(|ahead| *ahead < seen.pages.count())
            }
            _ => None,
        };
        let all = PageSpan::new(at, Vpn::new(A::USER_PAGES));
        let mut pieces = self.view(space).tables().pieces(all);
        pieces.find_map(|seen| ahead(&seen).map(|ahead| (seen.pages.start.add(ahead), seen.leaf)))
    }

    fn mark_failed(&self, space: &Space<A>, page: Vpn, frame: Pfn, keeps: &mut bool) {
        let folios = Folios::new(self.phys.meta());
        let Some(folio) = folios.of(frame) else { return };
        let mut gather = Gather::new();
        let _taking = space.taking();
        let what = Eviction { folio, most: Order::ZERO, tracks: false };
        let here = PageSpan::block(page, Order::ZERO);
        let _ = self.view(space).tables().evict(here, what, &mut gather, |_, frames, _| {
            if frames.start != frame || frames.count != 1 {
                return None;
            }
            // A folio of which another frame has failed, or a call failed half way, is held.
            if !*keeps {
                *keeps = folios.known(folio).0.contains(Known::POISONED) || folios.hold(folio);
                folios.poison(folio);
            }
            keeps.then(|| MarkKind::Poison.payload(frame.get()))
        });
        self.settle(space, &mut gather);
    }

    /// The same for a frame that a file has; `None` if none does.
    fn fail_in_file<S: Spaces<A> + ?Sized>(
        &self,
        frame: Pfn,
        spaces: &S,
    ) -> Option<Result<Loss, Error>> {
        let folios = Folios::new(self.phys.meta());
        let folio = folios.of(frame)?;
        while folios.is_secluded(folio) {
            spin_loop();
        }
        let (cached, owner) = folios.identified(folio)?;
        let (id, at) = (file_of(owner), FilePages::block(page_of(owner), folio.order));
        let index = self.index(id).ok()?;
        let known = cached.known();
        if self.device_of(id).is_ok() || !known.contains(Known::POISONED) && !cached.hold() {
            return None;
        }
        cached.learn(known | Known::POISONED);
        drop(cached);
        let mut done = Ok(());
        spaces.visit(&mut |space| done = done.and(self.unmap_failed(space, id, at, folio)));
        let is_dirty = matches!(index.find(at.start).0, Entry::Folio { dirty: true, .. });
        // What is on its way to the store may not arrive.
        let has_it = !is_dirty && !known.contains(Known::WRITING);
        if !has_it || index.file.store() == Some(Store::Memory) {
            return Some(done.map(|()| Loss::Content));
        }
        if index.remove(at.start, folio, None) {
            self.forget_folio(&index, at.start, folio);
        }
        Some(done.map(|()| Loss::Nothing))
    }

    /// Takes what maps a file's folio out of a space's tables. What a program has of its own there
    /// stays.
    fn unmap_failed(
        &self,
        space: &Space<A>,
        id: FileId,
        at: FilePages,
        folio: Folio,
    ) -> Result<(), Error> {
        self.where_shown(space, id, at, |_, span| {
            let mut gather = Gather::new();
            self.detach(space, span, &mut gather, &|one| one == folio);
            self.settle(space, &mut gather);
            Ok(())
        })
    }
}
