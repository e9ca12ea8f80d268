//! The simulator: a seed gives the same run again, scripts that once found something find nothing
//! any more, and faults that are planted are found.

use std::fs;
use std::path::Path;

use quire_sim::whole::{
    Failure, Format, Found, Generator, Kind, Options, Report, Script, Setup, Violation, run,
    run_steps, shrink,
};

fn draw(seed: u64, format: Format, steps: usize) -> Script {
    let setup = Setup::draw(seed, Some(format));
    Script { setup, steps: Generator::new(seed, setup.bounds()).take(steps).collect() }
}

fn traced(script: &Script) -> (Report, Vec<u8>) {
    let mut trace = Vec::new();
    let options = Options { trace: Some(&mut trace), ..Options::default() };
    let report = run(script, options).unwrap_or_else(|failure| panic!("{failure}\n{script}"));
    (report, trace)
}

fn found(script: &Script, lies: u64) -> Option<Violation> {
    match run(script, Options { lies, ..Options::default() }) {
        Err(Failure::Violation(violation)) => Some(violation),
        Err(failure) => panic!("{failure}"),
        Ok(_) => None,
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_to_the_byte() {
    for &format in Format::ALL {
        let script = draw(3, format, 600);
        let (first, second) = (traced(&script), traced(&script));
        assert_eq!(first, second, "{format:?}");
        assert_eq!(first.1.iter().filter(|&&byte| byte == b'\n').count(), 600);
        let other = traced(&draw(4, format, 600));
        assert_ne!(first.0.trace, other.0.trace, "{format:?}");
    }
}

#[test]
fn a_script_that_was_printed_and_read_runs_the_same() {
    let script = draw(11, Format::X86_64, 400);
    let again: Script = script.to_string().parse().expect("a printed script can be read");
    assert_eq!(again, script);
    assert_eq!(traced(&again), traced(&script));
}

#[test]
fn seeds_of_every_format_find_nothing() {
    for (at, &format) in Format::ALL.iter().enumerate() {
        for seed in 0..2 {
            let seed = 1000 + 10 * at as u64 + seed;
            let setup = Setup::draw(seed, Some(format));
            let steps = Generator::new(seed, setup.bounds()).take(3000);
            let done = run_steps(setup, steps, Options::default(), |_| {});
            let report = done.unwrap_or_else(|failure| panic!("seed {seed}, {setup}: {failure}"));
            assert_eq!(report.steps, 3000);
        }
    }
}

#[test]
fn kept_scripts_find_nothing_any_more() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/whole/kept");
    let mut count = 0;
    for entry in fs::read_dir(kept).expect("there are kept scripts") {
        let path = entry.expect("a directory entry").path();
        let text = fs::read_to_string(&path).expect("a script is text");
        let script: Script =
            text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Some(violation) = found(&script, 0) {
            panic!("{}: {violation}", path.display());
        }
        count += 1;
    }
    assert!(count > 0, "there is at least one");
}

/// Lets CPU 1 store and load at random moments of `step`, in many ways, after `before`, where there
/// is one folio of 2^`order` pages; then all is read.
fn raced(order: u32, before: &str, step: &str) {
    let pages = 1 << order;
    for format in [Format::X86_64, Format::Arm4k, Format::Sv39] {
        for nth in 0..400 {
            let sizes = 1 << order;
            let setup = Setup { frames: 512, window: 16, slots: 0, sizes, ..Setup::new(format) };
            let text = format!(
                "{setup}\n0 0 map 0 {pages} 2 0 0\n0 0 {before}\n1 0 read 1\n\
                 0 0 {step} ! race {nth}\n0 0 sweep 0 {pages} 0\n"
            );
            let script: Script = text.parse().expect("it is a script");
            assert_eq!(found(&script, 0), None, "{script}");
        }
    }
}

#[test]
fn i14_a_store_while_lazily_freed_memory_goes_stays() {
    raced(4, "sweep 0 16 1\n0 0 free 0 16", "pageout 0 16 0");
    raced(1, "sweep 0 2 1\n0 0 free 0 2", "pageout 0 2 0");
}

#[test]
fn i14_a_store_while_zeroes_go_stays() {
    raced(1, "wipe 0 2", "dropzeroes 0 2");
}

/// The simulator notices a disk that lies, and shrinks the script to a few steps.
#[test]
fn a_disk_that_gives_wrong_data_is_found_and_shown_in_a_short_script() {
    // The question for progress may be the first that sees wrong data.
    let seen = (5..25).find_map(|seed| {
        let script = draw(seed, Format::X86_64, 20_000);
        let violation = found(&script, 1).expect("wrong data is seen");
        (violation.kind == Kind::Content).then_some((script, violation))
    });
    let (script, violation) = seen.expect("a check of contents sees it, too");
    let shortest = shrink(Found { script, violation }, 400, 1);
    assert!(shortest.script.steps.len() <= 12, "{}", shortest.script);
    assert_eq!(found(&shortest.script, 1), Some(shortest.violation));
    assert_eq!(found(&shortest.script, 0), None, "it is the disk's fault");
}

/// Only in a build with `--cfg quire_canary`, in which the library forgets pages that a device did
/// not take. The simulator must find that within the steps that one core makes in a minute.
#[cfg(quire_canary)]
#[test]
fn the_canary_is_found_within_a_minute() {
    let (seeds, steps) = (200, 20_000);
    let mut scripts = (0..seeds).map(|seed| draw(seed, Format::X86_64, steps));
    let caught = scripts.find_map(|script| found(&script, 0).map(|violation| (script, violation)));
    let (script, violation) = caught.expect("4 million steps are enough");
    let shortest = shrink(Found { script, violation }, 300, 0);
    println!("# {}\n{}", shortest.violation, shortest.script);
    assert!(shortest.script.steps.len() <= 40, "{}", shortest.script);
}
