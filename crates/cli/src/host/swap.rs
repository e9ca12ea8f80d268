//! Swap areas of our own, the first to be used, and gone when their value is dropped.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use rustix::fs::statfs;

use super::Host;
use super::cpu::rounded;
use super::keeper::{Keeper, own_name, quoted};

const PLACES: [&str; 2] = ["/usr/sbin", "/sbin"];
const SWAPS: &str = "proc/swaps";
const CONTROL: &str = "sys/class/zram-control";
/// The highest priority: this area is used before the host's own.
const PRIORITY: &str = "32767";

/// Where the swap file may be, if it is on a disk there.
const FOLDERS: [&str; 2] = ["var/tmp", "tmp"];
/// The magic numbers of file systems that are no disk: tmpfs, ramfs, overlayfs (whose upper layer
/// may be either of them). Source: statfs(2).
const NOT_ON_DISK: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x794c_7630];

/// A swap device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    /// A loop device over a file on a disk.
    Loop,
    /// Compressed memory.
    Zram,
}

impl Device {
    pub(crate) const ALL: [Device; 2] = [Device::Loop, Device::Zram];

    /// The word in cases.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Device::Loop => "loop",
            Device::Zram => "zram",
        }
    }
}

/// An area in use. Dropping it gives everything back.
#[must_use]
pub(crate) struct Swap {
    /// The device's file.
    path: PathBuf,
    /// The folder of its file, or its compression.
    pub(crate) detail: String,
    /// Gives it back.
    pub(crate) keeper: Keeper,
}

impl Swap {
    /// Begins to swap to a new area of `bytes` bytes, header included.
    pub(crate) fn on(host: &Host, device: Device, bytes: u64) -> Result<Swap, String> {
        if host.path("") != Path::new("/") {
            return Err("this is not the machine that we run on".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("only root may swap".to_owned());
        }
        if host.read("sys/module/zswap/parameters/enabled").as_deref() == Some("Y") {
            return Err("zswap is on, and compresses before anything reaches a device".to_owned());
        }
        let mut keeper = Keeper::new().map_err(|e| format!("there is no shell ({e})"))?;
        let (path, detail) = match device {
            Device::Loop => loop_device(host, &mut keeper, bytes)?,
            Device::Zram => zram(host, &mut keeper, bytes)?,
        };
        write_header(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        promise(&mut keeper, &format!("swapoff {}", quoted(&path)))?;
        tool("swapon", &["--priority".as_ref(), PRIORITY.as_ref(), &path])?;
        Ok(Swap { path, detail, keeper })
    }

    /// Gives everything back.
    pub(crate) fn off(self, host: &Host) -> Result<(), String> {
        let Swap { path, keeper, .. } = self;
        drop(keeper);
        let swaps = host.read(SWAPS).unwrap_or_default();
        match areas(&swaps).any(|area| area == path) {
            true => Err(format!("{} is still in use; run swapoff on it.", path.display())),
            false => Ok(()),
        }
    }
}

/// The areas that the kernel swaps to.
fn areas(swaps: &str) -> impl Iterator<Item = &Path> {
    swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(Path::new)
}

/// A loop device over a new file on a disk.
fn loop_device(host: &Host, keeper: &mut Keeper, bytes: u64) -> Result<(PathBuf, String), String> {
    let place = disk_folder(&FOLDERS.map(|folder| host.path(folder)), bytes)?;
    let file = place.join(own_name("swap"));
    let name = quoted(&file);
    promise(keeper, &format!("rm -f {name}"))?;
    let attached = format!("losetup --noheadings --output NAME --associated {name}");
    promise(keeper, &format!("for d in $({attached}); do losetup --detach $d; done"))?;
    // Written now, so that the disk has its blocks before the first page goes out.
    fill(&file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    let device = tool("losetup", &["--find".as_ref(), "--show".as_ref(), &file])?;
    Ok((PathBuf::from(device.trim()), format!("file in {}", place.display())))
}

/// The first of `folders` that lies on a disk and has room for `bytes`. A file on tmpfs is memory
/// itself: Linux could swap the swap file out to itself, and would wait for ever.
fn disk_folder(folders: &[PathBuf], bytes: u64) -> Result<PathBuf, String> {
    let mut why = "there is no folder for a swap file".to_owned();
    for folder in folders {
        let name = folder.display();
        match statfs(folder) {
            Err(e) => why = format!("{name}: {e}"),
            Ok(found) if NOT_ON_DISK.contains(&(found.f_type as u64 & 0xffff_ffff)) => {
                why = format!("{name} is on no disk, and a swap file in memory can hang the host");
            }
            Ok(found) if found.f_bavail.saturating_mul(found.f_bsize as u64) < 2 * bytes => {
                why = format!("{name} has no room for a swap file of {}", rounded(bytes));
            }
            Ok(_) => return Ok(folder.clone()),
        }
    }
    Err(why)
}

/// A new file of `bytes` zeros.
fn fill(file: &Path, bytes: u64) -> std::io::Result<()> {
    let file = fs::OpenOptions::new().write(true).create_new(true).open(file)?;
    std::io::copy(&mut std::io::repeat(0).take(bytes), &mut &file).map(drop)
}

/// An unused zram device, or a new one.
fn zram(host: &Host, keeper: &mut Keeper, bytes: u64) -> Result<(PathBuf, String), String> {
    if !host.path(CONTROL).is_dir() {
        promise(keeper, "modprobe --remove zram")?;
        tool("modprobe", &["zram".as_ref()]).map_err(|_| "there is no zram".to_owned())?;
    }
    let name = match unused_zram(host) {
        Some(name) => name,
        None => {
            let number = host.read(format!("{CONTROL}/hot_add"));
            let number = number.ok_or("the kernel gives no new zram device")?;
            promise(keeper, &format!("echo {number} > /{CONTROL}/hot_remove"))?;
            format!("zram{number}")
        }
    };
    let file = |file: &str| host.path(format!("sys/block/{name}/{file}"));
    // Promised only when it is ours: to reset another user's device would destroy its data.
    fs::write(file("disksize"), bytes.to_string()).map_err(|e| format!("{name}: {e}"))?;
    // A program that watches for new devices may still have it open.
    let reset = format!("echo 1 > {} && break", quoted(&file("reset")));
    promise(keeper, &format!("for i in 1 2 3 4 5 6 7 8 9; do {reset}; sleep 0.2; done"))?;
    let algorithms = host.read(format!("sys/block/{name}/comp_algorithm")).unwrap_or_default();
    let chosen = algorithms.split_whitespace().find_map(|word| word.strip_prefix('['));
    let chosen = chosen.map_or("its own", |word| word.trim_end_matches(']'));
    Ok((host.path("dev").join(&name), format!("compression {chosen}")))
}

/// The name of a zram device without a size: it is not in use.
fn unused_zram(host: &Host) -> Option<String> {
    let entries = fs::read_dir(host.path("sys/block")).ok()?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let size = |name: &String| host.read(format!("sys/block/{name}/disksize"));
    names.filter(|name| name.starts_with("zram") && size(name).as_deref() == Some("0")).min()
}

/// Writes the header of version 1: a page with its version and last page at 1,024, where a boot
/// sector ends, and the magic word at the page's end.
fn write_header(path: &Path, bytes: u64) -> std::io::Result<()> {
    let page = rustix::param::page_size();
    let last = u32::try_from(bytes / page as u64 - 1).unwrap_or(u32::MAX);
    let mut header = vec![0; page];
    header[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&last.to_ne_bytes());
    header[page - 10..].copy_from_slice(b"SWAPSPACE2");
    let mut file: File = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(&header)?;
    file.sync_all()
}

fn promise(keeper: &mut Keeper, undo: &str) -> Result<(), String> {
    keeper.promise(undo).map_err(|e| format!("no process would give the swap area back ({e})"))
}

/// Runs a tool of the administrator's; returns its output.
fn tool(name: &str, words: &[&Path]) -> Result<String, String> {
    let places = PLACES.iter().map(|place| Path::new(place).join(name));
    let path = places.into_iter().find(|path| path.is_file()).unwrap_or_else(|| name.into());
    let output = Command::new(path).args(words).stdin(process::Stdio::null()).output();
    let output = output.map_err(|e| format!("{name} does not run ({e})"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(format!("{name} is refused ({said})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d7_a_zram_device_that_has_a_size_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        assert_eq!(unused_zram(&host), None);
        for (name, size) in [("zram0", "4096"), ("zram1", "0"), ("vda", "0")] {
            let folder = dir.path().join("sys/block").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("disksize"), size).unwrap();
        }
        assert_eq!(unused_zram(&host).as_deref(), Some("zram1"));
    }

    #[test]
    fn d7_a_swap_file_never_lies_in_memory() {
        let shm = PathBuf::from("/dev/shm");
        if statfs(&shm).is_ok_and(|found| NOT_ON_DISK.contains(&(found.f_type as u64))) {
            let why = disk_folder(std::slice::from_ref(&shm), 1 << 20).unwrap_err();
            assert!(why.contains("can hang the host"), "{why}");
        }
        assert!(disk_folder(&["/nonexistent".into()], 1).unwrap_err().contains("/nonexistent"));
        if let Ok(found) = disk_folder(&[shm.clone(), "/var/tmp".into()], 1) {
            assert_eq!(found, Path::new("/var/tmp"));
            assert!(disk_folder(&[found], 1 << 60).unwrap_err().contains("no room"));
        }
    }

    #[test]
    fn d7_the_header_has_version_last_page_and_magic_word() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let page = rustix::param::page_size();
        write_header(file.path(), 10 * page as u64).unwrap();
        let bytes = fs::read(file.path()).unwrap();
        assert_eq!(bytes.len(), page);
        assert_eq!(bytes[1024..1032], [1_u32.to_ne_bytes(), 9_u32.to_ne_bytes()].concat());
        assert!(bytes.ends_with(b"SWAPSPACE2"));
    }

    #[test]
    fn d7_a_folder_that_plays_the_host_is_not_swapped_to() {
        let dir = tempfile::tempdir().unwrap();
        for device in Device::ALL {
            let why = Swap::on(&Host::new(dir.path()), device, 1 << 20).err().unwrap();
            assert!(why.contains("not the machine"), "{why}");
        }
    }

    #[test]
    fn d7_a_tool_that_fails_or_lacks_is_told_with_its_reason() {
        let why = tool("swapon", &["/nonexistent".as_ref()]).unwrap_err();
        assert!(why.starts_with("swapon is refused (") || why.contains("does not run"), "{why}");
        let why = tool("quire-has-no-such-tool", &[]).unwrap_err();
        assert!(why.starts_with("quire-has-no-such-tool does not run"), "{why}");
    }

    #[test]
    fn d7_areas_in_use_are_read() {
        let swaps = "Filename Type Size Used Priority\n/dev/a partition 8 0 -2\n/b file 8 0 -3\n";
        assert!(areas(swaps).eq([Path::new("/dev/a"), Path::new("/b")]));
        assert_eq!(areas("").count(), 0);
    }
}
