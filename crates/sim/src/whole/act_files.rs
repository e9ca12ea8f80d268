//! Carrying out one step: files, the swap devices, and other users of memory.

use quire::cache::{FileId, FilePages, Pattern, Readahead, Store};
use quire::{Error, Held, Need, Stop};
use quire_arch::Arch;
use quire_script::{Fault, Source, Step, Verb, tail};
use quire_units::{Order, Vpn};

use super::act::Outcome;
use super::act_lost::GARBAGE;
use super::device::{Transfer, peek, poke};
use super::judge::code;
use super::violation::{Kind, Wrong};
use super::world::{STORES, World};
use crate::system::SWAPS;

/// How many pages a file has at most.
const MOST: u32 = 4096;

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn act_on_devices(&mut self, step: &Step) -> Outcome {
        let file = step.args[0] as usize % STORES.len();
        let (first, second) = (step.args[0], step.args[1]);
        match step.verb {
            Verb::Sync => self.sync(file),
            Verb::SyncSwap => self.write_swap(),
            Verb::Drop => self.drop_clean(file, u64::from(second), u64::from(step.args[2])),
            Verb::Truncate => self.truncate(file, second % MOST),
            Verb::Look => self.look(file, second % MOST),
            Verb::Put => self.put(file, second % MOST),
            Verb::SwapOn => self.swap_on(first),
            Verb::SwapOff => self.swap_off(step.process as usize % SWAPS),
            Verb::Hoard => {
                let most = if self.hoard.len() < 24 { first % 8 } else { return Ok(0) };
                let order = Order::new(most as u8);
                match self.mm.phys().alloc(order) {
                    Some(run) => {
                        self.hoard.push(run);
                        Ok(1)
                    }
                    None if self.may_fail(Error::NoMemory(order)) => Ok(0),
                    None => Err(Wrong::unexpected(Error::NoMemory(order))),
                }
            }
            _ => {
                if !self.hoard.is_empty() {
                    let run = self.hoard.swap_remove(first as usize % self.hoard.len());
                    self.mm.phys().free(run);
                }
                Ok(1)
            }
        }
    }

    /// Writes the dirty pages of a file; then its disk must have all of it, if nothing interfered.
    pub(super) fn sync(&mut self, file: usize) -> Outcome {
        if STORES[file] != Store::ReadWrite {
            return Ok(0);
        }
        let id = self.ids[file];
        let mut left = FilePages::new(0, u64::from(MOST) + 1);
        let mut written = 0;
        loop {
            let next = {
                let _operation = self.machine.operation("sync").cleans();
                self.mm.files().next_write(id, &mut left, &self.all())
            };
            self.settle_races()?;
            match next {
                Ok(Some(write)) => {
                    written += 1;
                    self.transfer(Transfer::Write(write));
                }
                Ok(None) => break,
                Err(Stop::Need(Need::Wait(file))) => self.wait(file)?,
                Err(error) => return Err(Wrong::unexpected(error)),
            }
        }
        if self.faulty == Fault::None && !self.devices.has_pending() {
            self.check_disk(file)?;
        }
        Ok(written)
    }

    fn check_disk(&self, file: usize) -> Result<(), Wrong> {
        for (page, &stamp) in self.files[file].stamps.iter().enumerate() {
            let is = self.devices.page(self.ids[file].0, page as u64).0;
            // A lost page is not written, whatever its memory holds now.
            let is_lost = self.files[file].is_lost(page as u32);
            if if is_lost { is == GARBAGE } else { is != stamp } {
                let what = format!("page {page} on the disk is {is:#x}, should be {stamp:#x}");
                return Err(Wrong::new(Kind::Content, what));
            }
        }
        Ok(())
    }

    fn drop_clean(&mut self, file: usize, from: u64, count: u64) -> Outcome {
        let pages = FilePages::new(from, from + count);
        let _operation = self.machine.operation("drop");
        self.mm.files().drop_clean(self.ids[file], pages).map_err(Wrong::unexpected)
    }

    pub(super) fn truncate(&mut self, file: usize, pages: u32) -> Outcome {
        let id = self.ids[file];
        // No file is shortened while its pages are being written.
        self.complete(u64::MAX);
        let before = self.files[file].stamps.len() as u64;
        for tries in 0.. {
            let got = {
                // Folios that cannot be divided are mapped anew and clean; the index has the flag.
                let _operation = self.machine.operation("truncate").cleans();
                self.mm.files().truncate(id, u64::from(pages), &self.all())
            };
            self.settle_races()?;
            match got {
                Ok(()) => break,
                Err(error) if !self.may_fail(error) => return Err(Wrong::unexpected(error)),
                // It is shorter, but its pages may still be mapped: the call must be repeated.
                Err(_) if tries == 0 => self.relieve()?,
                Err(_) => self.end_largest(),
            }
        }
        for page in u64::from(pages)..before {
            self.devices.put(id.0, page, (0, 0));
        }
        self.files[file].resize(pages);
        self.failed.retain(|&(of, page)| of != id.0 || page < u64::from(pages));
        self.forget_beyond(file, pages);
        Ok(1)
    }

    /// Private copies of the pages from `end` on are gone.
    fn forget_beyond(&mut self, file: usize, end: u32) {
        for process in 0..self.naive.len() {
            for at in 0..self.naive[process].pages.len() {
                if let Source::File { file: of, page, .. } = self.naive[process].pages[at].source
                    && usize::from(of) == file
                    && page >= end
                {
                    self.naive[process].pages[at].forget();
                    self.forget_pins(process, at, 1);
                }
            }
        }
    }

    /// Ends the process that has most areas, to have memory.
    pub(super) fn end_largest(&mut self) {
        let areas =
            |process: &usize| self.spaces[*process].as_ref().map(|space| space.area_count());
        if let Some(process) = (0..self.spaces.len()).max_by_key(areas) {
            self.end(process);
        }
    }

    /// Holds a page of a file; or the number of the error that says why not.
    fn hold(&mut self, file: usize, page: u64) -> Result<Result<Held, u64>, Wrong> {
        let mut reader = Readahead::default();
        let wanted = FilePages::new(page, page + 4);
        for _ in 0..40 {
            let got = self.mm.files().read(self.ids[file], wanted, &mut reader, Pattern::Normal);
            self.settle_races()?;
            match got {
                Ok((held, ahead)) => {
                    if let Some(reads) = ahead {
                        // Readahead: no one call depends on it.
                        let _ = self.carry(reads)?;
                    }
                    return Ok(Ok(held));
                }
                Err(Stop::Need(Need::Read(reads))) => match self.carry(reads)? {
                    Ok(()) => {}
                    Err(error) if self.may_fail(error) => return Ok(Err(code(error))),
                    Err(error) => return Err(Wrong::unexpected(error)),
                },
                Err(Stop::Need(Need::Wait(file))) => self.wait(file)?,
                Err(Stop::Refuse(Error::Invalid))
                    if page >= self.files[file].stamps.len() as u64 =>
                {
                    return Ok(Err(2));
                }
                Err(error @ Stop::Refuse(Error::Poisoned(_)))
                    if self.files[file].is_lost(page as u32) =>
                {
                    return Ok(Err(code(error)));
                }
                Err(error) if self.may_fail(error) => return Ok(Err(code(error))),
                Err(error) => return Err(Wrong::unexpected(error)),
            }
        }
        Err(Wrong::new(Kind::Answer, format!("page {page} of file {file} never comes")))
    }

    fn look(&mut self, file: usize, page: u32) -> Outcome {
        let held = match self.hold(file, u64::from(page))? {
            Ok(held) => held,
            Err(code) => return Ok(code),
        };
        let frames = held.frames();
        let mut wrong = None;
        for ahead in 0..frames.count.min(8) {
            let is = peek(self.machine.ram(), A::PAGE_SHIFT, frames.start.add(ahead)).0;
            let should = self.files[file].stamps.get((u64::from(page) + ahead) as usize).copied();
            if Some(is) != should {
                wrong = Some(format!(
                    "page {} of file {file} reads {is:#x}, should be {should:x?}",
                    u64::from(page) + ahead
                ));
            }
        }
        self.mm.files().release(held);
        wrong.map_or(Ok(frames.count), |what| Err(Wrong::new(Kind::Content, what)))
    }

    fn put(&mut self, file: usize, page: u32) -> Outcome {
        if STORES[file] == Store::ReadOnly {
            return Ok(0);
        }
        let held = match self.hold(file, u64::from(page))? {
            Ok(held) => held,
            Err(code) => return Ok(code),
        };
        let stamp = self.stamp();
        let frame = held.frames().start;
        poke(self.machine.ram(), A::PAGE_SHIFT, frame, (stamp, tail(stamp)));
        let noted = self.mm.files().mark_dirty(self.ids[file], u64::from(page));
        self.mm.files().release(held);
        self.files[file].store(page, stamp);
        noted.map(|()| 1).map_err(Wrong::unexpected)
    }

    fn swap_on(&mut self, slots: u32) -> Outcome {
        // The library takes the first that is free.
        let Some(device) = self.swaps.iter().position(Option::is_none) else { return Ok(0) };
        let got = self.mm.paging().swap_on(u64::from(slots.max(1)));
        match self.judge("swap_on", Ok(()), got)? {
            Some(id) => {
                self.failed.retain(|&(of, _)| of != id.0);
                self.swaps[device] = Some(id);
                self.begin_device(device);
                Ok(1)
            }
            None => Ok(0),
        }
    }

    /// Brings everything back, and takes a device out of use.
    fn swap_off(&mut self, device: usize) -> Outcome {
        let Some(id) = self.swaps[device] else { return Ok(0) };
        self.mm.paging().swap_closing(id, true).map_err(Wrong::unexpected)?;
        let mut excused = !self.bring_files_back(id)?;
        for process in 0..self.spaces.len() {
            excused |= !self.swap_in_all(process, id)?;
            self.unbind(process);
        }
        if !excused {
            self.complete(u64::MAX);
        }
        match self.mm.paging().swap_off(id) {
            Ok(()) => {
                self.swaps[device] = None;
                self.devices.clear(id.0);
                Ok(1)
            }
            Err(Error::InUse(_)) if excused || self.devices.has_pending() => {
                self.mm.paging().swap_closing(id, false).map_err(Wrong::unexpected)?;
                Ok(2)
            }
            Err(error) => Err(Wrong::unexpected(error)),
        }
    }

    /// Whether nothing of a file in memory is on the device any more.
    fn bring_files_back(&mut self, id: FileId) -> Result<bool, Wrong> {
        let (mut from, mut all, mut tries) = (0, true, 0);
        let memory = self.ids[STORES.len() - 1];
        while let Some(page) = self.mm.paging().next_away(memory, id, from) {
            tries += 1;
            let got = {
                let _operation = self.machine.operation("bring back");
                self.mm.paging().bring_back(memory, page)
            };
            self.settle_races()?;
            let done = match got {
                Err(Stop::Need(Need::Read(reads))) => self.carry(reads)?,
                Err(Stop::Need(Need::Wait(file))) => self.wait(file).map(Ok)?,
                done => done,
            };
            match done {
                Ok(()) if tries < 20 => {}
                Ok(()) => return Err(Wrong::new(Kind::Answer, format!("{page} never comes back"))),
                Err(error) if self.may_fail(error) => {
                    (all, from, tries) = (false, page + 1, 0);
                }
                Err(error) => return Err(Wrong::unexpected(error)),
            }
            if self.mm.paging().next_away(memory, id, from) != Some(page) {
                tries = 0;
            }
        }
        Ok(all)
    }

    /// Whether nothing of a process is on the device any more.
    fn swap_in_all(&mut self, process: usize, id: FileId) -> Result<bool, Wrong> {
        let mut from = Vpn::new(0);
        let (mut all, mut tries) = (true, 0);
        while let Some(space) = &self.spaces[process]
            && let Some(page) = self.mm.paging().next_swapped(space, id, from)
        {
            tries += 1;
            let got =
                self.call(process, "swap in", |mm, space| mm.paging().swap_in_page(space, page))?;
            let done = match got {
                Ok(()) => Ok(()),
                Err(Stop::Need(Need::Read(reads))) => self.carry(reads)?,
                Err(Stop::Need(Need::Wait(file))) => {
                    self.wait(file)?;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(()) if tries < 20 => {}
                Ok(()) => return Err(Wrong::new(Kind::Answer, format!("{page} never comes back"))),
                Err(error) if self.may_fail(error) => {
                    (all, from, tries) = (false, page.add(1), 0);
                }
                Err(error) => return Err(Wrong::unexpected(error)),
            }
            if self.mm.paging().next_swapped(self.space(process)?, id, from) != Some(page) {
                tries = 0;
            }
        }
        Ok(all)
    }
}
