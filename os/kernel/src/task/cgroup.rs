//! Control groups: the group of each process, and reclaim in a group at its limit.
//!
//! Names and rules of the tree are [`Groups`]; the library has a group's charge and its limit. A
//! process is in a group, and so are its children. Its memory is in the same group, but for that of
//! a parent which it only borrows (`vfork`).
//!
//! ```text
//!   fault ── OverLimit(group) ──► relieve: page out its own, wait for the writes ──► again
//!                                     │ nothing can leave
//!                                     ▼
//!              a program: the largest of the group ends (oom), it tries again or ends itself
//!              a copy of the kernel: the same, and it goes on with some pages lent
//! ```
//!
//! The lock of all groups is taken before those of processes; no memory of programs is touched
//! under it, and no space is looked at that might end with that.

use core::sync::atomic::Ordering;

use quire::AllSpaces;
use quire::space::GroupId;
use quire_linux::files::Text;
use quire_linux::groups::{Control, Groups};
use quire_linux::{Errno, Result};
use spin::Once;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::oom;
use super::process::{Process, find, find_task, processes};
use crate::disk::{self, swap};
use crate::memory::{self, Everyone, Limits, Memory, mm};

/// The number of the root group, in which processes begin.
pub(crate) const ROOT: u32 = Groups::<Kept>::ROOT;

/// Pages that a copy may go on with while a process ends.
const LENT: u64 = 16;

/// The data of a group.
pub(crate) struct Kept {
    /// Its number in the library; the root has none.
    pub(crate) id: Option<GroupId>,
    pub(crate) events: Events,
}

/// The events in a group and its descendants.
#[derive(Clone, Copy, Default)]
pub(crate) struct Events {
    /// It was at its limit, and made room, or could not.
    pub(crate) max: u64,
    /// It could not.
    pub(crate) oom: u64,
    /// A process of it ended since memory ran out, in the group or everywhere.
    pub(crate) oom_kill: u64,
}

/// All groups.
pub(crate) fn groups() -> SpinMutexGuard<'static, Groups<Kept>> {
    static GROUPS: Once<SpinMutex<Groups<Kept>>> = Once::new();
    let root = || SpinMutex::new(Groups::new(Kept { id: None, events: Events::default() }));
    GROUPS.call_once(root).lock()
}

/// Registers this room's functions with `memory`.
pub(super) fn init() {
    memory::set_limits(Limits { relieve, lend });
}

/// Makes a group `name` in group `above`.
///
/// # Errors
/// `ENOSPC` when there are too many; see [`Groups::make`].
pub(crate) fn make(above: u32, name: &[u8]) -> Result<()> {
    let mut groups = groups();
    let outer = groups.get(above).ok().and_then(|group| group.of.id);
    let new = || match mm().groups().create(outer) {
        Ok(id) => Ok(Kept { id: Some(id), events: Events::default() }),
        Err(_) => Err(Errno::ENOSPC),
    };
    groups.make(above, name, new).map(drop)
}

/// Removes the group `name` in group `above`.
///
/// # Errors
/// `ENOENT`; see [`Groups::remove`].
pub(crate) fn remove(above: u32, name: &[u8]) -> Result<()> {
    let mut groups = groups();
    let number = groups.find(above, name)?;
    let outer = groups.get(above)?.of.id;
    let kept = groups.remove(number, is_used(number))?;
    drop(groups);
    let Some(id) = kept.id else { return Ok(()) };
    // A space that is still in use elsewhere, or has lost its process, goes to the outer group.
    Everyone.visit(&mut |space| {
        if space.group() == Some(id) {
            let _ = mm().groups().join(space, outer);
        }
    });
    mm().groups().end(id).map_err(|_| Errno::ENODEV)
}

/// Carries out a write to `cgroup.subtree_control` of a group.
///
/// # Errors
/// See [`Groups::control`].
pub(crate) fn control(number: u32, wanted: Control) -> Result<()> {
    let mut groups = groups();
    if !groups.control(number, wanted, is_used(number))? {
        return Ok(());
    }
    // A group without the controller has no limit.
    let next = |groups: &Groups<Kept>, from| {
        let below = groups.below(number, from).next();
        below.map(|(below, _)| below)
    };
    let mut from = 0;
    while let Some(below) = next(&groups, from) {
        from = below + 1;
        let kept = &mut groups.get_mut(below)?.of;
        kept.events = Events::default();
        if let Some(id) = kept.id {
            let _ = mm().groups().set_limit(id, u64::MAX);
        }
    }
    Ok(())
}

/// Whether a process is in this very group that has not ended.
pub(crate) fn is_used(number: u32) -> bool {
    next_member(number, 1).is_some()
}

/// The pid, from `from` on, of the next process in this very group that has not ended.
pub(crate) fn next_member(number: u32, from: u32) -> Option<u32> {
    let mut next = processes(from);
    while let Some(process) = next {
        if of(&process) == number && !process.is_zombie() {
            return Some(process.pid);
        }
        next = processes(process.pid + 1);
    }
    None
}

/// The same for a group and those in it.
pub(crate) fn next_within(number: u32, from: u32) -> Option<u32> {
    let mut next = processes(from);
    while let Some(process) = next {
        if groups().is_within(of(&process), number) && !process.is_zombie() {
            return Some(process.pid);
        }
        next = processes(process.pid + 1);
    }
    None
}

/// The number of the group that a process is in, or was when it ended.
pub(crate) fn of(process: &Process) -> u32 {
    // Relaxed: a caller that must not miss a change holds the lock of all groups.
    process.cgroup.load(Ordering::Relaxed)
}

/// Puts the process of `id`, a process or thread, into a group, with its memory.
///
/// # Errors
/// `ESRCH`; see [`Groups::admit`].
pub(crate) fn attach(number: u32, id: u32) -> Result<()> {
    let groups = groups();
    groups.admit(number)?;
    let of_task = || find_task(id).map(|task| task.process.clone());
    let process = find(id).or_else(of_task).ok_or(Errno::ESRCH)?;
    if process.is_zombie() {
        return Ok(());
    }
    process.cgroup.store(number, Ordering::Relaxed);
    let memory = process.memory().filter(|_| !process.borrows.load(Ordering::SeqCst));
    if let Some(memory) = &memory {
        put(&groups, memory, number);
    }
    drop(groups);
    // It may be the last to have it: not with the lock.
    drop(memory);
    Ok(())
}

/// Does `begin`, by which a new process becomes known, in the group of the one that made it.
pub(super) fn enter(process: &Process, maker: Option<&Process>, begin: impl FnOnce()) {
    let memory = process.memory();
    let groups = groups();
    if let Some(maker) = maker {
        let number = of(maker);
        process.cgroup.store(number, Ordering::Relaxed);
        let is_own = !process.borrows.load(Ordering::SeqCst);
        if let Some(memory) = memory.as_ref().filter(|_| is_own) {
            put(&groups, memory, number);
        }
    }
    begin();
    drop(groups);
    drop(memory);
}

/// Puts memory that a process is to have, or has now, into its group.
pub(crate) fn settle(process: &Process, memory: &Memory) {
    let groups = groups();
    put(&groups, memory, of(process));
}

fn put(groups: &Groups<Kept>, memory: &Memory, number: u32) {
    let id = groups.get(number).ok().and_then(|group| group.of.id);
    if memory.space().group() != id {
        // It is there, as the lock says.
        let _ = mm().groups().join(memory.space(), id);
    }
}

/// Notes what happened in a group: it counts in those that it is in as well.
fn note(number: u32, change: impl Fn(&mut Events)) {
    let mut groups = groups();
    let mut at = Some(number);
    while let Some(number) = at {
        if let Ok(group) = groups.get_mut(number) {
            change(&mut group.of.events);
        }
        at = groups.above(number);
    }
}

/// The same for a group of the library.
fn note_in(id: GroupId, change: impl Fn(&mut Events)) {
    let number = groups().find_of(|kept| kept.id == Some(id));
    if let Some(number) = number {
        note(number, change);
    }
}

/// Notes that a group has no room, and can make none.
pub(super) fn note_oom(id: GroupId) {
    note_in(id, |events| events.oom += 1);
    let mut path = Text::new();
    let groups = groups();
    let number = groups.find_of(|kept| kept.id == Some(id));
    // Without memory for its name, the message has none.
    let _ = number.map(|number| groups.path(number, &mut path));
    drop(groups);
    log!("group {} is at its memory limit", path.bytes().escape_ascii());
}

/// Notes that a process is to end since memory ran out.
pub(super) fn note_kill(process: &Process) {
    note(of(process), |events| events.oom_kill += 1);
}

/// Held while making room in a group: two CPUs would page out twice as much.
static AT_IT: SpinMutex<()> = SpinMutex::new(());

/// Makes room in a group at its limit; whether there is some. Pages that leave for that are written
/// before their frames are used.
fn relieve(id: GroupId) -> bool {
    let Some(_at_it) = AT_IT.try_lock() else {
        // Its owner makes room, here or in another group: then try again.
        while AT_IT.is_locked() {
            core::hint::spin_loop();
        }
        return true;
    };
    note_in(id, |events| events.max += 1);
    let before = mm().phys().free_frames();
    let relieved = mm().reclaim().relieve(id, &Everyone);
    if let Ok(relieved) = relieved {
        write_out(before, relieved.paged_out);
    }
    relieved.is_ok()
}

/// Begins to write the pages that were paged out, and waits until half of them are free, or all are
/// written.
fn write_out(before: u64, pages: u64) {
    if pages == 0 {
        return;
    }
    swap::begin_writing();
    while !swap::is_quiet() && mm().phys().free_frames() < before + pages / 2 {
        disk::reap();
        core::hint::spin_loop();
    }
}

/// A copy of the kernel in a group without room. It cannot wait until a process has ended; so it
/// goes on with a few pages more, unless it works for the process that ends.
fn lend(id: GroupId) -> bool {
    if relieve(id) {
        return true;
    }
    let ending = oom::end_one(Some(id), None);
    let own = memory::Own::get().map(|memory| memory.number());
    if ending.is_none() || ending == own {
        return false;
    }
    mm().groups().lend(id, LENT);
    true
}

/// Enforces a group's limit: pages out its least recently used memory, and then kills its largest
/// processes.
pub(crate) fn enforce(id: GroupId) {
    let limit = mm().groups().limit(id).unwrap_or(u64::MAX);
    if mm().reclaim().usage(id, &Everyone) <= limit {
        return;
    }
    relieve(id);
    let above = mm().reclaim().usage(id, &Everyone).saturating_sub(limit);
    if above > 0 {
        oom::end_some(id, above);
    }
}

/// Pages out or drops pages of a group, or of all (the root); how many.
pub(crate) fn reclaim(id: Option<GroupId>, pages: u64) -> u64 {
    let before = mm().phys().free_frames();
    let done = match id {
        Some(id) => mm().reclaim().page_out_group(id, pages, &Everyone).unwrap_or(0),
        None => mm().reclaim().reclaim(pages, &Everyone).pages(),
    };
    write_out(before, done);
    done
}
