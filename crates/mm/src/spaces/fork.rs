//! Spaces begin and end; a fork begins with the contents of its parent, and has its own from then
//! on.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Asid, FrameSpan, Order, PageSpan, Pfn};

use super::Spaces;
use crate::base::{Change, Error};
use crate::limits::ORDER_MAX;
use crate::space::{Space, View};
use crate::stats::Event;
use crate::table::{Inherit, Tables};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// A space without areas. `asid` is a tag that the embedder has found free, or any where it
    /// enters spaces [with an allocator of tags](Space::enter_with); areas without a fixed place go
    /// into `window`.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Invalid`] when the window exceeds the pages that programs may
    /// map.
    pub fn space(&self, asid: Asid, window: PageSpan) -> Result<Space<A>, Error> {
        let root = self.base.table_frame()?;
        self.space_over(root, asid, window)
    }

    /// The same over a root table that the embedder has prepared: one frame, zero but for the
    /// embedder's entries beyond the user half.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the window exceeds the pages that programs may map, or the run is
    /// not one frame; the frame is free then.
    pub fn space_over(
        &self,
        root: FrameRun,
        asid: Asid,
        window: PageSpan,
    ) -> Result<Space<A>, Error> {
        if root.count() != 1 || !Space::<A>::may_map(window) {
            // The embedder may have written its kernel entries.
            self.base.free(root.dirtied());
            return Err(Error::Invalid);
        }
        let tables = Tables::<A, H>::found(self.base.hw, self.base.phys.meta(), root);
        Ok(Space::new(tables.root(), asid, window))
    }

    /// Ends a space. No CPU uses it any more: each has switched away, and none may enter it again.
    /// One flush covers all of it, however much was mapped. It comes first, so that freeing pages
    /// needs no further flush.
    pub fn destroy(&self, space: Space<A>) {
        let all = Space::<A>::all();
        {
            let change = self.base.change(&space);
            let _ = change.writer().cut(all);
            while let Some(run) = change.writer().unstock() {
                self.base.free(run);
            }
        }
        let tables = self.tables(&space);
        let mut gather = tables.retire();
        let mut left = all;
        while !left.is_empty() {
            let took = tables.take(left, &mut gather);
            self.base.count(Event::EntriesCleared, took.entries);
            left = PageSpan::new(took.upto, left.end);
            if !left.is_empty() {
                self.base.settle(&space, &mut gather);
            }
        }
        tables.prune(all, all, &mut gather);
        tables.free_root(&mut gather);
        self.base.settle(&space, &mut gather);
    }

    /// A child of `parent`, with the tag `asid`: the same areas, except for those advised otherwise
    /// ([`DONTFORK`](crate::space::AreaFlags::DONTFORK),
    /// [`WIPEONFORK`](crate::space::AreaFlags::WIPEONFORK)), and the same contents. The fork copies
    /// no memory: both map the same folios, and a write by one of them copies. Only pinned pages
    /// are copied for the child at once. Locks of areas are not inherited.
    ///
    /// Faults in the parent wait meanwhile. One flush of the parent covers all of it.
    ///
    /// Of a shared anonymous area the child gets the pages that exist; pages that either space
    /// touches later are its own.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Poisoned`] when a pinned page cannot be copied. There is no
    /// child then, and the parent is as before, except that some pages may be write-protected until
    /// their next write.
    pub fn fork(&self, parent: &Space<A>, asid: Asid) -> Result<Space<A>, Error> {
        self.fork_over(parent, self.base.table_frame()?, asid)
    }

    /// The same over a root table for the child that the embedder has prepared, as for
    /// [`space_over`](Self::space_over).
    ///
    /// # Errors
    /// As for [`fork`](Self::fork), and [`Error::Invalid`] when the run is not one frame; the
    /// frame is free then.
    pub fn fork_over(
        &self,
        parent: &Space<A>,
        root: FrameRun,
        asid: Asid,
    ) -> Result<Space<A>, Error> {
        let child = self.space_over(root, asid, parent.window())?;
        child.set_opt_out(parent.opt_out());
        child.set_stack_pages(parent.stack_pages());
        child.set_group(parent.group());
        child.note_all_of(parent);
        let done = {
            let mut change = self.base.change(parent);
            change.hold(Space::<A>::all());
            let done = self.inherit(parent, &child, &mut change);
            change.count(Event::EntriesForked);
            done
        };
        match done {
            Ok(()) => Ok(child),
            Err(error) => {
                self.destroy(child);
                Err(error)
            }
        }
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
                heir.writer().set(area).map_err(|_| Error::Invalid)?;
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
            let own = attrs.difference(Attrs::COW);
            locked.put(locked.index(at), entries, copy, own, order);
            self.base.count(Event::ForkCopy, order.pages());
            at = at.add(order.pages());
        }
        Ok(())
    }
}
