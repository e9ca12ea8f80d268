//! `cargo xtask starry`: StarryOS, as it is or on Quire, with a program of `os/guest/`.
//!
//! `embedders/starry/build.sh` fetches its sources and builds it; here are its disk, with the
//! program and busybox, and its machine. The shell that runs the program prints the status as
//! Quire's init does.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::disk::Disk;
use super::image::{self, APPLETS};
use super::machine::{Ending, Watch};
use super::run::{Order, find_emulator};
use super::{Isa, Programs};
use crate::setup;
use crate::steps::{Missing, build_dir};

/// Their names as kernels.
const ON_QUIRE: &str = "starry";
const STOCK: &str = "starry-stock";
const STOCK_BYTES: &str = "starry-stock-bytes";

/// The exit status with which the script says that something is missing; its last line says what.
const LACKS: i32 = 3;

/// The directories of the root.
const DIRS: [&str; 10] =
    ["bin", "dev/shm", "proc", "sys", "tmp", "etc", "root", "run", "usr/bin", "var"];

/// Bytes of the disk that programs can use for files of their own.
const ROOM: u64 = 32 << 20;

/// The name by which the script knows the kernel that `--kernel` names; `None` for another.
pub(super) fn kind(kernel: &str) -> Option<&'static str> {
    match kernel {
        ON_QUIRE => Some("quire"),
        STOCK => Some("stock"),
        STOCK_BYTES => Some("stock-bytes"),
        _ => None,
    }
}

/// The order's kernel by its name: stock or on Quire.
pub fn name(is_stock: bool) -> String {
    if is_stock { STOCK } else { ON_QUIRE }.to_owned()
}

/// Whether the adaptor compiles against the sources that a build has fetched; `Err` without them.
///
/// # Errors
/// The sources are not here, or a tool is missing.
pub fn check(root: &Path) -> Result<bool, Missing> {
    if !place(root).join("fetch/Cargo.lock").is_file() {
        let sentence = "StarryOS's sources are not here; `cargo xtask starry` fetches them.";
        return Err(Missing { sentence: sentence.to_owned(), fails: false });
    }
    script(root, "quire", "check").map(|()| true)
}

/// Builds the order's kernel, and boots it with the order's program; gives its ending and the lines
/// of its console.
///
/// # Errors
/// The reason it cannot be run here.
pub(super) fn boot(
    root: &Path,
    order: &Order,
    kind: &str,
    is_shown: bool,
) -> Result<(Ending, Vec<String>), Missing> {
    if order.isa != Isa::Aarch64 {
        return Err(missing("StarryOS runs on aarch64 alone.".to_owned()));
    }
    find_emulator(order.isa)?;
    script(root, kind, "build")?;
    let files = place(root).join("root");
    fill(root, order, &files)?;
    let disk = Disk::with_room(&files, &place(root), ROOM)?;
    let (program, packages) = order.isa.emulator();
    let mut command = Command::new(program);
    command
        .args(["-M", "virt", "-cpu", "cortex-a53", "-nographic", "-no-reboot"])
        .args(["-chardev", "stdio,id=console,signal=on", "-serial", "chardev:console"])
        .args(["-monitor", "none", "-smp", &order.cpus.to_string(), "-m", &order.memory])
        .arg("-kernel")
        .arg(place(root).join(kind).join("starry.bin"))
        .args(disk.nvme_words())
        .args(["-append", &command_line(order)]);
    if order.counts_instructions {
        command.args(["-icount", "shift=0,align=off,sleep=off"]);
    }
    let watch = Watch { timeout: Duration::from_secs(order.timeout_seconds), is_shown };
    let (ending, lines) = watch.run(&mut command, packages).map_err(missing)?;
    Ok((ending, lines.iter().map(|line| plain(line)).collect()))
}

/// The kernel's words: each `initarg` is a word of the first program.
fn command_line(order: &Order) -> String {
    let mut words = vec!["root=/dev/nvme0n1".to_owned()];
    if let Some(thp) = &order.thp {
        // The sizes of folios, as the library writes them.
        words.push(format!("quire.sizes={}", thp.replace('=', ":").replace(',', ";")));
    }
    words.extend(order.settings.iter().cloned());
    words.extend(["init=/bin/sh", "initarg=/run.sh"].map(str::to_owned));
    words.join(" ")
}

/// Fills the directory that becomes the disk.
fn fill(root: &Path, order: &Order, files: &Path) -> Result<(), Missing> {
    let busybox = setup::busybox(root, order.isa, true)?;
    let mut words = order.words.clone();
    let program = match order.program() {
        None => {
            words = vec![OsString::from("sh")];
            None
        }
        Some(name)
            if APPLETS.contains(&name) && !Programs::names(root).contains(&name.to_owned()) =>
        {
            None
        }
        Some(name) => {
            let file = image::find(root, &Programs::new(root, order.isa)?, name)?;
            words[0] = OsString::from("/program");
            Some(file)
        }
    };
    let line: Vec<String> = words.iter().map(quoted).collect::<Result<_, _>>()?;
    let script = format!("{}\nstatus=$?\necho\necho \"[init] exit $status\"\n", line.join(" "));
    let fail = |error: std::io::Error| missing(format!("{}: {error}.", files.display()));
    let make = || -> std::io::Result<()> {
        if files.exists() {
            fs::remove_dir_all(files)?;
        }
        for dir in DIRS {
            fs::create_dir_all(files.join(dir))?;
        }
        fs::copy(&busybox, files.join("bin/busybox"))?;
        for applet in APPLETS {
            symlink("busybox", files.join("bin").join(applet))?;
        }
        if let Some(file) = &program {
            fs::copy(file, files.join("program"))?;
        }
        fs::write(files.join("run.sh"), &script)
    };
    make().map_err(fail)
}

/// A word as the shell reads it.
fn quoted(word: &OsString) -> Result<String, Missing> {
    let word = word.to_str().ok_or_else(|| missing(format!("{word:?} is no UTF-8.")))?;
    Ok(format!("'{}'", word.replace('\'', "'\\''")))
}

/// A line without the colours of StarryOS's own words.
fn plain(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        whole += piece.split_once('m').map_or(piece, |(_, rest)| rest);
    }
    whole
}

/// Where its sources, its programs and its disk are.
fn place(root: &Path) -> PathBuf {
    build_dir(root).join("starry")
}

/// Runs the script, whose output goes to a file.
fn script(root: &Path, kind: &str, what: &str) -> Result<(), Missing> {
    let place = place(root);
    let log = place.join(format!("{what}-{kind}.log"));
    let fail = |error: std::io::Error| missing(format!("{}: {error}.", log.display()));
    fs::create_dir_all(&place).map_err(fail)?;
    let out = File::create(&log).map_err(fail)?;
    let mut command = Command::new("bash");
    command.arg(root.join("embedders/starry/build.sh")).arg(&place).args([kind, what]);
    command.stdout(out.try_clone().map_err(fail)?).stderr(out);
    eprintln!("{what}s StarryOS ({kind}); the first time takes minutes: {}", log.display());
    let status = command.status().map_err(fail)?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read(&log).map_err(fail)?;
    let said = String::from_utf8_lossy(&said);
    Err(match status.code() {
        // The last line is the sentence.
        Some(LACKS) => {
            Missing { sentence: said.lines().last().unwrap_or_default().to_owned(), fails: false }
        }
        _ => missing(format!("StarryOS ({kind}) does not build: see {}.", log.display())),
    })
}

fn missing(sentence: String) -> Missing {
    Missing { sentence, fails: true }
}

#[cfg(test)]
mod tests {
    use super::{Isa, Order, command_line, plain, quoted};

    #[test]
    fn colours_go_and_words_stay() {
        assert_eq!(plain("\u{1b}[37m[ 1.5] \u{1b}[33mno\u{1b}[m"), "[ 1.5] no");
        assert_eq!(plain("touch size=4K"), "touch size=4K");
    }

    #[test]
    fn the_shell_reads_a_word_as_it_was() {
        assert_eq!(quoted(&"it's $HOME".into()).expect("UTF-8"), r"'it'\''s $HOME'");
    }

    #[test]
    fn sizes_reach_the_library_in_its_own_words() {
        let thp = Some("64K=always,2M=inherit".to_owned());
        let line = command_line(&Order { thp, ..Order::new(Isa::Aarch64, ["touch"]) });
        assert!(line.contains(" quire.sizes=64K:always;2M:inherit "), "{line}");
    }
}
