//! Defects of programs' files.

use core::fmt;

use crate::Errno;

/// A defect of a program's file. Addresses and lengths are in bytes, as the file has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecError {
    /// It does not begin as an ELF file of version 1 does.
    NotElf,
    /// It is for another word size; the class is 1 for 32 bits.
    WrongClass {
        /// `EI_CLASS`.
        found: u8,
    },
    /// Its numbers are not in little-endian order.
    WrongByteOrder {
        /// `EI_DATA`.
        found: u8,
    },
    /// It is for another machine.
    WrongMachine {
        /// `e_machine`.
        found: u16,
    },
    /// It is an object, a core dump or the like.
    WrongKind {
        /// `e_type`.
        found: u16,
    },
    /// The path of its dynamic loader is none: empty, too long, or without an end.
    Loader {
        /// How many bytes it has, its zero included.
        bytes: u64,
    },
    /// The file ends before something that it says it has.
    Truncated {
        /// How long the file would have to be.
        needed: u64,
        /// How long it is.
        length: u64,
    },
    /// The program headers have a size that ELF64 does not know.
    HeaderSize {
        /// `e_phentsize`.
        found: u16,
    },
    /// There are more program headers than a page holds.
    TooManyHeaders {
        /// `e_phnum`.
        found: u16,
    },
    /// There is nothing to load.
    NoSegments,
    /// A segment takes more bytes from the file than it has room for.
    LargerThanItsMemory {
        /// Where it begins.
        address: u64,
    },
    /// A segment lies in the file at another place within the page than in memory.
    Misaligned {
        /// Where it begins.
        address: u64,
        /// Where it begins in the file.
        offset: u64,
    },
    /// A segment shares a page with the one before it.
    Overlap {
        /// Where it begins.
        address: u64,
    },
    /// It reaches outside the address space of programs.
    OutOfReach {
        /// The start of the part outside.
        address: u64,
        /// How many bytes it has.
        bytes: u64,
    },
    /// Its first instruction lies in no executable segment.
    Entry {
        /// Where it would begin to run.
        address: u64,
    },
    /// The chosen bias does not keep its alignment, or the program may not move.
    Bias {
        /// The bias.
        bias: u64,
    },
    /// The file could not be read.
    Unreadable(Errno),
    /// There is no memory for the plan.
    NoMemory,
}

impl ExecError {
    /// The error that `execve` returns.
    pub const fn errno(self) -> Errno {
        match self {
            Self::OutOfReach { .. } | Self::NoMemory => Errno::ENOMEM,
            Self::Bias { .. } => Errno::EINVAL,
            Self::Unreadable(errno) => errno,
            _ => Errno::ENOEXEC,
        }
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotElf => write!(f, "this is no ELF file"),
            Self::WrongClass { found } => write!(f, "this is no 64-bit program (class {found})"),
            Self::WrongByteOrder { found } => {
                write!(f, "this is no little-endian program (order {found})")
            }
            Self::WrongMachine { found } => write!(f, "this is for another machine ({found})"),
            Self::WrongKind { found } => write!(f, "this ELF file is no program (type {found})"),
            Self::Loader { bytes } => {
                write!(f, "the path of its loader, {bytes} bytes, makes no sense")
            }
            Self::Truncated { needed, length } => {
                write!(f, "the file has {length} bytes, but needs {needed}")
            }
            Self::HeaderSize { found } => write!(f, "program headers of {found} bytes"),
            Self::TooManyHeaders { found } => write!(f, "{found} program headers are too many"),
            Self::NoSegments => write!(f, "there is no segment to load"),
            Self::LargerThanItsMemory { address } => {
                write!(f, "the segment at {address:#x} has more bytes than its memory")
            }
            Self::Misaligned { address, offset } => {
                write!(f, "the segment at {address:#x} cannot come from offset {offset:#x}")
            }
            Self::Overlap { address } => {
                write!(f, "the segment at {address:#x} shares a page with the one before")
            }
            Self::OutOfReach { address, bytes } => {
                write!(f, "{bytes:#x} bytes at {address:#x} reach outside the address space")
            }
            Self::Entry { address } => {
                write!(f, "the entry {address:#x} lies in no executable segment")
            }
            Self::Bias { bias } => write!(f, "the program cannot be moved by {bias:#x} bytes"),
            Self::Unreadable(errno) => write!(f, "the file cannot be read: {errno}"),
            Self::NoMemory => write!(f, "there is no memory for the plan"),
        }
    }
}

impl core::error::Error for ExecError {}
