//! A small world for tests: a tree with /dev and /proc, a process, and a terminal one can look at.

use std::string::String;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

use linux_raw_sys::general as raw;

use super::*;
use crate::credentials::ROOT;
use crate::{Errno, Result, Wake};

mod bytes;
mod console;
mod cpio;
mod generated;
mod heap;
mod memfd;
mod meta;
mod model;
mod names;
mod pipe;
mod reserved;
mod stored;
mod table;

/// Counts how often it was woken.
#[derive(Default)]
pub(crate) struct Sleeper(pub(crate) AtomicUsize);

impl Wake for Sleeper {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps the screen's bytes, and the signals of keys.
#[derive(Default)]
struct Desk {
    shown: Mutex<Vec<u8>>,
    signals: Mutex<Vec<(u32, u8)>>,
}

impl Screen for Desk {
    fn put(&self, bytes: &[u8]) {
        self.shown.lock().unwrap().extend_from_slice(bytes);
    }
}

impl Keys for Desk {
    fn signal(&self, group: u32, number: u8) {
        self.signals.lock().unwrap().push((group, number));
    }
}

impl Desk {
    fn take_shown(&self) -> String {
        String::from_utf8(core::mem::take(&mut *self.shown.lock().unwrap())).unwrap()
    }
}

pub(crate) struct World {
    tree: Tree,
    pub(crate) table: Table,
    here: Here,
    desk: Arc<Desk>,
    console: Arc<Console>,
    pub(crate) sleeper: Arc<Sleeper>,
    wake: Arc<dyn Wake>,
}

const NOW: Time = Time { seconds: 1000, nanos: 5 };

impl World {
    pub(crate) fn new() -> Self {
        let desk = Arc::new(Desk::default());
        let console = Arc::new(Console::new(desk.clone(), desk.clone()));
        let devices = Devices { console: console.clone(), random: |bytes| bytes.fill(7) };
        let tree = Tree::new(devices, heap::make, NOW);
        let here = Here::new(tree.root().clone());
        let sleeper = Arc::new(Sleeper::default());
        let wake: Arc<dyn Wake> = sleeper.clone();
        let world = Self { tree, table: Table::new(), here, desk, console, sleeper, wake };
        world.tree.fill_dev(&world.who()).unwrap();
        world
    }

    pub(crate) fn who(&self) -> Caller<'_> {
        Caller { pid: 10, tid: 11, may: &ROOT, now: NOW, longest: u64::MAX, wake: &self.wake }
    }

    /// Makes system calls as the process.
    pub(crate) fn run<T>(&self, act: impl FnOnce(&Calls<'_>) -> T) -> T {
        let who = self.who();
        act(&Calls { tree: &self.tree, table: &self.table, here: &self.here, who: &who })
    }

    pub(crate) fn open(&self, path: &str, flags: u32) -> Outcome<u32> {
        self.run(|calls| calls.openat(raw::AT_FDCWD, path.as_bytes(), flags, 0o666))
    }

    fn write_file(&self, path: &str, text: &str) {
        let fd = self.open(path, raw::O_WRONLY | raw::O_CREAT | raw::O_TRUNC).unwrap();
        assert_eq!(self.write(fd, text), Ok(text.len()));
        self.run(|calls| calls.close(fd)).unwrap();
    }

    fn read_file(&self, path: &str) -> Outcome<String> {
        let fd = self.open(path, raw::O_RDONLY)?;
        let text = self.read(fd, 1 << 20);
        self.run(|calls| calls.close(fd))?;
        text
    }

    pub(crate) fn read(&self, fd: u32, count: usize) -> Outcome<String> {
        let mut bytes = Vec::new();
        let length = self.run(|calls| calls.read(fd, count, &mut bytes))?;
        assert_eq!(length, bytes.len());
        Ok(String::from_utf8(bytes).unwrap())
    }

    pub(crate) fn write(&self, fd: u32, text: &str) -> Outcome<usize> {
        self.run(|calls| calls.write(fd, &mut text.as_bytes()))
    }

    pub(crate) fn mkdir(&self, path: &str) -> Result<()> {
        self.run(|calls| calls.mkdirat(raw::AT_FDCWD, path.as_bytes(), 0o777))
    }

    pub(crate) fn unlink(&self, path: &str) -> Result<()> {
        self.run(|calls| calls.unlinkat(raw::AT_FDCWD, path.as_bytes(), 0))
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        self.run(|calls| calls.unlinkat(raw::AT_FDCWD, path.as_bytes(), raw::AT_REMOVEDIR))
    }

    fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.run(|calls| calls.symlinkat(target.as_bytes(), raw::AT_FDCWD, path.as_bytes()))
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Result<()> {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        self.run(|calls| calls.renameat2(raw::AT_FDCWD, from, raw::AT_FDCWD, to, flags))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        self.run(|calls| calls.linkat(raw::AT_FDCWD, from, raw::AT_FDCWD, to, 0))
    }

    fn about(&self, path: &str) -> Result<About> {
        let spot = self.tree.walk(&self.who(), self.tree.root(), path.as_bytes(), false)?;
        Ok(About::of(spot.existing()?))
    }

    /// The names in a directory, sorted, and without the two dots; `room` bytes at a time.
    fn list(&self, path: &str, room: usize) -> Result<Vec<String>> {
        let fd = self.open(path, raw::O_RDONLY | raw::O_DIRECTORY).map_err(errno)?;
        let mut names = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let length = self.run(|calls| calls.getdents64(fd, room, &mut bytes))?;
            if length == 0 {
                break;
            }
            names.extend(names_of(&bytes));
        }
        self.run(|calls| calls.close(fd))?;
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }
}

/// The names in records of `getdents64`.
fn names_of(mut bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(u16::from_ne_bytes([bytes[16], bytes[17]]));
        let (record, rest) = bytes.split_at(length);
        let name = record[19..].split(|&byte| byte == 0).next().unwrap();
        names.push(String::from_utf8(name.to_vec()).unwrap());
        bytes = rest;
    }
    names
}

fn errno(halt: Halt) -> Errno {
    match halt {
        Halt::Failed(errno) => errno,
        Halt::Blocked => panic!("blocked"),
    }
}

pub(crate) fn failed<T>(errno: Errno) -> Outcome<T> {
    Err(Halt::Failed(errno))
}

/// Memory that ends after some bytes.
struct Short {
    bytes: Vec<u8>,
    room: usize,
}

impl Sink for Short {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.bytes.len() + bytes.len() > self.room {
            return Err(Errno::EFAULT);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Memory of `claimed` bytes that faults after those it has.
struct Broken<'a> {
    bytes: &'a [u8],
    claimed: usize,
}

impl Source for Broken<'_> {
    fn take(&mut self, into: &mut [u8]) -> Result<usize> {
        let count = self.bytes.take(into)?;
        if count == 0 {
            return Err(Errno::EFAULT);
        }
        self.claimed -= count;
        Ok(count)
    }

    fn left(&self) -> usize {
        self.claimed
    }
}
