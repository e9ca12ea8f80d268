//! The object, read by a reader that others wrote.

use std::vec;

use elf::endian::LittleEndian;
use elf::file::Class;
use elf::gnu_symver::{SymbolVersionTable, VerDefIterator, VersionIndexTable};
use elf::hash::SysVHashTable;
use elf::string_table::StringTable;
use elf::symbol::SymbolTable;
use elf::{ElfBytes, dynamic::Dyn};

use super::*;

const CODE: [u8; 40] = [0xc3; 40];
const FUNCTIONS: [Function<'static>; 3] = [
    Function { name: "__vdso_clock_gettime", offset: 0 },
    Function { name: "__vdso_gettimeofday", offset: 24 },
    Function { name: "__vdso_time", offset: 32 },
];

fn object(functions: &'static [Function<'static>]) -> Object<'static> {
    Object { machine: Machine::X86_64, version: "LINUX_2.6", code: &CODE, functions }
}

/// The bytes from where an entry of the dynamic section says.
fn part<'a>(bytes: &'a [u8], entries: &[Dyn], tag: i64) -> &'a [u8] {
    let entry = entries.iter().find(|entry| entry.d_tag == tag).unwrap();
    &bytes[entry.d_ptr() as usize..]
}

#[test]
fn a_reader_finds_each_function_by_name_and_version() {
    for count in 0..=FUNCTIONS.len() {
        let (bytes, code) = build(&object(&FUNCTIONS[..count])).unwrap();
        assert_eq!(&bytes[code..], CODE);
        assert!(code.is_multiple_of(CODE_ALIGNMENT));
        let file = ElfBytes::<LittleEndian>::minimal_parse(&bytes).unwrap();
        let entries: Vec<Dyn> = file.dynamic().unwrap().unwrap().iter().collect();
        let value = |tag| entries.iter().find(|entry| entry.d_tag == tag).unwrap().d_val();
        let strings = part(&bytes, &entries, abi::DT_STRTAB);
        let strings = StringTable::new(&strings[..value(abi::DT_STRSZ) as usize]);
        assert_eq!(strings.get(value(abi::DT_SONAME) as usize).unwrap(), NAME);
        let class = Class::ELF64;
        let symbols = part(&bytes, &entries, abi::DT_SYMTAB);
        let symbols = &symbols[..(1 + count) * value(abi::DT_SYMENT) as usize];
        let symbols = SymbolTable::new(LittleEndian, class, symbols);
        let hashes = part(&bytes, &entries, abi::DT_HASH);
        let hashes = SysVHashTable::new(LittleEndian, class, hashes).unwrap();
        let versions = &part(&bytes, &entries, abi::DT_VERSYM)[..(1 + count) * 2];
        let versions = VersionIndexTable::new(LittleEndian, class, versions);
        let definitions = part(&bytes, &entries, abi::DT_VERDEF);
        let definitions =
            VerDefIterator::new(LittleEndian, class, value(abi::DT_VERDEFNUM), 0, definitions);
        let versions = SymbolVersionTable::new(versions, None, Some((definitions, strings)));
        for (at, function) in FUNCTIONS.iter().enumerate() {
            let found = hashes.find(function.name.as_bytes(), &symbols, &strings).unwrap();
            assert_eq!(found.is_some(), at < count, "{}", function.name);
            let Some((index, symbol)) = found else { continue };
            assert_eq!(symbol.st_value, (code + function.offset) as u64);
            let end = FUNCTIONS[..count].get(at + 1).map_or(CODE.len(), |next| next.offset);
            assert_eq!(symbol.st_size, (end - function.offset) as u64);
            assert!(!symbol.is_undefined() && symbol.st_shndx != abi::SHN_ABS);
            assert_eq!((symbol.st_bind(), symbol.st_symtype()), (abi::STB_GLOBAL, abi::STT_FUNC));
            let definition = versions.get_definition(index).unwrap().unwrap();
            assert!(!definition.hidden);
            assert_eq!(definition.hash, sysv_hash(b"LINUX_2.6"));
            let names: Vec<&str> = definition.names.map(|name| name.unwrap()).collect();
            assert_eq!(names, ["LINUX_2.6"]);
        }
    }
}

#[test]
fn one_segment_has_all_of_it_and_another_the_dynamic_section() {
    for (machine, number) in
        [(Machine::X86_64, 62), (Machine::Aarch64, 183), (Machine::Riscv64, 243)]
    {
        let (bytes, _) = build(&Object { machine, ..object(&FUNCTIONS) }).unwrap();
        let file = ElfBytes::<LittleEndian>::minimal_parse(&bytes).unwrap();
        assert_eq!((file.ehdr.e_type, file.ehdr.e_machine), (abi::ET_DYN, number));
        assert_eq!((file.ehdr.e_shnum, file.ehdr.e_shoff), (0, 0));
        let segments: Vec<_> = file.segments().unwrap().iter().collect();
        let facts = segments.iter().map(|it| (it.p_type, it.p_flags, it.p_vaddr, it.p_align));
        let facts: Vec<_> = facts.collect();
        let dynamic = HEADER_BYTES + 2 * PROGRAM_HEADER_BYTES;
        assert_eq!(facts[0], (abi::PT_LOAD, abi::PF_R | abi::PF_X, 0, 4096));
        assert_eq!(facts[1], (abi::PT_DYNAMIC, abi::PF_R, dynamic as u64, 8));
        for segment in &segments {
            assert_eq!(segment.p_offset, segment.p_vaddr);
            assert_eq!(segment.p_filesz, segment.p_memsz);
        }
        assert_eq!(segments[0].p_filesz, bytes.len() as u64);
        assert_eq!(segments[1].p_filesz, (DYNAMIC_ENTRIES * 16) as u64);
    }
}

#[test]
fn the_parts_are_aligned_as_their_words_are() {
    for count in 0..=FUNCTIONS.len() {
        let layout = Layout::of(&object(&FUNCTIONS[..count]));
        let parts = [layout.dynamic, layout.symbols, layout.hashes * 2, layout.definitions * 2];
        assert!(parts.iter().all(|at| at.is_multiple_of(8)), "{parts:?}");
        assert!(layout.versions.is_multiple_of(2));
    }
    assert_eq!(vec![names_at("ab")], [(1, 17, 20)]);
}
