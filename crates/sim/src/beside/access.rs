//! Loads, stores and fetches of programs, through the CPU and its TLB.

use std::collections::BTreeSet;

use quire::fault::Cause;
use quire::inject::FailPlan;
use quire::space::Area;
use quire::{Error, Resolved};
use quire_arch::{Arch, Attrs, Entry, Level};
use quire_machine::{Trap, TrapKind};
use quire_units::{Access, PageSpan, Pfn, Prot, VirtAddr, Vpn};

use super::Beside;
use super::compare::{New, areas_of, ensure};
use super::judge::Sharing;
use crate::fork::Resident;
use crate::script::Stretch;
use crate::space::Fault;

/// How often an access may trap before it is taken for hopeless.
const TRAPS: usize = 8;

impl<A: Arch> Beside<'_, '_, '_, A> {
    /// Tries the pages at the ends of a stretch, inside and outside, in every way: what is not
    /// resident must trap, and what is must be allowed what it is, no more and no less.
    pub(super) fn probe(&mut self, at: usize, stretch: Stretch) -> Result<(), String> {
        let span = stretch.span(&self.field);
        let ends = [span.start.get() - 1, span.start.get(), span.end.get() - 1, span.end.get()];
        for page in BTreeSet::from(ends).into_iter().map(Vpn::new) {
            for access in [Access::Read, Access::Execute, Access::Write] {
                let model = &self.lives[at].model;
                let here = model.resident.get(&page.get());
                let granted = model.areas.page(page).map_or(Prot::empty(), |a| granted::<A>(&a));
                // A shared page is only read here, so that it stays shared.
                let unshares = |here: &&Resident| here.cow && access == Access::Write;
                match here.filter(|here| granted.allows(access) && !unshares(here)) {
                    Some(here) => self.access(at, page, access, here.word.get())?,
                    None => {
                        let real = self.once(page, access, 0);
                        ensure(real.is_err(), "a trap", (page, access, granted, here, real))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn once(&self, page: Vpn, access: Access, word: u64) -> Result<u64, Trap> {
        let addr = VirtAddr::new(page.get() << A::PAGE_SHIFT);
        match access {
            Access::Read => self.cpu.read(addr),
            Access::Execute => self.cpu.fetch(addr),
            Access::Write => self.cpu.write(addr, word).map(|()| word),
        }
    }

    /// A program's access, with faults resolved until it succeeds or is refused.
    pub(super) fn access(
        &mut self,
        at: usize,
        page: Vpn,
        access: Access,
        word: u64,
    ) -> Result<(), String> {
        for _ in 0..TRAPS {
            match self.once(page, access, word) {
                Ok(found) => return self.accessed(at, page, access, found),
                Err(Trap { kind: TrapKind::Malformed(flaw), .. }) => return Err(flaw.to_string()),
                Err(_) => {}
            }
            if self.fault(at, page, access)? {
                return Ok(());
            }
        }
        Err(format!("{access:?} of {page} traps for ever"))
    }

    /// Judges an access that succeeded.
    fn accessed(&mut self, at: usize, page: Vpn, access: Access, found: u64) -> Result<(), String> {
        let model = &mut self.lives[at].model;
        let number = page.get();
        let granted = model.areas.page(page).map_or(Prot::empty(), |area| granted::<A>(&area));
        let here = model.resident.get_mut(&number).filter(|_| granted.allows(access));
        let here = here.ok_or_else(|| format!("{access:?} of {page}, which has {granted:?}"))?;
        here.young = true;
        if access == Access::Write {
            ensure(!here.cow, "no store to what others may have", (page, &*here))?;
            here.dirty = true;
            here.word.set(found);
            return Ok(());
        }
        ensure(found == here.word.get(), "the word that was written", (page, found, here))
    }

    /// Resolves one fault; whether the access was refused.
    fn fault(&mut self, at: usize, page: Vpn, access: Access) -> Result<bool, String> {
        let short = self.memory_fallbacks();
        let planned = self.mm.bare_phys().fail_plan() != FailPlan::Never;
        let here = self.lives[at].model.resident.get(&page.get());
        let outlook = here.filter(|here| here.cow).map(|_| self.outlook(at, page));
        let live = &mut self.lives[at];
        let real = {
            let _op = self.cpu.operation("fault");
            self.mm.fault(&live.space, page, access)
        };
        let opt_out = live.model.opt_out;
        let wants = |advice| self.mm.policy().candidates(advice, opt_out);
        let mut after = live.model.clone();
        let expected = after.fault(page, access, A::block_order(), wants);
        let grown = areas_of(self.mm, &live.space) == after.areas.areas();
        match (real, expected) {
            (Ok(Resolved::Again), _) => {
                Err("a fault was disturbed, though no other thread runs".into())
            }
            (Err(Error::NoMemory(_)), Ok(Fault::Mapped { .. } | Fault::Unshared)) => {
                if grown {
                    live.model = after;
                }
                self.settle(at, New::None).map(|()| true)
            }
            (Err(Error::NoMemory(_)), Err(_)) if planned => {
                self.settle(at, New::None).map(|()| true)
            }
            (Err(error), Err(wanted)) => {
                ensure(error == wanted, "the same refusal", (error, wanted))?;
                self.settle(at, New::None).map(|()| true)
            }
            (Ok(Resolved::Unshared { pages, copied }), Ok(Fault::Unshared)) => {
                outlook.map_or(Ok(()), |outlook| outlook.allows(page, pages, copied))?;
                let sharing = Sharing::Unshared(pages, copied);
                self.settle_shared(at, New::None, sharing).map(|()| false)
            }
            (Ok(Resolved::Noted), Ok(Fault::Noted)) => self.settle(at, New::None).map(|()| false),
            (Ok(Resolved::Mapped(new)), Ok(Fault::Mapped { least, most })) => {
                live.model = after;
                let block = PageSpan::block(page, new.order);
                ensure(new.pages == block, "the block around the page", (page, new))?;
                let memory = self.memory_fallbacks() == short;
                let sized = new.order <= most && (!memory || new.order >= least);
                ensure(sized, "a size between", (page, new, least, most))?;
                self.settle(at, New::Exactly(new.pages)).map(|()| false)
            }
            (real, expected) => Err(format!("fault {access:?} {page}: {real:?}, {expected:?}")),
        }
    }

    fn memory_fallbacks(&self) -> u64 {
        self.mm.totals().fallback.iter().map(|causes| causes[Cause::Memory as usize]).sum()
    }
}

/// The rights that an area's come to where the ISA ties some together.
pub(super) fn granted<A: Arch>(area: &Area) -> Prot {
    match A::decode(A::leaf(Pfn::new(0), Level::LAST, Attrs::user(area.prot)), Level::LAST) {
        Entry::Leaf { attrs, .. } => attrs.prot(),
        _ => area.prot,
    }
}
