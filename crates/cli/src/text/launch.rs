//! `quire launch`: reads the hot text of a program, and becomes the program.

use std::ffi::OsString;
use std::fs::{self, File};
use std::num::NonZeroU64;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use memmap2::{Advice, MmapOptions};
use rustix::fs::fadvise;

use super::map::{Hot, PAGE, TextMap};
use crate::refused::Refused;

/// Options of `launch`.
#[derive(Args, Debug)]
pub(crate) struct LaunchArgs {
    /// A map of hot text, made by `quire advise --text`
    #[arg(long, value_name = "FILE")]
    map: PathBuf,
    /// Read blocks of 2M that are hot for the most part as one folio each, where the file system
    /// can; the program waits for them
    #[arg(long)]
    blocks: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Pages of a block.
const BLOCK: u64 = 512;

/// Asks for the hot text, and becomes the program; returns only when that fails.
pub(crate) fn launch(args: &LaunchArgs) -> Result<()> {
    let shown = args.map.display();
    let text = fs::read_to_string(&args.map)
        .map_err(|e| Refused(format!("the map {shown} cannot be read: {e}")))?;
    let map: TextMap = text.parse().map_err(|why| Refused(format!("{shown}: {why}")))?;
    for hot in &map.files {
        if !hot.is_current() {
            eprintln!("quire: {} has changed; it is not read ahead.", hot.path.display());
        } else if let Err(e) = ask(hot, args.blocks) {
            eprintln!("quire: {} is not read ahead: {e:#}.", hot.path.display());
        }
    }
    let (name, rest) = args.command.split_first().context("a program is missing")?;
    let error = Command::new(name).args(rest).exec();
    Err(Refused(format!("{} does not run: {error}", name.display())).into())
}

/// Has the kernel read the runs of a file. It goes on after this call has returned, but for blocks.
fn ask(hot: &Hot, blocks: bool) -> Result<()> {
    let file = File::open(&hot.path)?;
    if blocks {
        let map = MmapOptions::new().map_raw_read_only(&file)?;
        for block in hot.dense(BLOCK) {
            let (at, bytes) = ((block * BLOCK * PAGE) as usize, (BLOCK * PAGE) as usize);
            map.advise_range(Advice::HugePage, at, bytes)?;
            map.advise_range(Advice::PopulateRead, at, bytes)?;
        }
    }
    for (first, count) in &hot.runs {
        let bytes = NonZeroU64::new(count * PAGE);
        fadvise(&file, first * PAGE, bytes, rustix::fs::Advice::WillNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b7_all_runs_of_a_file_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, vec![1; 3 << 20]).unwrap();
        let hot = Hot::of(&path, 0..700, 0).unwrap();
        assert_eq!(hot.dense(BLOCK), [0]);
        ask(&hot, false).unwrap();
        ask(&hot, true).unwrap();
    }

    #[test]
    fn b7_a_map_that_is_none_is_refused() {
        let args =
            |map: &str| LaunchArgs { map: map.into(), blocks: false, command: vec!["true".into()] };
        let error = launch(&args("/nonexistent/map")).unwrap_err();
        assert!(error.is::<Refused>() && error.to_string().contains("cannot be read"));
    }
}
