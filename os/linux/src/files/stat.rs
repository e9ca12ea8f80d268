//! The metadata that programs read: `stat`, `statx` and `statfs`, in the bytes of the target ISA.

use linux_raw_sys::general::{self as raw, stat, statfs, statx};

use super::call::Time;
use super::device::Device;
use super::node::{Body, Meta, Node};

/// `struct stat` of this ISA.
pub type Stat = [u8; size_of::<stat>()];

/// `struct statx`.
pub type Statx = [u8; size_of::<statx>()];

/// `struct statfs` of this ISA.
pub type Statfs = [u8; size_of::<statfs>()];

/// The preferred size of reads and writes in bytes.
const BLOCK: u64 = 4096;

/// Puts the low bytes of a value into a field of a structure, wherever this ISA has it.
macro_rules! put {
    ($bytes:ident: $structure:ident { $($field:ident: $value:expr,)* }) => {
        $(place(
            &mut $bytes,
            core::mem::offset_of!($structure, $field),
            width(|it: &$structure| &it.$field),
            $value as u64,
        );)*
    };
}

fn width<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Little-endian, as all ISAs are.
fn place(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// The metadata of a node, for programs.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Inode number.
    pub inode: u64,
    /// Number of the file system.
    pub volume: u32,
    /// Kind and permission bits.
    pub mode: u32,
    /// Major and minor number of the device that it is.
    pub device: (u32, u32),
    /// Length in bytes.
    pub length: u64,
    /// Bytes of memory that it takes.
    pub held_bytes: u64,
    /// The preferred size of reads and writes in bytes.
    pub block: u64,
    /// Owner, names, times.
    pub meta: Meta,
}

impl About {
    /// The metadata of `node`.
    pub fn of(node: &Node) -> Self {
        let meta = node.meta();
        let (length, held_bytes) = match node.body() {
            Body::File(file) => (file.len(), file.held_bytes()),
            Body::Stored(file) => (file.length(), file.held_bytes()),
            Body::Link(target) => (target.len() as u64, 0),
            Body::Jump(jump) => (jump.text.len() as u64, 0),
            _ => (0, 0),
        };
        let device = match node.body() {
            Body::Device(device) => Device::number(device),
            Body::Block(block) => block.number(),
            _ => (0, 0),
        };
        Self {
            inode: node.inode(),
            volume: node.volume(),
            mode: node.kind().mode() | meta.mode,
            device,
            length,
            held_bytes,
            block: match node.body() {
                Body::File(file) => file.block_bytes(),
                _ => BLOCK,
            },
            meta,
        }
    }

    /// As `fstat` returns it.
    pub fn stat(&self) -> Stat {
        let mut bytes = [0; size_of::<stat>()];
        let Meta { uid, gid, links, accessed, modified, changed, .. } = self.meta;
        put!(bytes: stat {
            st_dev: self.volume,
            st_ino: self.inode,
            st_nlink: links,
            st_mode: self.mode,
            st_uid: uid,
            st_gid: gid,
            st_rdev: joined(self.device),
            st_size: self.length,
            st_blksize: self.block,
            st_blocks: self.held_bytes / 512,
            st_atime: accessed.seconds,
            st_atime_nsec: accessed.nanos,
            st_mtime: modified.seconds,
            st_mtime_nsec: modified.nanos,
            st_ctime: changed.seconds,
            st_ctime_nsec: changed.nanos,
        });
        bytes
    }

    /// As `statx` returns it: the basic fields, whatever the mask.
    pub fn statx(&self) -> Statx {
        let mut bytes = [0; size_of::<statx>()];
        let Meta { uid, gid, links, accessed, modified, changed, .. } = self.meta;
        put!(bytes: statx {
            stx_mask: raw::STATX_BASIC_STATS,
            stx_blksize: self.block,
            stx_nlink: links,
            stx_uid: uid,
            stx_gid: gid,
            stx_mode: self.mode,
            stx_ino: self.inode,
            stx_size: self.length,
            stx_blocks: self.held_bytes / 512,
            stx_rdev_major: self.device.0,
            stx_rdev_minor: self.device.1,
            stx_dev_minor: self.volume,
        });
        let times = [
            (core::mem::offset_of!(statx, stx_atime), accessed),
            (core::mem::offset_of!(statx, stx_ctime), changed),
            (core::mem::offset_of!(statx, stx_mtime), modified),
        ];
        for (at, time) in times {
            place_time(&mut bytes, at, time);
        }
        bytes
    }
}

/// `statx_timestamp`: eight bytes of seconds, four of nanoseconds, four of nothing.
fn place_time(bytes: &mut [u8], at: usize, time: Time) {
    place(bytes, at, 8, time.seconds as u64);
    place(bytes, at + 8, 4, u64::from(time.nanos));
}

/// Both numbers of a device in one, as user space has it: `makedev`.
pub const fn joined((major, minor): (u32, u32)) -> u64 {
    let (major, minor) = (major as u64, minor as u64);
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
}

/// The numbers of a device that `mknod` gave in one.
pub const fn split(device: u64) -> (u32, u32) {
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    (major as u32, minor as u32 & 0x00ff_ffff)
}

/// A file system with this magic number and this size of a block, of which it does not count any.
pub(super) fn about_volume(magic: u32, volume: u32, block: u64) -> Statfs {
    let mut bytes = [0; size_of::<statfs>()];
    put!(bytes: statfs {
        f_type: magic,
        f_bsize: block,
        f_fsid: volume,
        f_namelen: super::path::NAME_MAX,
        f_frsize: block,
    });
    bytes
}
