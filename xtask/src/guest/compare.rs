//! `cargo xtask compare`: the same programs in the same machine, on Linux and on Quire's kernel.
//!
//! The machine's clock counts instructions, one nanosecond each, so a figure is a number of
//! executed instructions, and two runs agree to about a percent. Instructions are no cycles.

use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table, presets};

use super::console::Event;
use super::kernel::linux_words;
use super::machine::{Accel, Ending};
use super::run::{Order, boot};
use super::{Figure, Isa};
use crate::steps::Missing;

/// What is compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The machine's ISA.
    pub isa: Isa,
    /// Programs of `guest/`; all are told `-t -j 1`, and the two numbers below.
    pub programs: Vec<String>,
    /// MiB of the region that they measure.
    pub region_mib: u32,
    /// Medians are over so many rounds.
    pub rounds: u32,
    /// THP settings of the machine, for what the programs do not set themselves.
    pub thp: Option<String>,
    /// `linux`, or the file of another.
    pub linux: String,
    /// A directory of the host that both have on a disk, and a file of it that programs are told.
    pub root: Option<(PathBuf, String)>,
    /// Seconds that each machine may take.
    pub timeout_seconds: u64,
}

/// What one kernel printed, over all programs.
#[derive(Default)]
struct Side {
    figures: Vec<Figure>,
    thp: Option<String>,
    is_whole: bool,
    /// Why figures are missing.
    troubles: Vec<String>,
}

/// Runs all programs on both kernels and prints the table; returns whether all of them ran.
///
/// # Errors
/// Why Linux cannot be run here; then there is nothing to compare with.
pub fn compare(root: &Path, what: &Comparison) -> Result<bool, Missing> {
    let linux = measure(root, what, &what.linux)?;
    // Without Quire's side, Linux's figures are still worth a look.
    let quire = measure(root, what, "quire").unwrap_or_else(|missing| Side {
        troubles: vec![format!("Quire: {}", missing.sentence)],
        ..Side::default()
    });
    println!("{}, instructions", what.isa.name());
    println!("Linux is told {}; both had 3 s of rest after boot", linux_words(&what.linux));
    println!("Linux {}", linux.thp.as_deref().unwrap_or("told no THP settings"));
    if quire.is_whole {
        println!("Quire {}", quire.thp.as_deref().unwrap_or("told no THP settings"));
    }
    println!("{}", table(&linux.figures, &quire.figures));
    for trouble in linux.troubles.iter().chain(&quire.troubles) {
        println!("{trouble}");
    }
    Ok(linux.is_whole && quire.is_whole)
}

fn measure(root: &Path, what: &Comparison, kernel: &str) -> Result<Side, Missing> {
    let mut side = Side { is_whole: true, ..Side::default() };
    for program in &what.programs {
        let mut words = vec![program.clone()];
        words.extend(["-t", "-j", "1", "-m"].map(str::to_owned));
        words.extend([what.region_mib.to_string(), "-n".to_owned(), what.rounds.to_string()]);
        // All but the one that looks at the clock use a file.
        let file = what.root.iter().filter(|_| program != "calibrate");
        words.extend(file.map(|(_, file)| file.clone()));
        let order = Order {
            isa: what.isa,
            cpus: 1,
            memory: "2G".to_owned(),
            thp: what.thp.clone(),
            accel: Accel::Tcg,
            kernel: kernel.to_owned(),
            timeout_seconds: what.timeout_seconds,
            counts_instructions: true,
            root: what.root.as_ref().map(|(dir, _)| dir.clone()),
            words,
        };
        let (ending, lines) = boot(root, &order, false)?;
        let figures: Vec<Figure> = lines.iter().filter_map(|line| Figure::read(line)).collect();
        side.troubles.extend(off_rate(&figures, kernel));
        side.figures.extend(without_clear(&figures));
        side.figures.extend(figures);
        // A firmware may have left its own words on the line.
        let thp = lines.iter().find_map(|line| line.split_once("[init] thp:"));
        side.thp = side.thp.or(thp.map(|(_, thp)| format!("thp:{thp}")));
        if ending != Ending::Guest(Some(Event::Exit(0))) {
            side.is_whole = false;
            let last = lines.last().map_or("", String::as_str);
            side.troubles.push(format!("{program} on {kernel}: {ending:?}, last line: {last}"));
        }
    }
    Ok(side)
}

/// What is left of a first touch without the clearing of the memory, which an emulator counts in
/// another way than a CPU does.
fn without_clear(figures: &[Figure]) -> Vec<Figure> {
    let touches = figures.iter().filter(|figure| figure.key.2 == "touch");
    let less = touches.filter_map(|touch| {
        let (program, size, _) = &touch.key;
        let key = (program.clone(), size.clone(), "clear".to_owned());
        let clear = figures.iter().find(|figure| figure.key == key)?;
        let key = (program.clone(), size.clone(), "touch-without-clear".to_owned());
        Some(Figure { key, value: touch.value - clear.value, unit: touch.unit.clone() })
    });
    less.collect()
}

/// The complaint where an instruction does not take a nanosecond: then something else ran, too, or
/// the kernel's clock has another rate, and none of its figures holds.
fn off_rate(figures: &[Figure], kernel: &str) -> Option<String> {
    let found = figures.iter().find(|figure| figure.key.2 == "instruction")?.value;
    let sentence = format!("{kernel}: an instruction takes {found} ns and not 1; do not trust it.");
    ((found - 1.0).abs() > 0.02).then_some(sentence)
}

/// One row for each figure of either side, in the order in which they came.
fn table(linux: &[Figure], quire: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["program", "size", "metric", "unit", "Linux", "Quire", "Quire/Linux"]);
    let other = quire.iter().filter(|figure| linux.iter().all(|l| l.key != figure.key));
    for figure in linux.iter().chain(other) {
        let of = |side: &[Figure]| side.iter().find(|f| f.key == figure.key).map(|f| f.value);
        let (program, size, metric) = &figure.key;
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.1}"));
        table.add_row([
            program.clone(),
            size.clone(),
            metric.clone(),
            figure.unit.clone(),
            cell(of(linux)),
            cell(of(quire)),
            ratio(of(linux), of(quire)),
        ]);
    }
    for column in 4..7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Quire's figure as a part of Linux's; less is better.
fn ratio(linux: Option<f64>, quire: Option<f64>) -> String {
    match (linux, quire) {
        (Some(linux), Some(quire)) if linux > 0.0 => format!("{:.2}", quire / linux),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, off_rate, table, without_clear};

    #[test]
    fn a_touch_is_told_without_its_clear_too() {
        let read = |line: &str| Figure::read(line).expect("a figure");
        let figures = [
            read("touch size=4K touch 5000 ns/page"),
            read("touch size=4K clear 4100 ns/page"),
            read("touch size=2M touch 4200 ns/page"),
        ];
        assert_eq!(
            without_clear(&figures),
            [read("touch size=4K touch-without-clear 900 ns/page")]
        );
    }

    #[test]
    fn a_clock_that_runs_at_another_rate_is_told() {
        let read = |line: &str| [Figure::read(line).expect("a figure")];
        let right = read("calibrate size=any instruction 1.0009 ns");
        assert_eq!(off_rate(&right, "linux"), None);
        let wrong = read("calibrate size=any instruction 2.0090 ns");
        assert!(off_rate(&wrong, "linux").is_some());
    }

    #[test]
    fn figures_meet_by_their_key_and_none_gets_lost() {
        let read = |lines: &[&str]| -> Vec<Figure> {
            lines.iter().filter_map(|line| Figure::read(line)).collect()
        };
        let linux = read(&["touch size=4K touch 200 ns/page", "touch size=2M touch 8 ns/page"]);
        let quire = read(&["touch size=4K touch 50 ns/page", "touch size=1M touch 9 ns/page"]);
        let text = table(&linux, &quire).to_string();
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["touch", "4K", "touch", "ns/page", "200.0", "50.0", "0.25"]);
        assert_eq!(rows[1], ["touch", "2M", "touch", "ns/page", "8.0", "-", "-"]);
        assert_eq!(rows[2], ["touch", "1M", "touch", "ns/page", "-", "9.0", "-"]);
    }
}
