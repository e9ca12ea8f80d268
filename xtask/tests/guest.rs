//! The programs of `os/guest/` compile for each ISA and are right on the Linux that runs this
//! test; only then do they say anything about another kernel.

use std::path::Path;
use std::process::Command;

use xtask::guest::{Isa, Programs};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The programs for `isa`; `None`, with a sentence, where there is no compiler for them.
fn programs(isa: Isa) -> Option<Programs> {
    match Programs::new(root(), isa) {
        Ok(programs) => Some(programs),
        Err(missing) => {
            println!("not tested for {}: {}", isa.name(), missing.sentence);
            None
        }
    }
}

fn host() -> Option<Programs> {
    let isa = Isa::ALL.into_iter().find(|isa| isa.name() == std::env::consts::ARCH)?;
    programs(isa)
}

/// Runs a program here; its status must be as expected.
fn run(programs: &Programs, name: &str, args: &[&str], expected: i32) {
    let path = programs.build(name).expect("it compiles");
    let output = Command::new(path).args(args).output().expect("it can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<&str> = said.lines().filter(|line| !line.starts_with("ok ")).collect();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "{name}: {}\n{complaint}", wrong.join("\n"));
}

#[test]
fn all_programs_compile_for_both_isas_without_a_warning() {
    for isa in Isa::ALL {
        let Some(programs) = programs(isa) else { continue };
        for name in Programs::names(root()) {
            if let Err(said) = programs.build(&name) {
                panic!("{}: {said}", isa.name());
            }
        }
    }
}

#[test]
fn linux_passes_what_quire_must_pass() {
    let Some(programs) = host() else { return };
    run(&programs, "abicheck", &[], 0);
    run(&programs, "wild", &[], 0);
    run(&programs, "cowcheck", &[], 0);
    run(&programs, "stress", &["1"], 0);
    run(&programs, "oom", &["1", "32"], 0);
    let lock = root().join("Cargo.lock");
    run(&programs, "mapcheck", &[&lock.to_string_lossy()], 0);
}

#[test]
fn wrong_arguments_end_with_status_2_and_no_settings_are_changed_unasked() {
    let Some(programs) = host() else { return };
    for (name, args) in [
        ("touch", &["-z"][..]),
        ("touch", &["64K"]),
        ("forkbench", &["3K"]),
        ("mmapbench", &["-n", "0"]),
        ("protbench", &["-m", "much"]),
        ("watchbench", &["3K"]),
        ("age", &["--full", "99"]),
        ("age", &["--only", "luck"]),
        ("faultscale", &["-j", "65"]),
        ("cowcheck", &["1M"]),
        ("abicheck", &["no such case"]),
        ("stress", &["0"]),
        ("oom", &["1", "2", "3"]),
        ("wild", &["x"]),
        ("mapcheck", &[]),
    ] {
        run(&programs, name, args, 2);
    }
}
