//! The program that is recorded, and its runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

/// The program that is recorded.
pub(super) struct Program<'a> {
    /// Its file.
    pub(super) path: PathBuf,
    /// Its name on the command line.
    pub(super) name: &'a OsString,
    pub(super) args: &'a [OsString],
    pub(super) interrupted: Arc<AtomicBool>,
}

impl Program<'_> {
    /// Starts it; its output is shown only when `loud`.
    pub(super) fn start(&self, loud: bool) -> Result<Running> {
        let mut command = Command::new(self.name);
        command.args(self.args).stdin(Stdio::null());
        if !loud {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let child =
            command.spawn().with_context(|| format!("{} does not run", self.path.display()))?;
        Ok(Running { child, interrupted: self.interrupted.clone(), status: None })
    }
}

/// A program that was started. It does not outlive this.
pub(super) struct Running {
    child: Child,
    interrupted: Arc<AtomicBool>,
    /// How it ended.
    pub(super) status: Option<ExitStatus>,
}

impl Running {
    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub(super) fn is_running(&mut self) -> Result<bool> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("the recording was interrupted");
        }
        self.status = self.child.try_wait()?;
        Ok(self.status.is_none())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_program_that_is_interrupted_is_ended() {
        let name = OsString::from("sleep");
        let args = ["60".into()];
        let interrupted = Arc::new(AtomicBool::new(false));
        let path = PathBuf::from("sleep");
        let program = Program { path, name: &name, args: &args, interrupted: interrupted.clone() };
        let mut running = program.start(false).unwrap();
        assert!(running.is_running().unwrap());
        interrupted.store(true, Ordering::Relaxed);
        assert!(running.is_running().unwrap_err().to_string().contains("interrupted"));
        let pid = running.id();
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
