//! Sealed areas (`mseal`): they keep place, rights and contents until their space ends, so that an
//! attacker who controls a program's calls cannot replace them.
//!
//! A seal refuses to unmap, map over, move, resize, change rights, and to lose contents that could
//! not be written back. No call removes it; a child inherits it. A change of areas checks it under
//! the lock under which it makes the change, and only where an area was ever sealed.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::PageSpan;

use super::Spaces;
use crate::base::Error;
use crate::space::{Area, AreaFlags, Ever, Space};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Refuses if a part of `span` is sealed.
    pub(crate) fn unsealed(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.refuse(space, span, |area| area.flags.contains(AreaFlags::SEALED))
    }

    /// Refuses if a part of `span` must not lose its contents.
    pub(crate) fn may_lose(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.refuse(space, span, Area::keeps_content)
    }

    fn refuse(
        &self,
        space: &Space<A>,
        span: PageSpan,
        such: impl Fn(&Area) -> bool,
    ) -> Result<(), Error> {
        if !space.has(Ever::Sealed) {
            return Ok(());
        }
        match self.base().view(space).areas().overlapping(span).find(such) {
            Some(area) => Err(Error::Sealed(area.span.start.max(span.start))),
            None => Ok(()),
        }
    }
}
