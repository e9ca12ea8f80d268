//! stub
use alloc::sync::Arc; use quire::units::{PageSpan, Prot}; use quire::space::Request; use quire_linux::files::Description; use quire_linux::{Errno, Result}; use crate::task::Thread; use crate::memory::Memory;
pub(super) fn open(_: &Thread, _: usize, _: usize, _: Prot) -> Result<Option<Arc<Description>>> { Err(Errno::ENODEV) }
pub(super) fn map(_: &Thread, _: &Memory, _: &Request, _: &Arc<Description>, _: u64) -> Result<PageSpan> { Err(Errno::ENODEV) }
