//! Excluding all users from pages of a file, so that they can move to other folios.
//!
//! ```text
//!   seclude:   hidden from lookups ── unmapped, flushed ── no other reference ──► ours
//!                                                          │ another reference
//!                                                          ▼
//!                                                          shown again; faults map them anew
//! ```
//!
//! A fault or reader that looks for such a page waits until the file has another folio for it, or
//! the same again. Removals of a folio from its file wait as well: so a secluded folio stays where
//! it is in the index. One CPU at a time does this to a file ([`File::reshaping`]).

use quire_arch::{Arch, Level};
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::Files;
use crate::base::AllSpaces;
use crate::cache::{FilePages, Index, file_of, identity, page_of};
use crate::folio::{Folio, FolioFlags};
use crate::space::{Area, AreaFlags, Space};
use crate::table::Gather;

#[cfg(doc)]
use crate::cache::File;

/// The reason why pages of a file cannot be secluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    /// One has another reference, or is being read from or written to its store.
    Held,
    /// The memory of one has failed.
    Failed,
    /// An area maps one where writes are tracked, and would lose the record of them.
    Tracked,
}

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Secludes the folios that a file has in `pages`, and that lie wholly in it. The caller is
    /// reshaping the file.
    ///
    /// # Errors
    /// The reason. The folios have their users again, as before, but are not mapped any more.
    pub(crate) fn seclude(
        &self,
        index: &Index<'_, A, H>,
        pages: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<(), Bound> {
        let done = self.hide_all(index, pages).and_then(|()| {
            let mut tracked = false;
            spaces.visit(&mut |space| tracked |= self.is_tracked(space, index, pages));
            if tracked {
                return Err(Bound::Tracked);
            }
            spaces.visit(&mut |space| self.detach_secluded(space, index, pages));
            self.are_ours(index, pages)
        });
        if done.is_err() {
            self.readmit(index, pages);
        }
        done
    }

    /// Shows the secluded folios of `pages` again.
    pub(crate) fn readmit(&self, index: &Index<'_, A, H>, pages: FilePages) {
        let folios = self.base().folios();
        let done = each_folio(index, pages, |folio, _| {
            if folios.is_secluded(folio) {
                folios.readmit(folio);
            }
            Ok::<(), Bound>(())
        });
        debug_assert_eq!(done, Ok(()));
    }

    /// Hides the folios of `pages` from lookups from now on.
    fn hide_all(&self, index: &Index<'_, A, H>, pages: FilePages) -> Result<(), Bound> {
        let folios = self.base().folios();
        each_folio(index, pages, |folio, at| {
            let cached = folios.cached(folio.head, identity(index.id, at.start));
            let cached = cached.filter(|cached| cached.folio == folio).ok_or(Bound::Held)?;
            let known = cached.known();
            if known.contains(FolioFlags::POISONED) {
                return Err(Bound::Failed);
            }
            if !known.contains(FolioFlags::UPTODATE)
                || known.intersects(FolioFlags::WRITING | FolioFlags::LEAVING)
            {
                return Err(Bound::Held);
            }
            cached.learn(known | FolioFlags::SECLUDED);
            Ok(())
        })
    }

    /// Whether the folios of `pages` have no reference but the index's.
    fn are_ours(&self, index: &Index<'_, A, H>, pages: FilePages) -> Result<(), Bound> {
        let folios = self.base().folios();
        each_folio(index, pages, |folio, _| {
            let ours = folios.is_secluded(folio) && folios.is_indexed_only(folio);
            if ours { Ok(()) } else { Err(Bound::Held) }
        })
    }

    /// Whether an area of a space maps some of `pages` where writes to the file are tracked: only
    /// its leaves record them.
    fn is_tracked(&self, space: &Space<A>, index: &Index<'_, A, H>, pages: FilePages) -> bool {
        let tells = AreaFlags::TRACKED | AreaFlags::SHARED;
        self.showing(space, index, pages).any(|(area, _)| area.flags.contains(tells))
    }

    /// The areas of a space that map some of `pages`, and the place in each.
    pub(crate) fn showing<'a>(
        &'a self,
        space: &'a Space<A>,
        index: &Index<'_, A, H>,
        pages: FilePages,
    ) -> impl Iterator<Item = (Area, PageSpan)> + use<'a, A, H> {
        let (id, all) = (index.id, PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES)));
        let areas = self.spaces().areas(space, all);
        let shown = areas.map(move |area| (area, area.showing(id, pages.start, pages.end)));
        shown.filter(|(_, span)| !span.is_empty())
    }

    /// Unmaps the secluded folios of `pages` from a space.
    fn detach_secluded(&self, space: &Space<A>, index: &Index<'_, A, H>, pages: FilePages) {
        let folios = self.base().folios();
        let such = |folio: Folio| {
            let (known, owner) = folios.known(folio);
            known.contains(FolioFlags::CACHED | FolioFlags::SECLUDED)
                && file_of(owner) == index.id
                && pages.contains(page_of(owner))
        };
        let tables = self.base().view(space).tables();
        let mut gather = Gather::new();
        let _taking = space.taking();
        for (_, span) in self.showing(space, index, pages) {
            let mut at = span.start;
            while let Some(page) = tables.detach(PageSpan::new(at, span.end), &mut gather, &such) {
                self.base().settle(space, &mut gather);
                at = page;
            }
        }
        self.base().settle(space, &mut gather);
    }

    /// Maps the pages that a file has in `pages` where areas map it and have a table for it
    /// already: by one entry for a block, where the area covers all of it and the block is empty.
    pub(crate) fn show_again(
        &self,
        index: &Index<'_, A, H>,
        pages: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) {
        spaces.visit(&mut |space| {
            let tables = self.base().view(space).tables();
            for (_, span) in self.showing(space, index, pages) {
                if tables.walk(span.start, Level::LAST).level != Level::LAST {
                    continue;
                }
                let hole = whole_blocks(span, A::block_order());
                if !hole.is_empty() {
                    self.base().change(space, |section| {
                        section.hold(hole);
                        tables.prune(hole, hole, section.gathered());
                        self.base().settle(space, section.gathered());
                    });
                }
                // Pages that are not mapped now are mapped at their next access.
                self.map_cached(space, span);
            }
        });
    }
}

/// The whole aligned blocks of `order` in `span`.
fn whole_blocks(span: PageSpan, order: Order) -> PageSpan {
    let start = span.start.align_up(order.pages()).unwrap_or(span.end).min(span.end);
    PageSpan::new(start, span.end.align_down(order.pages()).max(start))
}

/// Calls `act` with the folios that lie wholly in `pages`, up to the first that is refused.
fn each_folio<A: Arch, H: Hardware, E>(
    index: &Index<'_, A, H>,
    pages: FilePages,
    mut act: impl FnMut(Folio, FilePages) -> Result<(), E>,
) -> Result<(), E> {
    let mut left = pages;
    while let Some((folio, at)) = index.next(left) {
        left = FilePages::new(at.end, left.end);
        if pages.covers(at) {
            act(folio, at)?;
        }
    }
    Ok(())
}
