//! The frames and the room that a change of the tables lacks.

use quire_units::Vpn;

/// The lack that stopped a change of the tables. All before it stays done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// One zeroed frame, to become a table.
    Table,
    /// Room: this page has an entry already.
    Room(Vpn),
}
