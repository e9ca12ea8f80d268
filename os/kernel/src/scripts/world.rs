//! The processes of a script, what each of their pages must be, and how a step is judged.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use quire::cache::{FileId, Store};
use quire::check;
use quire::fault::SizePolicy;
use quire::space::{AreaFlags, Space};
use quire::units::{Access, Order, Vpn};
use quire::{Error, Need, Stop};
use quire_script::{Bounds, Dice, File, Generator, Process, Step, Why, Window, tail};

use super::swap::Swap;
use crate::disk;
use crate::isa::{self, Context, Format, Trap};
use crate::memory::{self, Memory, PAGE, mm, user};
use crate::task::compact;

/// How many processes there are.
const PROCESSES: u32 = 4;

/// The window of all processes: one whole table of leaves, and something before and behind.
pub(super) const WINDOW: Window = Window { base: Vpn::new(4 * 512 - 300), pages: 1200 };

/// Pages of the file.
const FILE_PAGES: u32 = 200;

/// Steps between two checks of everything.
const EVERY: u64 = 250;

/// How often an access is tried before it is said never to end.
const TRIES: usize = 80;

/// The orders that a folio may have.
const ORDERS: core::ops::RangeInclusive<u8> = 1..=9;

/// As an instruction these 32 bits trap, on all ISAs: `int3`, `udf`; on riscv64 the second half
/// does, and the first one changes a register.
const TRAPS: u64 = 0xcc;

/// Everything that a script is about.
pub(super) struct World {
    seed: u64,
    script: Generator,
    step: Step,
    /// How many steps were before it.
    number: u64,
    pub(super) processes: Vec<Option<Arc<Memory>>>,
    pub(super) naive: Vec<Process>,
    pub(super) file: FileId,
    pub(super) files: [File; 1],
    pub(super) swap: Swap,
    /// How many words were stored.
    stamps: u64,
    /// Which page of which process each CPU has touched last.
    last: Vec<Option<(usize, usize)>>,
    /// Frames that were neither free nor the library's at first, but for the heap's.
    held: u64,
    /// The policy that there was.
    sizes: Vec<(Order, SizePolicy)>,
    copy_most: Order,
}

impl World {
    /// A new world; its seed determines the steps.
    pub(super) fn new(seed: u64) -> Self {
        let bounds = Bounds {
            cpus: isa::cpu_count() as u32,
            processes: PROCESSES,
            window: WINDOW.pages,
            pages: FILE_PAGES,
        };
        let held = held(&[]).unwrap_or_else(|violation| panic!("{violation}"));
        let mut script = Generator::new(seed, bounds);
        let step = script.next();
        let file = mm().files().open(Store::Memory, u64::from(FILE_PAGES), Order::ZERO);
        let policy = &mm().policy();
        let orders = ORDERS.map(Order::new);
        let world = Self {
            seed,
            script,
            step: step.unwrap_or_else(|| panic!("a script without steps")),
            number: 0,
            processes: (0..PROCESSES).map(|_| None).collect(),
            naive: vec![Process::new(WINDOW.pages as usize); PROCESSES as usize],
            file: file.unwrap_or_else(|error| panic!("open_file: {error}")),
            files: [File::new(vec![0; FILE_PAGES as usize])],
            swap: Swap::new(),
            stamps: 0,
            last: vec![None; isa::cpu_count()],
            held,
            sizes: orders.clone().map(|order| (order, policy.size(order))).collect(),
            copy_most: policy.copy_most(),
        };
        let mut dice = Dice::new(seed);
        for order in orders {
            let wanted = [SizePolicy::Always, SizePolicy::Never, SizePolicy::Never];
            // Not every format has every size.
            let _ = policy.set_size(order, dice.pick(&wanted));
        }
        world
    }

    /// Its seed.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether `steps` steps were carried out.
    pub(super) fn is_over(&self, steps: u64) -> bool {
        self.number >= steps
    }

    /// The CPU that carries the next step out.
    pub(super) fn next_cpu(&self) -> usize {
        self.step.cpu as usize % isa::cpu_count()
    }

    /// Carries the next step out, on this CPU.
    pub(super) fn step(&mut self) {
        let step = self.step;
        let process = step.process as usize % self.processes.len();
        self.touch_again();
        self.spawn(process);
        self.act(&step, process);
        self.number += 1;
        if self.number.is_multiple_of(EVERY) {
            self.check();
        }
        if let Some(next) = self.script.next() {
            self.step = next;
        }
    }

    /// This CPU touches the last page once more, before it leaves the space: its TLB may have an
    /// entry that others have changed in between.
    fn touch_again(&mut self) {
        let Some((process, at)) = self.last[isa::cpu().index()] else { return };
        match self.processes[process].is_some() {
            true if self.number.is_multiple_of(3) => self.store(process, at),
            true => self.load(process, at),
            false => {}
        }
    }

    /// Ends everything, once no CPU is in a space any more, and looks whether something is left;
    /// how many steps there were.
    pub(super) fn finish(&mut self) -> u64 {
        for process in 0..self.processes.len() {
            for at in 0..WINDOW.pages as usize {
                if self.processes[process].is_some() {
                    self.load(process, at);
                }
            }
        }
        self.check();
        memory::switch(None);
        self.processes.iter_mut().for_each(|process| *process = None);
        // The file's pages may be on the device.
        mm().files().close(self.file).unwrap_or_else(|error| self.fail(format_args!("{error}")));
        self.swap.off();
        for &(order, choice) in &self.sizes {
            let _ = mm().policy().set_size(order, choice);
        }
        mm().policy().set_copy_most(self.copy_most);
        match held(&[]) {
            Ok(held) if held == self.held => {}
            other => self.fail(format_args!("{other:?} frames are held, not {}", self.held)),
        }
        self.number
    }

    /// Ends the machine, and prints the seed and the step.
    pub(super) fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        panic!("seed {}, step {}, `{}`: {what}", self.seed, self.number, self.step)
    }

    /// Runs all walkers, and compares the dirty bits since the last check.
    fn check(&self) {
        let all = memory::spaces();
        let spaces: Vec<&Space<Format>> = all.iter().map(|memory| memory.space()).collect();
        if let Err(violation) = held(&spaces) {
            self.fail(format_args!("{violation}"));
        }
        (0..self.processes.len()).for_each(|process| self.check_written(process));
    }

    /// Every page that was written since tracking began is reported dirty.
    fn check_written(&self, process: usize) {
        let Some(memory) = &self.processes[process] else { return };
        let pages = &self.naive[process].pages;
        let mut told = vec![false; pages.len()];
        for area in mm().spaces().areas(memory.space(), WINDOW.span((0, pages.len()))) {
            mm().spaces().runs(memory.space(), area.span, &mut |seen| {
                if quire::is_written(&area, seen) {
                    let all = seen.pages.start.get()..seen.pages.end.get();
                    all.filter_map(|page| WINDOW.at(Vpn::new(page))).for_each(|at| told[at] = true);
                }
            });
        }
        for (at, page) in pages.iter().enumerate() {
            // A page of a file is clean again after writeback.
            let must =
                page.written && page.flags.contains(AreaFlags::TRACKED) && !page.is_shared_file();
            if must && !told[at] {
                self.fail(format_args!("page {at} of {process} was written; nothing says so"));
            }
        }
    }

    /// Begins a process where there is none.
    pub(super) fn spawn(&mut self, process: usize) {
        if self.processes[process].is_none() {
            let memory = Memory::new().unwrap_or_else(|error| panic!("no process: {error}"));
            self.processes[process] = Some(memory);
            self.naive[process] = Process::new(WINDOW.pages as usize);
        }
    }

    /// The final answer of a call; reads the pages of the device that it needs.
    pub(super) fn call<R, E: Into<Stop>>(
        &self,
        process: usize,
        work: impl Fn(&Space<Format>) -> Result<R, E>,
    ) -> Result<R, Error> {
        let Some(memory) = &self.processes[process] else {
            self.fail(format_args!("there is no process {process}"));
        };
        let mut done = work(memory.space());
        for _ in 0..WINDOW.pages {
            match done.map_err(E::into) {
                Ok(done) => return Ok(done),
                Err(Stop::Refuse(error)) => return Err(error),
                Err(Stop::Need(need)) => self.bring(need),
            }
            done = work(memory.space());
        }
        self.fail(format_args!("it never has what it lacks"))
    }

    /// Brings what a call needs.
    fn bring(&self, need: Need) {
        match need {
            Need::Read(reads) if self.swap.read(reads) => {}
            Need::Compact(order) => compact::for_fault(order),
            need => self.fail(format_args!("{need:?} is not to be had")),
        }
    }

    /// A program's load, or its store.
    fn access(&self, at: usize, store: Option<u64>) -> Result<u64, ()> {
        let first = WINDOW.vpn(at).get() * PAGE;
        let last = first + PAGE - 8;
        let done = match store {
            Some(word) => disk::leaving(|| {
                user::write(first, &word).and_then(|()| user::write(last, &tail(word)))
            })
            .0
            .map(|()| word),
            None => disk::leaving(|| {
                let word: u64 = user::read(first)?;
                Ok((word, user::read::<u64>(last)?))
            })
            .0
            .map(|(word, end)| match end == tail(word) {
                true => word,
                false => self.fail(format_args!("page {at} is {word:#x} and ends with {end:#x}")),
            }),
        };
        done.map_err(|_| ())
    }

    /// Goes to user mode at a page; whether that could be fetched. The instruction there traps at
    /// once.
    fn fetch(&self, at: usize) -> Result<u64, ()> {
        let start = WINDOW.vpn(at).get() * PAGE;
        loop {
            match isa::run(&mut Context::start(start, 0)) {
                Trap::Interrupt => {}
                Trap::Fault { address, access: Access::Execute } if address == start => {
                    return Err(());
                }
                Trap::Call => self.fail(format_args!("page {at} makes calls")),
                Trap::Fault { .. } | Trap::Signal { .. } => return Ok(0),
            }
        }
    }

    /// Touches a page until it is there, or may not be touched.
    fn touch(&self, process: usize, at: usize, access: Access, store: u64) -> Result<u64, Error> {
        memory::switch(self.processes[process].as_ref());
        for _ in 0..TRIES {
            let done = match access {
                Access::Execute => self.fetch(at),
                Access::Write => self.access(at, Some(store)),
                Access::Read => self.access(at, None),
            };
            if let Ok(word) = done {
                return Ok(word);
            }
            match memory::fault(WINDOW.vpn(at).get() * PAGE, access) {
                Ok(_) => {}
                Err(Stop::Need(need)) => self.bring(need),
                Err(Stop::Refuse(error)) => return Err(error),
            }
        }
        self.fail(format_args!("{access:?} of page {at} never ends"))
    }

    /// A load from a page.
    pub(super) fn load(&mut self, process: usize, at: usize) {
        self.last[isa::cpu().index()] = Some((process, at));
        let got = self.touch(process, at, Access::Read, 0);
        let expected = self.naive[process].access(&self.files, at, Access::Read);
        match (expected, got) {
            (Ok(_), Ok(word)) if self.naive[process].settle(&self.files, at, word) => {}
            (expected, got) => self.judge_refusal(process, at, expected, got),
        }
    }

    /// A fetch from a page.
    pub(super) fn run(&mut self, process: usize, at: usize) {
        let got = self.touch(process, at, Access::Execute, 0);
        match (self.naive[process].access(&self.files, at, Access::Execute), got) {
            (Ok(_), Ok(_)) => {}
            (expected, got) => self.judge_refusal(process, at, expected, got),
        }
    }

    /// A store to a page.
    pub(super) fn store(&mut self, process: usize, at: usize) {
        // None before it had this.
        self.stamps += 1;
        let word = self.stamps << 32 | TRAPS;
        self.last[isa::cpu().index()] = Some((process, at));
        let got = self.touch(process, at, Access::Write, word);
        match (self.naive[process].access(&self.files, at, Access::Write), got) {
            (Ok(_), Ok(_)) => {
                let copied = mm().policy().copy_most().pages() as usize;
                self.naive[process].store(&mut self.files, at, word, copied);
            }
            (expected, got) => self.judge_refusal(process, at, expected, got),
        }
    }

    /// Judges an access that was refused, or should have been.
    fn judge_refusal(
        &self,
        process: usize,
        at: usize,
        expected: Result<u64, Why>,
        got: Result<u64, Error>,
    ) {
        let is_right = match (expected, got) {
            (Err(why), Err(error)) => why_of(error) == Some((WINDOW.vpn(at), why)),
            _ => false,
        };
        if !is_right {
            let page = self.naive[process].pages[at];
            self.fail(format_args!("page {at}: {got:x?}, expected {expected:x?} of {page:?}"));
        }
    }

    /// Whether an error about a page is right for the process that reads it.
    pub(super) fn is_true(&self, process: usize, error: Error) -> bool {
        let Some((page, why)) = why_of(error) else { return false };
        let found = WINDOW
            .at(page)
            .map(|at| self.naive[process].access(&self.files, at, Access::Read) == Err(why));
        found.unwrap_or(false)
    }
}

/// The page and the reason in an error.
fn why_of(error: Error) -> Option<(Vpn, Why)> {
    match error {
        Error::NoArea(page) => Some((page, Why::NoArea)),
        Error::Denied(page, ..) => Some((page, Why::Denied)),
        Error::Guarded(page) => Some((page, Why::Guarded)),
        Error::Missing(page) => Some((page, Why::Missing)),
        _ => None,
    }
}

/// Runs all walkers, where `spaces` are all spaces; returns the kernel's own frames, without the
/// heap's.
///
/// # Errors
/// The first violation.
fn held(spaces: &[&Space<Format>]) -> Result<u64, check::Violation> {
    let totals = check::system(mm(), spaces)?;
    Ok(totals.held - memory::taken_bytes() / PAGE)
}
