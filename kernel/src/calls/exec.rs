//! `execve`: a new program in place of the old.
//!
//! The new memory is made beside the old one, filled while this CPU is in it, and takes its place
//! only when nothing can fail any more: a call that fails returns to a program that has lost
//! nothing.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire::space::{AreaFlags, At, Request};
use quire::units::{PageSpan, Prot, Vpn};
use quire_linux::exec::{self, Machine, Plan, SCRIPT_BYTES, Segment, Space};
use quire_linux::files::{Body, Data, Description, Node, PATH_MAX};
use quire_linux::{Errno, Result};
use spin::mutex::SpinMutex;

use crate::isa::{self, Context};
use crate::memory::{self, Break, Memory, PAGE, errno, mm, user};
use crate::task::{Answer, Program, Stop, Thread, tree};

/// How deep scripts may name scripts as their interpreters.
const SCRIPTS_MAX: usize = 4;
/// Bytes of all arguments and environment, and how many strings there may be.
const STRINGS_MAX: usize = 2 << 20;

const MACHINE: Machine =
    if cfg!(target_arch = "x86_64") { Machine::X86_64 } else { Machine::Aarch64 };

/// Where programs may be: not in the first 64 KiB, so that stray small pointers fault.
fn space() -> Space {
    Space { page_bytes: PAGE, user: 0x1_0000..memory::trampoline() }
}

/// What is to be run, with what.
struct Wanted {
    path: Vec<u8>,
    args: Vec<Vec<u8>>,
    envs: Vec<Vec<u8>>,
}

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
    let path = user::string(path as u64, PATH_MAX)?;
    let mut room = STRINGS_MAX;
    let args = strings(args as u64, &mut room)?;
    let envs = strings(envs as u64, &mut room)?;
    run(thread, dir as i32, Wanted { path, args, envs })?;
    Err(Stop::Same)
}

/// Whether the process has no other thread. If it has, they are told to end, and this one is woken
/// when they have.
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

/// Runs a program in place of what the thread runs, from a path within `dir`.
///
/// # Errors
/// Why it cannot be run; the thread goes on as it was.
fn run(thread: &mut Thread, dir: i32, mut wanted: Wanted) -> Result<()> {
    let named = wanted.path.clone();
    let (file, plan) = find(thread, dir, &mut wanted)?;
    let stack_limit = thread.process().stack_limit.load(Ordering::Relaxed);
    let path = file.path()?;
    let mut ready = prepare(file.node(), plan, &wanted, stack_limit)?;
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
        let data = contents(&node)?;
        if node.meta().mode & 0o111 == 0 {
            return Err(Errno::EACCES);
        }
        let mut first = [0; SCRIPT_BYTES];
        let count = data.lock().read_at(0, &mut first);
        let Some(script) = exec::script(&first[..count]) else {
            let plan = exec::plan(&File(data), MACHINE, &space()).map_err(|error| {
                log!("{}: {error}", wanted.path.escape_ascii());
                error.errno()
            })?;
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

/// The bytes of a regular file.
fn contents(node: &Node) -> Result<&SpinMutex<Data>> {
    match node.body() {
        Body::File(data) => Ok(data),
        _ => Err(Errno::EACCES),
    }
}

struct File<'a>(&'a SpinMutex<Data>);

impl exec::Read for File<'_> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(self.0.lock().read_at(offset, into))
    }

    fn len(&self) -> u64 {
        self.0.lock().len()
    }
}

/// A program that is ready to run.
struct Ready {
    memory: Arc<Memory>,
    context: Box<Context>,
    program: Program,
}

/// Makes the memory of a program.
fn prepare(node: &Node, mut plan: Plan, wanted: &Wanted, stack_limit: u64) -> Result<Ready> {
    let space = space();
    if plan.alignment.is_some() {
        let bias = plan.usual_bias(&space);
        plan.place(bias, &space).map_err(|error| error.errno())?;
    }
    let memory = Memory::new()?;
    *memory.heap.lock() = Break { start: plan.brk, end: plan.brk };
    let before = memory::current();
    memory::switch(Some(&memory));
    let filled = fill(&memory, contents(node)?, &plan, wanted, stack_limit);
    memory::switch(before.as_ref());
    let (context, program) = filled?;
    Ok(Ready { memory, context, program })
}

/// Fills the memory that this CPU is in.
fn fill(
    memory: &Memory,
    data: &SpinMutex<Data>,
    plan: &Plan,
    wanted: &Wanted,
    stack_limit: u64,
) -> Result<(Box<Context>, Program)> {
    for segment in &plan.segments {
        load(memory, data, segment)?;
    }
    trampoline(memory)?;
    memory.space().set_stack_pages(stack_limit / PAGE);
    let stack = make_stack(memory, plan.is_stack_executable, stack_limit)?;
    let top = stack.end.get() * PAGE;
    let mut random = [0; 16];
    tree::fill_random(&mut random);
    let aux = exec::stack::Aux {
        headers: plan.headers.unwrap_or(0),
        header_count: plan.header_count.into(),
        page_bytes: PAGE,
        base: 0,
        entry: plan.entry,
        uid: (0, 0),
        gid: (0, 0),
        platform: isa::MACHINE,
        hwcap: isa::features().0,
        hwcap2: isa::features().1,
        random,
        is_secure: false,
        signal_stack_bytes: isa::SIGNAL_STACK_BYTES,
    };
    let room = stack_limit.min(STACK_MOST);
    let image = exec::stack::build(top, room, &wanted.args, &wanted.envs, &wanted.path, &aux)?;
    user::write_bytes(image.sp, &image.bytes)?;
    let pages = || plan.segments.iter().map(|segment| &segment.pages);
    let start = pages().map(|pages| pages.start).min().unwrap_or(0);
    let end = pages().map(|pages| pages.end).max().unwrap_or(0);
    let program = Program {
        path: Vec::new(),
        args: image.args,
        envs: image.envs,
        stack: top,
        image: start..end,
        file: None,
    };
    Ok((Box::new(Context::start(plan.entry, image.sp)), program))
}

/// Maps a segment, and fills it.
fn load(memory: &Memory, data: &SpinMutex<Data>, segment: &Segment) -> Result<()> {
    let page = |address: u64| Vpn::new(address / PAGE);
    let span = PageSpan::new(page(segment.pages.start), page(segment.pages.end));
    let request = Request::anon(span.count()).at(At::FixedNoReplace(span.start));
    mm().map(memory.space(), &request).map_err(errno)?;
    let mut piece = Vec::new();
    piece.try_reserve_exact(PIECE).map_err(|_| Errno::ENOMEM)?;
    piece.resize(PIECE, 0);
    let mut done = 0;
    while done < segment.file_bytes {
        let count = (segment.file_bytes - done).min(PIECE as u64) as usize;
        let count = data.lock().read_at(segment.file_offset + done, &mut piece[..count]);
        if count == 0 {
            return Err(Errno::ENOEXEC);
        }
        user::write_bytes(segment.file_start + done, &piece[..count])?;
        done += count as u64;
    }
    let mut prot = Prot::empty();
    prot.set(Prot::READ, segment.rights.read);
    prot.set(Prot::WRITE, segment.rights.write);
    prot.set(Prot::EXEC, segment.rights.execute);
    if prot.contains(Prot::EXEC) {
        isa::publish_code(segment.file_start, segment.file_bytes);
    }
    if prot == Prot::RW {
        return Ok(());
    }
    mm().protect(memory.space(), span, prot).map_err(errno)
}

/// How much is read from a file at a time.
const PIECE: usize = 64 << 10;

/// The page with the code for programs that name none to return from handlers to.
fn trampoline(memory: &Memory) -> Result<()> {
    if isa::TRAMPOLINE.is_empty() {
        return Ok(());
    }
    let page = Vpn::new(memory::trampoline() / PAGE);
    let request = Request::anon(1).at(At::FixedNoReplace(page));
    mm().map(memory.space(), &request).map_err(errno)?;
    user::write_bytes(memory::trampoline(), isa::TRAMPOLINE)?;
    isa::publish_code(memory::trampoline(), isa::TRAMPOLINE.len() as u64);
    mm().protect(memory.space(), PageSpan::new(page, page.add(1)), Prot::RX).map_err(errno)
}

/// What a stack is when a program begins, in pages: it grows from there.
const STACK_FIRST: u64 = 33;
/// The most that is counted on for arguments.
const STACK_MOST: u64 = 1 << 30;

/// Maps the stack: at the end of what a program may map, growing down when it is touched below.
fn make_stack(memory: &Memory, executable: bool, limit: u64) -> Result<PageSpan> {
    let end = Vpn::new(isa::USER_END / PAGE);
    let pages = STACK_FIRST.min(limit / PAGE).max(1);
    let prot = if executable { Prot::all() } else { Prot::RW };
    let request = Request::anon(pages)
        .at(At::FixedNoReplace(Vpn::new(end.get() - pages)))
        .prot(prot)
        .flags(AreaFlags::GROWS_DOWN);
    mm().map(memory.space(), &request).map_err(errno)
}

/// Puts the new program in the old one's place. Nothing here can fail.
fn commit(thread: &mut Thread, ready: Ready, named: Vec<u8>) {
    let process = thread.process().clone();
    *process.memory.lock() = Some(ready.memory.clone());
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
    let last = named.rsplit(|byte| *byte == b'/').next().unwrap_or(&named);
    let mut name = [0; 16];
    let count = last.len().min(15);
    name[..count].copy_from_slice(&last[..count]);
    *thread.task.name.lock() = name;
    *process.program.lock() = ready.program;
    process.give_back();
}
