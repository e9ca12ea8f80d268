//! Excluding all users from pages of a file, so that they can move to other folios.
//!
//! ```text
//!   seclude:   hidden from lookups ── unmapped, flushed ── no other reference ──► ours
//!                                                          │ another reference
//!                                                          ▼
//!                                                          shown again; faults map them anew
//! ```
//!
//! Most pages are mapped at one place, which the home of their folio names: its space is visited
//! for them. All spaces are visited for the others.
//!
//! A fault or reader that looks for such a page waits until the file has another folio for it, or
//! the same again. Removals of a folio from its file wait as well: so a secluded folio stays where
//! it is in the index. One CPU at a time does this to a file ([`File::reshaping`]).

use quire_arch::{Arch, Level};
use quire_hw::Hardware;
use quire_units::{Order, PageSpan};

use super::OpenFile;
use crate::base::{AllSpaces, Change, Error, folios_within};
use crate::cache::{FilePages, file_of, page_of};
use crate::folio::{Folio, FolioFlags, Home};
use crate::space::{Area, AreaFlags, Space};
use crate::table::{Gather, Taking};

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

/// Pages of a file that have their users again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) why: Bound,
    /// Where they were unmapped before that was seen.
    pub(super) mapped: Mappings,
}

/// Where pages of a file were mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mappings {
    Nowhere,
    /// At the home of the one folio that has all of them.
    Home(Home),
    Anywhere,
}

impl Mappings {
    /// Those of the pages from the one that is `pages` further on.
    pub(super) fn ahead(self, pages: u64) -> Self {
        match self {
            Mappings::Home(home) => Mappings::Home(home.ahead(pages)),
            other => other,
        }
    }
}

impl<'a, A: Arch, H: Hardware> OpenFile<'a, A, H> {
    /// Secludes the folios that a file has in `pages`, and that lie wholly in it; returns where
    /// they were mapped. The caller is reshaping the file.
    ///
    /// # Errors
    /// The reason. The folios have their users again, as before, but may not be mapped any more.
    pub(crate) fn seclude(
        &self,
        pages: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Mappings, Kept> {
        let mut mapped = Mappings::Nowhere;
        let done = self
            .hide_all(pages)
            .and_then(|()| self.detach_all(pages, spaces, &mut mapped))
            .and_then(|()| self.are_ours(pages));
        done.map(|()| mapped).map_err(|why| {
            self.readmit(pages);
            Kept { why, mapped }
        })
    }

    /// Unmaps the secluded folios of `pages`: at the home of a single one, and everywhere if it is
    /// mapped still. Sets where they were `mapped`.
    fn detach_all(
        &self,
        pages: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
        mapped: &mut Mappings,
    ) -> Result<(), Bound> {
        let folios = self.base().folios();
        // A fault that found a folio before it was hidden has a reference to it.
        let there = || folios_within(&self.index, pages).map(|(folio, _)| folio);
        let is_mapped = || there().any(|folio| folios.counts(folio).mapped > 0);
        let sole = there().next().filter(|folio| folio.order.pages() == pages.count());
        let home = sole.map(|folio| Mappings::Home(folios.home(folio)));
        for likely in home.into_iter().chain([Mappings::Anywhere]) {
            if !is_mapped() {
                break;
            }
            let mut tracked = false;
            self.visit(pages, likely, spaces, &mut |space, within| {
                tracked |= self.is_tracked(space, within, pages);
            });
            if tracked {
                return Err(Bound::Tracked);
            }
            self.visit(pages, likely, spaces, &mut |space, within| {
                self.detach_secluded(space, within, pages);
            });
            *mapped = likely;
        }
        Ok(())
    }

    /// Calls `see` with each space that may show `pages`, and the part of it that may.
    fn visit(
        &self,
        pages: FilePages,
        mapped: Mappings,
        spaces: &(impl AllSpaces<A> + ?Sized),
        see: &mut dyn FnMut(&Space<A>, PageSpan),
    ) {
        let all = Space::<A>::all();
        match mapped {
            Mappings::Nowhere => {}
            Mappings::Anywhere => spaces.visit(&mut |space| see(space, all)),
            Mappings::Home(home) => {
                let within = home.span(pages.count(), all);
                if !within.is_empty() {
                    spaces.visit_some(&[home.space], &mut |space| {
                        if space.number() == home.space {
                            see(space, within);
                        }
                    });
                }
            }
        }
    }

    /// Shows the secluded folios of `pages` again.
    pub(crate) fn readmit(&self, pages: FilePages) {
        let folios = self.base().folios();
        let secluded =
            folios_within(&self.index, pages).filter(|(folio, _)| folios.is_secluded(*folio));
        secluded.for_each(|(folio, _)| folios.readmit(folio));
    }

    /// Hides the folios of `pages` from lookups from now on.
    fn hide_all(&self, pages: FilePages) -> Result<(), Bound> {
        folios_within(&self.index, pages).try_for_each(|(folio, at)| {
            let cached = self.cached(at.start, folio).ok_or(Bound::Held)?;
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
    fn are_ours(&self, pages: FilePages) -> Result<(), Bound> {
        let folios = self.base().folios();
        let is_ours = |folio| folios.is_secluded(folio) && folios.is_indexed_only(folio);
        match folios_within(&self.index, pages).all(|(folio, _)| is_ours(folio)) {
            true => Ok(()),
            false => Err(Bound::Held),
        }
    }

    /// Whether an area in a part of a space maps some of `pages` where writes to the file are
    /// tracked: only its leaves record that.
    fn is_tracked(&self, space: &Space<A>, within: PageSpan, pages: FilePages) -> bool {
        let tells = AreaFlags::TRACKED | AreaFlags::SHARED;
        self.showing_in(space, within, pages).any(|(area, _)| area.flags.contains(tells))
    }

    /// The areas of a space that map some of `pages` of a file, and the place in each.
    pub(crate) fn showing(
        &self,
        space: &'a Space<A>,
        pages: FilePages,
    ) -> impl Iterator<Item = (Area, PageSpan)> + use<'a, A, H> {
        self.showing_in(space, Space::<A>::all(), pages)
    }

    /// The same of a part of a space.
    fn showing_in(
        &self,
        space: &'a Space<A>,
        within: PageSpan,
        pages: FilePages,
    ) -> impl Iterator<Item = (Area, PageSpan)> + use<'a, A, H> {
        let id = self.index.id;
        let areas = self.spaces().areas(space, within);
        let shown = areas.map(move |area| (area, area.showing(id, pages.start, pages.end)));
        shown.filter(|(_, span)| !span.is_empty())
    }

    /// Calls `act` with each stretch of a space that maps some of `pages` of a file, in one change
    /// of the space: areas stay in place meanwhile, and faults there wait.
    pub(crate) fn where_shown(
        &self,
        space: &'a Space<A>,
        pages: FilePages,
        mut act: impl FnMut(&mut Change<'a, A, H>, PageSpan) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.showing(space, pages).next().is_none() {
            return Ok(());
        }
        let mut change = self.base().change(space);
        change.hold(Space::<A>::all());
        self.showing(space, pages).try_for_each(|(_, span)| act(&mut change, span))
    }

    /// Unmaps what areas of all spaces have at `pages`, private copies as well. Guards stay until
    /// their area goes.
    pub(crate) fn unmap_all(
        &self,
        pages: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<(), Error> {
        let mut done = Ok(());
        spaces.visit(&mut |space| {
            done = done.and(self.where_shown(space, pages, |change, span| {
                change.take(span, Taking::Content, &|| PageSpan::new(span.start, span.start))
            }));
        });
        done
    }

    /// Whether `folio` is a secluded one of `pages`.
    pub(crate) fn is_secluded(&self, folio: Folio, pages: FilePages) -> bool {
        let (known, owner) = self.base().folios().known(folio);
        known.contains(FolioFlags::CACHED | FolioFlags::SECLUDED)
            && file_of(owner) == self.index.id
            && pages.contains(page_of(owner))
    }

    /// Unmaps the secluded folios of `pages` from a part of a space.
    fn detach_secluded(&self, space: &Space<A>, within: PageSpan, pages: FilePages) {
        let such = |folio: Folio| self.is_secluded(folio, pages);
        let mut gather = Gather::new();
        let _taking = space.taking();
        for (_, span) in self.showing_in(space, within, pages) {
            self.spaces().detach(space, span, &mut gather, &such);
        }
        self.base().settle(space, &mut gather);
    }

    /// Maps the pages that a file has in `pages` where they were `mapped` and areas have a table
    /// for them already: by one entry for a block, where the area covers all of it and the block
    /// is empty.
    pub(crate) fn show_again(
        &self,
        pages: FilePages,
        mapped: Mappings,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) {
        self.visit(pages, mapped, spaces, &mut |space, within| {
            let tables = self.base().view(space).tables();
            for (_, span) in self.showing_in(space, within, pages) {
                if tables.walk(span.start, Level::LAST).level != Level::LAST {
                    continue;
                }
                self.prune_blocks(space, span);
                // Pages that are not mapped now are mapped at their next access.
                self.files.map_cached(space, span);
            }
        });
    }

    /// Takes empty tables out that stand where one entry could map a block of `span`.
    #[inline(never)]
    fn prune_blocks(&self, space: &Space<A>, span: PageSpan) {
        let hole = whole_blocks(span, A::block_order());
        if !hole.is_empty() {
            let mut change = self.base().change(space);
            change.hold(hole);
            let tables = self.base().view(space).tables();
            tables.prune(hole, hole, change.gathered());
        }
    }
}

/// The whole aligned blocks of `order` in `span`.
fn whole_blocks(span: PageSpan, order: Order) -> PageSpan {
    let start = span.start.align_up(order.pages()).unwrap_or(span.end).min(span.end);
    PageSpan::new(start, span.end.align_down(order.pages()).max(start))
}
