//! One driver for all benches.
//!
//! ```text
//!   new ─► measure (Sheet::rounds) ─► goals ─► words ─► tables, plots, headlines ─► save, print
//! ```

use std::io::{self, Write};

use anyhow::Result;

use super::options::Format;
use super::sheet::{Key, Place, Row, Sheet};
use crate::host::Host;
use crate::plot::Plot;
use crate::record;
use crate::table;

/// A bench: what it measures, and what its figures mean.
pub(crate) trait Bench: Sized {
    type Args;

    /// Its name in records, its heading in the report, and the text below the heading.
    fn titles(args: &Self::Args) -> [&'static str; 3];

    /// Plans what `args` ask for. Errors are [`Refused`](crate::refused::Refused) for what cannot
    /// be measured, before anything is.
    fn new(args: &Self::Args, host: &Host, sheet: &mut Sheet) -> Result<Self>;

    /// Measures its cells, by [`Sheet::rounds`] where time is measured.
    fn measure(&mut self, host: &Host, sheet: &mut Sheet) -> Result<()>;

    /// Derives ratios from the figures, and judges them by the goals.
    fn goals(&self, sheet: &mut Sheet);

    /// Says under which settings the figures were taken, and what they leave out.
    fn words(&self, sheet: &mut Sheet);

    /// Where a figure stands: in which table, row and column.
    fn place(&self, key: &Key) -> Place;

    /// Its rows in the table that sums up all benches.
    fn headlines(&self) -> Vec<Row> {
        Vec::new()
    }

    /// The figures as plots, for the report.
    fn plots(&self, _: &Sheet) -> Vec<Plot> {
        Vec::new()
    }
}

/// Runs a bench, saves what it found and prints it.
pub(crate) fn drive<B: Bench>(args: &B::Args, format: Format, host: &Host) -> Result<()> {
    let [name, title, about] = B::titles(args);
    let mut sheet = Sheet::new(name, host);
    let mut bench = B::new(args, host, &mut sheet)?;
    bench.measure(host, &mut sheet)?;
    bench.goals(&mut sheet);
    bench.words(&mut sheet);
    if cfg!(debug_assertions) {
        sheet.limit("This is a debug build, whose figures say little: build with --release.");
    }
    let plots = bench.plots(&sheet);
    let mut run = sheet.finish(|key| bench.place(key), &bench.headlines());
    (run.title, run.about, run.plots) = (title.to_owned(), about.to_owned(), plots);
    let saved = record::save(&run);
    let mut out = io::stdout().lock();
    match format {
        Format::Json => {
            for record in &run.records {
                writeln!(out, "{}", serde_json::to_string(record)?)?;
            }
        }
        Format::Table => write!(out, "{}", table::page(&run))?,
    }
    out.flush()?;
    match saved {
        Ok(path) if format == Format::Table => {
            writeln!(out, "Saved as {}.", path.display())?;
        }
        Ok(_) => {}
        Err(e) => eprintln!("quire: the run is not saved: {e:#}."),
    }
    Ok(())
}
