//! `explain fault`: one page fault told step by step, from a real one.
//!
//! [`scene`] sets a small system up on the hosted machine and lets a program fault in it.
//! [`recorder`] stands between the memory manager and the machine and records every effect.
//! [`story`] tells the effects, room by room, with the files to read.

mod recorder;
mod scene;
mod story;
#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::bench::options::folio_size;
use crate::host::{Host, memory};
use crate::isa::Isa;
use crate::size::Size;

/// The events that can be explained.
#[derive(Subcommand, Debug)]
pub(crate) enum Explain {
    /// One page fault, step by step through the rooms, with the files it passes
    Fault(ExplainArgs),
}

/// Options of `explain fault`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The size of the folio that the program gets
    #[arg(long, default_value = "64K", value_parser = folio_size)]
    size: Size,
    /// The page-table format
    #[arg(long, value_enum, default_value_t = Isa::X86_64)]
    isa: Isa,
}

/// Runs a fault and prints its story.
pub(crate) fn run(explain: &Explain, host: &Host) -> Result<()> {
    let Explain::Fault(args) = explain;
    let size = args.isa.nearest(args.size);
    let what = format!("explaining a fault of {size}");
    memory::require(host, &what, scene::ram_bytes(size, args.isa.page_shift()))?;
    let evidence = scene::record(args.isa, size)?;
    let story = story::tell(&evidence, (args.size, size));
    // Colours reach terminals only, and none where NO_COLOR is set.
    let mut out = anstream::stdout().lock();
    out.write_all(story.print().as_bytes())?;
    Ok(out.flush()?)
}
