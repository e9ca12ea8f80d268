//! The command: its steps in their order.

use std::io::Write as _;

use anyhow::Result;

use super::advice::Advice;
use super::options::AdviseArgs;
use super::{json, sheet, show};
use crate::bench::Format;
use crate::host::Host;
use crate::record;

/// Predicts, measures where that is asked for, and says which setting to choose.
pub(crate) fn run(args: &AdviseArgs, host: &Host) -> Result<()> {
    args.check(host)?;
    let tapes = args.tapes(host)?;
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
