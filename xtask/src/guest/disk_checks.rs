//! The checks of `kernel-tests` that need a disk: dynamic programs of Debian run from it, and
//! programs get its defects as errors, without harm to others.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::Programs;
use super::checks::{Count, judge};
use super::disk::{Disk, Trouble};
use super::kernel::Kernel;
use super::machine::files;
use super::run::{Order, boot_disk, boot_kernel};
use crate::setup;
use crate::steps::Missing;

/// The name of the checks.
pub(super) const NAME: &str = "disk";

/// The name of those among them that swap, to run only them.
pub(super) const SWAPS: &str = "swap";

/// How many seconds one may take on a busy machine.
const SECONDS: u64 = 240;

/// How large the disk is that is swapped to.
const SWAP_BYTES: u64 = 256 << 20;

/// Devices in memory that are swapped to. A disk in memory takes less than there is; a compressed
/// device may take more.
const IN_MEMORY: [&str; 3] = ["ram0=64M", "zram0=192M", "zram0=64M,unit=4K"];

/// Compressed memory with all but a little on a disk.
const BEHIND: &str = "zram0=192M,behind=vda,most=4M";

/// How many reads a slow disk answers in a second.
const SLOW: u32 = 60;

/// Blocks that are bad, for the script `disk.sh`: of a file, and of a program.
const BAD: [(&str, u64); 2] = [("/test/large", 128), ("/test/program", 5)];

/// Runs all of them.
///
/// # Errors
/// The reason a machine cannot be run here. Without a root directory, or with another kernel, a
/// line says so, and nothing is counted.
pub(super) fn check(root: &Path, kernel: &Kernel, order: &mut Order) -> Result<Count, Missing> {
    if matches!(order.kernel.as_str(), "linux" | "stock") {
        println!("{NAME}: not tested: Linux would need drivers first.");
        return Ok(Count::default());
    }
    let mut sum = swaps(root, kernel, order)?;
    let dir = match Staged::new(root, order) {
        Ok(dir) => dir,
        Err(missing) => {
            println!("{NAME}: not tested: {}", missing.sentence);
            return Ok(sum);
        }
    };
    order.timeout_seconds = SECONDS;
    for (name, words, trouble) in cases(&dir, root)? {
        let disk = Disk::of(&dir.0, &files(root))?.with(trouble);
        order.words = words.iter().map(Into::into).collect();
        let start = Instant::now();
        let (ending, lines) = boot_disk(root, kernel, order, &disk, false)?;
        let count = judge(name, ending, &lines, start.elapsed());
        sum.passed += count.passed;
        sum.failed += count.failed;
    }
    Ok(sum)
}

/// The cases of `abicheck` that swap, on all kinds of devices; for Quire's kernel only.
///
/// # Errors
/// The reason a machine cannot be run here.
pub(super) fn swaps(root: &Path, kernel: &Kernel, order: &mut Order) -> Result<Count, Missing> {
    let blank = || Disk::blank(&files(root), SWAP_BYTES);
    let mut sum = swap(root, kernel, order, (None, Some(blank()?)))?;
    let in_memory = IN_MEMORY.map(|device| (Some(device), None));
    for devices in in_memory.into_iter().chain([(Some(BEHIND), Some(blank()?))]) {
        let count = swap(root, kernel, order, devices)?;
        sum.passed += count.passed;
        sum.failed += count.failed;
    }
    Ok(sum)
}

/// The same cases with a device in memory, a blank disk, or both.
fn swap(
    root: &Path,
    kernel: &Kernel,
    order: &mut Order,
    (device, disk): (Option<&str>, Option<Disk>),
) -> Result<Count, Missing> {
    order.timeout_seconds = SECONDS;
    order.words = ["abicheck", "swap"].map(Into::into).to_vec();
    // Less memory to fill until pages must go out.
    let memory = std::mem::replace(&mut order.memory, "256M".to_owned());
    order.settings.extend(device.map(str::to_owned));
    let start = Instant::now();
    let booted = match &disk {
        Some(disk) => boot_disk(root, kernel, order, disk, false),
        None => boot_kernel(root, kernel, order, false),
    };
    (order.memory, order.settings) = (memory, Vec::new());
    let (ending, lines) = booted?;
    let suffix = device.map(|device| format!(", {device}")).unwrap_or_default();
    let mut count = judge(&format!("abicheck swap{suffix}"), ending, &lines, start.elapsed());
    // Without it the checks would swap to another device, and pass.
    let made = device.and_then(|device| Some(format!("{}: ", device.split_once('=')?.0)));
    if made.is_some_and(|made| !lines.iter().any(|line| line.contains(&made))) {
        println!("FAILED the device{suffix} was not made");
        count.failed += 1;
    }
    Ok(count)
}

type Case = (&'static str, &'static [&'static str], Trouble);

fn cases(dir: &Staged, root: &Path) -> Result<[Case; 3], Missing> {
    let plain = &["/bin/sh", "/test/disk.sh"];
    let bad = &["/bin/sh", "/test/disk.sh", "bad"];
    // Images of the same directory have the same blocks.
    let disk = Disk::of(&dir.0, &files(root))?;
    let mut sectors = Vec::new();
    for (path, block) in BAD {
        sectors.push(disk.sector(path, block)?);
    }
    Ok([
        ("disk", plain, Trouble::None),
        ("disk that is slow", &["/bin/sh", "/test/script"], Trouble::Slow(SLOW)),
        ("disk with bad sectors", bad, Trouble::Bad(sectors)),
    ])
}

/// A directory that becomes a disk, gone afterwards.
struct Staged(PathBuf);

impl Staged {
    /// Debian's programs, and in /test what the script needs.
    fn new(root: &Path, order: &Order) -> Result<Self, Missing> {
        let debian = setup::debian_root(root, order.isa)?;
        let place = files(root).join(format!("disk-root-{}", std::process::id()));
        let staged = Self(place);
        let programs = Programs::new(root, order.isa)?;
        staged
            .fill(root, &debian, &programs)
            .map_err(|sentence| Missing { sentence, fails: true })?;
        Ok(staged)
    }

    fn fill(&self, root: &Path, debian: &Path, programs: &Programs) -> Result<(), String> {
        run(Command::new("cp").arg("-a").arg(debian).arg(&self.0))?;
        let fail = |error: std::io::Error| format!("{}: {error}.", self.0.display());
        self.write_test(root).map_err(fail)?;
        let checker = self.0.join("test/mapcheck");
        fs::copy(programs.build("mapcheck")?, checker).map_err(fail)?;
        let mut names = Vec::new();
        walk(&self.0, "", &mut names).map_err(fail)?;
        names.sort();
        let said = run(Command::new("sha256sum").args(&names).current_dir(&self.0))?;
        // The guest has the same names from its root on.
        fs::write(self.0.join("test/sums"), said.replace("  ", "  /")).map_err(fail)
    }

    fn write_test(&self, root: &Path) -> std::io::Result<()> {
        let test = self.0.join("test");
        fs::create_dir(&test)?;
        fs::write(test.join("large"), noise(1_000_000))?;
        fs::write(test.join("small"), "some bytes\n")?;
        fs::write(test.join("target"), "the target\n")?;
        symlink("../test/target", test.join("link"))?;
        let holes = fs::File::create(test.join("holes"))?;
        holes.write_all_at(b"something", 500_000)?;
        holes.set_len(1 << 20)?;
        fs::copy(self.0.join("bin/ls"), test.join("program"))?;
        fs::copy(root.join("os/guest/scripts/disk.sh"), test.join("disk.sh"))?;
        let script = test.join("script");
        fs::write(&script, "#!/bin/sh\nsha256sum /bin/* >/dev/null && echo ok script\n")?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // A directory that could not be made is gone already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program of the host; gives what it prints.
fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}."))?;
    if !output.status.success() {
        return Err(format!("{program}: {}.", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The names of all regular files below `dir`.
fn walk(dir: &Path, prefix: &str, names: &mut Vec<String>) -> std::io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), &format!("{name}/"), names)?;
        } else if kind.is_file() {
            names.push(name);
        }
    }
    Ok(())
}

/// Bytes without a pattern, the same each time.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}
