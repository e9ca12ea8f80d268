//! Folios that leave together: one flush of each space for all of them.

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Vpn;

use super::Paging;
use super::evict::{Evictor, Leaving};
use super::leave::{PagedOut, Purpose};
use crate::base::{AllSpaces, Device};
use crate::limits::{EVICT_FLUSH_PAGES, LEAVE_MOST};
use crate::space::Space;
use crate::table::Gather;

/// The folios that wait for their flush.
pub(super) struct Batch<'a, A, H> {
    paging: &'a Paging<'a, A, H>,
    spaces: &'a dyn AllSpaces<A>,
    purpose: Purpose,
    gather: &'a mut Gather,
    folios: ArrayVec<Leaving, LEAVE_MOST>,
    pub(super) done: PagedOut,
}

impl<'a, A: Arch, H: Hardware> Batch<'a, A, H> {
    pub(super) fn new(
        paging: &'a Paging<'a, A, H>,
        spaces: &'a dyn AllSpaces<A>,
        purpose: Purpose,
        gather: &'a mut Gather,
    ) -> Self {
        Self { paging, spaces, purpose, gather, folios: ArrayVec::new(), done: PagedOut::default() }
    }

    /// Takes folios of the batch out of one space. The caller announces that, and settles in the
    /// end.
    pub(super) fn evictor<'s>(&'s mut self, space: &'s Space<A>) -> Evictor<'s, A, H> {
        let base = self.paging.base();
        Evictor::new(base, space, self.gather)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.folios.is_empty()
    }

    /// Adds a folio; returns whether the batch is full.
    pub(super) fn push(&mut self, leaving: Leaving) -> bool {
        self.folios.push(leaving);
        self.folios.is_full()
    }

    /// Flushes `own`, the space that the caller has taken the folios out of, takes them out of all
    /// others if `others` says so, and ends their way.
    #[inline(never)]
    pub(super) fn end(&mut self, own: Option<&Space<A>>, others: bool) {
        if let Some(own) = own {
            let pages = self.folios.iter().map(|leaving| u64::from(leaving.pages)).sum::<u64>();
            if pages > EVICT_FLUSH_PAGES {
                self.gather.flush_space();
            }
            self.paging.base().settle(own, self.gather);
        }
        // Most are mapped in the space of their home alone.
        for near in [true, false] {
            if others && self.folios.iter().any(Leaving::is_mapped) {
                self.take_from_all(near);
            }
        }
        // One by one, and in place: a batch is a large part of the stack.
        while let Some(leaving) = self.folios.pop() {
            let Some(device) = self.paging.base().device(leaving.device) else { continue };
            match self.purpose {
                Purpose::Write => self.paging.end_out(&leaving, &device, &mut self.done),
                Purpose::Move | Purpose::Pack => self.end_move(leaving, &device),
            }
        }
    }

    /// Takes the folios that are still mapped out of all spaces, or with `near` each out of the
    /// space of its home.
    fn take_from_all(&mut self, near: bool) {
        let (base, batch, gather) = (self.paging.base(), &mut self.folios, &mut *self.gather);
        self.spaces.visit(&mut |space| {
            let own = base.view(space).tables().home(Vpn::new(0)).space;
            let is_here = |leaving: &Leaving| {
                leaving.is_mapped() && (!near || base.folios().home(leaving.folio()).space == own)
            };
            if !batch.iter().any(is_here) {
                return;
            }
            let _taking = space.taking();
            let mut evictor = Evictor::new(base, space, gather);
            let here = batch.iter_mut().filter(|leaving| is_here(leaving));
            here.for_each(|leaving| evictor.evict_at_home(leaving));
            evictor.settle();
        });
    }

    /// Lets a folio move, and counts it.
    fn end_move(&mut self, leaving: Leaving, device: &Device<'_, A, H>) {
        let pages = leaving.folio().order.pages();
        let moved = self.paging.end_move(leaving, device, self.purpose, self.spaces);
        self.done.folios += u64::from(moved);
        self.done.pages += if moved { pages } else { 0 };
        self.done.stay += u64::from(!moved);
    }
}
