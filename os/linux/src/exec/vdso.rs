//! The vDSO: a shared object that the kernel has in memory and maps into each program. A program's
//! library finds it by `AT_SYSINFO_EHDR`, looks up functions by name and version (vdso(7)), and
//! calls them in place of system calls.
//!
//! [`build`] writes the object around code that the kernel brings. So no kernel needs a second
//! linker run, a linker script or a loader for it: the code is position-independent assembler among
//! its own constants, and all of ELF is here, tested on any host by an independent reader.
//!
//! ```text
//!   0  ┌──────────────────────────┐ ◄── AT_SYSINFO_EHDR
//!      │ ELF header               │
//!      │ PT_LOAD: all of it, R+X  │ addresses in the object count from its first byte
//!      │ PT_DYNAMIC               │
//!      ├──────────────────────────┤
//!      │ dynamic section          │ where the tables below are
//!      │ symbols                  │ the null symbol, then one for each function
//!      │ hash table (DT_HASH)     │ of one chain: there are only a few symbols
//!      │ versions of the symbols  │ 2 each
//!      │ definitions of versions  │ 1: the object's name; 2: the functions' version
//!      │ strings                  │
//!      ├──────────────────────────┤
//!      │ code                     │
//!      └──────────────────────────┘
//! ```
//!
//! It has no section headers: loaders do not look at them. Formats: System V ABI, "Object Files",
//! "Dynamic Linking"; Linux Standard Base, "Symbol Versioning".

use alloc::vec::Vec;

use elf::abi;
use elf::hash::sysv_hash;

use super::Machine;
use crate::{Errno, Result};

/// The object's name, under which debuggers list it.
const NAME: &str = "linux-vdso.so.1";

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PROGRAM_HEADERS: usize = 2;
const DYNAMIC_ENTRIES: usize = 10;
const SYMBOL_BYTES: usize = 24;
/// Bytes of a version's definition, and of the name behind it.
const DEFINITION_BYTES: usize = 20;
const DEFINITION_NAME_BYTES: usize = 8;
/// Indices of versions: of the object itself, and of the functions.
const BASE_VERSION: u16 = 1;
const VERSION: u16 = 2;
/// The section of each function. There are no sections, but 0 would mean a function elsewhere, and
/// `SHN_ABS` an address that does not move with the object.
const SOME_SECTION: u16 = 1;
/// The alignment of segment and code in bytes.
const PAGE_BYTES: u64 = 4096;
const CODE_ALIGNMENT: usize = 16;

/// A function of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it begins in the code, in bytes. It ends where the next one begins.
    pub offset: usize,
}

/// The content of the object.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// The machine that its code is for.
    pub machine: Machine,
    /// The version of all its functions.
    pub version: &'a str,
    /// Position-independent code.
    pub code: &'a [u8],
    /// The functions in it, ascending by offset.
    pub functions: &'a [Function<'a>],
}

/// Where the parts are, as offsets in bytes.
struct Layout {
    dynamic: usize,
    symbols: usize,
    hashes: usize,
    versions: usize,
    definitions: usize,
    strings: usize,
    strings_end: usize,
    code: usize,
    end: usize,
}

impl Layout {
    fn of(object: &Object<'_>) -> Self {
        // The null symbol is the first.
        let symbols_count = 1 + object.functions.len();
        let names: usize = object.functions.iter().map(|function| function.name.len() + 1).sum();
        let dynamic = HEADER_BYTES + PROGRAM_HEADERS * PROGRAM_HEADER_BYTES;
        let symbols = dynamic + DYNAMIC_ENTRIES * 16;
        let hashes = symbols + symbols_count * SYMBOL_BYTES;
        let versions = hashes + (3 + symbols_count) * 4;
        let definitions = (versions + symbols_count * 2).next_multiple_of(4);
        let strings = definitions + 2 * (DEFINITION_BYTES + DEFINITION_NAME_BYTES);
        let strings_end = strings + 1 + NAME.len() + 1 + object.version.len() + 1 + names;
        let code = strings_end.next_multiple_of(CODE_ALIGNMENT);
        let end = code + object.code.len();
        Self { dynamic, symbols, hashes, versions, definitions, strings, strings_end, code, end }
    }
}

/// The bytes of the object, and where its code begins in them. It works at any multiple of a page.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub fn build(object: &Object<'_>) -> Result<(Vec<u8>, usize)> {
    let layout = Layout::of(object);
    let mut out = Writer(Vec::new());
    out.0.try_reserve_exact(layout.end).map_err(|_| Errno::ENOMEM)?;
    out.headers(object.machine, &layout);
    out.dynamic(&layout);
    out.symbols(object, &layout);
    out.hashes(object.functions.len() as u32);
    out.versions(object);
    out.pad(layout.definitions);
    out.definitions(object.version);
    out.strings(object);
    out.pad(layout.code);
    out.0.extend_from_slice(object.code);
    debug_assert!(out.0.len() == layout.end, "the parts are as long as planned");
    Ok((out.0, layout.code))
}

/// Offsets in the strings: of the object's name, of the version, of the first function's name.
fn names_at(version: &str) -> (usize, usize, usize) {
    let version_at = 1 + NAME.len() + 1;
    (1, version_at, version_at + version.len() + 1)
}

/// Appends, within what was reserved at first.
struct Writer(Vec<u8>);

impl Writer {
    fn half(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn string(&mut self, string: &str) {
        self.0.extend_from_slice(string.as_bytes());
        self.0.push(0);
    }

    fn pad(&mut self, end: usize) {
        self.0.resize(end, 0);
    }

    fn headers(&mut self, machine: Machine, layout: &Layout) {
        self.0.extend_from_slice(&abi::ELFMAGIC);
        self.0.extend_from_slice(&[abi::ELFCLASS64, abi::ELFDATA2LSB, abi::EV_CURRENT]);
        self.pad(abi::EI_NIDENT);
        self.half(abi::ET_DYN);
        self.half(machine.number());
        self.word(abi::EV_CURRENT.into());
        // No entry; the program headers follow; no section headers; no flags.
        [0, HEADER_BYTES as u64, 0].into_iter().for_each(|value| self.long(value));
        self.word(0);
        let sizes = [HEADER_BYTES, PROGRAM_HEADER_BYTES, PROGRAM_HEADERS, 0, 0, 0];
        sizes.into_iter().for_each(|value| self.half(value as u16));
        let all = (0, layout.end);
        self.program_header(abi::PT_LOAD, abi::PF_R | abi::PF_X, all, PAGE_BYTES);
        let dynamic = (layout.dynamic, layout.symbols - layout.dynamic);
        self.program_header(abi::PT_DYNAMIC, abi::PF_R, dynamic, 8);
    }

    fn program_header(&mut self, kind: u32, flags: u32, part: (usize, usize), alignment: u64) {
        self.word(kind);
        self.word(flags);
        let (start, bytes) = (part.0 as u64, part.1 as u64);
        // Offset, virtual and physical address; bytes in the file and in memory.
        [start, start, start, bytes, bytes, alignment].into_iter().for_each(|at| self.long(at));
    }

    fn dynamic(&mut self, layout: &Layout) {
        let entries: [(i64, usize); DYNAMIC_ENTRIES] = [
            (abi::DT_SONAME, names_at("").0),
            (abi::DT_HASH, layout.hashes),
            (abi::DT_STRTAB, layout.strings),
            (abi::DT_SYMTAB, layout.symbols),
            (abi::DT_STRSZ, layout.strings_end - layout.strings),
            (abi::DT_SYMENT, SYMBOL_BYTES),
            (abi::DT_VERSYM, layout.versions),
            (abi::DT_VERDEF, layout.definitions),
            (abi::DT_VERDEFNUM, 2),
            (abi::DT_NULL, 0),
        ];
        for (tag, value) in entries {
            self.long(tag as u64);
            self.long(value as u64);
        }
    }

    fn symbols(&mut self, object: &Object<'_>, layout: &Layout) {
        let null_end = layout.symbols + SYMBOL_BYTES;
        self.pad(null_end);
        let mut name_at = names_at(object.version).2;
        let ends = object.functions.iter().skip(1).map(|next| next.offset);
        let ends = ends.chain([object.code.len()]);
        for (function, end) in object.functions.iter().zip(ends) {
            self.word(name_at as u32);
            self.0.extend_from_slice(&[abi::STB_GLOBAL << 4 | abi::STT_FUNC, abi::STV_DEFAULT]);
            self.half(SOME_SECTION);
            self.long((layout.code + function.offset) as u64);
            self.long((end - function.offset) as u64);
            name_at += function.name.len() + 1;
        }
    }

    /// One bucket, with a chain through all symbols from the first to the last.
    fn hashes(&mut self, functions: u32) {
        self.word(1);
        self.word(1 + functions);
        self.word(u32::from(functions > 0));
        self.word(0);
        (1..=functions).for_each(|at| self.word(if at < functions { at + 1 } else { 0 }));
    }

    fn versions(&mut self, object: &Object<'_>) {
        self.half(0);
        object.functions.iter().for_each(|_| self.half(VERSION));
    }

    fn definitions(&mut self, version: &str) {
        let (name_at, version_at, _) = names_at(version);
        let all = DEFINITION_BYTES + DEFINITION_NAME_BYTES;
        self.definition(abi::VER_FLG_BASE, BASE_VERSION, (NAME, name_at), all);
        self.definition(0, VERSION, (version, version_at), 0);
    }

    /// A version's definition with its name and where that is; the next follows after `next` bytes.
    fn definition(&mut self, flags: u16, index: u16, (name, at): (&str, usize), next: usize) {
        [abi::VER_DEF_CURRENT, flags, index, 1].into_iter().for_each(|value| self.half(value));
        self.word(sysv_hash(name.as_bytes()));
        self.word(DEFINITION_BYTES as u32);
        self.word(next as u32);
        self.word(at as u32);
        self.word(0);
    }

    fn strings(&mut self, object: &Object<'_>) {
        self.string("");
        self.string(NAME);
        self.string(object.version);
        object.functions.iter().for_each(|function| self.string(function.name));
    }
}

#[cfg(test)]
#[path = "vdso_tests.rs"]
mod tests;
