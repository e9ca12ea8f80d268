//! Loads, stores and fetches of programs, through the CPU and its TLB.

use std::collections::BTreeSet;

use quire::fault::Cause;
use quire::inject::FailPlan;
use quire::{Error, Resolved};
use quire_arch::{Arch, Attrs, Entry, Level};
use quire_machine::{Trap, TrapKind};
use quire_script::{Part, tail};
use quire_units::{Access, PageSpan, Pfn, Prot, Vpn};

use super::super::violation::{Wrong, ensure};
use super::super::world::World;
use super::compare::New;
use super::judge::Sharing;
use super::model::Fault;

/// How often an access may trap before it is taken for hopeless.
const TRAPS: usize = 8;

impl<A: Arch> World<'_, '_, '_, A> {
    /// The rights to a page, where the ISA ties some together.
    pub(super) fn granted(&self, process: usize, at: Option<usize>) -> Prot {
        let prot = at.map_or(Prot::empty(), |at| self.naive[process].pages[at].prot);
        match A::decode(A::leaf(Pfn::new(0), Level::LAST, Attrs::user(prot)), Level::LAST) {
            Entry::Leaf { attrs, .. } => attrs.prot(),
            _ => prot,
        }
    }

    /// Tries the pages at the ends of a part, inside and outside, in every way: what is not
    /// resident must trap, and what is must be allowed what it is, no more and no less.
    pub(super) fn probe(&mut self, process: usize, (at, count): Part) -> Result<(), Wrong> {
        let (start, end) = (self.vpn(at).get(), self.vpn(at + count).get());
        for page in BTreeSet::from([start - 1, start, end - 1, end]).into_iter().map(Vpn::new) {
            let at = self.at(page);
            for access in [Access::Read, Access::Execute, Access::Write] {
                let here = at.and_then(|at| self.exact().resident[process].get(&at));
                let is_granted = self.granted(process, at).allows(access);
                // A shared page is only read here, so that it stays shared.
                let may = here.is_some_and(|here| !(here.cow && access == Access::Write));
                if let Some(at) = at.filter(|_| is_granted && may) {
                    let word = self.naive[process].content(&self.files, at).unwrap_or_default();
                    self.access_exactly(process, at, access, word)?;
                    continue;
                }
                let real = self.once(page, access, 0);
                ensure(real.is_err(), "a trap", (page, access, is_granted, here, real))?;
            }
        }
        Ok(())
    }

    fn once(&self, page: Vpn, access: Access, word: u64) -> Result<u64, Trap> {
        let addr = page.addr(A::PAGE_SHIFT);
        match access {
            Access::Read => self.cpu().read(addr),
            Access::Execute => self.cpu().fetch(addr),
            Access::Write => self.cpu().write(addr, word).map(|()| word),
        }
    }

    /// A program's access, with faults resolved until it succeeds or is refused.
    pub(super) fn access_exactly(
        &mut self,
        process: usize,
        at: usize,
        access: Access,
        word: u64,
    ) -> Result<(), Wrong> {
        for _ in 0..TRAPS {
            match self.once(self.vpn(at), access, word) {
                Ok(found) => return self.accessed(process, at, access, found),
                Err(Trap { kind: TrapKind::Malformed(flaw), .. }) => {
                    return Err(flaw.to_string().into());
                }
                Err(_) => {}
            }
            if self.fault(process, at, access)? {
                return Ok(());
            }
        }
        Err(format!("{access:?} of page {at} traps for ever").into())
    }

    /// Judges an access that succeeded.
    fn accessed(
        &mut self,
        process: usize,
        at: usize,
        access: Access,
        found: u64,
    ) -> Result<(), Wrong> {
        let granted = self.granted(process, Some(at));
        let here = self.exact_mut().resident[process].get_mut(&at);
        let here = here.filter(|_| granted.allows(access));
        let here = here.ok_or_else(|| format!("{access:?} of page {at}, which has {granted:?}"))?;
        here.young = true;
        if access != Access::Write {
            let word = self.naive[process].content(&self.files, at);
            return ensure(Ok(found) == word, "the word that was written", (at, found, word));
        }
        ensure(!here.cow, "no store to what others may have", (at, &*here))?;
        here.dirty = true;
        let frame = here.frame;
        let last = self.cpu().write(self.tail_addr(at), tail(found));
        ensure(last.is_ok(), "a store to the same page", (at, last))?;
        self.stored(frame, found);
        Ok(())
    }

    /// A word was stored to a frame: the pages that have it as their own, or share it, see it.
    pub(super) fn stored(&mut self, frame: Pfn, word: u64) {
        let Some(exact) = &self.exact else { return };
        for (resident, naive) in exact.resident.iter().zip(&mut self.naive) {
            let own = resident.iter().filter(|(_, here)| here.frame == frame && !here.cow);
            own.for_each(|(&at, _)| naive.store(&mut self.files, at, word, 0));
        }
    }

    /// Resolves one fault; whether the access was refused.
    fn fault(&mut self, process: usize, at: usize, access: Access) -> Result<bool, Wrong> {
        let page = self.vpn(at);
        let short = self.memory_fallbacks();
        let planned = self.mm.bare_phys().fail_plan() != FailPlan::Never;
        let mut after = self.model(process)?;
        let is_cow = after.resident.get(&at).is_some_and(|here| here.cow);
        let outlook = if is_cow { Some(self.outlook(process, at)?) } else { None };
        let expected = after.fault(at, access, A::block_order(), self.wants(process)?);
        let real = self.exact_call(process, "fault", |mm, space| mm.fault(space, page, access))?;
        let grown = self.areas_of(process)? == after.areas();
        match (real, expected) {
            (Ok(Resolved::Again), _) => {
                Err("a fault was disturbed, though no other thread runs".to_owned().into())
            }
            (Err(Error::NoMemory(_)), Ok(Fault::Mapped { .. } | Fault::Unshared)) => {
                if grown {
                    self.adopt(process, after);
                }
                self.settle(process, New::None).map(|()| true)
            }
            (Err(Error::NoMemory(_)), Err(_)) if planned => {
                self.settle(process, New::None).map(|()| true)
            }
            (Err(error), Err(wanted)) => {
                ensure(error == wanted, "the same refusal", (error, wanted))?;
                self.settle(process, New::None).map(|()| true)
            }
            (Ok(Resolved::Unshared { pages, copied }), Ok(Fault::Unshared)) => {
                outlook.map_or(Ok(()), |outlook| outlook.allows(page, pages, copied))?;
                let sharing = Sharing::Unshared(pages, copied);
                self.settle_shared(process, New::None, sharing).map(|()| false)
            }
            (Ok(Resolved::Noted), Ok(Fault::Noted)) => {
                self.settle(process, New::None).map(|()| false)
            }
            (Ok(Resolved::Mapped(new)), Ok(Fault::Mapped { least, most })) => {
                let block = PageSpan::block(page, new.order);
                ensure(new.pages == block, "the block around the page", (page, new))?;
                let memory = self.memory_fallbacks() == short;
                let sized = new.order <= most && (!memory || new.order >= least);
                ensure(sized, "a size between", (page, new, least, most))?;
                let places = after.places(new.pages);
                self.adopt(process, after);
                let new = New::Exactly((places.start, places.len()));
                self.settle(process, new).map(|()| false)
            }
            (real, expected) => {
                Err(format!("fault {access:?} {page}: {real:?}, {expected:?}").into())
            }
        }
    }

    fn memory_fallbacks(&self) -> u64 {
        self.mm.totals().fallback.iter().map(|causes| causes[Cause::Memory as usize]).sum()
    }
}
