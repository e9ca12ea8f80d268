//! Pins: pages that stay in place.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{Access, FrameSpan, PageSpan, Pfn, Prot, Vpn};

use super::Mm;
use crate::base::{Error, Stop};
use crate::fault::Unshare;
use crate::folio::Folio;
use crate::limits::FAULT_TRIES;
use crate::space::{AreaFlags, Space, View};
use crate::table::{WATCHED, What, is_foreign};

/// A page that keeps its frame until [`Mm::unpin`].
///
/// A page of [`Mm::pin`] is exclusive to its space: a fork copies it for the child, so that the
/// program and the user of the frame go on seeing the same memory. A page of [`Mm::pin_read`] is
/// only kept from being freed: it has the program's contents of that moment, but not of later
/// writes.
#[derive(Debug)]
#[must_use = "the page stays pinned: unpin it"]
pub struct Pinned {
    frame: Pfn,
    folio: Folio,
    hold: Hold,
}

/// The guarantee that a pin needs from its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// The page is exclusive to its space, and stays so.
    Own,
    /// The same, and it counts as written, whether or not the program may write it.
    Change,
    /// The page is not freed.
    Look,
}

impl Pinned {
    /// The frame that holds the page.
    pub fn frame(&self) -> Pfn {
        self.frame
    }
}

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Pins `page` after resolving a fault for `access`: it is present, exclusive to its space, and
    /// stays in its frame.
    ///
    /// # Errors
    /// As for [`fault`](Self::fault); [`Error::Invalid`] where the frame is the embedder's
    /// ([`map_frames`](crate::Spaces::map_frames)), or has more pins than can be counted.
    pub fn pin(&self, space: &Space<A>, page: Vpn, access: Access) -> Result<Pinned, Stop> {
        self.pin_as(space, page, access, Hold::Own)
    }

    /// Pins `page` to read it now, for another space for example: maps it if it is missing, but
    /// does not copy shared memory. To write, use [`pin`](Self::pin).
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn pin_read(&self, space: &Space<A>, page: Vpn) -> Result<Pinned, Stop> {
        self.pin_as(space, page, Access::Read, Hold::Look)
    }

    /// Pins `page` to write it even where the program may not now, as a debugger does that plants a
    /// breakpoint. The page becomes exclusive, so that no other space sees the write; the program's
    /// rights stay as they are.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin); [`Error::Denied`] where the program may not even read, and in
    /// areas that can never be writable and private, such as shared ones.
    pub fn pin_change(&self, space: &Space<A>, page: Vpn) -> Result<Pinned, Stop> {
        let area = self.spaces().areas(space, PageSpan::new(page, page.add(1))).next();
        let area = area.ok_or(Error::NoArea(page))?;
        let own = !area.flags.contains(AreaFlags::SHARED) && area.max_prot.contains(Prot::WRITE);
        match area.prot.allows(Access::Write) {
            true => self.pin(space, page, Access::Write),
            false if own => self.pin_as(space, page, Access::Read, Hold::Change),
            false => Err(Error::Denied(page, Access::Write, area.prot).into()),
        }
    }

    fn pin_as(
        &self,
        space: &Space<A>,
        page: Vpn,
        access: Access,
        hold: Hold,
    ) -> Result<Pinned, Stop> {
        let view = self.base().view(space);
        for _ in 0..FAULT_TRIES {
            match self.try_pin(&view, page, access, hold) {
                Ok(pinned) => return Ok(pinned),
                Err(Lack::Folio) => return Err(Error::Invalid.into()),
                Err(Lack::Own) => {
                    let unshare = Unshare::of(&view, page).ok_or(Error::NoArea(page))?;
                    if !unshare.prot().allows(access) {
                        return Err(Error::Denied(page, access, unshare.prot()).into());
                    }
                    self.spaces().unshare(&view, &unshare, &mut || {})?;
                }
                Err(Lack::Fault) => {
                    self.fault(space, page, access)?;
                }
            }
        }
        Err(Error::Invalid.into())
    }

    /// Pins the page mapped at `page`, if the leaf grants `access`.
    fn try_pin(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        access: Access,
        hold: Hold,
    ) -> Result<Pinned, Lack> {
        let locked = view.tables().lock_lowest(page, Level::LAST);
        let index = locked.index(page);
        let What::Leaf { frame, attrs, .. } = locked.run(index, index + 1).what else {
            return Err(Lack::Fault);
        };
        let folios = view.folios();
        let frame = frame.add(page.offset_from(locked.page(index)));
        if hold != Hold::Look && attrs.contains(Attrs::COW) {
            let (one, frames) = (PageSpan::new(page, page.add(1)), FrameSpan::new(frame, 1));
            let folio = folios.of(frame).filter(|_| attrs.contains(WATCHED));
            match folio {
                Some(_) if access == Access::Write => return Err(Lack::Fault),
                // Its watcher answers for it, and it is exclusive nevertheless.
                Some(folio) if locked.is_own(&folios, folio, one, frames) => {}
                _ => return Err(Lack::Own),
            }
        }
        // A pin for writing bypasses the tables, so the leaf must be dirty before.
        let may = access != Access::Write || attrs.contains(Attrs::DIRTY);
        if is_foreign(attrs) {
            return Err(Lack::Folio);
        }
        let folio = folios.of(frame).ok_or(Lack::Folio)?;
        if !may || !attrs.prot().allows(access) {
            return Err(Lack::Fault);
        }
        let held = match hold {
            Hold::Own | Hold::Change => folios.pin(folio),
            Hold::Look => folios.hold(folio),
        };
        if held && hold == Hold::Change {
            locked.note_written(index);
        }
        held.then_some(Pinned { frame, folio, hold }).ok_or(Lack::Fault)
    }

    /// Releases a pinned page. If it was [pinned to be changed](Self::pin_change), and the program
    /// executes it, the program fetches the change from now on.
    pub fn unpin(&self, pinned: Pinned) {
        let folios = self.base().folios();
        let last = match pinned.hold {
            Hold::Own => folios.unpin(pinned.folio),
            Hold::Change => {
                folios.publish_again(self.base().hw, pinned.folio);
                folios.unpin(pinned.folio)
            }
            Hold::Look => folios.put(pinned.folio),
        };
        self.base().free(last);
    }
}

/// The reason why a page cannot be pinned now.
enum Lack {
    /// No leaf grants the access, or the folio has no room for one more pin.
    Fault,
    /// It is not exclusive.
    Own,
    /// Its frame is the embedder's.
    Folio,
}
