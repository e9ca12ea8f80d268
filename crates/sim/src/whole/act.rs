//! Carrying out one step: the calls that change areas.

use quire::space::{Advice, AreaFlags, At, Backing, Request};
use quire::{Error, Move};
use quire_arch::Arch;
use quire_script::{Page, Source, Step, Verb};
use quire_units::{PageSpan, Prot, Vpn};

use super::violation::{Kind, Wrong};
use super::world::{STORES, World};

/// What a step came to, for the trace.
pub(super) type Outcome = Result<u64, Wrong>;

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

impl<A: Arch> World<'_, '_, '_, A> {
    /// Carries `step` out, by process `process`.
    pub(super) fn act(&mut self, step: &Step, process: usize) -> Outcome {
        let args = &step.args;
        let part = self.part(args[0], args[1]);
        match step.verb {
            Verb::Read | Verb::Write | Verb::Fetch | Verb::Sweep | Verb::Wipe => {
                self.access(step, process)
            }
            Verb::Map => self.map(step, process, part),
            Verb::Show => self.show(step, process, part),
            Verb::Unmap => self.unmap(process, part),
            Verb::Protect => self.protect(process, part, rights(args[2])),
            Verb::Advise => self.advise(process, part, args[2]),
            Verb::Mark => self.mark(process, part, args[2], args[3].is_multiple_of(2)),
            Verb::Lock => self.lock(process, part, args[2].is_multiple_of(2)),
            Verb::Discard => self.discard(process, part),
            Verb::Guard | Verb::Unguard | Verb::Free | Verb::Track => {
                self.act_on_advice(step.verb, process, part)
            }
            Verb::Move => self.relocate(process, part, args),
            Verb::Resize => self.resize(process, part, args[2]),
            Verb::Populate
            | Verb::Collapse
            | Verb::Age
            | Verb::PageOut
            | Verb::Reclaim
            | Verb::DropZeroes => self.act_on_pages(step, process, part),
            Verb::Scan => self.scan(step),
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
            Verb::Lose => self.lose(process, part.0, args[1]),
            Verb::Mend => self.mend(args[0]),
            Verb::Group
            | Verb::EndGroup
            | Verb::Join
            | Verb::Limit
            | Verb::Relieve
            | Verb::GroupOut
            | Verb::Lend => self.act_on_groups(step, process),
            _ => self.act_on_devices(step),
        }
    }

    fn map(&mut self, step: &Step, process: usize, (at, count): (usize, usize)) -> Outcome {
        let flags = area_flags(step.args[3]);
        let request = Request { prot: rights(step.args[2]), flags, ..Request::anon(count as u64) };
        let page = Page {
            source: Source::Anon,
            prot: request.prot,
            most: Prot::all(),
            flags,
            ..Page::FREE
        };
        let place = match step.args[4] % 3 {
            0 => At::Fixed(self.vpn(at)),
            1 => At::FixedNoReplace(self.vpn(at)),
            _ => At::Anywhere,
        };
        self.place(process, request.at(place), page)
    }

    fn show(&mut self, step: &Step, process: usize, (at, count): (usize, usize)) -> Outcome {
        let args = &step.args;
        let (file, shared) = (args[3] as usize % STORES.len(), args[5].is_multiple_of(2));
        let read_only = shared && STORES[file] == quire::cache::Store::ReadOnly;
        let most = if read_only { Prot::RX } else { Prot::all() };
        let prot = rights(args[2]) & most;
        let flags = if shared { AreaFlags::SHARED } else { AreaFlags::empty() };
        let first = args[4] % 4096;
        let backing = Backing::Object { id: self.ids[file].0, page: u64::from(first) };
        let request = Request {
            prot,
            most,
            flags,
            backing,
            ..Request::anon(count as u64).at(At::Fixed(self.vpn(at)))
        };
        let source = Source::File { file: file as u8, page: first, shared };
        self.place(process, request, Page { source, prot, most, flags, ..Page::FREE })
    }

    /// Maps; `page` is what the first page is then.
    fn place(&mut self, process: usize, request: Request, page: Page) -> Outcome {
        let count = request.pages as usize;
        let got = self.call(process, "map", |mm, space| mm.map(space, &request))?;
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
        for ahead in 0..count {
            self.naive[process].pages[at + ahead] = page.ahead(ahead as u32);
        }
        Ok(span.start.get())
    }

    fn refuse<R: std::fmt::Debug>(&self, what: &str, got: Result<R, Error>) -> Outcome {
        Err(Wrong::new(Kind::Answer, format!("{what} answered {got:?}")))
    }

    fn unmap(&mut self, process: usize, (at, count): (usize, usize)) -> Outcome {
        let span = self.span(at, count);
        let got = self.call(process, "unmap", |mm, space| mm.unmap(space, span))?;
        let done = self.judge("unmap", Ok(()), got)?;
        if done.is_some() {
            self.cut(process, at, count);
        }
        Ok(u64::from(done.is_some()))
    }

    fn cut(&mut self, process: usize, at: usize, count: usize) {
        self.forget_pins(process, at, count);
        self.naive[process].pages[at..at + count].fill(Page::FREE);
    }

    /// What changes each page of a span must answer: a hole, or what `refuse` has against a page.
    pub(super) fn agree(
        &self,
        process: usize,
        (at, count): (usize, usize),
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

    pub(super) fn alter(
        &mut self,
        process: usize,
        (at, count): (usize, usize),
        change: impl Fn(&mut Page),
    ) {
        self.naive[process].pages[at..at + count].iter_mut().for_each(change);
    }

    fn protect(&mut self, process: usize, part: (usize, usize), prot: Prot) -> Outcome {
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |page, at| {
            (!page.most.contains(prot)).then_some(Error::Forbidden(at, prot))
        });
        let got = self.call(process, "protect", |mm, space| mm.protect(space, span, prot))?;
        let done = self.judge("protect", expected, got)?.is_some();
        if done {
            self.alter(process, part, |page| page.prot = prot);
        }
        Ok(u64::from(done))
    }

    fn advise(&mut self, process: usize, part: (usize, usize), choice: u32) -> Outcome {
        let advice = [Advice::None, Advice::Huge, Advice::NoHuge][choice as usize % 3];
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |_, _| None);
        let got = self.call(process, "advise", |mm, space| mm.advise(space, span, advice))?;
        let done = self.judge("advise", expected, got)?.is_some();
        if done {
            self.alter(process, part, |page| page.flags = advice.put(page.flags));
        }
        Ok(u64::from(done))
    }

    fn mark(&mut self, process: usize, part: (usize, usize), which: u32, set: bool) -> Outcome {
        let flag =
            [AreaFlags::DONTFORK, AreaFlags::WIPEONFORK, AreaFlags::SEQUENTIAL, AreaFlags::RANDOM]
                [which as usize % 4];
        let (on, off) = match set {
            true => (flag, AreaFlags::empty()),
            false => (AreaFlags::empty(), flag),
        };
        let span = self.span(part.0, part.1);
        let wipes = on.contains(AreaFlags::WIPEONFORK);
        let expected = self
            .agree(process, part, |page, _| (wipes && !page.is_anon()).then_some(Error::Invalid));
        let got = self
            .call(process, "set_flags", |mm, space| mm.spaces().set_flags(space, span, on, off))?;
        let done = self.judge("set_flags", expected, got)?.is_some();
        if done {
            self.alter(process, part, |page| page.flags = (page.flags - off) | on);
        }
        Ok(u64::from(done))
    }

    fn lock(&mut self, process: usize, part: (usize, usize), on: bool) -> Outcome {
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |_, _| None);
        if !on {
            let got = self.call(process, "unlock", |mm, space| mm.spaces().munlock(space, span))?;
            let done = self.judge("unlock", expected, got)?.is_some();
            if done {
                let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
                self.alter(process, part, |page| page.flags -= locks);
            }
            return Ok(u64::from(done));
        }
        let got = self.call(process, "lock", |mm, space| mm.mlock(space, span))?;
        if let (Err(expected), Err(error)) = (expected, got)
            && expected == error
        {
            return Ok(0);
        }
        // The areas are locked, unless there was no memory for that; what was brought in or not is
        // no matter, as long as what it says is true.
        let locked = |page: &Page| page.flags.contains(AreaFlags::LOCKED);
        let changed = {
            let space = self.space(process)?;
            let mut areas = self.mm.spaces().areas(space, span);
            areas.all(|area| area.flags.contains(AreaFlags::LOCKED))
        };
        let before = self.naive[process].pages[part.0..part.0 + part.1].iter().all(locked);
        if expected.is_ok() && (changed || before) {
            self.alter(process, part, |page| page.flags |= AreaFlags::LOCKED);
        }
        match got {
            Ok(()) if expected.is_ok() => Ok(1),
            Err(Error::Unread(reads)) if expected.is_ok() => self
                .carry(reads)?
                .map_or_else(|error| self.failed_so("lock", process, error), |()| Ok(2)),
            Err(error) if expected.is_ok() && self.is_true(process, error) => Ok(3),
            Err(error) if self.may_fail(error) => Ok(4),
            _ => Err(Wrong::new(
                Kind::Answer,
                format!("lock answered {got:?}, expected {expected:?}"),
            )),
        }
    }

    /// Judges an error that a page's state must explain.
    pub(super) fn failed_so(&mut self, what: &str, process: usize, error: Error) -> Outcome {
        match self.is_true(process, error) {
            true => Ok(super::judge::code(error)),
            false => Err(Wrong::new(Kind::Answer, format!("{what} answered {error:?}"))),
        }
    }

    fn discard(&mut self, process: usize, (at, count): (usize, usize)) -> Outcome {
        let span = self.span(at, count);
        let got = self.call(process, "discard", |mm, space| mm.discard(space, span))?;
        let done = self.judge("discard", Ok(()), got)?.is_some();
        self.forget_pins(process, at, count);
        // Of one that failed, memory before the leaf in question is free.
        self.alter(process, (at, count), |page| match done {
            true => page.forget(),
            false => page.loosen(),
        });
        Ok(u64::from(done))
    }

    /// Moves pages.
    fn relocate(&mut self, process: usize, (at, count): (usize, usize), args: &[u32]) -> Outcome {
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
        let got =
            self.call(process, "remap", |mm, space| mm.remap(space, old, pages as u64, how))?;
        let done = self.judge("remap", expected, got)?.is_some();
        if expected.is_err() {
            return Ok(0);
        }
        if !done {
            return self.moved_half(process, (at, count), (to, pages));
        }
        self.cut(process, to, pages);
        self.carry_pages(process, (at, count), (to, pages), keep);
        Ok(1)
    }

    fn carry_pages(
        &mut self,
        process: usize,
        (at, count): (usize, usize),
        (to, pages): (usize, usize),
        keep: bool,
    ) {
        let first = self.naive[process].pages[at];
        for ahead in 0..pages {
            let list = &mut self.naive[process].pages;
            list[to + ahead] = match ahead < count {
                true => list[at + ahead],
                false => first.ahead(ahead as u32),
            };
            // At its new place, nobody has asked yet what was written.
            list[to + ahead].flags -= AreaFlags::TRACKED;
        }
        for pin in &mut self.pins {
            if let Some((owner, page)) = &mut pin.place
                && *owner == process
                && (at..at + count.min(pages)).contains(page)
            {
                *page = to + *page - at;
            }
        }
        if keep {
            self.alter(process, (at, count), Page::leave);
        } else {
            self.forget_pins(process, at, count);
            self.naive[process].pages[at..at + count].fill(Page::FREE);
        }
    }

    /// A move has failed for want of memory: what is at the target, and what is cut off, may be
    /// unmapped. It is made certain.
    fn moved_half(
        &mut self,
        process: usize,
        (at, count): (usize, usize),
        (to, pages): (usize, usize),
    ) -> Outcome {
        self.disarm();
        let mut gone = vec![(to, pages)];
        if pages < count {
            gone.push((at + pages, count - pages));
        }
        for (at, count) in gone {
            let span = self.span(at, count);
            let mut got = self.call(process, "unmap", |mm, space| mm.unmap(space, span))?;
            if got.is_err() {
                self.relieve()?;
                got = self.call(process, "unmap", |mm, space| mm.unmap(space, span))?;
            }
            if got.is_err() {
                // Nobody can tell any more what this process has.
                self.end(process);
                return Ok(2);
            }
            self.cut(process, at, count);
        }
        Ok(2)
    }

    /// Makes an area longer or shorter in its place.
    fn resize(&mut self, process: usize, (at, count): (usize, usize), to: u32) -> Outcome {
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
        let got = self
            .call(process, "remap", |mm, space| mm.remap(space, old, pages as u64, Move::Never))?;
        if self.judge("remap", expected, got)?.is_none() {
            return Ok(0);
        }
        let first = self.naive[process].pages[at];
        for ahead in count..pages {
            self.naive[process].pages[at + ahead] = first.ahead(ahead as u32);
        }
        if pages < count {
            self.cut(process, at + pages, count - pages);
        }
        Ok(1)
    }
}
