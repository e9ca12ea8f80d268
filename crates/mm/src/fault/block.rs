//! A write to a shared page copies several pages, out of all folios that are mapped there: to a
//! private page of a file a whole block (rows B5, C4), and in a program that writes page after page
//! the next ones (row C4).
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
use quire_units::{FrameSpan, PageSpan};

use super::unshare::{Part, Unshare};
use crate::folio::{Folio, FolioFlags, Folios};
use crate::limits::PIECES_MAX;
use crate::space::View;
use crate::table::{Locked, What};

/// The pages to copy: consecutive ones, in parts of folios, with a reference to each folio.
#[must_use = "the folios are held: release them"]
pub(crate) struct BlockSource {
    parts: ArrayVec<Part, PIECES_MAX>,
}

impl BlockSource {
    /// Without parts.
    pub(crate) fn new() -> Self {
        Self { parts: ArrayVec::new() }
    }

    /// Takes references to the folios that `pages` map: of a file, or else such as others map, too.
    /// `false` where another page is among them, or there are too many folios. The caller calls
    /// [`release`](Self::release) in any case.
    // Not inlined: its stack is free again while pages are copied.
    #[inline(never)]
    pub(crate) fn hold<A: Arch, H: Hardware>(
        &mut self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        pages: PageSpan,
        of_file: bool,
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
            let held = is_sound(&folios, folio, of_file) && self.parts.try_push(part).is_ok();
            if held {
                folios.get(folio);
            }
            held
        };
        each_leaf(&locked, pages, |frames| folios.each(frames, &mut hold) == frames.count)
    }

    /// The parts, in the order of their pages.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
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

/// Whether the pages of `folio`, which a table maps, may be copied. A folio that a fork shares is
/// no part of a block of a file: it is better kept whole until its last user writes it. And a folio
/// that may be this space's alone is better kept than copied.
fn is_sound(folios: &Folios<'_>, folio: Folio, of_file: bool) -> bool {
    let (known, _) = folios.known(folio);
    let wanted = match of_file {
        true => known.contains(FolioFlags::CACHED),
        false => !folios.may_be_sole(folio),
    };
    wanted && !known.contains(FolioFlags::POISONED)
}
