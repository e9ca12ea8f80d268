//! The interrupts that each CPU has taken, as `interrupts` prints them.

use quire_linux::Result;
use quire_linux::files::Text;

use crate::isa::{self, Reason};

/// The words of a line: its name, and what it counts.
const fn words(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::Timer => ("LOC", "Local timer interrupts"),
        Reason::Wake => ("RES", "Rescheduling interrupts"),
        Reason::Flush => ("TLB", "TLB shootdowns"),
        Reason::Device => ("DEV", "Device interrupts"),
    }
}

/// `interrupts`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn show(out: &mut Text) -> Result<()> {
    let cpus = isa::cpu_count();
    out.push(b"    ")?;
    (0..cpus).try_for_each(|cpu| out.print(format_args!(" {:>9}{cpu}", "CPU")))?;
    out.push(b"\n")?;
    Reason::ALL.iter().try_for_each(|&reason| {
        let (name, meaning) = words(reason);
        out.print(format_args!("{name}:"))?;
        (0..cpus)
            .try_for_each(|cpu| out.print(format_args!(" {:>10}", isa::taken(cpu, reason))))?;
        out.print(format_args!("   {meaning}\n"))
    })
}
