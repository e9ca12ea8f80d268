//! Pages of a file that are in memory, and hints about its pages: `cachestat`, `readahead`,
//! `sync_file_range`.

use linux_raw_sys::general as abi;
use quire::cache::{FILE_PAGES_MAX, FilePages};
use quire::space::FileId;
use quire_linux::Errno;
use quire_linux::files::{Body, Kind};

use crate::memory::{PAGE, mm, user};
use crate::task::tree::with_calls;
use crate::task::{Answer, Thread};

/// Tells of pages of a file: how many are in memory, and how many of these have no copy elsewhere.
pub(super) fn cachestat(thread: &mut Thread, [fd, range, out, flags, ..]: [usize; 6]) -> Answer {
    let open = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    if open.flags() & abi::O_PATH != 0 {
        return Err(Errno::EBADF.into());
    }
    let [start, bytes] = user::read::<[u64; 2]>(range as u64)?;
    let (object, is_only) = match open.node().body() {
        Body::File(data) if data.is_reserved() => return Err(Errno::EOPNOTSUPP.into()),
        Body::File(_) => (open.node().show(false, false, |id, _| Ok(id)).ok().flatten(), true),
        Body::Stored(file) => (file.object(), false),
        _ => (None, false),
    };
    if flags as u32 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let end = match bytes {
        0 => FILE_PAGES_MAX,
        _ => start.saturating_add(bytes).div_ceil(PAGE).min(FILE_PAGES_MAX),
    };
    let cached = object.map_or(0, |id| count(FileId(id), start / PAGE, end));
    user::write(out as u64, &[cached, if is_only { cached } else { 0 }, 0, 0, 0])?;
    Ok(0)
}

/// The pages of a file from `next` up to `end` that are in memory.
fn count(id: FileId, mut next: u64, end: u64) -> u64 {
    let mut cached = 0;
    while next < end {
        let Ok(Some(found)) = mm().files().next_cached(id, FilePages::new(next, end)) else {
            break;
        };
        cached += found.end.min(end).saturating_sub(found.start.max(next));
        next = found.end;
    }
    cached
}

/// Pages are read ahead as faults and reads come: there is nothing to do but to check.
pub(super) fn readahead(thread: &mut Thread, [fd, ..]: [usize; 6]) -> Answer {
    let open = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    if !open.may_read() {
        return Err(Errno::EBADF.into());
    }
    match open.node().kind() {
        Kind::File | Kind::Block => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// There is nothing to write back.
pub(super) fn sync_file_range(thread: &mut Thread, args: [usize; 6]) -> Answer {
    const FLAGS: usize = 7;
    let [fd, offset, bytes, flags, ..] = args;
    let open = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    if open.flags() & abi::O_PATH != 0 {
        return Err(Errno::EBADF.into());
    }
    let end = (offset as i64).checked_add(bytes as i64);
    let is_wrong = (offset as i64) < 0 || (bytes as i64) < 0 || end.is_none();
    if flags as u32 as usize & !FLAGS != 0 || is_wrong {
        return Err(Errno::EINVAL.into());
    }
    match open.node().kind() {
        Kind::File | Kind::Block | Kind::Directory | Kind::Link => Ok(0),
        _ => Err(Errno::ESPIPE.into()),
    }
}
