//! Files on a read-only disk, with bytes that come late.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use linux_raw_sys::general as raw;

use super::*;

const PAGE: u64 = 4096;

/// Bytes in pages, each of which is there only after a request.
struct Late {
    bytes: Vec<u8>,
    there: Mutex<BTreeSet<u64>>,
    bad: Option<u64>,
}

impl Late {
    fn new(count: usize, bad: Option<u64>) -> Arc<Self> {
        let bytes = (0..count).map(|at| b'a' + (at % 23) as u8).collect();
        Arc::new(Self { bytes, there: Mutex::default(), bad })
    }
}

impl Stored for Late {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn held_bytes(&self) -> u64 {
        512
    }

    fn want(&self, _: &Caller<'_>, offset: u64, bytes: u64) -> Result<()> {
        let end = (offset + bytes).min(self.length());
        let mut there = self.there.lock().unwrap();
        let mut pages = offset / PAGE..end.div_ceil(PAGE);
        if pages.clone().any(|page| Some(page) == self.bad) {
            return Err(Errno::EIO);
        }
        // One at a time, so that a call finds some of its pages and not all.
        if pages.any(|page| there.insert(page)) { Err(Errno::BLOCKED) } else { Ok(()) }
    }

    fn read_at(&self, who: &Caller<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.want(who, offset, into.len() as u64)?;
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// A directory with a file, a directory with another, and a link. Each lookup needs two tries.
struct Disk {
    file: Arc<Late>,
    asked: Mutex<BTreeSet<Vec<u8>>>,
}

fn meta(mode: u32) -> Meta {
    let time = Time { seconds: 77, nanos: 1 };
    Meta { mode, uid: 3, gid: 4, links: 5, accessed: time, modified: time, changed: time }
}

struct Below(Arc<Disk>);

impl Directory for Below {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Entry> {
        if self.0.asked.lock().unwrap().insert(name.to_vec()) {
            return Err(Errno::BLOCKED);
        }
        let (inode, body) = match name {
            b"file" => (20, Body::Stored(self.0.file.clone())),
            b"dir" => (21, Body::Tree(Arc::new(Below(self.0.clone())))),
            b"link" => (22, Body::Link(b"dir/file".to_vec())),
            _ => return Err(Errno::ENOENT),
        };
        let meta = meta(0o751);
        Ok(Entry { inode, mode: meta.mode, what: What::Stored { body, meta } })
    }

    fn list(&self, _: &Caller<'_>, from: u64, tell: &mut Tell<'_>) -> Result<()> {
        let all =
            [("file", 20, Kind::File), ("dir", 21, Kind::Directory), ("link", 22, Kind::Link)];
        for (at, (name, inode, kind)) in all.into_iter().enumerate().skip(from as usize) {
            if !tell(at as u64 + 1, name.as_bytes(), inode, kind) {
                break;
            }
        }
        Ok(())
    }
}

/// A world with a root that shows such a disk.
fn world(count: usize, bad: Option<u64>) -> World {
    let world = World::new();
    let disk = Arc::new(Disk { file: Late::new(count, bad), asked: Mutex::default() });
    let show = || world.tree.show(&world.who(), "ext4", 0xef53, &Below(disk.clone()));
    let mut left = 0;
    while show() == Err(Errno::BLOCKED) {
        left += 1;
    }
    assert_eq!(left, 3, "each name was lacking once");
    // Names are asked for anew below.
    disk.asked.lock().unwrap().clear();
    world
}

/// Makes a call until it lacks nothing; returns the number of tries.
fn patiently<T>(mut call: impl FnMut() -> Outcome<T>) -> (Outcome<T>, usize) {
    let mut left = 0;
    loop {
        match call() {
            Err(Halt::Failed(Errno::BLOCKED)) => left += 1,
            other => return (other, left),
        }
    }
}

#[test]
fn a_path_through_a_disk_is_gone_again_for_each_name_that_lacks() {
    let world = world(10, None);
    let (fd, left) = patiently(|| world.open("/link", raw::O_RDONLY));
    assert_eq!(left, 1, "the link is in the root; below it one name was lacking");
    let (text, left) = patiently(|| world.read(fd.unwrap(), 100));
    assert_eq!((text.as_deref(), left), (Ok("abcdefghij"), 1));
}

#[test]
fn a_read_gives_the_pages_that_are_there_and_its_rest_comes_later() {
    let world = world(10_000, None);
    let fd = patiently(|| world.open("/dir/file", raw::O_RDONLY)).0.unwrap();
    assert_eq!(world.read(fd, 9000), Err(Halt::Failed(Errno::BLOCKED)));
    let mut sum = 0;
    let mut parts = 0;
    while sum < 9000 {
        let (text, _) = patiently(|| world.read(fd, 9000 - sum));
        sum += text.unwrap().len();
        parts += 1;
        assert_eq!(world.run(|calls| calls.lseek(fd, 0, raw::SEEK_CUR)), Ok(sum as u64));
    }
    assert!(parts > 1, "it came at once");
    assert_eq!(world.run(|calls| calls.is_regular(fd)), Ok(true));
    let (rest, _) = patiently(|| world.read(fd, 9000));
    assert_eq!(rest.unwrap().len(), 1000);
    assert_eq!(world.read(fd, 9000).as_deref(), Ok(""));
}

#[test]
fn a_page_that_cannot_be_read_is_eio_and_the_bytes_before_it_are_not() {
    let world = world(3 * PAGE as usize, Some(1));
    let fd = patiently(|| world.open("/dir/file", raw::O_RDONLY)).0.unwrap();
    let (text, _) = patiently(|| world.read(fd, 3 * PAGE as usize));
    assert_eq!(text.unwrap().len(), PAGE as usize);
    assert_eq!(patiently(|| world.read(fd, 1)).0, Err(Halt::Failed(Errno::EIO)));
    world.run(|calls| calls.lseek(fd, 2 * PAGE as i64, raw::SEEK_SET)).unwrap();
    assert_eq!(patiently(|| world.read(fd, 9000)).0.unwrap().len(), PAGE as usize);
}

#[test]
fn nothing_on_a_disk_can_be_changed() {
    let world = world(10, None);
    let file = b"/dir/file";
    for flags in [raw::O_WRONLY, raw::O_RDWR, raw::O_TRUNC, raw::O_CREAT | raw::O_RDWR] {
        let opened = patiently(|| world.open("/dir/file", flags)).0;
        assert_eq!(opened, Err(Halt::Failed(Errno::EROFS)), "{flags:#x}");
    }
    let made = patiently(|| world.open("/dir/new", raw::O_CREAT | raw::O_RDWR)).0;
    assert_eq!(made, Err(Halt::Failed(Errno::EROFS)));
    let here = raw::AT_FDCWD;
    let fails = |call: &dyn Fn(&Calls<'_>) -> Result<()>| {
        let (done, _) = patiently(|| Ok(world.run(|calls| call(calls))?));
        assert_eq!(done, Err(Halt::Failed(Errno::EROFS)));
    };
    fails(&|calls| calls.truncate(file, 0));
    fails(&|calls| calls.fchmodat(here, file, 0o777, 0));
    fails(&|calls| calls.utimensat(here, Some(file), [SetTime::Now; 2], 0));
    fails(&|calls| calls.faccessat2(here, file, 2, 0));
    fails(&|calls| calls.unlinkat(here, file, 0));
    fails(&|calls| calls.mkdirat(here, b"/dir/new", 0o755));
    fails(&|calls| calls.symlinkat(b"x", here, b"/dir/new"));
    fails(&|calls| calls.linkat(here, file, here, b"/dir/new", 0));
    fails(&|calls| calls.renameat2(here, file, here, b"/dir/new", 0));
    // To look is allowed; and the root directory itself is in memory.
    assert!(patiently(|| Ok(world.run(|calls| calls.faccessat2(here, file, 4, 0))?)).0.is_ok());
    assert!(world.run(|calls| calls.mkdirat(here, b"/new", 0o755)).is_ok());
}

#[test]
fn names_in_memory_hide_the_disks_and_metadata_is_the_disks() {
    let world = World::new();
    world.write_file("/file", "mine");
    let disk = Arc::new(Disk { file: Late::new(10, None), asked: Mutex::default() });
    while world.tree.show(&world.who(), "ext4", 0xef53, &Below(disk.clone())).is_err() {}
    assert_eq!(world.read_file("/file").as_deref(), Ok("mine"));
    let stat = world.run(|calls| calls.find(raw::AT_FDCWD, b"/dir")).unwrap().node.unwrap();
    assert_eq!((stat.meta().uid, stat.meta().links, stat.inode()), (3, 5, 21));
    let statfs = world.run(|calls| calls.statfs(b"/dir")).unwrap();
    assert_eq!(statfs[..4], 0xef53_u32.to_le_bytes());
    let mut told = Vec::new();
    world.tree.mounts(&mut |path, kind| told.push((path.to_vec(), kind.len())));
    assert_eq!(told, [(b"/".to_vec(), 5), (b"/".to_vec(), 4)]);
    let busy = world.run(|calls| calls.renameat2(raw::AT_FDCWD, b"/dir", raw::AT_FDCWD, b"/d", 0));
    assert_eq!(busy, Err(Errno::EBUSY));
}

#[test]
fn a_file_of_a_disk_is_mapped_but_never_written_through_a_mapping() {
    let world = world(9000, None);
    let fd = patiently(|| world.open("/dir/file", raw::O_RDONLY)).0.unwrap();
    let open = world.run(|calls| calls.open_file(fd)).unwrap();
    let show = |shared, writes| open.node().show(shared, writes, |id, may| Ok((id, may)));
    assert_eq!(show(true, true), Err(Errno::EACCES));
    assert_eq!(show(true, false), Ok((None, false)), "this one has no number");
    assert_eq!(show(false, true), Ok((None, true)));
    let none = world.run(|calls| calls.find(raw::AT_FDCWD, b"/dev")).unwrap();
    let none = none.node.as_ref().unwrap().show(false, false, |_, _| Ok(()));
    assert_eq!(none, Err(Errno::EACCES), "a directory has no pages");
}
