//! The main job: the benches with modest settings and the kernel in an emulator, behind one
//! progress bar, and then their results on one screen. `make run` runs this.
//!
//! All that the parts print goes to files beside the report, so that nothing scrolls over the
//! screen. Ctrl-C reaches the part that is running; the job waits until that part has restored the
//! host's settings.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::guest::Isa;
use crate::steps::build_dir;

/// The benches, with the seconds that each takes on two idle cores; the bar is drawn from these.
const BENCHES: [(&str, u64); 7] = [
    ("bench clear --sizes 4K,64K,2M,64M --loops 3", 15),
    ("bench fault --sizes 4K,64K,2M --loops 5", 30),
    ("bench fork --region 256M --isa x86_64,arm64_4k --loops 5", 40),
    ("bench zap --region 256M --loops 5", 30),
    ("bench protect --region 256M --loops 5", 25),
    ("bench read --size 256M --loops 5", 15),
    ("bench pageout --size 64M --loops 3", 30),
];

/// The programs that each ISA's kernel runs: a name for the screen, and the words.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("busybox uname", &["busybox", "uname", "-a"]),
    ("forkbench", &["forkbench", "-t", "-m", "16", "-n", "1", "4K", "64K", "2M"]),
];
/// The seconds that a boot takes, with its share of the kernel's build.
const BOOT: u64 = 20;

/// The exit status of `cargo xtask run` where something is missing.
const MISSING: i32 = 2;

/// How often the bar moves, and a part's end is looked for.
const TICK: Duration = Duration::from_millis(100);

/// Runs all parts and prints the screen; returns whether all succeeded.
pub fn run(root: &Path) -> bool {
    match Job::new(root).and_then(|mut job| job.run()) {
        Ok(good) => good,
        Err(why) => {
            eprintln!("{why}");
            false
        }
    }
}

/// The job under way.
struct Job {
    root: PathBuf,
    /// Where the parts' output goes.
    logs: PathBuf,
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Job {
    fn new(root: &Path) -> Result<Self, String> {
        let logs = build_dir(root).join("quire/logs");
        fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}.", logs.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .map_err(|error| format!("signals: {error}."))?;
        }
        let boots = BOOT * (Isa::ALL.len() * PROGRAMS.len()) as u64;
        let seconds = BENCHES.iter().map(|(_, seconds)| seconds).sum::<u64>() + boots;
        let bar = ProgressBar::new(1000 * seconds);
        let style =
            ProgressStyle::with_template("{wide_bar} {percent:>3} %  {eta:>4} left  {msg:20}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Ok(Self { root: root.to_path_buf(), logs, bar, stop })
    }

    fn run(&mut self) -> Result<bool, String> {
        self.build()?;
        let quire = build_dir(&self.root).join("release/quire");
        for (words, seconds) in BENCHES {
            let words: Vec<&str> = words.split(' ').collect();
            let name = words[..2].join(" ");
            let mut command = Command::new(&quire);
            command.args(&words);
            let status = self.part(&name, command, seconds)?;
            if !status.success() {
                return Err(self.failed(&format!("`quire {name}`"), status, &name));
            }
        }
        let kernels = self.kernels()?;
        self.bar.finish_and_clear();
        let mut report = Command::new(&quire);
        report.args(["report", "--summary"]).current_dir(&self.root);
        let status = report.status().map_err(|error| format!("quire report: {error}."))?;
        kernels.iter().for_each(|(line, _)| println!("{line}"));
        Ok(status.success() && kernels.iter().all(|(_, good)| *good))
    }

    /// Builds the command `quire`, which takes minutes the first time.
    fn build(&self) -> Result<(), String> {
        let name = "build";
        println!("Building quire; the first time takes a few minutes.");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--package", "quire-cli"]);
        match self.part(name, cargo, 0)? {
            status if status.success() => Ok(()),
            status => Err(self.failed("cargo build", status, name)),
        }
    }

    /// Boots the kernel for each program; a line for each ISA, and whether it is a good one. Where
    /// QEMU or a compiler is missing the line says so, and that is no failure.
    fn kernels(&self) -> Result<Vec<(String, bool)>, String> {
        let own = std::env::current_exe().map_err(|error| format!("cargo xtask: {error}."))?;
        let mut lines = Vec::new();
        for isa in Isa::ALL {
            let mut ran = Vec::new();
            let mut line = None;
            for (program, words) in PROGRAMS {
                let name = format!("{} {program}", isa.name());
                let mut command = Command::new(&own);
                command.args([
                    "run",
                    "--arch",
                    isa.name(),
                    "--mem",
                    "1G",
                    "--timeout",
                    "300",
                    "--",
                ]);
                command.args(words);
                let status = self.part(&name, command, BOOT)?;
                match status.code() {
                    Some(0) => ran.push(program),
                    Some(MISSING) => {
                        let why = self.last_line(&name);
                        line = Some((format!("Left out: kernel on {}: {why}", isa.name()), true));
                        break;
                    }
                    _ => {
                        line = Some((self.failed(&name, status, &name), false));
                        break;
                    }
                }
            }
            lines.push(line.unwrap_or_else(|| {
                let (isa, ran) = (isa.name(), ran.join(" and "));
                (format!("Quire's kernel on {isa} in QEMU: {ran} ran and ended well."), true)
            }));
        }
        lines.push((format!("Consoles and output of each part: {}", self.logs.display()), true));
        Ok(lines)
    }

    /// Runs one part to its end, its output in a file of its own, and moves the bar by `seconds`.
    fn part(&self, name: &str, mut command: Command, seconds: u64) -> Result<ExitStatus, String> {
        let failed = |error: io::Error| format!("{name}: {error}.");
        let log = File::create(self.log(name)).map_err(failed)?;
        command.stdin(Stdio::null()).stderr(log.try_clone().map_err(failed)?).stdout(log);
        let mut child = command.current_dir(&self.root).spawn().map_err(failed)?;
        self.bar.set_message(name.to_owned());
        let (start, before) = (Instant::now(), self.bar.position());
        let most = 1000 * seconds;
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                self.bar.set_position(before + most);
                // A part that Ctrl-C reached first ends before it is told to.
                return if self.stop.load(Ordering::Relaxed) {
                    Err(self.end(child))
                } else {
                    Ok(status)
                };
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(self.end(child));
            }
            let passed = u64::try_from(start.elapsed().as_millis()).unwrap_or(most);
            if seconds > 0 {
                self.bar.set_position(before + passed.min(most));
            }
            sleep(TICK);
        }
    }

    /// Tells a part to end, and waits until it has restored what it changed; returns what is said.
    fn end(&self, mut child: Child) -> String {
        if let (Ok(None), Some(pid)) =
            (child.try_wait(), i32::try_from(child.id()).ok().and_then(Pid::from_raw))
        {
            // It may have ended meanwhile; then there is nothing to end.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = child.wait();
        self.bar.finish_and_clear();
        "Interrupted; the host's settings are as they were.".to_owned()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{}.log", name.replace(' ', "-")))
    }

    fn last_line(&self, name: &str) -> String {
        let text = fs::read_to_string(self.log(name)).unwrap_or_default();
        text.lines().last().unwrap_or("it does not say why").to_owned()
    }

    /// Says that a part failed, with its last line and where to read the others.
    fn failed(&self, what: &str, status: ExitStatus, name: &str) -> String {
        self.bar.finish_and_clear();
        let (last, log) = (self.last_line(name), self.log(name));
        format!("{what} failed ({status}): {last} (all of it: {})", log.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(dir: &Path) -> Job {
        let stop = Arc::new(AtomicBool::new(false));
        let (root, logs) = (dir.to_path_buf(), dir.to_path_buf());
        Job { root, logs, bar: ProgressBar::hidden(), stop }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_goes_to_a_file_and_a_failure_is_told_with_its_last_line() {
        let dir = std::env::temp_dir().join(format!("quire-job-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let job = job(&dir);
        let status = job.part("a b", shell("echo one; echo two >&2; exit 3"), 1).expect("it runs");
        let told = job.failed("it", status, "a b");
        assert!(told.starts_with("it failed (exit status: 3): two (") && told.contains("a-b.log"));
        assert_eq!(fs::read_to_string(job.log("a b")).expect("a log"), "one\ntwo\n");
        fs::remove_dir_all(&dir).expect("the folder goes");
    }

    #[test]
    fn an_interrupted_part_ends_before_the_job_does() {
        let dir = std::env::temp_dir().join(format!("quire-job-stop-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let job = job(&dir);
        let script = "trap 'echo restored; exit 143' TERM; while :; do sleep 0.05; done";
        let stop = Arc::clone(&job.stop);
        let told = std::thread::scope(|scope| {
            scope.spawn(move || {
                sleep(Duration::from_millis(500));
                stop.store(true, Ordering::Relaxed);
            });
            job.part("part", shell(script), 1)
        });
        assert!(told.is_err_and(|told| told.starts_with("Interrupted")));
        assert_eq!(job.last_line("part"), "restored");
        fs::remove_dir_all(&dir).expect("the folder goes");
    }
}
