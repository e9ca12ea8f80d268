//! `cargo xtask compare`: the same programs in the same machine, on Linux, on Quire's kernel, and
//! on StarryOS if asked.
//!
//! The machine's clock counts instructions, one nanosecond each, so a figure is a number of
//! executed instructions, and two runs agree to about a percent. Instructions are no cycles.

use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table, presets};

use super::console::Event;
use super::kernel::linux_words;
use super::machine::Ending;
use super::run::{Order, boot};
use super::{Figure, Isa, starry};
use crate::steps::Missing;

/// The exit status of programs where the kernel lacks a feature that they measure
/// (`os/guest/common.h`).
const UNSUPPORTED: u8 = 3;

/// A comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The machine's ISA.
    pub isa: Isa,
    /// Programs of `os/guest/`; all get `-t`, and the three numbers below.
    pub programs: Vec<String>,
    /// How many CPUs the machine has, and how many threads the programs use at most. The clock
    /// counts the instructions of all CPUs.
    pub cpus: u32,
    /// How much memory it has, in QEMU's notation.
    pub memory: String,
    /// MiB of the region that they measure.
    pub region_mib: u32,
    /// Rounds that the medians are over.
    pub rounds: u32,
    /// THP settings of the machine, for what the programs do not set themselves.
    pub thp: Option<String>,
    /// `linux`, or the file of another.
    pub linux: String,
    /// More kernels: `starry`, `starry-stock`, `starry-stock-bytes`. Programs cannot set sizes
    /// there: the kernel's command line does, for one run of each of `STARRY_SIZES`.
    pub also: Vec<String>,
    /// A directory of the host that both have on a disk, and a file of it that programs get as an
    /// argument.
    pub root: Option<(PathBuf, String)>,
    /// Seconds that each machine may take.
    pub timeout_seconds: u64,
}

/// The sizes that StarryOS is measured with, and how its command line says them.
const STARRY_SIZES: [(&str, &str); 2] =
    [("4K", "64K=never,2M=never"), ("64K", "64K=always,2M=never")];

/// The name of a size that the program found and did not set.
const AS_IS: &str = "asis";

/// One kernel's output, over all programs.
#[derive(Default)]
struct Side {
    /// The head of its column.
    name: String,
    figures: Vec<Figure>,
    thp: Option<String>,
    is_whole: bool,
    /// Programs that found that the kernel lacks what they measure.
    unsupported: Vec<String>,
    /// The reasons for missing figures.
    troubles: Vec<String>,
}

/// Runs all programs on both kernels and prints the table; returns whether all of them ran.
///
/// # Errors
/// The reason Linux cannot be run here; then there is nothing to compare with.
pub fn compare(root: &Path, what: &Comparison) -> Result<bool, Missing> {
    let mut sides = vec![measure(root, what, &what.linux, "Linux")?];
    let others = [("quire", "Quire")].into_iter();
    for (kernel, name) in others.chain(what.also.iter().map(|kernel| (&**kernel, &**kernel))) {
        // Without this side, Linux's figures are still worth a look.
        sides.push(measure(root, what, kernel, name).unwrap_or_else(|missing| Side {
            name: name.to_owned(),
            troubles: vec![format!("{name}: {}", missing.sentence)],
            ..Side::default()
        }));
    }
    println!("{}, instructions", what.isa.name());
    println!("Linux has the words {}; both had 3 s of rest after boot", linux_words(&what.linux));
    for side in sides.iter().take(2).filter(|side| side.is_whole || side.name == "Linux") {
        println!("{} {}", side.name, side.thp.as_deref().unwrap_or("printed no THP settings"));
    }
    println!("{}", table(&sides));
    for trouble in sides.iter().flat_map(|side| &side.troubles) {
        println!("{trouble}");
    }
    Ok(sides.iter().all(|side| side.is_whole))
}

/// The THP settings of the runs on a kernel, each with the name of the size that a program finds
/// then; `None` where programs set sizes themselves.
fn settings(what: &Comparison, kernel: &str) -> Vec<(Option<&'static str>, Option<String>)> {
    match starry::kind(kernel) {
        None => vec![(None, what.thp.clone())],
        Some(_) => STARRY_SIZES.map(|(size, thp)| (Some(size), Some(thp.to_owned()))).into(),
    }
}

fn measure(root: &Path, what: &Comparison, kernel: &str, name: &str) -> Result<Side, Missing> {
    let mut side = Side { name: name.to_owned(), is_whole: true, ..Side::default() };
    for program in &what.programs {
        for (size, thp) in settings(what, kernel) {
            measure_one(root, what, (kernel, thp), (program, size), &mut side)?;
        }
    }
    Ok(side)
}

fn measure_one(
    root: &Path,
    what: &Comparison,
    (kernel, thp): (&str, Option<String>),
    (program, size): (&String, Option<&str>),
    side: &mut Side,
) -> Result<(), Missing> {
    let mut words = vec![program.clone()];
    if size.is_none() {
        words.push("-t".to_owned());
    }
    let numbers = [("-j", what.cpus), ("-m", what.region_mib), ("-n", what.rounds)];
    words
        .extend(numbers.iter().flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]));
    // All but the one that looks at the clock use a file.
    let file = what.root.iter().filter(|_| program != "calibrate");
    words.extend(file.map(|(_, file)| file.clone()));
    let order = Order {
        cpus: what.cpus,
        memory: what.memory.clone(),
        thp,
        kernel: kernel.to_owned(),
        timeout_seconds: what.timeout_seconds,
        counts_instructions: true,
        root: what.root.as_ref().map(|(dir, _)| dir.clone()),
        ..Order::new(what.isa, words)
    };
    let (ending, lines) = boot(root, &order, false)?;
    let mut figures: Vec<Figure> = lines.iter().filter_map(|line| Figure::read(line)).collect();
    named(&mut figures, size);
    told_copies(&mut figures, &lines);
    side.troubles.extend(off_rate(&figures, kernel));
    side.figures.extend(without_parts(&figures));
    side.figures.extend(figures);
    // A firmware may have left its own words on the line.
    let thp = lines.iter().find_map(|line| line.split_once("[init] thp:"));
    side.thp = side.thp.take().or(thp.map(|(_, thp)| format!("thp:{thp}")));
    let last = lines.last().map_or("", String::as_str);
    match ending {
        Ending::Guest(Some(Event::Exit(0))) => {}
        Ending::Guest(Some(Event::Exit(UNSUPPORTED))) => side.unsupported.push(program.clone()),
        _ => {
            side.is_whole = false;
            side.troubles.push(format!("{program} on {kernel}: {ending:?}, last line: {last}"));
        }
    }
    Ok(())
}

/// Figures of a size that the program found get its name.
fn named(figures: &mut [Figure], size: Option<&str>) {
    let Some(size) = size else { return };
    let found = figures.iter_mut().filter(|figure| figure.key.1 == AS_IS);
    found.for_each(|figure| figure.key.1 = size.to_owned());
}

/// Clears and copies of memory, which an emulator counts in another way than a CPU does: the metric
/// that contains one, its own metric, and the name of the rest.
const PARTS: [(&str, &str, &str); 5] = [
    ("touch", "clear", "touch-without-clear"),
    ("out", "copy-out", "out-without-copy"),
    ("in", "copy-in", "in-without-copy"),
    ("out-shm", "copy-out", "out-shm-without-copy"),
    ("in-shm", "copy-in", "in-shm-without-copy"),
];

/// Quire's kernel copies a page to a device in memory in another way than to and from a program,
/// and prints its cost at boot: the figures contain that cost, not the one that a program can find
/// out. On arm64 it is an instruction for all of a page.
fn told_copies(figures: &mut [Figure], lines: &[String]) {
    let told = lines.iter().find_map(|line| line.split_once("; a page is copied in "));
    let Some(copy) = told.and_then(|(_, rest)| rest.split_once(' ')?.0.parse().ok()) else {
        return;
    };
    let is_copy = |figure: &&mut Figure| matches!(&*figure.key.2, "copy-out" | "copy-in");
    figures.iter_mut().filter(is_copy).for_each(|figure| figure.value = copy);
}

/// These metrics without the clear or the copy in them, which may have been measured for each size,
/// or once for any.
fn without_parts(figures: &[Figure]) -> Vec<Figure> {
    let less = figures.iter().filter_map(|whole| {
        let (program, size, metric) = &whole.key;
        let (_, part, rest) = PARTS.iter().find(|(name, ..)| metric == name)?;
        let is_part = |figure: &&Figure| {
            let (of, at, name) = &figure.key;
            of == program && name == part && (at == size || at == "any")
        };
        let value = whole.value - figures.iter().find(is_part)?.value;
        let key = (program.clone(), size.clone(), (*rest).to_owned());
        Some(Figure { key, value, unit: whole.unit.clone() })
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

/// One row for each figure of any side, in the order in which they came; the ratio is that of the
/// second side, Quire's kernel, to the first.
fn table(sides: &[Side]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let names = sides.iter().map(|side| side.name.as_str());
    let head = ["program", "size", "metric", "unit"].into_iter();
    table.set_header(head.chain(names).chain(["Quire/Linux"]));
    for (number, side) in sides.iter().enumerate() {
        let is_new = |figure: &&Figure| sides[..number].iter().all(|s| s.value(figure).is_none());
        for figure in side.figures.iter().filter(is_new) {
            let (program, size, metric) = &figure.key;
            let mut row = vec![program.clone(), size.clone(), metric.clone(), figure.unit.clone()];
            row.extend(
                sides
                    .iter()
                    .map(|side| side.value(figure).map_or_else(|| side.lack(program), one_digit)),
            );
            let of = |at: usize| sides.get(at).and_then(|side| side.value(figure));
            row.push(ratio(of(0), of(1)));
            table.add_row(row);
        }
    }
    for column in 4..=4 + sides.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

impl Side {
    /// The value of the same figure as `other`.
    fn value(&self, other: &Figure) -> Option<f64> {
        self.figures.iter().find(|figure| figure.key == other.key).map(|figure| figure.value)
    }

    /// The cell for a missing figure of `program`.
    fn lack(&self, program: &String) -> String {
        let is_known = self.unsupported.contains(program);
        if is_known { "not supported here" } else { "-" }.to_owned()
    }
}

fn one_digit(value: f64) -> String {
    format!("{value:.1}")
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
    use super::{Figure, Side, named, off_rate, table, told_copies, without_parts};

    #[test]
    fn a_touch_is_told_without_its_clear_too() {
        let read = |line: &str| Figure::read(line).expect("a figure");
        let figures = [
            read("touch size=4K touch 5000 ns/page"),
            read("touch size=4K clear 4100 ns/page"),
            read("touch size=2M touch 4200 ns/page"),
        ];
        assert_eq!(
            without_parts(&figures),
            [read("touch size=4K touch-without-clear 900 ns/page")]
        );
    }

    #[test]
    fn a_copy_that_was_measured_once_is_taken_off_each_size() {
        let read = |line: &str| Figure::read(line).expect("a figure");
        let figures = [
            read("pageout size=any copy-out 512 ns/page"),
            read("pageout size=64K out 2512 ns/page"),
            read("pageout size=64K in 2000 ns/page"),
            read("pageout size=64K out-zero 1000 ns/page"),
            read("other size=64K out 2512 ns/page"),
        ];
        let rest = read("pageout size=64K out-without-copy 2000 ns/page");
        assert_eq!(without_parts(&figures), [rest]);
    }

    #[test]
    fn the_cost_of_copies_comes_from_the_kernel() {
        let read = |line: &str| Figure::read(line).expect("a figure");
        let line = "[quire] ram0: 1024 MiB; a page is copied in 4098 ns";
        let mut figures =
            [read("pageout size=any copy-out 512 ns/page"), read("pageout size=64K out 9 ns/page")];
        let before = figures.clone();
        told_copies(&mut figures, &["[quire] ram0: 1024 MiB".to_owned()]);
        assert_eq!(figures, before);
        told_copies(&mut figures, &[line.to_owned()]);
        assert_eq!(figures[0], read("pageout size=any copy-out 4098 ns/page"));
        assert_eq!(figures[1], before[1]);
    }

    #[test]
    fn an_unsupported_program_is_named_and_is_no_failure() {
        let read = |line: &str| vec![Figure::read(line).expect("a figure")];
        let figures = read("pageout size=64K out 2512 ns/page");
        let linux = Side { figures, ..Side::default() };
        let lacking = Side { unsupported: vec!["pageout".to_owned()], ..Side::default() };
        let named = |name: &str, side: Side| Side { name: name.to_owned(), ..side };
        let all = [named("Linux", linux), named("Quire", lacking)];
        let text = table(&all).to_string();
        let words: Vec<&str> = text.split_whitespace().rev().take(5).collect();
        assert_eq!(words, ["-", "here", "supported", "not", "2512.0"]);
        let [linux, _] = all;
        assert!(!table(&[linux, Side::default()]).to_string().contains("not supported"));
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
        let mut starry = read(&["touch size=asis touch 70 ns/page"]);
        named(&mut starry, Some("4K"));
        let sides = [linux, quire, starry].map(|figures| Side { figures, ..Side::default() });
        let text = table(&sides).to_string();
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["touch", "4K", "touch", "ns/page", "200.0", "50.0", "70.0", "0.25"]);
        assert_eq!(rows[1], ["touch", "2M", "touch", "ns/page", "8.0", "-", "-", "-"]);
        assert_eq!(rows[2], ["touch", "1M", "touch", "ns/page", "-", "9.0", "-", "-"]);
    }
}
