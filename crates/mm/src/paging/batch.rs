//! Folios that leave together: one flush of each space for all of them.

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::Hardware;

use super::Paging;
use super::evict::{Evictor, Leaving};
use super::leave::{PagedOut, Purpose};
use super::pass::{Known, Pass};
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
            if others && self.folios.iter().any(Leaving::is_mapped) {
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
        let device_of = |leaving: &Leaving| {
            base.device(leaving.device).filter(|device| paging.has_entries(leaving, device))
        };
        let homes = self.homes();
        for pass in Pass::EACH {
            if !self.folios.iter().any(|leaving| device_of(leaving).is_some()) {
                break;
            }
            pass.visit(self.spaces, &homes, &self.known, &mut |space, own| {
                let all = self.folios.iter().zip(&homes);
                for (leaving, _) in all.filter(|(_, home)| pass.looks(**home, own)) {
                    if let Some(device) = device_of(leaving) {
                        paging.restore_in(space, leaving, &device);
                    }
                }
            });
        }
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
        let (homes, before) = (self.homes(), self.known.clone());
        let Self { paging, spaces, gather, folios: batch, known, .. } = self;
        let base = paging.base();
        pass.visit(*spaces, &homes, &before, &mut |space, own| {
            let is_here =
                |(leaving, home): (&Leaving, &u32)| pass.looks(*home, own) && leaving.is_mapped();
            if !batch.iter().zip(&homes).any(is_here) {
                return;
            }
            let _taking = space.taking();
            let (mut evictor, mut found) = (Evictor::new(base, space, gather), false);
            for (leaving, home) in batch.iter_mut().zip(&homes) {
                if is_here((leaving, home)) {
                    found |= evictor.evict_at_home(leaving);
                }
            }
            evictor.settle();
            if pass == Pass::All && found {
                known.add(own);
            }
        });
    }

    /// The space of each folio's home.
    fn homes(&self) -> ArrayVec<u32, LEAVE_MOST> {
        let folios = self.paging.base().folios();
        self.folios.iter().map(|leaving| folios.home(leaving.folio()).space).collect()
    }
}
