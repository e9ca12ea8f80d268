//! Making a script that finds something as short and as plain as it can be.
//!
//! *Delta debugging* (Zeller, 1999): leave out pieces, large ones first, as long as the same kind
//! of thing is still found; then make what is left plainer: no faults, smaller numbers, a smaller
//! world.

use super::run::{Failure, Options, run};
use super::script::Script;
use super::setup::Setup;
use super::violation::{Kind, Violation};
use quire_script::{ARGS, Fault, Step};

/// A script, and its finding.
#[derive(Clone, Debug)]
pub struct Found {
    /// The script.
    pub script: Script,
    /// The finding.
    pub violation: Violation,
}

struct Shrinker {
    best: Found,
    /// How many more scripts may be tried.
    left: u64,
    lies: u64,
}

/// Shrinks `found`, trying at most `tries` scripts. `lies` is as in [`Options`].
#[must_use]
pub fn shrink(found: Found, tries: u64, lies: u64) -> Found {
    let mut shrinker = Shrinker { best: found, left: tries, lies };
    let upto = shrinker.best.violation.step + 1;
    let mut steps = shrinker.best.script.steps.clone();
    if upto < steps.len() {
        steps.truncate(upto);
        shrinker.attempt_steps(steps);
    }
    shrinker.check_each_step();
    loop {
        let before = (shrinker.best.script.clone(), shrinker.left);
        shrinker.leave_out();
        shrinker.simplify_steps();
        shrinker.simplify_setup();
        if shrinker.best.script == before.0 || shrinker.left == 0 {
            return shrinker.best;
        }
    }
}

/// Runs a script; returns its finding.
fn violation(script: &Script, lies: u64) -> Option<Violation> {
    match run(script, Options { lies, ..Options::default() }) {
        Err(Failure::Violation(violation)) => Some(violation),
        _ => None,
    }
}

impl Shrinker {
    /// Takes `script` if it finds the same kind of thing; returns whether it does.
    fn attempt(&mut self, mut script: Script) -> bool {
        if self.left == 0 || script == self.best.script {
            return false;
        }
        self.left -= 1;
        match violation(&script, self.lies) {
            Some(violation) if violation.kind == self.best.violation.kind => {
                script.steps.truncate(violation.step + 1);
                self.best = Found { script, violation };
                true
            }
            _ => false,
        }
    }

    fn attempt_steps(&mut self, steps: Vec<Step>) -> bool {
        self.attempt(Script { setup: self.best.script.setup, steps })
    }

    /// Runs the walkers more often, so that they find it earlier.
    fn check_each_step(&mut self) {
        let is_seen_late = !matches!(self.best.violation.kind, Kind::Answer | Kind::Race);
        for every in [64, 8, 1] {
            let mut script = self.best.script.clone();
            let larger = script.setup.every > every;
            // Long scripts would take too long so.
            let affordable = script.steps.len() < 20_000 || every >= 64;
            if is_seen_late && larger && affordable {
                script.setup.every = every;
                self.attempt(script);
            }
        }
    }

    /// Leaves out pieces, from halves down to single steps.
    fn leave_out(&mut self) {
        let mut piece = self.best.script.steps.len().div_ceil(2);
        while piece > 0 && self.left > 0 {
            let mut at = 0;
            // Early steps matter least: the finding depends on the state that later ones left.
            while at < self.best.script.steps.len() && self.left > 0 {
                let steps = &self.best.script.steps;
                let end = (at + piece).min(steps.len());
                let rest = [&steps[..at], &steps[end..]].concat();
                if !self.attempt_steps(rest) {
                    at = end;
                }
            }
            if piece == 64 {
                self.check_each_step();
            }
            piece /= 2;
        }
    }

    /// Makes single steps plainer.
    fn simplify_steps(&mut self) {
        let plainer: [fn(Step) -> Step; 3] = [
            |step| Step { fault: Fault::None, nth: 0, ..step },
            |step| Step { cpu: 0, ..step },
            |step| Step { process: 0, ..step },
        ];
        let smaller: [fn(u32) -> u32; 4] =
            [|_| 0, |_| 1, |value| value / 2, |value| value.saturating_sub(1)];
        let mut at = 0;
        while at < self.best.script.steps.len() && self.left > 0 {
            plainer.into_iter().for_each(|plainer| self.replace(at, plainer));
            for arg in 0..ARGS {
                for smaller in smaller {
                    self.replace(at, |mut step| {
                        step.args[arg] = smaller(step.args[arg]).min(step.args[arg]);
                        step
                    });
                }
            }
            self.replace(at, |step| Step { nth: step.nth.min(1), ..step });
            at += 1;
        }
    }

    fn replace(&mut self, at: usize, plainer: impl Fn(Step) -> Step) {
        let mut steps = self.best.script.steps.clone();
        if let Some(step) = steps.get_mut(at) {
            *step = plainer(*step);
            self.attempt_steps(steps);
        }
    }

    /// Makes the world plainer.
    fn simplify_setup(&mut self) {
        let plainer: [fn(Setup) -> Setup; 13] = [
            |setup| Setup { soft: 0, ..setup },
            |setup| Setup { resizes: 0, ..setup },
            |setup| Setup { apart: 0, ..setup },
            |setup| Setup { stubborn: 0, ..setup },
            |setup| Setup { plain: 0, ..setup },
            |setup| Setup { sizes: 0, ..setup },
            |setup| Setup { slots: 0, ..setup },
            |setup| Setup { cpus: 1, ..setup },
            |setup| Setup { processes: 1, ..setup },
            |setup| Setup { processes: 2.min(setup.processes), ..setup },
            |setup| Setup { pages: (setup.pages / 2).max(1), ..setup },
            |setup| Setup { window: (setup.window / 2).max(16), ..setup },
            |setup| Setup { frames: (setup.frames / 2).max(256), ..setup },
        ];
        for plainer in plainer {
            let script = &self.best.script;
            let plainer = Script { setup: plainer(script.setup), steps: script.steps.clone() };
            self.attempt(plainer);
        }
    }
}
