//! `explain fault`: one page fault told step by step, from a real one.
//!
//! [`scene`] sets a small system up on the hosted machine and lets a program fault in it.
//! [`recorder`] stands between the memory manager and the machine and writes down every effect.
//! [`story`] tells what was recorded, room by room, with the files to read.

mod recorder;
mod scene;
mod story;
#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::Result;

use crate::args::Explain;

/// Runs a fault and tells it.
///
/// # Errors
/// [`Refused`](crate::Refused) when the host has too little memory; else what went wrong.
pub(crate) fn run(explain: &Explain, host: &crate::host::Host) -> Result<()> {
    let Explain::Fault(args) = explain;
    let size = args.isa.nearest(args.size);
    let what = format!("explaining a fault of {size}");
    crate::host::memory::require(host, &what, scene::ram_bytes(size, args.isa.page_shift()))?;
    let evidence = args.isa.with(scene::Scene { size })?;
    let story = story::tell(&evidence, (args.size, size));
    // Colours reach terminals only, and none where NO_COLOR is set.
    let mut out = anstream::stdout().lock();
    out.write_all(story.print().as_bytes())?;
    Ok(out.flush()?)
}
