//! An address space as one would write it down without thinking of speed: for each page its
//! attributes, the frame behind it, whether other spaces may have that frame, and the word that a
//! program left there. No tables, no runs, no sizes of leaves.
//!
//! The model predicts the answer of each call, error and evidence included, and the state of the
//! space afterwards. It does not predict three things, but judges them and takes them over from the
//! real space: the frame of a page, the folio size that a fault chose where memory was short, and
//! whether a write reused or copied a shared page.

use std::collections::BTreeMap;
use std::ops::Range;

use quire::space::{Advice, Area, AreaFlags, At, Backing, OptOut, Request};
use quire::{Error, Move};
use quire_units::{Access, Order, PageSpan, Prot, Vpn};

use crate::areas::NaiveAreas;
use crate::fork::Resident;

/// Free pages that a stack leaves below itself.
const GUARD: u64 = 256;

/// The model of one space.
#[derive(Clone)]
pub struct NaiveSpace {
    /// The attributes of each page.
    pub areas: NaiveAreas,
    /// The pages that are resident; all else is zero.
    pub resident: BTreeMap<u64, Resident>,
    /// The process's choice about large folios.
    pub opt_out: OptOut,
    window: PageSpan,
    limit: u64,
    stack: u64,
}

/// The due result of a fault, if there is memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The page is there already.
    Noted,
    /// The page is there and may be shared: it is claimed or copied.
    Unshared,
    /// A folio of an order between these two; the stack has grown first, if it is one.
    Mapped {
        /// The smallest.
        least: Order,
        /// The largest.
        most: Order,
    },
}

impl NaiveSpace {
    /// No areas; those without a place of their own go into `window`. Programs may map the pages
    /// below `limit`; a stack has at most `stack` pages.
    pub fn new(window: PageSpan, limit: u64, stack: u64) -> Self {
        Self {
            areas: NaiveAreas::new(),
            resident: BTreeMap::new(),
            opt_out: OptOut::No,
            window,
            limit,
            stack,
        }
    }

    /// Where `request` goes; `candidates` are the orders that the policy wants there.
    ///
    /// # Errors
    /// Those of [`Mm::map`](quire::Mm::map), but for memory.
    pub fn place(&self, request: &Request, candidates: u32) -> Result<PageSpan, Error> {
        let pages = request.pages;
        let fixed =
            |page| PageSpan::at(page, pages).ok_or(Error::Invalid).and_then(|s| self.may(s));
        let taken = |span| self.areas_in(span).first().copied();
        match request.at {
            At::Fixed(page) => fixed(page),
            At::FixedNoReplace(page) => {
                let span = fixed(page)?;
                taken(span).map_or(Ok(span), |area| Err(Error::Exists(area)))
            }
            At::Hint(page) => match fixed(page) {
                Ok(span) if taken(span).is_none() => Ok(span),
                _ => self.place_anywhere(pages, candidates),
            },
            At::Anywhere => self.place_anywhere(pages, candidates),
        }
    }

    fn place_anywhere(&self, pages: u64, candidates: u32) -> Result<PageSpan, Error> {
        if pages == 0 {
            return Err(Error::Invalid);
        }
        let wanted = |order: &u8| candidates >> order & 1 != 0 && 1 << order <= pages;
        let align = (0..32).rev().find(wanted).map_or(0, u32::from);
        let gaps = self.areas.gaps(self.window);
        let highest = |align: u64| {
            gaps.iter().rev().find_map(|gap| {
                let start = gap.end.get().checked_sub(pages)? / align * align;
                (start >= gap.start.get()).then_some(PageSpan::at(Vpn::new(start), pages)?)
            })
        };
        highest(1 << align).or_else(|| highest(1)).ok_or(Error::NoRoom(pages))
    }

    /// How `map` goes on once there is a place and memory.
    pub fn map(&mut self, request: &Request, span: PageSpan) {
        self.forget(span);
        self.areas.replace(Area {
            span,
            prot: request.prot,
            max_prot: request.max_prot,
            flags: request.flags,
            backing: request.backing,
        });
    }

    /// `unmap`.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn unmap(&mut self, span: PageSpan) -> Result<(), Error> {
        self.may(span)?;
        self.areas.cut(span);
        self.forget(span);
        Ok(())
    }

    /// `discard`.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn discard(&mut self, span: PageSpan) -> Result<(), Error> {
        self.may(span)?;
        self.forget(span);
        Ok(())
    }

    /// `protect`.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NoArea`], [`Error::Forbidden`].
    pub fn protect(&mut self, span: PageSpan, prot: Prot) -> Result<(), Error> {
        self.alter(span, |area| match area.max_prot.contains(prot) {
            true => Ok(Area { prot, ..area }),
            false => Err(Error::Forbidden(area.span.start, prot)),
        })
    }

    /// `advise`.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NoArea`].
    pub fn advise(&mut self, span: PageSpan, advice: Advice) -> Result<(), Error> {
        self.alter(span, |area| Ok(Area { flags: advice.put(area.flags), ..area }))
    }

    /// `set_flags`.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NoArea`].
    pub fn set_flags(
        &mut self,
        span: PageSpan,
        set: AreaFlags,
        clear: AreaFlags,
    ) -> Result<(), Error> {
        let thp = AreaFlags::HUGE | AreaFlags::NOHUGE;
        let forks = AreaFlags::DONTFORK | AreaFlags::WIPEONFORK;
        let others = AreaFlags::SEQUENTIAL | AreaFlags::RANDOM | AreaFlags::DONTDUMP;
        let known = thp | forks | others;
        if (set | clear) - known != AreaFlags::empty() || set & clear != AreaFlags::empty() {
            return Err(Error::Invalid);
        }
        self.alter(span, |area| {
            let private = area.backing == Backing::Anon && !area.flags.contains(AreaFlags::SHARED);
            if set.contains(AreaFlags::WIPEONFORK) && !private {
                return Err(Error::Invalid);
            }
            Ok(Area { flags: (area.flags - clear) | set, ..area })
        })
    }

    /// `lock`, without the populating, or `unlock`.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NoArea`].
    pub fn lock(&mut self, span: PageSpan, locked: bool) -> Result<(), Error> {
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        self.alter(span, |area| {
            let now = if locked { AreaFlags::LOCKED } else { AreaFlags::empty() };
            Ok(Area { flags: (area.flags - locks) | now, ..area })
        })
    }

    /// `remap`, and each state in which it may leave off when memory is short, from the first on.
    /// `candidates` are the orders that the policy wants where the area so flagged goes.
    ///
    /// # Errors
    /// Those of [`Mm::remap`](quire::Spaces::remap), but for memory.
    pub fn remap(
        &mut self,
        old: PageSpan,
        pages: u64,
        how: Move,
        candidates: impl Fn(AreaFlags) -> u32,
    ) -> (Result<PageSpan, Error>, Vec<Self>) {
        let mut stages = vec![self.clone()];
        let done = self.remap_by_stages(old, pages, how, candidates, &mut stages);
        (done, stages)
    }

    fn remap_by_stages(
        &mut self,
        old: PageSpan,
        pages: u64,
        how: Move,
        candidates: impl Fn(AreaFlags) -> u32,
        stages: &mut Vec<Self>,
    ) -> Result<PageSpan, Error> {
        let new = PageSpan::at(old.start, pages).ok_or(Error::Invalid)?;
        self.may(old)?;
        self.may(new)?;
        let area = *self.areas_in(old).first().ok_or(Error::NoArea(old.start))?;
        if !area.span.contains(old.start) {
            return Err(Error::NoArea(old.start));
        }
        if !area.span.covers(old) {
            return Err(Error::NoArea(area.span.end));
        }
        if let Move::Keep(at) = how {
            return self.remap_away(old, pages, at, area, candidates, stages);
        }
        let target = match how {
            Move::To(page) => {
                let span = PageSpan::at(page, pages).ok_or(Error::Invalid)?;
                if self.may(span)?.overlaps(old) {
                    return Err(Error::Invalid);
                }
                Some(span)
            }
            _ => None,
        };
        let kept = PageSpan::new(old.start, old.end.min(new.end));
        if kept.end < old.end {
            self.unmap(PageSpan::new(kept.end, old.end))?;
            stages.push(self.clone());
        }
        if let Some(target) = target {
            self.unmap(target)?;
            stages.push(self.clone());
        }
        let more = Area { span: PageSpan::new(kept.end, new.end), ..area };
        if target.is_none() && more.span.is_empty() {
            return Ok(new);
        }
        if target.is_none() && area.span.end == old.end && self.areas.set(more) {
            return Ok(new);
        }
        if how == Move::Never {
            return Err(Error::NoRoom(more.span.count()));
        }
        let wants = candidates(area.flags);
        let target = target.map_or_else(|| self.place_anywhere(pages, wants), Ok)?;
        self.shift(kept, Area { span: target, ..area });
        Ok(target)
    }

    /// Moves the memory of `old` elsewhere, and leaves its area, unlocked.
    fn remap_away(
        &mut self,
        old: PageSpan,
        pages: u64,
        at: At,
        area: Area,
        candidates: impl Fn(AreaFlags) -> u32,
        stages: &mut Vec<Self>,
    ) -> Result<PageSpan, Error> {
        if pages != old.count() {
            return Err(Error::Invalid);
        }
        if let At::Fixed(page) = at {
            let span = PageSpan::at(page, pages).ok_or(Error::Invalid)?;
            if self.may(span)?.overlaps(old) {
                return Err(Error::Invalid);
            }
            self.unmap(span)?;
            stages.push(self.clone());
        }
        let target = self.place(&Request::anon(pages).at(at), candidates(area.flags))?;
        self.shift_memory(old, target.start);
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        self.areas.update(old, |area| Area { flags: area.flags - locks, ..area });
        self.areas.set(Area { span: target, ..area });
        Ok(target)
    }

    /// Moves the memory of `old` to `new`, and makes that an area in its place.
    fn shift(&mut self, old: PageSpan, new: Area) {
        self.shift_memory(old, new.span.start);
        self.areas.cut(old);
        self.areas.set(new);
    }

    /// Moves the memory of `old` to the pages from `to` on.
    fn shift_memory(&mut self, old: PageSpan, to: Vpn) {
        let moved = |page: &u64| page - old.start.get() + to.get();
        for page in numbers(old) {
            if let Some(here) = self.resident.remove(&page) {
                self.resident.insert(moved(&page), here);
            }
        }
    }

    /// The pages from the start of `span` on that populating makes resident, and why no more.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn populated(&self, span: PageSpan) -> Result<(PageSpan, Option<Error>), Error> {
        if span.is_empty() {
            return Ok((span, None));
        }
        self.may(span)?;
        for page in numbers(span).filter(|page| !self.resident.contains_key(page)).map(Vpn::new) {
            let before = PageSpan::new(span.start, page);
            match self.areas.page(page) {
                None => return Ok((before, Some(Error::NoArea(page)))),
                Some(area) if !area.prot.allows(Access::Read) => {
                    let denied = Error::Denied(page, Access::Read, area.prot);
                    return Ok((before, Some(denied)));
                }
                Some(_) => {}
            }
        }
        Ok((span, None))
    }

    /// The due result of `access` to `page`. A stack that grows has grown afterwards. `candidates`
    /// gives the orders that the policy wants for some advice; from the order `block` on, an empty
    /// table may be in the way.
    ///
    /// # Errors
    /// [`Error::NoArea`], [`Error::Denied`].
    pub fn fault(
        &mut self,
        page: Vpn,
        access: Access,
        block: Order,
        candidates: impl Fn(Advice) -> u32,
    ) -> Result<Fault, Error> {
        let area = match self.areas.page(page) {
            Some(area) => area,
            None => self.grow(page, access).ok_or(Error::NoArea(page))?,
        };
        if !area.prot.allows(access) {
            return Err(Error::Denied(page, access, area.prot));
        }
        if let Some(here) = self.resident.get(&page.get()) {
            let unshares = here.cow && access == Access::Write;
            return Ok(if unshares { Fault::Unshared } else { Fault::Noted });
        }
        let candidates = candidates(Advice::of(area.flags));
        let possible = |order: &u8| candidates >> order & 1 != 0 && self.is_possible(page, *order);
        let largest = |below: u8| Order::new((1..below).rev().find(possible).unwrap_or(0));
        Ok(Fault::Mapped { least: largest(block.get()), most: largest(32) })
    }

    /// Whether a folio of `order` around `page` would lie in its area and meet nothing.
    fn is_possible(&self, page: Vpn, order: u8) -> bool {
        let block = PageSpan::block(page, Order::new(order));
        let occupied = self.resident.range(range(block)).next().is_some();
        let mut pages = numbers(block).map(|page| self.areas.page(Vpn::new(page)));
        let Some(Some(mut last)) = pages.next() else { return false };
        !occupied
            && pages.all(|page| match page {
                Some(next) if last.can_merge(&next) => {
                    last = next;
                    true
                }
                _ => false,
            })
    }

    /// Lets the stack above `page` grow down to it, if there is one with room; its area.
    fn grow(&mut self, page: Vpn, access: Access) -> Option<Area> {
        let end = Vpn::new(self.limit);
        let above = *self.areas_in(PageSpan::new(page, end)).first()?;
        if !above.flags.contains(AreaFlags::GROWS_DOWN) || !above.prot.allows(access) {
            return None;
        }
        if above.span.end.offset_from(page) > self.stack {
            return None;
        }
        let guard = Vpn::new(page.get().saturating_sub(GUARD));
        if !self.areas_in(PageSpan::new(guard, above.span.start)).is_empty() {
            return None;
        }
        self.areas.set(Area { span: PageSpan::new(page, above.span.start), ..above });
        Some(above)
    }

    fn may(&self, span: PageSpan) -> Result<PageSpan, Error> {
        let fits = !span.is_empty() && span.end.get() <= self.limit;
        if fits { Ok(span) } else { Err(Error::Invalid) }
    }

    /// The areas that have a page in `span`, ascending, whole.
    pub(crate) fn areas_in(&self, span: PageSpan) -> Vec<Area> {
        self.areas.areas().into_iter().filter(|area| area.span.overlaps(span)).collect()
    }

    /// Changes every page of `span`, or none if one has no area or `change` objects to one.
    fn alter(
        &mut self,
        span: PageSpan,
        change: impl Fn(Area) -> Result<Area, Error>,
    ) -> Result<(), Error> {
        self.may(span)?;
        for page in numbers(span).map(Vpn::new) {
            change(self.areas.page(page).ok_or(Error::NoArea(page))?)?;
        }
        self.areas.update(span, |area| change(area).unwrap_or(area));
        Ok(())
    }

    /// The memory of `span` is gone, and reads as zero.
    fn forget(&mut self, span: PageSpan) {
        self.resident.retain(|page, _| !span.contains(Vpn::new(*page)));
    }
}

fn range(span: PageSpan) -> Range<u64> {
    span.start.get()..span.end.get()
}

fn numbers(span: PageSpan) -> impl Iterator<Item = u64> {
    range(span)
}
