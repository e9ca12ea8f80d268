//! Each target accepts its seeds and some other bytes; the driver reports a target that fails.

use std::time::Duration;

use crate::driver::{Draw, fuzz};
use crate::{TARGETS, Target};

/// Inputs for each target: few, since `cargo xtask fuzz` runs for longer.
const INPUTS: u64 = 40;

#[test]
fn every_target_takes_its_seeds_and_any_other_bytes() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        let mut draw = Draw::new(7);
        seeds.iter().for_each(|seed| (target.run)(seed));
        (target.run)(&[]);
        for _ in 0..INPUTS {
            (target.run)(&draw.input(&seeds));
        }
    }
}

#[test]
fn the_driver_returns_the_input_that_made_a_target_fail() {
    let run: fn(&[u8]) = |bytes| assert!(bytes.len() < 9 || bytes[8] != 1);
    let target = Target { name: "nine", run, seeds: || vec![vec![0; 9]] };
    let failed = fuzz(&target, Duration::from_secs(20), 1).failed.expect("it is found");
    assert_eq!(failed[8], 1);
}

#[test]
fn a_seed_gives_the_same_bytes_again() {
    let seeds = [vec![1, 2, 3]];
    let inputs = |seed| {
        let mut draw = Draw::new(seed);
        (0..50).map(|_| draw.input(&seeds)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(3), inputs(3));
    assert_ne!(inputs(3), inputs(4));
}
