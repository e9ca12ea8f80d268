//! Files that are not in the page cache: copies on a disk of their own, which reads one page at a
//! time.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::files::Image;
use super::tool::tool;

/// The mounted copies. When this is dropped they are unmounted, and the folder is removed.
pub(super) struct Cold {
    folder: PathBuf,
    /// The mounts, in their order.
    mounts: Vec<PathBuf>,
    /// The setting of the loop device, and its value before.
    read_ahead: Option<(PathBuf, String)>,
    /// Major and minor number of the loop device.
    pub(super) device: (u32, u32),
    /// The inode numbers of the copies, in the order of the images.
    pub(super) inodes: Vec<u64>,
}

/// More than the files themselves need, for the file system's own tables, in KiB.
const SPARE: u64 = 16 << 10;

impl Cold {
    /// Copies the files, and mounts each copy over its original.
    pub(super) fn new(folder: &Path, images: &[Image]) -> Result<Cold> {
        let mut cold = Cold {
            folder: folder.to_owned(),
            mounts: Vec::new(),
            read_ahead: None,
            device: (0, 0),
            inodes: Vec::new(),
        };
        let disk = cold.make(images)?;
        cold.mount(&disk, images)?;
        Ok(cold)
    }

    /// Makes the file that plays the disk.
    fn make(&self, images: &[Image]) -> Result<PathBuf> {
        let (copies, disk) = (self.folder.join("copies"), self.folder.join("disk"));
        fs::create_dir(&copies).with_context(|| copies.display().to_string())?;
        let mut kib = SPARE;
        for (at, image) in images.iter().enumerate() {
            let copy = copies.join(at.to_string());
            fs::copy(&image.path, &copy).with_context(|| image.path.display().to_string())?;
            kib += image.source.bytes.div_ceil(1024) * 17 / 16 + 64;
        }
        // Blocks of a page, no journal, no space kept for root.
        let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal"];
        let mut args: Vec<std::ffi::OsString> = options.map(Into::into).into();
        args.extend(["-d".into(), copies.clone().into(), disk.clone().into()]);
        args.push(format!("{kib}k").into());
        tool("mke2fs", "e2fsprogs", args)?;
        fs::remove_dir_all(&copies)?;
        Ok(disk)
    }

    fn mount(&mut self, disk: &Path, images: &[Image]) -> Result<()> {
        let place = self.folder.join("files");
        fs::create_dir(&place)?;
        tool(
            "mount",
            "mount",
            ["-o".as_ref(), "loop,ro".as_ref(), disk.as_os_str(), place.as_os_str()],
        )?;
        self.mounts.push(place.clone());
        // From here on the loop device keeps it.
        fs::remove_file(disk)?;
        self.slow(&place)?;
        for (at, image) in images.iter().enumerate() {
            let copy = place.join(at.to_string());
            self.inodes.push(fs::metadata(&copy)?.ino());
            // No program does this: it would touch the libraries that were mounted before.
            mount_bind(&copy, &image.path).with_context(|| image.path.display().to_string())?;
            self.mounts.push(image.path.clone());
        }
        Ok(())
    }

    /// Turns the disk's readahead off.
    fn slow(&mut self, place: &Path) -> Result<()> {
        let device = fs::metadata(place)?.dev();
        self.device = (rustix::fs::major(device), rustix::fs::minor(device));
        let (major, minor) = self.device;
        let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/queue/read_ahead_kb"));
        let before = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, "0").context("the loop device's read-ahead cannot be set")?;
        self.read_ahead = Some((path, before));
        Ok(())
    }
}

impl Drop for Cold {
    fn drop(&mut self) {
        if let Some((path, before)) = &self.read_ahead {
            let _ = fs::write(path, before.trim());
        }
        // Lazily: a process that still runs keeps its open files, and no other sees the mounts.
        for mount in self.mounts.iter().rev() {
            let _ = unmount(mount, UnmountFlags::DETACH);
        }
    }
}
