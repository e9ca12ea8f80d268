//! Files in watched areas (row D8): what their watchers are told, and what they answer.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Access, Order, PageSpan};

use super::{Files, OpenFile};
use crate::base::{Error, Need, Stop};
use crate::cache::{Entry, FilePages, leaf_order, map_around};
use crate::fault::FilePage;
use crate::folio::FolioFlags;
use crate::limits::POPULATE_ORDER;
use crate::space::{Advice, AreaFlags, Space, View, WatchFor};
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
        if !self.is_memory() {
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
        let sizes = self.sizes_in_memory(advice, view.space);
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

    /// The same for a reserved folio of `order`, which starts at the page that faulted: in the
    /// file, or for a private area alone.
    fn answer_whole(
        &self,
        view: &View<'_, A, H>,
        fault: &FilePage,
        order: Order,
        answer: &mut Answer<'_>,
    ) -> Result<Whole, Stop> {
        let block = fault.whole_block(order).filter(|block| block.start == fault.page);
        let block = block.ok_or(Error::Invalid)?;
        let content = &mut |run: FrameRun| answer.fill(self.base(), run, block.start);
        if !fault.area.flags.contains(AreaFlags::SHARED) {
            let done = self.fill_reserved(view, fault, order, Access::Read, content)?;
            return Ok(Whole::Own(done.map(|_| block)));
        }
        if self.index.find(fault.at).0.has_content() {
            return Err(Error::Present(fault.page).into());
        }
        Ok(match self.bring_reserved(fault.at, order, content)? {
            true => Whole::Cached(FilePages::block(fault.at, order)),
            // Another CPU has brought it, or reads from where this one would.
            false => Whole::Own(None),
        })
    }
}

/// The answer for a reserved folio.
enum Whole {
    /// These pages of the file are in memory now.
    Cached(FilePages),
    /// These pages of a private area are mapped now; `None` when it must be decided anew.
    Own(Option<PageSpan>),
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
    /// [`Error::Busy`] at one that another CPU is about to fill;
    /// [`Error::NoArea`] at one that is not watched; [`Error::Missing`] where the
    /// file has no such page, or the function could not write the content;
    /// [`Error::Invalid`] for pages that programs may not map, and where the area shows a file that
    /// does not live in memory, or is to be protected and not watched for writes, or where the span
    /// has a part of a reserved folio; [`Error::NoMemory`], [`Error::NoReserved`],
    /// [`Error::OverLimit`].
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
        if !file.is_memory() {
            return Err(Error::Invalid.into());
        }
        let span = fault.area.span;
        let count = span.end.offset_from(fault.page).min(POPULATE_ORDER.pages());
        let wanted = FilePages::new(fault.at, fault.at + count);
        if wanted.end > file.pages() {
            return Err(missing.into());
        }
        let pages = match (&*answer, file.whole()) {
            (Answer::Cached, _) => {
                file.come_back(fault.at)?;
                file.cached_from(wanted)
            }
            (_, Some(order)) => match file.answer_whole(view, fault, order, answer)? {
                Whole::Cached(pages) => pages,
                Whole::Own(pages) => return Ok(pages),
            },
            (_, None) => file.answer_missing(view, fault, wanted, answer)?,
        };
        self.map_answer(view, &file, fault, pages)
    }

    /// Maps `pages` of a file, which are in memory, from the page that faulted on.
    fn map_answer(
        &self,
        view: &View<'_, A, H>,
        file: &OpenFile<'_, A, H>,
        fault: &FilePage,
        pages: FilePages,
    ) -> Result<Option<PageSpan>, Stop> {
        let missing = Error::Missing(fault.page);
        let around = PageSpan::new(fault.page, fault.page.add(pages.end - fault.at));
        // A page that the space has already ends the answer; one that is only protected is missing.
        let mut pieces = view.tables().pieces(around).filter(|seen| !seen.is_shielded());
        let present = pieces.next().map(|seen| seen.pages.start);
        let around = match present.filter(|page| *page > fault.page) {
            Some(page) => PageSpan::new(fault.page, page),
            None => around,
        };
        // A folio that begins before that page is not mapped behind it.
        let fault = &FilePage { area: fault.area.clipped(around), ..*fault };
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
