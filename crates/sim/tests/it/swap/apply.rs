//! Carrying a script out.

use quire::cache::FilePages;
use quire::fault::SizePolicy;
use quire::inject::FailPlan;
use quire::space::{At, Request, Space};
use quire::{Error, Need, Scope, Stop};
use quire_arch::Arch;
use quire_units::{Access, Order, PageSpan, Prot, Vpn};

use super::ops::{Op, Stretch};
use super::scene::{Naive, Scene, base};

impl<A: Arch> Scene<'_, '_, '_, A> {
    pub(crate) fn apply(&mut self, op: &Op) {
        match *op {
            Op::Fail(nth) => {
                self.failing = true;
                return self.mm.bare_phys().set_fail_plan(FailPlan::Nth(nth));
            }
            Op::Size(order, on) => {
                let choice = if on { SizePolicy::Always } else { SizePolicy::Never };
                let _ = self.mm.policy().set_size(Order::new(order), choice);
            }
            Op::WriteBack | Op::DropClean | Op::Bad(..) | Op::SwapOff | Op::SwapOn(_) => {
                self.apply_to_device(op);
            }
            Op::Map(..) | Op::Unmap(..) | Op::Discard(..) | Op::Protect(..) | Op::Lock(..) => {
                self.apply_to_areas(op);
            }
            Op::Guard(..) | Op::Free(..) | Op::Track(..) => self.apply_advice(op),
            _ => self.apply_to_pages(op),
        }
        self.mm.bare_phys().set_fail_plan(FailPlan::Never);
        self.failing = false;
    }

    fn apply_to_areas(&mut self, op: &Op) {
        let count = self.lives.len();
        match *op {
            Op::Map(at, stretch) => {
                let span = Self::span(stretch);
                let request = Request { prot: Prot::RW, ..Request::anon(span.count()) };
                let request = request.at(At::Fixed(span.start));
                let map = |s: &Self, space: &Space<A>| s.mm.map(space, &request);
                self.change(at % count, map, |naive| naive.map(span));
            }
            Op::Unmap(at, stretch) => {
                let span = Self::span(stretch);
                let unmap = |s: &Self, space: &Space<A>| s.mm.unmap(space, span);
                self.change(at % count, unmap, |naive| naive.cut(span));
            }
            Op::Discard(at, stretch) => {
                let span = Self::span(stretch);
                // A failed discard may stop half way, which the model cannot follow: none fails.
                self.mm.bare_phys().set_fail_plan(FailPlan::Never);
                let discard = |s: &Self, space: &Space<A>| s.mm.discard(space, span);
                self.change(at % count, discard, |naive| naive.zero(span));
            }
            Op::Protect(at, stretch, write) => {
                let span = Self::span(stretch);
                let prot = if write { Prot::RW } else { Prot::READ };
                let protect = |s: &Self, space: &Space<A>| s.mm.protect(space, span, prot);
                let pages = span.start.get()..span.end.get();
                self.change(at % count, protect, |naive: &mut Naive| {
                    naive.mapped.range_mut(pages).for_each(|(_, may)| *may = write);
                });
            }
            Op::Lock(at, stretch, on) => self.lock(at % count, Self::span(stretch), on),
            _ => {}
        }
    }

    fn apply_advice(&mut self, op: &Op) {
        let count = self.lives.len();
        // A span with a locked page is refused as a whole.
        let refused = |done| if done == Err(Error::Invalid) { Err(Error::NoRoom(0)) } else { done };
        match *op {
            Op::Guard(at, stretch, true) => {
                let span = Self::span(stretch);
                let guard = |s: &Self, space: &Space<A>| refused(s.mm.spaces().guard(space, span));
                self.change(at % count, guard, |naive| naive.guard(span));
            }
            Op::Guard(at, stretch, false) => {
                let span = Self::span(stretch);
                let unguard = |s: &Self, space: &Space<A>| s.mm.spaces().unguard(space, span);
                self.change(at % count, unguard, |naive| {
                    naive.guards.retain(|&page| !span.contains(Vpn::new(page)));
                });
            }
            Op::Free(at, stretch) => {
                let span = Self::span(stretch);
                // A failure may stop half way, which the model cannot follow: no failure here.
                self.mm.bare_phys().set_fail_plan(FailPlan::Never);
                let free =
                    |s: &Self, space: &Space<A>| refused(s.mm.spaces().free_lazily(space, span));
                self.clean(at % count, free, |naive| naive.free(span));
            }
            Op::Track(at, stretch) => {
                let span = Self::span(stretch);
                let track = |s: &Self, space: &Space<A>| s.mm.spaces().track(space, span);
                self.clean(at % count, track, |naive| {
                    naive.written.retain(|&page| !span.contains(Vpn::new(page)));
                });
            }
            _ => {}
        }
    }

    fn lock(&mut self, at: usize, span: PageSpan, on: bool) {
        let lock = |s: &Self, space: &Space<A>| match on {
            // Pages are brought in one by one, as faults do it.
            true => match s.mm.mlock(space, span) {
                Err(Stop::Need(Need::Read(_)) | Stop::Refuse(Error::Guarded(_))) => Ok(()),
                done => done,
            },
            false => Ok(s.mm.spaces().munlock(space, span)?),
        };
        self.change(at, lock, |_| {});
    }

    fn apply_to_pages(&mut self, op: &Op) {
        let count = self.lives.len();
        match *op {
            Op::Move(at, stretch, to) => self.move_pages(at % count, stretch, to),
            Op::Write(at, stretch) => self.write(at % count, stretch),
            Op::Read(at, stretch) => self.read(at % count, stretch, 1 + stretch.pages / 24),
            Op::Populate(at, stretch) => {
                let span = Self::span(stretch);
                let populate = |s: &Self, space: &Space<A>| loop {
                    match s.mm.populate(space, span) {
                        Err(Stop::Need(Need::Read(reads))) => s.carry(reads)?,
                        Err(Stop::Refuse(Error::Guarded(_))) => return Ok(()),
                        done => return done.map(drop),
                    }
                };
                self.change(at % count, populate, |_| {});
            }
            Op::Collapse(at, stretch) => {
                let _operation = self.cpu.operation("collapse");
                let order = Order::new(4);
                let span = Self::span(Stretch { from: stretch.from & !15, pages: 16 });
                let _ = self.mm.reclaim().collapse(&self.lives[at % count].space, span, order);
            }
            Op::PageOut(at, stretch, whose) => self.page_out(at % count, stretch, whose),
            Op::Fork(at) => self.fork(at % count),
            Op::Exit(at) if count > 1 => self.exit(at % count),
            Op::Pin(at, page) => {
                let page = Vpn::new(base::<A>() + page);
                if let Ok(pinned) = self.mm.pin(&self.lives[at % count].space, page, Access::Read) {
                    self.pins.push(pinned);
                }
            }
            Op::Unpin => {
                if let Some(pinned) = self.pins.pop() {
                    self.mm.unpin(pinned);
                }
            }
            _ => {}
        }
    }

    fn page_out(&mut self, at: usize, stretch: Stretch, whose: Scope) {
        let spaces: Vec<&Space<A>> = self.lives.iter().map(|live| &live.space).collect();
        let _operation = self.cpu.operation("page out");
        match self.mm.paging().page_out(spaces[at], Self::span(stretch), whose, &spaces[..]) {
            Ok(_) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    fn apply_to_device(&mut self, op: &Op) {
        match (op, self.swap) {
            (Op::WriteBack, _) => self.write_back(),
            (Op::DropClean, Some(id)) => {
                self.mm.files().drop_clean(id, FilePages::new(0, 1 << 20)).unwrap();
            }
            (&Op::Bad(slot, bad), Some(id)) => {
                self.disk.set_bad(id.0, slot, bad);
                if bad {
                    self.bad.insert(slot, ());
                } else {
                    self.bad.remove(&slot);
                }
            }
            (Op::SwapOff, _) => self.swap_off(),
            (Op::SwapOn(size), None) => {
                let slots = [50, 700, 3000][usize::from(*size)];
                self.swap = self.mm.paging().swap_on(slots).ok();
            }
            _ => {}
        }
    }
}
