//! Links that lead to files: descriptors, the program, the working directory.

use alloc::sync::Arc;

use quire_linux::files::{
    Body, Caller, Description, Generated, Jump, Kind, Node, Place, Table, Text, What, path_of,
};
use quire_linux::{Errno, Result};

use super::process::{Subject, directory};
use super::table::Numbers;
use crate::task::tree::tree;

/// `exe`.
///
/// # Errors
/// `ENOENT` when the process has ended, or its program's file has no path.
pub(super) fn program(of: &Subject, _: &Caller<'_>, _: u64) -> Result<What> {
    let file = of.process.program.lock().file.clone();
    let file = file.filter(|_| of.memory().is_some()).ok_or(Errno::ENOENT)?;
    to_open(&file)
}

/// A link to an open file.
fn to_open(open: &Description) -> Result<What> {
    let (node, place) = (open.node().clone(), open.place().clone());
    Ok(What::Jump(Jump { text: open.path()?, node, place }))
}

/// `cwd`.
///
/// # Errors
/// As for [`path_of`].
pub(super) fn working_directory(of: &Subject, _: &Caller<'_>, _: u64) -> Result<What> {
    to_directory(of.process.here.lock().dir())
}

/// `root`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn root(_: &Subject, _: &Caller<'_>, _: u64) -> Result<What> {
    to_directory(tree().root().clone())
}

fn to_directory(node: Arc<Node>) -> Result<What> {
    let text = path_of(&node)?;
    // A directory knows its own path.
    let place: Place = Some((node.clone(), Arc::from(&b"."[..])));
    Ok(What::Jump(Jump { text, node, place }))
}

/// `fd`.
///
/// # Errors
/// None.
pub(super) fn descriptors(of: &Subject) -> Result<What> {
    directory(Descriptors::of(of))
}

/// `fdinfo`.
///
/// # Errors
/// None.
pub(super) fn positions(of: &Subject) -> Result<What> {
    directory(Positions(Descriptors::of(of)))
}

/// The descriptors of a process as links to what is open.
struct Descriptors {
    table: Arc<Table>,
    /// The high part of their inode numbers.
    base: u64,
}

impl Descriptors {
    fn of(subject: &Subject) -> Self {
        let base = u64::from(subject.id) << 32 | u64::from(subject.is_thread) << 28;
        Self { table: subject.process.files(), base }
    }
}

impl Numbers for Descriptors {
    const KIND: Kind = Kind::Link;

    fn next(&self, from: u32) -> Option<u32> {
        self.table.next(from)
    }

    fn inode(&self, number: u32) -> u64 {
        self.base | 1 << 30 | u64::from(number)
    }

    fn make(&self, _: &Caller<'_>, number: u32) -> Result<What> {
        to_open(&*self.table.get(number).map_err(|_| Errno::ENOENT)?)
    }
}

/// The descriptors of a process as files with their state (`fdinfo`).
struct Positions(Descriptors);

impl Numbers for Positions {
    const KIND: Kind = Kind::File;

    fn next(&self, from: u32) -> Option<u32> {
        self.0.next(from)
    }

    fn inode(&self, number: u32) -> u64 {
        self.0.inode(number) ^ 3 << 29
    }

    fn make(&self, _: &Caller<'_>, number: u32) -> Result<What> {
        Ok(What::File(Arc::new(Position { table: self.0.table.clone(), number })))
    }
}

/// The facts about one descriptor.
struct Position {
    table: Arc<Table>,
    number: u32,
}

impl Generated for Position {
    fn text(&self, _: &Caller<'_>, out: &mut Text) -> Result<()> {
        let open = self.table.get(self.number).map_err(|_| Errno::ENOENT)?;
        let offset = match open.node().body() {
            Body::File(_) | Body::Generated(_) => open.offset(),
            _ => 0,
        };
        out.print(format_args!("pos:\t{offset}\nflags:\t0{:o}\n", open.flags()))?;
        let node = open.node();
        out.print(format_args!("mnt_id:\t{}\nino:\t{}\n", node.volume(), node.inode()))
    }
}
