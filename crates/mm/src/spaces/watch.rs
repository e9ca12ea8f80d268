//! Watched areas: another program answers faults there (row D8; Linux: userfaultfd).
//!
//! ```text
//!   access ──► fault ──► Need::Watcher(page, event)         the embedder tells the watcher
//!                                 │
//!   again  ◄── mapped ◄── answer(span, Zeroes | Copy | Cached)
//! ```
//!
//! To watch is an attribute of an area: it costs a change of areas, and nothing for each page. An
//! answer is a run of any length: it takes folios of the sizes that the area may have, and maps
//! each run of them by one step, as populating does. It never replaces a page.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Access, Order, PageSpan, Vpn};

use super::{Resolved, Spaces};
use crate::base::{Base, Error, Stop};
use crate::fault::plan::Reach;
use crate::fault::{Decision, FilePage, Plan, decide};
use crate::limits::FAULT_TRIES;
use crate::space::{AreaFlags, Backing, Ever, Space, View, Watch, WatchFor};

/// The content of the pages that a watcher maps.
#[non_exhaustive]
pub enum Answer<'f> {
    /// Zeroes.
    Zeroes,
    /// The function writes all of the frames, which are these pages' content; false where it
    /// cannot. The same pages may be asked for again.
    Copy(&'f mut dyn FnMut(PageSpan, &FrameRun) -> bool),
    /// That of the area's file, which has it in memory.
    Cached,
}

impl Answer<'_> {
    /// Writes the content of the pages from `start` on into `run`.
    pub(crate) fn fill<A: Arch, H: Hardware>(
        &mut self,
        base: &Base<'_, A, H>,
        run: FrameRun,
        start: Vpn,
    ) -> Result<FrameRun, Stop> {
        match self {
            Answer::Zeroes => base.clear(&run, 0, &mut || {}),
            Answer::Copy(write) => {
                let run = run.dirtied();
                if write(PageSpan::new(start, start.add(run.count())), &run) {
                    return Ok(run);
                }
                base.free(run);
                return Err(Error::Missing(start).into());
            }
            Answer::Cached => {
                base.free(run);
                return Err(Error::Missing(start).into());
            }
        }
        Ok(run)
    }
}

/// How far a watcher's answer got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "an answer may have ended early"]
pub struct Answered {
    /// How many pages were mapped, from the first on.
    pub pages: u64,
    /// Why it ended before the end of the span, if it did.
    pub end: Result<(), Stop>,
}

/// Answers for a page of a file. Returns the pages up to which it is done.
type Show<'a, A, H> =
    dyn Fn(&View<'_, A, H>, &FilePage, &mut Answer<'_>) -> Result<Option<PageSpan>, Stop> + 'a;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// From now on, `watch` names the watcher of the areas of `span` and the events that it
    /// answers; `None`: no watcher. A fault with such an event returns
    /// [`Need::Watcher`](crate::Need::Watcher). Pages that are there already are no event. Children
    /// do not inherit it, and it does not move with pages. All of the span must be mapped.
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect), never [`Error::Forbidden`] or [`Error::Sealed`].
    /// [`Error::Invalid`] also where an area cannot have the event: one that shows
    /// [frames](Self::map_frames) has none, and [`WatchFor::MINOR`] is for those of files.
    pub fn watch(
        &self,
        space: &Space<A>,
        span: PageSpan,
        watch: Option<Watch>,
    ) -> Result<(), Error> {
        let minor = watch.is_some_and(|watch| watch.events.contains(WatchFor::MINOR));
        space.note(Ever::Watched);
        self.alter(space, span, None, |area| {
            let fits = match area.backing {
                Backing::Anon => !minor,
                Backing::File { .. } => true,
                Backing::Frames { .. } => watch.is_none(),
            };
            match fits {
                true => Ok((area.prot, area.flags.with_watch(watch))),
                false => Err(Error::Invalid),
            }
        })
    }

    /// Whether an area of the space was ever watched.
    pub fn was_watched(&self, space: &Space<A>) -> bool {
        space.has(Ever::Watched)
    }

    /// Maps missing pages of watched areas as their watcher says. Where there are files, it is
    /// `Files::answer`.
    #[cfg(not(feature = "files"))]
    pub fn answer(&self, space: &Space<A>, span: PageSpan, answer: &mut Answer<'_>) -> Answered {
        self.answer_with(space, span, answer, &|_, fault, _| Err(Error::Missing(fault.page).into()))
    }

    /// See `Files::answer`; `show` answers for a page of a shared file.
    pub(crate) fn answer_with(
        &self,
        space: &Space<A>,
        span: PageSpan,
        answer: &mut Answer<'_>,
        show: &Show<'_, A, H>,
    ) -> Answered {
        let view = self.base.view(space);
        let (mut at, mut taken) = (span.start, None);
        let mut end = Self::mappable(span).map_err(Stop::from);
        let mut tries = 0;
        while end.is_ok() && at < span.end {
            let left = PageSpan::new(at, span.end);
            match self.answer_first(&view, left, answer, &mut taken, show) {
                Ok(Some(done)) => (at, tries) = (done.end.max(at), 0),
                Ok(None) if tries < FAULT_TRIES => tries += 1,
                Ok(None) => end = Err(Error::Present(at).into()),
                Err(stop) => end = Err(stop),
            }
        }
        self.base.free(taken.map(|(run, _)| run));
        Answered { pages: at.min(span.end).offset_from(span.start), end }
    }

    /// Maps the first pages of `left`. `None` where it must be decided anew.
    fn answer_first(
        &self,
        view: &View<'_, A, H>,
        left: PageSpan,
        answer: &mut Answer<'_>,
        taken: &mut Option<(FrameRun, Order)>,
        show: &Show<'_, A, H>,
    ) -> Result<Option<PageSpan>, Stop> {
        let page = left.start;
        self.base.groups.charge(view.space, 1)?;
        let area = view.areas().lookup(page).0;
        let area = area.filter(|area| area.flags.intersects(AreaFlags::WATCH));
        let area = area.ok_or(Error::NoArea(page))?;
        let is_private = !area.flags.contains(AreaFlags::SHARED);
        match decide(view, &self.base.policy, page, Access::Read, Reach::Answer(left.end)) {
            Decision::Fill(plan) => self.fill_with(view, &plan, answer, taken),
            Decision::Below(place, seq) => {
                self.deepen(view, place, page, Some(seq))?;
                Ok(None)
            }
            Decision::File(fault) if !fault.is_there => {
                let area = fault.area.clipped(left);
                match answer {
                    Answer::Cached => {}
                    _ if is_private => return Err(Error::Invalid.into()),
                    _ => {}
                }
                show(view, &FilePage { area, ..fault }, answer)
            }
            Decision::Refuse(_) => Err(Error::NoArea(page).into()),
            _ => Err(Error::Present(page).into()),
        }
    }

    /// Maps frames with the answer's content.
    fn fill_with(
        &self,
        view: &View<'_, A, H>,
        plan: &Plan,
        answer: &mut Answer<'_>,
        taken: &mut Option<(FrameRun, Order)>,
    ) -> Result<Option<PageSpan>, Stop> {
        if let Answer::Cached = answer {
            return Err(Error::Missing(plan.page).into());
        }
        self.base.free(taken.take().map(|(run, _)| run));
        let (run, order) = self.take_for(view, plan, false)?;
        let start = plan.start(order);
        let run = answer.fill(&self.base, run, start)?;
        let resolved = self.install(view, plan, run, order, taken)?;
        Ok(match resolved {
            Some(Resolved::Mapped(installed)) => Some(installed.pages),
            _ => None,
        })
    }
}
