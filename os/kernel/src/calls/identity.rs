//! Users, groups and capabilities of the caller's process.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as abi;
use quire_linux::credentials::{Capabilities, Credentials, Ids};
use quire_linux::{Errno, Result};

use crate::memory::user;
use crate::task::{Answer, Thread, find};

/// The most supplementary groups (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65536;

/// The version of the capability calls that has 64 bits (linux/capability.h).
const VERSION: u32 = 0x2008_0522;
const OLD_VERSIONS: [u32; 2] = [0x1998_0330, 0x2007_1026];

/// Changes the credentials of a process.
fn change<T>(thread: &Thread, act: impl FnOnce(&mut Credentials) -> Result<T>) -> Result<T> {
    let process = thread.process();
    let mut new = (*process.may()).clone();
    let before = new.users;
    let result = act(&mut new)?;
    new.follow(&before);
    process.set_may(Arc::new(new));
    Ok(result)
}

/// Changes the users or the groups.
macro_rules! set {
    ($($name:ident => $which:ident, $capability:ident, $set:ident($($arg:ident),*);)*) => {
        $(pub(super) fn $name(thread: &mut Thread, args: [usize; 6]) -> Answer {
            let [$($arg),*, ..] = args.map(|arg| arg as u32);
            change(thread, |may| {
                let is_free = may.can(abi::$capability);
                may.$which.$set(set!(@ $($arg),*), is_free)
            })?;
            Ok(0)
        })*
    };
    (@ $one:ident) => { $one };
    (@ $one:ident, $two:ident) => { [$one, $two] };
    (@ $one:ident, $two:ident, $three:ident) => { [$one, $two, $three] };
}

set! {
    setuid => users, CAP_SETUID, set(id);
    setgid => groups, CAP_SETGID, set(id);
    setreuid => users, CAP_SETUID, set_two(real, effective);
    setregid => groups, CAP_SETGID, set_two(real, effective);
    setresuid => users, CAP_SETUID, set_three(real, effective, saved);
    setresgid => groups, CAP_SETGID, set_three(real, effective, saved);
}

pub(super) fn setfsuid(thread: &mut Thread, [id, ..]: [usize; 6]) -> Answer {
    let set = |may: &mut Credentials| Ok(may.users.set_files(id as u32, may.can(abi::CAP_SETUID)));
    Ok(change(thread, set)? as usize)
}

pub(super) fn setfsgid(thread: &mut Thread, [id, ..]: [usize; 6]) -> Answer {
    let set = |may: &mut Credentials| {
        let is_free = may.can(abi::CAP_SETGID);
        Ok(may.groups.set_files(id as u32, is_free))
    };
    Ok(change(thread, set)? as usize)
}

pub(super) fn getuid(thread: &mut Thread, _: [usize; 6]) -> Answer {
    Ok(thread.process().may().users.real as usize)
}

pub(super) fn geteuid(thread: &mut Thread, _: [usize; 6]) -> Answer {
    Ok(thread.process().may().users.effective as usize)
}

pub(super) fn getgid(thread: &mut Thread, _: [usize; 6]) -> Answer {
    Ok(thread.process().may().groups.real as usize)
}

pub(super) fn getegid(thread: &mut Thread, _: [usize; 6]) -> Answer {
    Ok(thread.process().may().groups.effective as usize)
}

pub(super) fn getresuid(thread: &mut Thread, args: [usize; 6]) -> Answer {
    tell(thread.process().may().users, args)
}

pub(super) fn getresgid(thread: &mut Thread, args: [usize; 6]) -> Answer {
    tell(thread.process().may().groups, args)
}

fn tell(ids: Ids, [real, effective, saved, ..]: [usize; 6]) -> Answer {
    for (place, id) in [(real, ids.real), (effective, ids.effective), (saved, ids.saved)] {
        user::write(place as u64, &id)?;
    }
    Ok(0)
}

pub(super) fn getgroups(thread: &mut Thread, [room, out, ..]: [usize; 6]) -> Answer {
    let may = thread.process().may();
    let room = usize::try_from(room as i32).map_err(|_| Errno::EINVAL)?;
    if room != 0 && room < may.others.len() {
        return Err(Errno::EINVAL.into());
    }
    if room != 0 {
        for (at, group) in may.others.iter().enumerate() {
            user::write((out + 4 * at) as u64, group)?;
        }
    }
    Ok(may.others.len())
}

pub(super) fn setgroups(thread: &mut Thread, [count, from, ..]: [usize; 6]) -> Answer {
    if !thread.process().may().can(abi::CAP_SETGID) {
        return Err(Errno::EPERM.into());
    }
    if count as u32 as usize > GROUPS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let mut groups = Vec::new();
    groups.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    for at in 0..count {
        groups.push(user::read::<u32>((from + 4 * at) as u64)?);
    }
    change(thread, |may| {
        may.others = groups;
        Ok(())
    })?;
    Ok(0)
}

/// The process that the head of a capability call names.
///
/// # Errors
/// `EINVAL` for an unknown version, after the known one was written; `EFAULT`.
fn head(at: usize) -> Result<(u32, i32)> {
    let [version, pid] = user::read::<[u32; 2]>(at as u64)?;
    if version != VERSION && !OLD_VERSIONS.contains(&version) {
        user::write(at as u64, &VERSION)?;
        return Err(Errno::EINVAL);
    }
    Ok((version, pid as i32))
}

pub(super) fn capget(thread: &mut Thread, [at, out, ..]: [usize; 6]) -> Answer {
    let (version, pid) = match head(at) {
        // A caller without a place for them asks for the version.
        Err(Errno::EINVAL) if out == 0 => return Ok(0),
        other => other?,
    };
    let process = match pid {
        pid if pid < 0 => return Err(Errno::EINVAL.into()),
        0 => thread.process().clone(),
        pid => find(pid as u32).ok_or(Errno::ESRCH)?,
    };
    let sets = process.may().capabilities;
    for (at, shift) in [0, 32].into_iter().enumerate().take(words(version)) {
        let part = |set: u64| (set >> shift) as u32;
        let three = [part(sets.effective), part(sets.permitted), part(sets.inheritable)];
        user::write((out + 12 * at) as u64, &three)?;
    }
    Ok(0)
}

fn words(version: u32) -> usize {
    if version == OLD_VERSIONS[0] { 1 } else { 2 }
}

pub(super) fn capset(thread: &mut Thread, [at, from, ..]: [usize; 6]) -> Answer {
    let (version, pid) = head(at)?;
    if pid != 0 && pid as u32 != thread.process().pid {
        return Err(Errno::EPERM.into());
    }
    let mut sets = Capabilities::NONE;
    for (at, shift) in [0, 32].into_iter().enumerate().take(words(version)) {
        let [effective, permitted, inheritable] =
            user::read::<[u32; 3]>((from + 12 * at) as u64)?.map(u64::from);
        sets.effective |= effective << shift;
        sets.permitted |= permitted << shift;
        sets.inheritable |= inheritable << shift;
    }
    change(thread, |may| {
        let old = may.capabilities;
        let gains = sets.permitted & !old.permitted | sets.effective & !sets.permitted;
        let inherits = sets.inheritable & !(old.inheritable | old.permitted);
        if gains != 0 || inherits != 0 && !may.can(abi::CAP_SETPCAP) {
            return Err(Errno::EPERM);
        }
        may.capabilities = sets;
        Ok(())
    })?;
    Ok(0)
}
