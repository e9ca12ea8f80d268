//! `/sys/fs/cgroup`: control groups (cgroup v2) with one controller, that of memory.
//!
//! A directory is a group: rows of a table, and the groups in it. The files of memory are there as
//! on Linux: where the group above gives the controller. Unlike on Linux, a group is charged for
//! the pages that its processes *map*, by shares, so a process takes its memory along when it
//! moves.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quire::Holdings;
use quire::space::GroupId;
use quire_linux::files::{Caller, Directory, Entry, Kind, Tell, Text, What};
use quire_linux::groups::{self, Control};
use quire_linux::signal::{Info, Signal};
use quire_linux::text::number;
use quire_linux::{Errno, Result};

use super::process::Subject;
use super::table::{Fixed, Is, Row, copied};
use crate::memory::{Everyone, PAGE, mm};
use crate::task::cgroup::{self, ROOT};
use crate::task::{find, send};

/// Cookies of groups lie from here on, those of rows below.
const COOKIES: u64 = 64;

/// Rows of all groups but the root, without those of memory.
const PLAIN: usize = 7;

const ROWS: &[Row<u32>] = &[
    Row { name: "cgroup.controllers", is: Is::Text(controllers) },
    Row { name: "cgroup.events", is: Is::Text(events) },
    Row { name: "cgroup.kill", is: Is::Action(kill) },
    Row { name: "cgroup.procs", is: Is::Setting(members, attach) },
    Row { name: "cgroup.stat", is: Is::Text(stat) },
    Row { name: "cgroup.subtree_control", is: Is::Setting(given, give) },
    Row { name: "cgroup.type", is: Is::Text(kind) },
    Row { name: "memory.current", is: Is::Text(current) },
    Row { name: "memory.events", is: Is::Text(memory_events) },
    Row { name: "memory.max", is: Is::Setting(max, set_max) },
    Row { name: "memory.reclaim", is: Is::Action(reclaim) },
    Row { name: "memory.stat", is: Is::Text(memory_stat) },
    Row { name: "memory.swap.current", is: Is::Text(swapped) },
];

/// Those of the root.
const ROOT_ROWS: &[Row<u32>] = &[
    Row { name: "cgroup.controllers", is: Is::Text(controllers) },
    Row { name: "cgroup.procs", is: Is::Setting(members, attach) },
    Row { name: "cgroup.stat", is: Is::Text(stat) },
    Row { name: "cgroup.subtree_control", is: Is::Setting(given, give) },
    Row { name: "memory.reclaim", is: Is::Action(reclaim) },
    Row { name: "memory.stat", is: Is::Text(memory_stat) },
];

const _: () = assert!(ROWS.len() < COOKIES as usize, "cookies differ");

/// The directory of a group, by its number.
pub(super) struct Group(u32);

/// The directory of the root.
pub(super) fn root() -> Group {
    Group(ROOT)
}

impl Group {
    fn rows(&self) -> Fixed<u32> {
        let rows = match self.0 {
            ROOT => ROOT_ROWS,
            number if cgroup::groups().has_memory(number) => ROWS,
            _ => ROWS.split_at(PLAIN).0,
        };
        Fixed { rows, of: self.0, inode: u64::from(self.0) << 32 }
    }
}

/// The inode number of a group's directory.
fn inode(number: u32) -> u64 {
    u64::from(number) << 32 | 1
}

impl Directory for Group {
    fn lookup(&self, who: &Caller<'_>, name: &[u8]) -> Result<Entry> {
        cgroup::groups().get(self.0).map_err(|_| Errno::ENOENT)?;
        match self.rows().lookup(who, name) {
            Err(Errno::ENOENT) => {}
            found => return found,
        }
        let number = cgroup::groups().find(self.0, name)?;
        let what = What::Directory(Arc::new(Self(number)));
        Ok(Entry { inode: inode(number), mode: 0o755, what })
    }

    fn list(&self, who: &Caller<'_>, from: u64, tell: &mut Tell<'_>) -> Result<()> {
        if cgroup::groups().get(self.0).is_err() {
            return Ok(());
        }
        let mut is_over = false;
        if from < COOKIES {
            self.rows().list(who, from, &mut |cookie, name, inode, kind| {
                is_over = !tell(cookie, name, inode, kind);
                !is_over
            })?;
        }
        let mut next = from.saturating_sub(COOKIES) as u32;
        while let Some((number, name)) = next_below(self.0, next)?.filter(|_| !is_over) {
            next = number + 1;
            is_over = !tell(COOKIES + u64::from(next), &name, inode(number), Kind::Directory);
        }
        Ok(())
    }

    fn make_directory(&self, _: &Caller<'_>, name: &[u8]) -> Result<()> {
        cgroup::make(self.0, name)
    }

    fn remove_directory(&self, _: &Caller<'_>, name: &[u8]) -> Result<()> {
        cgroup::remove(self.0, name)
    }
}

/// The next group in a group. The lock is not held when the name is printed.
fn next_below(above: u32, from: u32) -> Result<Option<(u32, Vec<u8>)>> {
    let groups = cgroup::groups();
    let next = groups.below(above, from).next();
    next.map(|(number, name)| Ok((number, copied(name)?))).transpose()
}

/// `/proc/PID/cgroup`.
pub(super) fn show(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let number = cgroup::of(&of.process);
    out.push(b"0::")?;
    match cgroup::groups().path(number, out) {
        // It has ended, and its group is gone.
        Err(Errno::ENODEV) => out.push(b"/ (deleted)")?,
        other => other?,
    }
    out.push(b"\n")
}

fn controllers(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let groups = cgroup::groups();
    groups.get(*of)?;
    out.push(if groups.may_give(*of) { b"memory\n" } else { b"\n" })
}

fn given(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let groups = cgroup::groups();
    groups.get(*of)?;
    out.push(if groups.gives(*of) { b"memory\n" } else { b"\n" })
}

fn give(of: &u32, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    cgroup::control(*of, Control::of(bytes)?)
}

fn kind(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    cgroup::groups().get(*of)?;
    out.push(b"domain\n")
}

/// Whether a process is in the group, or in one that is in it.
fn events(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    cgroup::groups().get(*of)?;
    let is_used = cgroup::next_within(*of, 1).is_some();
    out.print(format_args!("populated {}\nfrozen 0\n", u8::from(is_used)))
}

fn stat(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let groups = cgroup::groups();
    groups.get(*of)?;
    let count = groups.within(*of).count() - 1;
    out.print(format_args!("nr_descendants {count}\nnr_dying_descendants 0\n"))
}

fn members(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    cgroup::groups().get(*of)?;
    let mut from = 1;
    while let Some(pid) = cgroup::next_member(*of, from) {
        out.print(format_args!("{pid}\n"))?;
        from = pid + 1;
    }
    Ok(())
}

fn attach(of: &u32, who: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    match groups::pid(bytes)? {
        0 => cgroup::attach(*of, who.pid),
        pid => cgroup::attach(*of, pid),
    }
}

fn kill(of: &u32, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    cgroup::groups().get(*of)?;
    if number(bytes)? != 1 {
        return Err(Errno::ERANGE);
    }
    let mut from = 1;
    while let Some(pid) = cgroup::next_within(*of, from) {
        if let Some(process) = find(pid) {
            send::to_process(&process, Info::kernel(Signal::KILL))?;
        }
        from = pid + 1;
    }
    Ok(())
}

/// The library's number of a group.
fn id(of: u32) -> Result<Option<GroupId>> {
    Ok(cgroup::groups().get(of)?.of.id)
}

fn limited(of: u32) -> Result<GroupId> {
    id(of)?.ok_or(Errno::ENODEV)
}

fn current(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", mm().reclaim().usage(limited(*of)?, &Everyone) * PAGE))
}

fn swapped(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", holdings(*of)?.swapped * PAGE))
}

fn max(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    match mm().groups().limit(limited(*of)?).map_err(|_| Errno::ENODEV)? {
        u64::MAX => out.push(b"max\n"),
        frames => out.print(format_args!("{}\n", frames * PAGE)),
    }
}

fn set_max(of: &u32, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let frames = groups::limit(bytes)?.map_or(u64::MAX, |bytes| bytes / PAGE);
    let id = limited(*of)?;
    mm().groups().set_limit(id, frames).map_err(|_| Errno::ENODEV)?;
    cgroup::enforce(id);
    Ok(())
}

fn memory_events(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let cgroup::Events { max, oom, oom_kill } = cgroup::groups().get(*of)?.of.events;
    out.print(format_args!("low 0\nhigh 0\nmax {max}\noom {oom}\noom_kill {oom_kill}\n"))?;
    out.push(b"oom_group_kill 0\n")
}

fn holdings(of: u32) -> Result<Holdings> {
    Ok(mm().reclaim().holdings(id(of)?, &Everyone))
}

/// The values that can be derived: all file pages that count are mapped.
fn memory_stat(of: &u32, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let Holdings { anon, shared, file, .. } = holdings(*of)?;
    let files = shared + file;
    let lines = [("anon", anon), ("file", files), ("shmem", shared), ("file_mapped", files)];
    lines.iter().try_for_each(|(name, pages)| out.print(format_args!("{name} {}\n", pages * PAGE)))
}

/// Reclaims the given number of bytes.
fn reclaim(of: &u32, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let pages = groups::amount(bytes)? / PAGE;
    if cgroup::reclaim(id(*of)?, pages) < pages { Err(Errno::EAGAIN) } else { Ok(()) }
}
