//! stub
use crate::task::{Answer, Thread};
pub(super) fn poll(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn ppoll(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn pselect6(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
pub(super) fn select(_: &mut Thread, _: [usize; 6]) -> Answer { Err(quire_linux::Errno::ENOSYS.into()) }
