//! A process that undoes our changes to the host, also after a crash.
//!
//! The keeper is a shell that reads a line of shell for each step to undo, from a pipe whose other
//! end this process alone has. When that end is closed, by this process or by its end, the keeper
//! undoes the steps, the last one first. No signal of the terminal reaches it.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The program of the keeper.
const SCRIPT: &str = "
trap '' INT TERM HUP
undo=
while IFS= read -r line; do
    undo=\"$line
$undo\"
done
eval \"$undo\"
";

/// The folders of the administrator's programs; users' paths often lack the first two.
const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// A process that undoes the promised steps. Dropping it undoes everything at once.
#[must_use]
pub(crate) struct Keeper {
    shell: Child,
    /// `None` once it has been closed.
    pipe: Option<ChildStdin>,
}

impl Keeper {
    /// A keeper that has nothing to undo.
    pub(crate) fn new() -> io::Result<Keeper> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).env("PATH", PATH).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = command.spawn()?;
        let pipe = shell.stdin.take();
        Ok(Keeper { shell, pipe })
    }

    /// Has the keeper run `undo`, one line of shell, when all is over. It may find nothing to undo:
    /// it is told before the step is taken.
    pub(crate) fn promise(&mut self, undo: &str) -> io::Result<()> {
        let pipe = self.pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.write_all(format!("{undo}\n").as_bytes())
    }

    /// Undoes everything, and waits until it is done.
    fn end(&mut self) {
        drop(self.pipe.take());
        // It is a child of this process: waiting for it cannot fail.
        let _ = self.shell.wait();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// A name that no other process has, and no other run in this one.
pub(crate) fn own_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("quire-{what}-{}-{}", COUNT.fetch_add(1, Ordering::Relaxed), process::id())
}

/// A path as a word of the shell.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    const CHILD: &str = "QUIRE_TEST_KEEPER";

    #[test]
    fn d7_steps_are_undone_last_first_and_one_that_fails_stops_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("it's a log");
        let mut keeper = Keeper::new().unwrap();
        keeper.promise(&format!("echo first >> {}", quoted(&log))).unwrap();
        keeper.promise("false").unwrap();
        keeper.promise(&format!("echo last >> {}", quoted(&log))).unwrap();
        assert!(!log.exists());
        drop(keeper);
        assert_eq!(fs::read_to_string(&log).unwrap(), "last\nfirst\n");
    }

    /// Runs in a process that the next test kills. Without a parent that names a file it checks
    /// that nothing is undone before the end.
    #[test]
    fn d7_the_child_holds_a_keeper() {
        let Some(path) = std::env::var_os(CHILD) else {
            let mut keeper = Keeper::new().unwrap();
            return keeper.promise("true").unwrap();
        };
        let mut keeper = Keeper::new().unwrap();
        keeper.promise(&format!("rm {}", quoted(Path::new(&path)))).unwrap();
        fs::write(&path, "").unwrap();
        thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn d7_steps_are_undone_when_the_process_is_interrupted_or_killed() {
        for signal in [Signal::INT, Signal::KILL] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("step");
            let name = module_path!().split_once("::").unwrap().1;
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &format!("{name}::d7_the_child_holds_a_keeper")])
                .env(CHILD, &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            wait_until(|| path.exists());
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert!(!child.wait().unwrap().success());
            wait_until(|| !path.exists());
        }
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(30), "it does not come");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
