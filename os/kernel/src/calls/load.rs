//! The memory of a new program: its segments, those of its loader, its stack.
//!
//! Nothing here touches the program that runs now. All bytes are read before any memory is made, so
//! that a call that lacks pages of the disk has no effect.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as abi;
use quire::space::{AreaFlags, At, Backing, FileId, Request};
use quire::units::{PageSpan, Prot, Vpn};
use quire_linux::credentials::Credentials;
use quire_linux::exec::{self, Plan, Segment, Space};
use quire_linux::files::{Caller, Description};
use quire_linux::{Errno, Result};

use crate::isa::{self, Context};
use crate::memory::{self, Break, Memory, PAGE, errno, mm, user, vdso};
use crate::task::{Program, Thread, cgroup, tree};

/// Where programs may be: not in the first 64 KiB, so that stray small pointers fault.
pub(super) fn space() -> Space {
    Space { page_bytes: PAGE, user: 0x1_0000..memory::PROGRAM_END }
}

/// The program to run, its arguments and environment.
pub(super) struct Wanted {
    pub(super) path: Vec<u8>,
    pub(super) args: Vec<Vec<u8>>,
    pub(super) envs: Vec<Vec<u8>>,
}

/// A file, and the plan for its segments.
pub(super) struct Image {
    pub(super) file: Arc<Description>,
    pub(super) plan: Plan,
}

/// A program that is ready to run.
pub(super) struct Ready {
    pub(super) memory: Arc<Memory>,
    pub(super) context: Box<Context>,
    pub(super) program: Program,
    /// The rights of the process from then on.
    pub(super) may: Arc<Credentials>,
}

/// Makes the memory of a program, and of the loader that runs first if it wants one.
///
/// # Errors
/// The reason it cannot be made; nothing has changed then.
pub(super) fn prepare(
    thread: &Thread,
    mut program: Image,
    mut loader: Option<Image>,
    wanted: &Wanted,
) -> Result<Ready> {
    let bias = program.plan.usual_bias(&space());
    program.place(bias)?;
    let base = loader.as_ref().map_or(0, |loader| loader.plan.loader_bias(&space()));
    if let Some(loader) = &mut loader {
        loader.place(base)?;
    }
    let may = Arc::new(thread.process().may().of_program(&program.file.node().meta()));
    let images = || [Some(&program), loader.as_ref()].into_iter().flatten();
    tree::with_calls(thread, |calls| want(calls.who, images()))?;
    let memory = Memory::new()?;
    cgroup::settle(thread.process(), &memory);
    let brk = program.plan.brk;
    *memory.heap.lock() = Break { start: brk, end: brk };
    let before = memory::current();
    memory::switch(Some(&memory));
    let filled = tree::with_calls(thread, |calls| {
        images().try_for_each(|image| image.load(calls.who, &memory))
    });
    let stack_limit = thread.process().limits.soft(abi::RLIMIT_STACK);
    let filled =
        filled.and_then(|()| fill(&memory, &program.plan, base, wanted, (stack_limit, &may)));
    memory::switch(before.as_ref());
    let (sp, known) = filled?;
    let entry = loader.as_ref().map_or(program.plan.entry, |loader| loader.plan.entry);
    Ok(Ready { memory, context: Box::new(Context::start(entry, sp)), program: known, may })
}

/// Brings the bytes of all segments into memory.
fn want<'a>(who: &Caller<'_>, images: impl Iterator<Item = &'a Image>) -> Result<()> {
    let mut all = Ok(());
    for image in images {
        for segment in &image.plan.segments {
            let node = image.file.node();
            let wanted = match (node.has_object(), segment.file_bytes) {
                (false, bytes) => node.want(who, segment.file_offset, bytes),
                (_, 0) => Ok(()),
                // Its last page will be written to.
                (true, bytes) => {
                    node.read_at(who, segment.file_offset + bytes - 1, &mut [0]).map(drop)
                }
            };
            match wanted {
                Ok(()) => {}
                // All others are requested, too, before the wait for the first.
                Err(Errno::BLOCKED) => all = Err(Errno::BLOCKED),
                Err(errno) => return Err(errno),
            }
        }
    }
    all
}

impl Image {
    /// Moves it, if it may move.
    fn place(&mut self, bias: u64) -> Result<()> {
        match self.plan.alignment {
            Some(_) => self.plan.place(bias, &space()).map_err(|error| error.errno()),
            None => Ok(()),
        }
    }

    /// Maps and fills its segments in the memory that this CPU is in.
    fn load(&self, who: &Caller<'_>, memory: &Memory) -> Result<()> {
        self.plan.segments.iter().try_for_each(|segment| load(memory, who, &self.file, segment))
    }
}

/// Adds the parts that are in no file to the memory that this CPU is in; returns where the stack
/// begins, and the facts about the program. `base`: the distance that its loader was moved.
fn fill(
    memory: &Memory,
    plan: &Plan,
    base: u64,
    wanted: &Wanted,
    (stack_limit, may): (u64, &Credentials),
) -> Result<(u64, Program)> {
    let vdso = vdso::map(memory)?;
    memory.space().set_stack_pages(stack_limit / PAGE);
    let stack = make_stack(memory, plan.is_stack_executable, stack_limit)?;
    let top = stack.end.get() * PAGE;
    let mut random = [0; 16];
    tree::fill_random(&mut random);
    let aux = exec::stack::Aux {
        headers: plan.headers.unwrap_or(0),
        header_count: plan.header_count.into(),
        page_bytes: PAGE,
        base,
        entry: plan.entry,
        uid: (may.users.real, may.users.effective),
        gid: (may.groups.real, may.groups.effective),
        platform: isa::MACHINE,
        hwcap: isa::features().0,
        hwcap2: isa::features().1,
        random,
        is_secure: may.users.real != may.users.effective || may.groups.real != may.groups.effective,
        signal_stack_bytes: isa::SIGNAL_STACK_BYTES,
        vdso,
    };
    let room = stack_limit.min(STACK_MOST);
    let image = exec::stack::build(top, room, &wanted.args, &wanted.envs, &wanted.path, &aux)?;
    user::write_bytes(image.sp, &image.bytes)?;
    let span = plan.span();
    let program = Program {
        path: Vec::new(),
        args: image.args,
        envs: image.envs,
        stack: top,
        image: span.start..span.end,
        file: None,
    };
    Ok((image.sp, program))
}

/// Maps a segment, and fills it; or shows the file in it.
fn load(
    memory: &Memory,
    who: &Caller<'_>,
    file: &Arc<Description>,
    segment: &Segment,
) -> Result<()> {
    let node = file.node();
    if node.has_object() && segment.file_bytes > 0 {
        return show(memory, file, segment);
    }
    let span = PageSpan::new(page(segment.pages.start), page(segment.pages.end));
    let request = Request::anon(span.count()).at(At::FixedNoReplace(span.start));
    mm().map(memory.space(), &request).map_err(errno)?;
    let mut piece = Vec::new();
    piece.try_reserve_exact(PIECE).map_err(|_| Errno::ENOMEM)?;
    piece.resize(PIECE, 0);
    let mut done = 0;
    while done < segment.file_bytes {
        let count = (segment.file_bytes - done).min(PIECE as u64) as usize;
        let count = node.read_at(who, segment.file_offset + done, &mut piece[..count])?;
        if count == 0 {
            return Err(Errno::ENOEXEC);
        }
        user::write_bytes(segment.file_start + done, &piece[..count])?;
        done += count as u64;
    }
    let prot = rights(segment);
    if prot == Prot::RW {
        return Ok(());
    }
    mm().protect(memory.space(), span, prot).map_err(errno)
}

fn page(address: u64) -> Vpn {
    Vpn::new(address / PAGE)
}

fn rights(segment: &Segment) -> Prot {
    let mut prot = Prot::empty();
    prot.set(Prot::READ, segment.rights.read);
    prot.set(Prot::WRITE, segment.rights.write);
    prot.set(Prot::EXEC, segment.rights.execute);
    prot
}

/// Shows the file in a segment: nothing is copied but the page in which its bytes end and zeroes
/// begin.
fn show(memory: &Memory, file: &Arc<Description>, segment: &Segment) -> Result<()> {
    let (prot, end) = (rights(segment), segment.file_end());
    let shown = PageSpan::new(page(segment.pages.start), page(end.next_multiple_of(PAGE)));
    let zeroes = PageSpan::new(shown.end, page(segment.pages.end));
    // All of the page: what lies behind a program's data is its loader's to use, and zero.
    let tail = end..if segment.zero_end > end { shown.end.get() * PAGE } else { end };
    let first = if tail.is_empty() { prot } else { prot | Prot::RW };
    let at = At::FixedNoReplace(shown.start);
    let request = Request::anon(shown.count()).at(at).prot(first);
    file.node().show(false, true, |id, _| {
        let id = id.ok_or(Errno::ENFILE)?;
        let backing = Backing::File { id: FileId(id), page: segment.file_offset / PAGE };
        memory.show(id, file.clone(), &Request { backing, ..request })
    })?;
    if !tail.is_empty() {
        let nothing = [0; PAGE as usize];
        user::write_bytes(tail.start, &nothing[..(tail.end - tail.start) as usize])?;
    }
    if first != prot {
        mm().protect(memory.space(), shown, prot).map_err(errno)?;
    }
    if zeroes.is_empty() {
        return Ok(());
    }
    let request = Request::anon(zeroes.count()).at(At::FixedNoReplace(zeroes.start)).prot(prot);
    mm().map(memory.space(), &request).map(drop).map_err(errno)
}

/// How much is read from a file at a time.
const PIECE: usize = 64 << 10;

/// The first size of a stack, in pages: it grows from there.
const STACK_FIRST: u64 = 33;
/// The most bytes that are reserved for arguments.
const STACK_MOST: u64 = 1 << 30;

/// Maps the stack: at the end of what a program may map, growing down when it is touched below.
fn make_stack(memory: &Memory, executable: bool, limit: u64) -> Result<PageSpan> {
    let end = Vpn::new(vdso::STACK_END / PAGE);
    let pages = STACK_FIRST.min(limit / PAGE).max(1);
    let prot = if executable { Prot::all() } else { Prot::RW };
    let request = Request::anon(pages)
        .at(At::FixedNoReplace(Vpn::new(end.get() - pages)))
        .prot(prot)
        .flags(AreaFlags::GROWS_DOWN);
    mm().map(memory.space(), &request).map_err(errno)
}
