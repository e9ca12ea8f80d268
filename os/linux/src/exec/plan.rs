//! From an ELF file to a list of memory pieces.

use alloc::vec::Vec;
use core::ops::Range;

use elf::abi;
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::parse::{ParseAt, ParseError};
use elf::segment::ProgramHeader;

use super::ExecError;
use crate::Result as CallResult;

/// Bytes of the ELF header.
const HEADER_BYTES: usize = 64;
/// Bytes of one program header.
const PROGRAM_HEADER_BYTES: usize = 56;
/// The longest path of a loader, with its zero.
const PATH_BYTES: u64 = 4096;
/// Linux takes no more program headers than fit one small page.
const TABLE_BYTES: usize = 4096;

/// A file that a program is in.
pub trait Read {
    /// Reads bytes from `offset` (in bytes) into `into`, and says how many; 0 is the end.
    ///
    /// # Errors
    /// The error of the file system.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> CallResult<usize>;

    /// How long it is, in bytes.
    fn len(&self) -> u64;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The machines whose programs are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
    /// 64-bit RISC-V.
    Riscv64,
}

impl Machine {
    /// Its number in an ELF header.
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::X86_64 => abi::EM_X86_64,
            Self::Aarch64 => abi::EM_AARCH64,
            Self::Riscv64 => abi::EM_RISCV,
        }
    }
}

/// Where programs may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a base page, a power of two.
    pub page_bytes: u64,
    /// The addresses that a program may use, half-open; whole pages.
    pub user: Range<u64>,
}

/// The rights of a program to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Read it.
    pub read: bool,
    /// Write it.
    pub write: bool,
    /// Run it.
    pub execute: bool,
}

/// A piece of the program's memory. All spans are half-open, in bytes.
///
/// ```text
///   pages.start        file_start                file_end()         zero_end      pages.end
///   |      zeros       |   bytes from the file   |      zeros       |    zeros    |
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The whole pages it needs.
    pub pages: Range<u64>,
    /// Where the bytes of the file go.
    pub file_start: u64,
    /// Where they are in the file; within the page at the same place as `file_start`, unless
    /// there are none.
    pub file_offset: u64,
    /// How many they are.
    pub file_bytes: u64,
    /// Where the segment ends; from the end of the file's bytes to here it must be zeros. The rest
    /// of its first and last page is undefined: zeros, or the file's bytes.
    pub zero_end: u64,
    /// The program's rights to it.
    pub rights: Rights,
}

impl Segment {
    /// Where the bytes of the file end.
    pub const fn file_end(&self) -> u64 {
        self.file_start + self.file_bytes
    }

    fn shift(&mut self, bias: u64) {
        self.pages = self.pages.start + bias..self.pages.end + bias;
        self.file_start += bias;
        self.zero_end += bias;
    }
}

/// The steps that run a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its pieces, ascending; no two share a page; there is at least one.
    pub segments: Vec<Segment>,
    /// The address of its first instruction.
    pub entry: u64,
    /// Where it finds its program headers (`AT_PHDR`), if they are in a segment.
    pub headers: Option<u64>,
    /// How many they are (`AT_PHNUM`); each has 56 bytes (`AT_PHENT`).
    pub header_count: u16,
    /// The first program break (`brk`): a page's start, after all segments.
    pub brk: u64,
    /// Whether its stack must be executable.
    pub is_stack_executable: bool,
    /// The alignment of its bias, in bytes; `None` when it may not move (any more).
    pub alignment: Option<u64>,
    /// The path of the dynamic loader (`PT_INTERP`) that is to be loaded, too, and to run first. A
    /// loader's own entry is ignored.
    pub loader: Option<Vec<u8>>,
}

/// The least alignment of the kernel's biases: large folios of the file lie at equally aligned
/// addresses, and large entries can map them.
const FOLIO: u64 = 2 << 20;

impl Plan {
    /// The addresses from the first segment to the last.
    pub fn span(&self) -> Range<u64> {
        let start = self.segments.first().map_or(0, |first| first.pages.start);
        start..self.segments.last().map_or(start, |last| last.pages.end)
    }

    /// The bias that a program gets which may move: at two thirds of the address space, so that
    /// its heap has room above it; lower when it is too large for that. 0 when it may not move.
    /// The kernel may choose another that is a multiple of [`alignment`](Self::alignment).
    pub fn usual_bias(&self, space: &Space) -> u64 {
        let Some(alignment) = self.alignment else { return 0 };
        let span = self.span();
        let highest = space.user.end.saturating_sub(span.end);
        let usual = (space.user.end / 3 * 2).saturating_sub(span.start);
        usual.min(highest) & !(alignment.max(FOLIO) - 1)
    }

    /// The bias that a program's dynamic loader gets: as high as it may be. 0 when it may not move.
    pub fn loader_bias(&self, space: &Space) -> u64 {
        let Some(alignment) = self.alignment else { return 0 };
        space.user.end.saturating_sub(self.span().end) & !(alignment.max(FOLIO) - 1)
    }

    /// Moves all addresses up by `bias`, once.
    ///
    /// # Errors
    /// [`ExecError::Bias`] when it may not move, or not so; [`ExecError::OutOfReach`] when it would
    /// leave `space`. The plan is unchanged then.
    pub fn place(&mut self, bias: u64, space: &Space) -> Result<(), ExecError> {
        match self.alignment {
            Some(alignment) if bias & (alignment - 1) == 0 => {}
            _ => return Err(ExecError::Bias { bias }),
        }
        let span = self.span();
        let bytes = span.end - span.start;
        let outside = ExecError::OutOfReach { address: bias.saturating_add(span.start), bytes };
        let end = span.end.checked_add(bias).ok_or(outside)?;
        if span.start + bias < space.user.start || end > space.user.end {
            return Err(outside);
        }
        self.segments.iter_mut().for_each(|segment| segment.shift(bias));
        self.entry += bias;
        self.brk += bias;
        self.headers = self.headers.map(|address| address + bias);
        self.alignment = None;
        Ok(())
    }
}

/// Reads the program in `file`, and checks all of it.
///
/// A program that may move ([`Plan::alignment`]) must be [placed](Plan::place) before it is mapped.
///
/// # Errors
/// The defect of the file, see [`ExecError`].
pub fn plan(file: &dyn Read, machine: Machine, space: &Space) -> Result<Plan, ExecError> {
    let header = file_header(file, machine)?;
    let mut table = [0; TABLE_BYTES];
    let table = program_headers(file, &header, &mut table)?;
    let all = || table.chunks_exact(PROGRAM_HEADER_BYTES).filter_map(program_header);
    let loader = all().find(|entry| entry.p_type == abi::PT_INTERP);
    let loader = loader.map(|entry| loader_path(file, &entry)).transpose()?;
    let may_move = header.e_type == abi::ET_DYN;
    let mut segments = Vec::new();
    let mut alignment = space.page_bytes;
    for entry in all().filter(|entry| entry.p_type == abi::PT_LOAD && entry.p_memsz > 0) {
        segments.try_reserve(1).map_err(|_| ExecError::NoMemory)?;
        segments.push(segment(&entry, file.len(), space, may_move)?);
        if entry.p_align.is_power_of_two() {
            alignment = alignment.max(entry.p_align);
        }
    }
    segments.sort_unstable_by_key(|segment| segment.pages.start);
    let last = segments.last().ok_or(ExecError::NoSegments)?;
    let brk = last.pages.end;
    check_apart(&segments)?;
    check_entry(&segments, header.e_entry)?;
    Ok(Plan {
        headers: headers_address(&segments, header.e_phoff, table.len() as u64),
        segments,
        entry: header.e_entry,
        header_count: header.e_phnum,
        brk,
        is_stack_executable: all()
            .any(|entry| entry.p_type == abi::PT_GNU_STACK && entry.p_flags & abi::PF_X != 0),
        alignment: may_move.then_some(alignment),
        loader,
    })
}

/// The path of a dynamic loader: a string with a zero at its end.
fn loader_path(file: &dyn Read, entry: &ProgramHeader) -> Result<Vec<u8>, ExecError> {
    let wrong = ExecError::Loader { bytes: entry.p_filesz };
    if !(2..=PATH_BYTES).contains(&entry.p_filesz) {
        return Err(wrong);
    }
    let mut path = Vec::new();
    path.try_reserve_exact(entry.p_filesz as usize).map_err(|_| ExecError::NoMemory)?;
    path.resize(entry.p_filesz as usize, 0);
    read_all(file, entry.p_offset, &mut path)?;
    match path.pop() {
        Some(0) if !path.contains(&0) => Ok(path),
        _ => Err(wrong),
    }
}

/// The ELF header, if it is one of a program for `machine`.
fn file_header(file: &dyn Read, machine: Machine) -> Result<FileHeader<LittleEndian>, ExecError> {
    let mut bytes = [0; HEADER_BYTES];
    read_all(file, 0, &mut bytes)?;
    let ident = parse_ident::<LittleEndian>(&bytes).map_err(|error| match error {
        ParseError::UnsupportedElfClass(found) => ExecError::WrongClass { found },
        ParseError::UnsupportedElfEndianness(found) => ExecError::WrongByteOrder { found },
        _ => ExecError::NotElf,
    })?;
    if ident.1 != Class::ELF64 {
        return Err(ExecError::WrongClass { found: abi::ELFCLASS32 });
    }
    let header =
        FileHeader::parse_tail(ident, &bytes[abi::EI_NIDENT..]).map_err(|_| ExecError::NotElf)?;
    if header.e_machine != machine.number() {
        return Err(ExecError::WrongMachine { found: header.e_machine });
    }
    if !matches!(header.e_type, abi::ET_EXEC | abi::ET_DYN) {
        return Err(ExecError::WrongKind { found: header.e_type });
    }
    Ok(header)
}

/// The bytes of the program headers: whole ones, at least one.
fn program_headers<'a>(
    file: &dyn Read,
    header: &FileHeader<LittleEndian>,
    table: &'a mut [u8; TABLE_BYTES],
) -> Result<&'a [u8], ExecError> {
    if header.e_phnum == 0 {
        return Err(ExecError::NoSegments);
    }
    if usize::from(header.e_phentsize) != PROGRAM_HEADER_BYTES {
        return Err(ExecError::HeaderSize { found: header.e_phentsize });
    }
    let bytes = usize::from(header.e_phnum) * PROGRAM_HEADER_BYTES;
    let table =
        table.get_mut(..bytes).ok_or(ExecError::TooManyHeaders { found: header.e_phnum })?;
    read_all(file, header.e_phoff, table)?;
    Ok(table)
}

fn program_header(bytes: &[u8]) -> Option<ProgramHeader> {
    ProgramHeader::parse_at(LittleEndian, Class::ELF64, &mut 0, bytes).ok()
}

/// Fills `into` from `offset`; files may give less than asked for at a time.
fn read_all(file: &dyn Read, offset: u64, into: &mut [u8]) -> Result<(), ExecError> {
    let needed = offset.saturating_add(into.len() as u64);
    let truncated = ExecError::Truncated { needed, length: file.len() };
    if needed > file.len() {
        return Err(truncated);
    }
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        let count = file.read_at(offset + done as u64, rest).map_err(ExecError::Unreadable)?;
        if count == 0 || count > rest.len() {
            return Err(truncated);
        }
        done += count;
    }
    Ok(())
}

/// One piece of memory, checked by itself.
fn segment(
    entry: &ProgramHeader,
    length: u64,
    space: &Space,
    may_move: bool,
) -> Result<Segment, ExecError> {
    let (address, offset) = (entry.p_vaddr, entry.p_offset);
    let page_mask = space.page_bytes - 1;
    if entry.p_filesz > entry.p_memsz {
        return Err(ExecError::LargerThanItsMemory { address });
    }
    if entry.p_filesz > 0 && (address ^ offset) & page_mask != 0 {
        return Err(ExecError::Misaligned { address, offset });
    }
    let needed = offset.saturating_add(entry.p_filesz);
    if entry.p_filesz > 0 && needed > length {
        return Err(ExecError::Truncated { needed, length });
    }
    let outside = ExecError::OutOfReach { address, bytes: entry.p_memsz };
    let zero_end = address.checked_add(entry.p_memsz).ok_or(outside)?;
    let end = zero_end.checked_add(page_mask).ok_or(outside)? & !page_mask;
    let pages = address & !page_mask..end;
    if end > space.user.end || (!may_move && pages.start < space.user.start) {
        return Err(outside);
    }
    let may = |right| entry.p_flags & right != 0;
    Ok(Segment {
        pages,
        file_start: address,
        file_offset: offset,
        file_bytes: entry.p_filesz,
        zero_end,
        rights: Rights { read: may(abi::PF_R), write: may(abi::PF_W), execute: may(abi::PF_X) },
    })
}

/// Checks that no two segments, which are ascending, share a page.
fn check_apart(segments: &[Segment]) -> Result<(), ExecError> {
    match segments.windows(2).find(|pair| pair[1].pages.start < pair[0].pages.end) {
        Some(pair) => Err(ExecError::Overlap { address: pair[1].file_start }),
        None => Ok(()),
    }
}

/// Checks that the program begins in a segment that may be run.
fn check_entry(segments: &[Segment], address: u64) -> Result<(), ExecError> {
    let holds = |segment: &Segment| {
        segment.rights.execute && (segment.file_start..segment.zero_end).contains(&address)
    };
    if segments.iter().any(holds) { Ok(()) } else { Err(ExecError::Entry { address }) }
}

/// Where the program headers, `bytes` at `offset` of the file, are in memory.
fn headers_address(segments: &[Segment], offset: u64, bytes: u64) -> Option<u64> {
    segments.iter().find_map(|segment| {
        let within = offset.checked_sub(segment.file_offset)?;
        let end = within.checked_add(bytes)?;
        (end <= segment.file_bytes).then_some(segment.file_start + within)
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
