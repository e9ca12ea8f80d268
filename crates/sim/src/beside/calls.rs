//! The calls.

use quire::inject::FailPlan;
use quire::space::{Advice, AreaFlags, At, Backing, Request, Space};
use quire::{Error, Move};
use quire_arch::Arch;
use quire_machine::{Cpu, Machine};
use quire_units::{Access, Order, PageSpan, Prot, Vpn};

use super::compare::{Marks, New, areas_of, ensure};
use super::share::Pin;
use crate::script::{Field, Going, Op, Place, Step, Stretch};
use crate::space::NaiveSpace;
use crate::system::HostedMm;

/// The most pages that one [`Op::Touch`] touches.
const TOUCHES: usize = 12;

pub(super) struct Live<A> {
    pub(super) space: Space<A>,
    pub(super) model: NaiveSpace,
}

/// Both sides.
pub struct Beside<'a, 'm, 'r, A: Arch> {
    pub(super) mm: &'a HostedMm<'m, 'r, A>,
    pub(super) machine: &'m Machine<'r>,
    pub(super) cpu: Cpu<'m, 'r>,
    pub(super) field: Field,
    pub(super) lives: Vec<Live<A>>,
    pub(super) pins: Vec<Pin>,
    pub(super) marks: Marks,
    /// The next word to write.
    pub(super) next: u64,
    /// How many spaces there were at first.
    spaces: usize,
    free: u64,
}

impl<'a, 'm, 'r, A: Arch> Beside<'a, 'm, 'r, A> {
    /// `spaces` spaces without areas. `mm` has nothing else to do.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(mm: &'a HostedMm<'m, 'r, A>, field: Field, spaces: usize) -> Result<Self, Error> {
        let machine = mm.hardware();
        let mut beside = Self {
            mm,
            machine,
            cpu: machine.cpu(0),
            field,
            lives: Vec::new(),
            pins: Vec::new(),
            marks: Marks::default(),
            next: 1,
            spaces,
            free: mm.phys().free_frames(),
        };
        for _ in 0..spaces {
            let live = beside.found()?;
            beside.lives.push(live);
        }
        Ok(beside)
    }

    fn found(&self) -> Result<Live<A>, Error> {
        let all = self.field.span();
        // Not all of the field, so that there are areas beyond the window as well.
        let window = PageSpan::new(all.start.add(7), all.end);
        let space = self.mm.space(self.free_asid(), window)?;
        let model = NaiveSpace::new(window, A::USER_PAGES, space.stack_pages());
        Ok(Live { space, model })
    }

    /// Does one step on both sides, and compares everything.
    ///
    /// # Errors
    /// The difference between the two, or a finding of a walker or the examiner.
    pub fn step(&mut self, step: &Step) -> Result<(), String> {
        if matches!(step.op, Op::Fork(_)) {
            self.make_room();
        }
        let at = step.space % self.lives.len();
        self.enter(at);
        if step.fails > 0 {
            self.mm.bare_phys().set_fail_plan(FailPlan::Nth(step.fails));
        }
        let done = self.apply(at, &step.op);
        self.mm.bare_phys().set_fail_plan(FailPlan::Never);
        done?;
        self.agree(at.min(self.lives.len() - 1))
    }

    /// Ends all spaces and pins, and sees to it that nothing is lost.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn finish(mut self) -> Result<(), String> {
        self.machine.audit().map_err(|violation| violation.to_string())?;
        self.cpu.leave();
        while !self.lives.is_empty() {
            self.end(0);
            self.walk()?;
        }
        while !self.pins.is_empty() {
            self.unpin(0);
        }
        self.walk()?;
        ensure(self.mm.phys().free_frames() == self.free, "all frames back", self.free)
    }

    fn enter(&self, at: usize) {
        let space = &self.lives[at].space;
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
    }

    fn apply(&mut self, at: usize, op: &Op) -> Result<(), String> {
        let stretch = op.stretch();
        // Before as well, so that the TLB holds the entries that the call must flush.
        stretch.map_or(Ok(()), |stretch| self.probe(at, stretch))?;
        self.call(at, op)?;
        stretch.map_or(Ok(()), |stretch| self.probe(at, stretch))
    }

    fn call(&mut self, at: usize, op: &Op) -> Result<(), String> {
        let span =
            op.stretch().map(|stretch| stretch.span(&self.field)).unwrap_or(self.field.span());
        match *op {
            Op::Map { stretch, place, prot, most, flags } => {
                self.map(at, &self.request(stretch, place, prot, most, flags))
            }
            Op::Unmap(_) => {
                let call = |s: &Self| s.mm.unmap(&s.lives[at].space, span);
                self.change(at, "unmap", call, |model| model.unmap(span))
            }
            Op::Protect(_, prot) => {
                let call = |s: &Self| s.mm.protect(&s.lives[at].space, span, prot);
                self.change(at, "protect", call, |model| model.protect(span, prot))
            }
            Op::Advise(_, advice) => {
                let call = |s: &Self| s.mm.advise(&s.lives[at].space, span, advice);
                self.change(at, "advise", call, |model| model.advise(span, advice))
            }
            Op::Flags(_, set, clear) => {
                let call = |s: &Self| s.mm.spaces().set_flags(&s.lives[at].space, span, set, clear);
                self.change(at, "set_flags", call, |model| model.set_flags(span, set, clear))
            }
            Op::Unlock(_) => {
                let call = |s: &Self| s.mm.spaces().munlock(&s.lives[at].space, span);
                self.change(at, "unlock", call, |model| model.lock(span, false))
            }
            Op::Discard(_) => self.discard(at, span),
            Op::Age(_) => self.age(at, span),
            Op::Collapse(_, order) => {
                let order = Order::new(1 + order % A::block_order().get());
                self.collapse(at, span, order)
            }
            Op::Lock(_) => self.lock(at, span),
            Op::Populate(_) => self.populate(at, span),
            Op::Remap { len, going, .. } => {
                let how = match going {
                    Going::Never => Move::Never,
                    Going::Anywhere => Move::Allowed,
                    Going::To(to) => Move::To(to.page(&self.field)),
                    Going::Keep(place, to) => Move::Keep(wish(place, to.page(&self.field))),
                };
                self.remap(at, span, len.count(&self.field), how)
            }
            Op::Touch { stretch, apart, access } => self.touch(at, stretch, apart, access),
            Op::Fork(_) => self.fork(at),
            Op::Pin(_, access) => self.pin(at, span.start, access),
            Op::Unpin(which) => {
                self.unpin(which);
                Ok(())
            }
            Op::Device(which) => {
                self.device(which);
                Ok(())
            }
            Op::Renew => self.renew(at),
            ref policy => {
                self.set_policy(at, policy);
                Ok(())
            }
        }
    }

    fn remap(&mut self, at: usize, old: PageSpan, pages: u64, how: Move) -> Result<(), String> {
        let live = &mut self.lives[at];
        let opt_out = live.model.opt_out;
        let wants = |flags| self.mm.policy().candidates(Advice::of(flags), opt_out);
        let mut after = live.model.clone();
        let (expected, stages) = after.remap(old, pages, how, wants);
        let real = {
            let _op = self.cpu.operation("remap");
            self.mm.remap(&live.space, old, pages, how)
        };
        if let Err(Error::NoMemory(_)) = real {
            let areas = areas_of(self.mm, &live.space);
            let stage = stages.into_iter().find(|stage| stage.areas.areas() == areas);
            live.model = stage.ok_or("remap left off in a state of its own")?;
        } else {
            ensure(real == expected, "the same place", (old, pages, how, real, expected))?;
            live.model = after;
        }
        self.settle(at, New::None)
    }

    fn request(
        &self,
        stretch: Stretch,
        place: Place,
        prot: Prot,
        most: Prot,
        flags: AreaFlags,
    ) -> Request {
        let at = wish(place, stretch.from.page(&self.field));
        let pages = stretch.len.count(&self.field);
        Request { pages, at, prot, max_prot: most | prot, flags, backing: Backing::Anon }
    }

    fn map(&mut self, at: usize, request: &Request) -> Result<(), String> {
        let live = &mut self.lives[at];
        let candidates = self.mm.policy().candidates(Advice::of(request.flags), live.model.opt_out);
        let expected = live.model.place(request, candidates);
        let real = {
            let _op = self.cpu.operation("map");
            self.mm.map(&live.space, request)
        };
        if let Err(Error::NoMemory(_)) = real {
            return self.settle(at, New::None);
        }
        ensure(real == expected, "the same place", (request, real, expected))?;
        let Ok(span) = real else { return self.settle(at, New::None) };
        live.model.map(request, span);
        let ahead = AreaFlags::LOCKED;
        let populates = request.flags & (ahead | AreaFlags::LOCK_ON_FAULT) == ahead;
        self.settle(at, if populates { New::Some } else { New::None })
    }

    /// A change that is all or nothing.
    fn change(
        &mut self,
        at: usize,
        name: &'static str,
        call: impl Fn(&Self) -> Result<(), Error>,
        expect: impl FnOnce(&mut NaiveSpace) -> Result<(), Error>,
    ) -> Result<(), String> {
        let real = {
            let _op = self.cpu.operation(name);
            call(self)
        };
        if !matches!(real, Err(Error::NoMemory(_))) {
            let expected = expect(&mut self.lives[at].model);
            ensure(real == expected, "the same answer", (name, real, expected))?;
        }
        self.settle(at, New::None)
    }

    fn discard(&mut self, at: usize, span: PageSpan) -> Result<(), String> {
        let real = {
            let _op = self.cpu.operation("discard");
            self.mm.discard(&self.lives[at].space, span)
        };
        let mut done = span;
        if let Err(Error::NoMemory(_)) = real {
            // The pages before the leaf that could not be split are gone.
            let left = self.resident(at)?;
            let first = |page: &u64| span.contains(Vpn::new(*page));
            done.end = left.keys().copied().find(first).map_or(span.end, Vpn::new);
            if done.is_empty() {
                return self.settle(at, New::None);
            }
        }
        let expected = self.lives[at].model.discard(done);
        if !matches!(real, Err(Error::NoMemory(_))) {
            ensure(real == expected, "the same answer to discard", (real, expected))?;
        }
        self.settle(at, New::None)
    }

    fn lock(&mut self, at: usize, span: PageSpan) -> Result<(), String> {
        let live = &mut self.lives[at];
        let real = {
            let _op = self.cpu.operation("lock");
            self.mm.mlock(&live.space, span)
        };
        let mut locked = live.model.clone();
        let expected = locked.lock(span, true).and_then(|()| locked.populated(span));
        let expected = match (real, expected) {
            (Err(Error::NoMemory(_)), _) => {
                if areas_of(self.mm, &live.space) == locked.areas.areas() {
                    live.model.areas = locked.areas;
                }
                return self.settle(at, New::Some);
            }
            (_, Err(error)) => (PageSpan::new(span.start, span.start), Some(error)),
            (_, Ok(expected)) => {
                live.model.areas = locked.areas;
                expected
            }
        };
        let (pages, error) = expected;
        ensure(real == error.map_or(Ok(()), Err), "the same answer to lock", (real, error))?;
        self.settle(at, New::Around(pages))
    }

    fn populate(&mut self, at: usize, span: PageSpan) -> Result<(), String> {
        let live = &self.lives[at];
        let before = live.model.resident.len() as u64;
        let real = {
            let _op = self.cpu.operation("populate");
            self.mm.populate(&live.space, span)
        };
        let expected = live.model.populated(span);
        let (pages, error) = match (real, expected) {
            (Err(Error::NoMemory(_)), _) => return self.settle(at, New::Some),
            (_, Err(error)) => (PageSpan::new(span.start, span.start), Some(error)),
            (_, Ok(expected)) => expected,
        };
        ensure(real.err() == error, "the same answer to populate", (real, error))?;
        self.settle(at, New::Around(pages))?;
        let more = self.lives[at].model.resident.len() as u64 - before;
        match real {
            Ok(done) => ensure(done.pages == more && done.folios <= more, "counted", (done, more)),
            Err(_) => Ok(()),
        }
    }

    fn touch(
        &mut self,
        at: usize,
        stretch: Stretch,
        apart: u64,
        access: Access,
    ) -> Result<(), String> {
        let span = stretch.span(&self.field);
        let pages = (span.start.get()..span.end.get()).step_by(apart.max(1) as usize);
        for page in pages.take(TOUCHES) {
            self.next += 1;
            self.access(at, Vpn::new(page), access, self.next)?;
        }
        Ok(())
    }

    fn renew(&mut self, at: usize) -> Result<(), String> {
        self.cpu.leave();
        self.mm.bare_phys().set_fail_plan(FailPlan::Never);
        self.end(at);
        if self.lives.len() < self.spaces {
            let live = self.found().map_err(|error| error.to_string())?;
            self.lives.insert(at, live);
            self.enter(at);
        }
        Ok(())
    }

    fn set_policy(&mut self, at: usize, op: &Op) {
        let policy = &self.mm.policy();
        match *op {
            Op::Size(order, choice) => {
                let order = Order::new(1 + order % (A::block_order().get() + 1));
                let set = policy.set_size(order, choice);
                debug_assert_eq!(set, Ok(()));
            }
            Op::Enabled(choice) => policy.set_enabled(choice),
            Op::Defrag(choice) => policy.set_defrag(choice),
            Op::CopyMost(order) => policy.set_copy_most(Order::new(order)),
            Op::OptOut(choice) => {
                self.lives[at].model.opt_out = choice;
                self.lives[at].space.set_opt_out(choice);
            }
            _ => {}
        }
    }
}

/// How a place at `page` is asked for.
fn wish(place: Place, page: Vpn) -> At {
    match place {
        Place::Anywhere => At::Anywhere,
        Place::Hint => At::Hint(page),
        Place::Fixed => At::Fixed(page),
        Place::NoReplace => At::FixedNoReplace(page),
    }
}
