//! The process whose memory goes out.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};

use super::super::data::Data;
use crate::size::Size;

const SOURCE: &str = include_str!("child.c");
/// Names of compilers, the usual one first.
const COMPILERS: [&str; 3] = ["cc", "gcc", "clang"];

/// The work of a child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// The size of its folios.
    pub(super) size: Size,
    /// Bytes that go out, whole folios.
    pub(super) region: u64,
    /// How often.
    pub(super) rounds: u32,
    /// The content of the pages.
    pub(super) data: Data,
}

/// One round: nanoseconds for all of the region, and pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Round {
    pub(super) out: f64,
    pub(super) out_cpu: f64,
    pub(super) back: f64,
    pub(super) back_cpu: f64,
    /// Pages that were no longer mapped.
    pub(super) swapped: u64,
    /// Pages that had left memory.
    pub(super) gone: u64,
}

/// Compiles the child into `dir`; gives its path.
pub(super) fn build(dir: &Path) -> Result<PathBuf, String> {
    let (source, program) = (dir.join("child.c"), dir.join("child"));
    fs::write(&source, SOURCE).map_err(|e| format!("{}: {e}", source.display()))?;
    for compiler in COMPILERS {
        let mut command = Command::new(compiler);
        command.arg("-O2").arg("-o").arg(&program).arg(&source).stdin(Stdio::null());
        let Ok(output) = command.output() else { continue };
        if output.status.success() {
            return Ok(program);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or_default();
        return Err(format!("{compiler} does not compile the process to measure ({first})"));
    }
    Err("there is no C compiler (cc) for the process to measure".to_owned())
}

/// Runs the child `program`; `group` is the memory group that it is to be in.
pub(super) fn measure(program: &Path, job: &Job, group: Option<&Path>) -> Result<Vec<Round>> {
    let mut command = Command::new(program);
    command.args([(job.size.bytes() >> 10).to_string(), job.region.to_string()]);
    command.args([job.rounds.to_string(), u8::from(job.data.is_stamped()).to_string()]);
    command.arg(group.unwrap_or(Path::new("-")));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("the process to measure does not start")?;
    let sample = job.data.sample();
    if let Some(mut pipe) = child.stdin.take() {
        // A child that ends early prints the reason itself.
        let _ = pipe.write_all(&sample);
    }
    // The kernel ends the child when the thread that started it ends: that is this one.
    let (out, errors) = (child.stdout.take().map(follow), child.stderr.take().map(follow));
    let status = wait(&mut child, bound(job))?;
    let text = |reader: Option<Reader>| reader.and_then(|r| r.join().ok()).unwrap_or_default();
    if !status.success() {
        bail!("the process to measure failed ({status}): {}", text(errors).trim());
    }
    let text = text(out);
    let rounds: Option<Vec<Round>> = text.lines().map(round).collect();
    let rounds = rounds.context("the process to measure printed something else")?;
    ensure!(rounds.len() == job.rounds as usize, "the process to measure left out rounds");
    Ok(rounds)
}

type Reader = thread::JoinHandle<String>;

/// Reads a pipe to its end, in a thread of its own.
fn follow(mut pipe: impl Read + Send + 'static) -> Reader {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text).unwrap_or_default()
    })
}

/// How long the child may take: a host that swaps at less than 4 MB/s is not measured.
fn bound(job: &Job) -> Duration {
    Duration::from_secs(60 + u64::from(job.rounds) * (job.region >> 22))
}

/// Waits until the child ends, and ends it when it takes longer than `most`.
fn wait(child: &mut Child, most: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("the process to measure")? {
            return Ok(status);
        }
        if start.elapsed() > most {
            // A process that waits for its swap device ends when the device answers: it is not
            // waited for.
            let _ = child.kill();
            bail!("the process to measure did not end within {} s", most.as_secs());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// A line of the child.
fn round(line: &str) -> Option<Round> {
    let words: Vec<&str> = line.split(' ').collect();
    let [out, out_cpu, back, back_cpu, swapped, gone] = words[..] else { return None };
    let ns = |word: &str| word.parse().ok().filter(|ns: &f64| *ns >= 0.0);
    Some(Round {
        out: ns(out)?,
        out_cpu: ns(out_cpu)?,
        back: ns(back)?,
        back_cpu: ns(back_cpu)?,
        swapped: swapped.parse().ok()?,
        gone: gone.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d7_a_line_of_the_child_has_six_numbers() {
        let found = round("1 2 3 4 5 6").unwrap();
        let wanted =
            Round { out: 1.0, out_cpu: 2.0, back: 3.0, back_cpu: 4.0, swapped: 5, gone: 6 };
        assert_eq!(found, wanted);
        for wrong in ["", "1 2 3 4 5", "1 2 3 4 5 6 7", "1 2 3 4 5 x", "-1 2 3 4 5 6", "1  2 3 4 5"]
        {
            assert_eq!(round(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn d7_a_child_that_takes_too_long_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let said = wait(&mut child, Duration::from_millis(20)).unwrap_err().to_string();
        assert!(said.contains("did not end within"), "{said}");
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn d7_a_child_tells_of_each_round_and_one_that_fails_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let Ok(program) = build(dir.path()) else { return };
        for data in Data::ALL {
            // Without swap nothing goes out; with swap of the host some of it does.
            let job = Job { size: Size(4096), region: 2 << 20, rounds: 2, data };
            let rounds = measure(&program, &job, None).unwrap();
            assert!(rounds.iter().all(|round| round.out > 0.0 && round.back > 0.0));
        }
        let job = Job { size: Size(4096), region: 1 << 62, rounds: 1, data: Data::Zero };
        let error = measure(&program, &job, None).unwrap_err().to_string();
        assert!(error.contains("mmap"), "{error}");
    }
}
