//! Directories that are tables, and directories of numbers.
//!
//! Inode numbers are made of where an entry stands, so that nothing is stored:
//!
//! ```text
//!   63 .................. 32 31 ........ 24 23 .............................. 0
//!   │ owner: pid, tid, or 0 │ kind of it   │ row + 2 of each level, 6 bits each,  │
//!   │                       │              │ or a number                          │
//! ```

use alloc::sync::Arc;
use alloc::vec::Vec;

use quire_linux::files::{
    Caller, Directory, Entry, Generated, Kind, Sink, Source, Tell, Text, What,
};
use quire_linux::{Errno, Result};

/// Writes the text of a file about `C`.
pub(super) type Show<C> = fn(&C, &Caller<'_>, &mut Text) -> Result<()>;
/// Takes a whole write to a file about `C`.
pub(super) type Store<C> = fn(&C, &Caller<'_>, &[u8]) -> Result<()>;
/// Puts at most the given number of bytes from an offset on into a sink; how many it put.
pub(super) type Get<C> = fn(&C, u64, usize, &mut dyn Sink) -> Result<usize>;
/// Takes bytes for an offset; how many it took.
pub(super) type Put<C> = fn(&C, u64, &[u8]) -> Result<usize>;
/// Does what an `ioctl` asks for.
pub(super) type Ask<C> = fn(&C, u32, &mut dyn Source, &mut dyn Sink) -> Result<u32>;
/// Makes an entry that cannot be in a table, from its inode number.
pub(super) type Make<C> = fn(&C, &Caller<'_>, u64) -> Result<What>;

/// An entry of a directory that is about a `C`.
pub(super) struct Row<C: 'static> {
    pub(super) name: &'static str,
    pub(super) is: Is<C>,
}

/// The kind of an entry.
pub(super) enum Is<C: 'static> {
    /// Text to be read.
    Text(Show<C>),
    /// Text to be read and written.
    Setting(Show<C>, Store<C>),
    /// To be written only.
    Action(Store<C>),
    /// Bytes to be read.
    Bytes(Get<C>),
    /// Bytes to be read and written.
    Memory(Get<C>, Put<C>),
    /// One of these that answers questions, too.
    Asked(&'static Is<C>, Ask<C>),
    /// A directory about the same.
    Table(&'static [Row<C>]),
    /// A directory about something else.
    Directory(Make<C>),
    /// A link.
    Link(Make<C>),
}

impl<C> Is<C> {
    /// The sink without its extension.
    fn plain(&self) -> &Self {
        if let Is::Asked(plain, _) = self { plain } else { self }
    }

    fn kind(&self) -> Kind {
        match self.plain() {
            Is::Table(_) | Is::Directory(_) => Kind::Directory,
            Is::Link(_) => Kind::Link,
            _ => Kind::File,
        }
    }

    fn mode(&self) -> u32 {
        match self.plain() {
            Is::Asked(..) | Is::Text(_) | Is::Bytes(_) => 0o444,
            Is::Setting(..) => 0o644,
            Is::Action(_) => 0o200,
            Is::Memory(..) => 0o600,
            Is::Table(_) | Is::Directory(_) => 0o555,
            Is::Link(_) => 0o777,
        }
    }
}

/// A directory that is a table. At most 60 rows.
pub(super) struct Fixed<C: 'static> {
    pub(super) rows: &'static [Row<C>],
    pub(super) of: C,
    /// Its own inode number.
    pub(super) inode: u64,
}

/// Bits of an inode number that say where an entry stands.
const LEVELS: u64 = (1 << 24) - 1;

/// The inode number of row `at` in the directory `above`.
fn inode(above: u64, at: usize) -> u64 {
    // No row is 1, which is the root of a tree.
    let levels = (above & LEVELS) << 6 | (at as u64 + 2);
    above & !LEVELS | levels & LEVELS
}

impl<C: Clone + Send + Sync + 'static> Fixed<C> {
    /// Visits the rows from number `from` on; whether all were taken.
    fn tell(&self, from: u64, tell: &mut Tell<'_>) -> bool {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let mut rows = self.rows.iter().enumerate().skip(from);
        rows.all(|(at, row)| {
            tell(at as u64 + 1, row.name.as_bytes(), inode(self.inode, at), row.is.kind())
        })
    }
}

/// The subject of a directory.
pub(super) trait Owned: Clone + Send + Sync + 'static {
    /// The user and the group that own its entries, where these are not root.
    fn owner(&self) -> Option<(u32, u32)> {
        None
    }
}

impl Owned for () {}

impl Owned for u32 {}

impl Owned for quire::units::Order {}

impl<C: Owned> Directory for Fixed<C> {
    fn owner(&self) -> Option<(u32, u32)> {
        self.of.owner()
    }

    fn lookup(&self, who: &Caller<'_>, name: &[u8]) -> Result<Entry> {
        let mut rows = self.rows.iter().enumerate();
        let (at, row) = rows.find(|(_, row)| row.name.as_bytes() == name).ok_or(Errno::ENOENT)?;
        let inode = inode(self.inode, at);
        let of = self.of.clone();
        let what = match &row.is {
            Is::Table(rows) => What::Directory(Arc::new(Fixed { rows, of, inode })),
            Is::Directory(make) | Is::Link(make) => make(&of, who, inode)?,
            _ => What::File(Arc::new(File { is: &row.is, of })),
        };
        Ok(Entry { inode, mode: row.is.mode(), what })
    }

    fn list(&self, _: &Caller<'_>, from: u64, tell: &mut Tell<'_>) -> Result<()> {
        self.tell(from, tell);
        Ok(())
    }
}

/// A file of a table.
struct File<C: 'static> {
    is: &'static Is<C>,
    of: C,
}

impl<C: Send + Sync + 'static> Generated for File<C> {
    fn is_binary(&self) -> bool {
        matches!(self.is.plain(), Is::Bytes(_) | Is::Memory(..))
    }

    fn text(&self, who: &Caller<'_>, out: &mut Text) -> Result<()> {
        match self.is.plain() {
            Is::Text(show) | Is::Setting(show, _) => show(&self.of, who, out),
            _ => Err(Errno::EINVAL),
        }
    }

    fn read_at(
        &self,
        _: &Caller<'_>,
        offset: u64,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Result<usize> {
        match self.is.plain() {
            Is::Bytes(get) | Is::Memory(get, _) => get(&self.of, offset, count, sink),
            _ => Err(Errno::EINVAL),
        }
    }

    fn control(
        &self,
        _: &Caller<'_>,
        request: u32,
        input: &mut dyn Source,
        output: &mut dyn Sink,
    ) -> Result<u32> {
        match self.is {
            Is::Asked(_, ask) => ask(&self.of, request, input, output),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn write(&self, who: &Caller<'_>, offset: u64, bytes: &[u8]) -> Result<usize> {
        match self.is.plain() {
            Is::Setting(_, store) | Is::Action(store) => {
                store(&self.of, who, bytes).map(|()| bytes.len())
            }
            Is::Memory(_, put) => put(&self.of, offset, bytes),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Entries whose names are numbers, perhaps after a word.
pub(super) trait Numbers: Send + Sync + 'static {
    /// The prefix of their names.
    const PREFIX: &'static str = "";
    /// Their kind.
    const KIND: Kind;

    /// The lowest number from `from` on that is there.
    fn next(&self, from: u32) -> Option<u32>;

    /// Whether a number is there: perhaps one that the directory does not list.
    fn has(&self, number: u32) -> bool {
        self.next(number) == Some(number)
    }

    /// The inode number of entry `number`.
    fn inode(&self, number: u32) -> u64;

    /// Entry `number`, which was there a moment ago.
    ///
    /// # Errors
    /// `ENOENT` when it is gone, and other reasons that it cannot be made.
    fn make(&self, who: &Caller<'_>, number: u32) -> Result<What>;
}

/// A directory of numbers, which some rows may precede.
pub(super) struct Many<N> {
    pub(super) rows: Fixed<()>,
    pub(super) of: N,
}

impl<N: Numbers> Many<N> {
    /// Without rows.
    pub(super) fn only(of: N) -> Self {
        Self { rows: Fixed { rows: &[], of: (), inode: 0 }, of }
    }

    /// The number that a name spells, without leading zeros.
    fn number(name: &[u8]) -> Option<u32> {
        let digits = name.strip_prefix(N::PREFIX.as_bytes())?;
        let is_plain = digits.iter().all(u8::is_ascii_digit);
        if !is_plain || digits.len() > 1 && digits[0] == b'0' {
            return None;
        }
        core::str::from_utf8(digits).ok()?.parse().ok()
    }
}

impl<N: Numbers> Directory for Many<N> {
    fn lookup(&self, who: &Caller<'_>, name: &[u8]) -> Result<Entry> {
        let Some(number) = Self::number(name) else { return self.rows.lookup(who, name) };
        if !self.of.has(number) {
            return Err(Errno::ENOENT);
        }
        let mode = if N::KIND == Kind::Directory { 0o555 } else { 0o444 };
        let mode = if N::KIND == Kind::Link { 0o700 } else { mode };
        Ok(Entry { inode: self.of.inode(number), mode, what: self.of.make(who, number)? })
    }

    fn list(&self, _: &Caller<'_>, from: u64, tell: &mut Tell<'_>) -> Result<()> {
        let rows = self.rows.rows.len() as u64;
        if from < rows && !self.rows.tell(from, tell) {
            return Ok(());
        }
        let mut next = u32::try_from(from.saturating_sub(rows)).ok();
        while let Some(number) = next.and_then(|from| self.of.next(from)) {
            let mut name = Text::new();
            name.print(format_args!("{}{number}", N::PREFIX))?;
            let cookie = rows + u64::from(number) + 1;
            if !tell(cookie, name.bytes(), self.of.inode(number), N::KIND) {
                break;
            }
            next = number.checked_add(1);
        }
        Ok(())
    }
}

/// A link with a text of its own.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn link(text: core::fmt::Arguments<'_>) -> Result<What> {
    let mut out = Text::new();
    out.print(text)?;
    Ok(What::Link(copied(out.bytes())?))
}

/// A copy of `bytes`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.put(bytes)?;
    Ok(copy)
}
