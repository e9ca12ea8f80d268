//! The command.
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::linux::{Memory, Setting, Word, replay};
use crate::host::Host;
use crate::tape;

/// Options of `advise`.
#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    /// A recording
    #[arg(long)]
    recording: Option<PathBuf>,
}

/// Advises.
pub(crate) fn run(args: &AdviseArgs, _host: &Host) -> Result<()> {
    let tape = tape::load(args.recording.as_ref().context("no recording")?)?;
    let mut all = vec![Setting::never()];
    for order in 2..=9 {
        all.push(Setting::never().with(order, Word::Always));
    }
    for setting in all {
        let start = std::time::Instant::now();
        let out = replay(&tape, &setting, Memory::new(0.0));
        println!("{setting}: {} {:?} {:?}", out.counts.faults(), out, start.elapsed());
    }
    Ok(())
}
