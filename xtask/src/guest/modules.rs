//! Linux's drivers for disks and swap: those that the distribution keeps in files beside the
//! kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::Kernel;
use super::request;
use super::run::Order;
use crate::steps::Missing;

/// A driver's name, and its arguments.
type Driver = (&'static str, &'static str);

/// The drivers of a disk with ext4, each after those that it needs itself. A driver without a file
/// is built into the kernel.
const DISK: [Driver; 6] = [
    ("crc16", ""),
    ("mbcache", ""),
    ("jbd2", ""),
    ("ext4", ""),
    ("virtio_mmio", ""),
    ("virtio_blk", ""),
];

/// Devices to swap to: a disk in RAM, which takes memory only as it is written, and compressed
/// memory.
const SWAP: [Driver; 5] = [
    ("brd", "rd_nr=1 rd_size=8388608"),
    ("lz4_compress", ""),
    ("lz4hc_compress", ""),
    ("zsmalloc", ""),
    ("zram", ""),
];

/// Programs that need a device to swap to: of `os/guest/`, and the root directory of Linux's tests.
const SWAPPING: [&str; 3] = ["pageout", "shootdown", "selftests-root"];

/// The words that make such devices in Quire's kernel, which take memory as they are written, too.
const SWAP_WORDS: [&str; 2] = ["ram0=1G", "zram0=1G"];

/// The words for `kernel` that make the devices that the order swaps to. Linux gets drivers.
pub(super) fn words(kernel: &Kernel, order: &Order) -> Vec<String> {
    if kernel.linux.is_some() {
        return Vec::new();
    }
    let named = request::swap_words(order);
    match named.is_empty() && has_swap(order) {
        true => SWAP_WORDS.map(str::to_owned).to_vec(),
        false => named,
    }
}

/// Whether an order needs a device to swap to.
pub(super) fn has_swap(order: &Order) -> bool {
    let name = order.program().and_then(|program| Path::new(program).file_name()?.to_str());
    !order.swaps.is_empty() || name.is_some_and(|name| SWAPPING.contains(&name))
}

/// A driver to load.
pub(super) struct Module {
    /// Its ELF file.
    pub image: Vec<u8>,
    /// Its arguments.
    pub args: &'static str,
}

/// The modules that a machine needs to carry out `order` on `kernel`, in the order in which init
/// loads them; none for Quire's kernel. Those of a disk are among them if the machine `has_disk`.
///
/// # Errors
/// The reason one cannot be read.
pub(super) fn of(kernel: &Kernel, order: &Order, has_disk: bool) -> Result<Vec<Module>, Missing> {
    let needed = needed(has_swap(order), has_disk);
    let dir = directory(&kernel.file).filter(|_| kernel.linux.is_some() && !needed.is_empty());
    let Some(dir) = dir else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    walk(&dir, &mut found);
    let known = needed.iter().filter_map(|&(name, args)| {
        found.iter().find(|path| is_of(path, name)).map(|path| (path, args))
    });
    known.map(|(path, args)| Ok(Module { image: read(path)?, args })).collect()
}

/// The drivers for a machine, in order.
fn needed(has_swap: bool, has_disk: bool) -> Vec<Driver> {
    let disk = DISK.iter().filter(|_| has_disk);
    disk.chain(SWAP.iter().filter(|_| has_swap)).copied().collect()
}

/// The directory of a Debian package with the modules of its kernel in `boot/`.
fn directory(kernel: &Path) -> Option<PathBuf> {
    let version = kernel.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let package = kernel.parent()?.parent()?;
    let places = ["lib/modules", "usr/lib/modules"];
    places.iter().map(|place| package.join(place).join(version)).find(|dir| dir.is_dir())
}

/// All files below `dir`, as far as they can be seen.
fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// Whether this is the file of module `name`, compressed or not.
fn is_of(path: &Path, name: &str) -> bool {
    let file = path.file_name().and_then(|file| file.to_str());
    file.and_then(|file| file.strip_prefix(name)).is_some_and(|rest| rest.starts_with(".ko"))
}

/// The module's bytes, as ELF.
fn read(path: &Path) -> Result<Vec<u8>, Missing> {
    let failed = |error| missing(format!("{}: {error}.", path.display()));
    if path.extension().is_none_or(|extension| extension != "xz") {
        return fs::read(path).map_err(failed);
    }
    let output = Command::new("xz").arg("-dc").arg(path).output();
    let output = output.map_err(|error| missing(format!("xz: {error}; install xz-utils.")))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(missing(format!("xz cannot read {}.", path.display()))),
    }
}

fn missing(sentence: String) -> Missing {
    Missing { sentence, fails: false }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{DISK, Order, SWAP, has_swap, is_of, needed};
    use crate::guest::Isa;

    #[test]
    fn a_machine_gets_the_drivers_of_its_disk_and_of_its_swap() {
        let order = |program: &str| Order::new(Isa::X86_64, [program]);
        assert!(has_swap(&order("pageout")) && !has_swap(&order("touch")));
        assert!(has_swap(&Order { swaps: vec!["ram0=1M".to_owned()], ..order("touch") }));
        assert_eq!(needed(false, false), []);
        assert_eq!(needed(false, true), DISK);
        assert_eq!(needed(true, false), SWAP);
        assert_eq!(needed(true, true).len(), DISK.len() + SWAP.len());
    }

    #[test]
    fn a_module_is_found_by_its_whole_name() {
        for name in ["a/virtio_blk.ko", "virtio_blk.ko.xz"] {
            assert!(is_of(Path::new(name), "virtio_blk"), "{name}");
        }
        for name in ["a/virtio_blk2.ko", "virtio_blk", "x-virtio_blk.ko", "virtio_blk.o"] {
            assert!(!is_of(Path::new(name), "virtio_blk"), "{name}");
        }
    }
}
