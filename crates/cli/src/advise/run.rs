//! The command: its steps in their order.

use std::io::Write as _;

use anyhow::Result;

use super::advice::Advice;
use super::options::AdviseArgs;
use super::{hot, json, sheet, show, snapshot};
use crate::bench::Format;
use crate::host::Host;
use crate::record;

/// Predicts, measures where that is asked for, and says which setting to choose.
pub(crate) fn run(args: &AdviseArgs, host: &Host) -> Result<()> {
    args.check(host)?;
    let tapes = args.tapes(host)?;
    if let (Some(output), Some(tape)) = (&args.text, tapes.first()) {
        let page = hot::page(args, tape, output)?;
        return Ok(std::io::stdout().write_all(page.as_bytes())?);
    }
    if let (Some(time), Some(tape)) = (args.snapshot, tapes.first()) {
        let page = snapshot::page(tape, tapes.get(1), time.as_secs_f64());
        return Ok(std::io::stdout().write_all(page.as_bytes())?);
    }
    let advice = Advice::new(args, &tapes, host)?;
    let text = match args.format {
        Format::Table => show::page(&advice),
        Format::Json => json::object(&advice)?,
    };
    std::io::stdout().write_all(text.as_bytes())?;
    match record::save(&sheet::run(&advice, host)) {
        Ok(_) if args.format == Format::Table => {
            println!("`quire report` makes a page with plots of it.");
        }
        Ok(_) => {}
        Err(e) => eprintln!("quire: the run is not saved: {e:#}."),
    }
    Ok(())
}
