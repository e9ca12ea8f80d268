//! Judging the fate of pages that several spaces share.

use quire::inject::FailPlan;
use quire_arch::{Arch, Level};
use quire_units::{FrameSpan, Order, PageSpan, Vpn};

use super::super::violation::{Wrong, ensure};
use super::super::world::World;
use super::compare::{Found, Pages};
use super::model::{Model, Resident, block_in};

/// The changes that a call may make to shared pages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sharing {
    /// Nothing.
    Kept,
    /// A fork failed half way: pages may have got others' to have as well, but none has yet.
    Offered,
    /// The one page became this space's own if it was not, and others with it.
    Own(Vpn),
    /// These pages did: claimed, or copied in a folio of this order.
    Unshared(PageSpan, Option<Order>),
}

/// The due result of a write to a shared page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// The pages to claim, if no other space maps any of the folio.
    claim: Option<PageSpan>,
    /// The page before that is the space's own, and may be written: more may be claimed.
    follows: bool,
    /// That is all that is mapped of it. Else a copy will do: it may be mapped in two places.
    simple: bool,
    /// The largest copy that is wanted.
    largest: Order,
    /// The most pages that are copied into folios of a page each: more than one after pages that
    /// the space has written, where no larger size is wanted.
    ahead: u64,
    /// There is memory at hand for it, and no allocation is to fail on purpose.
    plenty: bool,
}

impl Outlook {
    /// Whether this was it.
    pub(super) fn allows(
        &self,
        page: Vpn,
        pages: PageSpan,
        copied: Option<Order>,
    ) -> Result<(), Wrong> {
        let fine = match (self.claim, copied) {
            (Some(run), None) => {
                pages == run || self.follows && run.start == pages.start && pages.covers(run)
            }
            (claim, Some(order)) if claim.is_none() || !self.simple => {
                let sized = order == self.largest || order < self.largest && !self.plenty;
                let several = order == Order::ZERO && pages.start == page;
                let count = pages.count();
                sized && pages == PageSpan::block(page, order)
                    || several && count.is_power_of_two() && count <= self.ahead
            }
            _ => false,
        };
        ensure(fine, "a possible result", (page, pages, copied, self))
    }
}

impl<A: Arch> World<'_, '_, '_, A> {
    /// The due result of a write to page `at`, which is COW.
    pub(super) fn outlook(&self, process: usize, at: usize) -> Result<Outlook, Wrong> {
        let (model, page) = (self.model(process)?, self.vpn(at));
        let here = model.resident.get(&at);
        let folio = here.and_then(|here| self.folio(here.frame)).map(|folio| folio.span());
        let area = model.areas_in(self.span(at, 1)).first().copied();
        let table = PageSpan::block(page, Order::new(A::LEVELS[Level::LAST.index()].index_bits));
        let inside = |frame| folio.is_some_and(|folio| folio.contains(frame));
        let run = model.stretch(at, |other| inside(other.frame)).intersect(table);
        let run = run.intersect(area.map_or(PageSpan::new(page, page), |area| area.span));
        let pinned = self.pinned().iter().any(|held| Some(*held) == folio);
        let here = model.resident.values().filter(|other| inside(other.frame)).count() as u64;
        let mapped = folio.map_or(0, |folio| self.mapped(folio));
        let claim = (!pinned && mapped == here).then_some(run);
        let before = model.places(run).start.checked_sub(1).and_then(|at| model.resident.get(&at));
        let follows = before.is_some_and(|before| !before.cow);
        let simple = mapped == run.count();
        let wanted = self.wants(process)?(model.process.pages[at].flags);
        let copy_most = self.mm.policy().copy_most();
        let most =
            copy_most.min(Order::fitting(folio.map_or(1, |folio| folio.count)).unwrap_or_default());
        let few = wanted & ((2u32 << most.get()) - 1);
        // Where only larger sizes are wanted, a copy has the largest size that copies may have.
        let sizes = if few == 0 && wanted != 0 { 1 << most.get() } else { few };
        let largest = block_in(page, run, sizes);
        let is_own = |back: usize| {
            let before = at.checked_sub(back).and_then(|at| model.resident.get(&at));
            before.is_some_and(|before| !before.cow)
        };
        let mut ahead = 1;
        while sizes & !1 == 0 && ahead < copy_most.pages() && is_own(ahead as usize) {
            ahead *= 2;
        }
        let roomy = self.mm.phys().free_by_order()[largest.index()..].iter().any(|&free| free > 0);
        let plenty = roomy && self.mm.bare_phys().fail_plan() == FailPlan::Never;
        Ok(Outlook { claim, follows, simple, largest, ahead, plenty })
    }

    /// How many pages of a folio are mapped, over all spaces.
    fn mapped(&self, folio: FrameSpan) -> u64 {
        let pages = self.exact().resident.iter().flat_map(|resident| resident.values());
        pages.filter(|here| folio.contains(here.frame)).count() as u64
    }

    /// Judges the changes of shared pages. The model is as before the call.
    pub(super) fn judge_sharing(
        &self,
        process: usize,
        real: &Pages,
        sharing: Sharing,
    ) -> Result<(), Wrong> {
        let model = &self.model(process)?;
        let mut changes = Vec::new();
        for (&at, here) in &model.resident {
            let now = real.get(&at).ok_or_else(|| format!("page {at} is gone ({here:?})"))?;
            if !now.is_still(here) {
                changes.push(Change { page: self.vpn(at), here, now });
            }
        }
        match sharing {
            Sharing::Kept => ensure(changes.is_empty(), "pages as they were", &changes),
            Sharing::Offered => self.judge_offer(model, &changes),
            Sharing::Unshared(span, copied) => self.judge_own(model, &changes, span, copied),
            Sharing::Own(page) => {
                let (Some(first), Some(last)) = (changes.first(), changes.last()) else {
                    return Ok(());
                };
                let span = PageSpan::new(first.page, last.page.add(1));
                ensure(span.contains(page), "the pages around it", (page, &changes))?;
                let folio = self.folio(first.now.frame).filter(|_| first.moved());
                let order = folio.map(|folio| folio.order);
                self.judge_own(model, &changes, span, order)
            }
        }
    }

    /// A fork that fails may leave pages write-protected, and change nothing else.
    fn judge_offer(&self, model: &Model, changes: &[Change<'_>]) -> Result<(), Wrong> {
        let pinned = self.pinned();
        let fine = changes.iter().all(|change| {
            let held = pinned.iter().any(|folio| folio.contains(change.here.frame));
            !change.moved() && change.now.is_cow() && model.is_lent(change.page) && !held
        });
        ensure(fine, "nothing but write protection", changes)
    }

    /// Whether the pages of `span`, and no others, may have become the space's own.
    fn judge_own(
        &self,
        model: &Model,
        changes: &[Change<'_>],
        span: PageSpan,
        copied: Option<Order>,
    ) -> Result<(), Wrong> {
        ensure(changes.len() as u64 == span.count(), "all of it", (span, changes))?;
        let fine = changes.iter().all(|change| {
            let own = change.here.cow && !change.now.is_cow();
            span.contains(change.page) && own && change.moved() == copied.is_some()
        });
        ensure(fine, "pages that were others' as well", (span, copied, changes))?;
        ensure(model.is_one_area(span), "pages of one area", span)?;
        match copied {
            Some(order) => self.judge_copy(changes, order),
            None => self.judge_claim(model, changes),
        }
    }

    /// A claim is right if no other space has anything of the folios.
    fn judge_claim(&self, model: &Model, changes: &[Change<'_>]) -> Result<(), Wrong> {
        let mut left = changes;
        while let Some(change) = left.first() {
            let folio = self.folio(change.here.frame).map(|folio| folio.span());
            let folio = folio.ok_or_else(|| "a claimed frame is in no folio".to_owned())?;
            let here = model.resident.values().filter(|here| folio.contains(here.frame)).count();
            let alone = self.mapped(folio) == here as u64;
            let pinned = self.pinned().contains(&folio);
            ensure(alone && !pinned, "a folio of one's own", (folio, changes))?;
            let others = left.iter().position(|change| !folio.contains(change.here.frame));
            left = &left[others.unwrap_or(left.len())..];
        }
        Ok(())
    }

    /// A copy goes from consecutive frames to a new folio of just that size, or from any frames to
    /// new folios of one page.
    fn judge_copy(&self, changes: &[Change<'_>], order: Order) -> Result<(), Wrong> {
        for change in changes.chunk_by(|_, _| order > Order::ZERO) {
            self.judge_folio(change, order)?;
        }
        let taken = self.frames();
        let fresh = changes.iter().all(|change| !taken.contains(&change.now.frame));
        ensure(fresh, "frames that no space has", changes)
    }

    /// A folio of this order has the copies of these pages.
    fn judge_folio(&self, changes: &[Change<'_>], order: Order) -> Result<(), Wrong> {
        let span = PageSpan::new(changes[0].page, changes[0].page.add(changes.len() as u64));
        ensure(span == PageSpan::block(span.start, order), "a whole block", (span, order))?;
        let (from, to) = (changes[0].here.frame, changes[0].now.frame);
        let steady = (0..)
            .zip(changes)
            .all(|(n, change)| (change.here.frame, change.now.frame) == (from.add(n), to.add(n)));
        let folio = self.folio(to).map(|folio| folio.span());
        let new = folio == Some(FrameSpan::new(to, order.pages()));
        ensure(steady && new, "a folio of its own", (folio, changes))
    }
}

/// A page with another frame than before, or with another COW bit.
#[derive(Debug)]
struct Change<'a> {
    page: Vpn,
    here: &'a Resident,
    now: &'a Found,
}

impl Change<'_> {
    fn moved(&self) -> bool {
        self.here.frame != self.now.frame
    }
}
