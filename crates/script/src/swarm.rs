//! Scripts out of a seed.
//!
//! *Swarm testing* (Groce and others, 2012): a run that may do everything does each thing so rarely
//! in a row that many faults never show. So each seed first draws what this run is about: which
//! verbs there are at all and how often, and which faults strike; and, where there is a choice, the
//! machine and its sizes.

use alloc::vec::Vec;

use crate::dice::Dice;
use crate::step::{Fault, Step};
use crate::verb::{ARGS, Arg, Verb};

/// How large the numbers of a script are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// CPUs.
    pub cpus: u32,
    /// Processes.
    pub processes: u32,
    /// Pages of each process's window.
    pub window: u32,
    /// Pages that files have at first.
    pub pages: u32,
}

/// How often a verb is drawn where nothing is said about it, among all.
const fn usual(verb: Verb) -> u64 {
    match verb {
        Verb::Read | Verb::Write => 1200,
        Verb::Fetch => 60,
        Verb::Look | Verb::Put => 40,
        // Windows are to be mapped for the most part: what is not there is soon told.
        Verb::Map => 80,
        Verb::Show => 40,
        Verb::Frames => 20,
        Verb::Sweep | Verb::Protect | Verb::Wipe => 24,
        Verb::Fork | Verb::PageOut | Verb::Discard => 16,
        Verb::Sync | Verb::SyncSwap | Verb::Pin | Verb::Unpin | Verb::Device => 16,
        Verb::Drop | Verb::Age | Verb::Mark | Verb::Advise => 10,
        Verb::Unmap | Verb::Move | Verb::Truncate => 8,
        Verb::Lock | Verb::Populate | Verb::Resize | Verb::Size | Verb::Hoard | Verb::Return => 8,
        Verb::Guard | Verb::Unguard | Verb::Free | Verb::Track | Verb::DropZeroes => 8,
        Verb::Watch | Verb::Shield => 16,
        // Folios move between any two steps of any script.
        Verb::Migrate | Verb::Compact => 12,
        Verb::Collapse | Verb::Reclaim | Verb::CopyMost | Verb::OptOut | Verb::Scan => 4,
        Verb::Lose | Verb::Mend | Verb::Join | Verb::Limit => 4,
        Verb::ZeroesMost | Verb::Swappiness | Verb::Enabled | Verb::Defrag => 2,
        Verb::Ahead | Verb::Take | Verb::Answer => 4,
        Verb::Relieve | Verb::GroupOut => 2,
        Verb::SwapOn | Verb::SwapOff | Verb::EndLoan => 4,
        Verb::EvictMost | Verb::Group | Verb::Lend => 2,
        Verb::EndGroup | Verb::Replace => 1,
        Verb::Reserve | Verb::Shift => 16,
        Verb::Pool | Verb::Promise | Verb::Punch => 4,
        Verb::Renounce | Verb::Cut | Verb::CopySizes | Verb::FileSize => 2,
        Verb::Place | Verb::Regrant | Verb::Flag | Verb::Carry | Verb::PinRead => 0,
    }
}

/// The subject of the scripts of an exact world: how often each verb is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// The verbs with their weights.
    pub verbs: &'static [(Verb, u64)],
    /// An allocation fails in one of this many steps.
    pub fault_every: u64,
}

impl Theme {
    /// Areas, page tables and faults of processes that share nothing.
    pub const SPACES: Theme = Theme {
        verbs: &[
            (Verb::Place, 8),
            (Verb::Unmap, 6),
            (Verb::Regrant, 6),
            (Verb::Advise, 3),
            (Verb::Flag, 3),
            (Verb::Age, 2),
            (Verb::Collapse, 3),
            (Verb::Discard, 3),
            (Verb::Lock, 3),
            (Verb::Populate, 3),
            (Verb::Carry, 2),
            (Verb::Move, 1),
            (Verb::Resize, 1),
            (Verb::Sweep, 6),
            (Verb::Read, 2),
            (Verb::Write, 2),
            (Verb::Fetch, 2),
            (Verb::Size, 2),
            (Verb::Enabled, 1),
            (Verb::Defrag, 1),
            (Verb::OptOut, 1),
            (Verb::Replace, 1),
        ],
        fault_every: 9,
    };

    /// Mostly what shares memory, and what tells by it.
    pub const FORKS: Theme = Theme {
        verbs: &[
            (Verb::Place, 5),
            (Verb::Unmap, 4),
            (Verb::Protect, 4),
            (Verb::Regrant, 4),
            (Verb::Discard, 3),
            (Verb::Flag, 2),
            (Verb::Age, 3),
            (Verb::Collapse, 4),
            (Verb::Lock, 1),
            (Verb::Populate, 4),
            (Verb::Carry, 2),
            (Verb::Move, 2),
            (Verb::Sweep, 7),
            (Verb::Read, 2),
            (Verb::Write, 5),
            (Verb::Fork, 9),
            (Verb::Pin, 2),
            (Verb::PinRead, 1),
            (Verb::Unpin, 2),
            (Verb::Device, 2),
            (Verb::Size, 3),
            (Verb::CopyMost, 1),
            (Verb::Replace, 2),
        ],
        fault_every: 11,
    };
}

/// An endless script.
pub struct Generator {
    dice: Dice,
    bounds: Bounds,
    /// Verbs with the sums of their weights up to and including them.
    verbs: Vec<(u64, Verb)>,
    faults: Vec<Fault>,
    /// A fault strikes in one of this many steps; 0 for never.
    fault_every: u64,
    /// Pages that are touched again and again.
    hot: u64,
    /// Of an exact world: pages and lengths are mostly multiples of this many pages, and folios
    /// are mostly a few times as large. Otherwise 0.
    grain: u64,
}

impl Generator {
    /// The script of a seed within `bounds`.
    #[must_use]
    pub fn new(seed: u64, bounds: Bounds) -> Self {
        let mut dice = Dice::new(seed ^ 0x5743_11ce);
        let mut sum = 0;
        let mut verbs = Vec::new();
        for &verb in Verb::ALL.iter().filter(|&&verb| usual(verb) > 0) {
            let often = dice.pick(&[0, 1, 2, 4, 4, 4, 8, 16]);
            // Without loads and stores there would be nothing to see.
            let often = if usual(verb) >= 1000 { often.max(4) } else { often };
            sum += usual(verb) * often;
            verbs.push((sum, verb));
        }
        let mut faults = Fault::ALL.to_vec();
        faults.retain(|_| dice.roll(3) != 0);
        let fault_every = dice.pick(&[0, 400, 100, 50, 20]);
        let fault_every = if faults.is_empty() { 0 } else { fault_every };
        let hot = dice.pick(&[4, 16, 40, 96]).min(u64::from(bounds.window));
        Self { dice, bounds, verbs, faults, fault_every, hot, grain: 0 }
    }

    /// The script of a seed for an exact world. Pages and lengths are mostly multiples of `grain`
    /// pages, so that calls meet at the boundaries of tables and folios far more often than chance
    /// would have it.
    #[must_use]
    pub fn exact(seed: u64, bounds: Bounds, theme: Theme, grain: u64) -> Self {
        let mut sum = 0;
        let weighed = |&(verb, weight): &(Verb, u64)| {
            sum += weight;
            (sum, verb)
        };
        let verbs = theme.verbs.iter().map(weighed).collect();
        let (faults, fault_every) = (Vec::from([Fault::Alloc]), theme.fault_every);
        let hot = u64::from(bounds.window);
        Self { dice: Dice::new(seed), bounds, verbs, faults, fault_every, hot, grain }
    }

    /// A distance of some grains, below `most`, and some pages.
    fn grains(&mut self, most: u64) -> u32 {
        let fine = self.dice.pick(&[1, 1, 1, 20, 20, 20, 70]);
        let grains = match self.dice.roll(3) {
            0 => self.dice.roll(most),
            // Calls are to meet again and again.
            _ => most / 3 + self.dice.roll(most.div_ceil(3)),
        };
        (grains * self.grain + self.dice.roll(fine)) as u32
    }

    fn page(&mut self) -> u32 {
        let window = u64::from(self.bounds.window);
        if let Some(all) = window.checked_div(self.grain) {
            return self.grains(all);
        }
        let dice = &mut self.dice;
        let page = match dice.roll(8) {
            0..=4 => dice.roll(self.hot),
            // Where one table of the last level ends and the next begins.
            5 => (window / 2).saturating_sub(12) + dice.roll(24),
            _ => dice.roll(window),
        };
        page as u32
    }

    fn pages(&mut self) -> u32 {
        if let Some(all) = u64::from(self.bounds.window).checked_div(self.grain) {
            let most = self.dice.pick(&[1, 1, 1, 2, 6, 6, all, 0, 0, 0]);
            return if most > 0 { self.grains(most) } else { 1 + self.dice.roll(10) as u32 };
        }
        let dice = &mut self.dice;
        let pages = match dice.roll(8) {
            0..=2 => 1 + dice.roll(3),
            3..=5 => 1 + dice.roll(24),
            6 => 1 + dice.roll(100),
            _ => dice.pick(&[16, 32, 64, 128, 512]),
        };
        pages as u32
    }

    fn file_page(&mut self) -> u32 {
        let dice = &mut self.dice;
        let pages = u64::from(self.bounds.pages);
        let page = match dice.roll(4) {
            0 | 1 => dice.roll(self.hot.min(pages)),
            _ => dice.roll(pages + 10),
        };
        page as u32
    }

    fn arg(&mut self, arg: Arg) -> u32 {
        match arg {
            Arg::Page => self.page(),
            Arg::Pages => self.pages(),
            Arg::Rights => self.dice.pick(&[0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 4]),
            Arg::Bits => self.dice.pick(&[3, 3, 3, 3, 3, 3, 3, 1, 1, 5, 7, 0, 2, 4, 6]),
            Arg::Of(sides) => self.dice.roll(u64::from(sides)) as u32,
            Arg::File => self.dice.roll(3) as u32,
            Arg::FilePage => self.file_page(),
            Arg::Process => self.dice.roll(u64::from(self.bounds.processes)) as u32,
            // About a block of four grains.
            Arg::Order if self.grain > 0 && self.dice.roll(3) > 0 => {
                self.grain.ilog2() + self.dice.roll(4) as u32
            }
            Arg::Order => self.dice.pick(&[0, 1, 2, 3, 4, 4, 4, 5, 7, 9]),
        }
    }
}

impl Iterator for Generator {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (sum, _) = *self.verbs.last()?;
        let roll = self.dice.roll(sum);
        let at = self.verbs.partition_point(|&(upto, _)| upto <= roll);
        let verb = self.verbs[at].1;
        let mut args = [0; ARGS];
        for (value, &arg) in args.iter_mut().zip(verb.args()) {
            *value = self.arg(arg);
        }
        let (mut fault, mut nth) = (Fault::None, 0);
        // A step that moves many folios has more places where one can strike, and is rarer.
        let moves = verb.moves_folios();
        let every = if moves { self.fault_every.div_ceil(8) } else { self.fault_every };
        if self.dice.once_in(every) {
            fault = self.dice.pick(&self.faults);
            nth = match fault {
                Fault::Alloc | Fault::Copy if moves => {
                    let most = self.dice.pick(&[5, 40]);
                    1 + self.dice.roll(most)
                }
                Fault::Slow => 1 + self.dice.roll(60),
                Fault::Race => self.dice.roll(1 << 16),
                _ => 1 + self.dice.roll(5),
            };
        }
        Some(Step {
            cpu: self.dice.roll(u64::from(self.bounds.cpus)) as u32,
            process: self.dice.roll(u64::from(self.bounds.processes)) as u32,
            verb,
            args,
            fault,
            nth: nth as u32,
        })
    }
}
