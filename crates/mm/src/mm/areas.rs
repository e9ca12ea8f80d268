//! Spaces and their areas: what every embedder calls. The rest is on
//! [`Spaces`](crate::Spaces).

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Asid, PageSpan, Prot};

use super::Mm;
use crate::base::Error;
use crate::space::{Advice, Space};
use crate::spaces::Move;

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Makes a space without areas in a place of the embedder's, over a root table that the
    /// embedder has prepared: one frame, zero but for the embedder's entries beyond the user half.
    /// `asid` is a tag that the embedder has found free, or any where it enters spaces [with an
    /// allocator of tags](Space::enter_with); areas without a fixed place go into `window`. A
    /// `Space` is large: it is never on the stack.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the place has a space, the window exceeds the pages that programs
    /// may map, or the run is not one frame; the frame is free then.
    pub fn space_in<'p>(
        &self,
        place: &'p mut Option<Space<A>>,
        root: FrameRun,
        asid: Asid,
        window: PageSpan,
    ) -> Result<&'p mut Space<A>, Error> {
        self.spaces().space_in(place, root, asid, window)
    }

    /// Makes a child of `parent` in a place of the embedder's, over a root table as for
    /// [`space_in`](Self::space_in) and with the tag `asid`: the same areas, except for those
    /// advised otherwise ([`DONTFORK`](crate::space::AreaFlags::DONTFORK),
    /// [`WIPEONFORK`](crate::space::AreaFlags::WIPEONFORK)), and the same contents. The fork copies
    /// no memory: both map the same folios, and a write by one of them copies. Only pinned pages
    /// are copied for the child at once. Locks of areas are not inherited.
    ///
    /// Faults in the parent wait meanwhile. One flush of the parent covers all of it.
    ///
    /// Of a shared anonymous area the child gets the pages that exist; pages that either space
    /// touches later are its own.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Poisoned`] when a pinned page cannot be copied. There is no
    /// child then, and the parent is as before, except that some pages may be write-protected until
    /// their next write. [`Error::Invalid`] when the place has a space, or the run is not one
    /// frame. The frame is free after each of them.
    pub fn fork_in<'p>(
        &self,
        place: &'p mut Option<Space<A>>,
        parent: &Space<A>,
        root: FrameRun,
        asid: Asid,
    ) -> Result<&'p mut Space<A>, Error> {
        self.spaces().fork_in(place, parent, root, asid)
    }

    /// Ends the space in a place, which is empty then. No CPU uses it any more: each has switched
    /// away, and none may enter it again. One flush covers all of it, however much was mapped. It
    /// comes first, so that freeing pages needs no further flush.
    pub fn destroy_in(&self, place: &mut Option<Space<A>>) {
        self.spaces().destroy_in(place)
    }

    /// Unmaps `span`: no page of it is mapped afterwards, and its memory is free. Unmapped pages in
    /// it are no error.
    ///
    /// # Errors
    /// [`Error::Invalid`], also where an end lies within a reserved folio; [`Error::NoMemory`] when
    /// a large leaf or an area must be split and there is no frame for that. Nothing has changed
    /// then.
    pub fn unmap(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.spaces().unmap(space, span)
    }

    /// Gives the areas of `span` other rights. All of it must be mapped, as on Linux.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::NoArea`] with the first page that no area holds;
    /// [`Error::Forbidden`]; [`Error::NoMemory`] as for [`unmap`](Self::unmap). Nothing has changed
    /// then.
    pub fn protect(&self, space: &Space<A>, span: PageSpan, prot: Prot) -> Result<(), Error> {
        self.spaces().protect(space, span, prot)
    }

    /// Frees the memory of `span`; the areas stay, and read as zero again (`MADV_DONTNEED`). Guards
    /// stay as well.
    ///
    /// # Errors
    /// [`Error::Invalid`], also where an area shows [frames](crate::Spaces::map_frames);
    /// [`Error::NoMemory`] when a large leaf must be split and there is no frame for that: memory
    /// before it is free then.
    pub fn discard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.spaces().discard(space, span)
    }

    /// Advises the areas of `span` about large folios. All of it must be mapped.
    ///
    /// # Errors
    /// As for [`protect`](Self::protect).
    pub fn advise(&self, space: &Space<A>, span: PageSpan, advice: Advice) -> Result<(), Error> {
        self.spaces().advise(space, span, advice)
    }

    /// Makes the pages `old`, which lie in one area, `pages` pages long, moves them if that is
    /// necessary and allowed, and returns their place. Contents move with them: entries are moved,
    /// memory is not copied.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no pages, or the new place overlaps the old; with [`Move::Keep`] also
    /// another number of pages; of an area that shows [frames](crate::Spaces::map_frames), or
    /// reserved folios, more pages or [`Move::Keep`]; a part of a reserved folio.
    /// [`Error::NoArea`]: `old` is not in one area. [`Error::NoRoom`]: it may not move and has no
    /// room. [`Error::Exists`]: with [`At::FixedNoReplace`](crate::space::At::FixedNoReplace), the
    /// target is taken. [`Error::NoMemory`]. Nothing has changed then, but that with a target that
    /// replaces, that may be unmapped, and what `pages` cuts off as well, as on Linux.
    pub fn remap(
        &self,
        space: &Space<A>,
        old: PageSpan,
        pages: u64,
        how: Move,
    ) -> Result<PageSpan, Error> {
        self.spaces().remap(space, old, pages, how)
    }

    /// Pages of `space` that are resident.
    pub fn resident(&self, space: &Space<A>) -> u64 {
        self.spaces().resident(space)
    }
}
