//! All checks, in the order in which a failure is cheapest to learn of. `make test` runs this.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::guest::Isa;
use crate::setup::{self, BARE_TARGETS};
use crate::steps::{Missing, Steps};
use crate::{stack, tidy, tiny};

/// The crates that are built without an operating system.
const NO_STD: [&str; 4] = ["quire-units", "quire-arch", "quire-hw", "quire-mm"];

/// The packages that are meant for others.
const PUBLISHED: [&str; 10] = [
    "quire-units",
    "quire-arch",
    "quire-hw",
    "quire-mm",
    "quire-machine",
    "quire-script",
    "quire-sim",
    "quire-zpool",
    "quire-linux",
    "quire-cli",
];

/// From what the property tests draw their scripts. One seed for all runs, so that a change is
/// judged by the same scripts as the one before; set another, or run `cargo test`, to look further.
const SEED: &str = "PROPTEST_RNG_SEED";

/// The longest that a step may take: twice what the longest needs on two cores.
const LIMIT: Duration = Duration::from_secs(25 * 60);

/// The models of the whole library, and what they are compiled with: in a directory of its own.
pub(crate) const SCHEDULES: [&str; 7] =
    ["test", "--profile", "sim", "--package", "quire-sim", "--test", "shuttle"];
pub(crate) const SCHEDULES_FLAGS: &str = "--cfg=shuttle -Cdebug-assertions";

/// Runs every check in the workspace at `root`; returns whether all that ran passed.
pub fn run(root: &Path) -> bool {
    let mut steps = Steps::new(root, LIMIT);
    house_rules(root, &mut steps);
    style(&mut steps);
    host(root, &mut steps);
    models(root, &mut steps);
    packages(&mut steps);
    bare(root, &mut steps);
    stack(root, &mut steps);
    emulated(root, &mut steps);
    example(root, &mut steps);
    steps.run("starry", cargo(&["xtask", "starry", "--check"]));
    kernel(root, &mut steps);
    steps.finish()
}

fn house_rules(root: &Path, steps: &mut Steps) {
    let start = Instant::now();
    let findings = match tidy::check(root) {
        Ok(findings) => findings.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error],
    };
    steps.note("tidy", start, &findings);
}

fn style(steps: &mut Steps) {
    match setup::component("fmt", "rustfmt") {
        Ok(()) => {
            steps.run("format", cargo(&["fmt", "--all", "--check", "--", "--color=never"]));
        }
        Err(missing) => steps.skip("format", &missing),
    }
    match setup::component("clippy", "clippy") {
        Ok(()) => {
            let words = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            steps.run("clippy", cargo(&words));
        }
        Err(missing) => steps.skip("clippy", &missing),
    }
}

fn host(root: &Path, steps: &mut Steps) {
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    if std::env::var_os(SEED).is_none() {
        tests.env(SEED, "1");
    }
    steps.run("tests", tests);
    if root.join("crates/mm/examples/embed.rs").is_file() {
        steps.run("example", cargo(&["run", "--package", "quire-mm", "--example", "embed"]));
    }
    features(root, steps);
    // The command and the library are both called quire, and rustdoc would mix their pages up.
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--lib"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    steps.run("documentation", doc);
}

/// The packages that others use can be packaged: metadata, readmes, licences, versions.
fn packages(steps: &mut Steps) {
    let mut package = cargo(&["package", "--no-verify", "--allow-dirty", "--offline"]);
    for name in PUBLISHED {
        package.args(["--package", name]);
    }
    steps.run("packages", package);
}

/// The library with fewer services, and the programs that must not compile: only the compiler that
/// takes unstable options compares the error codes of those.
fn features(root: &Path, steps: &mut Steps) {
    let sets: [(&str, &[&str]); 3] = [
        ("core", &["--no-default-features"]),
        ("core+files", &["--no-default-features", "--features", "files,check"]),
        ("core+files+swap", &["--no-default-features", "--features", "swap,check"]),
    ];
    for (name, words) in sets {
        let mut test = cargo(&["test", "--package", "quire-mm", "--lib", "--tests"]);
        test.args(words);
        steps.run(&format!("tests {name}"), test);
    }
    let lines = ["test", "--package", "quire-sim", "--features", "lines", "--test", "scale"];
    steps.run("lines", cargo(&lines));
    let mut doors = cargo(&["test", "--package", "quire-mm", "--doc"]);
    doors.env("RUSTC_BOOTSTRAP", "1");
    doors.env("CARGO_TARGET_DIR", crate::steps::build_dir(root).join("doors"));
    steps.run("doors", doors);
}

/// The tests that run under a model checker: small models in every order of the threads' steps, the
/// whole library in many.
fn models(root: &Path, steps: &mut Steps) {
    let dir = |name: &str| crate::steps::build_dir(root).join(name);
    let words = ["test", "--profile", "sim", "--package", "quire-mm", "--package", "quire-hw"];
    let words = [&words[..], &["--lib", "loom"]].concat();
    let mut models = cargo(&words);
    models.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", dir("loom"));
    // Three switches away from a running thread find what is found in practice; all orders of
    // longer models would take hours.
    models.env("LOOM_MAX_PREEMPTIONS", "3");
    let mut schedules = cargo(&SCHEDULES);
    schedules.env("RUSTFLAGS", SCHEDULES_FLAGS).env("CARGO_TARGET_DIR", dir("shuttle"));
    steps.both([("models", models), ("schedules", schedules)]);
}

fn bare(root: &Path, steps: &mut Steps) {
    let compiler = match setup::bare(root) {
        Ok(compiler) => compiler,
        Err(missing) => {
            return steps.skip("build bare", &missing);
        }
    };
    // One call for all targets: each is a chain of crates, and the chains are built side by side.
    let mut build = compiler.cargo(root);
    build.args(["build", "--locked"]);
    for target in BARE_TARGETS {
        build.args(["--target", target]);
    }
    for package in NO_STD {
        build.args(["--package", package]);
    }
    steps.run("build bare", build);
}

fn emulated(root: &Path, steps: &mut Steps) {
    let script = root.join("scripts/emulate.sh");
    if !script.is_file() {
        let sentence = "scripts/emulate.sh is not in this tree.".to_owned();
        return steps.skip("emulated", &Missing { sentence, fails: false });
    }
    if let Err(missing) = setup::emulators() {
        return steps.skip("emulated", &missing);
    }
    let mut command = Command::new("bash");
    command.arg(script);
    steps.run("emulated", command);
}

/// The library's text, and the program that measures the stack: its style, and its bounds.
fn stack(root: &Path, steps: &mut Steps) {
    apart(root, &root.join(stack::DIR), "stack", &Isa::ALL, steps);
    let text = cargo(&["xtask", "text", "core"]);
    steps.both([("text", text), ("stack", cargo(&["xtask", "stack"]))]);
}

/// The example of a kernel: its style, and a boot on each kind of CPU.
fn example(root: &Path, steps: &mut Steps) {
    let dir = root.join(tiny::DIR);
    apart(root, &dir, "tiny", &[Isa::Riscv64], steps);
    steps.run("tiny", cargo(&["xtask", "tiny"]));
}

/// Quire's kernel: its style, and the programs of `os/guest/` on it.
fn kernel(root: &Path, steps: &mut Steps) {
    apart(root, &root.join("os/kernel"), "kernel", &Isa::ALL, steps);
    // Built anew: the tests have replaced the file that this runs from.
    let tests = |isa: Isa| cargo(&["xtask", "kernel-tests", "--arch", isa.name()]);
    let mut short = tests(Isa::Riscv64);
    short.args(SHORT);
    // An emulator uses one core for most of its time.
    steps.both([("kernel x86_64", tests(Isa::X86_64)), ("kernel aarch64", tests(Isa::Aarch64))]);
    steps.both([("kernel riscv64", short), ("kernel CPUs", cargo(&["xtask", "cpus", "--short"]))]);
}

/// The checks of the kernel that riscv64 has in `make test`: those that need no packages of another
/// release, and take no time for its own sake. `make soak` has them all.
const SHORT: [&str; 8] =
    ["abicheck", "cowcheck", "wild", "badelf", "argcheck", "forkbench", "selftest", "tags"];

/// The style of the workspace in `dir`, which is built for the bare targets of `isas`.
fn apart(root: &Path, dir: &Path, name: &str, isas: &[Isa], steps: &mut Steps) {
    if setup::component("fmt", "rustfmt").is_ok() {
        let mut format = cargo(&["fmt", "--check", "--", "--color=never"]);
        format.arg("--config-path").arg(root.join("rustfmt.toml"));
        steps.run_in(&format!("{name} format"), format, dir);
    }
    let step = format!("{name} clippy");
    let compiler = match setup::bare(root) {
        Ok(compiler) => compiler,
        Err(missing) => return steps.skip(&step, &missing),
    };
    let Some(mut clippy) = compiler.clippy(root) else {
        let sentence = "there is no clippy for the bare compiler: install rust-web-clippy.";
        let missing = Missing { sentence: sentence.to_owned(), fails: false };
        return steps.skip(&step, &missing);
    };
    clippy.args(["--release", "--all-features"]);
    for isa in isas {
        clippy.args(["--target", isa.target()]);
    }
    clippy.args(["--", "-D", "warnings"]);
    steps.run_in(&step, clippy, dir);
}

fn cargo(words: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(words);
    cargo
}
