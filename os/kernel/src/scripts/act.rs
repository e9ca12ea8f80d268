//! Carries steps out, and knows the right answers. Nothing fails on purpose here and memory is not
//! short, so every answer is known beforehand.

use core::fmt::Debug;

use quire::space::At;
use quire::units::Order;
use quire::{Error, Scope};
use quire_script::{Action, Call, Page, Part, Shown, Step, Verb, opt_out, request, size_policy};

use super::world::{WINDOW, World};
use crate::memory::{Everyone, mm};

impl World {
    /// Carries `step` out, by `process`. Steps about devices and their failures are left out.
    pub(super) fn act(&mut self, step: &Step, process: usize) {
        let args = &step.args;
        if let Some(action) = Action::of(step, WINDOW) {
            return self.change(process, &action);
        }
        let part = WINDOW.part(args[0], args[1]);
        match step.verb {
            Verb::Read => self.load(process, part.0),
            Verb::Write => self.store(process, part.0),
            Verb::Fetch => self.run(process, part.0),
            Verb::Sweep => self.sweep(process, part, args[2]),
            Verb::Map | Verb::Show => self.map(step, process),
            Verb::Populate => self.populate(process, part),
            Verb::Collapse | Verb::Age | Verb::PageOut | Verb::Reclaim => {
                self.shift(step, process, part);
            }
            Verb::Fork => self.fork(process, args[0] as usize % self.processes.len()),
            Verb::Replace => {
                self.processes[process] = None;
                self.spawn(process);
            }
            Verb::Size | Verb::CopyMost | Verb::OptOut => self.set_policy(step, process),
            _ => {}
        }
    }

    /// Compares an answer with the one that is due; whether it was done.
    fn judge<R: Debug>(&self, expected: Result<(), Error>, got: Result<R, Error>) -> bool {
        match (expected, &got) {
            (Ok(()), Ok(_)) => true,
            (Err(expected), Err(error)) if expected == *error => false,
            (expected, got) => self.fail(format_args!("{got:x?}, expected {expected:x?}")),
        }
    }

    /// Makes a call that changes areas.
    fn change(&mut self, process: usize, action: &Action) {
        let expected = self.naive[process].expect(action);
        let got = self.call(process, |space| action.carry_out(mm(), space));
        let done = match action.call {
            // The areas are locked, even where some of their pages cannot be brought in.
            Call::Lock if expected.is_ok() => {
                self.judge_true(process, got);
                true
            }
            _ => self.judge(expected, got),
        };
        if done {
            self.naive[process].apply(action);
        }
    }

    fn sweep(&mut self, process: usize, (at, count): Part, how: u32) {
        // At most a few, however long the run is.
        for at in (at..at + count).step_by(1 + count / 24) {
            match how % 2 {
                0 => self.load(process, at),
                _ => self.store(process, at),
            }
        }
    }

    /// Maps memory, or a file; never at a place that the library chooses.
    fn map(&mut self, step: &Step, process: usize) {
        let (at, count) = WINDOW.part(step.args[0], step.args[1]);
        let shown = Shown { file: 0, id: self.file, writable: true };
        let shown = (step.verb == Verb::Show).then_some(shown);
        let (mut request, page) = request(step, WINDOW, shown);
        if request.at == At::Anywhere {
            request = request.at(At::Fixed(WINDOW.vpn(at)));
        }
        let replaces = matches!(request.at, At::Fixed(_));
        let got = self.call(process, |space| mm().map(space, &request));
        let is_taken = self.naive[process].pages[at..at + count].iter().any(Page::is_mapped);
        if let (Err(Error::Exists(_)), true, false) = (got, is_taken, replaces) {
            return;
        }
        if (is_taken && !replaces) || !self.judge(Ok(()), got) {
            self.fail(format_args!("mapped in spite of what is there"));
        }
        self.naive[process].put((at, count), page);
    }

    /// Populating pages ends with the error of one of them, if at all.
    fn judge_true<R: Debug>(&self, process: usize, got: Result<R, Error>) {
        if let Err(error) = got
            && !self.is_true(process, error)
        {
            self.fail(format_args!("{error:x?}, which is not so"));
        }
    }

    fn populate(&mut self, process: usize, part: Part) {
        let span = WINDOW.span(part);
        let got = self.call(process, |space| mm().populate(space, span));
        self.judge_true(process, got);
    }

    /// Steps that move memory, and change nothing that a process could see.
    fn shift(&mut self, step: &Step, process: usize, part: Part) {
        let span = WINDOW.span(part);
        match step.verb {
            Verb::Collapse => {
                let order = Order::new((step.args[2] as u8).clamp(1, 9));
                match self.call(process, |space| mm().reclaim().collapse(space, span, order)) {
                    // There may be no such block.
                    Err(Error::NoMemory(order)) if order > Order::ZERO => {}
                    got => drop(self.judge(Ok(()), got)),
                }
            }
            Verb::Age => {
                let got = self
                    .call(process, |space| Ok::<_, Error>(mm().spaces().clear_young(space, span)));
                self.judge(Ok(()), got);
            }
            Verb::PageOut => {
                let whose = if step.args[2] % 2 == 1 { Scope::All } else { Scope::Own };
                let got = self
                    .call(process, |space| mm().paging().page_out(space, span, whose, &Everyone));
                self.judge(Ok(()), got);
                self.swap.write();
            }
            _ => {
                mm().reclaim().reclaim(u64::from(step.args[0]), &Everyone);
                self.swap.write();
            }
        }
    }

    /// `process` is copied to `to`, which ends first.
    fn fork(&mut self, process: usize, to: usize) {
        if process == to {
            return;
        }
        self.processes[to] = None;
        let forked = self.processes[process].as_ref().map(|memory| memory.fork());
        let Some(Ok(child)) = forked else { self.fail(format_args!("no child")) };
        self.processes[to] = Some(child);
        self.naive[to] = self.naive[process].fork();
    }

    fn set_policy(&mut self, step: &Step, process: usize) {
        let order = Order::new((step.args[0] % 18) as u8);
        match step.verb {
            // Not every format has every size.
            Verb::Size => drop(mm().policy().set_size(order, size_policy(step.args[1]))),
            Verb::CopyMost => mm().policy().set_copy_most(order),
            _ => {
                if let Some(memory) = &self.processes[process] {
                    memory.space().set_opt_out(opt_out(step.args[0]));
                }
            }
        }
    }
}
