//! Which answers are right: the words that accesses find, the errors that calls may end with, and
//! the walkers.

use quire::check::{self, Totals};
use quire::space::{AreaFlags, Backing};
use quire::table::Sight;
use quire::{Error, Need, Stop};
use quire_arch::{Arch, Attrs};
use quire_script::{Fault, Lost, Page, Shielded, Source, Why};
use quire_units::{Access, Order, Vpn};

use super::act_frames::FRAMES;
use super::act_moves::isolated;
use super::act_reserved::RESERVED;
use super::device::{agree, peek};
use super::violation::{Kind, Wrong};
use super::world::World;

/// In one of this many steps, an access must be noted in its leaf.
const NOTED_EVERY: u64 = 4;

/// The reason of a call that is not done, as a number, for the trace.
pub(super) fn code(stop: impl Into<Stop>) -> u64 {
    let error = match stop.into() {
        Stop::Need(Need::Read(reads)) => return 10 << 48 | reads.pages().start,
        Stop::Need(Need::Wait(file)) => return 11 << 48 | u64::from(file.0),
        Stop::Need(need) => panic!("{need:?} has no number in the trace"),
        Stop::Refuse(error) => error,
    };
    let (number, detail) = match error {
        Error::NoMemory(order) => (1, order.index() as u64),
        Error::Invalid => (2, 0),
        Error::Exists(area) => (3, area.span.start.get()),
        Error::NoRoom(pages) => (4, pages),
        Error::NoArea(page) => (5, page.get()),
        Error::Denied(page, ..) => (6, page.get()),
        Error::Forbidden(page, _) => (7, page.get()),
        Error::Marked(page, _) => (8, page.get()),
        Error::Missing(page) => (9, page.get()),
        Error::Failed(_, page) => (12, page),
        Error::NoFile => (13, 0),
        Error::Poisoned(frame) => (14, frame.get()),
        Error::Guarded(page) => (15, page.get()),
        Error::OverLimit(group) => (16, group.get().into()),
        Error::NoGroup => (17, 0),
        Error::Sealed(page) => (18, page.get()),
        Error::NoReserved(order) => (19, order.index() as u64),
        _ => panic!("{error:?} has no number in the trace"),
    };
    number << 48 | detail
}

impl<A: Arch> World<'_, '_, '_, A> {
    /// Whether an answer may be that there is no memory for a block of `order`.
    fn may_lack(&self, order: Order) -> bool {
        let few = 128 + 32 * self.running.len() as u64;
        self.faulty == Fault::Alloc || order > Order::ZERO || self.mm.phys().free_frames() < few
    }

    /// Whether `stop` may be the answer to any call, because of faults and of what is short.
    pub(super) fn may_fail(&mut self, stop: impl Into<Stop>) -> bool {
        let error = match stop.into() {
            Stop::Need(Need::Wait(_)) => return self.devices.has_pending(),
            Stop::Need(_) => return false,
            Stop::Refuse(error) => error,
        };
        match error {
            Error::NoMemory(order) => self.may_lack(order),
            Error::Failed(file, page) => self.failed.remove(&(file.0, page)),
            Error::Poisoned(frame) => self.poisons || self.has_failed(frame),
            Error::InUse(_) => self.devices.has_pending(),
            Error::OverLimit(group) => self.may_be_over(group),
            Error::NoReserved(order) => self.may_lack_reserved(order),
            _ => false,
        }
    }

    /// Whether `stop` may end faulting in a span: its evidence must be true of the page it names.
    pub(super) fn is_true(&mut self, process: usize, stop: impl Into<Stop>) -> bool {
        let stop = stop.into();
        let Stop::Refuse(error) = stop else { return self.may_fail(stop) };
        let (page, expected) = match error {
            Error::NoArea(page) => (page, Why::NoArea),
            Error::Denied(page, ..) => (page, Why::Denied),
            Error::Missing(page) => (page, Why::Missing),
            Error::Guarded(page) => (page, Why::Guarded),
            _ => return self.may_fail(error),
        };
        let Some(at) = self.at(page) else { return false };
        self.naive[process].access(&self.files, at, Access::Read) == Err(expected)
    }

    /// Judges an access, and notes what it stored.
    pub(super) fn judge_touch(
        &mut self,
        process: usize,
        at: usize,
        access: Access,
        got: Result<u64, Stop>,
    ) -> Result<u64, Wrong> {
        let expected = self.naive[process].access(&self.files, at, access);
        let page = self.vpn(at);
        if got.is_ok() && expected.is_ok() {
            self.note_whole(process, at, access);
        }
        let right = match (expected, got) {
            (Ok(_), Err(Stop::Refuse(Error::NoReserved(_)))) => {
                self.may_be_refused(process, at, access)
            }
            (Ok(_), Ok(word)) if access == Access::Write => {
                let copied = self.copied();
                self.naive[process].store(&mut self.files, at, word, copied);
                true
            }
            (Ok(_), Ok(word)) => {
                if !self.naive[process].settle(&self.files, at, word) {
                    let what = format!(
                        "process {process}, page {at}: {word:#x} is there, {expected:x?} should be"
                    );
                    return Err(Wrong::new(Kind::Content, what));
                }
                true
            }
            (Err(Why::NoArea), Err(Stop::Refuse(Error::NoArea(told)))) => told == page,
            (Err(Why::Missing), Err(Stop::Refuse(Error::Missing(told)))) => told == page,
            (Err(Why::Guarded), Err(Stop::Refuse(Error::Guarded(told)))) => told == page,
            (Err(Why::Denied), Err(Stop::Refuse(Error::Denied(told, how, prot)))) => {
                (told, how, prot) == (page, access, self.naive[process].pages[at].prot)
            }
            (Err(Why::Lost), Err(Stop::Refuse(Error::Poisoned(_)))) => true,
            // Of a page that is there, nothing else that failed is an excuse.
            (Ok(_), Err(Stop::Refuse(Error::Poisoned(_)))) => {
                self.poisons || self.naive[process].may_be_lost(&self.files, at)
            }
            (_, Err(error)) => self.may_fail(error),
            (Err(_), Ok(_)) => false,
        };
        if !right {
            let what = format!(
                "process {process}, page {at}, {access:?}: {got:x?}, expected {expected:x?}"
            );
            return Err(Wrong::new(Kind::Answer, what));
        }
        if got.is_ok() && self.now.is_multiple_of(NOTED_EVERY) && self.faulty == Fault::None {
            self.is_noted(process, at, access)?;
        }
        Ok(got.unwrap_or_else(code))
    }

    /// A page that was accessed is young, and one that was written is dirty, whichever word of its
    /// contiguous block says so.
    fn is_noted(&self, process: usize, at: usize, access: Access) -> Result<(), Wrong> {
        let due = if access == Access::Write { Attrs::YOUNG | Attrs::DIRTY } else { Attrs::YOUNG };
        let mut noted = Attrs::empty();
        self.mm.spaces().runs(self.space(process)?, self.span(at, 1), &mut |seen| {
            if let Sight::Leaf { attrs, .. } = seen.what {
                noted |= attrs;
            }
        });
        if noted.contains(due) {
            return Ok(());
        }
        let what = format!("process {process}, page {at}: after {access:?}, {noted:?} is noted");
        Err(Wrong::new(Kind::Content, what))
    }

    /// Judges the answer of a call: it must be the expected one, or one that faults explain.
    /// Returns the value of the call; `None` if it failed.
    pub(super) fn judge<R, E: Into<Stop>>(
        &mut self,
        what: &str,
        expected: Result<(), Error>,
        got: Result<R, E>,
    ) -> Result<Option<R>, Wrong> {
        match (expected.map_err(Stop::from), got.map_err(E::into)) {
            (Ok(()), Ok(value)) => Ok(Some(value)),
            (Err(expected), Err(error)) if expected == error => Ok(None),
            (_, Err(error)) if self.may_fail(error) => Ok(None),
            (expected, got) => {
                let got = got.map(drop);
                let what = format!("{what} answered {got:?}, expected {expected:?}");
                Err(Wrong::new(Kind::Answer, what))
            }
        }
    }

    /// All walkers, all areas, and the content of every page in memory.
    pub(super) fn check(&mut self) -> Result<(), Wrong> {
        let examined = |violation| Wrong::new(Kind::Examiner, format!("{violation}"));
        self.machine.audit().map_err(examined)?;
        self.walk()?;
        self.check_groups()?;
        self.check_pool()?;
        if let Some(what) = self.devices.check() {
            return Err(Wrong::new(Kind::Walker, what));
        }
        for process in 0..self.spaces.len() {
            self.check_areas(process)?;
            self.check_pages(process)?;
            self.check_written(process)?;
            self.check_shields(process)?;
        }
        Ok(())
    }

    /// All walkers; and no frame may be lost.
    pub(super) fn walk(&self) -> Result<Totals, Wrong> {
        let totals = check::system(self.mm, self.all().list())
            .map_err(|violation| Wrong::new(Kind::Walker, format!("{violation}")))?;
        let held: u64 = self.hoard.iter().map(quire_hw::FrameRun::count).sum();
        if totals.held != held {
            let what = format!("{} frames are held, {held} should be", totals.held);
            return Err(Wrong::new(Kind::Leak, what));
        }
        let isolated = isolated(self.mm.phys());
        if isolated > 0 {
            let what = format!("{isolated} frames are kept for a compaction that has ended");
            return Err(Wrong::new(Kind::Leak, what));
        }
        Ok(totals)
    }

    fn check_areas(&self, process: usize) -> Result<(), Wrong> {
        let Some(space) = &self.spaces[process] else { return Ok(()) };
        let window = self.span(0, self.setup.window as usize);
        let mut next = 0;
        let wrong = |at: usize, is: &dyn std::fmt::Debug| {
            let should = self.naive[process].pages[at];
            let what = format!("process {process}, page {at}: {is:?}, should be {should:?}");
            Err(Wrong::new(Kind::Areas, what))
        };
        for area in self.mm.spaces().areas(space, window) {
            let area = area.clipped(window);
            let Some(start) = self.at(area.span.start) else { continue };
            let count = area.span.count() as usize;
            let pages = &self.naive[process].pages;
            if let Some(at) = (next..start).find(|&at| pages[at].is_mapped()) {
                return wrong(at, &"no area");
            }
            for (ahead, page) in pages[start..start + count].iter().enumerate() {
                let source = match area.backing.advanced(ahead as u64) {
                    Backing::Anon => Source::Anon,
                    Backing::File { id, page } => {
                        let file = self.ids.iter().position(|known| *known == id);
                        let file = file.unwrap_or(usize::from(u8::MAX)) as u8;
                        let shared = area.flags.contains(AreaFlags::SHARED);
                        let page = page as u32;
                        match self.reserved.as_ref().filter(|of| of.id == id) {
                            Some(of) => {
                                let (file, order) = (RESERVED, of.order.get());
                                Source::Whole { file, page, order, shared }
                            }
                            None => Source::File { file, page, shared },
                        }
                    }
                    Backing::Frames { first, memory } => match self.number(first, memory) {
                        Some(page) => Source::Frame { file: FRAMES, page },
                        None => return wrong(start + ahead, &area),
                    },
                };
                let (prot, most, flags) = (area.prot, area.max_prot, area.flags);
                if *page != (Page { source, prot, most, flags, ..*page }) {
                    return wrong(start + ahead, &area);
                }
            }
            next = start + count;
        }
        let pages = &self.naive[process].pages;
        match (next..pages.len()).find(|&at| pages[at].is_mapped()) {
            Some(at) => wrong(at, &"no area"),
            None => Ok(()),
        }
    }

    /// Each mapped page has its due content, whatever its rights are now.
    pub(super) fn check_pages(&mut self, process: usize) -> Result<(), Wrong> {
        let Some(space) = &self.spaces[process] else { return Ok(()) };
        let mut mapped = Vec::new();
        let base = self.window().base.get();
        check::leaves(self.mm, space, |leaf| {
            mapped.push((leaf.pages.start.get(), leaf.frame, leaf.pages.count()));
        })
        .map_err(|violation| Wrong::new(Kind::Walker, format!("{violation}")))?;
        self.check_frames(process, &mapped)?;
        for (page, frame, count) in mapped {
            for ahead in 0..count {
                let at = (page + ahead).wrapping_sub(base) as usize;
                if self.is_register(frame.add(ahead)) {
                    continue;
                }
                let words = peek(self.machine.ram(), A::PAGE_SHIFT, frame.add(ahead));
                let known = at < self.setup.window as usize;
                let naive = &mut self.naive[process];
                if !known || !naive.settle(&self.files, at, words.0) || !agree(words) {
                    let should = known.then(|| naive.content(&self.files, at));
                    let what = format!(
                        "process {process}, page {at}: {words:x?} is there, {should:x?} should be"
                    );
                    return Err(Wrong::new(Kind::Content, what));
                }
            }
        }
        Ok(())
    }

    /// A move keeps what leaves record: later accesses would hide a loss.
    pub(super) fn check_marks(&self) -> Result<(), Wrong> {
        let all = if self.raced { 0 } else { self.spaces.len() };
        (0..all).try_for_each(|process| {
            self.check_written(process)?;
            self.check_shields(process)
        })
    }

    /// Protection is where it should be, and nowhere else.
    fn check_shields(&self, process: usize) -> Result<(), Wrong> {
        let pages = &self.naive[process].pages;
        let is_watched = |page: &Page| page.flags.contains(AreaFlags::WATCH_WRITE);
        let Some(space) = self.spaces[process].as_ref().filter(|_| pages.iter().any(is_watched))
        else {
            return Ok(());
        };
        let mut told = vec![false; pages.len()];
        self.mm.spaces().runs(space, self.span(0, pages.len()), &mut |seen| {
            let all = seen.pages.start.get()..seen.pages.end.get();
            let protected = quire::is_protected(seen);
            all.filter_map(|page| self.at(Vpn::new(page))).for_each(|at| told[at] = protected);
        });
        for (at, page) in pages.iter().enumerate() {
            let is_right = match page.shielded {
                Shielded::Yes => told[at] || page.unsure || page.lost != Lost::No,
                Shielded::Perhaps => true,
                Shielded::No => !told[at],
            };
            if !is_right {
                let what = format!(
                    "process {process}, page {at}: protected {}, should be {:?}",
                    told[at], page.shielded
                );
                return Err(Wrong::new(Kind::Content, what));
            }
        }
        Ok(())
    }

    /// The library reports every page that was written while its writes are tracked.
    fn check_written(&self, process: usize) -> Result<(), Wrong> {
        let pages = &self.naive[process].pages;
        let must = |page: &Page| {
            // A page of a file is clean again after its writeback.
            let written = page.written || page.is_frame();
            written && page.flags.contains(AreaFlags::TRACKED) && !page.is_shared_file()
        };
        let Some(space) = self.spaces[process].as_ref().filter(|_| pages.iter().any(must)) else {
            return Ok(());
        };
        let mut told = vec![false; pages.len()];
        for area in self.mm.spaces().areas(space, self.span(0, pages.len())) {
            self.mm.spaces().runs(space, area.span, &mut |seen| {
                if quire::is_written(&area, seen) {
                    let all = seen.pages.start.get()..seen.pages.end.get();
                    all.filter_map(|page| self.at(Vpn::new(page))).for_each(|at| told[at] = true);
                }
            });
        }
        match (0..pages.len()).find(|&at| must(&pages[at]) && !told[at]) {
            None => Ok(()),
            Some(at) => {
                let what = format!("process {process}, page {at} was written, and nothing says so");
                Err(Wrong::new(Kind::Content, what))
            }
        }
    }

    fn read_all(&mut self) -> Result<(), Wrong> {
        for process in 0..self.spaces.len() {
            for at in 0..self.setup.window as usize {
                if self.spaces[process].is_some() {
                    self.load(process, at, Access::Read)?;
                }
            }
        }
        Ok(())
    }

    /// Everything ends: each page is read once more, and all memory must come back.
    pub(super) fn finish(&mut self, free: &[u64]) -> Result<(), Wrong> {
        self.complete(u64::MAX);
        if self.exact.is_none() {
            self.relieve()?;
            self.unlimit()?;
            self.read_all()?;
        }
        self.check()?;
        if self.now.is_multiple_of(2) {
            self.end_loan(true)?;
        }
        for process in 0..self.spaces.len() {
            self.end(process);
            self.walk()?;
        }
        self.end_loan(false)?;
        self.pins.drain(..).for_each(|pin| self.mm.unpin(pin.pinned));
        self.hoard.drain(..).for_each(|run| self.mm.phys().free(run));
        if self.exact.is_none() {
            self.asks_for_whole_runs()?;
        }
        let moves = self.moves.take();
        for id in std::mem::take(&mut self.swaps).into_iter().chain([moves]).flatten() {
            self.mm.paging().swap_off(id).map_err(Wrong::unexpected)?;
        }
        self.end_reserved()?;
        for &id in &self.ids {
            self.mm.files().close(id).map_err(Wrong::unexpected)?;
        }
        while let Some(frame) = self.bad.pop() {
            // The folio of another bad frame may have taken this one along: any answer will do.
            self.mm.memory_mended(frame);
        }
        check::system::<A, _>(self.mm, &[])
            .map_err(|violation| Wrong::new(Kind::Walker, format!("{violation}")))?;
        self.mm.phys().drain();
        match self.mm.phys().free_by_order() {
            now if now == free => Ok(()),
            now => {
                let what = format!("free at the end by order: {now:?}; at first: {free:?}");
                Err(Wrong::new(Kind::Leak, what))
            }
        }
    }
}
