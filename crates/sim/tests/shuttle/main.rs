//! The whole library on the hosted machine, in many orders of its threads' steps. With
//! `RUSTFLAGS="--cfg shuttle -Cdebug-assertions"`, it is
//! `cargo test --profile sim --package quire-sim --test shuttle`.
//!
//! * [`turns`]: the machine, with a turn for others before each of its steps.
//! * [`scene`]: a small system, and programs in it.
//! * [`forks`], [`leaving`], [`files`], [`areas`]: the models, by what meets what.
//! * [`pairs`]: each call that takes memory back beside each that changes a space.
//!
//! Two schedulers choose the orders: one by chance at each step, and one (PCT) that lets a thread
//! run until one of a few random steps, which finds faults that need a thread to stop for long in
//! a bad place. Both draw from a fixed seed. `QUIRE_SCHEDULES` is the number of orders of each, and
//! `SHUTTLE_RANDOM_SEED` another seed.
#![cfg(shuttle)]

mod areas;
mod files;
mod forks;
mod leaving;
mod pairs;
mod scene;
mod turns;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// How many orders of each scheduler are looked at.
const SCHEDULES: usize = 400;

/// At how many places at most PCT changes its mind, and one.
const DEPTH: usize = 4;

/// Only a model that waits for ever takes more steps.
const STEPS: usize = 200_000;

/// A system is moved while it is built, and has many counters.
const STACK_BYTES: usize = 4 << 20;

/// Runs `model` in many orders.
fn explore(model: fn()) {
    explore_some(SCHEDULES, model);
}

/// Runs `model` in `many` orders of each scheduler, or in as many as the environment says.
fn explore_some(many: usize, model: impl Fn() + Copy + Send + Sync + 'static) {
    let asked = std::env::var("QUIRE_SCHEDULES").ok().and_then(|many| many.parse().ok());
    let schedules = asked.unwrap_or(many);
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    // Shuttle warns that it takes all memory orders for the strongest: that is known.
    config.silence_warnings = true;
    // The seed gives the same orders again; a schedule would fill pages.
    config.failure_persistence = FailurePersistence::None;
    let random = RandomScheduler::new_from_seed(1, schedules);
    Runner::new(random, config.clone()).run(model);
    let pct = PctScheduler::new_from_seed(1, DEPTH, schedules);
    Runner::new(pct, config).run(model);
}
