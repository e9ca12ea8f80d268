//! Folios that leave together: one flush of each space for all of them.

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Paging;
use super::evict::{Begun, Evictor, Leaving};
use super::leave::{PagedOut, Purpose};
use super::pass::{Homes, Known, Pass};
use crate::base::{AllSpaces, Keep};
use crate::cache::Row;
use crate::limits::{EVICT_FLUSH_PAGES, LEAVE_MOST, ROW_MOST};
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

    /// How many folios more it takes.
    pub(super) fn room(&self) -> usize {
        self.folios.remaining_capacity()
    }

    /// Adds folios that have begun their way, at most as many as there is room for.
    pub(super) fn push(&mut self, row: &Row, begun: &Begun) {
        let folios = self.paging.base().folios();
        for (folio, at) in row.iter() {
            // Mappings count until they are flushed, and this space is flushed before the others.
            let mapped = folios.counts(folio).mapped;
            self.folios.push(Leaving::new(folio, at.start, begun, mapped));
        }
    }

    /// Takes the last `count` folios, which are one row, out of `space`, where they are mapped from
    /// page `at` on one behind the other. Returns whether a change under way has kept some.
    pub(super) fn evict_last(&mut self, count: usize, space: &Space<A>, at: Vpn) -> bool {
        let from = self.folios.len() - count;
        let row = &mut self.folios[from..];
        let pages: u64 = row.iter().map(|leaving| leaving.folio().order.pages()).sum();
        let mut evictor = Evictor::new(self.paging.base(), space, self.gather);
        evictor.evict(PageSpan::new(at, at.add(pages)), row)
    }

    /// The last `count` folios.
    pub(super) fn last(&mut self, count: usize) -> &mut [Leaving] {
        let from = self.folios.len().saturating_sub(count);
        &mut self.folios[from..]
    }

    /// Flushes `own`, the space that the caller has taken the folios out of, takes them out of all
    /// others if `others` says so, and ends their way.
    #[inline(never)]
    pub(super) fn end(&mut self, own: Option<&Space<A>>, others: bool) {
        if let Some(own) = own {
            let pages =
                self.folios.iter().map(|leaving| u64::from(leaving.pages.get())).sum::<u64>();
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
    #[inline(never)]
    fn end_out(&mut self) {
        let mut from = 0;
        while let Some(first) = self.folios.get(from) {
            let mut row = Row::of(first.slots().start, first.folio());
            let rest = self.folios[from + 1..].iter().take(ROW_MOST - 1);
            for next in rest {
                if !next.follows(first, &row) {
                    break;
                }
                row.push(next.folio().head);
            }
            let end = from + row.len();
            self.paging.end_out(&self.folios[from..end], &row, &mut self.done);
            from = end;
        }
        self.folios.clear();
    }

    /// Gives the folios other frames, and maps them again where they were mapped.
    #[inline(never)]
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
            let row = Row::of(leaving.slots().start, leaving.folio());
            base.try_drop(&device, &row, Keep::IfReferred);
            self.done.folios += u64::from(leaving.moved);
            self.done.pages += if leaving.moved { leaving.folio().order.pages() } else { 0 };
            self.done.stay += u64::from(!leaving.moved);
        }
    }

    /// Takes the folios that are still mapped out of the spaces of a pass.
    #[inline(never)]
    fn take_out(&mut self, pass: Pass) {
        let before = self.known.clone();
        let Self { paging, spaces, gather, folios: batch, known, .. } = self;
        let folios = paging.base().folios();
        let home = |leaving: &Leaving| folios.home(leaving.folio()).space;
        let sought: Homes = batch.iter().filter(|it| it.is_mapped()).map(home).collect();
        pass.visit(*spaces, sought, &before, &mut |space, own| {
            let is_sought = |leaving: &Leaving| {
                leaving.is_mapped()
                    && pass.looks(home(leaving), own)
                    && (pass == Pass::Home || paging.may_map(space, leaving.folio()))
            };
            let here: ArrayVec<u8, LEAVE_MOST> =
                (0..).zip(&*batch).filter(|it| is_sought(it.1)).map(|it| it.0).collect();
            if here.is_empty() {
                return;
            }
            let _taking = space.taking();
            let mut evictor = Evictor::new(paging.base(), space, gather);
            let (mut found, mut shared) = (false, false);
            for &at in &here {
                let leaving = &mut batch[usize::from(at)];
                found |= evictor.evict_at_home(leaving);
                shared |= leaving.is_mapped();
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
    #[inline(never)]
    fn restore(&self) {
        let (paging, base) = (self.paging, self.paging.base());
        let home = |leaving: &Leaving| base.folios().home(leaving.folio()).space;
        let has_entries = |leaving: &Leaving| {
            let device = base.device(leaving.device);
            device.is_some_and(|device| paging.has_entries(leaving, &device))
        };
        let mut sought = [true; LEAVE_MOST];
        for pass in Pass::EACH {
            let left = || self.folios.iter().zip(&sought).filter(|it| *it.1).map(|it| it.0);
            pass.visit(self.spaces, left().map(home).collect(), &self.known, &mut |space, own| {
                for leaving in left().filter(|it| pass.looks(home(it), own)) {
                    let may = pass == Pass::Home || has_entries(leaving);
                    if let Some(device) = base.device(leaving.device).filter(|_| may) {
                        paging.restore_in(space, leaving, &device);
                    }
                }
            });
            for (leaving, sought) in self.folios.iter().zip(&mut sought).filter(|it| *it.1) {
                *sought = has_entries(leaving);
            }
        }
    }
}
