//! The command: it reads processes and prints their tables.

use std::io::Write;

use anyhow::{Context, Result};
use clap::Args;
use quire_linux::files::Text;
use quire_linux::text::{AreaLine, Folios, Grain};

use super::frames::Frames;
use super::process::{self, Found, Process};
use crate::bench::options::folio_size;
use crate::host::Host;
use crate::refused::Refused;
use crate::size::Size;

/// Options of `maps`.
#[derive(Args, Debug)]
pub(crate) struct MapsArgs {
    /// The process
    #[arg(required_unless_present = "all")]
    pub(super) pid: Option<u32>,
    /// All processes: a line for each, and the table of all together
    #[arg(long, conflicts_with_all = ["pid", "areas"])]
    pub(super) all: bool,
    /// The blocks that are counted as contiguous, a power of two from the page size on
    #[arg(long, default_value = "64K", value_parser = folio_size)]
    pub(super) cont: Size,
    /// A line for each area as well
    #[arg(long)]
    pub(super) areas: bool,
}

/// Prints the table of one process or of all.
pub(crate) fn run(args: &MapsArgs, host: &Host) -> Result<()> {
    let page = rustix::param::page_size() as u64;
    let grain = Grain { page, cont: args.cont.bytes() };
    if grain.cont < page {
        let page = Size(page);
        return Err(Refused(format!("--cont {}: a page has {page}", args.cont)).into());
    }
    let mut frames = Frames::open(host)?;
    let mut out = Text::new();
    match args.pid {
        Some(pid) => one(host, pid, grain, args.areas, &mut frames, &mut out)?,
        None => all(host, grain, &mut frames, &mut out)?,
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(out.bytes())?;
    Ok(stdout.flush()?)
}

/// The table of one process; before it a line for each area when `areas`.
fn one(
    host: &Host,
    pid: u32,
    grain: Grain,
    areas: bool,
    frames: &mut Frames,
    out: &mut Text,
) -> Result<()> {
    let process = match process::read(host, pid, grain, frames)? {
        Found::Process(process) => process,
        Found::Nothing => {
            let why =
                format!("process {pid} has no memory: a kernel thread, or one that has ended");
            return Err(Refused(why).into());
        }
        Found::Gone => return Err(Refused(format!("there is no process {pid}")).into()),
        Found::Hidden => {
            let why = format!("process {pid} may not be read: that needs root, and all its rights");
            return Err(Refused(why).into());
        }
    };
    for (area, folios) in process.areas.iter().filter(|_| areas) {
        if *folios != Folios::default() {
            let line = AreaLine { name: area.name.as_bytes(), ..area.line };
            line.print_short(out).context(MEMORY)?;
            end_line(folios, grain, out)?;
        }
    }
    table(&format!("process {pid} ({})", process.name), &process.sum(), grain, out)
}

/// A line for each process that holds something, and the table of all.
fn all(host: &Host, grain: Grain, frames: &mut Frames, out: &mut Text) -> Result<()> {
    let mut sum = Folios::default();
    let (mut read, mut gone, mut hidden) = (0_u32, 0_u32, 0_u32);
    for pid in process::all(host)? {
        match process::read(host, pid, grain, frames)? {
            Found::Process(process) => {
                let folios = process.sum();
                print(out, format_args!("{pid} {}", process.name))?;
                end_line(&folios, grain, out)?;
                sum.add(&folios);
                read += 1;
            }
            Found::Nothing => {}
            Found::Gone => gone += 1,
            Found::Hidden => hidden += 1,
        }
    }
    let mut head = format!("{read} processes, each mapping counted");
    for (count, why) in [(gone, "ended before they were read"), (hidden, "may not be read")] {
        if count > 0 {
            head += &format!("; {count} {why}");
        }
    }
    table(&head, &sum, grain, out)
}

fn end_line(folios: &Folios, grain: Grain, out: &mut Text) -> Result<()> {
    folios.print_line(out, grain).context(MEMORY)?;
    print(out, format_args!("\n"))
}

fn table(head: &str, folios: &Folios, grain: Grain, out: &mut Text) -> Result<()> {
    print(out, format_args!("{head}\n"))?;
    folios.print_table(out, grain).context(MEMORY)
}

const MEMORY: &str = "there is no memory for the table";

fn print(out: &mut Text, args: std::fmt::Arguments<'_>) -> Result<()> {
    out.print(args).context(MEMORY)
}

impl Process {
    /// All areas together.
    pub(super) fn sum(&self) -> Folios {
        let mut sum = Folios::default();
        self.areas.iter().for_each(|(_, folios)| sum.add(folios));
        sum
    }
}
