//! A process that is watched: it ends, says that it fails, or takes too much of a CPU.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// With success.
    Passed,
    /// It said or did this.
    Failed(String),
    /// It was ended after its time, or waited for ever, and had last said this.
    TookTooLong(String),
}

/// The failure that a line tells of, if it does.
pub(crate) type Alarm = fn(&str) -> Option<String>;

/// How often its time is looked at, and after how long without progress it waits for ever. Time is
/// that of the CPU, so a busy machine ends no process.
const LOOK: Duration = Duration::from_millis(500);
const STILL: Duration = Duration::from_secs(120);

/// Runs `command` up to the first line that alarms, and for `most` seconds of a CPU at the longest;
/// returns how it ended, and how many it took.
///
/// # Errors
/// It cannot be started.
pub(crate) fn watch(mut command: Command, most: f64, alarm: Alarm) -> io::Result<(End, f64)> {
    let (mut reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It holds the writing ends, and the pipe would not end before it.
    drop(command);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    let (mut rest, mut clock) = (Vec::new(), Clock::new(child.id()));
    let end = loop {
        match receiver.recv_timeout(LOOK) {
            Ok(bytes) => rest.extend(bytes),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break None,
        }
        if let Some(what) = lines(&mut rest).iter().find_map(|line| alarm(line)) {
            break Some(End::Failed(what));
        }
        if clock.look() >= most || clock.is_still() {
            break Some(End::TookTooLong(String::from_utf8_lossy(&rest).trim().to_owned()));
        }
    };
    clock.look();
    match end {
        Some(end) => {
            child.kill()?;
            child.wait()?;
            Ok((end, clock.seconds))
        }
        None => Ok((ended(&mut child)?, clock.seconds)),
    }
}

fn ended(child: &mut Child) -> io::Result<End> {
    let status = child.wait()?;
    Ok(if status.success() { End::Passed } else { End::Failed(status.to_string()) })
}

/// How long a process has run on CPUs.
struct Clock {
    path: String,
    seconds: f64,
    /// When that has last changed.
    since: Instant,
}

/// The parts of a second in which Linux tells programs the time of a process (`USER_HZ`).
const TICKS: f64 = 100.0;

impl Clock {
    fn new(process: u32) -> Self {
        Self { path: format!("/proc/{process}/stat"), seconds: 0.0, since: Instant::now() }
    }

    /// Its seconds now, or those of the last time if it is gone.
    fn look(&mut self) -> f64 {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        // The name before the parenthesis may hold anything (proc_pid_stat(5)).
        let after = text.rsplit_once(')').map_or("", |(_, after)| after);
        let ticks = after.split_whitespace().skip(11).take(2);
        let seconds = ticks.filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / TICKS;
        if seconds > self.seconds {
            (self.seconds, self.since) = (seconds, Instant::now());
        }
        self.seconds
    }

    fn is_still(&self) -> bool {
        self.since.elapsed() >= STILL
    }
}

/// Takes the whole lines away.
fn lines(rest: &mut Vec<u8>) -> Vec<String> {
    let Some(end) = rest.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
    let whole: Vec<u8> = rest.drain(..=end).collect();
    String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
}
