//! Inputs from programs, disks and boot loaders: bytes that no code has validated yet.

use std::ops::Range;
use std::process::Command;
use std::sync::Arc;

use quire::cache::FileSize;
use quire::fault::{Defrag, Enabled, SizePolicy};
use quire_linux::exec::{Machine, Plan, Read, SCRIPT_BYTES, Space, plan, script};
use quire_linux::ext4::{Blocks, Inode, Volume};
use quire_linux::files::Keys;
use quire_linux::files::{
    Body, Caller, Console, Devices, Directory, Kind, PIECE, Pages, Reserved, Screen, Stored, Time,
    Tree, What,
};
use quire_linux::text::{number, word};
use quire_linux::{Errno, Result, Wake};

#[path = "../../os/linux/src/files/tests/heap.rs"]
#[allow(dead_code)]
mod heap;

struct Idle;

impl Wake for Idle {
    fn wake(&self) {}
}

impl Screen for Idle {
    fn put(&self, _: &[u8]) {}
}

impl Keys for Idle {
    fn signal(&self, _: u32, _: u8) {}
}

fn with_caller<T>(act: impl FnOnce(&Caller<'_>) -> T) -> T {
    let wake: Arc<dyn Wake> = Arc::new(Idle);
    let may = &quire_linux::credentials::ROOT;
    act(&Caller { pid: 1, tid: 1, may, now: Time::default(), longest: u64::MAX, wake: &wake })
}

/// A file in memory.
struct Bytes<'a>(&'a [u8]);

impl Read for Bytes<'_> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// An executable file, as a program of either machine and as a script.
///
/// # Panics
/// When a plan breaks its documented promises.
pub fn elf(bytes: &[u8]) {
    for (machine, page_bytes) in [(Machine::X86_64, 4096), (Machine::Aarch64, 65536)] {
        let space = Space { page_bytes, user: 0x1_0000..1 << 47 };
        let Ok(mut plan) = plan(&Bytes(bytes), machine, &space) else { continue };
        check_plan(&plan, &space, bytes.len() as u64);
        for bias in [plan.usual_bias(&space), plan.loader_bias(&space)] {
            let mut placed = plan.clone();
            if placed.place(bias, &space).is_ok() {
                check_plan(&placed, &space, bytes.len() as u64);
            }
        }
        let before = plan.clone();
        if plan.place(!(page_bytes - 1), &space).is_err() {
            assert_eq!(plan, before, "a refusal changes nothing");
        }
    }
    if let Some(script) = script(bytes) {
        let line = 2 + script.interpreter.len() + script.argument.map_or(0, <[u8]>::len);
        assert!(!script.interpreter.is_empty() && line < SCRIPT_BYTES);
    }
}

/// Checks the promises in the documentation of a plan.
fn check_plan(plan: &Plan, space: &Space, file_bytes: u64) {
    let may_move = plan.alignment.is_some();
    let reach = if may_move { 0..space.user.end } else { space.user.clone() };
    let is_aligned = |at: u64| at.is_multiple_of(space.page_bytes);
    let mut end = 0;
    for segment in &plan.segments {
        let Range { start, end: stop } = segment.pages;
        assert!(is_aligned(start) && is_aligned(stop) && start < stop, "{segment:x?}");
        assert!(reach.start <= start && stop <= reach.end && end <= start, "{segment:x?}");
        assert!(start <= segment.file_start && segment.file_end() <= segment.zero_end);
        assert!(segment.zero_end <= stop, "{segment:x?}");
        if segment.file_bytes > 0 {
            assert!(is_aligned(segment.file_start.wrapping_sub(segment.file_offset)));
            let last = segment.file_offset.checked_add(segment.file_bytes);
            assert!(last.is_some_and(|last| last <= file_bytes), "{segment:x?}");
        }
        end = stop;
    }
    assert!(!plan.segments.is_empty() && plan.brk >= end && is_aligned(plan.brk));
    assert!(plan.loader.as_ref().is_none_or(|path| !path.contains(&0)));
}

/// A program with two segments and a loader, one for each machine, and a script.
pub fn executables() -> Vec<Vec<u8>> {
    // Kind, flags, offset, address, bytes in the file and in memory.
    let headers: [[u64; 6]; 4] = [
        [1, 5, 0, 0x40_0000, 0x1800, 0x1800],
        [1, 6, 0x1800, 0x42_2800, 0x200, 0x2000],
        [3, 4, 0x1900, 0x42_2900, 11, 11],
        [0x6474_e551, 6, 0, 0, 0, 0],
    ];
    let program = |kind: u16, machine: u16| {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend([kind.to_le_bytes(), machine.to_le_bytes(), [1, 0], [0, 0]].concat());
        bytes.extend([0x40_0100_u64, 64, 0].map(u64::to_le_bytes).concat());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend([64, 56, headers.len() as u16, 64, 0, 0].map(u16::to_le_bytes).concat());
        for [kind, flags, offset, address, in_file, in_memory] in headers {
            bytes.extend([kind as u32, flags as u32].map(u32::to_le_bytes).concat());
            let words = [offset, address, address, in_file, in_memory, 0x1000];
            bytes.extend(words.map(u64::to_le_bytes).concat());
        }
        bytes.resize(0x1a00, 0);
        bytes[0x1900..0x190b].copy_from_slice(b"/lib/ld.so\0");
        bytes
    };
    vec![program(2, 62), program(3, 62), program(3, 183), b"#! /bin/sh -e x\n".to_vec()]
}

/// An initramfs.
///
/// # Panics
/// When the tree is damaged.
pub fn cpio(bytes: &[u8]) {
    let console = Arc::new(Console::new(Arc::new(Idle), Arc::new(Idle)));
    let devices = Devices { console, random: |bytes| bytes.fill(7) };
    let tree = Tree::new(devices, heap::make, Time::default());
    let unpacked = with_caller(|caller| tree.unpack(caller, bytes));
    // A header has 110 bytes; the reader does not check that a name has at least its zero byte.
    assert!(unpacked.entries + unpacked.refused <= bytes.len() / 110);
}

/// A small archive.
pub fn archives() -> Vec<Vec<u8>> {
    let entry = |name: &str, mode: u32, links: u32, file: &[u8]| {
        let length = file.len() as u32;
        let name_bytes = name.len() as u32 + 1;
        let words = [7, mode, 3, 4, links, 77, length, 0, 0, 1, 3, name_bytes, 0];
        let mut bytes = b"070701".to_vec();
        words.iter().for_each(|word| bytes.extend(format!("{word:08x}").bytes()));
        bytes.extend(name.bytes().chain([0]));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(file);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let archive = [
        entry(".", 0o40755, 2, b""),
        entry("bin/sh", 0o100_755, 1, b"#!shell"),
        entry("bin", 0o120_777, 1, b"bin/sh"),
        entry("one", 0o100_644, 2, b""),
        entry("./../two", 0o100_644, 2, b"linked"),
        entry("null", 0o20_600, 1, b""),
        entry("TRAILER!!!", 0, 1, b""),
    ];
    vec![archive.concat()]
}

/// Texts that programs write to settings of `/sys` and `/proc`.
///
/// # Panics
/// When a text is read as another value.
pub fn words(bytes: &[u8]) {
    if let Ok(number) = number(bytes) {
        let text = word(bytes).expect("a number is text");
        let digits = text.strip_prefix('+').unwrap_or(text).trim_start_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        assert_eq!(number.to_string(), digits);
    }
    let Ok(text) = word(bytes) else { return };
    let is_word = |found: Option<&str>| {
        let plain = text.strip_suffix('\n').unwrap_or(text);
        assert!(found.is_none_or(|found| found == plain), "{text:?} was taken for {found:?}");
    };
    is_word(text.parse::<Enabled>().ok().map(Enabled::word));
    is_word(text.parse::<Defrag>().ok().map(Defrag::word));
    is_word(text.parse::<SizePolicy>().ok().map(SizePolicy::word));
    is_word(text.parse::<FileSize>().ok().map(FileSize::word));
}

/// Words and numbers as users write them.
pub fn settings() -> Vec<Vec<u8>> {
    let names = Enabled::ALL.iter().map(|choice| choice.word());
    let names = names.chain(Defrag::ALL.iter().map(|choice| choice.word()));
    let names = names.chain(SizePolicy::ALL.iter().map(|choice| choice.word()));
    let names = names.chain(FileSize::ALL.iter().map(|choice| choice.word()));
    let names = names.chain(["0\n", "+18446744073709551615", "18446744073709551616\n", "007"]);
    names.map(|name| name.as_bytes().to_vec()).collect()
}

/// A disk in memory.
struct Disk(Vec<u8>);

impl Blocks for Disk {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn want(&self, _: &Caller<'_>, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: &Caller<'_>, at: u64, into: &mut [u8]) -> Result<()> {
        let at = usize::try_from(at).map_err(|_| Errno::EIO)?;
        let end = at.checked_add(into.len()).ok_or(Errno::EIO)?;
        into.copy_from_slice(self.0.get(at..end).ok_or(Errno::EIO)?);
        Ok(())
    }
}

/// How many entries of a directory the walk visits, and how deep.
const ENTRIES: usize = 32;
const DEPTH: u32 = 4;

/// A file system that claims to be ext4: its names, and bytes of its files.
///
/// # Panics
/// When reading it panics.
pub fn ext4(bytes: &[u8]) {
    with_caller(|caller| {
        let Ok(volume) = Volume::open(caller, Arc::new(Disk(bytes.to_vec()))) else { return };
        for number in [1, 2, 11, u32::MAX] {
            if let Ok(inode) = volume.inode(caller, number) {
                runs(caller, &volume, &inode);
            }
        }
        if let Ok(root) = volume.root(caller) {
            walk(caller, &*root, DEPTH);
        }
    });
}

fn runs(caller: &Caller<'_>, volume: &Arc<Volume>, inode: &Inode) {
    for offset in [0, 4095, 1 << 20, 1 << 40, u64::MAX - 1] {
        if let Ok(run) = volume.run(caller, inode, offset, 1 << 20) {
            assert!(run.bytes > 0, "a run has at least what was asked for");
        }
    }
}

fn walk(caller: &Caller<'_>, directory: &dyn Directory, depth: u32) {
    let mut names = Vec::new();
    let mut tell = |_: u64, name: &[u8], _: u64, _: Kind| {
        names.push(name.to_vec());
        names.len() < ENTRIES
    };
    let _ = directory.list(caller, 0, &mut tell);
    for name in names {
        match directory.lookup(caller, &name).map(|entry| entry.what) {
            Ok(What::Directory(lower)) if depth > 0 => walk(caller, &*lower, depth - 1),
            Ok(What::Stored { body: Body::Stored(file), .. }) => read(caller, &*file),
            _ => {}
        }
    }
}

fn read(caller: &Caller<'_>, file: &dyn Stored) {
    let mut into = [0; 512];
    for offset in [0, 511, file.length().saturating_sub(1), u64::MAX - 600] {
        if let Ok(count) = file.read_at(caller, offset, &mut into) {
            assert!(count <= into.len() && count as u64 <= file.length());
        }
    }
}

/// An image made by `mke2fs`; none where that is missing.
pub fn volumes() -> Vec<Vec<u8>> {
    let file = std::env::temp_dir().join(format!("quire-fuzz-{}.ext4", std::process::id()));
    let made = ["mke2fs", "/sbin/mke2fs", "/usr/sbin/mke2fs"].into_iter().find_map(|program| {
        let mut command = Command::new(program);
        command.args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-b", "1024", "-N", "32"]);
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        command.arg("-d").arg(text).arg(&file).arg("256K").output().ok()
    });
    let image = made.filter(|made| made.status.success()).and_then(|_| std::fs::read(&file).ok());
    let _ = std::fs::remove_file(&file);
    image.into_iter().collect()
}
