//! Where memory is to come from (`mbind` and its kin). There is one node, so all policies are the
//! same: their arguments are checked, and only a process's own policy is stored, to be shown.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire::table::Sight;
use quire_linux::{Errno, Result};

use super::memory::{is_aligned, own, reach, span};
use crate::memory::{Memory, mm, user};
use crate::task::{Answer, Process, Thread, find};

/// Policies (linux/mempolicy.h), and bits that go with one.
const DEFAULT: usize = 0;
const INTERLEAVE: usize = 3;
const PREFERRED: usize = 1;
const LOCAL: usize = 4;
const POLICIES: usize = 7;
const STATIC_NODES: usize = 1 << 15;
const RELATIVE_NODES: usize = 1 << 14;
const MODIFIERS: usize = STATIC_NODES | RELATIVE_NODES | 1 << 13;
/// `MPOL_MF_STRICT`, `MPOL_MF_MOVE`, `MPOL_MF_MOVE_ALL`.
const FLAGS: usize = 7;
/// Nodes that may be named.
const NODES_MOST: usize = 4096 * 8;

pub(super) fn mbind(thread: &mut Thread, args: [usize; 6]) -> Answer {
    const MOVE_ALL: usize = 4;
    let [address, bytes, mode, nodes, most, flags] = args;
    if flags & MOVE_ALL != 0 && !thread.process().may().can(abi::CAP_SYS_NICE) {
        return Err(Errno::EPERM.into());
    }
    if flags & !FLAGS != 0 || !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    check(mode, named(nodes, most)?)?;
    // As on Linux, a length that wraps round when it is rounded up is none.
    let bytes = if bytes as u64 > u64::MAX - 4095 { 0 } else { bytes };
    let span = span(address, bytes).ok_or(Errno::EINVAL)?;
    let (memory, is_default) = (own()?, mode & !MODIFIERS == DEFAULT);
    if span.is_empty() {
        return Ok(0);
    }
    // Holes have the policy of the process in any case.
    if !is_default && mm().spaces().first_hole(memory.space(), span).is_some() {
        return Err(Errno::EFAULT.into());
    }
    memory.policies.set(span, Some(mode as u32).filter(|_| !is_default))?;
    Ok(0)
}

/// The node to begin at, for areas that have a policy: none does here.
pub(super) fn set_mempolicy_home_node(_: &mut Thread, args: [usize; 6]) -> Answer {
    let [address, bytes, node, flags, ..] = args;
    if !is_aligned(address) || flags != 0 || node != 0 {
        return Err(Errno::EINVAL.into());
    }
    match reach(address, bytes).ok_or(Errno::EINVAL)? {
        span if span.is_empty() => Ok(0),
        _ => Err(Errno::ENOENT.into()),
    }
}

/// `set_mempolicy`: the policy of the caller's process.
pub(super) fn set_mempolicy(thread: &mut Thread, [mode, nodes, most, ..]: [usize; 6]) -> Answer {
    let mode = mode as u32 as usize;
    check(mode, named(nodes, most)?)?;
    thread.process().policy.store(mode as u32, Ordering::Relaxed);
    Ok(0)
}

/// Flags of `get_mempolicy`: the node of a page; the policy at an address; nodes that may be had.
const OF_NODE: usize = 1;
const AT_ADDRESS: usize = 2;
const ALLOWED: usize = 4;

pub(super) fn get_mempolicy(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [mode, nodes, most, address, flags, _] = args;
    let (of_node, at) = (flags & OF_NODE != 0, flags & AT_ADDRESS != 0);
    let is_wrong = flags & !(OF_NODE | AT_ADDRESS | ALLOWED) != 0
        || flags & ALLOWED != 0 && flags != ALLOWED
        || nodes != 0 && most < 1
        || !at && address != 0 && flags & ALLOWED == 0;
    if is_wrong {
        return Err(Errno::EINVAL.into());
    }
    let mut shown = thread.process().policy.load(Ordering::Relaxed) as usize & !MODIFIERS;
    if at {
        let page = span(address & !4095, 1).ok_or(Errno::EFAULT)?;
        let memory = own()?;
        if mm().spaces().first_hole(memory.space(), page).is_some() {
            return Err(Errno::EFAULT.into());
        }
        if let Some(own) = memory.policies.of(page.start) {
            shown = own as usize & !MODIFIERS;
        }
        if of_node {
            memory.physical(address as u64)?;
        }
    } else if of_node && shown != INTERLEAVE {
        return Err(Errno::EINVAL.into());
    }
    let is_default = matches!(shown, DEFAULT | LOCAL);
    if of_node {
        shown = 0;
    }
    if mode != 0 {
        user::write(mode as u64, &(if flags & ALLOWED != 0 { 0 } else { shown as u32 }))?;
    }
    if nodes != 0 {
        let has = flags & ALLOWED != 0 || !is_default && !of_node;
        for word in 0..most.div_ceil(64).min(NODES_MOST / 64) {
            user::write((nodes + 8 * word) as u64, &u64::from(word == 0 && has))?;
        }
    }
    Ok(0)
}

/// The process that a call on another's pages names, if the caller may see its memory.
fn target(thread: &Thread, pid: usize) -> Result<Arc<Process>> {
    if pid == 0 {
        return Ok(thread.process().clone());
    }
    let process = find(pid as u32).ok_or(Errno::ESRCH)?;
    let may = thread.process().may().may_trace(&process.may());
    if may { Ok(process) } else { Err(Errno::EPERM) }
}

/// Pages stay where they are: there is nowhere else.
pub(super) fn migrate_pages(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [pid, most, old, new, ..] = args;
    named(old, most)?;
    let to = named(new, most)?;
    target(thread, pid)?;
    if to != Nodes::First { Err(Errno::EINVAL.into()) } else { Ok(0) }
}

/// The node of each page, or why it has none; with nodes to move them to, the same.
pub(super) fn move_pages(thread: &mut Thread, args: [usize; 6]) -> Answer {
    const MOVE: usize = 2;
    const MOVE_ALL: usize = 4;
    let [pid, count, pages, nodes, status, flags] = args;
    if flags & !(MOVE | MOVE_ALL) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let may = thread.process().may();
    if flags & MOVE_ALL != 0 && !may.can(abi::CAP_SYS_NICE) {
        return Err(Errno::EPERM.into());
    }
    let memory = target(thread, pid)?.memory().ok_or(Errno::EINVAL)?;
    for at in 0..count {
        let page = user::read::<u64>(pages.wrapping_add(8 * at) as u64)?;
        if nodes != 0 {
            let node = user::read::<i32>(nodes.wrapping_add(4 * at) as u64)?;
            if node != 0 {
                return Err(Errno::ENODEV.into());
            }
        }
        let found = state_of(&memory, page);
        user::write(status.wrapping_add(4 * at) as u64, &found)?;
    }
    Ok(0)
}

/// The node of a page, or an errno below 0.
fn state_of(memory: &Memory, address: u64) -> i32 {
    let none = |errno: Errno| -i32::from(errno.number());
    let Some(page) = span(address as usize & !4095, 1) else { return none(Errno::EFAULT) };
    if mm().spaces().first_hole(memory.space(), page).is_some() {
        return none(Errno::EFAULT);
    }
    let mut is_there = false;
    mm().spaces().runs(memory.space(), page, &mut |seen| {
        is_there |= matches!(seen.what, Sight::Leaf { .. });
    });
    if is_there { 0 } else { none(Errno::ENOENT) }
}

/// Which nodes a mask at `address` names, of which the first `most - 1` bits count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nodes {
    None,
    /// The one there is.
    First,
    /// One that does not exist.
    Others,
}

fn named(address: usize, most: usize) -> Result<Nodes> {
    let bits = most.saturating_sub(1);
    if address == 0 || bits == 0 {
        return Ok(Nodes::None);
    }
    if bits > NODES_MOST {
        return Err(Errno::EINVAL);
    }
    let (mut first, mut others) = (false, false);
    for at in 0..bits.div_ceil(64) {
        let word = user::read::<u64>((address + 8 * at) as u64)?;
        let left = bits - 64 * at;
        let word = if left < 64 { word & ((1 << left) - 1) } else { word };
        first |= at == 0 && word & 1 != 0;
        others |= word & !u64::from(at == 0) != 0;
    }
    Ok(match (first, others) {
        (_, true) => Nodes::Others,
        (true, false) => Nodes::First,
        (false, false) => Nodes::None,
    })
}

/// Whether a policy may go with these nodes.
fn check(mode: usize, nodes: Nodes) -> Result<()> {
    let (bits, policy) =
        (mode & (STATIC_NODES | RELATIVE_NODES), mode & !(STATIC_NODES | RELATIVE_NODES));
    let both = bits == STATIC_NODES | RELATIVE_NODES;
    let fits = match policy {
        DEFAULT => nodes == Nodes::None,
        LOCAL => nodes == Nodes::None && bits == 0,
        PREFERRED => nodes != Nodes::Others,
        _ => nodes == Nodes::First,
    };
    if policy < POLICIES && fits && !both { Ok(()) } else { Err(Errno::EINVAL) }
}
