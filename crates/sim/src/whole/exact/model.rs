//! A process and what of it is in memory, as one would write it down without thinking of speed: for
//! each resident page the frame behind it, whether other processes may have that frame, and what
//! its leaf has to remember. No tables, no runs, no sizes of leaves.

use std::collections::{BTreeMap, BTreeSet};

use quire::space::{Area, AreaFlags, At, Backing, Request};
use quire::{Error, Move};
use quire_script::{Action, Call, Page, Part, Process, Window};
use quire_units::{Access, Order, PageSpan, Pfn, Vpn};

use crate::areas::merged;

/// Free pages that a stack leaves below itself.
const GUARD: u64 = 256;

/// A page that is resident.
#[derive(Clone, Debug)]
pub(in crate::whole) struct Resident {
    /// The frame behind it.
    pub(super) frame: Pfn,
    /// Others may have the frame as well, so that a write must copy it or claim it.
    pub(super) cow: bool,
    /// A program has touched it, and the leaf may not forget that.
    pub(super) young: bool,
    /// A program has written it, and the leaf may not forget that (I5).
    pub(super) dirty: bool,
    /// The mark in the middle of it since it was new.
    pub(super) mark: u64,
}

/// The due result of a fault, if there is memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
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

/// A process, and its resident pages by their place in the window.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) window: Window,
    /// A stack has at most this many pages.
    pub(super) stack: u64,
    pub(super) process: Process,
    pub(super) resident: BTreeMap<usize, Resident>,
}

impl Model {
    /// All areas, ascending, as long as they can be.
    pub(super) fn areas(&self) -> Vec<Area> {
        let pages = self.process.pages.iter().enumerate().filter(|(_, page)| page.is_mapped());
        merged(pages.map(|(at, page)| {
            let Page { prot, most: max_prot, flags, .. } = *page;
            let span = self.window.span((at, 1));
            Area { span, prot, max_prot, flags, backing: Backing::Anon }
        }))
    }

    /// The areas that have a page in `span`, ascending, whole.
    pub(super) fn areas_in(&self, span: PageSpan) -> Vec<Area> {
        self.areas().into_iter().filter(|area| area.span.overlaps(span)).collect()
    }

    /// Whether all pages of `span` lie in one area.
    pub(super) fn is_one_area(&self, span: PageSpan) -> bool {
        matches!(self.areas_in(span)[..], [area] if area.span.covers(span))
    }

    /// The places in the window of the pages of `span` that lie in it.
    pub(super) fn places(&self, span: PageSpan) -> std::ops::Range<usize> {
        let place = |page: Vpn| page.get().saturating_sub(self.window.base.get()) as usize;
        place(span.start)..place(span.end)
    }

    /// Where `request` goes; `candidates` are the orders that the policy wants there.
    pub(super) fn place(&self, request: &Request, candidates: u32) -> Result<PageSpan, Error> {
        let pages = request.pages;
        if pages == 0 {
            return Err(Error::Invalid);
        }
        let fixed = |page| PageSpan::at(page, pages).ok_or(Error::Invalid);
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
        let wanted = |order: &u8| candidates >> order & 1 != 0 && 1 << order <= pages;
        let align = (0..32).rev().find(wanted).unwrap_or(0);
        let all = &self.process.pages;
        let highest = |align: u64| {
            let last = all.len().checked_sub(pages as usize)?;
            let fits = |at: &usize| {
                self.window.vpn(*at).is_aligned(align)
                    && !all[*at..*at + pages as usize].iter().any(Page::is_mapped)
            };
            (0..=last).rev().find(fits).map(|at| self.window.span((at, pages as usize)))
        };
        highest(1 << align).or_else(|| highest(1)).ok_or(Error::NoRoom(pages))
    }

    /// The memory of a part is gone, and reads as zero.
    pub(super) fn forget(&mut self, (at, count): Part) {
        self.resident.retain(|page, _| !(at..at + count).contains(page));
        self.process.alter((at, count), Page::forget);
    }

    /// A part is no area's any more.
    fn cut(&mut self, part: Part) {
        self.map(part, Page::FREE);
    }

    /// How `map` goes on once there is a place and memory: the first page is `page` then.
    pub(super) fn map(&mut self, part: Part, page: Page) {
        self.forget(part);
        self.process.put(part, page);
    }

    /// The answer that `remap` gives, and each state in which it may leave off when memory is
    /// short, from the first on. `wants` gives the orders that the policy wants for some flags.
    pub(super) fn remap(
        &mut self,
        old: Part,
        pages: usize,
        how: Move,
        wants: impl Fn(AreaFlags) -> u32,
    ) -> (Result<PageSpan, Error>, Vec<Self>) {
        let mut stages = vec![self.clone()];
        let done = self.remap_by_stages(old, pages, how, wants, &mut stages);
        (done, stages)
    }

    fn remap_by_stages(
        &mut self,
        (at, count): Part,
        pages: usize,
        how: Move,
        wants: impl Fn(AreaFlags) -> u32,
        stages: &mut Vec<Self>,
    ) -> Result<PageSpan, Error> {
        if count == 0 {
            return Err(Error::Invalid);
        }
        if let Some(at) = self.process.area_break(at, count) {
            return Err(Error::NoArea(self.window.vpn(at)));
        }
        let wants = wants(self.process.pages[at].flags);
        let keep = matches!(how, Move::Keep(_));
        let fixed = match how {
            Move::Keep(_) if pages != count => return Err(Error::Invalid),
            Move::To(page) | Move::Keep(At::Fixed(page)) => self.window.at(page),
            _ => None,
        };
        if fixed.is_some_and(|to| to < at + count && at < to + pages) {
            return Err(Error::Invalid);
        }
        let kept = count.min(pages);
        let gone =
            [(kept < count).then_some((at + kept, count - kept)), fixed.map(|to| (to, pages))];
        for part in gone.into_iter().flatten() {
            self.cut(part);
            stages.push(self.clone());
        }
        let first = self.process.pages[at];
        if fixed.is_none() && !keep {
            let more = &self.process.pages[at + kept..at + pages];
            if !more.iter().any(Page::is_mapped) {
                self.process.put((at + kept, pages - kept), first.ahead(0));
                return Ok(self.window.span((at, pages)));
            }
            if how == Move::Never {
                return Err(Error::NoRoom((pages - kept) as u64));
            }
        }
        let target = match (fixed, how) {
            (Some(to), _) => self.window.span((to, pages)),
            (_, Move::Keep(at)) => self.place(&Request::anon(pages as u64).at(at), wants)?,
            _ => self.place_anywhere(pages as u64, wants)?,
        };
        self.shift((at, kept), (self.places(target).start, pages), keep);
        Ok(target)
    }

    /// Moves what a part is and has elsewhere; its area may stay behind.
    fn shift(&mut self, (at, count): Part, (to, pages): Part, keep: bool) {
        let here = self.resident.extract_if(at..at + count, |_, _| true);
        let moved: Vec<_> = here.map(|(page, here)| (page - at + to, here)).collect();
        self.resident.extend(moved);
        let call = Call::Move((to, pages), keep);
        self.process.apply(&Action { call, part: (at, count), window: self.window });
    }

    /// The pages from the start of a part on that populating makes resident, and why no more.
    pub(super) fn populated(&self, (at, count): Part) -> (Part, Option<Error>) {
        for here in (at..at + count).filter(|here| !self.resident.contains_key(here)) {
            let (page, vpn) = (&self.process.pages[here], self.window.vpn(here));
            let error = match page.is_mapped() {
                false => Error::NoArea(vpn),
                true if !page.prot.allows(Access::Read) => {
                    Error::Denied(vpn, Access::Read, page.prot)
                }
                true => continue,
            };
            return ((at, here - at), Some(error));
        }
        ((at, count), None)
    }

    /// The due result of `access` to page `at`. A stack that grows has grown afterwards. `wants`
    /// gives the orders that the policy wants for some flags; from the order `block` on, an empty
    /// table may be in the way.
    pub(super) fn fault(
        &mut self,
        at: usize,
        access: Access,
        block: Order,
        wants: impl Fn(AreaFlags) -> u32,
    ) -> Result<Fault, Error> {
        let vpn = self.window.vpn(at);
        if !self.process.pages[at].is_mapped() && !self.grow(at, access) {
            return Err(Error::NoArea(vpn));
        }
        let page = self.process.pages[at];
        if !page.prot.allows(access) {
            return Err(Error::Denied(vpn, access, page.prot));
        }
        if let Some(here) = self.resident.get(&at) {
            let unshares = here.cow && access == Access::Write;
            return Ok(if unshares { Fault::Unshared } else { Fault::Noted });
        }
        let wants = wants(page.flags);
        let possible = |order: &u8| wants >> order & 1 != 0 && self.is_possible(vpn, *order);
        let largest = |below: u8| Order::new((1..below).rev().find(possible).unwrap_or(0));
        Ok(Fault::Mapped { least: largest(block.get()), most: largest(32) })
    }

    /// Whether a folio of `order` around `page` would lie in its area and meet nothing.
    fn is_possible(&self, page: Vpn, order: u8) -> bool {
        let block = PageSpan::block(page, Order::new(order));
        self.is_one_area(block) && self.resident.range(self.places(block)).next().is_none()
    }

    /// Lets the stack above page `at` grow down to it, if there is one with room.
    fn grow(&mut self, at: usize, access: Access) -> bool {
        let page = self.window.vpn(at);
        let guard = PageSpan::new(Vpn::new(page.get().saturating_sub(GUARD)), page);
        let Some(above) = self.areas().into_iter().find(|area| area.span.start > page) else {
            return false;
        };
        let may = above.flags.contains(AreaFlags::GROWS_DOWN)
            && above.prot.allows(access)
            && above.span.end.offset_from(page) <= self.stack
            && self.areas_in(guard).is_empty();
        if may {
            let start = self.places(above.span).start;
            let first = self.process.pages[start];
            self.process.put((at, start - at), first.ahead(0));
        }
        may
    }

    /// Forks: changes the parent, and returns the child and those of its pages that are copies
    /// already. These still have the parent's frames in the model: the caller must look up theirs.
    /// `pinned` tells whether the folio of a frame is pinned.
    pub(super) fn fork(&mut self, pinned: impl Fn(Pfn) -> bool) -> (Self, BTreeSet<usize>) {
        let mut copies = BTreeSet::new();
        let (process, mut resident) = (self.process.fork(), BTreeMap::new());
        for (&at, here) in &mut self.resident {
            let flags = self.process.pages[at].flags;
            if flags.intersects(AreaFlags::DONTFORK | AreaFlags::WIPEONFORK) {
                continue;
            }
            if !flags.contains(AreaFlags::SHARED) {
                if !here.cow && pinned(here.frame) {
                    copies.insert(at);
                } else {
                    here.cow = true;
                }
            }
            resident.insert(at, here.clone());
        }
        (Self { process, resident, ..self.clone() }, copies)
    }

    /// Whether a fork gives the child what is at `page` until one of the two writes it.
    pub(super) fn is_lent(&self, page: Vpn) -> bool {
        let others = AreaFlags::SHARED | AreaFlags::DONTFORK | AreaFlags::WIPEONFORK;
        let page = self.window.at(page).map(|at| self.process.pages[at]);
        page.is_some_and(|page| page.is_mapped() && !page.flags.intersects(others))
    }

    /// The longest stretch of pages around page `at`, which is COW, that are COW as well and have
    /// consecutive frames, and satisfy `also`.
    pub(super) fn stretch(&self, at: usize, also: impl Fn(&Resident) -> bool) -> PageSpan {
        let Some(here) = self.resident.get(&at) else { return self.window.span((at, 0)) };
        let goes_on = |other: usize| {
            let frame = here.frame.get() + other as u64 - at as u64;
            let other = self.resident.get(&other);
            other.is_some_and(|other| other.cow && other.frame.get() == frame && also(other))
        };
        let start = (0..at).rev().take_while(|&at| goes_on(at)).last().unwrap_or(at);
        let end = (at + 1..).take_while(|&at| goes_on(at)).last().unwrap_or(at) + 1;
        self.window.span((start, end - start))
    }
}

/// The largest of `orders` for which the block around `page` lies in `within`.
pub(super) fn block_in(page: Vpn, within: PageSpan, orders: u32) -> Order {
    let fits = |&order: &u8| {
        let wanted = order == 0 || orders >> order & 1 != 0;
        wanted && within.covers(PageSpan::block(page, Order::new(order)))
    };
    Order::new((0..32).rev().find(fits).unwrap_or(0))
}
