//! stub
use crate::task::{Answer, Thread};
pub(super) fn close(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn close_range(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn dup(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn dup2(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn dup3(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fadvise64(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fallocate(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fchdir(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fchmod(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fchown(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fcntl(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn flock(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fstat(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fstatfs(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn fsync(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn ftruncate(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn getdents64(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn ioctl(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn lseek(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn pipe(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn pipe2(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn pread64(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn preadv(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn pwrite64(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn pwritev(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn read(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn readv(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn sendfile(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn write(thread: &mut Thread, [fd, at, n, ..]: [usize; 6]) -> Answer { let mut v = alloc::vec![0u8; n]; crate::memory::user::read_bytes(at as u64, &mut v)?; match crate::task::tree::with_calls(thread, |c| c.write(fd as u32, &mut &v[..])) { Ok(n)=>Ok(n), Err(quire_linux::files::Halt::Failed(e))=>Err(e.into()), _=>Err(crate::task::Stop::Wait(None)) } }
pub(super) fn writev_(_: &mut Thread) {}
pub(super) fn writev(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
