//! `PR_SET_MDWE`: a process may ask that none of its memory is ever both written and executed.

use linux_raw_sys::prctl::{PR_MDWE_NO_INHERIT, PR_MDWE_REFUSE_EXEC_GAIN};
use quire::units::Prot;
use quire_linux::{Errno, Result};

use crate::memory::{Memory, Own};
use crate::task::Answer;

/// Nothing becomes executable that was not mapped so, and nothing that can be written.
const REFUSES: u8 = PR_MDWE_REFUSE_EXEC_GAIN as u8;
/// Children and new programs are free of it.
const STAYS: u8 = PR_MDWE_NO_INHERIT as u8;

/// The other half of `PR_SET_MDWE`.
pub(super) fn get() -> Answer {
    Ok(Own::get().ok_or(Errno::EFAULT)?.guards().into())
}

/// A right that was once refused cannot be allowed again.
pub(super) fn set(bits: usize) -> Answer {
    let known = u8::try_from(bits).ok().filter(|bits| bits & !(REFUSES | STAYS) == 0);
    let bits = known.filter(|bits| *bits != STAYS).ok_or(Errno::EINVAL)?;
    let memory = Own::get().ok_or(Errno::EFAULT)?;
    if memory.guards() != 0 && memory.guards() != bits {
        return Err(Errno::EPERM.into());
    }
    memory.set_guards(bits);
    Ok(0)
}

/// Gives `new`, of a child or of the next program, what it inherits.
pub(super) fn inherit(old: &Memory, new: &Memory) {
    let guards = old.guards();
    new.set_guards(if guards & STAYS == 0 { guards } else { 0 });
}

/// Whether memory with the rights `old` may get the rights `new`; for new memory both are the same.
///
/// # Errors
/// `EACCES`.
pub(super) fn check(memory: &Memory, old: Prot, new: Prot) -> Result<()> {
    let is_guarded = memory.guards() & REFUSES != 0 && new.contains(Prot::EXEC);
    if is_guarded && (new.contains(Prot::WRITE) || !old.contains(Prot::EXEC)) {
        return Err(Errno::EACCES);
    }
    Ok(())
}
