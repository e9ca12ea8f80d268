//! Spaces begin and end; a fork begins with the contents of its parent, and has its own from then
//! on.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Asid, FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::Spaces;
use crate::base::{Change, Error};
use crate::limits::ORDER_MAX;
use crate::space::{Area, AreaFlags, Ever, Space, View};
use crate::stats::Event;
use crate::table::{Gather, Inherit, Tables};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// See `Mm::space_in`.
    #[inline(never)]
    pub(crate) fn space_in<'p>(
        &self,
        place: &'p mut Option<Space<A>>,
        root: FrameRun,
        asid: Asid,
        window: PageSpan,
    ) -> Result<&'p mut Space<A>, Error> {
        if place.is_some() || root.count() != 1 || !Space::<A>::may_map(window) {
            // The embedder may have written its kernel entries.
            self.base.free(root.dirtied());
            return Err(Error::Invalid);
        }
        let tables = Tables::<A, H>::found(self.base.hw, self.base.phys.meta(), root);
        Ok(place.insert(Space::new(tables.root(), asid, window)))
    }

    /// See `Mm::fork_in`.
    pub(crate) fn fork_in<'p>(
        &self,
        place: &'p mut Option<Space<A>>,
        parent: &Space<A>,
        root: FrameRun,
        asid: Asid,
    ) -> Result<&'p mut Space<A>, Error> {
        let child = self.space_in(place, root, asid, parent.window())?;
        match self.endow(parent, child) {
            Ok(()) => place.as_mut().ok_or(Error::Invalid),
            Err(error) => {
                self.destroy_in(place);
                Err(error)
            }
        }
    }

    /// See `Mm::destroy_in`.
    pub(crate) fn destroy_in(&self, place: &mut Option<Space<A>>) {
        if let Some(space) = place {
            self.end(space);
        }
        *place = None;
    }

    /// Frees all that a space has.
    #[inline(never)]
    fn end(&self, space: &Space<A>) {
        let tables = self.tables(space);
        let mut gather = tables.retire();
        {
            // No other CPU changes the areas until they are gone.
            let change = self.base.change(space);
            // A leaf may reach from one area into the next.
            let mut whole = PageSpan::new(Vpn::new(0), Vpn::new(0));
            for Area { span, .. } in self.areas(space, Space::<A>::all()) {
                if span.start != whole.end {
                    self.empty(space, &tables, whole, &mut gather);
                    whole = span;
                }
                whole.end = span.end;
            }
            self.empty(space, &tables, whole, &mut gather);
            let _ = change.writer().cut(Space::<A>::all());
            while let Some(run) = change.writer().unstock() {
                self.base.free(run);
            }
        }
        // A map that failed may have left empty tables where there is no area.
        if !tables.is_bare() {
            tables.prune(Space::<A>::all(), Space::<A>::all(), &mut gather);
        }
        tables.free_root(&mut gather);
        self.base.settle(space, &mut gather);
    }

    /// Takes all leaves of adjoining areas out of a tree that ends, and the tables that are empty
    /// then. A walk from area to area searches no upper table for its few entries.
    fn empty(
        &self,
        space: &Space<A>,
        tables: &Tables<'_, A, H>,
        span: PageSpan,
        gather: &mut Gather,
    ) {
        let (mut left, mut emptied) = (span, false);
        while !left.is_empty() {
            let took = tables.take(left, gather);
            self.base.count(Event::EntriesCleared, took.entries);
            emptied |= took.emptied;
            left = PageSpan::new(took.upto, left.end);
            if !left.is_empty() {
                self.base.settle(space, gather);
            }
        }
        if emptied {
            tables.prune(span, Space::<A>::all(), gather);
        }
    }

    /// Gives a new space all that it inherits.
    #[inline(never)]
    fn endow(&self, parent: &Space<A>, child: &Space<A>) -> Result<(), Error> {
        child.set_opt_out(parent.opt_out());
        child.set_stack_pages(parent.stack_pages());
        child.set_group(parent.group());
        child.note_all_of(parent);
        parent.is_parent_of(child);
        let mut change = self.base.change(parent);
        change.hold(Space::<A>::all());
        let done = self.inherit(parent, child, &mut change);
        if parent.has(Ever::Watched) {
            let shielded = self.areas(parent, Space::<A>::all());
            let shielded = shielded.filter(|area| {
                let flags =
                    area.flags.intersection(AreaFlags::WATCH_WRITE | AreaFlags::WATCH_FORKED);
                flags == AreaFlags::WATCH_WRITE
            });
            self.unshield_all(child, shielded.map(|area| area.span));
        }
        change.count(Event::EntriesForked);
        done
    }

    /// Gives the child its areas, and their pages by stretches of areas that are inherited alike:
    /// where two of them meet, a contiguous block may lie in both, and must not be cut.
    fn inherit(
        &self,
        parent: &Space<A>,
        child: &Space<A>,
        change: &mut Change<'_, A, H>,
    ) -> Result<(), Error> {
        let mut heir = self.base.change(child);
        let view = self.base.view(child);
        let mut alike: Option<(PageSpan, Inherit)> = None;
        for area in self.areas(parent, Space::<A>::all()) {
            let inherited = area.inherited();
            if let Some(area) = inherited {
                heir.stock()?;
                heir.writer().append(area).map_err(|_| Error::Invalid)?;
            }
            let how = inherited.and_then(|area| area.inherits_pages());
            alike = match (alike, how) {
                (Some((span, same)), Some(how)) if same == how && span.end == area.span.start => {
                    Some((PageSpan::new(span.start, area.span.end), how))
                }
                (before, how) => {
                    self.inherit_pages(&view, change, before)?;
                    how.map(|how| (area.span, how))
                }
            };
        }
        self.inherit_pages(&view, change, alike)
    }

    fn inherit_pages(
        &self,
        child: &View<'_, A, H>,
        change: &mut Change<'_, A, H>,
        pages: Option<(PageSpan, Inherit)>,
    ) -> Result<(), Error> {
        let Some((mut left, how)) = pages else { return Ok(()) };
        let lend_marks = |marks, pages| self.base.lend_marks(marks, pages);
        while !left.is_empty() {
            let mut copy = None;
            change.complete(|section| {
                copy = section.fork(child, &mut left, how, &lend_marks)?;
                Ok(())
            })?;
            if let Some((pages, frame, attrs)) = copy {
                if how == Inherit::Shared {
                    return Err(Error::NoMemory(Order::ZERO));
                }
                self.copy_for(child, pages, frame, attrs)?;
                left = PageSpan::new(pages.end, left.end);
            }
        }
        Ok(())
    }

    /// Maps copies of the frames from `frame` on at `pages` of a child that is being made, in
    /// folios as large as alignment and memory allow.
    fn copy_for(
        &self,
        child: &View<'_, A, H>,
        pages: PageSpan,
        frame: Pfn,
        attrs: Attrs,
    ) -> Result<(), Error> {
        let mut at = pages.start;
        while at < pages.end {
            let aligned = Order::new(at.get().trailing_zeros().min(ORDER_MAX.get().into()) as u8);
            let left = pages.end.offset_from(at);
            let most = Order::fitting(left).unwrap_or_default().min(aligned);
            let orders = (1..=most.get()).rev().map(Order::new);
            let (run, order) = self.base.first_free(orders, Order::ZERO)?;
            let from = FrameSpan::new(frame.add(at.offset_from(pages.start)), order.pages());
            let run = run.dirtied();
            let copied = self.base.hw.copy(&run, 0, from).map_err(Error::from);
            if let Err(error) = copied.and_then(|()| self.deepen_to(child, at, order, None)) {
                self.base.free(run);
                return Err(error);
            }
            let copy = run.start();
            child.folios().adopt_mapped(run, order, child.tables().home(at));
            // The parent may map it by smaller leaves, and then the child has a table for them.
            let locked = child.tables().lock_lowest(at, Level::LAST);
            let entries = (order.pages() >> A::order(locked.level()).get()) as usize;
            locked.put(locked.index(at), entries, copy, attrs, order);
            self.base.count(Event::ForkCopy, order.pages());
            at = at.add(order.pages());
        }
        Ok(())
    }
}
