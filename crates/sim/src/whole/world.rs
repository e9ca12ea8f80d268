//! The world in which a script runs: the machine, the memory manager, the processes with their
//! models, and the disks.

use std::collections::BTreeSet;

use quire::cache::{FileId, Reads, Store};
use quire::inject::FailPlan;
use quire::space::{GroupId, Space};
use quire::{Error, Need, Pinned, ScanCursor, Stop};
use quire_arch::{Arch, Level};
use quire_hw::FrameRun;
use quire_machine::{Cpu, Machine, Operation, Race, Raced};
use quire_script::{Dice, Fault, File, Part, Process, Step, Verb, Window, tail};
use quire_units::{Access, Asid, Order, PageSpan, Pfn, VirtAddr, Vpn};

use super::act_frames::Shows;
use super::act_groups::Group;
use super::act_reserved::Reserved;
use super::device::{Devices, LOOSE, Transfer};
use super::everyone::Everyone;
use super::exact::Exact;
use super::packed::Packed;
use super::run::Moves;
use super::setup::Setup;
use super::violation::{Kind, Wrong};
use crate::system::{HostedMm, SWAPS};

/// The kinds of the three files.
pub(super) const STORES: [Store; 3] = [Store::ReadWrite, Store::ReadOnly, Store::Memory];

/// Slots of the device for moves.
const MOVES: u64 = 600;

/// How often an access is tried before it is said never to end.
const TRIES: usize = 80;

/// A page that a device has.
pub(super) struct Pin {
    pub(super) pinned: Pinned,
    /// The process and the page that have it, as long as one has.
    pub(super) place: Option<(usize, usize)>,
}

/// Everything.
pub(super) struct World<'w, 'm, 'r, A: Arch> {
    pub(super) setup: Setup,
    pub(super) machine: &'m Machine<'r>,
    pub(super) mm: &'w HostedMm<'m, 'r, A>,
    cpu: Option<Cpu<'m, 'r>>,
    /// Which process each CPU runs.
    pub(super) running: Vec<Option<usize>>,
    pub(super) spaces: Vec<Option<Space<A>>>,
    pub(super) naive: Vec<Process>,
    pub(super) files: Vec<File>,
    pub(super) ids: Vec<FileId>,
    /// The device for moves.
    pub(super) moves: Option<FileId>,
    /// The swap devices.
    pub(super) swaps: [Option<FileId>; SWAPS],
    pub(super) devices: Devices<'w>,
    pub(super) pins: Vec<Pin>,
    pub(super) hoard: Vec<FrameRun>,
    /// Compactions up to now.
    pub(super) moved: Moves,
    /// Frames that areas may show.
    pub(super) shows: Shows,
    /// Frames that have failed.
    pub(super) bad: Vec<Pfn>,
    /// Those that were mended as well: content that was lost with them stays lost.
    pub(super) failed_ever: BTreeSet<Pfn>,
    pub(super) groups: Vec<Group>,
    /// The pool of reserved folios.
    pub(super) reserved: Option<Reserved>,
    /// How many pages the largest copy of a shared page may have.
    pub(super) copied: usize,
    /// A group that is over its limit, and has nothing that could be paged out.
    pub(super) doomed: Option<GroupId>,
    /// Where the scan goes on.
    pub(super) cursor: ScanCursor,
    /// Pages of files that could not be read; the library reports each once.
    pub(super) failed: BTreeSet<(u32, u64)>,
    /// Something has failed on purpose in this step.
    pub(super) faulty: Fault,
    /// A copy has failed at some time.
    pub(super) poisons: bool,
    /// Loads of other CPUs that found a word that was not there before the step.
    late: Vec<Raced>,
    /// A race has happened in this step.
    pub(super) raced: bool,
    pub(super) now: u64,
    /// The step in which memory was made free last.
    pub(super) relieved: u64,
    stamps: u64,
    /// The model of what is in memory, in an exact world.
    pub(super) exact: Option<Exact>,
}

impl<'w, 'm, 'r, A: Arch> World<'w, 'm, 'r, A> {
    pub(super) fn new(
        setup: Setup,
        machine: &'m Machine<'r>,
        mm: &'w HostedMm<'m, 'r, A>,
        kept: FrameRun,
        packed: Vec<Packed<'w>>,
    ) -> Result<Self, Wrong> {
        let window = setup.window as usize;
        let processes = setup.processes as usize;
        let mut world = Self {
            setup,
            machine,
            mm,
            cpu: Some(machine.cpu(0)),
            running: vec![None; setup.cpus as usize],
            spaces: (0..processes).map(|_| None).collect(),
            naive: vec![Process::new(window); processes],
            files: Vec::new(),
            ids: Vec::new(),
            moves: None,
            swaps: [None; SWAPS],
            devices: Devices::new(packed),
            pins: Vec::new(),
            hoard: Vec::new(),
            moved: Moves::default(),
            shows: Shows::new(kept),
            bad: Vec::new(),
            failed_ever: BTreeSet::new(),
            groups: Vec::new(),
            reserved: None,
            copied: 1,
            doomed: None,
            cursor: ScanCursor::default(),
            failed: BTreeSet::new(),
            faulty: Fault::None,
            poisons: false,
            late: Vec::new(),
            raced: false,
            now: 0,
            relieved: 0,
            stamps: 0,
            exact: (setup.exact == 1).then(|| Exact::new(processes)),
        };
        world.open()?;
        Ok(world)
    }

    /// Files, the swap devices, the policy.
    fn open(&mut self) -> Result<(), Wrong> {
        for (at, store) in STORES.into_iter().enumerate() {
            let pages = u64::from(self.setup.pages);
            let id = self.mm.files().open(store, pages, Order::ZERO).map_err(Wrong::unexpected)?;
            let mut file = File::new(vec![0; pages as usize]);
            if store != Store::Memory {
                for (page, stamp) in file.stamps.iter_mut().enumerate() {
                    *stamp = 1 << 50 | (at as u64) << 32 | page as u64;
                    self.devices.put(id.0, page as u64, (*stamp, tail(*stamp)));
                }
            }
            self.files.push(file);
            self.ids.push(id);
        }
        self.files.push(File::new(vec![0; self.numbers()]));
        self.open_reserved()?;
        self.bound_copies();
        for (device, slots) in [self.setup.slots, self.setup.more].into_iter().enumerate() {
            if slots > 0 {
                self.swaps[device] = self.mm.paging().swap_on(u64::from(slots)).ok();
                self.begin_device(device);
            }
        }
        if self.exact.is_none() {
            self.moves = self.mm.paging().moves_on(MOVES).ok();
        }
        let sizes = self.setup.sizes;
        for order in (1..19).filter(|order| sizes >> order & 1 != 0).map(Order::new) {
            let always = quire::fault::SizePolicy::Always;
            // Not every format has every size.
            let _ = self.mm.policy().set_size(order, always);
        }
        Ok(())
    }

    /// A swap device is empty, and what the setup says.
    pub(super) fn begin_device(&mut self, device: usize) {
        let Some(id) = self.swaps[device] else { return };
        self.devices.clear(id.0);
        if self.setup.packed >> device & 1 != 0 {
            self.devices.pack(id.0);
        }
    }

    pub(super) fn cpu(&self) -> &Cpu<'m, 'r> {
        match &self.cpu {
            Some(cpu) => cpu,
            None => unreachable!("a CPU is let go only to take another"),
        }
    }

    pub(super) fn take_cpu(&mut self, number: usize) {
        if self.cpu().number().index() != number {
            self.cpu = None;
            self.cpu = Some(self.machine.cpu(number));
        }
    }

    /// The window of all processes: a boundary of tables lies in the middle. In an exact world it
    /// is one of the tables above the last, and blocks lie in the window as a whole if they can.
    pub(super) fn window(&self) -> Window {
        let (table, pages) = (A::entries(Level::LAST) as u64, self.setup.window);
        let half = u64::from(pages) / 2;
        let block = A::block_order().pages();
        let base = match self.exact {
            None => 4 * table - half.min(table),
            Some(_) => {
                let boundary = (block << A::LEVELS[1].index_bits).min(A::USER_PAGES / 2);
                boundary - if half < block { half } else { half.next_multiple_of(block) }
            }
        };
        Window { base: Vpn::new(base), pages }
    }

    pub(super) fn vpn(&self, at: usize) -> Vpn {
        self.window().vpn(at)
    }

    pub(super) fn span(&self, at: usize, count: usize) -> PageSpan {
        self.window().span((at, count))
    }

    /// The place of a page in a window, if it is in it.
    pub(super) fn at(&self, page: Vpn) -> Option<usize> {
        self.window().at(page)
    }

    /// A page of a window and as many as there are behind it, up to `count`.
    pub(super) fn part(&self, page: u32, count: u32) -> Part {
        self.window().part(page, count)
    }

    pub(super) fn addr(&self, at: usize) -> VirtAddr {
        self.vpn(at).addr(A::PAGE_SHIFT)
    }

    /// A word that is new.
    pub(super) fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// How many pages a store may copy with the one it is for.
    pub(super) fn copied(&self) -> usize {
        self.copied
    }

    /// All processes that there are.
    pub(super) fn all(&self) -> Everyone<'_, A> {
        Everyone::new(self.spaces.iter().flatten(), self.stamps)
    }

    pub(super) fn space(&self, process: usize) -> Result<&Space<A>, Wrong> {
        self.spaces[process].as_ref().ok_or(Wrong::new(Kind::Answer, "the process is gone"))
    }

    /// Begins a process where there is none; whether there is one now.
    pub(super) fn spawn(&mut self, process: usize) -> bool {
        if self.spaces[process].is_none() {
            let window = self.span(0, self.setup.window as usize);
            self.spaces[process] = self.mm.space(Asid(process as u16 + 1), window).ok();
            self.naive[process] = Process::new(self.setup.window as usize);
        }
        self.spaces[process].is_some()
    }

    /// Ends a process.
    pub(super) fn end(&mut self, process: usize) {
        let own = self.cpu().number().index();
        for cpu in 0..self.running.len() {
            if self.running[cpu] == Some(process) {
                self.running[cpu] = None;
                self.take_cpu(cpu);
                self.cpu().leave();
            }
        }
        self.take_cpu(own);
        self.forget_pins(process, 0, self.setup.window as usize);
        if let Some(space) = self.spaces[process].take() {
            let _operation = self.machine.operation("destroy");
            self.mm.destroy(space);
        }
        self.naive[process] = Process::new(self.setup.window as usize);
        if let Some(exact) = &mut self.exact {
            exact.resident[process].clear();
        }
    }

    /// Lets this CPU run a process.
    pub(super) fn run_in(&mut self, process: usize) -> Result<(), Wrong> {
        let number = self.cpu().number();
        if self.running[number.index()] != Some(process) {
            let space = self.space(process)?;
            space.enter(number);
            self.cpu().switch(space.root(), space.asid());
            self.running[number.index()] = Some(process);
        }
        Ok(())
    }

    /// Devices that had pages of a process have other memory than it from now on.
    pub(super) fn forget_pins(&mut self, process: usize, at: usize, count: usize) {
        for pin in &mut self.pins {
            let within =
                |place: &(usize, usize)| place.0 == process && (at..at + count).contains(&place.1);
            if pin.place.as_ref().is_some_and(within) {
                pin.place = None;
            }
        }
    }

    /// A call that changes a process, as one operation.
    pub(super) fn call<R, E>(
        &mut self,
        process: usize,
        name: &'static str,
        work: impl FnOnce(&HostedMm<'m, 'r, A>, &Space<A>) -> Result<R, E>,
    ) -> Result<Result<R, E>, Wrong> {
        self.operate(process, self.machine.operation(name), work)
    }

    /// The same where no page is on a device, so that the call needs nothing.
    pub(super) fn exact_call<R>(
        &mut self,
        process: usize,
        name: &'static str,
        work: impl FnOnce(&HostedMm<'m, 'r, A>, &Space<A>) -> Result<R, Stop>,
    ) -> Result<Result<R, Error>, Wrong> {
        match self.call(process, name, work)? {
            Ok(done) => Ok(Ok(done)),
            Err(Stop::Refuse(error)) => Ok(Err(error)),
            Err(Stop::Need(need)) => Err(Wrong::unexpected(need)),
        }
    }

    /// The same for calls that clear dirty bits on purpose.
    pub(super) fn cleaning_call<R, E>(
        &mut self,
        process: usize,
        name: &'static str,
        work: impl FnOnce(&HostedMm<'m, 'r, A>, &Space<A>) -> Result<R, E>,
    ) -> Result<Result<R, E>, Wrong> {
        self.operate(process, self.machine.operation(name).cleans(), work)
    }

    /// Reclaiming, as one operation: it makes pages clean on purpose where it looks for zeroes.
    pub(super) fn reclaiming(&self, name: &'static str) -> Operation<'m, 'r> {
        let operation = self.machine.operation(name);
        match self.mm.policy().zeroes_most() {
            Some(_) => operation.cleans(),
            None => operation,
        }
    }

    pub(super) fn operate<R, E>(
        &mut self,
        process: usize,
        operation: Operation<'m, 'r>,
        work: impl FnOnce(&HostedMm<'m, 'r, A>, &Space<A>) -> Result<R, E>,
    ) -> Result<Result<R, E>, Wrong> {
        let done = work(self.mm, self.space(process)?);
        drop(operation);
        self.settle_races()?;
        Ok(done)
    }

    /// One access of a program; what it loaded or stored, or why it may not.
    pub(super) fn touch(
        &mut self,
        process: usize,
        at: usize,
        access: Access,
        store: u64,
    ) -> Result<Result<u64, Stop>, Wrong> {
        self.run_in(process)?;
        if access == Access::Write {
            self.naive[process].pages[at].bare();
        }
        let (addr, page) = (self.addr(at), self.vpn(at));
        let mut relieved = false;
        for _ in 0..TRIES {
            let done = match access {
                Access::Read => self.cpu().read(addr),
                Access::Write => self.cpu().write(addr, store).map(|()| store),
                Access::Execute => self.cpu().fetch(addr),
            };
            if let Ok(word) = done {
                return Ok(Ok(word));
            }
            match self.call(process, "fault", |mm, space| mm.fault(space, page, access))? {
                Ok(_) => {}
                Err(Stop::Need(Need::Read(reads))) => {
                    if let Err(error) = self.carry(reads)? {
                        return Ok(Err(error));
                    }
                }
                Err(Stop::Need(Need::Wait(file))) => self.wait(file)?,
                Err(Stop::Need(Need::Compact(order))) => self.compact_for(order)?,
                Err(Stop::Refuse(Error::OverLimit(group)))
                    if self.relieve_group(process, group)? => {}
                Err(Stop::Refuse(Error::NoMemory(_))) if !relieved && self.may_relieve() => {
                    relieved = true;
                    self.relieve()?;
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        Err(Wrong::new(Kind::Answer, format!("{access:?} at {page} never ends")))
    }

    /// Carries out a plan to read. A slow transfer is only begun: the answer is that it is busy.
    pub(super) fn carry(&mut self, mut reads: Reads) -> Result<Result<(), Stop>, Wrong> {
        let mut slow = false;
        loop {
            match self.mm.files().next_read(&mut reads) {
                Ok(Some(read)) => slow |= !self.transfer(Transfer::Read(read)),
                Ok(None) if slow => return Ok(Err(Stop::Need(Need::Wait(reads.file())))),
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error.into())),
            }
        }
    }

    /// Begins a transfer; whether it is done already.
    pub(super) fn transfer(&mut self, transfer: Transfer) -> bool {
        let begun = self.devices.begin(self.now, transfer);
        let is_done = begun.is_some();
        if let Some((transfer, fault)) = begun {
            self.finish_transfer(transfer, fault);
        }
        is_done
    }

    fn finish_transfer(&mut self, transfer: Transfer, fault: Fault) {
        let id = match &transfer {
            Transfer::Read(read) => read.file(),
            Transfer::Write(write) => write.file(),
        };
        let end = self.mm.files().get(id).map_or(0, |file| file.pages());
        let ram = self.machine.ram();
        let done = self.devices.carry(ram, A::PAGE_SHIFT, (transfer, fault), end);
        let (read, write) = (done.read(), done.write());
        match done.transfer {
            Transfer::Read(one) => {
                if done.failed {
                    let pages = one.pages();
                    self.failed.extend((pages.start..pages.end).map(|page| (id.0, page)));
                }
                self.mm.files().read_done(one, read);
            }
            Transfer::Write(one) => self.mm.files().write_done(one, write),
        }
    }

    /// Ends the transfers that are due by step `now`.
    pub(super) fn complete(&mut self, now: u64) {
        while let Some(transfer) = self.devices.due(now) {
            self.finish_transfer(transfer, Fault::None);
        }
    }

    /// Waits for all transfers under way.
    pub(super) fn wait(&mut self, file: FileId) -> Result<(), Wrong> {
        if !self.devices.has_pending() {
            let what = format!("file {} is busy, but nothing is under way", file.0);
            return Err(Wrong::new(Kind::Answer, what));
        }
        self.complete(u64::MAX);
        Ok(())
    }

    /// Arms the fault of `step`.
    pub(super) fn arm(&mut self, step: &Step) {
        self.faulty = step.fault;
        self.raced = false;
        match step.fault {
            Fault::None => {}
            Fault::Alloc => self.mm.bare_phys().set_fail_plan(FailPlan::Nth(u64::from(step.nth))),
            Fault::Copy => {
                self.poisons = true;
                self.machine.faults().fail_copy(u64::from(step.nth));
            }
            Fault::Fail | Fault::Short | Fault::Slow => self.devices.plan(step.fault, step.nth),
            Fault::Race => {
                let races = self.races(step);
                self.machine.races().arm(races);
            }
        }
    }

    /// Nothing goes wrong any more.
    pub(super) fn disarm(&mut self) {
        match self.faulty {
            Fault::None => {}
            Fault::Alloc => self.mm.bare_phys().set_fail_plan(FailPlan::Never),
            Fault::Copy => self.machine.faults().fail_copy(0),
            Fault::Fail | Fault::Short | Fault::Slow => self.devices.plan(Fault::None, 0),
            Fault::Race => self.machine.races().arm(Vec::new()),
        }
        self.faulty = Fault::None;
    }

    /// The accesses of other CPUs during the step. Stores are left out where the model could not
    /// tell whether they came before or after the step.
    fn races(&mut self, step: &Step) -> Vec<Race> {
        let mut dice = Dice::new(u64::from(step.nth));
        let own = self.cpu().number().index();
        let loads_only =
            matches!(step.verb, Verb::Move | Verb::Map | Verb::Show | Verb::Frames | Verb::Resize)
                || matches!(step.verb, Verb::Reserve | Verb::Shift | Verb::Punch);
        if step.verb == Verb::Fork && !self.pins.is_empty() {
            return Vec::new();
        }
        let window = u64::from(self.setup.window);
        let mut races = Vec::new();
        for _ in 0..1 + dice.roll(8) {
            let cpu = dice.roll(self.running.len() as u64) as usize;
            let near = (u64::from(step.args[0]) + dice.roll(16)) % window;
            let page = if dice.roll(4) == 0 { dice.roll(window) } else { near };
            let (at, stores) = (dice.roll(10) as u32, dice.roll(2) == 0 && !loads_only);
            let Some(process) = self.running[cpu].filter(|_| cpu != own) else { continue };
            let store = stores.then(|| self.stamp() | LOOSE);
            let place = (process, page as u32);
            races.push(Race { at, cpu, place, addr: self.addr(page as usize), store });
        }
        races
    }

    /// Judges the accesses of other CPUs as if they had been before the step.
    pub(super) fn settle_races(&mut self) -> Result<(), Wrong> {
        if !self.machine.races().is_armed() {
            return Ok(());
        }
        let copied = self.copied();
        for (race, found) in self.machine.races().done() {
            let Some(word) = found else { continue };
            self.raced = true;
            let (process, at) = (race.place.0, race.place.1 as usize);
            let naive = &mut self.naive[process];
            let access = if race.store.is_some() { Access::Write } else { Access::Read };
            if naive.access(&self.files, at, access).is_err() {
                self.late.push((race, found));
            } else if race.store.is_some() {
                naive.store(&mut self.files, at, word, copied);
            } else if !naive.settle(&self.files, at, word) {
                self.late.push((race, found));
            }
        }
        Ok(())
    }

    /// Judges the other accesses of other CPUs as if they had been after the step.
    pub(super) fn settle_late(&mut self) -> Result<(), Wrong> {
        let copied = self.copied();
        for (race, found) in std::mem::take(&mut self.late) {
            let (process, at) = (race.place.0, race.place.1 as usize);
            let naive = &mut self.naive[process];
            let access = if race.store.is_some() { Access::Write } else { Access::Read };
            let word = found.unwrap_or_default();
            let allowed = naive.access(&self.files, at, access);
            match (allowed, race.store) {
                (Ok(_), Some(_)) => naive.store(&mut self.files, at, word, copied),
                (Ok(_), None) if naive.settle(&self.files, at, word) => {}
                (is, _) => {
                    let what = format!(
                        "meanwhile CPU {}, process {process}, page {at}: {access:?} of {word:#x} \
                         succeeded, which is right neither before nor after ({is:x?})",
                        race.cpu
                    );
                    return Err(Wrong::new(Kind::Race, what));
                }
            }
        }
        Ok(())
    }
}
