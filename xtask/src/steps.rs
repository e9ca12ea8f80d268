//! Steps: run, timed, told in one line each, summed up at the end.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::limit;

/// Why something cannot be had on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The reason, as one sentence that says how to get it.
    pub sentence: String,
    /// A check that lacks this has failed and is not skipped: an installation was tried in vain,
    /// or something of this repository does not build.
    pub fails: bool,
}

/// How many checks passed and failed in a step. A step that is no test suite counts as one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Checks that passed.
    pub passed: u64,
    /// Checks that failed.
    pub failed: u64,
    /// Checks that could not be run here.
    pub skipped: u64,
}

/// The steps of one run.
#[derive(Debug)]
pub struct Steps {
    root: PathBuf,
    logs: PathBuf,
    on_ci: bool,
    limit: Duration,
    total: Tally,
    /// Lines that name all that failed, which the sum repeats since the output above it is long.
    failures: Vec<String>,
}

/// A step that has begun.
struct Running {
    name: String,
    program: String,
    log: PathBuf,
    /// Ends with it: how it went, and after how many seconds.
    waiter: JoinHandle<(io::Result<ExitStatus>, f64)>,
}

/// How much of a failed step's output is shown; all of it is in the log.
const TAIL_LINES: usize = 120;

/// How many of its lines that tell of a failure the end repeats.
const REPEATED: usize = 20;

/// How a script says in its last line that it cannot run here; the reason follows.
const SKIPPED: &str = "skipped: ";

impl Steps {
    /// No steps yet; each fails after `limit`. Logs go to the build directory of the workspace at
    /// `root`.
    pub fn new(root: &Path, limit: Duration) -> Self {
        let logs = build_dir(root).join("steps");
        let on_ci = std::env::var("CI").is_ok_and(|value| !matches!(&*value, "" | "false" | "0"));
        let total = Tally::default();
        Self { root: root.to_path_buf(), logs, on_ci, limit, total, failures: Vec::new() }
    }

    /// Runs `command` as the step `name`, and says how it went. Returns whether it passed.
    pub fn run(&mut self, name: &str, command: Command) -> bool {
        let root = self.root.clone();
        self.run_in(name, command, &root)
    }

    /// The same in the directory `dir`, which is a workspace of its own.
    pub fn run_in(&mut self, name: &str, command: Command, dir: &Path) -> bool {
        announce(name);
        let running = self.begin(name, command, dir);
        self.end(running)
    }

    /// Runs two steps at the same time, where each alone leaves a core idle.
    pub fn both(&mut self, steps: [(&str, Command); 2]) {
        announce(&steps.each_ref().map(|(name, _)| *name).join(", "));
        let running = steps.map(|(name, command)| self.begin(name, command, &self.root));
        for step in running {
            self.end(step);
        }
    }

    fn begin(&self, name: &str, mut command: Command, dir: &Path) -> Running {
        let log = self.logs.join(format!("{}.log", name.replace(|c: char| !is_plain(c), "-")));
        let program = command.get_program().to_string_lossy().into_owned();
        command.current_dir(dir).stdin(Stdio::null());
        let start = Instant::now();
        let child =
            fs::create_dir_all(&self.logs).and_then(|()| File::create(&log)).and_then(|file| {
                let copy = file.try_clone()?;
                command.stdout(file).stderr(copy).spawn()
            });
        let limit = self.limit;
        let waiter = thread::spawn(move || {
            let status = child.and_then(|mut child| limit::wait(&mut child, limit));
            (status, start.elapsed().as_secs_f64())
        });
        Running { name: name.to_owned(), program, log, waiter }
    }

    /// Waits for a step, and says how it went. Returns whether it passed.
    fn end(&mut self, running: Running) -> bool {
        let Running { name, program, log, waiter } = running;
        let name = name.as_str();
        let (status, seconds) = waiter.join().expect("it only waits");
        let output = fs::read(&log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        match status {
            Ok(status) => {
                let reason = output.lines().last().and_then(|line| line.strip_prefix(SKIPPED));
                if let (true, Some(reason)) = (status.success(), reason) {
                    self.total.skipped += 1;
                    tell(name, "skipped", Some(seconds), reason);
                    return true;
                }
                let tally = tally(&output, status.success());
                self.add(name, tally, seconds);
                if tally.failed > 0 {
                    show(&output, &log);
                    let lines = output.lines().filter(|line| tells_of_failure(line));
                    self.failures.push(format!("{name}: {status}"));
                    self.failures.extend(lines.take(REPEATED).map(|line| format!("    {line}")));
                }
                tally.failed == 0
            }
            Err(error) => {
                self.total.failed += 1;
                tell(name, "FAILED", Some(seconds), &format!("{program}: {error}"));
                show(&output, &log);
                self.failures.push(format!("{name}: {error}"));
                false
            }
        }
    }

    /// A step that was done here and not by another program.
    pub fn note(&mut self, name: &str, start: Instant, failures: &[String]) {
        let tally = match failures.is_empty() {
            true => Tally { passed: 1, ..Tally::default() },
            false => Tally { failed: 1, ..Tally::default() },
        };
        self.add(name, tally, start.elapsed().as_secs_f64());
        for failure in failures {
            println!("    {failure}");
            self.failures.push(format!("{name}: {failure}"));
        }
    }

    /// A step that cannot run here. On CI it may fail; see [`Missing::fails`].
    pub fn skip(&mut self, name: &str, missing: &Missing) {
        let fails = self.on_ci && missing.fails;
        let word = if fails { "FAILED" } else { "skipped" };
        self.total.failed += u64::from(fails);
        self.total.skipped += u64::from(!fails);
        tell(name, word, None, &missing.sentence);
        if fails {
            self.failures.push(format!("{name}: {}", missing.sentence));
        }
    }

    /// Prints what failed, and the sum. Returns whether nothing failed.
    pub fn finish(&self) -> bool {
        let Tally { passed, failed, skipped } = self.total;
        println!();
        for line in &self.failures {
            println!("{line}");
        }
        match skipped {
            0 => println!("{passed} passed, {failed} failed"),
            _ => println!("{passed} passed, {failed} failed, {skipped} skipped"),
        }
        failed == 0
    }

    fn add(&mut self, name: &str, tally: Tally, seconds: f64) {
        self.total.passed += tally.passed;
        self.total.failed += tally.failed;
        self.total.skipped += tally.skipped;
        let word = if tally.failed == 0 { "passed" } else { "FAILED" };
        let count = match tally.passed + tally.failed {
            0 | 1 => String::new(),
            _ if tally.failed == 0 => format!("{} tests", tally.passed),
            count => format!("{} of {count} tests failed", tally.failed),
        };
        tell(name, word, Some(seconds), &count);
    }
}

/// The results of the tests in a step's output: the sums of all `test result:` lines, or one check
/// that went as the exit status says.
pub fn tally(output: &str, success: bool) -> Tally {
    let mut sum = Tally::default();
    for line in output.lines().filter(|line| line.starts_with("test result:")) {
        let mut before = "";
        for word in line.split([' ', ';', '.']).filter(|word| !word.is_empty()) {
            let count = before.parse().unwrap_or(0);
            match word {
                "passed" => sum.passed += count,
                "failed" => sum.failed += count,
                _ => {}
            }
            before = word;
        }
    }
    match success {
        true if sum.passed == 0 => sum.passed = 1,
        false if sum.failed == 0 => sum.failed = 1,
        _ => {}
    }
    sum
}

/// Whether a line of a step's output names something that failed: a test of cargo's, a check of a
/// program in the kernel, or a count of failures that is not 0.
fn tells_of_failure(line: &str) -> bool {
    let failed = |word: &str| line.split_once(word).map(|(before, _)| before);
    let count = failed(" failed").and_then(|before| before.rsplit([' ', ';']).next());
    line.ends_with(" ... FAILED")
        || line.trim_start().starts_with("FAILED ")
        || line.contains("panicked at ")
        || line.starts_with("error")
        || count.and_then(|count| count.parse().ok()).is_some_and(|count: u64| count > 0)
}

/// Where cargo builds the workspace at `root`.
pub fn build_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Says on a terminal what is running now; the line is written over by the result.
fn announce(name: &str) {
    if io::stdout().is_terminal() {
        print!("{name} ...\r");
        // A terminal that does not take the line will not take the result either.
        let _ = io::stdout().flush();
    }
}

fn tell(name: &str, word: &str, seconds: Option<f64>, note: &str) {
    let time = seconds.map_or_else(String::new, |seconds| format!("{seconds:.1} s"));
    println!("{}", format!("{name:<32} {word:<8} {time:>8}  {note}").trim_end());
}

fn show(output: &str, log: &Path) {
    let lines: Vec<&str> = output.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    if from > 0 {
        println!("    (the first {from} lines are in {})", log.display());
    }
    for line in &lines[from..] {
        println!("    {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_suites_add_up() {
        let output = "\
            test a ... ok\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; finished in 0.10s\n\
            test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out\n";
        assert_eq!(tally(output, false), Tally { passed: 15, failed: 2, skipped: 0 });
    }

    #[test]
    fn a_step_without_tests_counts_as_one() {
        assert_eq!(tally("", true), Tally { passed: 1, ..Tally::default() });
        assert_eq!(tally("error: no", false), Tally { failed: 1, ..Tally::default() });
    }

    #[test]
    fn a_suite_that_does_not_compile_fails_although_others_passed() {
        let output = "test result: ok. 5 passed; 0 failed\nerror: could not compile";
        assert_eq!(tally(output, false), Tally { passed: 5, failed: 1, skipped: 0 });
    }

    #[test]
    fn the_end_repeats_what_failed_and_nothing_else() {
        let bad = [
            "test table::fork ... FAILED",
            "stress 60 3 3: 0 passed, 1 failed, 120.0 s, Timeout",
            "    FAILED fork: 3 and not 4",
            "thread 'table::fork' panicked at crates/mm/src/table/fork.rs:3:5:",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored",
        ];
        let good = [
            "test table::a_failed_fork ... ok",
            "abicheck: 301 passed, 0 failed, 13.6 s",
            "test result: ok. 5 passed; 0 failed; 0 ignored",
            "the write failed and that was wanted",
        ];
        assert!(bad.iter().all(|line| tells_of_failure(line)));
        assert!(!good.iter().any(|line| tells_of_failure(line)));
    }
}
