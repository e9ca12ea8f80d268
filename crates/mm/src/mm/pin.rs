//! Pins: pages that stay where they are.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{Access, PageSpan, Pfn, Prot, Vpn};

use super::Mm;
use crate::base::Error;
use crate::fault::Unshare;
use crate::folio::{Folio, Folios};
use crate::limits::FAULT_TRIES;
use crate::space::{AreaFlags, Space, View};
use crate::table::What;

/// A page that stays where it is and what it is until [`Mm::unpin`].
///
/// A page of [`Mm::pin`] is its space's own: a fork copies it for the child, so that whoever was
/// told the frame and the program go on seeing the same memory. A page of [`Mm::pin_read`] is only
/// kept from being freed: it is what the program saw at that moment, and no longer if that writes.
#[derive(Debug)]
#[must_use = "the page stays pinned: unpin it"]
pub struct Pinned {
    frame: Pfn,
    folio: Folio,
    hold: Hold,
}

/// What a pin asks of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// That it is its space's own, and stays so.
    Own,
    /// The same, and that it counts as written, whether the program may write it or not.
    Change,
    /// That it is not freed.
    Look,
}

impl Pinned {
    /// The frame that holds the page.
    pub fn frame(&self) -> Pfn {
        self.frame
    }
}

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Pins `page`, after whatever `access` to it takes: it is there, its space's own, and stays
    /// in its frame.
    ///
    /// # Errors
    /// As for [`fault`](Self::fault); [`Error::Invalid`] where the frame is no folio's, or more
    /// have it pinned than can be counted.
    pub fn pin(&self, space: &Space<A>, page: Vpn, access: Access) -> Result<Pinned, Error> {
        self.pin_as(space, page, access, Hold::Own)
    }

    /// Pins `page` to read it now, for another space, say: brings it in if it is not there, but
    /// copies nothing that others have as well. To write, [`pin`](Self::pin).
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn pin_read(&self, space: &Space<A>, page: Vpn) -> Result<Pinned, Error> {
        self.pin_as(space, page, Access::Read, Hold::Look)
    }

    /// Pins `page` to write it even where the program may not now, as a debugger does that plants a
    /// breakpoint. The page becomes the space's own, so that nobody else sees what is written; the
    /// program's rights stay what they are.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin): [`Error::Denied`] where the program may not even read, and where
    /// it could never be allowed to write memory of its own, as in shared areas.
    pub fn pin_change(&self, space: &Space<A>, page: Vpn) -> Result<Pinned, Error> {
        let area = self.spaces().areas(space, PageSpan::new(page, page.add(1))).next();
        let area = area.ok_or(Error::NoArea(page))?;
        let own = !area.flags.contains(AreaFlags::SHARED) && area.most.contains(Prot::WRITE);
        match area.prot.allows(Access::Write) {
            true => self.pin(space, page, Access::Write),
            false if own => self.pin_as(space, page, Access::Read, Hold::Change),
            false => Err(Error::Denied(page, Access::Write, area.prot)),
        }
    }

    fn pin_as(
        &self,
        space: &Space<A>,
        page: Vpn,
        access: Access,
        hold: Hold,
    ) -> Result<Pinned, Error> {
        let view = self.base().view(space);
        for _ in 0..FAULT_TRIES {
            match self.try_pin(&view, page, access, hold) {
                Some(Ok(pinned)) => return Ok(pinned),
                Some(Err(Shared)) => {
                    let unshare = Unshare::of(&view, page).ok_or(Error::NoArea(page))?;
                    if !unshare.prot().allows(access) {
                        return Err(Error::Denied(page, access, unshare.prot()));
                    }
                    self.spaces().unshare(&view, &unshare, &mut || {})?;
                }
                None if self.is_foreign(&view, page) => return Err(Error::Invalid),
                None => {
                    self.fault(space, page, access)?;
                }
            }
        }
        Err(Error::Invalid)
    }

    /// Pins what is mapped at `page`, if it grants `access`.
    fn try_pin(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        access: Access,
        hold: Hold,
    ) -> Option<Result<Pinned, Shared>> {
        let locked = view.tables().lock_lowest(page, Level::LAST);
        let index = locked.index(page);
        let What::Leaf { frame, attrs, .. } = locked.run(index, index + 1).what else {
            return None;
        };
        if hold != Hold::Look && attrs.contains(Attrs::COW) {
            return Some(Err(Shared));
        }
        let folios = Folios::new(view.meta);
        let frame = frame.add(page.offset_from(locked.page(index)));
        // What is written behind the back of the tables, they have to know before.
        let may = access != Access::Write || attrs.contains(Attrs::DIRTY);
        let folio = folios.of(frame).filter(|_| may && attrs.prot().allows(access))?;
        let held = match hold {
            Hold::Own | Hold::Change => folios.pin(folio),
            Hold::Look => folios.hold(folio),
        };
        if held && hold == Hold::Change {
            locked.note_written(index);
        }
        held.then_some(Ok(Pinned { frame, folio, hold }))
    }

    /// Whether the leaf at `page` maps what is no folio.
    fn is_foreign(&self, view: &View<'_, A, H>, page: Vpn) -> bool {
        let locked = view.tables().lock_lowest(page, Level::LAST);
        let index = locked.index(page);
        match locked.run(index, index + 1).what {
            What::Leaf { frame, .. } => Folios::new(view.meta).of(frame).is_none(),
            _ => false,
        }
    }

    /// Lets a pinned page go.
    pub fn unpin(&self, pinned: Pinned) {
        let folios = Folios::new(self.base().phys.meta());
        let last = match pinned.hold {
            Hold::Own | Hold::Change => folios.unpin(pinned.folio),
            Hold::Look => folios.put(pinned.folio),
        };
        if let Some(run) = last {
            self.base().free(run);
        }
    }
}

/// The page is not exclusive.
struct Shared;
