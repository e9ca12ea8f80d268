//! Carrying a step out, and what its answer must be. Nothing fails on purpose here and memory is
//! not short, so every answer is known beforehand.

use core::fmt::Debug;

use quire::fault::SizePolicy;
use quire::space::{Advice, AreaFlags, At, Backing, OptOut, Request};
use quire::units::{Order, Prot, Vpn};
use quire::{Error, Move, Whose};
use quire_script::{Page, Source, Step, Verb};

use super::world::World;
use crate::memory::{Everyone, mm};

/// Pages of a window, from one on: where, and how many.
type Part = (usize, usize);

const LOCKS: AreaFlags = AreaFlags::LOCKED.union(AreaFlags::LOCK_ON_FAULT);

fn rights(number: u32) -> Prot {
    [Prot::empty(), Prot::READ, Prot::RW, Prot::RX, Prot::all()][number as usize % 5]
}

fn area_flags(number: u32) -> AreaFlags {
    let all = [
        AreaFlags::empty(),
        AreaFlags::empty(),
        AreaFlags::HUGE,
        AreaFlags::NOHUGE,
        AreaFlags::LOCKED,
        AreaFlags::DONTFORK,
    ];
    all[number as usize % all.len()]
}

impl World {
    /// Carries `step` out, by `process`. Steps about devices and their failures are left out.
    pub(super) fn act(&mut self, step: &Step, process: usize) {
        let args = &step.args;
        let part = self.part(args[0], args[1]);
        match step.verb {
            Verb::Read => self.load(process, part.0),
            Verb::Write => self.store(process, part.0),
            Verb::Fetch => self.run(process, part.0),
            Verb::Sweep => self.sweep(process, part, args[2]),
            Verb::Map | Verb::Show => self.map(step, process, part),
            Verb::Unmap => self.unmap(process, part),
            Verb::Protect => self.protect(process, part, rights(args[2])),
            Verb::Advise | Verb::Mark => self.advise(step, process, part),
            Verb::Lock => self.lock(process, part, args[2].is_multiple_of(2)),
            Verb::Discard => self.discard(process, part),
            Verb::Guard | Verb::Unguard => self.guard(process, part, step.verb == Verb::Guard),
            Verb::Free => self.free(process, part),
            Verb::Track => self.track(process, part),
            Verb::Move => self.relocate(process, part, args),
            Verb::Resize => self.resize(process, part, args[2]),
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

    /// The expected answer of a change of each page: a hole, or the objection of `refuse` to a
    /// page.
    fn agree(
        &self,
        process: usize,
        (at, count): Part,
        refuse: impl Fn(&Page, Vpn) -> Option<Error>,
    ) -> Result<(), Error> {
        for here in at..at + count {
            let page = &self.naive[process].pages[here];
            if !page.is_mapped() {
                return Err(Error::NoArea(self.vpn(here)));
            }
            if let Some(error) = refuse(page, self.vpn(here)) {
                return Err(error);
            }
        }
        Ok(())
    }

    fn alter(&mut self, process: usize, (at, count): Part, change: impl Fn(&mut Page)) {
        self.naive[process].pages[at..at + count].iter_mut().for_each(change);
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

    /// Maps memory, or a file.
    fn map(&mut self, step: &Step, process: usize, (at, count): Part) {
        let args = &step.args;
        let is_file = step.verb == Verb::Show;
        let shared = args[5].is_multiple_of(2);
        let (source, backing) = match is_file {
            true => {
                let source = Source::File { file: 0, page: args[4], shared };
                (source, Backing::Object { id: self.file.0, page: u64::from(args[4]) })
            }
            false => (Source::Anon, Backing::Anon),
        };
        let flags = match (is_file, shared) {
            (true, true) => AreaFlags::SHARED,
            (true, false) => AreaFlags::empty(),
            _ => area_flags(args[3]),
        };
        let replaces = is_file || args[4] % 3 != 1;
        let prot = rights(args[2]);
        let place = if replaces { At::Fixed } else { At::FixedNoReplace };
        let request = Request { prot, flags, backing, ..Request::anon(count as u64) };
        let request = request.at(place(self.vpn(at)));
        let got = self.call(process, |space| mm().map(space, &request));
        let is_taken = self.naive[process].pages[at..at + count].iter().any(Page::is_mapped);
        if let (Err(Error::Exists(_)), true, false) = (got, is_taken, replaces) {
            return;
        }
        if (is_taken && !replaces) || !self.judge(Ok(()), got) {
            self.fail(format_args!("mapped in spite of what is there"));
        }
        let page = Page { source, prot, most: Prot::all(), flags, ..Page::FREE };
        for ahead in 0..count {
            self.naive[process].pages[at + ahead] = page.ahead(ahead as u32);
        }
    }

    fn unmap(&mut self, process: usize, part: Part) {
        let span = self.span(part.0, part.1);
        let got = self.call(process, |space| mm().unmap(space, span));
        self.judge(Ok(()), got);
        self.alter(process, part, |page| *page = Page::FREE);
    }

    fn protect(&mut self, process: usize, part: Part, prot: Prot) {
        let span = self.span(part.0, part.1);
        let got = self.call(process, |space| mm().protect(space, span, prot));
        if self.judge(self.agree(process, part, |_, _| None), got) {
            self.alter(process, part, |page| page.prot = prot);
        }
    }

    /// Advice about large folios, children or readahead.
    fn advise(&mut self, step: &Step, process: usize, part: Part) {
        let (span, args) = (self.span(part.0, part.1), &step.args);
        if step.verb == Verb::Advise {
            let advice = [Advice::None, Advice::Huge, Advice::NoHuge][args[2] as usize % 3];
            let got = self.call(process, |space| mm().advise(space, span, advice));
            if self.judge(self.agree(process, part, |_, _| None), got) {
                self.alter(process, part, |page| page.flags = advice.put(page.flags));
            }
            return;
        }
        let all =
            [AreaFlags::DONTFORK, AreaFlags::WIPEONFORK, AreaFlags::SEQUENTIAL, AreaFlags::RANDOM];
        let flag = all[args[2] as usize % all.len()];
        let none = AreaFlags::empty();
        let (on, off) = if args[3].is_multiple_of(2) { (flag, none) } else { (none, flag) };
        let wipes = on.contains(AreaFlags::WIPEONFORK);
        let expected = self
            .agree(process, part, |page, _| (wipes && !page.is_anon()).then_some(Error::Invalid));
        let got = self.call(process, |space| mm().spaces().set_flags(space, span, on, off));
        if self.judge(expected, got) {
            self.alter(process, part, |page| page.flags = (page.flags - off) | on);
        }
    }

    fn lock(&mut self, process: usize, part: Part, on: bool) {
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |_, _| None);
        if !on {
            let got = self.call(process, |space| mm().spaces().munlock(space, span));
            if self.judge(expected, got) {
                self.alter(process, part, |page| page.flags -= LOCKS);
            }
            return;
        }
        let got = self.call(process, |space| mm().mlock(space, span));
        if expected.is_err() {
            self.judge(expected, got);
            return;
        }
        // It is locked, even where some of it cannot be brought in.
        self.judge_true(process, got);
        self.alter(process, part, |page| page.flags |= AreaFlags::LOCKED);
    }

    /// Bringing pages in ends with what is true of one of them, if at all.
    fn judge_true<R: Debug>(&self, process: usize, got: Result<R, Error>) {
        if let Err(error) = got
            && !self.is_true(process, error)
        {
            self.fail(format_args!("{error:x?}, which is not so"));
        }
    }

    fn populate(&mut self, process: usize, part: Part) {
        let span = self.span(part.0, part.1);
        let got = self.call(process, |space| mm().populate(space, span));
        self.judge_true(process, got);
    }

    fn discard(&mut self, process: usize, part: Part) {
        let span = self.span(part.0, part.1);
        let got = self.call(process, |space| mm().discard(space, span));
        self.judge(Ok(()), got);
        self.alter(process, part, Page::forget);
    }

    fn guard(&mut self, process: usize, part: Part, on: bool) {
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |page, _| {
            (on && page.flags.contains(AreaFlags::LOCKED)).then_some(Error::Invalid)
        });
        let got = self.call(process, |space| match on {
            true => mm().guard(space, span),
            false => mm().unguard(space, span),
        });
        if self.judge(expected, got) {
            let change = if on { Page::fence } else { |page: &mut Page| page.guard = false };
            self.alter(process, part, change);
        }
    }

    /// Until a page is written again it may hold what it held, or be zero. Where writes are
    /// tracked it is lost at once.
    fn free(&mut self, process: usize, part: Part) {
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |page, _| {
            let fits = page.is_anon() && !page.flags.contains(AreaFlags::LOCKED);
            (!fits).then_some(Error::Invalid)
        });
        let pages = &self.naive[process].pages[part.0..part.0 + part.1];
        let tracked = pages.iter().any(|page| page.flags.contains(AreaFlags::TRACKED));
        let got = self.call(process, |space| mm().spaces().free_lazily(space, span));
        if self.judge(expected, got) {
            self.alter(process, part, if tracked { Page::forget } else { Page::loosen });
        }
    }

    fn track(&mut self, process: usize, part: Part) {
        let span = self.span(part.0, part.1);
        let got = self.call(process, |space| mm().spaces().track(space, span));
        self.judge(Ok(()), got);
        self.alter(process, part, |page| {
            page.written = false;
            // A free page has no area that could say so.
            if page.is_mapped() {
                page.flags |= AreaFlags::TRACKED;
            }
        });
    }

    /// Steps that move memory, and change nothing that a process could see.
    fn shift(&mut self, step: &Step, process: usize, part: Part) {
        let span = self.span(part.0, part.1);
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
                let got = self.call(process, |space| Ok(mm().spaces().clear_young(space, span)));
                self.judge(Ok(()), got);
            }
            Verb::PageOut => {
                let whose = if step.args[2] % 2 == 1 { Whose::All } else { Whose::Own };
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

    /// Moves pages.
    fn relocate(&mut self, process: usize, (at, count): Part, args: &[u32]) {
        let keep = args[4] % 2 == 1;
        let (to, pages) = self.part(args[3], if keep { count as u32 } else { args[2] });
        let (old, target) = (self.span(at, count), self.span(to, pages));
        let how = match keep {
            true => Move::Keep(At::Fixed(target.start)),
            false => Move::To(target.start),
        };
        let expected = match self.naive[process].area_break(at, count) {
            Some(hole) => Err(Error::NoArea(self.vpn(hole))),
            None if keep && pages != count => Err(Error::Invalid),
            None if target.overlaps(old) => Err(Error::Invalid),
            None => Ok(()),
        };
        let got = self.call(process, |space| mm().remap(space, old, pages as u64, how));
        if !self.judge(expected, got) {
            return;
        }
        let list = &mut self.naive[process].pages;
        let first = list[at];
        for ahead in 0..pages {
            list[to + ahead] = match ahead < count {
                true => list[at + ahead],
                false => first.ahead(ahead as u32),
            };
            // At its new place, dirty tracking has not begun.
            list[to + ahead].flags -= AreaFlags::TRACKED;
        }
        match keep {
            true => self.alter(process, (at, count), Page::leave),
            false => self.alter(process, (at, count), |page| *page = Page::FREE),
        }
    }

    /// Makes an area longer or shorter in its place.
    fn resize(&mut self, process: usize, (at, count): Part, to: u32) {
        let (_, pages) = self.part(at as u32, to);
        let old = self.span(at, count);
        let naive = &self.naive[process];
        let more = pages.saturating_sub(count);
        let taken = || naive.pages[at + count..at + pages].iter().any(Page::is_mapped);
        let expected = match naive.area_break(at, count) {
            Some(hole) => Err(Error::NoArea(self.vpn(hole))),
            None if more > 0 && taken() => Err(Error::NoRoom(more as u64)),
            None => Ok(()),
        };
        let got = self.call(process, |space| mm().remap(space, old, pages as u64, Move::Never));
        if !self.judge(expected, got) {
            return;
        }
        let list = &mut self.naive[process].pages;
        let first = list[at];
        for ahead in count..pages {
            list[at + ahead] = first.ahead(ahead as u32);
        }
        if pages < count {
            list[at + pages..at + count].fill(Page::FREE);
        }
    }

    fn set_policy(&mut self, step: &Step, process: usize) {
        let order = Order::new((step.args[0] % 18) as u8);
        match step.verb {
            Verb::Size => {
                let all = [
                    SizePolicy::Never,
                    SizePolicy::Always,
                    SizePolicy::Madvise,
                    SizePolicy::Inherit,
                ];
                // Not every format has every size.
                let _ = mm().policy().set_size(order, all[step.args[1] as usize % all.len()]);
            }
            Verb::CopyMost => mm().policy().set_copy_most(order),
            _ => {
                let all = [OptOut::No, OptOut::All, OptOut::ExceptAdvised];
                if let Some(memory) = &self.processes[process] {
                    memory.space().set_opt_out(all[step.args[0] as usize % all.len()]);
                }
            }
        }
    }
}
