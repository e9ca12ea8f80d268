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

use super::Spaces;
use super::outcome::{Answered, Resolved, Shield};
use crate::base::{Base, Error, Stop};
use crate::fault::plan::Reach;
use crate::fault::{Decision, FilePage, Plan, decide};
use crate::limits::FAULT_TRIES;
use crate::space::{Area, AreaFlags, Backing, Ever, Space, View, Watch, WatchFor};

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
    /// None: from now on an access fails with [`Error::Poisoned`], as where memory has failed.
    Poison,
}

impl Answer<'_> {
    /// Writes the content of the pages from `start` on into `run`.
    pub(crate) fn fill<A: Arch, H: Hardware>(
        &mut self,
        base: &Base<'_, A, H>,
        run: FrameRun,
        start: Vpn,
    ) -> Result<FrameRun, Error> {
        match self {
            Answer::Zeroes => base.clear(&run, 0, &mut || {}),
            Answer::Copy(write) => {
                let run = run.dirtied();
                if write(PageSpan::new(start, start.add(run.count())), &run) {
                    return Ok(run);
                }
                base.free(run);
                return Err(Error::Missing(start));
            }
            Answer::Cached | Answer::Poison => {
                base.free(run);
                return Err(Error::Missing(start));
            }
        }
        Ok(run)
    }
}

/// Answers for a page of a file. Returns the pages up to which it is done.
type Show<'a, A, H> =
    dyn Fn(&View<'_, A, H>, &FilePage, &mut Answer<'_>) -> Result<Option<PageSpan>, Stop> + 'a;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// From now on, `watch` names the watcher of the areas of `span` and the events that it
    /// answers; `None`: no watcher. A fault with such an event returns
    /// [`Need::Watcher`](crate::Need::Watcher). Pages that are there already are no event. Children
    /// do not inherit it, nor does it go with pages that move, unless it says so. All of the span
    /// must be mapped.
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect), never [`Error::Forbidden`] or [`Error::Sealed`].
    /// [`Error::Invalid`] also where an area cannot have the event: one that shows
    /// [frames](Self::map_frames) has none, [`WatchFor::MINOR`] is for files, [`WatchFor::WRITE`]
    /// for all but shared areas without a file, and
    /// [`WatchFor::ASYNC`] goes with that; both are behind the feature `watch`.
    pub fn watch(
        &self,
        space: &Space<A>,
        span: PageSpan,
        watch: Option<Watch>,
    ) -> Result<(), Error> {
        let events = watch.map_or(WatchFor::empty(), |watch| watch.events);
        let lone = events.contains(WatchFor::ASYNC) && !events.contains(WatchFor::WRITE);
        if lone || !cfg!(feature = "watch") && events.contains(WatchFor::WRITE) {
            return Err(Error::Invalid);
        }
        let protects = |area: Area| area.flags.contains(AreaFlags::WATCH_WRITE);
        let ends = !events.contains(WatchFor::WRITE) && self.areas(space, span).any(protects);
        space.note(Ever::Watched);
        self.alter(space, span, None, |area| {
            let fits = match area.backing {
                Backing::Anon if area.flags.contains(AreaFlags::SHARED) => {
                    !events.intersects(WatchFor::MINOR | WatchFor::WRITE)
                }
                Backing::Anon => !events.contains(WatchFor::MINOR),
                Backing::File { .. } => true,
                Backing::Frames { .. } => watch.is_none(),
            };
            match fits {
                true => Ok((area.prot, area.flags.with_watch(watch))),
                false => Err(Error::Invalid),
            }
        })?;
        if ends {
            self.unshield_all(space, [span].into_iter());
        }
        Ok(())
    }

    /// Whether an area of the space was ever watched.
    pub fn was_watched(&self, space: &Space<A>) -> bool {
        space.has(Ever::Watched)
    }

    /// Maps missing pages of watched areas as their watcher says. Where there are files, it is
    /// `Files::answer`.
    #[cfg(not(feature = "files"))]
    pub fn answer(
        &self,
        space: &Space<A>,
        span: PageSpan,
        answer: &mut Answer<'_>,
        shield: Shield,
    ) -> Answered {
        self.answer_with(space, span, (answer, shield), &|_, fault, _| {
            Err(Error::Missing(fault.page).into())
        })
    }

    /// See `Files::answer`; `show` answers for a page of a shared file.
    pub(crate) fn answer_with(
        &self,
        space: &Space<A>,
        span: PageSpan,
        (answer, shield): (&mut Answer<'_>, Shield),
        show: &Show<'_, A, H>,
    ) -> Answered {
        if let Answer::Poison = answer {
            return self.poison(space, span);
        }
        let view = self.base.view(space);
        let (mut at, mut taken) = (span.start, None);
        let mut end = Self::mappable(span).map_err(Stop::from);
        let mut tries = 0;
        while end.is_ok() && at < span.end {
            let left = PageSpan::new(at, span.end);
            match self.answer_first(&view, left, (&mut *answer, shield), &mut taken, show) {
                Ok(Some(done)) => (at, tries) = (done.end.max(at), 0),
                Ok(None) if tries < FAULT_TRIES => tries += 1,
                Ok(None) => end = Err(Error::Busy(at).into()),
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
        (answer, shield): (&mut Answer<'_>, Shield),
        taken: &mut Option<(FrameRun, Order)>,
        show: &Show<'_, A, H>,
    ) -> Result<Option<PageSpan>, Stop> {
        let page = left.start;
        self.base.groups.charge(view.space, 1)?;
        let area = view.areas().lookup(page).0;
        let area = area.filter(|area| area.flags.intersects(AreaFlags::WATCH));
        let area = area.ok_or(Error::NoArea(page))?;
        if shield != Shield::Off && !area.flags.contains(AreaFlags::WATCH_WRITE) {
            return Err(Error::Invalid.into());
        }
        let is_private = !area.flags.contains(AreaFlags::SHARED);
        match decide(view, &self.base.policy, page, Access::Read, Reach::Answer(left.end)) {
            Decision::Fill(mut plan) => {
                if shield != Shield::Off {
                    plan.shield();
                }
                self.fill_with(view, &plan, answer, taken)
            }
            Decision::Below(place, seq) => {
                self.deepen(view, place, page, Some(seq))?;
                Ok(None)
            }
            Decision::Marked(marked) if marked.is_shielded() => {
                self.unmark(view.space, PageSpan::block(page, Order::ZERO))?;
                Ok(None)
            }
            Decision::File(fault) if !fault.is_there => {
                let area = fault.area.clipped(left);
                let copies = !matches!(answer, Answer::Cached);
                if is_private && copies && self.base.whole(area.backing).is_none() {
                    return Err(Error::Invalid.into());
                }
                let shields = shield != Shield::Off;
                show(view, &FilePage { area, shields, ..fault }, answer)
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
