//! A program that takes too long is ended, with all that it started: one that hangs must not hide
//! what the other checks say.

use std::fs;
use std::io;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How often the end is looked for.
const TICK: Duration = Duration::from_millis(50);

/// Waits for the end of `child`, for `most` at the longest.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if that was too short; it and all its descendants are ended then.
pub(crate) fn wait(child: &mut Child, most: Duration) -> io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > most {
            end(child);
            let said = format!("ended after {} s: it hung, or is too slow", most.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, said));
        }
        sleep(TICK);
    }
}

/// Ends `child` and its descendants, as far as the host tells of those.
fn end(child: &mut Child) {
    let parents = parents();
    let mut family = vec![child.id().cast_signed()];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid));
        next += 1;
    }
    for pid in family.into_iter().filter_map(Pid::from_raw) {
        // One that has ended meanwhile needs no end.
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = child.wait();
}

/// Each process with its parent; none without a `/proc`.
fn parents() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| Some((pid, parent(pid)?))).collect()
}

fn parent(pid: i32) -> Option<i32> {
    // The name, in brackets, may hold any character.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().expect("a shell")
    }

    #[test]
    fn a_program_that_ends_in_time_says_how() {
        let status = wait(&mut shell("exit 3"), Duration::from_secs(60)).expect("there is time");
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        if !fs::exists("/proc/self/stat").unwrap_or(false) {
            return;
        }
        let mut child = shell("sleep 1000 & sleep 1000; :");
        let of = |parent: i32| parents().into_iter().filter(move |(_, of)| *of == parent);
        let own = child.id().cast_signed();
        while of(own).count() < 2 {
            sleep(TICK);
        }
        let sleepers: Vec<i32> = of(own).map(|(pid, _)| pid).collect();
        let waited = wait(&mut child, Duration::ZERO);
        assert!(waited.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
        let lives = |pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains("(sleep) ") && !stat.contains("(sleep) Z")
        };
        while sleepers.iter().any(lives) {
            sleep(TICK);
        }
    }
}
