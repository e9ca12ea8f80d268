//! Fork, pins and devices.

use std::collections::BTreeSet;

use quire::Error;
use quire::inject::FailPlan;
use quire::space::Space;
use quire_arch::Arch;
use quire_script::tail;
use quire_units::{Access, Asid, FrameSpan, Pfn};

use super::super::device::poke;
use super::super::violation::{Wrong, ensure};
use super::super::world::{Pin, World};
use super::compare::New;
use super::judge::Sharing;
use super::model::Fault;

/// The most pins.
const PINS: usize = 6;

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn fork_exactly(&mut self, process: usize, to: usize) -> Result<(), Wrong> {
        if process == to {
            return Ok(());
        }
        self.end(to);
        let (plan, asid) = (self.mm.bare_phys().fail_plan(), Asid(to as u16 + 1));
        let before = self.mm.phys().free_frames();
        match self.call(process, "fork", |mm, space| mm.fork(space, asid))? {
            Ok(space) => self.born(process, to, space, asid),
            Err(Error::NoMemory(_)) => {
                self.settle_shared(process, New::None, Sharing::Offered)?;
                let honest = plan == FailPlan::Never && before > 500;
                ensure(!honest, "memory enough for a fork", before)
            }
            Err(error) => Err(Wrong::unexpected(error)),
        }
    }

    /// Takes the child in.
    fn born(
        &mut self,
        process: usize,
        to: usize,
        space: Space<A>,
        asid: Asid,
    ) -> Result<(), Wrong> {
        let pinned = self.pinned();
        let held = |frame: Pfn| pinned.iter().any(|folio| folio.contains(frame));
        let mut parent = self.model(process)?;
        let (mut child, copies) = parent.fork(held);
        let of = self.space(process)?;
        let inherits = space.window() == of.window() && space.opt_out() == of.opt_out();
        ensure(inherits && space.asid() == asid, "a child like its parent", space.asid())?;
        let taken = self.frames();
        self.spaces[to] = Some(space);
        let real = self.resident(to)?;
        for at in copies {
            let (Some(found), Some(here)) = (real.get(&at), child.resident.get_mut(&at)) else {
                return Err(format!("page {at} is pinned, and the child lacks it").into());
            };
            ensure(!taken.contains(&found.frame), "a copy of what is pinned", (at, found))?;
            here.frame = found.frame;
        }
        self.adopt(process, parent);
        self.adopt(to, child);
        self.same_areas(to)?;
        // That is all that a fork may do to the parent, and the child may have.
        self.settle(to, New::None)?;
        self.settle(process, New::None)
    }

    pub(super) fn pin_exactly(
        &mut self,
        process: usize,
        at: usize,
        access: Access,
    ) -> Result<(), Wrong> {
        if self.pins.len() == PINS {
            return Ok(());
        }
        let page = self.vpn(at);
        let planned = self.mm.bare_phys().fail_plan() != FailPlan::Never;
        let mut after = self.model(process)?;
        let expected = after.fault(at, access, A::block_order(), self.wants(process)?);
        let real = self.exact_call(process, "pin", |mm, space| mm.pin(space, page, access))?;
        if self.areas_of(process)? == after.areas() {
            self.adopt(process, after);
        }
        let pinned = match (real, expected) {
            (Ok(pinned), Ok(_)) => pinned,
            (Err(Error::NoMemory(_)), expected) if planned || expected.is_ok() => {
                let new = if expected.is_ok() { New::Some } else { New::None };
                return self.settle_shared(process, new, Sharing::Own(page));
            }
            (Err(error), Err(wanted)) if error == wanted => return self.settle(process, New::None),
            (real, expected) => {
                return Err(format!("pin {page}: {real:?}, {expected:?}").into());
            }
        };
        let frame = pinned.frame();
        let mapped = matches!(expected, Ok(Fault::Mapped { .. }));
        let new = if mapped { New::Around((at, 1)) } else { New::None };
        self.settle_shared(process, new, Sharing::Own(page))?;
        let here = self.exact().resident[process].get(&at);
        let own = here.is_some_and(|here| !here.cow && here.frame == frame);
        ensure(own, "a pin on one's own", (page, here))?;
        self.pins.push(Pin { pinned, place: Some((process, at)) });
        Ok(())
    }

    /// A device writes: the process that pinned the memory sees it if the page is still there, and
    /// so do those that share the area; no other process does.
    pub(super) fn device(&mut self, which: usize) {
        let word = self.stamp();
        if !self.pins.is_empty() {
            let frame = self.pins[which % self.pins.len()].pinned.frame();
            poke(self.machine.ram(), A::PAGE_SHIFT, frame, (word, tail(word)));
            self.stored(frame, word);
        }
    }

    /// The folios that pins hold.
    pub(super) fn pinned(&self) -> Vec<FrameSpan> {
        let folios = self.pins.iter().filter_map(|pin| self.folio(pin.pinned.frame()));
        folios.map(|folio| folio.span()).collect()
    }

    pub(super) fn pinned_folios(&self) -> u64 {
        self.pinned().iter().map(|folio| folio.start).collect::<BTreeSet<_>>().len() as u64
    }

    /// All frames that are mapped.
    pub(super) fn frames(&self) -> BTreeSet<Pfn> {
        let pages = self.exact().resident.iter().flat_map(|resident| resident.values());
        pages.map(|here| here.frame).collect()
    }
}
