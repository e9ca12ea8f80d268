//! Checks an order before anything is built or booted: each mistake gets one sentence.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::elf::Program;
use super::run::Order;
use super::{Isa, Programs};
use crate::steps::Missing;

/// Megabytes that the kernels need, and beside these [`COPIES`] times the initramfs.
const LEAST_QUIRE_MIB: u64 = 32;
const LEAST_LINUX_MIB: u64 = 128;

/// The initramfs lies in memory until its files are unpacked beside it.
const COPIES: u64 = 2;

/// The largest folio that has a setting, in KiB.
const LARGEST_KIB: u64 = 2048;

/// The words that a folio size can be set to.
const POLICIES: [&str; 4] = ["always", "inherit", "madvise", "never"];

/// The control group that init makes for the program when it has settings.
pub(super) const GROUP: &str = "/sys/fs/cgroup/run";

/// The most symbolic links that a path may lead through, as on Linux.
const LINKS_MAX: u32 = 40;

/// Where programs are looked up by name; init has the same list.
const PLACES: [&str; 4] = ["bin", "sbin", "usr/bin", "usr/sbin"];

/// Refuses an order that cannot be carried out.
///
/// # Errors
/// The reason, as a sentence.
pub(super) fn check(root: &Path, order: &Order) -> Result<(), Missing> {
    check_words(order).and_then(|()| check_program(root, order)).map_err(refused)
}

fn check_words(order: &Order) -> Result<(), String> {
    check_memory(order, 0)?;
    order.thp.as_deref().map_or(Ok(()), check_thp)?;
    for word in &order.settings {
        check_boot_word(word)?;
    }
    for word in &order.swaps {
        let swap = Swap::read(word)?;
        if !swap.options.is_empty() && is_linux(order) {
            return Err(format!("--swap {word}: only Quire's kernel has options after the size."));
        }
    }
    settings(order).map(|_| ())
}

fn is_linux(order: &Order) -> bool {
    matches!(order.kernel.as_str(), "linux" | "stock")
}

/// Refuses a machine with too little memory for its kernel and `archive` bytes of initramfs.
///
/// # Errors
/// The reason.
pub(super) fn check_memory(order: &Order, archive: u64) -> Result<(), String> {
    let name = &order.memory;
    let Some(bytes) = bytes_of(name, 20) else {
        return Err(format!("--mem {name} is no size: write 512M or 2G."));
    };
    let (kernel, least) = match is_linux(order) {
        true => ("Linux", LEAST_LINUX_MIB),
        false => ("Quire's kernel", LEAST_QUIRE_MIB),
    };
    let needed = least + (COPIES * archive).div_ceil(1 << 20);
    if bytes >= needed << 20 {
        return Ok(());
    }
    Err(format!("--mem {name} is too little: {kernel} and this program need {needed}M at least."))
}

/// Refuses folio settings that are not of the form `64K=always,2M=inherit`.
fn check_thp(settings: &str) -> Result<(), String> {
    for setting in settings.split(',') {
        let (size, word) = setting.split_once('=').unwrap_or((setting, ""));
        let kib = bytes_of(size, 64).map_or(0, |bytes| bytes >> 10);
        if !kib.is_power_of_two() || !(8..=LARGEST_KIB).contains(&kib) {
            return Err(format!("--thp {setting}: `{size}` is no power of two from 8K to 2M."));
        }
        if !POLICIES.contains(&word) {
            let known = POLICIES.join(", ");
            return Err(format!("--thp {setting}: `{word}` is none of {known}."));
        }
    }
    Ok(())
}

/// Refuses a word that the kernel would not get as it is.
fn check_boot_word(word: &str) -> Result<(), String> {
    let is_cut = |c: char| c.is_whitespace() || c == '"' || c.is_control();
    if word.is_empty() || word == "--" || word.contains(is_cut) {
        return Err(format!(
            "--boot `{word}`: a word has no spaces and no quotes, and is not `--`."
        ));
    }
    Ok(())
}

/// A device to swap to: `zram0=192M`, or with options of Quire's kernel `zram0=192M,unit=4K`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Swap {
    name: String,
    bytes: u64,
    options: String,
}

impl Swap {
    fn read(word: &str) -> Result<Self, String> {
        let bad = || format!("--swap {word} is not of the form zram0=192M or ram0=64M.");
        let (name, rest) = word.split_once('=').ok_or_else(bad)?;
        let (size, options) = match rest.split_once(',') {
            Some((size, options)) => (size, format!(",{options}")),
            None => (rest, String::new()),
        };
        // A swap area has a header and at least one page.
        let bytes = bytes_of(size, 0).filter(|bytes| *bytes >= 64 << 10).ok_or_else(bad)?;
        if !matches!(name, "ram0" | "zram0") || check_boot_word(&options_word(&options)).is_err() {
            return Err(bad());
        }
        Ok(Self { name: name.to_owned(), bytes, options })
    }

    /// The boot word that makes Quire's kernel have the device.
    fn boot_word(&self) -> String {
        format!("{}={}{}", self.name, self.bytes, self.options)
    }
}

/// Options with a prefix, so that an empty list passes the check of words.
fn options_word(options: &str) -> String {
    format!("o{options}")
}

/// The boot words for the order's swap devices.
pub(super) fn swap_words(order: &Order) -> Vec<String> {
    let swaps = order.swaps.iter().filter_map(|word| Swap::read(word).ok());
    swaps.map(|swap| swap.boot_word()).collect()
}

/// The devices that init swaps to, `/dev/zram0=BYTES`, for its file `/init.swaps`.
pub(super) fn swap_areas(order: &Order) -> Vec<String> {
    let swaps = order.swaps.iter().filter_map(|word| Swap::read(word).ok());
    swaps.map(|swap| format!("/dev/{}={}", swap.name, swap.bytes)).collect()
}

/// The files that init writes before the program runs, `PATH=VALUE`, for its file `/init.settings`.
///
/// # Errors
/// The setting that is not of the form NAME=VALUE.
pub(super) fn settings(order: &Order) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    for word in &order.sysctls {
        let (name, value) = split(word, "--sysctl", "vm.swappiness=10")?;
        files.push(format!("/proc/sys/{}={value}", name.replace('.', "/")));
    }
    for word in &order.group {
        let (name, value) = split(word, "--cgroup", "memory.max=64M")?;
        if name.contains('/') {
            return Err(format!("--cgroup {word}: `{name}` is no file of a control group."));
        }
        files.push(format!("{GROUP}/{name}={value}"));
    }
    Ok(files)
}

fn split<'a>(word: &'a str, option: &str, example: &str) -> Result<(&'a str, &'a str), String> {
    let bad = || format!("{option} {word} is not of the form {example}.");
    let (name, value) = word.split_once('=').ok_or_else(bad)?;
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let is_name = !name.is_empty() && name.chars().all(is_known) && !name.contains("..");
    if !is_name || value.is_empty() || value.contains('\0') {
        return Err(bad());
    }
    Ok((name, value))
}

/// The bytes of a size such as 64K; a bare number counts in units of two to the power of `shift`.
/// 64 as `shift` refuses bare numbers.
fn bytes_of(size: &str, shift: u32) -> Option<u64> {
    let (digits, shift) = match size.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&size[..size.len() - 1], 10),
        b'M' => (&size[..size.len() - 1], 20),
        b'G' => (&size[..size.len() - 1], 30),
        b'T' => (&size[..size.len() - 1], 40),
        _ => (size, shift),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1_u64.checked_shl(shift)?)
}

/// Refuses a program that is not there, is for another ISA, or lacks its dynamic loader.
fn check_program(root: &Path, order: &Order) -> Result<(), String> {
    let Some(program) = order.words.first() else { return Ok(()) };
    let path = Path::new(program);
    if let Some(dir) = &order.root {
        let is_ours = Programs::names(root).iter().any(|name| *program == **name);
        return if is_ours { Ok(()) } else { check_inside(dir, path, order.isa) };
    }
    if path.is_dir() {
        let inside = order.words.get(1);
        return inside.map_or(Ok(()), |program| check_inside(path, Path::new(program), order.isa));
    }
    // Names of os/guest/, busybox and scripts are looked up later.
    let is_name = !program.as_bytes().contains(&b'/') && !path.is_file();
    if is_name || program.as_bytes().ends_with(b".sh") || program == "busybox" {
        return Ok(());
    }
    if Programs::names(root).iter().any(|name| *program == **name) {
        return Ok(());
    }
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}.", path.display()))?;
    let found = Program::read(&bytes);
    check_isa(path, &found, order.isa)?;
    match found {
        Program::Elf { loader: Some(loader), .. } => Err(format!(
            "{} is a dynamic program: it needs {loader} and its libraries. Link it statically, or \
             name a directory that has both: --root DIR -- PROGRAM.",
            path.display()
        )),
        _ => Ok(()),
    }
}

fn check_isa(path: &Path, program: &Program, isa: Isa) -> Result<(), String> {
    let path = path.display();
    match program {
        Program::Other => Err(format!("{path} is no program: neither an ELF file nor a script.")),
        Program::Elf { isa: found, .. } if !program.is_for(isa) => {
            Err(format!("{path} is a program for {found}, and --arch is {}.", isa.name()))
        }
        _ => Ok(()),
    }
}

/// Checks a program of a directory that becomes the root.
fn check_inside(dir: &Path, program: &Path, isa: Isa) -> Result<(), String> {
    let missing = |path: &Path| format!("there is no {} in {}.", path.display(), dir.display());
    if !dir.is_dir() {
        return Err(format!("--root {} is no directory.", dir.display()));
    }
    let is_path = program.as_os_str().as_bytes().contains(&b'/');
    let file = match is_path {
        true => resolve(dir, program),
        false => PLACES.iter().find_map(|place| resolve(dir, &Path::new(place).join(program))),
    };
    let file = file.ok_or_else(|| missing(program))?;
    let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}.", file.display()))?;
    let found = Program::read(&bytes);
    check_isa(program, &found, isa)?;
    match found {
        Program::Elf { loader: Some(loader), .. } if resolve(dir, Path::new(&loader)).is_none() => {
            Err(format!(
                "{} is a dynamic program, and its loader {loader} is not in {}.",
                program.display(),
                dir.display()
            ))
        }
        _ => Ok(()),
    }
}

/// The host's path of the file that `path` leads to where `dir` is the root.
fn resolve(dir: &Path, path: &Path) -> Option<PathBuf> {
    let mut found = PathBuf::new();
    let mut left: Vec<PathBuf> = pieces(path);
    let mut links = 0;
    while let Some(piece) = left.pop() {
        if piece.as_os_str() == OsStr::new("..") {
            found.pop();
            continue;
        }
        let next = dir.join(&found).join(&piece);
        let data = next.symlink_metadata().ok()?;
        if data.is_symlink() {
            links += 1;
            let target = next.read_link().ok().filter(|_| links <= LINKS_MAX)?;
            if target.is_absolute() {
                found = PathBuf::new();
            }
            left.extend(pieces(&target));
        } else {
            found.push(piece);
        }
    }
    Some(dir.join(found)).filter(|file| file.is_file())
}

/// The names in a path, the last first.
fn pieces(path: &Path) -> Vec<PathBuf> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    });
    let mut names: Vec<PathBuf> = names.collect();
    names.reverse();
    names
}

fn refused(sentence: String) -> Missing {
    Missing { sentence, fails: false }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
