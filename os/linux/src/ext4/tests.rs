//! Images that `mke2fs` makes, read by this room and by a crate that knows nothing of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::string::{String, ToString};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::vec::Vec;
use std::{format, println, vec};

use ext4_view::Ext4;

use super::*;
use crate::files::{Body, Entry, Stored, Time, What};
use crate::{Errno, Wake};

/// A device in memory: its pages are there only after a request, or fail.
struct Disk {
    bytes: Vec<u8>,
    /// Pages that are in memory; `None`: all.
    there: Option<Mutex<BTreeSet<u64>>>,
    /// A page that cannot be read.
    bad: Option<u64>,
    lacked: AtomicUsize,
}

const PAGE: u64 = 4096;

impl Disk {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, there: None, bad: None, lacked: AtomicUsize::new(0) }
    }

    fn slow(bytes: Vec<u8>) -> Self {
        Self { there: Some(Mutex::default()), ..Self::new(bytes) }
    }
}

impl Blocks for Disk {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn want(&self, _: &Caller<'_>, at: u64, bytes: u64) -> Result<()> {
        let pages = at / PAGE..(at + bytes).div_ceil(PAGE);
        if self.bad.is_some_and(|bad| pages.contains(&bad)) {
            return Err(Errno::EIO);
        }
        let Some(there) = &self.there else { return Ok(()) };
        let mut there = there.lock().unwrap();
        let lacked = pages.filter(|page| there.insert(*page)).count();
        self.lacked.fetch_add(lacked, Ordering::Relaxed);
        if lacked == 0 { Ok(()) } else { Err(Errno::BLOCKED) }
    }

    fn read(&self, who: &Caller<'_>, at: u64, into: &mut [u8]) -> Result<()> {
        self.want(who, at, into.len() as u64)?;
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.length());
        end.ok_or(Errno::EIO)?;
        into.copy_from_slice(&self.bytes[at as usize..at as usize + into.len()]);
        Ok(())
    }
}

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

fn with_caller<T>(act: impl FnOnce(&Caller<'_>) -> T) -> T {
    let wake: Arc<dyn Wake> = Arc::new(NoWake);
    act(&Caller {
        pid: 1,
        tid: 1,
        may: &crate::credentials::ROOT,
        now: Time::default(),
        longest: u64::MAX,
        wake: &wake,
    })
}

/// Makes a call again until it does not lack anything.
fn patiently<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::BLOCKED) => {}
            other => return other,
        }
    }
}

/// A directory for one test, gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("quire-ext4-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An image of what `fill` makes; `None`, with a sentence, where there is no `mke2fs`.
fn image(options: &[&str], fill: impl Fn(&Path)) -> Option<Vec<u8>> {
    let scratch = Scratch::new();
    let (root, file) = (scratch.0.join("root"), scratch.0.join("image"));
    fs::create_dir(&root).unwrap();
    fill(&root);
    let made = ["mke2fs", "/sbin/mke2fs", "/usr/sbin/mke2fs"].into_iter().find_map(|program| {
        let mut command = Command::new(program);
        command.args(["-q", "-t", "ext4", "-O", "^has_journal"]).args(options);
        command.arg("-d").arg(&root).arg(&file).arg("16M").output().ok()
    });
    let Some(made) = made else {
        println!("not tested: there is no mke2fs; it is in the package e2fsprogs");
        return None;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(fs::read(&file).unwrap())
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// One of each: short and long links, holes at all places, many extents, many names.
fn fill(root: &Path) {
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("small"), b"hello\n").unwrap();
    fs::write(root.join("large"), noise(1, 2_500_000)).unwrap();
    fs::hard_link(root.join("small"), root.join("again")).unwrap();
    fs::set_permissions(root.join("small"), fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("small", root.join("short")).unwrap();
    symlink("x/".repeat(100), root.join("long")).unwrap();
    let many = root.join("many");
    fs::create_dir_all(many.join("deep/er")).unwrap();
    for number in 0..400 {
        fs::write(many.join(format!("file number {number}")), number.to_string()).unwrap();
    }
    let holes = fs::File::create(root.join("many/deep/holes")).unwrap();
    for number in 0..800_u64 {
        holes.write_all_at(&noise(number, 1024), 4096 + number * 8192).unwrap();
    }
    holes.set_len(8192 * 801).unwrap();
}

/// Opens a volume, and compares everything in it with the other reader's results.
fn compare(bytes: &[u8], disk: Disk) -> usize {
    let witness = Ext4::load(std::boxed::Box::new(bytes.to_vec())).unwrap();
    let disk = Arc::new(disk);
    with_caller(|who| {
        let volume = loop {
            match Volume::open(who, disk.clone()) {
                Err(Refusal::Device(Errno::BLOCKED)) => {}
                other => break other.unwrap(),
            }
        };
        let root = patiently(|| volume.root(who)).unwrap();
        let files = compare_directory(who, &witness, &*root, "/");
        assert!(files > 400, "only {files} files");
    });
    disk.lacked.load(Ordering::Relaxed)
}

fn compare_directory(
    who: &Caller<'_>,
    witness: &Ext4,
    dir: &dyn crate::files::Directory,
    path: &str,
) -> usize {
    let mut names = Vec::new();
    patiently(|| {
        names.clear();
        dir.list(who, 0, &mut |_, name, inode, _| {
            names.push((String::from_utf8(name.to_vec()).unwrap(), inode));
            true
        })
    })
    .unwrap();
    names.sort();
    let theirs = witness.read_dir(path).unwrap().map(|entry| entry.unwrap());
    let mut theirs: Vec<String> =
        theirs.map(|entry| entry.file_name().as_str().unwrap().to_string()).collect();
    theirs.retain(|name| name != "." && name != "..");
    theirs.sort();
    assert_eq!(names.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), theirs, "{path}");
    let mut files = 0;
    for (name, inode) in names {
        let entry = patiently(|| dir.lookup(who, name.as_bytes())).unwrap();
        assert_eq!(entry.inode, inode);
        files += compare_entry(who, witness, entry, &format!("{path}{name}"));
    }
    files
}

fn compare_entry(who: &Caller<'_>, witness: &Ext4, entry: Entry, path: &str) -> usize {
    let about = witness.symlink_metadata(path).unwrap();
    let What::Stored { body, meta } = entry.what else { panic!("{path} is not on a disk") };
    assert_eq!((meta.mode, meta.uid, meta.gid), (about.mode().into(), about.uid(), about.gid()));
    match body {
        Body::Tree(tree) => {
            assert!(about.is_dir());
            compare_directory(who, witness, &*tree, &format!("{path}/"))
        }
        Body::Link(target) => {
            assert_eq!(target, witness.read_link(path).unwrap().as_ref());
            1
        }
        Body::Stored(file) => {
            assert_eq!(file.length(), about.len());
            let mut bytes = vec![0xee; about.len() as usize + 10];
            let count = patiently(|| file.read_at(who, 0, &mut bytes)).unwrap();
            assert_eq!(bytes[..count], witness.read(path).unwrap(), "{path}");
            1
        }
        _ => panic!("{path} is of no kind that was made"),
    }
}

#[test]
fn another_reader_finds_the_same_in_images_of_all_block_sizes() {
    for size in ["1024", "2048", "4096"] {
        let Some(bytes) = image(&["-b", size], fill) else { return };
        compare(&bytes, Disk::new(bytes.clone()));
    }
    // As Debian makes them, with 64-bit descriptors and checksums, and without.
    for options in [&["-O", "64bit,metadata_csum"][..], &["-O", "^64bit"]] {
        let Some(bytes) = image(options, fill) else { return };
        compare(&bytes, Disk::new(bytes.clone()));
    }
}

#[test]
fn a_call_that_lacks_a_block_is_made_again_with_the_same_result() {
    let Some(bytes) = image(&["-b", "1024"], fill) else { return };
    let lacked = compare(&bytes, Disk::slow(bytes.clone()));
    assert!(lacked > 500, "only {lacked} pages were lacking");
}

#[test]
fn holes_are_runs_without_a_place_and_runs_tile_the_file() {
    let Some(bytes) = image(&["-b", "4096"], fill) else { return };
    with_caller(|who| {
        let volume = Volume::open(who, Arc::new(Disk::new(bytes))).unwrap();
        let mut dir = volume.root(who).unwrap();
        for name in ["many", "deep"] {
            let What::Stored { body: Body::Tree(next), .. } =
                dir.lookup(who, name.as_bytes()).unwrap().what
            else {
                panic!("{name} is no directory")
            };
            dir = next;
        }
        let number = dir.lookup(who, b"holes").unwrap().inode;
        let inode = volume.inode(who, number as u32).unwrap();
        let run = |offset, most| volume.run(who, &inode, offset, most).unwrap();
        assert_eq!(run(0, 1 << 20), Run { at: None, bytes: 4096 });
        assert!(run(4096, 1 << 20).at.is_some());
        let (mut at, mut places) = (0, 0);
        while at < inode.length {
            let run = run(at, u64::MAX / 2);
            places += u64::from(run.at.is_some());
            at += run.bytes;
        }
        assert_eq!(places, 800);
        assert_eq!(run(1 << 40, 4096), Run { at: None, bytes: 4096 }, "beyond the end is a hole");
    });
}

#[test]
fn a_page_that_cannot_be_read_is_eio_for_its_file_and_no_other() {
    let Some(bytes) = image(&["-b", "4096"], fill) else { return };
    with_caller(|who| {
        let good = Volume::open(who, Arc::new(Disk::new(bytes.clone()))).unwrap();
        let number = good.root(who).unwrap().lookup(who, b"large").unwrap().inode as u32;
        let run = good.run(who, &good.inode(who, number).unwrap(), 1 << 20, 4096).unwrap();
        let bad = run.at.map(|at| at / PAGE);
        let volume = Volume::open(who, Arc::new(Disk { bad, ..Disk::new(bytes) })).unwrap();
        let root = volume.root(who).unwrap();
        let read = |name: &[u8], offset| {
            let What::Stored { body: Body::Stored(file), .. } =
                root.lookup(who, name).unwrap().what
            else {
                panic!("it is no file")
            };
            file.read_at(who, offset, &mut [0; 4096])
        };
        assert_eq!(read(b"large", 1 << 20), Err(Errno::EIO));
        assert_eq!(read(b"large", 0), Ok(4096));
        assert_eq!(read(b"small", 0), Ok(6));
    });
}

#[test]
fn an_unknown_feature_is_refused() {
    let Some(bytes) = image(&[], |_| {}) else { return };
    let open = |bytes: Vec<u8>| {
        with_caller(|who| Volume::open(who, Arc::new(Disk::new(bytes))).map(drop).unwrap_err())
    };
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[1024 + at] = value;
        changed
    };
    assert_eq!(open(Vec::new()), Refusal::NotExt4);
    assert_eq!(open(vec![0; 1 << 20]), Refusal::NotExt4);
    let features = bytes[1024 + 0x60];
    assert_eq!(open(with(0x60, features | 4)), Refusal::Features(4), "a journal to be replayed");
    assert_eq!(open(with(0x60, features & !2)), Refusal::Features(0), "no types in directories");
    assert_eq!(open(with(0x18, 6)), Refusal::Damaged, "blocks of 64 KiB");
    assert_eq!(open(with(0x59, 0)), Refusal::Damaged, "inodes of no bytes");
    assert!(format!("{}", Refusal::Features(4)).contains("0x4"));
}

/// A file in the root directory, and its inode.
fn file_of(who: &Caller<'_>, volume: &Arc<Volume>, name: &[u8]) -> (Arc<dyn Stored>, Inode) {
    let entry = patiently(|| volume.root(who)?.lookup(who, name)).unwrap();
    let inode = patiently(|| volume.inode(who, entry.inode as u32)).unwrap();
    match entry.what {
        What::Stored { body: Body::Stored(file), .. } => (file, inode),
        _ => panic!("it is no file"),
    }
}

#[test]
fn a_read_may_begin_and_end_within_blocks() {
    let Some(bytes) = image(&["-b", "1024"], fill) else { return };
    let whole = noise(1, 2_500_000);
    with_caller(|who| {
        let volume = Volume::open(who, Arc::new(Disk::new(bytes))).unwrap();
        let (file, inode) = file_of(who, &volume, b"large");
        for (offset, count) in [(1, 1), (1023, 2), (5000, 70_000), (2_499_990, 10)] {
            let mut into = vec![0; count];
            assert_eq!(file.read_at(who, offset as u64, &mut into), Ok(count));
            assert_eq!(into, whole[offset..offset + count], "{count} bytes at {offset}");
        }
        assert_eq!(file.read_at(who, 2_499_999, &mut [0; 9]), Ok(1));
        assert_eq!(file.read_at(who, 2_500_000, &mut [0; 9]), Ok(0));
        // A reserved extent has a place, and reads as zeroes nevertheless.
        let mut reserved = inode.clone();
        reserved.root[12 + 5] |= 0x80;
        let there = volume.run(who, &inode, 0, 1024).unwrap();
        let not = volume.run(who, &reserved, 0, 1024).unwrap();
        assert_eq!((there.at.is_some(), not), (true, Run { at: None, bytes: there.bytes }));
    });
}

#[test]
fn each_note_of_an_inode_is_read_from_its_place() {
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes[0x80..0x82].copy_from_slice(&32_u16.to_le_bytes());
    let inode = Inode::of(9, &bytes);
    let meta = inode.meta;
    assert_eq!((inode.number, inode.mode, meta.mode), (9, 0x0100, 0x0100));
    assert_eq!((meta.uid, meta.gid), (0x7978_0302, 0x7b7a_1918));
    assert_eq!((meta.links, inode.length), (0x1b1a, 0x6f6e_6d6c_0706_0504));
    assert_eq!(inode.blocks, 0x7574_1f1e_1d1c);
    // Two bits of the extra field are seconds, the rest nanoseconds.
    let time = |at: u32, extra: u32| Time {
        seconds: i64::from(at as i32) + (i64::from(extra & 3) << 32),
        nanos: (extra >> 2).min(999_999_999),
    };
    assert_eq!(meta.accessed, time(0x0b0a_0908, 0x8f8e_8d8c));
    assert_eq!(meta.modified, time(0x1312_1110, 0x8b8a_8988));
    assert_eq!(meta.changed, time(0x0f0e_0d0c, 0x8786_8584));
    assert_eq!(Inode::of(9, &bytes[..128]).meta.changed, time(0x0f0e_0d0c, 0));
}

#[test]
fn a_listing_goes_on_where_it_was_left() {
    let Some(bytes) = image(&["-b", "1024"], fill) else { return };
    with_caller(|who| {
        let volume = Volume::open(who, Arc::new(Disk::new(bytes))).unwrap();
        let entry = volume.root(who).unwrap().lookup(who, b"many").unwrap();
        let What::Stored { body: Body::Tree(dir), .. } = entry.what else { panic!("no directory") };
        let (mut names, mut from) = (BTreeSet::new(), 0);
        loop {
            let before = names.len();
            // Three at a time; the visitor refuses the fourth.
            dir.list(who, from, &mut |next, name, _, _| {
                if names.len() == before + 3 {
                    return false;
                }
                assert!(names.insert(name.to_vec()), "told twice");
                from = next;
                true
            })
            .unwrap();
            if names.len() == before {
                break;
            }
        }
        assert_eq!(names.len(), 401);
    });
}

#[test]
fn all_that_is_wanted_is_asked_for_at_once() {
    let Some(bytes) = image(&["-b", "4096"], fill) else { return };
    with_caller(|who| {
        let disk = Arc::new(Disk::slow(bytes));
        let volume = loop {
            if let Ok(volume) = Volume::open(who, disk.clone()) {
                break volume;
            }
        };
        let (file, _) = file_of(who, &volume, b"large");
        let before = disk.lacked.load(Ordering::Relaxed);
        assert_eq!(file.want(who, 10_000, 1 << 20), Err(Errno::BLOCKED));
        assert_eq!(disk.lacked.load(Ordering::Relaxed) - before, 257);
        assert_eq!(file.want(who, 10_000, 1 << 20), Ok(()));
        assert_eq!(file.want(who, 1 << 40, 1 << 20), Ok(()), "beyond the end is nothing");
    });
}

/// Reads all reachable entries, a few levels deep.
fn wander(who: &Caller<'_>, dir: &dyn crate::files::Directory, depth: u32) {
    let mut names = Vec::new();
    let _ = dir.list(who, 0, &mut |_, name, _, _| {
        names.push(name.to_vec());
        names.len() < 50
    });
    for name in names {
        let Ok(Entry { what: What::Stored { body, .. }, .. }) = dir.lookup(who, &name) else {
            continue;
        };
        match body {
            Body::Tree(tree) if depth > 0 => wander(who, &*tree, depth - 1),
            Body::Stored(file) => {
                for offset in [0, 5000, 1 << 20, file.length().saturating_sub(1)] {
                    let _ = file.read_at(who, offset, &mut [0; 5000]);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let Some(bytes) = image(&["-b", "1024"], fill) else { return };
    // The places of numbers: superblock, descriptors, tables of inodes, and blocks that look alike.
    let used: Vec<usize> = (1024..bytes.len()).filter(|&at| bytes[at] != 0).take(40_000).collect();
    for seed in 0..300 {
        let mut changed = bytes.clone();
        for pick in noise(seed, 24).chunks(3) {
            let at = (usize::from(pick[0]) << 8 | usize::from(pick[1])) % used.len();
            changed[used[at]] = pick[2];
        }
        with_caller(|who| {
            if let Ok(volume) = Volume::open(who, Arc::new(Disk::new(changed)))
                && let Ok(root) = volume.root(who)
            {
                wander(who, &*root, 3);
            }
        });
    }
}
