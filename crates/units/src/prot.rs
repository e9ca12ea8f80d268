//! The rights of a page, and the kinds of access to it.

use bitflags::bitflags;

bitflags! {
    /// The rights that a program has to the pages of an area.
    ///
    /// Hardware that cannot express a combination grants the nearest larger one: on all three
    /// ISAs `WRITE` lets the program read as well.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Prot: u8 {
        /// Loads.
        const READ = 1;
        /// Stores.
        const WRITE = 2;
        /// Instruction fetches.
        const EXEC = 4;
    }
}

impl Prot {
    /// Loads and stores.
    pub const RW: Prot = Prot::READ.union(Prot::WRITE);
    /// Loads and instruction fetches.
    pub const RX: Prot = Prot::READ.union(Prot::EXEC);

    /// Whether `access` is allowed.
    #[inline]
    pub const fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.intersects(Prot::READ.union(Prot::WRITE)),
            Access::Write => self.contains(Prot::WRITE),
            Access::Execute => self.contains(Prot::EXEC),
        }
    }
}

/// The kind of access that a program tried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}
