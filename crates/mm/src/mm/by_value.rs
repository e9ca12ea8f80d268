//! Spaces as values, for tests and benches on a host, whose stacks are large. An embedder makes
//! them in place.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Asid, PageSpan};

use super::Mm;
use crate::base::Error;
use crate::space::Space;

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// As [`space_in`](Self::space_in), with a root of zeroes.
    ///
    /// # Errors
    /// As there, and [`Error::NoMemory`].
    pub fn space(&self, asid: Asid, window: PageSpan) -> Result<Space<A>, Error> {
        let mut place = None;
        self.space_in(&mut place, self.base().table_frame()?, asid, window)?;
        place.ok_or(Error::Invalid)
    }

    /// As [`fork_in`](Self::fork_in), with a root of zeroes.
    ///
    /// # Errors
    /// As there.
    pub fn fork(&self, parent: &Space<A>, asid: Asid) -> Result<Space<A>, Error> {
        let mut place = None;
        self.fork_in(&mut place, parent, self.base().table_frame()?, asid)?;
        place.ok_or(Error::Invalid)
    }

    /// As [`destroy_in`](Self::destroy_in).
    pub fn destroy(&self, space: Space<A>) {
        self.destroy_in(&mut Some(space));
    }
}
