//! Carrying out one step: accesses, and the calls that are about what is in memory.

use quire::cache::{FileId, FilePages};
use quire::{Error, Need, Scope, Stop};
use quire_arch::Arch;
use quire_script::{Fault, Page, Shielded, Step, Verb, Why, tail};
use quire_units::{Access, Asid, Order, VirtAddr};

use super::act::Outcome;
use super::device::{LOOSE, Transfer, peek, poke};
use super::judge::code;
use super::violation::{Kind, Wrong};
use super::world::{Pin, World};

/// How many steps lie at least between two attempts to make memory free.
const APART: u64 = 32;

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn access(&mut self, step: &Step, process: usize) -> Outcome {
        let (at, count) = self.part(step.args[0], step.args[1]);
        match step.verb {
            Verb::Read => self.load(process, at, Access::Read),
            Verb::Fetch => self.load(process, at, Access::Execute),
            Verb::Write => self.write(process, at),
            Verb::Wipe => (at..at + count.min(64)).try_fold(0, |_, at| self.store(process, at, 0)),
            _ => {
                let mut found = 0_u64;
                // At most a few, however long the run is.
                for at in (at..at + count).step_by(1 + count / 24) {
                    let one = match step.args[2] % 2 {
                        0 => self.load(process, at, Access::Read)?,
                        _ => self.write(process, at)?,
                    };
                    found = found.rotate_left(7) ^ one;
                }
                Ok(found)
            }
        }
    }

    pub(super) fn tail_addr(&self, at: usize) -> VirtAddr {
        VirtAddr::new(self.addr(at).get() + (1 << A::PAGE_SHIFT) - 8)
    }

    /// A load of both words of a page.
    pub(super) fn load(&mut self, process: usize, at: usize, access: Access) -> Outcome {
        let got = self.touch(process, at, access, 0)?;
        let outcome = self.judge_touch(process, at, access, got)?;
        if let Ok(first) = got
            && first & LOOSE == 0
        {
            let last = match access {
                Access::Execute => self.cpu().fetch(self.tail_addr(at)),
                _ => self.cpu().read(self.tail_addr(at)),
            };
            if last != Ok(tail(first)) {
                let what = format!(
                    "process {process}, page {at}: the last word is {last:x?}, the first {first:#x}"
                );
                return Err(Wrong::new(Kind::Content, what));
            }
        }
        Ok(outcome)
    }

    /// A store of a word that is new.
    fn write(&mut self, process: usize, at: usize) -> Outcome {
        let stamp = self.stamp();
        self.store(process, at, stamp)
    }

    /// A store to both words of a page.
    fn store(&mut self, process: usize, at: usize, stamp: u64) -> Outcome {
        let got = self.touch(process, at, Access::Write, stamp)?;
        let outcome = self.judge_touch(process, at, Access::Write, got)?;
        if got.is_ok()
            && let Err(trap) = self.cpu().write(self.tail_addr(at), tail(stamp))
        {
            let what = format!("process {process}, page {at}: after a store to it, {trap}");
            return Err(Wrong::new(Kind::Answer, what));
        }
        Ok(outcome)
    }

    pub(super) fn act_on_pages(
        &mut self,
        step: &Step,
        process: usize,
        (at, count): (usize, usize),
    ) -> Outcome {
        let span = self.span(at, count);
        match step.verb {
            Verb::Populate => self.populate(process, at, count),
            Verb::Collapse => {
                let order = self.order(step.args[2]);
                let got = self.call(process, "collapse", |mm, space| {
                    mm.reclaim().collapse(space, span, order)
                })?;
                let done = self.judge("collapse", Ok(()), got)?;
                Ok(done.map_or(0, |done| 1 + done.made))
            }
            Verb::Age => {
                let got = self.call(process, "age", |mm, space| {
                    Ok::<_, Stop>(mm.spaces().clear_young(space, span))
                })?;
                got.map_err(Wrong::unexpected)
            }
            Verb::PageOut => self.page_out(process, span, step.args[2] % 2 == 1),
            Verb::DropZeroes => {
                let drop = |mm: &crate::system::HostedMm<'_, '_, A>, space: &_| {
                    mm.reclaim().drop_zeroes(space, span)
                };
                let got = self.cleaning_call(process, "drop zeroes", drop)?;
                Ok(self.judge("drop_zeroes", Ok(()), got)?.unwrap_or_default())
            }
            _ => {
                let out = {
                    let _operation = self.reclaiming("reclaim");
                    self.mm.reclaim().reclaim(u64::from(step.args[0]), &self.all())
                };
                self.settle_races()?;
                self.write_swap()?;
                Ok(out.pages())
            }
        }
    }

    /// The order of a folio to collapse to.
    pub(super) fn order(&self, order: u32) -> Order {
        Order::new(order.clamp(1, A::block_order().get().into()) as u8)
    }

    fn populate(&mut self, process: usize, at: usize, count: usize) -> Outcome {
        let done = self.populate_part(process, at, count);
        self.note_brought(process)?;
        done
    }

    fn populate_part(&mut self, process: usize, at: usize, count: usize) -> Outcome {
        let span = self.span(at, count);
        self.naive[process].alter((at, count), Page::bare);
        for _ in 0..count + 8 {
            match self.call(process, "populate", |mm, space| mm.populate(space, span))? {
                Ok(done) => return Ok(done.pages),
                Err(Stop::Need(Need::Read(reads))) => {
                    if let Err(error) = self.carry(reads)? {
                        return self.failed_so("populate", process, error);
                    }
                }
                Err(Stop::Need(Need::Wait(file))) => self.wait(file)?,
                Err(Stop::Need(Need::Compact(order))) => self.compact_for(order)?,
                Err(Stop::Refuse(Error::OverLimit(group)))
                    if self.relieve_group(process, group)? => {}
                Err(error) => return self.failed_so("populate", process, error),
            }
        }
        // It may take for ever where pages of files are reclaimed while others are read.
        Ok(0)
    }

    fn page_out(&mut self, process: usize, span: quire_units::PageSpan, all: bool) -> Outcome {
        let whose = if all { Scope::All } else { Scope::Own };
        let got = {
            let _operation = self.machine.operation("page out");
            self.mm.paging().page_out(self.space(process)?, span, whose, &self.all())
        };
        self.settle_races()?;
        let done = self.judge("page_out", Ok(()), got)?;
        Ok(done.map_or(0, |out| out.pages))
    }

    pub(super) fn act_on_pins(&mut self, step: &Step, process: usize, at: usize) -> Outcome {
        let which = step.args[0] as usize % self.pins.len().max(1);
        match step.verb {
            Verb::Pin => self.pin(process, at),
            _ if self.pins.is_empty() => Ok(0),
            Verb::Unpin => {
                let pin = self.pins.swap_remove(which);
                self.mm.unpin(pin.pinned);
                Ok(1)
            }
            _ => self.use_device(which, step.args[1] % 2 == 1),
        }
    }

    /// A device gets a page of this process alone: not a shared page of a file.
    fn pin(&mut self, process: usize, at: usize) -> Outcome {
        let here = self.naive[process].pages[at];
        let page = self.vpn(at);
        let may = self.naive[process].access(&self.files, at, Access::Write);
        if here.is_frame() && may.is_ok() {
            let got = self.call(process, "pin", |mm, space| mm.pin(space, page, Access::Write))?;
            return self.judge("pin", Err(Error::Invalid), got.map(drop)).map(|_| 0);
        }
        if self.pins.len() >= 8 || !(here.is_anon() || here.is_private_file()) {
            return Ok(0);
        }
        self.naive[process].pages[at].bare();
        let got = self.call(process, "pin", |mm, space| mm.pin(space, page, Access::Write))?;
        match got {
            Ok(pinned) => {
                self.naive[process].pages[at].shielded = Shielded::No;
                let frame = pinned.frame();
                self.pins.push(Pin { pinned, place: Some((process, at)) });
                if let Err(why) = may {
                    let what = format!("process {process}, page {at} was pinned, but {why:?}");
                    return Err(Wrong::new(Kind::Answer, what));
                }
                self.own_pinned(process, at, peek(self.machine.ram(), A::PAGE_SHIFT, frame).0)
            }
            Err(Stop::Need(Need::Read(reads))) => match self.carry(reads)? {
                Ok(()) => Ok(2),
                Err(error) => self.failed_so("pin", process, error),
            },
            Err(Stop::Need(Need::Compact(order))) => self.compact_for(order).map(|()| 3),
            Err(Stop::Refuse(Error::Denied(_, Access::Write, prot))) if may == Err(Why::Denied) => {
                Ok(u64::from(prot.bits()))
            }
            Err(error) => self.failed_so("pin", process, error),
        }
    }

    /// A page that was pinned is the process's own from now on.
    fn own_pinned(&mut self, process: usize, at: usize, word: u64) -> Outcome {
        if !self.naive[process].settle(&self.files, at, word) {
            let should = self.naive[process].content(&self.files, at);
            let what = format!("{word:#x} was pinned in page {at}, should be {should:x?}");
            return Err(Wrong::new(Kind::Content, what));
        }
        let copied = self.copied();
        if self.naive[process].pages[at].is_private_file() {
            self.naive[process].store(&mut self.files, at, word, copied);
        }
        Ok(word)
    }

    /// A device reads or writes the memory that it was given.
    fn use_device(&mut self, which: usize, writes: bool) -> Outcome {
        let stamp = self.stamp();
        let (frame, place) = (self.pins[which].pinned.frame(), self.pins[which].place);
        let ram = self.machine.ram();
        if writes {
            poke(ram, A::PAGE_SHIFT, frame, (stamp, tail(stamp)));
            if let Some((process, at)) = place {
                // A device's write ends no protection.
                let shielded = self.naive[process].pages[at].shielded;
                self.naive[process].store(&mut self.files, at, stamp, 0);
                self.naive[process].pages[at].shielded = shielded;
            }
            return Ok(1);
        }
        let word = ram.read_word(frame.addr(A::PAGE_SHIFT)).unwrap_or_default();
        if let Some((process, at)) = place
            && !self.naive[process].settle(&self.files, at, word)
        {
            let should = self.naive[process].content(&self.files, at);
            let what = format!(
                "a device sees {word:#x} in page {at} of process {process}, should see {should:x?}"
            );
            return Err(Wrong::new(Kind::Content, what));
        }
        Ok(word)
    }

    /// `process` is copied to `to`, which ends first.
    pub(super) fn fork(&mut self, process: usize, to: usize) -> Outcome {
        if process == to {
            return Ok(0);
        }
        self.end(to);
        let asid = Asid(to as u16 + 1);
        let got = self.call(process, "fork", |mm, space| mm.fork(space, asid))?;
        match self.judge("fork", Ok(()), got)? {
            Some(child) => {
                self.spaces[to] = Some(child);
                self.naive[to] = self.naive[process].fork();
                self.unbind(to);
                Ok(1)
            }
            None => Ok(0),
        }
    }

    /// Writes dirty pages to the swap devices. Those that they do not take stay in memory.
    pub(super) fn write_swap(&mut self) -> Outcome {
        let devices = self.swaps.into_iter().flatten();
        devices.map(|id| self.write_device(id)).try_fold(0, |all, one| Ok(all + one?))
    }

    fn write_device(&mut self, id: FileId) -> Outcome {
        let end = self.mm.files().get(id).map_or(0, |file| file.pages());
        let mut left = FilePages::new(0, end);
        let mut written = 0;
        loop {
            let next = {
                let _operation = self.machine.operation("write").cleans();
                self.mm.files().next_write(id, &mut left, &self.all())
            };
            self.settle_races()?;
            match next {
                Ok(Some(write)) => {
                    written += write.pages().count();
                    self.transfer(Transfer::Write(write));
                }
                Ok(None) => return Ok(written),
                Err(Stop::Need(Need::Wait(file))) => self.wait(file)?,
                Err(error) => return Ok(code(error)),
            }
        }
    }

    /// Whether it is time to make memory free: what is done in each step of a world that is full
    /// takes all its time and frees nothing.
    pub(super) fn may_relieve(&self) -> bool {
        self.faulty != Fault::Alloc && self.now >= self.relieved + APART
    }

    /// Makes memory free if there is little, now and then; if that does not help, the largest
    /// process ends, as it does in kernels.
    pub(super) fn make_room(&mut self) -> Result<(), Wrong> {
        let little = u64::from(self.setup.frames) / 32 + 16;
        if self.mm.phys().has_free(little) || !self.may_relieve() {
            return Ok(());
        }
        self.relieve()?;
        if !self.mm.phys().has_free(little) {
            self.end_largest();
        }
        Ok(())
    }

    /// Memory is short: what can leave leaves, and nothing goes wrong meanwhile.
    pub(super) fn relieve(&mut self) -> Result<(), Wrong> {
        self.relieved = self.now;
        let faulty = self.faulty;
        self.disarm();
        self.complete(u64::MAX);
        {
            let _operation = self.reclaiming("reclaim");
            self.mm.reclaim().reclaim(96, &self.all());
        }
        self.write_swap()?;
        for file in 0..self.ids.len() {
            self.sync(file)?;
        }
        let few = u64::from(self.setup.frames) / 16;
        while self.mm.phys().free_frames() < few
            && let Some(run) = self.hoard.pop()
        {
            self.mm.phys().free(run);
        }
        // A race is over; other faults may have struck without having been told.
        self.faulty = if faulty == Fault::Race { Fault::None } else { faulty };
        Ok(())
    }
}
