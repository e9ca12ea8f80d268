//! `cargo xtask cpus`: Quire's kernel on each of a list of emulated CPUs, which differ in what they
//! have: tags, contiguous blocks, flags that the CPU sets, ways to clear memory, levels of tables.
//!
//! Each boots a machine for one program that forks, writes to shared pages, makes and breaks
//! contiguous blocks and changes rights. The kernel's log says what it found; one table has it all.

use std::path::Path;
use std::time::Instant;

use super::Isa;
use super::checks::{Count, judge};
use super::kernel::Kernel;
use super::run::{Order, boot_kernel, find_emulator};
use crate::steps::Missing;

/// The program, and how many seconds it may take on a busy machine.
const CHECK: [&str; 3] = ["cowcheck", "-t", "64K"];
const SECONDS: u64 = 240;

/// How the kernel's line with the CPU's facts begins.
const FACTS: &str = "[quire] CPU: ";

/// A CPU to boot on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Model {
    /// As QEMU names it.
    cpu: &'static str,
    /// The kernel's feature beside its own checks: the format of its tables; empty for the usual.
    format: &'static str,
    /// The board, where it is not the usual one; empty for that.
    board: &'static str,
    /// Its boot is cheap, and shows what the usual CPU does not: `make test` has it.
    is_short: bool,
}

const fn usual(cpu: &'static str) -> Model {
    Model { cpu, format: "", board: "", is_short: false }
}

const fn short(cpu: &'static str) -> Model {
    Model { cpu, format: "", board: "", is_short: true }
}

const fn with(cpu: &'static str, format: &'static str) -> Model {
    Model { cpu, format, board: "", is_short: false }
}

const fn on(cpu: &'static str, board: &'static str) -> Model {
    Model { cpu, format: "", board, is_short: false }
}

/// From the oldest on. None has PCID: QEMU's translator does not know it.
const X86_64: [Model; 13] = [
    short("qemu64"),
    usual("Nehalem"),
    usual("Westmere"),
    usual("SandyBridge"),
    usual("IvyBridge"),
    usual("Haswell"),
    usual("Broadwell"),
    usual("Skylake-Client"),
    usual("Skylake-Server"),
    usual("Denverton"),
    usual("EPYC"),
    usual("EPYC-Milan"),
    usual("max"),
];

/// From Armv8.0 to Armv9; then with the older interrupt controller, which the first of them have.
const AARCH64: [Model; 12] = [
    short("cortex-a53"),
    usual("cortex-a57"),
    usual("cortex-a72"),
    usual("cortex-a55"),
    usual("cortex-a76"),
    usual("neoverse-n1"),
    usual("neoverse-v1"),
    usual("cortex-a710"),
    usual("neoverse-n2"),
    usual("max"),
    on("cortex-a57", "virt,gic-version=2"),
    on("max", "virt,gic-version=2"),
];

/// `rv64` is QEMU's default, without Svnapot; the profiles have Sv39 alone.
const RISCV64: [Model; 13] = [
    short("rv64"),
    usual("rv64,svnapot=on"),
    usual("rv64,svadu=on"),
    usual("rv64,svadu=off"),
    usual("rv64,zicboz=off"),
    usual("rv64,sstc=off"),
    usual("max"),
    with("rv64", "sv39"),
    with("rv64,svnapot=on", "sv39"),
    with("rva22s64", "sv39"),
    with("rva23s64", "sv39"),
    with("rv64", "sv57"),
    with("max", "sv57"),
];

/// The CPUs to boot on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Of this ISA; of all, without one.
    pub isa: Option<Isa>,
    /// Only the few that `make test` has.
    pub is_short: bool,
    /// Only those with these names; all, without any.
    pub names: Vec<String>,
}

impl Choice {
    fn has(&self, model: &Model) -> bool {
        let is_named = self.names.is_empty() || self.names.iter().any(|name| *name == model.cpu);
        is_named && (model.is_short || !self.is_short)
    }
}

fn models(isa: Isa) -> &'static [Model] {
    match isa {
        Isa::X86_64 => &X86_64,
        Isa::Aarch64 => &AARCH64,
        Isa::Riscv64 => &RISCV64,
    }
}

/// Boots on each CPU of the choice, and prints the table; returns whether all passed.
///
/// # Errors
/// The reason a kernel cannot be built or run here.
pub fn cpus(root: &Path, choice: &Choice) -> Result<bool, Missing> {
    let (mut sum, mut rows) = (Count::default(), Vec::new());
    for isa in Isa::ALL.into_iter().filter(|isa| choice.isa.is_none_or(|only| only == *isa)) {
        find_emulator(isa)?;
        // Those of one format stand together: the kernel is built once for each.
        let mut built: Option<(&str, Kernel)> = None;
        for model in models(isa).iter().filter(|model| choice.has(model)) {
            if built.as_ref().is_none_or(|(format, _)| *format != model.format) {
                built = Some((model.format, Kernel::quire(root, isa, &["checks", model.format])?));
            }
            let Some((_, kernel)) = &built else { continue };
            let (count, facts) = boot(root, kernel, isa, model)?;
            sum.passed += count.passed;
            sum.failed += count.failed;
            let result = if count.failed == 0 { "ok" } else { "FAILED" };
            rows.push([isa.name().to_owned(), model.name(), result.to_owned(), facts]);
        }
    }
    show(&rows);
    let word = if sum.failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {} failed", sum.passed, sum.failed);
    Ok(sum.failed == 0)
}

impl Model {
    fn name(&self) -> String {
        let more = [self.format, self.board].into_iter().filter(|more| !more.is_empty());
        more.fold(self.cpu.to_owned(), |name, more| format!("{name}, {more}"))
    }
}

/// Boots once; the check's results, and the facts that the kernel found.
fn boot(root: &Path, kernel: &Kernel, isa: Isa, model: &Model) -> Result<(Count, String), Missing> {
    let order = Order {
        cpu: Some(model.cpu.to_owned()),
        board: (!model.board.is_empty()).then(|| model.board.to_owned()),
        cpus: 2,
        memory: "256M".to_owned(),
        timeout_seconds: SECONDS,
        looks_at_frames: true,
        ..Order::new(isa, CHECK)
    };
    let start = Instant::now();
    let (ending, lines) = boot_kernel(root, kernel, &order, false)?;
    let name = format!("{} {}", isa.name(), model.name());
    let count = judge(&name, ending, &lines, start.elapsed());
    Ok((count, facts(&lines)))
}

fn facts(lines: &[String]) -> String {
    let told = lines.iter().find_map(|line| line.strip_prefix(FACTS));
    told.map_or("none: it did not boot", str::trim_end).to_owned()
}

/// One line for each row, with columns of equal width.
fn show(rows: &[[String; 4]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [isa, model, result] = [width(0), width(1), width(2)];
    for row in rows {
        println!("{:<isa$}  {:<model$}  {:<result$}  {}", row[0], row[1], row[2], row[3]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, Isa, facts, models};

    #[test]
    fn the_facts_are_those_of_the_kernel_s_line() {
        let lines = ["[quire] 2 CPUs", "[quire] CPU: tags 1, avx 0\r"].map(str::to_owned);
        assert_eq!(facts(&lines), "tags 1, avx 0");
        assert_eq!(facts(&lines[..1]), "none: it did not boot");
    }

    #[test]
    fn each_isa_has_a_short_boot_and_one_of_riscv64_has_no_contiguous_blocks() {
        let short = Choice { isa: None, is_short: true, names: Vec::new() };
        for isa in Isa::ALL {
            let chosen: Vec<_> = models(isa).iter().filter(|model| short.has(model)).collect();
            assert_eq!(chosen.len(), 1, "{isa:?}");
            assert!(isa != Isa::Riscv64 || chosen[0].cpu == "rv64");
        }
    }

    #[test]
    fn models_of_one_format_stand_together() {
        for isa in Isa::ALL {
            let mut formats: Vec<_> = models(isa).iter().map(|model| model.format).collect();
            formats.dedup();
            let count = formats.len();
            formats.sort_unstable();
            formats.dedup();
            assert_eq!(formats.len(), count, "{isa:?}");
        }
    }
}
