//! Fork and exit, pins and devices.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use quire::inject::FailPlan;
use quire::space::Space;
use quire::{Error, Pinned};
use quire_arch::Arch;
use quire_units::{Access, Asid, FrameSpan, PageSpan, Pfn, Vpn};

use super::Beside;
use super::calls::Live;
use super::compare::{New, areas_of, ensure};
use super::judge::Sharing;
use crate::space::Fault;

/// The most spaces there may be at once.
const LIVES: usize = 4;
/// The most pins.
const PINS: usize = 6;

/// A pin, and what its memory should hold.
pub(super) struct Pin {
    pinned: Pinned,
    word: Rc<Cell<u64>>,
}

impl<A: Arch> Beside<'_, '_, '_, A> {
    pub(super) fn free_asid(&self) -> Asid {
        let taken = |asid: &u16| self.lives.iter().any(|live| live.space.asid().0 == *asid);
        Asid((1..).find(|asid| !taken(asid)).unwrap_or(0))
    }

    /// Sees to it that there may be one more space.
    pub(super) fn make_room(&mut self) {
        if self.lives.len() == LIVES {
            self.cpu.leave();
            self.end(0);
        }
    }

    pub(super) fn fork(&mut self, at: usize) -> Result<(), String> {
        let (plan, asid) = (self.mm.bare_phys().fail_plan(), self.free_asid());
        let before = self.mm.phys().free_frames();
        let real = {
            let _op = self.cpu.operation("fork");
            self.mm.fork(&self.lives[at].space, asid)
        };
        match real {
            Ok(space) => self.born(at, space, asid),
            Err(Error::NoMemory(_)) => {
                self.settle_shared(at, New::None, Sharing::Offered)?;
                let honest = plan == FailPlan::Never && before > 500;
                ensure(!honest, "memory enough for a fork", before)
            }
            Err(error) => Err(format!("fork: {error}")),
        }
    }

    /// Takes the child in.
    fn born(&mut self, at: usize, space: Space<A>, asid: Asid) -> Result<(), String> {
        let pinned = self.pinned();
        let held = |frame: Pfn| pinned.iter().any(|folio| folio.contains(frame));
        let (mut model, copies) = self.lives[at].model.fork(held);
        let parent = &self.lives[at].space;
        let inherits = space.window() == parent.window() && space.opt_out() == parent.opt_out();
        ensure(inherits && space.asid() == asid, "a child like its parent", space.asid())?;
        let taken = self.frames();
        let child = self.lives.len();
        self.lives.push(Live { space, model: model.clone() });
        let real = self.resident(child)?;
        for page in copies {
            let (found, here) = (real.get(&page), model.resident.get_mut(&page));
            let (Some(found), Some(here)) = (found, here) else {
                return Err(format!("{} is pinned, and the child lacks it", Vpn::new(page)));
            };
            ensure(!taken.contains(&found.frame), "a copy of what is pinned", (page, found))?;
            here.frame = found.frame;
        }
        self.lives[child].model = model;
        let live = &self.lives[child];
        let (areas, wanted) = (areas_of(self.mm, &live.space), live.model.areas.areas());
        ensure(areas == wanted, "the parent's areas", (areas, wanted))?;
        // That is all that a fork may do to the parent, and the child may have.
        self.settle(child, New::None)?;
        self.settle(at, New::None)
    }

    /// Destroys a space; the CPU must not be in it.
    pub(super) fn end(&mut self, at: usize) {
        let live = self.lives.remove(at);
        let _op = self.cpu.operation("destroy");
        self.mm.destroy(live.space);
    }

    pub(super) fn pin(&mut self, at: usize, page: Vpn, access: Access) -> Result<(), String> {
        if self.pins.len() == PINS {
            return Ok(());
        }
        let planned = self.mm.bare_phys().fail_plan() != FailPlan::Never;
        let live = &mut self.lives[at];
        let real = {
            let _op = self.cpu.operation("pin");
            self.mm.pin(&live.space, page, access)
        };
        let opt_out = live.model.opt_out;
        let wants = |advice| self.mm.policy().candidates(advice, opt_out);
        let mut after = live.model.clone();
        let expected = after.fault(page, access, A::block_order(), wants);
        if areas_of(self.mm, &live.space) == after.areas.areas() {
            live.model = after;
        }
        let pinned = match (real, expected) {
            (Ok(pinned), Ok(_)) => pinned,
            (Err(Error::NoMemory(_)), expected) if planned || expected.is_ok() => {
                let new = if expected.is_ok() { New::Some } else { New::None };
                return self.settle_shared(at, new, Sharing::Own(page));
            }
            (Err(error), Err(wanted)) if error == wanted => return self.settle(at, New::None),
            (real, expected) => return Err(format!("pin {page}: {real:?}, {expected:?}")),
        };
        let one = PageSpan::new(page, page.add(1));
        let mapped = matches!(expected, Ok(Fault::Mapped { .. }));
        let new = if mapped { New::Around(one) } else { New::None };
        self.settle_shared(at, new, Sharing::Own(page))?;
        let Some(here) = self.lives[at].model.resident.get(&page.get()) else {
            return Err(format!("{page} is pinned and not there"));
        };
        ensure(!here.cow && here.frame == pinned.frame(), "a pin on one's own", (page, here))?;
        self.pins.push(Pin { pinned, word: here.word.clone() });
        Ok(())
    }

    pub(super) fn unpin(&mut self, which: usize) {
        if !self.pins.is_empty() {
            let pin = self.pins.swap_remove(which % self.pins.len());
            let _op = self.cpu.operation("unpin");
            self.mm.unpin(pin.pinned);
        }
    }

    /// A device writes: the space that pinned the memory sees it if the page is still there, and no
    /// other space does.
    pub(super) fn device(&mut self, which: usize) {
        self.next += 1;
        if !self.pins.is_empty() {
            let pin = &self.pins[which % self.pins.len()];
            self.machine.ram().write_word(self.places(pin.pinned.frame())[0], self.next);
            pin.word.set(self.next);
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
        let pages = self.lives.iter().flat_map(|live| live.model.resident.values());
        pages.map(|here| here.frame).collect()
    }
}
