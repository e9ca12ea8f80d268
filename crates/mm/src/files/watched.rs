//! Files in watched areas (row D8): what their watchers are told, and what they answer.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Access, PageSpan};

use super::{Files, OpenFile};
use crate::base::{Error, Need, Stop};
use crate::cache::{Entry, FilePages, Store, leaf_order, map_around};
use crate::fault::FilePage;
use crate::folio::FolioFlags;
use crate::limits::POPULATE_ORDER;
use crate::space::{Advice, Space, View, WatchFor};
use crate::spaces::{Answer, Answered, Shield};
use crate::stats::Event;

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Returns the watcher's need for a page that its file has in memory, or not, if the watcher
    /// answers that.
    #[inline(never)]
    pub(super) fn tell_watcher(
        &self,
        fault: &FilePage,
        is_cached: bool,
        access: Access,
    ) -> Result<(), Stop> {
        // A page that a device has is not missing.
        if self.store() != Some(Store::Memory) {
            return Ok(());
        }
        let event = if is_cached { WatchFor::MINOR } else { WatchFor::MISSING };
        match fault.area.watched(fault.page, event, access) {
            Some(event) => Err(Need::Watcher(event).into()),
            None => Ok(()),
        }
    }

    /// The first pages of `wanted`, up to one that is not in memory.
    fn cached_from(&self, wanted: FilePages) -> FilePages {
        let mut end = wanted.start;
        while end < wanted.end
            && let (Entry::Folio { .. }, found) = self.index.find(end)
        {
            end = found.end;
        }
        FilePages::new(wanted.start, end.min(wanted.end))
    }

    /// Inserts a folio with the answer's content, from the page that faulted on. Returns its pages.
    fn answer_missing(
        &self,
        view: &View<'_, A, H>,
        fault: &FilePage,
        wanted: FilePages,
        answer: &mut Answer<'_>,
    ) -> Result<FilePages, Stop> {
        let advice = Advice::of(fault.area.flags);
        let sizes = self.base().policy.candidates(advice, view.space.opt_out());
        let (run, order) = self.room_for(fault.at, wanted, sizes)?;
        let block = FilePages::block(fault.at, order);
        if !wanted.covers(block) {
            self.base().free(run);
            return Err(Error::Invalid.into());
        }
        let run = answer.fill(self.base(), run, fault.page)?;
        match self.enter(block.start, run, order, FolioFlags::UPTODATE)? {
            Some(_) => Ok(block),
            None if fault.at >= self.pages() => Err(Error::Missing(fault.page).into()),
            None => Err(Error::Present(fault.page).into()),
        }
    }
}

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Maps the pages of `span`, in watched areas, with the content that their watcher gives; from
    /// the first on, until one is there already ([`Error::Present`]); unless `shield` is
    /// [`Shield::Off`], they are protected from writes. The areas' rights do not
    /// matter for that. Programs whose faults returned [`Need::Watcher`](crate::Need::Watcher) try
    /// again then.
    ///
    /// [`Answered::end`] has the reason why not all pages were mapped: [`Error::Present`] at a page
    /// that the space, or for another answer than [`Cached`](Answer::Cached) its file, has;
    /// [`Error::NoArea`] at one that is not watched; [`Error::Missing`] where the
    /// file has no such page, or the function could not write the content;
    /// [`Error::Invalid`] for pages that programs may not map, and where the area shows a file that
    /// does not live in memory, or is to be protected and not watched for writes;
    /// [`Error::NoMemory`], [`Error::OverLimit`].
    pub fn answer(
        &self,
        space: &Space<A>,
        span: PageSpan,
        answer: &mut Answer<'_>,
        shield: Shield,
    ) -> Answered {
        self.spaces().answer_with(space, span, (answer, shield), &|view, fault, answer| {
            self.answer_page(view, fault, answer)
        })
    }

    /// Answers for a page of a file in memory, and those behind it in its clipped area: inserts a
    /// folio with the content, or finds one, and maps it. Returns the pages that are mapped now;
    /// `None` when a change interfered. An inserted folio stays in the file then.
    fn answer_page(
        &self,
        view: &View<'_, A, H>,
        fault: &FilePage,
        answer: &mut Answer<'_>,
    ) -> Result<Option<PageSpan>, Stop> {
        let missing = Error::Missing(fault.page);
        let file = self.opened(fault.file).map_err(|_| missing)?;
        if file.store() != Some(Store::Memory) {
            return Err(Error::Invalid.into());
        }
        let span = fault.area.span;
        let count = span.end.offset_from(fault.page).min(POPULATE_ORDER.pages());
        let wanted = FilePages::new(fault.at, fault.at + count);
        if wanted.end > file.pages() {
            return Err(missing.into());
        }
        let pages = match answer {
            Answer::Cached => {
                file.come_back(fault.at)?;
                file.cached_from(wanted)
            }
            _ => file.answer_missing(view, fault, wanted, answer)?,
        };
        let around = PageSpan::new(fault.page, fault.page.add(pages.end - fault.at));
        // A page that the space has already ends the answer.
        let present = view.tables().pieces(around).next().map(|seen| seen.pages.start);
        let around = match present.filter(|page| *page > fault.page) {
            Some(page) => PageSpan::new(fault.page, page),
            None => around,
        };
        let shown = loop {
            let leaf = leaf_order(&file.index, fault).ok_or(missing)?;
            self.spaces().deepen_to(view, fault.page, leaf, Some(fault.seq))?;
            if let Some(shown) = map_around(view, &file.index, fault, leaf, around) {
                break shown;
            }
            self.spaces().wait(view, fault.page);
            if view.areas().lookup(fault.page).1 != fault.seq {
                return Ok(None);
            }
        };
        if !shown.hit {
            return Ok(None);
        }
        self.base().groups.draw(view.space, shown.pages.count());
        self.base().count(Event::EntriesMade, shown.entries);
        Ok(Some(PageSpan::new(fault.page, shown.pages.end)))
    }
}
