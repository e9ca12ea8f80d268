//! Carrying out one step of an exact world: the calls, each beside the model's answer.

use quire::space::AreaFlags;
use quire::{Error, Move};
use quire_arch::Arch;
use quire_script::{Action, Arg, Call, Part, Step, Verb, exact_request, wish};
use quire_units::Access;

use super::super::act::Outcome;
use super::super::violation::{Wrong, ensure};
use super::super::world::World;
use super::compare::New;

impl<A: Arch> World<'_, '_, '_, A> {
    /// Does one step on both sides, and compares everything.
    pub(in crate::whole) fn act_exactly(&mut self, step: &Step, process: usize) -> Outcome {
        let args = step.verb.args();
        let (at, count) = self.part(step.args[0], step.args[1]);
        let part = match args.get(1) {
            // A span may be empty here, which a call must refuse.
            Some(Arg::Pages) if step.args[1] == 0 => (at, 0),
            _ => (at, count),
        };
        let is_about_pages = args.first() == Some(&Arg::Page);
        self.run_in(process)?;
        if is_about_pages {
            // Before as well, so that the TLB holds the entries that the call must flush.
            self.probe(process, part)?;
        }
        self.call_exactly(step, process, part)?;
        self.disarm();
        if is_about_pages {
            self.probe(process, part)?;
        }
        self.agree(process)?;
        Ok(0)
    }

    fn call_exactly(&mut self, step: &Step, process: usize, part: Part) -> Result<(), Wrong> {
        let args = &step.args;
        match step.verb {
            Verb::Place => self.map_exactly(step, process),
            Verb::Move | Verb::Resize | Verb::Carry => {
                let (pages, how) = self.going(step, part);
                self.remap(process, part, pages, how)
            }
            Verb::Populate => self.populate_exactly(process, part),
            Verb::Read | Verb::Write | Verb::Fetch | Verb::Sweep => self.sweep(step, process, part),
            Verb::Collapse => self.collapse(process, part, self.order(args[2])),
            Verb::Age => self.age(process, part),
            Verb::Fork => self.fork_exactly(process, args[0] as usize % self.spaces.len()),
            Verb::Replace => {
                self.end(process);
                self.disarm();
                let is_there = self.spawn(process);
                ensure(is_there, "memory for a space", process)?;
                self.run_in(process)
            }
            Verb::Pin => self.pin_exactly(process, part.0, Access::Write),
            Verb::PinRead => self.pin_exactly(process, part.0, Access::Read),
            Verb::Unpin if !self.pins.is_empty() => {
                let pin = self.pins.swap_remove(args[0] as usize % self.pins.len());
                let _operation = self.machine.operation("unpin");
                self.mm.unpin(pin.pinned);
                Ok(())
            }
            Verb::Device => {
                self.device(args[0] as usize);
                Ok(())
            }
            Verb::Size | Verb::CopyMost | Verb::OptOut | Verb::Enabled | Verb::Defrag => {
                self.set_policy(step, process).map(drop)
            }
            _ => match Action::of(step, self.window()) {
                Some(action) => self.change_exactly(process, Action { part, ..action }),
                None => Ok(()),
            },
        }
    }

    /// How many pages a step moves, and where.
    fn going(&self, step: &Step, (at, count): Part) -> (usize, Move) {
        let window = self.window();
        let [_, _, pages, to, how, _] = step.args;
        // A move that leaves its area behind keeps its length, or is refused.
        let keep = if pages % 4 == 0 { window.part(to, pages).1 } else { count };
        let free = window.pages as usize - keep;
        let page = window.vpn((to as usize % window.pages as usize).min(free));
        let in_place = window.part(at as u32, pages).1;
        match (step.verb, how) {
            (Verb::Resize, _) => (in_place, Move::Never),
            (Verb::Move, _) => {
                let (to, pages) = window.part(to, pages);
                (pages, Move::To(window.vpn(to)))
            }
            (_, how) if how % 5 == 0 => (in_place, Move::Allowed),
            (_, how) => (keep, Move::Keep(wish(how - 1, page))),
        }
    }

    fn map_exactly(&mut self, step: &Step, process: usize) -> Result<(), Wrong> {
        let (request, page) = exact_request(step, self.window());
        let mut after = self.model(process)?;
        let expected = after.place(&request, self.wants(process)?(request.flags));
        let real = self.call(process, "map", |mm, space| mm.map(space, &request))?;
        if let Err(Error::NoMemory(_)) = real {
            return self.settle(process, New::None);
        }
        ensure(real == expected, "the same place", (request, real, expected))?;
        let Ok(span) = real else { return self.settle(process, New::None) };
        let places = after.places(span);
        after.map((places.start, places.len()), page);
        self.adopt(process, after);
        let ahead = AreaFlags::LOCKED;
        let populates = request.flags & (ahead | AreaFlags::LOCK_ON_FAULT) == ahead;
        self.settle(process, if populates { New::Some } else { New::None })
    }

    fn remap(&mut self, process: usize, old: Part, pages: usize, how: Move) -> Result<(), Wrong> {
        let mut after = self.model(process)?;
        let (expected, stages) = after.remap(old, pages, how, self.wants(process)?);
        let span = self.span(old.0, old.1);
        let real =
            self.call(process, "remap", |mm, space| mm.remap(space, span, pages as u64, how))?;
        if let Err(Error::NoMemory(_)) = real {
            let areas = self.areas_of(process)?;
            let stage = stages.into_iter().find(|stage| stage.areas() == areas);
            after = stage.ok_or("remap left off in a state of its own".to_owned())?;
        } else {
            ensure(real == expected, "the same place", (old, pages, how, real, expected))?;
        }
        self.adopt(process, after);
        self.settle(process, New::None)
    }

    /// A call that changes areas or frees memory.
    fn change_exactly(&mut self, process: usize, action: Action) -> Result<(), Wrong> {
        let mut after = self.model(process)?;
        let expected = match action.part.1 {
            0 => Err(Error::Invalid),
            _ => after.process.expect(&action),
        };
        let real =
            self.exact_call(process, action.name(), |mm, space| action.carry_out(mm, space))?;
        let short = matches!(real, Err(Error::NoMemory(_)));
        let mut done = action;
        match action.call {
            Call::Lock => return self.locked(process, &action, expected, real),
            Call::Discard if short => {
                // The pages before the leaf that could not be split are gone.
                let (at, count) = action.part;
                let left = self.resident(process)?;
                done.part.1 = left.range(at..at + count).next().map_or(count, |(end, _)| end - at);
            }
            _ if short => return self.settle(process, New::None),
            _ => {}
        }
        ensure(short || real == expected, "the same answer", (action, real, expected))?;
        if expected.is_ok() {
            if let Call::Unmap | Call::Discard = done.call {
                after.forget(done.part);
            }
            after.process.apply(&done);
            self.adopt(process, after);
        }
        self.settle(process, New::None)
    }

    /// Judges `lock`, which locks areas and then populates them.
    fn locked(
        &mut self,
        process: usize,
        action: &Action,
        expected: Result<(), Error>,
        real: Result<(), Error>,
    ) -> Result<(), Wrong> {
        let mut after = self.model(process)?;
        if expected.is_ok() {
            after.process.apply(action);
        }
        if let Err(Error::NoMemory(_)) = real {
            if self.areas_of(process)? == after.areas() {
                self.adopt(process, after);
            }
            return self.settle(process, New::Some);
        }
        let (pages, error) = match expected {
            Ok(()) => after.populated(action.part),
            Err(error) => ((action.part.0, 0), Some(error)),
        };
        ensure(real.err() == error, "the same answer to lock", (real, error))?;
        self.adopt(process, after);
        self.settle(process, New::Around(pages))
    }

    fn populate_exactly(&mut self, process: usize, part: Part) -> Result<(), Wrong> {
        let model = self.model(process)?;
        let span = self.span(part.0, part.1);
        let real = self.exact_call(process, "populate", |mm, space| mm.populate(space, span))?;
        if let Err(Error::NoMemory(_)) = real {
            return self.settle(process, New::Some);
        }
        let (pages, error) = model.populated(part);
        ensure(real.err() == error, "the same answer to populate", (real, error))?;
        self.settle(process, New::Around(pages))?;
        let more = (self.exact().resident[process].len() - model.resident.len()) as u64;
        match real {
            Ok(done) => ensure(done.pages == more && done.folios <= more, "counted", (done, more)),
            Err(_) => Ok(()),
        }
    }

    /// A program's accesses to a page, or to at most a few of a part, however long it is.
    fn sweep(&mut self, step: &Step, process: usize, (at, count): Part) -> Result<(), Wrong> {
        let access = match step.verb {
            Verb::Fetch => Access::Execute,
            Verb::Write => Access::Write,
            Verb::Sweep if step.args[2] % 2 == 1 => Access::Write,
            _ => Access::Read,
        };
        for at in (at..at + count).step_by(1 + count / 24) {
            let word = self.stamp();
            self.access_exactly(process, at, access, word)?;
        }
        Ok(())
    }

    fn age(&mut self, process: usize, (at, count): Part) -> Result<(), Wrong> {
        let span = self.span(at, count);
        let aged =
            self.exact_call(process, "age", |mm, space| Ok(mm.spaces().clear_young(space, span)))?;
        aged.map_err(Wrong::unexpected)?;
        self.none_is_young(process, span)?;
        let resident = &mut self.exact_mut().resident[process];
        resident.range_mut(at..at + count).for_each(|(_, here)| here.young = false);
        self.settle(process, New::None)
    }
}
