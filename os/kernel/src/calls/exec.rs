//! `execve`: a new program in place of the old.
//!
//! The new memory is made beside the old one, filled while this CPU is in it, and takes its place
//! only when nothing can fail any more: a call that fails returns to a program that has lost
//! nothing.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire_linux::exec::{self, Machine, Plan, SCRIPT_BYTES};
use quire_linux::files::{Caller, Description, Node, PATH_MAX, Text};
use quire_linux::{Errno, Result};

use super::load::{self, Image, Ready, Wanted};
use crate::memory::{self, user};
use crate::task::{Answer, Stop, Thread, cgroup, tree};

/// The deepest chain of scripts as interpreters.
const SCRIPTS_MAX: usize = 4;
/// Bytes of all arguments and environment, and how many strings there may be.
const STRINGS_MAX: usize = 2 << 20;

const MACHINE: Machine = if cfg!(target_arch = "x86_64") {
    Machine::X86_64
} else if cfg!(target_arch = "aarch64") {
    Machine::Aarch64
} else {
    Machine::Riscv64
};

pub(super) fn execve(thread: &mut Thread, [path, args, envs, ..]: [usize; 6]) -> Answer {
    execveat(thread, [abi::AT_FDCWD as usize, path, args, envs, 0, 0])
}

pub(super) fn execveat(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [dir, path, args, envs, flags, _] = args;
    memory::admit()?;
    if !is_alone(thread)? {
        return Err(Stop::Wait(None));
    }
    if flags & !(abi::AT_EMPTY_PATH | abi::AT_SYMLINK_NOFOLLOW) as usize != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut path = user::string(path as u64, PATH_MAX)?;
    if path.is_empty() && flags & abi::AT_EMPTY_PATH as usize != 0 {
        path = path_of(thread, dir as i32)?;
    }
    let mut room = STRINGS_MAX;
    let args = strings(args as u64, &mut room)?;
    let envs = strings(envs as u64, &mut room)?;
    run(thread, dir as i32, Wanted { path, args, envs })?;
    Err(Stop::Same)
}

/// The path that leads to what is open as `fd`, whatever its name.
///
/// # Errors
/// `EACCES` for the working directory, `EBADF`, `ENOMEM`.
fn path_of(thread: &Thread, fd: i32) -> Result<Vec<u8>> {
    if fd == abi::AT_FDCWD {
        return Err(Errno::EACCES);
    }
    tree::with_calls(thread, |calls| calls.open_file(fd as u32).map(drop))?;
    let mut text = Text::new();
    text.print(format_args!("/dev/fd/{fd}"))?;
    let mut path = Vec::new();
    path.try_reserve_exact(text.bytes().len()).map_err(|_| Errno::ENOMEM)?;
    path.extend_from_slice(text.bytes());
    Ok(path)
}

/// Whether the process has no other thread. Else it asks the others to end, and the last of them
/// wakes this one.
fn is_alone(thread: &Thread) -> Result<bool> {
    let threads = thread.process().threads.lock();
    let others = || threads.iter().filter(|task| task.tid != thread.task.tid);
    for task in others() {
        task.doomed.store(true, Ordering::Release);
        task.summon();
    }
    let alone = others().next().is_none();
    Ok(alone)
}

/// An array of strings that ends with a null pointer.
fn strings(address: u64, room: &mut usize) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    if address == 0 {
        return Ok(all);
    }
    loop {
        let at = address.checked_add(8 * all.len() as u64).ok_or(Errno::EFAULT)?;
        let pointer: u64 = user::read(at)?;
        if pointer == 0 {
            return Ok(all);
        }
        let most = exec::stack::STRING_BYTES_MAX.min(*room);
        let text = user::string(pointer, most).map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::E2BIG,
            other => other,
        })?;
        *room = room.checked_sub(text.len() + 9).ok_or(Errno::E2BIG)?;
        all.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        all.push(text);
    }
}

/// Runs a program in place of the thread's present one, from a path within `dir`.
///
/// # Errors
/// The reason it cannot be run; the thread goes on as it was.
fn run(thread: &mut Thread, dir: i32, mut wanted: Wanted) -> Result<()> {
    let named = wanted.path.clone();
    let (file, plan) = find(thread, dir, &mut wanted)?;
    let loader = plan.loader.as_deref().map(|path| find_loader(thread, path)).transpose()?;
    let path = file.path()?;
    let program = Image { file: file.clone(), plan };
    let mut ready = load::prepare(thread, program, loader, &wanted)?;
    (ready.program.path, ready.program.file) = (path, Some(file));
    commit(thread, ready, named);
    Ok(())
}

/// Runs the first program: the thread has nothing yet.
///
/// # Errors
/// As for `execve`.
pub(crate) fn first(
    thread: &mut Thread,
    path: &[u8],
    args: &[&[u8]],
    envs: &[&[u8]],
) -> Result<()> {
    let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
    let wanted = Wanted { path: path.to_vec(), args: owned(args), envs: owned(envs) };
    run(thread, abi::AT_FDCWD, wanted)
}

/// The file of a path, and the plan for it; scripts are followed to their interpreters.
fn find(thread: &Thread, mut dir: i32, wanted: &mut Wanted) -> Result<(Arc<Description>, Plan)> {
    for _ in 0..=SCRIPTS_MAX {
        let spot = tree::with_calls(thread, |calls| calls.find(dir, &wanted.path))?;
        let node = spot.existing()?.clone();
        check(thread, &node)?;
        let mut first = [0; SCRIPT_BYTES];
        let count = tree::with_calls(thread, |calls| node.read_at(calls.who, 0, &mut first))?;
        let Some(script) = exec::script(&first[..count]) else {
            let plan = plan(thread, &node, &wanted.path)?;
            let place = spot.place();
            return Ok((Arc::new(Description::new(node, place, abi::O_PATH, None)), plan));
        };
        let mut args = Vec::new();
        args.try_reserve(wanted.args.len() + 3).map_err(|_| Errno::ENOMEM)?;
        args.push(script.interpreter.to_vec());
        args.extend(script.argument.map(<[u8]>::to_vec));
        args.push(core::mem::replace(&mut wanted.path, script.interpreter.to_vec()));
        args.extend(wanted.args.drain(..).skip(1));
        wanted.args = args;
        dir = abi::AT_FDCWD;
    }
    Err(Errno::ELOOP)
}

/// The dynamic loader that a program asks for.
fn find_loader(thread: &Thread, path: &[u8]) -> Result<Image> {
    let spot = tree::with_calls(thread, |calls| calls.find(abi::AT_FDCWD, path))?;
    let node = spot.existing()?.clone();
    check(thread, &node)?;
    let plan = plan(thread, &node, path)?;
    let file = Arc::new(Description::new(node, spot.place(), abi::O_PATH, None));
    Ok(Image { file, plan })
}

/// Whether the caller may run a file at all.
fn check(thread: &Thread, node: &Node) -> Result<()> {
    node.length()?;
    thread.process().may().check(&node.meta(), false, 1)
}

fn plan(thread: &Thread, node: &Node, path: &[u8]) -> Result<Plan> {
    let plan = tree::with_calls(thread, |calls| {
        exec::plan(&File { node, who: calls.who }, MACHINE, &load::space())
    });
    plan.map_err(|error| {
        let errno = error.errno();
        if errno != Errno::BLOCKED {
            log!("{}: {error}", path.escape_ascii());
        }
        errno
    })
}

struct File<'a> {
    node: &'a Node,
    who: &'a Caller<'a>,
}

impl exec::Read for File<'_> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.node.read_at(self.who, offset, into)
    }

    fn len(&self) -> u64 {
        self.node.length().unwrap_or(0)
    }
}

/// Puts the new program in the old one's place. Nothing here can fail.
fn commit(thread: &mut Thread, ready: Ready, named: Vec<u8>) {
    let process = thread.process().clone();
    if let Some(old) = memory::current() {
        super::guard::inherit(&old, &ready.memory);
    }
    *process.memory.lock() = Some(ready.memory.clone());
    // The process may have moved to another group since the memory was made.
    cgroup::settle(&process, &ready.memory);
    memory::switch(Some(&ready.memory));
    thread.context = ready.context;
    thread.context.load_vectors();
    process.files().close_private();
    {
        let mut shared = process.signals.lock();
        shared.actions.reset();
        thread.task.signals.lock().alt_stack = quire_linux::signal::AltStack::NONE;
    }
    thread.task.clear_tid.store(0, Ordering::Relaxed);
    thread.task.robust.store(0, Ordering::Relaxed);
    let last = named.rsplit(|byte| *byte == b'/').next().unwrap_or(&named);
    let mut name = [0; 16];
    let count = last.len().min(15);
    name[..count].copy_from_slice(&last[..count]);
    *thread.task.name.lock() = name;
    process.timers.lock().made.clear();
    process.set_may(ready.may);
    *process.program.lock() = ready.program;
    process.give_back();
}
