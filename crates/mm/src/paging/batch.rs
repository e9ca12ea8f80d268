//! Folios that leave together: one flush of each space for all of them.

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::Hardware;

use super::Paging;
use super::evict::{Evictor, Leaving};
use super::leave::{PagedOut, Purpose};
use super::pass::{Known, Pass, Sought};
use crate::base::{AllSpaces, Keep};
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
    pub(super) known: Known,
    pub(super) done: PagedOut,
}

impl<'a, A: Arch, H: Hardware> Batch<'a, A, H> {
    pub(super) fn new(
        paging: &'a Paging<'a, A, H>,
        spaces: &'a dyn AllSpaces<A>,
        purpose: Purpose,
        gather: &'a mut Gather,
    ) -> Self {
        let (folios, known, done) = (ArrayVec::new(), Known::default(), PagedOut::default());
        Self { paging, spaces, purpose, gather, folios, known, done }
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
        for pass in Pass::EACH {
            if others {
                self.take_out(pass);
            }
        }
        match self.purpose {
            Purpose::Write => self.end_out(),
            Purpose::Move | Purpose::Pack => self.end_moves(),
        }
    }

    /// Writes the folios.
    fn end_out(&mut self) {
        // One by one, and in place: a batch is a large part of the stack.
        while let Some(leaving) = self.folios.pop() {
            if let Some(device) = self.paging.base().device(leaving.device) {
                self.paging.end_out(&leaving, &device, &mut self.done);
            }
        }
    }

    /// Gives the folios other frames, and maps them again where they were mapped.
    fn end_moves(&mut self) {
        let (paging, base) = (self.paging, self.paging.base());
        for leaving in &mut self.folios {
            if let Some(device) = base.device(leaving.device) {
                paging.replace_leaving(leaving, &device, self.purpose);
            }
        }
        self.restore();
        while let Some(leaving) = self.folios.pop() {
            let Some(device) = base.device(leaving.device) else { continue };
            base.try_drop(&device, leaving.folio(), leaving.slots(), Keep::IfReferred);
            self.done.folios += u64::from(leaving.moved);
            self.done.pages += if leaving.moved { leaving.folio().order.pages() } else { 0 };
            self.done.stay += u64::from(!leaving.moved);
        }
    }

    /// Takes the folios that are still mapped out of the spaces of a pass.
    fn take_out(&mut self, pass: Pass) {
        let (sought, before) = (self.sought(Leaving::is_mapped), self.known.clone());
        let Self { paging, spaces, gather, folios: batch, known, .. } = self;
        pass.visit(*spaces, &sought, &before, &mut |space, own| {
            let may = |at: &usize| {
                let leaving = &batch[*at];
                let likely = pass == Pass::Home || paging.may_map(space, leaving.folio());
                leaving.is_mapped() && likely
            };
            let here = sought.iter().filter(|sought| pass.looks(sought.1, own));
            let here: ArrayVec<usize, LEAVE_MOST> =
                here.map(|sought| sought.0).filter(may).collect();
            if here.is_empty() {
                return;
            }
            let _taking = space.taking();
            let mut evictor = Evictor::new(paging.base(), space, gather);
            let (mut found, mut shared) = (false, false);
            for at in here {
                found |= evictor.evict_at_home(&mut batch[at]);
                shared |= batch[at].is_mapped();
            }
            evictor.settle();
            if pass == Pass::Home && shared {
                known.add(space.kin());
            }
            if pass == Pass::All && found {
                known.add(own);
            }
        });
    }

    /// Maps the pages again whose entries name the folios.
    fn restore(&self) {
        let (paging, base) = (self.paging, self.paging.base());
        let device_of = |at: usize| base.device(self.folios[at].device);
        let has_entries = |at: usize| {
            device_of(at).is_some_and(|device| paging.has_entries(&self.folios[at], &device))
        };
        let mut sought = self.sought(|_| true);
        for pass in Pass::EACH {
            pass.visit(self.spaces, &sought, &self.known, &mut |space, own| {
                for &(at, _) in sought.iter().filter(|sought| pass.looks(sought.1, own)) {
                    let may = pass == Pass::Home || has_entries(at);
                    if let Some(device) = device_of(at).filter(|_| may) {
                        paging.restore_in(space, &self.folios[at], &device);
                    }
                }
            });
            sought.retain(|sought| has_entries(sought.0));
        }
    }

    /// The folios for which `such` holds: their places in the batch, and the spaces of their homes.
    fn sought(&self, such: impl Fn(&Leaving) -> bool) -> Sought<usize> {
        let folios = self.paging.base().folios();
        let such = self.folios.iter().enumerate().filter(|(_, leaving)| such(leaving));
        such.map(|(at, leaving)| (at, folios.home(leaving.folio()).space)).collect()
    }
}
