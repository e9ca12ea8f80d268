//! Disks for guests: an ext4 image of a directory of the host, and its defects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Isa;
use crate::setup;
use crate::steps::Missing;

/// Bytes of a block of the image, the least size of a file.
const BLOCK: u64 = 4096;

/// Bytes that the file system takes for itself, about; and for each file.
const OVERHEAD: u64 = 8 << 20;
const EACH: u64 = 512;

/// The defect of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// It answers this number of reads in a second.
    Slow(u32),
    /// These sectors of 512 bytes cannot be read.
    Bad(Vec<u64>),
    /// It has no files, and can be written.
    Blank,
}

/// An image, which ends with this value.
pub(super) struct Disk {
    file: PathBuf,
    trouble: Trouble,
}

impl Disk {
    /// An image of `dir`, among the files in `place`.
    ///
    /// # Errors
    /// The reason there is none.
    pub(super) fn of(dir: &Path, place: &Path) -> Result<Self, Missing> {
        Self::with_room(dir, place, 0)
    }

    /// The same, with `spare` bytes for files that the guest writes.
    ///
    /// # Errors
    /// The reason there is none.
    pub(super) fn with_room(dir: &Path, place: &Path, spare: u64) -> Result<Self, Missing> {
        let program = setup::file_system_tool("mke2fs")?;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = place.join(format!("disk-{}-{count}.ext4", std::process::id()));
        let bytes = OVERHEAD + spare + room(dir).map_err(|error| failed(dir, &error))? * 9 / 8;
        fs::create_dir_all(place).map_err(|error| failed(place, &error))?;
        let disk = Self { file, trouble: Trouble::None };
        let output = Command::new(program)
            .args(["-q", "-F", "-t", "ext4", "-b", &BLOCK.to_string(), "-O", "^has_journal", "-d"])
            .arg(dir)
            .arg(&disk.file)
            .arg(format!("{}K", bytes.div_ceil(BLOCK) * (BLOCK / 1024)))
            .output()
            .map_err(|error| failed(dir, &error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(missing(format!("mke2fs {}: {}.", dir.display(), said.trim())));
        }
        Ok(disk)
    }

    /// QEMU's arguments for it as an NVMe device; what the guest writes is lost at the end.
    pub(super) fn nvme_words(&self) -> [String; 4] {
        let file = self.file.display().to_string().replace(',', ",,");
        let drive = format!("if=none,id=disk,format=raw,snapshot=on,file={file}");
        ["-drive", &drive, "-device", "nvme,drive=disk,serial=quire"].map(str::to_owned)
    }

    /// The same disk with that trouble.
    pub(super) fn with(mut self, trouble: Trouble) -> Self {
        self.trouble = trouble;
        self
    }

    /// The first sector of block `block` of the file `path` in the image.
    ///
    /// # Errors
    /// The reason it cannot be found.
    pub(super) fn sector(&self, path: &str, block: u64) -> Result<u64, Missing> {
        let program = setup::file_system_tool("debugfs")?;
        let output = Command::new(program)
            .args(["-R", &format!("bmap {path} {block}")])
            .arg(&self.file)
            .output()
            .map_err(|error| failed(&self.file, &error))?;
        let said = String::from_utf8_lossy(&output.stdout);
        match said.trim().parse::<u64>() {
            Ok(found @ 1..) => Ok(found * (BLOCK / 512)),
            _ => Err(missing(format!("debugfs finds no block {block} of {path}: {said}"))),
        }
    }

    /// A disk of `bytes` zeroes that the guest can write; the host stores only written blocks.
    ///
    /// # Errors
    /// The reason there is no such file.
    pub(super) fn blank(place: &Path, bytes: u64) -> Result<Self, Missing> {
        let file = place.join(format!("blank-{}.img", std::process::id()));
        let made = fs::create_dir_all(place)
            .and_then(|()| fs::File::create(&file))
            .and_then(|image| image.set_len(bytes));
        made.map_err(|error| failed(&file, &error))?;
        Ok(Self { file, trouble: Trouble::Blank })
    }

    /// Whether it has files.
    pub(super) fn is_root(&self) -> bool {
        !matches!(self.trouble, Trouble::Blank)
    }

    /// QEMU's arguments for it. The guest cannot write it, unless it is blank.
    pub(super) fn words(&self, isa: Isa) -> Vec<String> {
        let mut drive = "if=none,id=disk".to_owned();
        if self.is_root() {
            drive += ",readonly=on";
        }
        // A comma in QEMU's arguments is written twice.
        let file = self.file.display().to_string().replace(',', ",,");
        match &self.trouble {
            Trouble::Bad(sectors) => {
                drive += ",driver=raw,file.driver=blkdebug,file.image.driver=file";
                drive += &format!(",file.image.filename={file}");
                for (number, sector) in sectors.iter().enumerate() {
                    let rule = format!("file.inject-error.{number}");
                    drive += &format!(",{rule}.event=read_aio,{rule}.errno=5");
                    drive += &format!(",{rule}.sector={sector}");
                }
            }
            Trouble::Slow(reads) => {
                drive += &format!(",format=raw,file={file},throttling.iops-read={reads}");
            }
            Trouble::None | Trouble::Blank => drive += &format!(",format=raw,file={file}"),
        }
        let device: &[&str] = match isa {
            Isa::X86_64 => &["-device", "virtio-blk-pci,drive=disk"],
            Isa::Aarch64 | Isa::Riscv64 => {
                let modern = "virtio-mmio.force-legacy=false";
                &["-global", modern, "-device", "virtio-blk-device,drive=disk"]
            }
        };
        let words = ["-drive", &drive].into_iter().chain(device.iter().copied());
        words.map(str::to_owned).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Only this machine needed it.
        let _ = fs::remove_file(&self.file);
    }
}

/// How many bytes the files below `dir` take.
fn room(dir: &Path) -> std::io::Result<u64> {
    let mut sum = BLOCK;
    for entry in dir.read_dir()? {
        let entry = entry?;
        let data = entry.metadata()?;
        sum += EACH;
        sum +=
            if data.is_dir() { room(&entry.path())? } else { data.len().div_ceil(BLOCK) * BLOCK };
    }
    Ok(sum)
}

fn failed(path: &Path, error: &std::io::Error) -> Missing {
    missing(format!("{}: {error}.", path.display()))
}

fn missing(sentence: String) -> Missing {
    Missing { sentence, fails: true }
}

#[cfg(test)]
mod tests {
    use super::{Disk, Isa, Trouble};

    #[test]
    fn trouble_is_told_in_the_words_of_the_emulator() {
        let disk = |trouble| Disk { file: "a,b".into(), trouble };
        let plain = disk(Trouble::None).words(Isa::X86_64);
        let drive = "if=none,id=disk,readonly=on,format=raw,file=a,,b";
        assert_eq!(plain, ["-drive", drive, "-device", "virtio-blk-pci,drive=disk"]);
        let bad = disk(Trouble::Bad(vec![8, 24])).words(Isa::Aarch64);
        assert!(bad[1].contains("blkdebug") && bad[1].contains("inject-error.1.sector=24"));
        assert!(bad.contains(&"virtio-mmio.force-legacy=false".to_owned()));
        let blank = disk(Trouble::Blank).words(Isa::X86_64);
        assert_eq!(blank[1], "if=none,id=disk,format=raw,file=a,,b");
        let slow = disk(Trouble::Slow(20)).words(Isa::X86_64);
        assert!(slow[1].ends_with("throttling.iops-read=20"));
    }
}
