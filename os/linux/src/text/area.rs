//! One area of a program's memory, as `maps` and `smaps` begin it.

use crate::Result;
use crate::exec::Rights;
use crate::files::Text;

/// The column where names begin.
const NAME_COLUMN: usize = 73;

/// One area of a program's memory.
#[derive(Clone, Copy, Debug)]
pub struct AreaLine<'a> {
    /// Its first byte.
    pub start: u64,
    /// The byte after its last one.
    pub end: u64,
    /// The program's rights to it.
    pub rights: Rights,
    /// Whether it is shared.
    pub shared: bool,
    /// Its offset in the file in bytes; 0 without a file.
    pub offset: u64,
    /// Major and minor number of the file's device; 0 without a file.
    pub device: (u32, u32),
    /// The file's inode number; 0 without a file.
    pub inode: u64,
    /// The file's path, or a word in brackets; empty when it has no name.
    pub name: &'a [u8],
}

impl AreaLine<'_> {
    /// Prints its line.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print(&self, out: &mut Text) -> Result<()> {
        let begin = out.bytes().len();
        self.place(out)?;
        let (major, minor) = self.device;
        out.print(format_args!(" {:08x} {major:02x}:{minor:02x} {} ", self.offset, self.inode))?;
        if !self.name.is_empty() {
            let width = NAME_COLUMN.saturating_sub(out.bytes().len() - begin);
            out.print(format_args!("{:width$}", ""))?;
            self.name(out)?;
        }
        out.push(b"\n")
    }

    /// Prints its address, rights and name, without a newline.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print_short(&self, out: &mut Text) -> Result<()> {
        self.place(out)?;
        if !self.name.is_empty() {
            out.push(b" ")?;
            self.name(out)?;
        }
        Ok(())
    }

    fn place(&self, out: &mut Text) -> Result<()> {
        let flag = |on, letter| if on { letter } else { '-' };
        out.print(format_args!(
            "{:08x}-{:08x} {}{}{}{}",
            self.start,
            self.end,
            flag(self.rights.read, 'r'),
            flag(self.rights.write, 'w'),
            flag(self.rights.execute, 'x'),
            if self.shared { 's' } else { 'p' },
        ))
    }

    /// A newline in a name must not look like the end of the line.
    fn name(&self, out: &mut Text) -> Result<()> {
        for (at, piece) in self.name.split(|byte| *byte == b'\n').enumerate() {
            out.push(if at == 0 { b"" } else { b"\\012" })?;
            out.push(piece)?;
        }
        Ok(())
    }
}
