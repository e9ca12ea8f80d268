//! Carrying out one step: the calls that change areas.

use quire::space::{AreaFlags, At, Request};
use quire::{Error, Need, Stop};
use quire_arch::Arch;
use quire_script::{Action, Call, Page, Part, Shown, Step, Verb, request};
use quire_units::PageSpan;

use super::violation::{Kind, Wrong};
use super::world::{STORES, World};

/// The outcome of a step, for the trace.
pub(super) type Outcome = Result<u64, Wrong>;

impl<A: Arch> World<'_, '_, '_, A> {
    /// Carries `step` out, by process `process`.
    pub(super) fn act(&mut self, step: &Step, process: usize) -> Outcome {
        if self.exact.is_some() {
            return self.act_exactly(step, process);
        }
        let args = &step.args;
        if let Some(action) = Action::of(step, self.window()).filter(|_| step.verb != Verb::Regrant)
        {
            return match action.call {
                Call::Lock => self.lock(process, &action),
                _ => self.change(process, &action),
            };
        }
        let part = self.part(args[0], args[1]);
        match step.verb {
            Verb::Read | Verb::Write | Verb::Fetch | Verb::Sweep | Verb::Wipe => {
                self.access(step, process)
            }
            Verb::Map | Verb::Show => self.map(step, process),
            Verb::Frames => self.show_frames(step, process),
            Verb::EndLoan => self.end_loan(args[0] % 2 == 1),
            Verb::Populate
            | Verb::Collapse
            | Verb::Age
            | Verb::PageOut
            | Verb::Reclaim
            | Verb::DropZeroes => self.act_on_pages(step, process, part),
            Verb::Scan => self.scan(step),
            Verb::Migrate | Verb::Compact | Verb::Ahead | Verb::Take | Verb::Answer => {
                self.act_on_frames(step, process, part)
            }
            Verb::Pin | Verb::Unpin | Verb::Device => self.act_on_pins(step, process, part.0),
            Verb::Fork => self.fork(process, args[0] as usize % self.spaces.len()),
            Verb::Replace => {
                self.end(process);
                Ok(u64::from(self.spawn(process)))
            }
            Verb::Size
            | Verb::CopyMost
            | Verb::OptOut
            | Verb::Enabled
            | Verb::Defrag
            | Verb::EvictMost
            | Verb::Swappiness
            | Verb::ZeroesMost => self.set_policy(step, process),
            Verb::CopySizes | Verb::FileSize => self.set_sizes(step),
            Verb::Reserve
            | Verb::Pool
            | Verb::Promise
            | Verb::Renounce
            | Verb::Punch
            | Verb::Cut => self.act_on_reserved(step, process),
            Verb::Shift => self.shift(step, process),
            Verb::Lose => self.lose(process, part.0, args[1]),
            Verb::Mend => self.mend(args[0]),
            Verb::Group
            | Verb::EndGroup
            | Verb::Join
            | Verb::Limit
            | Verb::Relieve
            | Verb::GroupOut
            | Verb::Lend => self.act_on_groups(step, process),
            Verb::Place | Verb::Regrant | Verb::Carry | Verb::PinRead => Ok(0),
            _ => self.act_on_devices(step),
        }
    }

    /// Makes a call that changes areas, and judges it.
    pub(super) fn change(&mut self, process: usize, action: &Action) -> Outcome {
        let expected = self.naive[process].expect(action);
        let (name, (at, count)) = (action.name(), action.part);
        let operation = self.machine.operation(name);
        let operation = if action.cleans() { operation.cleans() } else { operation };
        let got = self.operate(process, operation, |mm, space| action.carry_out(mm, space))?;
        let done = self.judge(name, expected, got)?.is_some();
        match action.call {
            _ if expected.is_err() => return Ok(0),
            Call::Move(target, _) if !done => return self.moved_half(process, action.part, target),
            Call::Move(target, keep) => self.move_pins(process, action.part, target, keep),
            Call::Unmap | Call::Guard if done => self.forget_pins(process, at, count),
            Call::Discard => self.forget_pins(process, at, count),
            Call::Free if self.naive[process].is_tracked(action.part) => {
                self.forget_pins(process, at, count);
            }
            Call::Resize(pages) if done && pages < count => {
                self.forget_pins(process, at + pages, count - pages);
            }
            _ => {}
        }
        match done {
            true => self.naive[process].apply(action),
            false => self.naive[process].apply_half(action),
        }
        Ok(u64::from(done))
    }

    /// Maps memory, or a file.
    fn map(&mut self, step: &Step, process: usize) -> Outcome {
        let shown = (step.verb == Verb::Show).then(|| {
            let file = step.args[3] as usize % STORES.len();
            let writable = STORES[file] != quire::cache::Store::ReadOnly;
            Shown { file: file as u8, id: self.ids[file], writable }
        });
        let (request, page) = request(step, self.window(), shown);
        let got = self.call(process, "map", |mm, space| mm.map(space, &request))?;
        self.placed(process, &request, page, got)
    }

    /// Judges where a call has mapped an area; `page` is what its first page is then.
    pub(super) fn placed(
        &mut self,
        process: usize,
        request: &Request,
        page: Page,
        got: Result<PageSpan, Error>,
    ) -> Outcome {
        let count = request.pages as usize;
        let span = match (request.at, got) {
            (At::FixedNoReplace(first), Err(Error::Exists(area))) => {
                let wanted = PageSpan::new(first, first.add(request.pages));
                let Some(at) = self.at(area.span.start.max(first)) else {
                    return Err(Wrong::unexpected(Error::Exists(area)));
                };
                let is_there = area.span.overlaps(wanted);
                let is_mapped = self.naive[process].pages[at].is_mapped();
                return if is_there && is_mapped { Ok(3) } else { self.refuse("map", got) };
            }
            (At::Anywhere, Err(Error::NoRoom(_))) => {
                let is_full = self.naive[process].longest_gap() < count;
                return if is_full { Ok(4) } else { self.refuse("map", got) };
            }
            (At::Fixed(first), got)
                if self.at(first).is_some_and(|at| self.naive[process].cuts_folio((at, count))) =>
            {
                self.judge("map", Err(Error::Invalid), got)?;
                return Ok(5);
            }
            (_, got) => match self.judge("map", Ok(()), got)? {
                Some(span) => span,
                None => return Ok(1),
            },
        };
        let Some(at) = self.at(span.start).filter(|at| at + count <= self.setup.window as usize)
        else {
            return self.refuse("map", got);
        };
        let replaces = matches!(request.at, At::Fixed(_));
        let pages = &self.naive[process].pages[at..at + count];
        if span.count() != request.pages || !replaces && pages.iter().any(Page::is_mapped) {
            return self.refuse("map", got);
        }
        self.forget_pins(process, at, count);
        self.naive[process].put((at, count), page);
        Ok(span.start.get())
    }

    fn refuse<R: std::fmt::Debug>(&self, what: &str, got: Result<R, Error>) -> Outcome {
        Err(Wrong::new(Kind::Answer, format!("{what} answered {got:?}")))
    }

    fn cut(&mut self, process: usize, at: usize, count: usize) {
        self.forget_pins(process, at, count);
        self.naive[process].pages[at..at + count].fill(Page::FREE);
    }

    fn lock(&mut self, process: usize, action: &Action) -> Outcome {
        let (span, part) = (self.span(action.part.0, action.part.1), action.part);
        self.naive[process].alter(part, Page::bare);
        let expected = self.naive[process].expect(action);
        let got = self.call(process, "lock", |mm, space| action.carry_out(mm, space))?;
        if let (Err(expected), Err(error)) = (expected, got)
            && Stop::from(expected) == error
        {
            return Ok(0);
        }
        // The areas are locked, unless there was no memory for that; what was brought in or not is
        // no matter, as long as what it says is true.
        self.note_brought(process)?;
        let changed = {
            let space = self.space(process)?;
            let mut areas = self.mm.spaces().areas(space, span);
            areas.all(|area| area.flags.contains(AreaFlags::LOCKED))
        };
        let before = self.naive[process].pages[part.0..part.0 + part.1].iter().all(Page::is_locked);
        if expected.is_ok() && (changed || before) {
            self.naive[process].apply(action);
        }
        match got {
            Ok(()) if expected.is_ok() => Ok(1),
            Err(Stop::Need(Need::Read(reads))) if expected.is_ok() => self
                .carry(reads)?
                .map_or_else(|error| self.failed_so("lock", process, error), |()| Ok(2)),
            Err(Stop::Need(Need::Compact(order))) if expected.is_ok() => {
                self.compact_for(order).map(|()| 2)
            }
            Err(error) if expected.is_ok() && self.is_true(process, error) => Ok(3),
            Err(error) if self.may_fail(error) => Ok(4),
            _ => Err(Wrong::new(
                Kind::Answer,
                format!("lock answered {got:?}, expected {expected:?}"),
            )),
        }
    }

    /// Judges an error that a page's state must explain.
    pub(super) fn failed_so(
        &mut self,
        what: &str,
        process: usize,
        why: impl Into<Stop>,
    ) -> Outcome {
        let why = why.into();
        match self.is_true(process, why) {
            true => Ok(super::judge::code(why)),
            false => Err(Wrong::new(Kind::Answer, format!("{what} answered {why:?}"))),
        }
    }

    /// Devices have a page where it has moved to.
    pub(super) fn move_pins(
        &mut self,
        process: usize,
        (at, count): Part,
        (to, pages): Part,
        keep: bool,
    ) {
        self.forget_pins(process, to, pages);
        for pin in &mut self.pins {
            if let Some((owner, page)) = &mut pin.place
                && *owner == process
                && (at..at + count.min(pages)).contains(page)
            {
                *page = to + *page - at;
            }
        }
        if !keep {
            self.forget_pins(process, at, count);
        }
    }

    /// A move has failed for want of memory: what is at the target, and what is cut off, may be
    /// unmapped. It is made certain.
    fn moved_half(&mut self, process: usize, (at, count): Part, (to, pages): Part) -> Outcome {
        let cut = (at + pages.min(count), count.saturating_sub(pages));
        self.make_free(process, &[(to, pages), cut])
    }

    /// A call has failed that may have unmapped these parts.
    pub(super) fn make_free(&mut self, process: usize, parts: &[Part]) -> Outcome {
        self.disarm();
        for &(at, count) in parts.iter().filter(|part| part.1 > 0) {
            let span = self.span(at, count);
            let mut got = self.call(process, "unmap", |mm, space| mm.unmap(space, span))?;
            if got.is_err() {
                self.relieve()?;
                got = self.call(process, "unmap", |mm, space| mm.unmap(space, span))?;
            }
            if got.is_err() {
                // The model cannot tell any more what this process has.
                self.end(process);
                return Ok(2);
            }
            self.cut(process, at, count);
        }
        Ok(2)
    }
}
