//! A machine's life: programs begin, touch memory and end, files are read and dropped, the kernel
//! takes frames, until the month is over.
//!
//! ```text
//!   each step (ten minutes)   1 end what is due
//!                             2 disturb: give parts back, page out, fork, pin
//!                             3 grow, act by act, until memory is as full as planned
//! ```
//!
//! Growth is cut into small acts of random programs, so that frames with long and short lives lie
//! side by side. All chances come from one seed, and the number of acts does not depend on luck, so
//! policies differ in the frames that they hand out and in nothing else at first.

use anyhow::{Context, Result, ensure};
use quire::cache::{FileId, FilePages, Readahead, Store};
use quire::fault::{Defrag, SizePolicy};
use quire::limits::{GROUP_ORDER, ORDER_MAX};
use quire::{Pinned, check};
use quire_arch::X86_64;
use quire_hw::FrameRun;
use quire_machine::{Config, Ram};
use quire_sim::system::{self, HostedMm};
use quire_units::{Asid, Order};

use super::ledger::Ledger;
use super::plan::{Plan, Policy, STEPS};
use super::process::{GIANT, Kind, Process, spread};
use crate::bench::scene::CPU;

/// The most programs and files at a time.
const PROCESSES: u16 = 4000;
const FILES: usize = 48;
/// The longest lives, in steps: of programs and files two weeks, of the kernel's frames half a
/// year.
const LONGEST: u64 = 14 * STEPS;
const KERNEL_LONGEST: u64 = 180 * STEPS;
/// Pages of one act of growth, by kind, and its weight: the same for each byte, and then base pages
/// 3, 64K folios 2, blocks 3, files 2 of ten.
const CHUNK: u64 = 32;
const MIDDLE_CHUNK: u64 = 64;
const WEIGHTS: [(Act, u32); 4] = [
    (Act::Grow(Kind::Pages), 240),
    (Act::Grow(Kind::Middle), 80),
    (Act::Grow(Kind::Blocks), 15),
    (Act::Read, 80),
];
/// One of as many acts of blocks is about 1G, where that is wanted.
const GIANT_ONE_IN: u32 = 2000;
/// Acts of growth after which a step ends even if memory is not full.
const ACTS_MOST: u32 = 100_000;
/// Slots of the device for moves.
const MOVE_SLOTS: u64 = 1024;

/// An act of growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Grow(Kind),
    Read,
}

/// A file that is read from front to back.
pub(super) struct Reading {
    pub(super) id: FileId,
    pub(super) reader: Readahead,
    pub(super) at: u64,
    pub(super) pages: u64,
    pub(super) ends: u64,
}

/// A pinned page of a program.
pub(super) struct Pin {
    pub(super) pinned: Pinned,
    pub(super) owner: Asid,
    pub(super) ends: u64,
}

/// The state of a life.
pub(super) struct Life<'a, 'm, 'r> {
    pub(super) mm: &'a HostedMm<'m, 'r, X86_64>,
    pub(super) plan: &'a Plan,
    pub(super) rng: fastrand::Rng,
    pub(super) now: u64,
    pub(super) tags: Vec<u16>,
    pub(super) processes: Vec<Process>,
    pub(super) files: Vec<Reading>,
    kernel: Vec<(u64, FrameRun)>,
    kernel_frames: u64,
    pub(super) pins: Vec<Pin>,
    /// The swap device and how many slots it has, and the device for moves.
    pub(super) swap: (FileId, u64),
    moves: FileId,
    pub(super) ledger: Ledger,
    /// Compactions so far.
    pub(super) compactions: u64,
}

/// Lives a life as planned on a machine with `ram`.
pub(super) fn live(plan: &Plan, ram: &mut Ram) -> Result<Ledger> {
    system::with::<X86_64, _>(Config::x86_64().bare(), ram, |_, mm| {
        let free = mm.phys().free_frames();
        let mut life = Life::new(mm, plan)?;
        for _ in 0..plan.days {
            life.ledger.begin_day();
            for _ in 0..STEPS {
                life.step()?;
            }
        }
        let spaces: Vec<_> = life.processes.iter().map(|process| &process.space).collect();
        check::system(mm, &spaces)?;
        let ledger = life.end()?;
        let left = mm.phys().free_frames();
        ensure!(left == free, "{} frames are lost after the life", free - left);
        Ok(ledger)
    })?
}

impl<'a, 'm, 'r> Life<'a, 'm, 'r> {
    fn new(mm: &'a HostedMm<'m, 'r, X86_64>, plan: &'a Plan) -> Result<Self> {
        for order in (1..=ORDER_MAX.get()).map(Order::new) {
            let choice = match plan.wanted.contains(&order) {
                true => SizePolicy::Always,
                false => SizePolicy::Never,
            };
            // Every order from 1 to the largest has a choice.
            let _ = mm.policy().set_size(order, choice);
        }
        mm.policy().set_defrag(Defrag::Always);
        let slots = plan.frames() / 4;
        let swap = (mm.paging().swap_on(slots)?, slots);
        let moves = mm.paging().moves_on(MOVE_SLOTS)?;
        mm.reclaim().answer_faults(plan.policy.compacts());
        Ok(Life {
            mm,
            plan,
            rng: fastrand::Rng::with_seed(plan.seed),
            now: 0,
            tags: (1..PROCESSES).rev().collect(),
            processes: Vec::new(),
            files: Vec::new(),
            kernel: Vec::new(),
            kernel_frames: 0,
            pins: Vec::new(),
            swap,
            moves,
            ledger: Ledger::default(),
            compactions: 0,
        })
    }

    fn step(&mut self) -> Result<()> {
        self.now += 1;
        self.end_due()?;
        self.disturb()?;
        let full = self.plan.share(self.plan.occupied);
        let mut acts = 0;
        while self.used() < full && acts < ACTS_MOST {
            self.background();
            self.grow()?;
            self.supply_kernel();
            acts += 1;
        }
        Ok(())
    }

    /// Frames in use.
    fn used(&self) -> u64 {
        self.plan.frames().saturating_sub(self.mm.phys().free_frames())
    }

    fn end_due(&mut self) -> Result<()> {
        let now = self.now;
        while let Some(at) = self.pins.iter().position(|pin| pin.ends <= now) {
            let pin = self.pins.swap_remove(at);
            self.mm.unpin(pin.pinned);
        }
        while let Some(at) = self.processes.iter().position(|process| process.ends <= now) {
            self.end_process(at);
        }
        while let Some(at) = self.files.iter().position(|file| file.ends <= now) {
            let file = self.files.swap_remove(at);
            self.mm.files().close(file.id)?;
        }
        while let Some(at) = self.kernel.iter().position(|(ends, _)| *ends <= now) {
            let (_, run) = self.kernel.swap_remove(at);
            self.give_kernel(run);
        }
        Ok(())
    }

    pub(super) fn end_process(&mut self, at: usize) {
        let process = self.processes.swap_remove(at);
        let tag = process.space.asid();
        while let Some(at) = self.pins.iter().position(|pin| pin.owner == tag) {
            let pin = self.pins.swap_remove(at);
            self.mm.unpin(pin.pinned);
        }
        self.mm.destroy(process.space);
        self.tags.push(tag.0);
    }

    /// One act of growth.
    fn grow(&mut self) -> Result<()> {
        let all: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = self.rng.u32(0..all);
        let chosen = WEIGHTS.into_iter().find(|(_, weight)| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        });
        match chosen {
            Some((Act::Grow(Kind::Blocks), _)) if self.wants_giant() => self.grow_kind(Kind::Giant),
            Some((Act::Grow(kind), _)) => self.grow_kind(kind),
            _ => self.read_on(),
        }
    }

    fn wants_giant(&mut self) -> bool {
        self.plan.wanted.contains(&GIANT) && self.rng.u32(0..GIANT_ONE_IN) == 0
    }

    /// A program of this kind touches some more of its memory; a new one, if none has any left.
    fn grow_kind(&mut self, kind: Kind) -> Result<()> {
        let growing = |process: &Process| process.kind == kind && process.growing().is_some();
        let all = (0..self.processes.len()).filter(|at| growing(&self.processes[*at]));
        let all: Vec<usize> = all.collect();
        // Several grow at a time.
        let at = match self.rng.choice(&all) {
            Some(at) if all.len() >= 4 => *at,
            _ => {
                let tag = self.tags.pop().context("too many programs live at a time")?;
                let ends = self.now + spread(1, LONGEST, &mut self.rng);
                let new = Process::start(self.mm, Asid(tag), kind, ends, &mut self.rng)?;
                self.processes.push(new);
                self.processes.len() - 1
            }
        };
        let mut left = match kind {
            Kind::Pages => CHUNK,
            Kind::Middle => MIDDLE_CHUNK,
            Kind::Blocks | Kind::Giant => GROUP_ORDER.pages(),
        };
        while left > 0
            && let Some(part) = self.processes[at].growing()
        {
            let page = self.processes[at].parts[part].next;
            let end = self.touch(at, page)?;
            left = left.saturating_sub(end.offset_from(page).max(1));
            let part = &mut self.processes[at].parts[part];
            part.next = end.max(page.add(1)).min(part.span.end);
        }
        Ok(())
    }

    /// A file is read on; a new one, if all are read.
    fn read_on(&mut self) -> Result<()> {
        let unread = |at: &usize| self.files[*at].at < self.files[*at].pages;
        let all: Vec<usize> = (0..self.files.len()).filter(unread).collect();
        let at = match self.rng.choice(&all) {
            Some(at) if all.len() >= 2 => *at,
            _ => self.open()?,
        };
        let file = &mut self.files[at];
        let wanted = FilePages::new(file.at, (file.at + MIDDLE_CHUNK).min(file.pages));
        file.at = wanted.end;
        self.read(at, wanted)
    }

    fn open(&mut self) -> Result<usize> {
        if self.files.len() == FILES {
            let first = (0..FILES).min_by_key(|at| self.files[*at].ends).unwrap_or_default();
            let file = self.files.swap_remove(first);
            self.mm.files().close(file.id)?;
        }
        let pages = spread(16, self.plan.frames() / 32, &mut self.rng);
        let id = self.mm.files().open(Store::ReadOnly, pages, Order::ZERO)?;
        let ends = self.now + spread(1, LONGEST, &mut self.rng);
        self.files.push(Reading { id, reader: Readahead::default(), at: 0, pages, ends });
        Ok(self.files.len() - 1)
    }

    /// The kernel takes frames until it has its share of what is in use.
    fn supply_kernel(&mut self) {
        let full = self.plan.share(self.plan.occupied).max(1);
        let all = self.plan.share(self.plan.unmovable);
        let wanted = all * self.used().min(full) / full;
        while self.kernel_frames < wanted {
            let order = Order::new(match self.rng.u32(0..100) {
                0..80 => 0,
                80..90 => 1,
                90..96 => 2,
                _ => 3,
            });
            let ends = self.now + spread(1, KERNEL_LONGEST, &mut self.rng);
            let taken = match self.plan.policy.groups() {
                true => self.mm.phys().alloc(order),
                false => self.mm.bare_phys().alloc(CPU, order),
            };
            let Some(run) = taken else { return };
            self.kernel_frames += run.count();
            self.kernel.push((ends, run));
        }
    }

    fn give_kernel(&mut self, run: FrameRun) {
        self.kernel_frames -= run.count();
        match self.plan.policy.groups() {
            true => self.mm.phys().free(run),
            false => self.mm.bare_phys().free(CPU, run.dirtied()),
        }
    }

    /// Everything ends.
    fn end(mut self) -> Result<Ledger> {
        self.now = u64::MAX;
        self.end_due()?;
        for device in [self.swap.0, self.moves] {
            self.mm.paging().swap_off(device)?;
        }
        Ok(self.ledger)
    }
}

impl Policy {
    /// The share of the free memory that the background keeps in blocks, per cent: Linux's default
    /// for `compaction_proactiveness`.
    pub(super) const KEEP: u32 = 20;
}
