//! Where memory is to come from (`mbind`). There is one node, so all policies are the same: their
//! arguments are checked, and nothing is stored.

use quire_linux::{Errno, Result};

use super::memory::{is_aligned, own, span};
use crate::memory::{mm, user};
use crate::task::{Answer, Thread};

/// Policies (linux/mempolicy.h), and bits that go with one.
const DEFAULT: usize = 0;
const PREFERRED: usize = 1;
const LOCAL: usize = 4;
const POLICIES: usize = 7;
const STATIC_NODES: usize = 1 << 15;
const RELATIVE_NODES: usize = 1 << 14;
/// `MPOL_MF_STRICT`, `MPOL_MF_MOVE`, `MPOL_MF_MOVE_ALL`.
const FLAGS: usize = 7;
/// Nodes that may be named.
const NODES_MOST: usize = 4096 * 8;

pub(super) fn mbind(_: &mut Thread, args: [usize; 6]) -> Answer {
    let [address, bytes, mode, nodes, most, flags] = args;
    if flags & !FLAGS != 0 || !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    check(mode, named(nodes, most)?)?;
    let span = span(address, bytes).ok_or(Errno::EINVAL)?;
    match mm().spaces().first_hole(own()?.space(), span) {
        Some(_) if !span.is_empty() => Err(Errno::EFAULT.into()),
        _ => Ok(0),
    }
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
        DEFAULT | LOCAL => nodes == Nodes::None && bits == 0,
        PREFERRED => nodes != Nodes::Others,
        _ => nodes == Nodes::First,
    };
    if policy < POLICIES && fits && !both { Ok(()) } else { Err(Errno::EINVAL) }
}
