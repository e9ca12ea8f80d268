//! The command line of `cargo xtask`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use xtask::deeper::{self, Sanitizer};
use xtask::guest::{self, Accel, Comparison, Isa, Order};
use xtask::steps::Missing;
use xtask::{ci, job, mutants, selftests, setup, soak, stack, text, tidy, tiny};

#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = false)]
struct Words {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the house rules of STYLE.md; one line for each finding
    Tidy,
    /// Find sentences that plain English would turn round; in all files, or at these paths
    English {
        /// Files and directories, relative to the workspace
        paths: Vec<String>,
    },
    /// Find files that use each other in a circle, by calls as well as by imports
    Circles {
        /// A directory, relative to the workspace
        path: String,
    },
    /// Write docs/api.md, the list of the library's public items
    Api,
    /// Print how much code the least program on Quire is, for each set of features
    Text {
        /// Only these sets: core, core+files, core+files+swap, default, all
        sets: Vec<String>,
    },
    /// Print how much stack each call uses on each ISA, and check the bounds (a step of `ci`)
    Stack,
    /// Copy the examples' code into README.md and docs/embedding.md
    Readme,
    /// Build the kernel of examples/tiny and boot it on three kinds of CPUs (a step of `ci`)
    Tiny,
    /// Find the tools that the tests need, install what can be installed
    Setup,
    /// Set up, then run every check (what `make test` does)
    Ci,
    /// Set up, then run the benches and write the report (what `make run` does)
    Demo,
    /// Run a Linux program in an emulated machine, on Quire's kernel or on Linux
    Run(Run),
    /// Run a Linux program on StarryOS with Quire as its memory manager, or as it is
    Starry(Starry),
    /// Run the same programs on Linux and on Quire's kernel; print both sides' instructions
    Compare(Compare),
    /// Run the programs that check something on Quire's kernel (a step of `ci`)
    KernelTests(KernelTests),
    /// Boot Quire's kernel on each of a list of emulated CPUs, and print what they have
    Cpus(Cpus),
    /// Run Linux's own tests of memory management on Linux and on Quire's kernel, side by side
    Selftests(Selftests),
    /// Run the tests longer and from other seeds, until something fails (what `make soak` does)
    Soak(Soak),
    /// Draw small slips by a seed, and print which of them no test notices
    Mutants(Mutants),
    /// Give random bytes to the targets of fuzz/, until one of them fails
    Fuzz(Fuzz),
    /// Run the hosted suites under a sanitizer
    Sanitize {
        /// The sanitizer
        #[arg(value_enum)]
        sanitizer: Sanitizer,
        /// Only these packages, such as quire-sim
        packages: Vec<String>,
    },
    /// Run the library's own tests in Miri
    Miri,
}

#[derive(Args)]
struct Fuzz {
    /// For how long, all targets together
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of the bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these targets, such as elf
    targets: Vec<String>,
}

#[derive(Args)]
struct Mutants {
    /// The seed of the draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Only those of a room of the library, such as table, or of a crate, such as units
    #[arg(long)]
    room: Option<String>,
    /// Begin none after this number of minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// How many are judged at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Only the simulator and the models judge, and no unit or property tests
    #[arg(long)]
    without_direct_tests: bool,
    /// Draw none: plant the slips of docs/planted.md, which the simulator must find; or those of
    /// them whose names contain this
    #[arg(long, value_name = "PART", num_args = 0..=1, default_missing_value = "")]
    planted: Option<String>,
    /// Only print what is drawn
    #[arg(long)]
    list: bool,
}

#[derive(Args)]
struct Run {
    /// The machine's ISA
    #[arg(long, value_enum, default_value = "x86_64")]
    arch: Isa,
    /// How many CPUs it has
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    smp: u32,
    /// Which CPUs, as QEMU names them, such as rv64,svnapot=on; the one that can do the most
    #[arg(long)]
    cpu: Option<String>,
    /// The board, as QEMU names it, such as virt,gic-version=2; the usual one of the ISA
    #[arg(long)]
    board: Option<String>,
    /// How much memory it has. Quire's kernel needs 32M, Linux 128M, and both twice the initramfs
    /// more
    #[arg(long, default_value = "2G")]
    mem: String,
    /// Folio sizes and when they are used, such as 64K=always,2M=inherit
    #[arg(long)]
    thp: Option<String>,
    /// The accelerator; auto is tcg, as kvm does not work everywhere
    #[arg(long, value_enum, default_value = "auto")]
    accel: Accel,
    /// quire, linux (the distribution's newest, fetched if need be), starry, or a kernel's file
    #[arg(long, default_value = "quire")]
    kernel: String,
    /// Give the program a device to swap to, such as zram0=192M (compressed) or ram0=64M; may be
    /// repeated
    #[arg(long, value_name = "DEVICE=SIZE")]
    swap: Vec<String>,
    /// Write a setting under /proc/sys first, such as vm.swappiness=10; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<String>,
    /// Run the program in a control group with a setting, such as memory.max=64M; may be repeated
    #[arg(long, value_name = "FILE=VALUE")]
    cgroup: Vec<String>,
    /// Add a word to the kernel's command line; may be repeated
    #[arg(long, value_name = "WORD")]
    boot: Vec<String>,
    /// End the machine after this many seconds, with exit status 124
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// The machine's clock counts instructions, one nanosecond each
    #[arg(long)]
    icount: bool,
    /// Quire's kernel itself checks that no program sees what another left in memory
    #[arg(long)]
    check: bool,
    /// A directory that becomes the root, on an ext4 disk; the program is then one of its files, or
    /// of os/guest/. Dynamic programs need it
    #[arg(long)]
    root: Option<PathBuf>,
    /// A program of os/guest/, busybox, a static ELF file, or a directory that becomes the root;
    /// then its arguments, which reach it byte for byte. Without a program: a shell
    #[arg(last = true)]
    words: Vec<OsString>,
}

#[derive(Args)]
struct Starry {
    /// StarryOS as it is
    #[arg(long)]
    stock: bool,
    /// Only compile the adaptor, if the sources are here (a step of `ci`)
    #[arg(long)]
    check: bool,
    /// How many CPUs the machine has
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    smp: u32,
    /// How much memory it has
    #[arg(long, default_value = "512M")]
    mem: String,
    /// Folio sizes and when they are used, such as 64K=always,2M=never
    #[arg(long)]
    thp: Option<String>,
    /// Add a word to the kernel's command line; may be repeated
    #[arg(long, value_name = "WORD")]
    boot: Vec<String>,
    /// End the machine after this many seconds, with exit status 124
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// The machine's clock counts instructions, one nanosecond each
    #[arg(long)]
    icount: bool,
    /// A program of os/guest/, a static ELF file, or a command of busybox, and its arguments;
    /// without one: a shell
    #[arg(last = true)]
    words: Vec<OsString>,
}

#[derive(Args)]
struct Compare {
    /// The machine's ISA
    #[arg(long, value_enum, default_value = "x86_64")]
    arch: Isa,
    /// Folio sizes and when they are used, for what the programs do not set themselves
    #[arg(long)]
    thp: Option<String>,
    /// linux (the distribution's newest, fetched if need be), stock (the same as the distribution
    /// configures it), or another one's file
    #[arg(long, default_value = "linux")]
    linux: String,
    /// One more column: starry (StarryOS on Quire), starry-stock (as it is), starry-stock-bytes
    /// (with Quire's functions for bytes); aarch64 only; may be repeated
    #[arg(long, value_parser = ["starry", "starry-stock", "starry-stock-bytes"])]
    also: Vec<String>,
    /// How many CPUs the machine has, and how many threads the programs use at most
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    smp: u32,
    /// The machine's memory
    #[arg(long, default_value = "2G")]
    mem: String,
    /// MiB of the region that is measured
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=1024))]
    region: u32,
    /// Rounds that the medians are over
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// A directory that both get on an ext4 disk
    #[arg(long, requires = "file")]
    root: Option<PathBuf>,
    /// The file of it that programs are told as their last word, such as /bin/python3 to textbench
    #[arg(long, requires = "root")]
    file: Option<String>,
    /// End a machine after this many seconds
    #[arg(long, default_value_t = 900)]
    timeout: u64,
    /// Programs of os/guest/ that print figures
    #[arg(default_values = ["calibrate", "touch", "forkbench"])]
    programs: Vec<String>,
}

#[derive(Args)]
struct KernelTests {
    /// The machine's ISA
    #[arg(long, value_enum, default_value = "x86_64")]
    arch: Isa,
    /// quire, linux, or a kernel's file
    #[arg(long, default_value = "quire")]
    kernel: String,
    /// Which CPUs, as QEMU names them, such as rv64,svnapot=on; the one that can do the most
    #[arg(long)]
    cpu: Option<String>,
    /// Only these: abicheck, stress, abuse, tags, disk, swap; QUIRE_STRESS_SECONDS and
    /// QUIRE_ABUSE_SECONDS are how long these two run, QUIRE_ABUSE_SEED is what abuse draws from
    programs: Vec<String>,
}

#[derive(Args)]
struct Cpus {
    /// Only CPUs of this ISA
    #[arg(long, value_enum)]
    arch: Option<Isa>,
    /// Only those that `make test` has
    #[arg(long)]
    short: bool,
    /// Only these, as QEMU names them, such as cortex-a53
    names: Vec<String>,
}

#[derive(Args)]
struct Soak {
    /// How many rounds of property tests and stress tests; then each ISA's kernel has its turn
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The seed of the first round; without it, one that depends on the time
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Args)]
struct Selftests {
    /// The machine's ISA
    #[arg(long, value_enum, default_value = "x86_64")]
    arch: Isa,
    /// quire, linux, or a kernel's file; both, unless one is named
    #[arg(long)]
    kernel: Option<String>,
    /// Linux's kernel: linux, the distribution's newest, or the file of another
    #[arg(long, default_value = "linux")]
    linux: String,
    /// Only these, such as cow; all, unless some are named
    programs: Vec<String>,
}

fn main() -> ExitCode {
    let words = match Words::try_parse() {
        Ok(words) => words,
        Err(error) if error.use_stderr() => return refuse(&error.to_string()),
        Err(help) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
    };
    let root = workspace();
    match words.command {
        Command::Tidy => check(&root),
        Command::English { paths } => show(tidy::english(&root, &paths)),
        Command::Circles { path } => show(tidy::circles(&root, &path)),
        Command::Api => api(&root),
        Command::Text { sets } => {
            text::run(&root, &sets).map_or_else(|missing| skips(&missing), exit)
        }
        Command::Readme => copy(&root),
        Command::Stack => stack::run(&root).map_or_else(|missing| skips(&missing), exit),
        Command::Tiny => tiny::run(&root).map_or_else(|missing| skips(&missing), exit),
        Command::Setup => exit(setup::run(&root)),
        Command::Ci => exit(ci::run(&root)),
        Command::Demo => exit(job::run(&root)),
        Command::Run(words) => run(&root, words),
        Command::Starry(words) => starry(&root, words),
        Command::Compare(words) => compare(&root, words),
        Command::KernelTests(words) => kernel_tests(&root, &words),
        Command::Cpus(Cpus { arch, short, names }) => {
            let choice = guest::Choice { isa: arch, is_short: short, names };
            guest::cpus(&root, &choice).map_or_else(|missing| skips(&missing), exit)
        }
        Command::Selftests(words) => selftests(&root, words),
        Command::Soak(Soak { rounds, seed }) => {
            exit(soak::run(&root, &soak::What { rounds, seed }))
        }
        Command::Mutants(words) => mutants(&root, words),
        Command::Fuzz(Fuzz { seconds, seed, targets }) => {
            exit(deeper::fuzz(&root, seconds, seed, &targets))
        }
        Command::Sanitize { sanitizer, packages } => {
            exit(deeper::sanitize(&root, sanitizer, &packages))
        }
        Command::Miri => exit(deeper::miri(&root)),
    }
}

fn run(root: &Path, words: Run) -> ExitCode {
    let order = Order {
        isa: words.arch,
        cpus: words.smp,
        cpu: words.cpu,
        board: words.board,
        memory: words.mem,
        thp: words.thp,
        accel: words.accel,
        kernel: words.kernel,
        timeout_seconds: words.timeout,
        counts_instructions: words.icount,
        looks_at_frames: words.check,
        settings: words.boot,
        swaps: words.swap,
        sysctls: words.sysctl,
        group: words.cgroup,
        root: words.root,
        words: words.words,
    };
    guest::run(root, &order).map_or_else(|missing| lacks(&missing), ExitCode::from)
}

fn starry(root: &Path, words: Starry) -> ExitCode {
    if words.check {
        return guest::starry::check(root).map_or_else(|missing| skips(&missing), exit);
    }
    let order = Order {
        cpus: words.smp,
        memory: words.mem,
        thp: words.thp,
        kernel: guest::starry::name(words.stock),
        timeout_seconds: words.timeout,
        counts_instructions: words.icount,
        settings: words.boot,
        ..Order::new(Isa::Aarch64, words.words)
    };
    guest::run(root, &order).map_or_else(|missing| lacks(&missing), ExitCode::from)
}

fn compare(root: &Path, words: Compare) -> ExitCode {
    let what = Comparison {
        isa: words.arch,
        programs: words.programs,
        cpus: words.smp,
        memory: words.mem,
        region_mib: words.region,
        rounds: words.rounds,
        thp: words.thp,
        linux: words.linux,
        also: words.also,
        root: words.root.zip(words.file),
        timeout_seconds: words.timeout,
    };
    guest::compare(root, &what).map_or_else(|missing| lacks(&missing), exit)
}

fn mutants(root: &Path, words: Mutants) -> ExitCode {
    if let Some(only) = &words.planted {
        let done = mutants::run_planted(root, Some(only.as_str()));
        return done.map_or_else(|error| refuse(&error), exit);
    }
    let what = mutants::What {
        seed: words.seed,
        count: words.count,
        room: words.room,
        minutes: words.minutes,
        jobs: words.jobs.max(1),
        without_direct_tests: words.without_direct_tests,
        list: words.list,
    };
    mutants::run(root, &what).map_or_else(|error| refuse(&error), exit)
}

/// A check that cannot run here is skipped, in the words that `steps` understands.
fn kernel_tests(root: &Path, words: &KernelTests) -> ExitCode {
    match guest::check(root, words.arch, &words.kernel, words.cpu.as_deref(), &words.programs) {
        Ok(good) => exit(good),
        Err(missing) => skips(&missing),
    }
}

/// Something that a check needs is not here; see [`Missing::fails`].
fn skips(missing: &Missing) -> ExitCode {
    if missing.fails {
        return lacks(missing);
    }
    println!("skipped: {}", missing.sentence);
    ExitCode::SUCCESS
}

fn selftests(root: &Path, words: Selftests) -> ExitCode {
    let Selftests { arch: isa, kernel, linux, programs } = words;
    let what = selftests::What { isa, kernel, linux, programs };
    selftests::run(root, &what).map_or_else(|missing| lacks(&missing), exit)
}

/// Reports a missing tool or file.
fn lacks(missing: &Missing) -> ExitCode {
    eprintln!("{}", missing.sentence);
    ExitCode::from(2)
}

/// The directory of the workspace: above the one this program was built from.
fn workspace() -> PathBuf {
    let built = std::env::var("CARGO_MANIFEST_DIR");
    let package = built.as_deref().unwrap_or(env!("CARGO_MANIFEST_DIR"));
    Path::new(package).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The first line of clap's answer says what is wrong; the rest is in the help.
fn refuse(answer: &str) -> ExitCode {
    let line = answer.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing to do");
    let line = line.trim_start_matches("error: ").trim_end_matches([':', '.']);
    eprintln!("{line}; `cargo xtask help` lists the commands.");
    ExitCode::from(2)
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(root: &Path) -> ExitCode {
    show(tidy::check(root))
}

fn show(findings: Result<Vec<tidy::Finding>, String>) -> ExitCode {
    match findings {
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            exit(findings.is_empty())
        }
        Err(error) => refuse(&error),
    }
}

fn api(root: &Path) -> ExitCode {
    match tidy::write_api(root) {
        Ok(sentence) => {
            println!("{sentence}");
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error),
    }
}

fn copy(root: &Path) -> ExitCode {
    match tidy::write_readme(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
