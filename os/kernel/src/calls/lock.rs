//! Memory that stays: locked, so that it is not paged out (`mlock`), or sealed, so that it is not
//! changed (`mseal`).

use linux_raw_sys::general as abi;
use quire::units::{PageSpan, Vpn};
use quire_linux::{Errno, Result};

use super::memory::{is_aligned, own, span};
use super::swap;
use crate::isa;
use crate::memory::{PAGE, errno, mm};
use crate::task::{Answer, Thread};

pub(super) fn mlock(thread: &mut Thread, [address, bytes, ..]: [usize; 6]) -> Answer {
    let memory = own()?;
    let span = lock_span(address, bytes)?;
    if !span.is_empty() {
        swap::with_pages(thread, || mm().mlock(memory.space(), span))?;
    }
    Ok(0)
}

pub(super) fn mlock2(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [address, bytes, flags, ..] = args;
    match flags as u32 {
        0 => mlock(thread, args),
        abi::MLOCK_ONFAULT => {
            let (memory, span) = (own()?, lock_span(address, bytes)?);
            if !span.is_empty() {
                mm().spaces().mlock_on_fault(memory.space(), span).map_err(errno)?;
            }
            Ok(0)
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

pub(super) fn munlock(_: &mut Thread, [address, bytes, ..]: [usize; 6]) -> Answer {
    let memory = own()?;
    let span = lock_span(address, bytes)?;
    if !span.is_empty() {
        mm().spaces().munlock(memory.space(), span).map_err(errno)?;
    }
    Ok(0)
}

/// The pages of a range that need not begin at a page.
fn lock_span(address: usize, bytes: usize) -> Result<PageSpan> {
    let start = address & !(PAGE as usize - 1);
    let bytes = bytes.checked_add(address - start).ok_or(Errno::EINVAL)?;
    span(start, bytes).ok_or(Errno::ENOMEM)
}

pub(super) fn mlockall(_: &mut Thread, [flags, ..]: [usize; 6]) -> Answer {
    let known = abi::MCL_CURRENT | abi::MCL_FUTURE | abi::MCL_ONFAULT;
    if flags == 0 || flags & !(known as usize) != 0 || flags == abi::MCL_ONFAULT as usize {
        return Err(Errno::EINVAL.into());
    }
    let memory = own()?;
    memory.set_locks_future(flags & abi::MCL_FUTURE as usize != 0);
    if flags & abi::MCL_CURRENT as usize != 0 {
        let all = PageSpan::new(Vpn::new(0), Vpn::new(isa::USER_END / PAGE));
        let on_fault = flags & abi::MCL_ONFAULT as usize != 0;
        for area in mm().spaces().areas(memory.space(), all) {
            // Later faults report a shortage of memory.
            match on_fault {
                true => drop(mm().spaces().mlock_on_fault(memory.space(), area.span)),
                false => drop(mm().mlock(memory.space(), area.span)),
            }
        }
    }
    Ok(0)
}

pub(super) fn munlockall(_: &mut Thread, _: [usize; 6]) -> Answer {
    let memory = own()?;
    memory.set_locks_future(false);
    let all = PageSpan::new(Vpn::new(0), Vpn::new(isa::USER_END / PAGE));
    for area in mm().spaces().areas(memory.space(), all) {
        mm().spaces().munlock(memory.space(), area.span).map_err(errno)?;
    }
    Ok(0)
}

/// From now on these areas keep their place and their rights.
pub(super) fn mseal(_: &mut Thread, [address, bytes, flags, ..]: [usize; 6]) -> Answer {
    if flags != 0 || !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    let end = (address as u64).checked_add(bytes as u64);
    end.and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(Errno::EINVAL)?;
    let span = span(address, bytes).ok_or(Errno::ENOMEM)?;
    if !span.is_empty() {
        mm().spaces().seal(own()?.space(), span).map_err(errno)?;
    }
    Ok(0)
}
