//! A write to a private page of a file copies a whole block, out of all folios of the file that are
//! mapped in it (rows B5, C4).
//!
//! The offset of a program's data in its file rarely agrees, to more than a page, with its address.
//! So a block of memory maps parts of several folios, and the copy of the block is assembled from
//! all of them:
//!
//! ```text
//!   file     │ folio      │ folio      │
//!                  ╲         ╲
//!   memory     │ COW, COW, ..  COW │      held, copied, compared with the leaves, replaced at once
//! ```
//!
//! A page that is absent, or already exclusive, prevents it: a smaller block may still be possible.

use arrayvec::ArrayVec;
use quire_arch::{Arch, Attrs, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order, PageSpan};

use super::unshare::{Part, Unshare};
use crate::folio::{Folio, FolioFlags, Folios};
use crate::limits::PIECES_MAX;
use crate::space::View;
use crate::table::{Locked, What};

/// The file pages of a block: consecutive pages, in parts of folios, with a reference to each
/// folio.
#[must_use = "the folios are held: release them"]
pub(crate) struct BlockSource {
    parts: ArrayVec<Part, PIECES_MAX>,
}

impl BlockSource {
    /// Without parts.
    pub(crate) fn new() -> Self {
        Self { parts: ArrayVec::new() }
    }

    /// Takes references to the folios of the file that `pages`, an aligned block, maps. `false`,
    /// and there are no parts, where another page is among them, or there are too many folios.
    pub(crate) fn hold<A: Arch, H: Hardware>(
        &mut self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        pages: PageSpan,
    ) -> bool {
        if !unshare.area.span.covers(pages) {
            return false;
        }
        let locked = view.tables().lock_lowest(unshare.page, Level::LAST);
        let reaches = locked.level() == Level::LAST && locked.reach().covers(pages);
        if !reaches || !view.space.areas.is_current(unshare.seq, pages) {
            return false;
        }
        let folios = view.folios();
        let mut hold = |folio, frames| {
            let part = Part::new(folio, frames);
            let held = is_sound(&folios, folio) && self.parts.try_push(part).is_ok();
            if held {
                folios.get(folio);
            }
            held
        };
        if each_leaf(&locked, pages, |frames| folios.each(frames, &mut hold) == frames.count) {
            return true;
        }
        // This table still maps them: none of these references is the last.
        self.release(view, &mut |_| debug_assert!(false));
        false
    }

    /// The frames, each with the number of frames before it.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (u64, FrameSpan)> {
        self.parts.iter().scan(0, |before, part| {
            let at = *before;
            *before += part.frames().count;
            Some((at, part.frames()))
        })
    }

    /// Maps `run`, a folio with a copy of all the parts, at `pages` in place of them.
    ///
    /// # Errors
    /// The run, when the areas or the leaves have changed.
    pub(crate) fn replace<A: Arch, H: Hardware>(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        pages: PageSpan,
        run: FrameRun,
    ) -> Result<(), FrameRun> {
        let last = unshare.replace(view, &self.parts, Order::ZERO, pages, run)?;
        debug_assert!(last.is_none(), "this holds a reference to each folio");
        Ok(())
    }

    /// Releases the folios. `free` gets the frames of those whose last reference this was.
    pub(crate) fn release<A: Arch, H: Hardware>(
        &mut self,
        view: &View<'_, A, H>,
        free: &mut impl FnMut(FrameRun),
    ) {
        let folios = view.folios();
        self.parts.drain(..).filter_map(|part| folios.put(part.folio())).for_each(free);
    }
}

/// Calls `act` with the frames of all leaves of `pages`; returns whether all of them are COW leaves
/// and `act` agreed to each.
fn each_leaf<A: Arch, H: Hardware>(
    locked: &Locked<'_, A, H>,
    pages: PageSpan,
    mut act: impl FnMut(FrameSpan) -> bool,
) -> bool {
    let mut at = locked.index(pages.start);
    let end = at + pages.count() as usize;
    while at < end {
        let run = locked.run(at, end);
        let What::Leaf { frame, attrs, .. } = run.what else { return false };
        let frames = FrameSpan::new(frame, run.count as u64);
        if !attrs.contains(Attrs::COW) || !act(frames) {
            return false;
        }
        at += run.count;
    }
    true
}

/// Whether `folio`, which a table maps, has pages of a file that can be copied. A folio that a fork
/// shares has none: it is better kept whole until its last user writes it.
fn is_sound(folios: &Folios<'_>, folio: Folio) -> bool {
    let (known, _) = folios.known(folio);
    known.contains(FolioFlags::CACHED) && !known.contains(FolioFlags::POISONED)
}
