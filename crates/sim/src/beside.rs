//! The memory manager and the naive model side by side: the same calls, and after each of them the
//! same answer, the same areas, the same memory.
//!
//! Programs' accesses go through the CPU with its TLB, so that a flush that was forgotten shows as
//! an access that should have trapped, besides being found by the machine's examiner.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use quire::check;
use quire::engine::{Error, Resolved};
use quire::fault::Cause;
use quire::limits::ORDERS;
use quire::phys::FailPlan;
use quire::space::{Advice, Area, AreaFlags, At, Backing, Request, Space};
use quire_arch::{Arch, Attrs, Entry, Level};
use quire_machine::{Cpu, Machine, Trap, TrapKind};
use quire_units::{Access, Asid, Order, PageSpan, Pfn, PhysAddr, Prot, VirtAddr, Vpn};

use crate::script::{Field, Op, Place, Step, Stretch};
use crate::space::{Fault, NaiveSpace};
use crate::system::HostedMm;

/// The most pages that one [`Op::Touch`] touches.
const TOUCHES: usize = 12;

/// How often an access may trap before it is taken for hopeless.
const TRAPS: usize = 8;

/// What new pages are allowed to be there after a call.
#[derive(Clone, Copy, Debug)]
enum New {
    /// None.
    None,
    /// All of these, and no others.
    Exactly(PageSpan),
    /// All of these, and others: what lies around them in their folios.
    Around(PageSpan),
    /// Some.
    Some,
}

struct Live<A> {
    space: Space<A>,
    model: NaiveSpace,
}

/// Both sides.
pub struct Beside<'a, 'm, 'r, A: Arch> {
    mm: &'a HostedMm<'m, 'r, A>,
    machine: &'m Machine<'r>,
    cpu: Cpu<'m, 'r>,
    field: Field,
    lives: Vec<Live<A>>,
    /// What the next word written is.
    next: u64,
    frames: u64,
}

impl<'a, 'm, 'r, A: Arch> Beside<'a, 'm, 'r, A> {
    /// `spaces` spaces without areas. `mm` has nothing else to do.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(mm: &'a HostedMm<'m, 'r, A>, field: Field, spaces: usize) -> Result<Self, Error> {
        let machine = mm.hardware();
        let frames = mm.phys().free_frames();
        let mut beside =
            Self { mm, machine, cpu: machine.cpu(0), field, lives: Vec::new(), next: 1, frames };
        for number in 0..spaces {
            let live = beside.found(number)?;
            beside.lives.push(live);
        }
        Ok(beside)
    }

    fn found(&self, number: usize) -> Result<Live<A>, Error> {
        let all = self.field.span();
        // Not all of the field, so that there are areas beyond the window as well.
        let window = PageSpan::new(all.start.add(7), all.end);
        let space = self.mm.space(Asid(number as u16 + 1), window)?;
        Ok(Live { space, model: NaiveSpace::new(window, A::USER_PAGES) })
    }

    /// Does one step on both sides, and compares everything.
    ///
    /// # Errors
    /// What the two disagree on, or what a walker or the examiner found.
    pub fn step(&mut self, step: &Step) -> Result<(), String> {
        let at = step.space % self.lives.len();
        self.enter(at);
        if step.fails > 0 {
            self.mm.phys().set_fail_plan(FailPlan::Nth(step.fails));
        }
        let done = self.apply(at, &step.op);
        self.mm.phys().set_fail_plan(FailPlan::Never);
        done?;
        self.agree(at)
    }

    /// Ends all spaces, and sees to it that nothing is lost.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn finish(mut self) -> Result<(), String> {
        self.machine.audit().map_err(|violation| violation.to_string())?;
        self.cpu.leave();
        for live in self.lives.drain(..) {
            let _op = self.cpu.operation("destroy");
            self.mm.destroy(live.space);
        }
        self.walk()?;
        ensure(self.mm.phys().free_frames() == self.frames, "all frames back", self.frames)
    }

    fn enter(&self, at: usize) {
        let space = &self.lives[at].space;
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
    }

    fn apply(&mut self, at: usize, op: &Op) -> Result<(), String> {
        let field = self.field;
        match *op {
            Op::Map { stretch, place, prot, most, flags } => {
                let request = self.request(stretch, place, prot, most, flags);
                self.map(at, &request)?;
                self.probe(at, stretch)
            }
            Op::Unmap(stretch) => {
                let expect = |model: &mut NaiveSpace| model.unmap(stretch.span(&field));
                let call = |s: &Self| s.mm.unmap(&s.lives[at].space, stretch.span(&field));
                self.change(at, "unmap", call, expect)?;
                self.probe(at, stretch)
            }
            Op::Protect(stretch, prot) => {
                let span = stretch.span(&field);
                let call = |s: &Self| s.mm.protect(&s.lives[at].space, span, prot);
                self.change(at, "protect", call, |model| model.protect(span, prot))?;
                self.probe(at, stretch)
            }
            Op::Advise(stretch, advice) => {
                let span = stretch.span(&field);
                let call = |s: &Self| s.mm.advise(&s.lives[at].space, span, advice);
                self.change(at, "advise", call, |model| model.advise(span, advice))
            }
            Op::Unlock(stretch) => {
                let span = stretch.span(&field);
                let call = |s: &Self| s.mm.unlock(&s.lives[at].space, span);
                self.change(at, "unlock", call, |model| model.lock(span, false))
            }
            Op::Discard(stretch) => {
                self.discard(at, stretch.span(&field))?;
                self.probe(at, stretch)
            }
            Op::Lock(stretch) => self.lock(at, stretch.span(&field)),
            Op::Populate(stretch) => {
                self.populate(at, stretch.span(&field))?;
                self.probe(at, stretch)
            }
            Op::Touch { stretch, apart, access } => self.touch(at, stretch, apart, access),
            Op::Renew => self.renew(at),
            ref policy => {
                self.set_policy(at, policy);
                Ok(())
            }
        }
    }

    fn request(
        &self,
        stretch: Stretch,
        place: Place,
        prot: Prot,
        most: Prot,
        flags: AreaFlags,
    ) -> Request {
        let page = stretch.from.page(&self.field);
        let at = match place {
            Place::Anywhere => At::Anywhere,
            Place::Hint => At::Hint(page),
            Place::Fixed => At::Fixed(page),
            Place::NoReplace => At::FixedNoReplace(page),
        };
        let pages = stretch.len.count(&self.field);
        Request { pages, at, prot, most: most | prot, flags, backing: Backing::Anon }
    }

    fn map(&mut self, at: usize, request: &Request) -> Result<(), String> {
        let live = &mut self.lives[at];
        let candidates = self.mm.policy.candidates(Advice::of(request.flags), live.model.opt_out);
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
            // What lies before the leaf that could not be split is gone.
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
            self.mm.lock(&live.space, span)
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
        self.mm.phys().set_fail_plan(FailPlan::Never);
        let live = self.lives.remove(at);
        {
            let _op = self.cpu.operation("destroy");
            self.mm.destroy(live.space);
        }
        let live = self.found(at).map_err(|error| error.to_string())?;
        self.lives.insert(at, live);
        self.enter(at);
        Ok(())
    }

    fn set_policy(&mut self, at: usize, op: &Op) {
        let policy = &self.mm.policy;
        match *op {
            Op::Size(order, choice) => {
                let order = Order::new(1 + order % (A::block_order().get() + 1));
                let set = policy.set_size(order, choice);
                debug_assert_eq!(set, Ok(()));
            }
            Op::Enabled(choice) => policy.set_enabled(choice),
            Op::Defrag(choice) => policy.set_defrag(choice),
            Op::OptOut(choice) => {
                self.lives[at].model.opt_out = choice;
                self.lives[at].space.set_opt_out(choice);
            }
            _ => {}
        }
    }

    /// Tries the pages at the ends of a stretch, inside and outside, in every way: what is not
    /// resident must trap, and what is must be allowed what it is, no more and no less.
    fn probe(&mut self, at: usize, stretch: Stretch) -> Result<(), String> {
        let span = stretch.span(&self.field);
        let ends = [span.start.get() - 1, span.start.get(), span.end.get() - 1, span.end.get()];
        for page in BTreeSet::from(ends).into_iter().map(Vpn::new) {
            for access in [Access::Read, Access::Execute, Access::Write] {
                let model = &self.lives[at].model;
                let resident = model.resident.contains_key(&page.get());
                let granted = model.areas.page(page).map_or(Prot::empty(), |a| granted::<A>(&a));
                if resident && granted.allows(access) {
                    let word = model.words.get(&page.get()).copied().unwrap_or(0);
                    self.access(at, page, access, word)?;
                } else {
                    let real = self.once(page, access, 0);
                    ensure(real.is_err(), "a trap", (page, access, granted, resident, real))?;
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
    fn access(&mut self, at: usize, page: Vpn, access: Access, word: u64) -> Result<(), String> {
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
        let allowed = granted.allows(access) && model.resident.contains_key(&number);
        ensure(allowed, "a trap", (page, access, granted))?;
        if access == Access::Write {
            model.words.insert(number, found);
            return Ok(());
        }
        let word = model.words.get(&number).copied().unwrap_or(0);
        ensure(found == word, "what was written", (page, found, word))
    }

    /// Resolves one fault; whether the access was refused.
    fn fault(&mut self, at: usize, page: Vpn, access: Access) -> Result<bool, String> {
        let short = self.memory_fallbacks();
        let planned = self.mm.phys().fail_plan() != FailPlan::Never;
        let live = &mut self.lives[at];
        let real = {
            let _op = self.cpu.operation("fault");
            self.mm.fault(&live.space, page, access)
        };
        let opt_out = live.model.opt_out;
        let wants = |advice| self.mm.policy.candidates(advice, opt_out);
        let mut after = live.model.clone();
        let expected = after.fault(page, access, A::block_order(), wants);
        let grown = areas_of(self.mm, &live.space) == after.areas.areas();
        match (real, expected) {
            (Ok(Resolved::Again), _) => Err("nobody else is there to disturb a fault".into()),
            (Err(Error::NoMemory(_)), Ok(Fault::Mapped { .. })) => {
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

    /// The pages that are resident, with their frames.
    fn resident(&self, at: usize) -> Result<BTreeMap<u64, Pfn>, String> {
        let mut pages = BTreeMap::new();
        let told = check::leaves(self.mm, &self.lives[at].space, |leaf| {
            for page in 0..leaf.pages.count() {
                pages.insert(leaf.pages.start.add(page).get(), leaf.frame.add(page));
            }
        });
        told.map(|()| pages).map_err(|violation| violation.to_string())
    }

    /// Compares which pages are resident, and takes new ones into the model: they must be zero,
    /// and are marked.
    fn settle(&mut self, at: usize, new: New) -> Result<(), String> {
        let real = self.resident(at)?;
        let model = &self.lives[at].model;
        for (page, frame) in &model.resident {
            let now = real.get(page);
            ensure(now == Some(frame), "the same frame", (Vpn::new(*page), frame, now))?;
        }
        let all = match new {
            New::Exactly(span) | New::Around(span) => span.start.get()..span.end.get(),
            New::None | New::Some => 0..0,
        };
        if let Some(page) = all.clone().find(|page| !real.contains_key(page)) {
            return Err(format!("{} should be resident ({new:?})", Vpn::new(page)));
        }
        for (&page, &frame) in real.iter().filter(|(page, _)| !model.resident.contains_key(page)) {
            let allowed = match new {
                New::None => false,
                New::Exactly(_) => all.contains(&page),
                New::Around(_) | New::Some => true,
            };
            ensure(allowed, "no new page here", (Vpn::new(page), new))?;
            let found = self.marks::<A>(frame).map(|mark| self.machine.ram().read_word(mark));
            ensure(found == [Some(0); 3], "a zeroed page", (Vpn::new(page), frame, found))?;
            let [_, middle, last] = self.marks::<A>(frame);
            self.machine.ram().write_word(middle, mark(at, page));
            self.machine.ram().write_word(last, mark(at, page));
        }
        self.lives[at].model.resident = real;
        Ok(())
    }

    /// The words of a frame that are looked at: the program's, and two where marks are left.
    fn marks<B: Arch>(&self, frame: Pfn) -> [PhysAddr; 3] {
        let start = frame.addr(B::PAGE_SHIFT).get();
        [0, (1 << B::PAGE_SHIFT) / 2, (1 << B::PAGE_SHIFT) - 8].map(|at| PhysAddr::new(start + at))
    }

    /// Compares areas and memory, and calls in all walkers.
    fn agree(&self, at: usize) -> Result<(), String> {
        let live = &self.lives[at];
        let areas = areas_of(self.mm, &live.space);
        let wanted = live.model.areas.areas();
        ensure(areas == wanted, "equal areas", (areas, wanted))?;
        for (number, live) in self.lives.iter().enumerate() {
            for (&page, &frame) in &live.model.resident {
                let word = live.model.words.get(&page).copied().unwrap_or(0);
                let wanted = [word, mark(number, page), mark(number, page)].map(Some);
                let found = self.marks::<A>(frame).map(|mark| self.machine.ram().read_word(mark));
                ensure(found == wanted, "what was left there", (Vpn::new(page), found, wanted))?;
            }
        }
        self.walk()
    }

    fn walk(&self) -> Result<(), String> {
        let spaces: Vec<_> = self.lives.iter().map(|live| &live.space).collect();
        let totals = check::system(self.mm, &spaces).map_err(|violation| violation.to_string())?;
        let mapped: usize = self.lives.iter().map(|live| live.model.resident.len()).sum();
        ensure(totals.held == 0, "no frame lost", totals)?;
        ensure(totals.pinned == 0 && totals.mapped == mapped as u64, "no others", totals)?;
        let all = self.lives.iter().flat_map(|live| live.model.resident.values());
        let distinct: BTreeSet<_> = all.collect();
        ensure(distinct.len() == mapped, "each frame mapped once", (distinct.len(), mapped))?;
        self.machine.verdict().map_err(|violation| violation.to_string())
    }
}

/// What is left in page `page` of space `at`, so that another page's content shows.
fn mark(at: usize, page: u64) -> u64 {
    (page ^ (at as u64 + 1) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// The rights that an area's come to where the ISA ties some together.
fn granted<A: Arch>(area: &Area) -> Prot {
    match A::decode(A::leaf(Pfn::new(0), Level::LAST, Attrs::user(area.prot)), Level::LAST) {
        Entry::Leaf { attrs, .. } => attrs.prot(),
        _ => area.prot,
    }
}

fn areas_of<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Vec<Area> {
    let mut areas = Vec::new();
    mm.folio_map(space, |map| areas.push(map.area));
    areas
}

fn ensure(holds: bool, what: &str, evidence: impl Debug) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("expected {what}: {evidence:?}")) }
}

const _: () = assert!(ORDERS < 32, "orders fit a mask");
