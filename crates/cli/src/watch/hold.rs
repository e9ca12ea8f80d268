//! `quire hold`: the process that becomes the watched program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, fs, io, process};

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{Signal, getpid, kill_process};

use super::call;
use crate::refused::Refused;

/// Options of the hidden command `hold`.
#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// No large folios
    #[arg(long)]
    small: bool,
    /// The same addresses in each run
    #[arg(long)]
    fixed: bool,
    /// In this memory group
    #[arg(long)]
    group: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// How a program is to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manner {
    /// It gets no large folios.
    pub(crate) small: bool,
    /// It has the same addresses in each run.
    pub(crate) fixed: bool,
    /// Its output is not shown.
    pub(crate) quiet: bool,
    /// The folder of the memory group that it is in, if that is another than ours.
    pub(crate) group: Option<PathBuf>,
}

impl Manner {
    /// Starts a process that will become the program, and waits in front of it, stopped.
    pub(super) fn start(self, command: &[OsString]) -> Result<Child> {
        let own = env::current_exe().context("the command does not find itself")?;
        let mut held = Command::new(own);
        held.arg("hold");
        held.args(self.small.then_some("--small")).args(self.fixed.then_some("--fixed"));
        held.args(self.group.iter().flat_map(|group| ["--group".as_ref(), group.as_os_str()]));
        held.arg("--").args(command).stdin(Stdio::null());
        if self.quiet {
            held.stdout(Stdio::null()).stderr(Stdio::null());
        }
        held.spawn().context("the program cannot be started")
    }
}

/// Sets what the program inherits, stops until the tracer has come, and becomes the program.
pub(crate) fn hold(args: &HoldArgs) -> Result<()> {
    if args.small {
        call::no_large_folios().context("the kernel does not keep large folios away")?;
    }
    if args.fixed {
        call::same_addresses().context("the kernel does not fix addresses")?;
    }
    if let Some(group) = &args.group {
        fs::write(group.join("cgroup.procs"), process::id().to_string())
            .context("the program does not get into its memory group")?;
    }
    kill_process(getpid(), Signal::STOP)?;
    let (name, rest) = args.command.split_first().context("a program is missing")?;
    let error = Command::new(name).args(rest).exec();
    let shown = name.to_string_lossy();
    Err(match error.kind() {
        io::ErrorKind::NotFound => Refused(format!("there is no program {shown}")).into(),
        _ => anyhow::Error::new(error).context(format!("{shown} does not run")),
    })
}
