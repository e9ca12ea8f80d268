//! Programs, well made and not.

use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::Errno;

/// A file that gives a few bytes at a time.
struct File(Vec<u8>);

impl Read for File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> CallResult<usize> {
        let Some(rest) = self.0.get(offset as usize..) else { return Ok(0) };
        let count = rest.len().min(into.len()).min(40);
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

struct Broken;

impl Read for Broken {
    fn read_at(&self, _: u64, _: &mut [u8]) -> CallResult<usize> {
        Err(Errno::EIO)
    }

    fn len(&self) -> u64 {
        1 << 20
    }
}

const R: u32 = abi::PF_R;
const W: u32 = abi::PF_W;
const X: u32 = abi::PF_X;

fn space() -> Space {
    Space { page_bytes: 4096, user: 0x1_0000..1 << 47 }
}

/// Kind, flags, offset, address, bytes in the file and in memory.
type Header = (u32, u32, u64, u64, u64, u64);

const TEXT: Header = (abi::PT_LOAD, R | X, 0, 0x40_0000, 0x1800, 0x1800);
const DATA: Header = (abi::PT_LOAD, R | W, 0x1800, 0x40_2800, 0x400, 0x2000);

fn elf(kind: u16, entry: u64, headers: &[Header]) -> File {
    let mut bytes = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&abi::EM_X86_64.to_le_bytes());
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    for word in [entry, 64, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64, 56, headers.len() as u16, 64, 0, 0] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    for &(kind, flags, offset, address, in_file, in_memory) in headers {
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        for word in [offset, address, address, in_file, in_memory, 0x1000] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes.resize(bytes.len().max(0x1c00), 0);
    File(bytes)
}

fn planned(file: &File) -> Result<Plan, ExecError> {
    plan(file, Machine::X86_64, &space())
}

/// The plan of a fixed program with these headers that begins in [`TEXT`].
fn fixed(headers: &[Header]) -> Result<Plan, ExecError> {
    planned(&elf(abi::ET_EXEC, 0x40_1000, headers))
}

#[test]
fn segments_give_the_place_of_bytes_and_of_zeros() {
    let plan = fixed(&[DATA, TEXT]).unwrap();
    let [text, data] = &plan.segments[..] else { panic!("{plan:?}") };
    assert_eq!(text.pages, 0x40_0000..0x40_2000);
    assert_eq!(text.rights, Rights { read: true, write: false, execute: true });
    assert_eq!(data.pages, 0x40_2000..0x40_5000);
    assert_eq!((data.file_start, data.file_offset, data.file_bytes), (0x40_2800, 0x1800, 0x400));
    assert_eq!((data.file_end(), data.zero_end), (0x40_2c00, 0x40_4800));
    assert_eq!(data.rights, Rights { read: true, write: true, execute: false });
    assert_eq!((plan.entry, plan.brk), (0x40_1000, 0x40_5000));
    assert_eq!((plan.headers, plan.header_count), (Some(0x40_0040), 2));
    assert_eq!((plan.span(), plan.alignment), (0x40_0000..0x40_5000, None));
    assert!(!plan.is_stack_executable);
}

#[test]
fn the_program_says_whether_its_stack_may_be_run() {
    let stack = |flags| fixed(&[TEXT, (abi::PT_GNU_STACK, flags, 0, 0, 0, 0)]).unwrap();
    assert!(stack(R | W | X).is_stack_executable);
    assert!(!stack(R | W).is_stack_executable);
}

#[test]
fn headers_that_are_not_loaded_have_no_address() {
    let plan = fixed(&[(abi::PT_LOAD, X, 0x1000, 0x40_1000, 0x400, 0x400)]).unwrap();
    assert_eq!(plan.headers, None);
}

#[test]
fn a_segment_without_bytes_of_the_file_may_have_any_offset() {
    let plan = fixed(&[TEXT, (abi::PT_LOAD, R | W, u64::MAX, 0x50_0010, 0, 16)]).unwrap();
    let bss = &plan.segments[1];
    assert_eq!((bss.file_end(), bss.zero_end), (0x50_0010, 0x50_0020));
}

#[test]
fn a_program_that_may_move_is_placed_once_as_its_alignment_says() {
    let headers = [(abi::PT_LOAD, R | X, 0, 0, 0x1800, 0x1800), {
        (abi::PT_LOAD, R | W, 0x1800, 0x2800, 0x400, 0x2000)
    }];
    let mut plan = planned(&elf(abi::ET_DYN, 0x1000, &headers)).unwrap();
    assert_eq!(plan.alignment, Some(0x1000));
    let before = plan.clone();
    assert_eq!(plan.place(0x10_0800, &space()), Err(ExecError::Bias { bias: 0x10_0800 }));
    for bias in [0, (1 << 47) - 0x4000, u64::MAX - 0xfff] {
        let error = plan.place(bias, &space()).unwrap_err();
        assert!(matches!(error, ExecError::OutOfReach { .. }), "{error}");
    }
    assert_eq!(plan, before);

    let bias = plan.usual_bias(&space());
    assert!(bias.is_multiple_of(0x1000) && bias > 1 << 46);
    plan.place(bias, &space()).unwrap();
    assert_eq!(plan.span(), bias..bias + 0x5000);
    assert_eq!((plan.entry, plan.brk), (bias + 0x1000, bias + 0x5000));
    assert_eq!(plan.headers, Some(bias + 64));
    assert_eq!(plan.segments[1].file_start, bias + 0x2800);
    assert_eq!(plan.segments[1].zero_end, bias + 0x4800);
    assert_eq!(plan.place(0, &space()), Err(ExecError::Bias { bias: 0 }));
}

#[test]
fn a_large_program_gets_a_lower_bias() {
    let huge = (abi::PT_LOAD, R | W | X, 0, 0, 0x1800, 1 << 46);
    let mut plan = planned(&elf(abi::ET_DYN, 0x1000, &[huge])).unwrap();
    let bias = plan.usual_bias(&space());
    assert_eq!(bias, 1 << 46);
    plan.place(bias, &space()).unwrap();
}

#[test]
fn a_program_for_another_machine_is_refused() {
    let refused = |at: usize, byte: u8| {
        let mut file = elf(abi::ET_EXEC, 0x40_1000, &[TEXT]);
        file.0[at] = byte;
        planned(&file).unwrap_err()
    };
    assert_eq!(refused(0, 0x7e), ExecError::NotElf);
    assert_eq!(refused(6, 2), ExecError::NotElf);
    assert_eq!(refused(4, 1), ExecError::WrongClass { found: 1 });
    assert_eq!(refused(4, 7), ExecError::WrongClass { found: 7 });
    assert_eq!(refused(5, 2), ExecError::WrongByteOrder { found: 2 });
    assert_eq!(refused(16, 1), ExecError::WrongKind { found: 1 });
    assert_eq!(refused(18, 183), ExecError::WrongMachine { found: 183 });
    assert_eq!(refused(54, 32), ExecError::HeaderSize { found: 32 });
    let file = elf(abi::ET_EXEC, 0x40_1000, &[TEXT]);
    let other = plan(&file, Machine::Aarch64, &space());
    assert_eq!(other, Err(ExecError::WrongMachine { found: 62 }));
}

#[test]
fn a_program_names_its_loader() {
    let with = |text: &[u8], bytes: u64| {
        let mut file =
            elf(abi::ET_EXEC, 0x40_1000, &[TEXT, (abi::PT_INTERP, R, 0x200, 0, bytes, bytes)]);
        file.0[0x200..0x200 + text.len()].copy_from_slice(text);
        planned(&file).map(|plan| plan.loader)
    };
    assert_eq!(with(b"/lib/ld.so\0", 11), Ok(Some(b"/lib/ld.so".to_vec())));
    assert_eq!(fixed(&[TEXT]).map(|plan| plan.loader), Ok(None));
    for (text, bytes) in
        [(&b"/lib/ld.so"[..], 10), (b"\0", 1), (b"/a\0b\0", 5), (b"", 0), (b"", 4097)]
    {
        let error = with(text, bytes).unwrap_err();
        assert_eq!((error, error.errno()), (ExecError::Loader { bytes }, Errno::ENOEXEC));
    }
    assert!(ExecError::Loader { bytes: 9 }.to_string().contains("9 bytes"));
}

#[test]
fn a_loader_goes_as_high_as_it_may() {
    let mut plan =
        planned(&elf(abi::ET_DYN, 0x1000, &[(abi::PT_LOAD, R | X, 0, 0, 0x1800, 0x1800)])).unwrap();
    plan.place(plan.loader_bias(&space()), &space()).unwrap();
    assert_eq!(plan.span().start, space().user.end - (2 << 20), "aligned as a large folio is");
    assert_eq!(plan.loader_bias(&space()), 0, "it does not move again");
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let whole = elf(abi::ET_EXEC, 0x40_1000, &[TEXT, DATA]);
    for length in [0, 1, 15, 16, 63, 64, 119, 175, 176, 0x17ff, 0x1bff] {
        let cut = File(whole.0[..length].to_vec());
        let error = planned(&cut).unwrap_err();
        assert!(matches!(error, ExecError::Truncated { length: l, .. } if l == length as u64));
    }
    assert_eq!(plan(&Broken, Machine::X86_64, &space()), Err(ExecError::Unreadable(Errno::EIO)));
}

#[test]
fn there_must_be_segments_and_not_too_many_headers() {
    assert_eq!(fixed(&[]), Err(ExecError::NoSegments));
    assert_eq!(fixed(&[(abi::PT_NOTE, R, 0, 0, 0, 0)]), Err(ExecError::NoSegments));
    assert_eq!(fixed(&[(abi::PT_LOAD, R, 0, 0x40_0000, 0, 0)]), Err(ExecError::NoSegments));
    let notes = |count| {
        let mut headers = std::vec![(abi::PT_NOTE, R, 0, 0, 0, 0); count];
        headers[0] = TEXT;
        fixed(&headers)
    };
    assert!(notes(73).is_ok());
    assert_eq!(notes(74), Err(ExecError::TooManyHeaders { found: 74 }));
}

#[test]
fn segments_that_cannot_be_are_refused() {
    let with = |header| fixed(&[TEXT, header]).unwrap_err();
    let address = 0x50_0000;
    let small = with((abi::PT_LOAD, R, 0, address, 0x800, 0x7ff));
    assert_eq!(small, ExecError::LargerThanItsMemory { address });
    let crooked = with((abi::PT_LOAD, R, 0x10, address, 0x800, 0x800));
    assert_eq!(crooked, ExecError::Misaligned { address, offset: 0x10 });
    let wrapped = with((abi::PT_LOAD, R, !0xfff, address, 0x2000, 0x2000));
    assert_eq!(wrapped, ExecError::Truncated { needed: u64::MAX, length: 0x1c00 });
    let shared = with((abi::PT_LOAD, R | W, 0x1800, 0x40_1800, 0x10, 0x10));
    assert_eq!(shared, ExecError::Overlap { address: 0x40_1800 });
    let below = with((abi::PT_LOAD, R, 0, 0x3f_f000, 0x1000, 0x1001));
    assert_eq!(below, ExecError::Overlap { address: 0x40_0000 });
}

#[test]
fn a_segment_outside_the_address_space_is_refused_as_too_large() {
    let top = 1 << 47;
    for (address, bytes) in [
        (top - 0x1000, 0x1001),
        (top, 1),
        (u64::MAX - 0xfff, 1),
        (u64::MAX - 0xfff, 0x1000),
        (0x50_0000, u64::MAX),
        (0x50_0000, top),
        (0, 0x1000),
    ] {
        let error = fixed(&[TEXT, (abi::PT_LOAD, R, 0, address, 0, bytes)]).unwrap_err();
        assert_eq!(error, ExecError::OutOfReach { address, bytes });
        assert_eq!(error.errno(), Errno::ENOMEM);
    }
    let last = (abi::PT_LOAD, R, 0, top - 0x1000, 0, 0x1000);
    assert_eq!(fixed(&[TEXT, last]).unwrap().brk, top);
}

#[test]
fn the_entry_must_be_in_a_segment_that_may_be_run() {
    for entry in [0, 0x3f_ffff, 0x40_1800, 0x40_2800, u64::MAX] {
        let error = planned(&elf(abi::ET_EXEC, entry, &[TEXT, DATA]));
        assert_eq!(error, Err(ExecError::Entry { address: entry }));
    }
}

proptest! {
    #[test]
    fn no_file_makes_a_plan_that_is_not_sound(
        changes in prop::collection::vec((0_usize..300, any::<u8>()), 0..12),
        words in prop::collection::vec((0_usize..14, any::<u64>(), 0_u32..64), 0..3),
        kind in prop::sample::select(std::vec![abi::ET_EXEC, abi::ET_DYN]),
        bias in any::<u64>(),
    ) {
        let mut file = elf(kind, 0x40_1000, &[TEXT, DATA]);
        for (at, value, shift) in words {
            file.0[64 + 8 * at..][..8].copy_from_slice(&(value >> shift).to_le_bytes());
        }
        for (at, byte) in changes {
            file.0[16 + at] = byte;
        }
        let Ok(mut plan) = planned(&file) else { return Ok(()) };
        if plan.alignment.is_some() && plan.place(bias & !0xfff, &space()).is_err() {
            let usual = plan.usual_bias(&space());
            if plan.place(usual, &space()).is_err() {
                return Ok(());
            }
        }
        let mut end = space().user.start;
        for segment in &plan.segments {
            prop_assert!(segment.pages.start >= end && segment.pages.end <= space().user.end);
            prop_assert!(segment.pages.start <= segment.file_start);
            prop_assert!(segment.file_end() <= segment.zero_end);
            prop_assert!(segment.zero_end <= segment.pages.end);
            let in_file = segment.file_offset.saturating_add(segment.file_bytes);
            prop_assert!(segment.file_bytes == 0 || in_file <= file.len());
            end = segment.pages.end;
        }
        prop_assert_eq!(plan.brk, end);
    }
}
