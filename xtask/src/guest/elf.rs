//! Reads as much of a program's ELF header as it takes to refuse a program that cannot run.

use super::Isa;

/// The ELF header's field `e_machine` and the ISA it stands for, as Linux's tools name it.
const MACHINES: [(u16, &str); 5] =
    [(3, "i386"), (40, "arm"), (62, "x86_64"), (183, "aarch64"), (243, "riscv64")];

/// The type of the program header that names a dynamic program's loader.
const PT_INTERP: u32 = 3;

/// The facts about a program that decide whether a machine can run it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Program {
    /// A text with an interpreter in its first line.
    Script,
    /// An ELF file.
    Elf {
        /// The ISA.
        isa: String,
        /// The dynamic loader that the program names; `None` for a static program.
        loader: Option<String>,
    },
    /// Neither.
    Other,
}

impl Program {
    /// Reads the first bytes of a program's file.
    pub(super) fn read(bytes: &[u8]) -> Self {
        if bytes.starts_with(b"#!") {
            return Self::Script;
        }
        // 64-bit and little-endian files have these two bytes, and their header has 64.
        let is_wide = bytes.get(4..6) == Some(&[2, 1]);
        if !bytes.starts_with(b"\x7fELF") || bytes.len() < 64 {
            return Self::Other;
        }
        let machine = u16::from_le_bytes([bytes[18], bytes[19]]);
        let known = MACHINES.iter().find(|(number, _)| *number == machine);
        let isa =
            known.map_or_else(|| format!("machine {machine}"), |(_, name)| (*name).to_owned());
        Self::Elf { isa, loader: if is_wide { loader(bytes) } else { None } }
    }

    /// Whether this is a program for `isa`.
    pub(super) fn is_for(&self, isa: Isa) -> bool {
        matches!(self, Self::Elf { isa: found, .. } if found == isa.name())
    }
}

/// The path in the program header `PT_INTERP` of a 64-bit file.
fn loader(bytes: &[u8]) -> Option<String> {
    let number = |at: u64, length: usize| -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let field = bytes.get(at..at.checked_add(length)?)?;
        Some(field.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    (0..count).find_map(|header| {
        let at = table.checked_add(header * size)?;
        if number(at, 4)? != u64::from(PT_INTERP) {
            return None;
        }
        let start = usize::try_from(number(at.checked_add(8)?, 8)?).ok()?;
        let length = usize::try_from(number(at.checked_add(32)?, 8)?).ok()?;
        let path = bytes.get(start..start.checked_add(length)?)?;
        let path = path.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(path).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{Isa, Program};

    /// A file for `machine` with one program header of the type `kind`, which shows `/lib/ld`.
    fn elf(machine: u16, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..58].copy_from_slice(&[56, 0, 1, 0]);
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes[72..80].copy_from_slice(&120_u64.to_le_bytes());
        bytes[96..104].copy_from_slice(&8_u64.to_le_bytes());
        bytes.extend(b"/lib/ld\0");
        bytes
    }

    #[test]
    fn the_isa_and_the_loader_are_read() {
        let found = Program::read(&elf(183, 3));
        assert!(found.is_for(Isa::Aarch64) && !found.is_for(Isa::X86_64));
        let loader = Some("/lib/ld".to_owned());
        assert_eq!(found, Program::Elf { isa: "aarch64".to_owned(), loader });
        let found = Program::read(&elf(62, 1));
        assert_eq!(found, Program::Elf { isa: "x86_64".to_owned(), loader: None });
    }

    #[test]
    fn other_files_are_told_apart_and_no_length_is_believed() {
        assert_eq!(Program::read(b"#!/bin/sh\n"), Program::Script);
        assert_eq!(Program::read(b"\x7fELF"), Program::Other);
        assert_eq!(Program::read(b"text"), Program::Other);
        let mut wild = elf(62, 3);
        wild[96..104].fill(0xff);
        assert_eq!(Program::read(&wild), Program::Elf { isa: "x86_64".to_owned(), loader: None });
        wild[32..40].fill(0xff);
        assert_eq!(Program::read(&wild), Program::Elf { isa: "x86_64".to_owned(), loader: None });
    }
}
