//! `cargo xtask kernel-tests`: the programs of `os/guest/` that check something, on Quire's kernel.
//!
//! Each program has a machine to itself, so that one that brings the kernel down does not stop the
//! others. A line `ok NAME` is a passed test, `FAILED NAME` a failed one, and the end of the
//! program with status 0 is one more: so a program that stops half-way has failed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Isa;
use super::console::Event;
use super::disk_checks;
use super::kernel::Kernel;
use super::machine::Ending;
use super::run::{Order, boot_kernel, prepare};
use super::tag_checks;
use crate::steps::Missing;

/// Programs, their arguments, and how many seconds they may take on a busy machine.
const CHECKS: [(&[&str], u64); 11] = [
    (&["abicheck"], 120),
    (&["devcheck"], 60),
    (&["cowcheck"], 60),
    (&["cowcheck", "-t", "64K", "1M", "2M"], 120),
    (&["wild"], 60),
    (&["badelf"], 60),
    (&["session.sh"], 180),
    (&["oom", "1"], 120),
    (&["mmapbench", "-n", "1", "-m", "2", "-j", "2"], 120),
    (&["forkbench", "-t", "-n", "1", "-m", "4"], 120),
    (&["age", "-t", "-n", "1", "--days", "1", "--full", "30", "--only", "demand"], 180),
];

/// The arguments of `argcheck`, which has the same list, and its seconds.
const ODD_WORDS: [&[u8]; 12] = [
    b"two words",
    b"",
    b"echo a; echo b",
    b"\"double\" 'single' `back`",
    b"line\nline\ttab",
    b"--",
    b"KEY=VALUE",
    b"$HOME * \\ \\n",
    b" ",
    b"\xff\xfe\x80",
    b"\xc3\xbc",
    b"",
];
const ODD_SECONDS: u64 = 60;

/// How many CPUs the machine has.
pub(super) const CPUS: u32 = 4;

/// How much memory it has; `oom` eats all of it.
const MEMORY: &str = "512M";

/// The name of the check in which the kernel carries scripts out before there are programs; the
/// program that runs then; and the seconds that all of it may take.
const SCRIPTS: &str = "selftest";
const AFTER: &str = "badelf";
const SCRIPTS_SECONDS: u64 = 300;

/// How long `stress` runs, unless QUIRE_STRESS_SECONDS says otherwise.
const STRESS_SECONDS: u64 = 60;

/// How long `abuse` runs, unless QUIRE_ABUSE_SECONDS says otherwise.
const ABUSE_SECONDS: u64 = 15;

/// The checks for which the kernel itself looks for stale data in frames that programs see: those
/// that take, copy and free much memory. The others show that it runs without that.
const LOOKS: [&str; 5] = ["abuse", "forkbench", "session.sh", "oom", "cowcheck"];

/// The results of programs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Count {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

/// Boots Quire's kernel for each check that has a name in `only` (empty: all), prints what failed
/// and a line `test result:`; returns whether nothing failed.
///
/// # Errors
/// The reason the kernel cannot be built or run here.
pub fn check(
    root: &Path,
    isa: Isa,
    kernel: &str,
    cpu: Option<&str>,
    only: &[String],
) -> Result<bool, Missing> {
    let mut order = Order {
        cpu: cpu.map(str::to_owned),
        cpus: CPUS,
        memory: MEMORY.to_owned(),
        kernel: kernel.to_owned(),
        // The kernel is built for it; each check below turns it on or off.
        looks_at_frames: true,
        ..Order::new(isa, [""; 0])
    };
    let kernel = prepare(root, &order)?;
    let mut sum = Count::default();
    for (words, seconds) in checks() {
        let name = words[0].to_string_lossy();
        if !only.is_empty() && !only.iter().any(|wanted| *wanted == name) {
            continue;
        }
        order.looks_at_frames = LOOKS.contains(&&*name);
        (order.words, order.timeout_seconds) = (words, seconds);
        let start = Instant::now();
        let (ending, lines) = boot_kernel(root, &kernel, &order, false)?;
        let count = judge(&order.name(), ending, &lines, start.elapsed());
        sum.passed += count.passed;
        sum.failed += count.failed;
    }
    if only.is_empty() || only.iter().any(|name| name == SCRIPTS) {
        let count = scripts(root, &kernel, &mut order)?;
        sum.passed += count.passed;
        sum.failed += count.failed;
    }
    if only.is_empty() || only.iter().any(|name| name == disk_checks::NAME) {
        order.looks_at_frames = true;
        let count = disk_checks::check(root, &kernel, &mut order)?;
        sum.passed += count.passed;
        sum.failed += count.failed;
    }
    if only.is_empty() || only.iter().any(|name| name == tag_checks::NAME) {
        let count = tag_checks::check(root, &kernel, &mut order)?;
        sum.passed += count.passed;
        sum.failed += count.failed;
    }
    if only.iter().any(|name| name == disk_checks::SWAPS) {
        let count = disk_checks::swaps(root, &kernel, &mut order)?;
        sum.passed += count.passed;
        sum.failed += count.failed;
    }
    let word = if sum.failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {} failed", sum.passed, sum.failed);
    Ok(sum.failed == 0)
}

/// The library's scripts in the kernel, and a program after them, in a machine with little memory,
/// since the checks read all of it again and again. QUIRE_SCRIPTS chooses: `SEED,SCRIPTS,STEPS`.
fn scripts(root: &Path, kernel: &Kernel, order: &mut Order) -> Result<Count, Missing> {
    if kernel.linux.is_some() {
        return Ok(Count::default());
    }
    let which = std::env::var("QUIRE_SCRIPTS").map_or(String::new(), |which| format!(",{which}"));
    let memory = std::mem::replace(&mut order.memory, "128M".to_owned());
    order.looks_at_frames = true;
    order.settings.push(format!("check=scripts{which}"));
    (order.words, order.timeout_seconds) = (vec![AFTER.into()], SCRIPTS_SECONDS);
    let start = Instant::now();
    let booted = boot_kernel(root, kernel, order, false);
    (order.memory, order.settings) = (memory, Vec::new());
    let (ending, lines) = booted?;
    // Else a kernel that knows nothing of them would pass.
    let is_told = lines.iter().any(|line| line.contains("and all is as it should be"));
    lines
        .iter()
        .filter(|line| line.contains("check=scripts: "))
        .for_each(|line| println!("{line}"));
    let count = judge(SCRIPTS, ending, &lines, start.elapsed());
    if !is_told {
        println!("    FAILED {SCRIPTS}: the kernel does not say that its scripts were good");
    }
    Ok(Count { failed: count.failed + u64::from(!is_told), ..count })
}

/// All checks: words, and seconds.
fn checks() -> Vec<(Vec<OsString>, u64)> {
    let owned = |words: &[&str]| words.iter().map(OsString::from).collect();
    let mut all: Vec<_> = CHECKS.iter().map(|&(words, time)| (owned(words), time)).collect();
    let seconds = seconds_of("QUIRE_STRESS_SECONDS", STRESS_SECONDS);
    all.push((owned(&["stress", &seconds.to_string(), "3", "3"]), seconds + 60));
    let seconds = seconds_of("QUIRE_ABUSE_SECONDS", ABUSE_SECONDS);
    let mut abuse: Vec<OsString> = owned(&["abuse", &seconds.to_string(), "3"]);
    abuse.extend(std::env::var_os("QUIRE_ABUSE_SEED"));
    all.push((abuse, seconds + 90));
    let odd = ODD_WORDS.iter().map(|word| OsString::from_vec(word.to_vec()));
    all.push((["argcheck".into()].into_iter().chain(odd).collect(), ODD_SECONDS));
    all
}

/// How long a program runs: from the environment, else `usual`.
fn seconds_of(name: &str, usual: u64) -> u64 {
    let wanted = std::env::var(name).ok();
    wanted.and_then(|word| word.parse().ok()).unwrap_or(usual).max(1)
}

/// Counts a program's results, and prints its output if a check failed.
pub(super) fn judge(name: &str, ending: Ending, lines: &[String], took: Duration) -> Count {
    let starts = |word: &str| lines.iter().filter(|line| line.starts_with(word)).count() as u64;
    let mut count = Count { passed: starts("ok "), failed: starts("FAILED ") };
    let is_good = ending == Ending::Guest(Some(Event::Exit(0)));
    match is_good {
        true => count.passed += 1,
        // A program with a failed check ends with another status for that reason.
        false if count.failed > 0 && ending == Ending::Guest(Some(Event::Exit(1))) => {}
        false => count.failed += 1,
    }
    let Count { passed, failed } = count;
    let seconds = took.as_secs_f64();
    if is_good && failed == 0 {
        println!("{name}: {passed} passed, 0 failed, {seconds:.1} s");
        return count;
    }
    println!("{name}: {passed} passed, {failed} failed, {seconds:.1} s, {ending:?}");
    for line in lines.iter().filter(|line| !line.starts_with("ok ")) {
        println!("    {line}");
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{Count, Duration, Ending, Event, judge};

    fn judged(event: Option<Event>, lines: &[&str]) -> Count {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        judge("x", Ending::Guest(event), &lines, Duration::ZERO)
    }

    #[test]
    fn each_line_of_a_check_counts_and_so_does_the_end() {
        let good = judged(Some(Event::Exit(0)), &["ok mmap", "ok fork", "okay", "all ok "]);
        assert_eq!(good, Count { passed: 3, failed: 0 });
        let bad = judged(Some(Event::Exit(1)), &["ok mmap", "FAILED fork: no"]);
        assert_eq!(bad, Count { passed: 1, failed: 1 });
    }

    #[test]
    fn a_program_that_stops_half_way_has_failed() {
        for event in [None, Some(Event::Panic), Some(Event::Exit(139)), Some(Event::Exit(1))] {
            assert_eq!(judged(event, &["ok mmap"]), Count { passed: 1, failed: 1 }, "{event:?}");
        }
        let lines = ["FAILED fork: no".to_owned()];
        let late = judge("x", Ending::Timeout, &lines, Duration::ZERO);
        assert_eq!(late, Count { passed: 0, failed: 2 });
    }
}
