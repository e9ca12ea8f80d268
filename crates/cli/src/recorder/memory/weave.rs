//! From the kernel's events to a tape: which space each thread is in, and what each call did.

use std::collections::HashMap;
use std::mem;

use super::seen::{Call, Seen, What};
use crate::tape::{Access, Advice, Area, Backing, Event, Rights, Span, Writer};
use crate::watch::{Line, Snapshot};

/// Flags of `clone`.
const SAME_SPACE: u64 = 1 << 8;
/// Flags of `mmap`.
const SHARED: u64 = 1;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;
const GROWS_DOWN: u64 = 0x100;
const LOCKED: u64 = 0x2000;
const POPULATE: u64 = 0x8000;
const STACK: u64 = 0x2_0000;
const POOL: u64 = 0x4_0000;
/// A flag of `mremap`.
const KEEP: u64 = 4;
/// Nanoseconds between two notes of the time.
const TICK: u64 = 100_000_000;

/// Brings events into the form of a tape.
pub(super) struct Weave {
    pub(super) writer: Writer,
    page: u64,
    /// The meaning of the machine's error codes.
    access: fn(u64) -> Access,
    threads: HashMap<u32, Thread>,
    /// The last space of each thread that has ended.
    ended: HashMap<u32, u32>,
    spaces: Vec<Space>,
    /// Bytes of files and of shared memory, by the kernel's number of a space.
    held: HashMap<u64, [i64; 2]>,
    /// The space that the tape is at.
    current: Option<u32>,
    time: Option<u64>,
    files: Vec<File>,
}

#[derive(Default)]
struct Thread {
    /// `None` before the program's first exec.
    space: Option<u32>,
    call: Option<Call>,
    /// During an exec, what happens to the memory that it makes.
    exec: Option<Vec<Event>>,
    /// The last space of another process that it changed: a copy that it makes.
    other: Option<u64>,
}

#[derive(Default)]
struct Space {
    threads: u32,
    brk: Option<u64>,
    /// Mapped files with the calls' numbers for them, and which of ours they are.
    mapped: Vec<(Span, u64, u32)>,
}

/// A file that a call mapped, and where; its name, once that is known.
struct File {
    space: u32,
    span: Span,
    name: Option<String>,
}

impl Weave {
    /// For pages of `page` bytes and the error codes of this machine.
    pub(super) fn new(page: u64, access: fn(u64) -> Access) -> Weave {
        Weave {
            writer: Writer::default(),
            page,
            access,
            threads: HashMap::new(),
            ended: HashMap::new(),
            spaces: Vec::new(),
            held: HashMap::new(),
            current: None,
            time: None,
            files: Vec::new(),
        }
    }

    /// The thread that will execute the program.
    pub(super) fn root(&mut self, thread: u32) {
        self.threads.insert(thread, Thread::default());
    }

    /// A process that was there before, with these threads.
    pub(super) fn found(&mut self, snapshot: &Snapshot, threads: &[u32]) {
        let space = self.new_space(threads.len() as u32);
        for thread in threads {
            self.threads.insert(*thread, Thread { space: Some(space), ..Thread::default() });
        }
        self.at(space);
        let areas = self.areas(snapshot, space);
        areas.into_iter().for_each(|area| self.writer.push(Event::Map(area)));
    }

    /// How many address spaces there were.
    pub(super) fn processes(&self) -> u64 {
        self.spaces.len() as u64
    }

    /// The names of files, in the order of their numbers.
    pub(super) fn files(&self) -> Vec<String> {
        let name = |file: &File| file.name.clone().unwrap_or_else(|| "?".to_owned());
        self.files.iter().map(name).collect()
    }

    /// Names files by the areas that a process has, or had at its end. All events until then have
    /// been added, perhaps its end, too.
    pub(super) fn name(&mut self, thread: u32, areas: &[Line]) {
        let lives = self.threads.get(&thread).and_then(|thread| thread.space);
        let Some(space) = lives.or_else(|| self.ended.get(&thread).copied()) else { return };
        let unnamed = self.files.iter_mut().filter(|file| file.space == space);
        for file in unnamed.filter(|file| file.name.is_none()) {
            let start = file.span.start * self.page;
            let end = file.span.end * self.page;
            let line = areas.iter().find(|line| line.start < end && start < line.end);
            file.name = line.filter(|line| line.inode != 0).map(|line| short(&line.name));
        }
    }

    /// One event. For an exec, `snapshot` gives the areas of that thread's new memory.
    pub(super) fn add(&mut self, seen: Seen, snapshot: impl FnOnce(u32) -> Option<Snapshot>) {
        let Seen { time, thread, what } = seen;
        if !self.threads.contains_key(&thread) {
            return;
        }
        match what {
            What::Fault { address, code } => self.fault(thread, address, code),
            What::Enter(call) => self.enter(thread, call),
            What::Leave(result) => self.leave(thread, result),
            What::Born { thread: child, flags } => self.born(thread, child, flags),
            What::Prepare => {
                self.abandon(thread);
                self.thread(thread, |it| it.exec = Some(Vec::new()));
            }
            What::Exec { before } => self.exec(thread, before, snapshot(thread)),
            What::End => {
                let space = self.threads.remove(&thread).and_then(|thread| thread.space);
                self.ended.extend(space.map(|space| (thread, space)));
                space.into_iter().for_each(|space| self.leave_space(space));
            }
            What::Held { space, own, kind, bytes } => self.hold(thread, space, own, kind, bytes),
        }
        self.pass(time);
    }

    fn thread(&mut self, thread: u32, change: impl FnOnce(&mut Thread)) {
        if let Some(it) = self.threads.get_mut(&thread) {
            change(it);
        }
    }

    /// Notes the time now and then.
    fn pass(&mut self, time: u64) {
        let since = time.saturating_sub(*self.time.get_or_insert(time));
        if since >= TICK && self.current.is_some() {
            self.writer.push(Event::Time(since / 1_000_000));
            self.time = Some(time);
        }
    }

    /// From here on the tape is about `space`.
    fn at(&mut self, space: u32) {
        if self.current != Some(space) {
            self.writer.push(Event::Space(space));
            self.current = Some(space);
        }
    }

    /// Something happens to the memory of a thread, or to what its exec makes.
    pub(super) fn push(&mut self, thread: u32, event: Event) {
        let Some(it) = self.threads.get_mut(&thread) else { return };
        if let Some(exec) = &mut it.exec {
            exec.push(event);
        } else if let Some(space) = it.space {
            self.at(space);
            self.writer.push(event);
        }
    }

    fn fault(&mut self, thread: u32, address: u64, code: u64) {
        // The upper half belongs to the kernel.
        if (address as i64) < 0 {
            return;
        }
        let access = (self.access)(code);
        self.push(thread, Event::Touch { page: address / self.page, access });
    }

    fn enter(&mut self, thread: u32, call: Call) {
        // Where the kernel does not tell when the old memory is left, it is when the call begins.
        self.thread(thread, |it| {
            it.call = Some(call);
            if call == Call::Exec {
                it.exec = Some(Vec::new());
            }
        });
    }

    /// A call has ended: from now on its result counts.
    fn leave(&mut self, thread: u32, result: i64) {
        let Some(it) = self.threads.get_mut(&thread) else { return };
        let Some(call) = it.call.take() else { return };
        let failed = (-4095..0).contains(&result);
        if call == Call::Exec && failed {
            self.abandon(thread);
        }
        if failed || it_has_no_space(self.threads.get(&thread)) {
            return;
        }
        let result = result as u64;
        match call {
            Call::Map { length, rights, flags, file, offset } => {
                self.map(thread, (result, length), rights, flags, (file, offset));
            }
            Call::Unmap { start, length } => {
                self.push(thread, Event::Unmap(self.span(start, length)));
            }
            Call::Brk { end } => self.brk(thread, end, result),
            Call::Move { start, length, wanted, flags } => {
                let (from, to) = (self.span(start, length), self.span(result, wanted));
                self.push(thread, Event::Move { from, to, keep: flags & KEEP != 0 });
            }
            Call::Protect { start, length, rights } => {
                let span = self.span(start, length);
                self.push(thread, Event::Protect(span, Rights::of_bits(rights)));
            }
            Call::Advise { start, length, advice } => {
                if let Some(advice) = advice_of(advice) {
                    self.push(thread, Event::Advise(self.span(start, length), advice));
                }
            }
            Call::Exec => {}
        }
    }

    /// The events that were taken for an exec's were still of the old memory.
    fn abandon(&mut self, thread: u32) {
        let events = self.threads.get_mut(&thread).and_then(|it| it.exec.take());
        events.into_iter().flatten().for_each(|event| self.push(thread, event));
    }

    /// The pages of `length` bytes from `start` on.
    fn span(&self, start: u64, length: u64) -> Span {
        Span::of(start / self.page, length.div_ceil(self.page))
    }

    fn map(
        &mut self,
        thread: u32,
        (start, length): (u64, u64),
        rights: u64,
        flags: u64,
        (number, offset): (u64, u64),
    ) {
        let span = self.span(start, length);
        let shared = flags & 3 & SHARED != 0;
        let backing = if flags & POOL != 0 {
            Backing::Other
        } else if flags & ANONYMOUS == 0 {
            let file = self.file(thread, span, number, flags & FIXED != 0);
            Backing::File { file, first: offset / self.page }
        } else if shared {
            Backing::Shared
        } else {
            Backing::Anon
        };
        let area = Area {
            rights: Rights::of_bits(rights),
            backing,
            shared,
            grows: flags & GROWS_DOWN != 0,
            populate: flags & (POPULATE | LOCKED) != 0,
            // Linux gives no large folios to what a program calls a stack (since 6.7).
            huge: (flags & STACK != 0).then_some(false),
            ..Area::anon(span)
        };
        self.push(thread, Event::Map(area));
    }

    /// The file that a call maps: the one that it replaces a part of, or a new one.
    fn file(&mut self, thread: u32, span: Span, number: u64, fixed: bool) -> u32 {
        let Some(space) = self.threads.get(&thread).and_then(|it| it.space) else { return 0 };
        let mapped = &mut self.spaces[space as usize].mapped;
        let inside = |(known, other, _): &&(Span, u64, u32)| known.covers(span) && *other == number;
        if let Some((_, _, file)) = mapped.iter().rev().find(inside).filter(|_| fixed) {
            return *file;
        }
        let file = self.files.len() as u32;
        mapped.push((span, number, file));
        self.files.push(File { space, span, name: None });
        file
    }

    fn brk(&mut self, thread: u32, wanted: u64, end: u64) {
        let Some(space) = self.threads.get(&thread).and_then(|it| it.space) else { return };
        let before = self.spaces[space as usize].brk.replace(end);
        let Some(before) = before.filter(|_| wanted == end) else { return };
        let [from, to] = [before, end].map(|at| at.div_ceil(self.page));
        if to > from {
            let area = Area::anon(Span { start: from, end: to });
            self.push(thread, Event::Map(area));
        } else if to < from {
            self.push(thread, Event::Unmap(Span { start: to, end: from }));
        }
    }

    fn born(&mut self, thread: u32, child: u32, flags: u64) {
        let Some(it) = self.threads.get_mut(&thread) else { return };
        let (parent, other) = (it.space, it.other.take());
        let mut space = parent;
        if let Some(parent) = parent {
            if flags & SAME_SPACE != 0 {
                self.spaces[parent as usize].threads += 1;
            } else {
                let brk = self.spaces[parent as usize].brk;
                let copy = self.new_space(1);
                self.spaces[copy as usize].brk = brk;
                let mapped = self.spaces[parent as usize].mapped.clone();
                self.spaces[copy as usize].mapped = mapped;
                self.at(parent);
                self.writer.push(Event::Fork(copy));
                let held = other.and_then(|other| self.held.get(&other));
                let held: i64 = held.into_iter().flatten().sum();
                self.at(copy);
                self.writer.push(Event::Held(held / self.page as i64));
                space = Some(copy);
            }
        }
        self.threads.insert(child, Thread { space, ..Thread::default() });
    }

    fn exec(&mut self, thread: u32, before: u32, snapshot: Option<Snapshot>) {
        // The thread that executes takes the number of the first thread.
        let mut it = self.threads.remove(&before).unwrap_or_default();
        if let Some(other) = self.threads.remove(&thread) {
            other.space.into_iter().for_each(|space| self.leave_space(space));
        }
        it.space.into_iter().for_each(|space| self.leave_space(space));
        let space = self.new_space(1);
        self.at(space);
        if let Some(snapshot) = snapshot {
            let areas = self.areas(&snapshot, space);
            areas.into_iter().for_each(|area| self.writer.push(Event::Map(area)));
        }
        let events = it.exec.take().unwrap_or_default();
        events.into_iter().for_each(|event| self.writer.push(event));
        self.threads.insert(thread, Thread { space: Some(space), ..Thread::default() });
    }

    /// The areas of a process, by what the kernel prints of them.
    fn areas(&mut self, snapshot: &Snapshot, space: u32) -> Vec<Area> {
        let mut all: Vec<Area> = Vec::new();
        let mut files: HashMap<u64, u32> = HashMap::new();
        for line in &snapshot.areas {
            let span = Span { start: line.start / self.page, end: line.end / self.page };
            let [read, write, fetch] = line.rights;
            let backing = match line.name.as_str() {
                "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]" => Backing::Other,
                _ if line.inode != 0 => {
                    let file = *files.entry(line.inode).or_insert(self.files.len() as u32);
                    if file as usize == self.files.len() {
                        self.files.push(File { space, span, name: Some(short(&line.name)) });
                    }
                    Backing::File { file, first: line.offset / self.page }
                }
                _ if line.shared => Backing::Shared,
                _ => Backing::Anon,
            };
            let area = Area {
                rights: Rights { read, write, fetch },
                backing,
                shared: line.shared,
                grows: line.name == "[stack]",
                ..Area::anon(span)
            };
            all.push(area);
            if line.name == "[heap]" {
                self.spaces[space as usize].brk = Some(line.end);
            }
        }
        all
    }

    fn new_space(&mut self, threads: u32) -> u32 {
        self.spaces.push(Space { threads, ..Space::default() });
        self.spaces.len() as u32 - 1
    }

    /// One thread fewer is in the space; with the last, it ends.
    fn leave_space(&mut self, space: u32) {
        let it = &mut self.spaces[space as usize];
        it.threads = it.threads.saturating_sub(1);
        if it.threads == 0 {
            self.at(space);
            self.writer.push(Event::Exit);
            self.current = None;
        }
    }

    fn hold(&mut self, thread: u32, space: u64, own: bool, kind: u64, bytes: i64) {
        let known = self.held.entry(space).or_default();
        let place = &mut known[usize::from(kind != 0)];
        let more = bytes - mem::replace(place, bytes);
        if !own {
            self.thread(thread, |it| it.other = Some(space));
        } else if more != 0 {
            self.push(thread, Event::Held(more / self.page as i64));
        }
    }
}

fn it_has_no_space(thread: Option<&Thread>) -> bool {
    thread.is_none_or(|thread| thread.space.is_none() && thread.exec.is_none())
}

/// A file's name without its folders.
fn short(path: &str) -> String {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Advice that changes which pages there are, or how large folios may be.
fn advice_of(number: u64) -> Option<Advice> {
    Some(match number {
        4 | 24 => Advice::Forget,
        10 => Advice::Alone(true),
        11 => Advice::Alone(false),
        14 => Advice::Huge,
        15 => Advice::NoHuge,
        23 => Advice::Populate,
        25 => Advice::Collapse,
        _ => return None,
    })
}
