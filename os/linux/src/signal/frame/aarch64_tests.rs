//! Frames at the places where Linux has them. The numbers are from `offsetof` with a compiler for
//! arm64: of `struct ucontext` (4560 bytes) flags 0, stack 16, sigmask 40, mcontext 176; of
//! `struct sigcontext` (4384 bytes) fault_address 0, regs 8, sp 256, pc 264, pstate 272, records
//! 288; of `struct fpsimd_context` (528 bytes) magic 0, size 4, fpsr 8, fpcr 12, vregs 16.
//! `rt_sigframe` (4688 bytes) has the siginfo first, and the ucontext at 128.

use std::boxed::Box;

use proptest::prelude::*;

use super::super::super::{Action, Handler, Info, Signal, code};
use super::*;

const STACK: u64 = 0x7fff_0000_0128;
const ALT: AltStack = AltStack { start: 0x10_0000, flags: 0, bytes: 0x4000 };
const TRAMPOLINE: u64 = 0x7000_0000;

fn registers() -> Registers {
    Registers {
        regs: core::array::from_fn(|index| 0x100 + index as u64),
        sp: STACK,
        pc: 0x40_1234,
        pstate: 0x6000_0000,
        fault_address: 0xdead_0000,
        syndrome: 0,
        vregs: core::array::from_fn(|index| (index as u128) << 64 | 0xabcd),
        fpsr: 0x10,
        fpcr: 0x0100_0000,
    }
}

fn action(flags: Flags) -> Action {
    let (handler, mask) = (Handler::At(0x40_5678), Set::EMPTY);
    Action { handler, flags, restorer: 0x40_9abc, mask }
}

fn built(from: &Registers, flags: Flags, alt_stack: AltStack) -> Result<Frame<Registers>> {
    let info = Info::fault(Signal::SEGV, code::SEGV_UNMAPPED, 0xdead_0000);
    let blocked = Set(0x8000_0000_0000_0001);
    let delivery = Delivery { info: &info, action: &action(flags), blocked, alt_stack };
    build(from, &delivery, TRAMPOLINE)
}

fn head(frame: &Frame<Registers>) -> &[u8; FRAME_BYTES] {
    frame.bytes.first_chunk().unwrap()
}

#[test]
fn a_frame_has_everything_where_linux_has_it() {
    let with_syndrome = Registers { syndrome: 0x9200_0045, ..registers() };
    let frame = built(&with_syndrome, Flags::INFO, ALT).unwrap();
    let (word, half) = (|at| get_u64(&frame.bytes, at), |at| get_u32(&frame.bytes, at));
    assert_eq!((half(0), word(16)), (11, 0xdead_0000));
    assert_eq!((word(128), word(136)), (0, 0));
    assert_eq!((word(144), half(152), word(160)), (0x10_0000, 0, 0x4000));
    assert_eq!(word(168), 0x8000_0000_0000_0001);
    assert_eq!(word(304), 0xdead_0000);
    assert_eq!((word(312), word(312 + 240)), (0x100, 0x11e), "x0, x30");
    assert_eq!((word(560), word(568), word(576)), (STACK, 0x40_1234, 0x6000_0000));
    assert_eq!((half(592), half(596)), (0x4650_8001, 528));
    assert_eq!((half(600), half(604)), (0x10, 0x0100_0000));
    assert_eq!((word(608), word(616), word(608 + 31 * 16 + 8)), (0xabcd, 0, 31));
    assert_eq!((half(1120), half(1124), word(1128)), (0x4553_5201, 16, 0x9200_0045));
    assert_eq!(word(1136), 0);
    assert_eq!((word(4688), word(4696)), (0x11d, 0x11e), "the frame record");
    assert_eq!(frame.bytes.len(), 4704);
    assert_eq!(frame.address, (STACK & !15) - 4704);
}

#[test]
fn the_handler_gets_its_arguments_and_keeps_the_rest() {
    let before = Registers { pstate: 0x6000_0c00, ..registers() };
    for (flags, back) in [(Flags::INFO, TRAMPOLINE), (Flags::RESTORER, 0x40_9abc)] {
        let frame = built(&before, flags, AltStack::NONE).unwrap();
        let at = frame.address;
        let mut expected = Registers { sp: at, pc: 0x40_5678, pstate: 0x6000_0000, ..registers() };
        expected.regs[..3].copy_from_slice(&[11, at, at + 128]);
        expected.regs[29..].copy_from_slice(&[at + 4688, back]);
        assert_eq!(frame.registers, expected);
        assert!(at.is_multiple_of(16));
    }
}

#[test]
fn a_built_frame_parses_back() {
    for syndrome in [0, 0x9200_0045] {
        let frame = built(&Registers { syndrome, ..registers() }, Flags::INFO, ALT).unwrap();
        let back = parse(head(&frame)).unwrap();
        assert_eq!(back.registers, Registers { fault_address: 0, ..registers() });
        assert_eq!((back.blocked, back.alt_stack), (Set(0x8000_0000_0000_0001), ALT));
    }
}

#[test]
fn the_alternative_stack_is_used_when_wanted_and_never_overrun() {
    let frame = built(&registers(), Flags::ON_STACK, ALT).unwrap();
    assert_eq!(frame.address + frame.bytes.len() as u64, ALT.end());
    assert!(built(&registers(), Flags::empty(), ALT).unwrap().address > ALT.end());
    let small = AltStack { bytes: 4704, ..ALT };
    assert_eq!(built(&registers(), Flags::ON_STACK, small), Err(Errno::EFAULT));
    assert!(built(&registers(), Flags::ON_STACK, AltStack { bytes: STACK_BYTES, ..ALT }).is_ok());
    let nested = Registers { sp: frame.address, ..registers() };
    assert!(built(&nested, Flags::ON_STACK, ALT).unwrap().address < frame.address);
    let full = Registers { sp: ALT.start + 4704, ..registers() };
    assert_eq!(built(&full, Flags::ON_STACK, ALT), Err(Errno::EFAULT));
}

#[test]
fn a_program_without_handler_or_room_gets_no_frame() {
    for sp in [0, 15, 16, 4703] {
        let low = Registers { sp, ..registers() };
        assert_eq!(built(&low, Flags::INFO, AltStack::NONE), Err(Errno::EFAULT));
    }
    let info = Info::kernel(Signal::INT);
    let (blocked, alt_stack) = (Set::EMPTY, AltStack::NONE);
    let delivery = Delivery { info: &info, action: &Action::DEFAULT, blocked, alt_stack };
    assert_eq!(build(&registers(), &delivery, TRAMPOLINE), Err(Errno::EINVAL));
}

#[test]
fn a_hostile_frame_changes_only_a_programs_own_state() {
    let frame = built(&registers(), Flags::INFO, AltStack::NONE).unwrap();
    let mut bytes = *head(&frame);
    put_u64(&mut bytes, 576, u64::MAX);
    put_u64(&mut bytes, 168, u64::MAX);
    let back = parse(&bytes).unwrap();
    assert_eq!(back.registers.pstate, 0xf100_1c00, "EL0, 64 bits, nothing masked, no step");
    assert_eq!(back.blocked, Set(!0x4_0100));
}

#[test]
fn records_that_are_not_those_of_a_frame_are_refused() {
    let frame = built(&registers(), Flags::INFO, AltStack::NONE).unwrap();
    let good = *head(&frame);
    let with = |changes: &[(usize, u32)]| {
        let mut bytes = Box::new(good);
        changes.iter().for_each(|&(at, value)| put_u32(&mut *bytes, at, value));
        parse(&bytes).err()
    };
    assert_eq!(with(&[]), None);
    for changes in [
        &[(592, 0), (596, 0)][..],
        &[(592, 0)],
        &[(596, 0)],
        &[(596, 520)],
        &[(596, u32::MAX)],
        &[(592, 0x5356_4501)],
        &[(1120, FPSIMD_MAGIC), (1124, 528)],
        &[(1120, ESR_MAGIC), (1124, 0)],
        &[(1120, 0), (1124, 8)],
        &[(1120, 0x4558_5401), (1124, 32)],
    ] {
        assert_eq!(with(changes), Some(Errno::EFAULT), "{changes:x?}");
    }
}

#[test]
fn records_must_end_within_the_frame() {
    let mut bytes = Box::new([0; FRAME_BYTES]);
    for at in (RECORDS..FRAME_BYTES).step_by(ESR_BYTES) {
        put_u32(&mut *bytes, at, ESR_MAGIC);
        put_u32(&mut *bytes, at + 4, ESR_BYTES as u32);
    }
    assert_eq!(parse(&bytes), Err(Errno::EFAULT));
    // The vector state would reach beyond the end.
    put_u32(&mut *bytes, FRAME_BYTES - 16, FPSIMD_MAGIC);
    put_u32(&mut *bytes, FRAME_BYTES - 12, FPSIMD_BYTES as u32);
    assert_eq!(parse(&bytes), Err(Errno::EFAULT));
}

proptest! {
    #[test]
    fn no_frame_gives_more_than_a_programs_state(
        words in prop::collection::vec((0_usize..586, any::<u64>()), 0..40),
        records in prop::collection::vec((0_usize..586, prop::sample::select(std::vec![
            0, (528 << 32) | 0x4650_8001_u64, (16 << 32) | 0x4553_5201_u64,
        ])), 0..20),
    ) {
        let frame = built(&registers(), Flags::INFO, AltStack::NONE).unwrap();
        let mut bytes = Box::new(*head(&frame));
        for (index, word) in words.into_iter().chain(records) {
            put_u64(&mut *bytes, 8 * index, word);
        }
        if let Ok(back) = parse(&bytes) {
            prop_assert_eq!(back.registers.pstate & !PSTATE_USER, 0);
            prop_assert!(back.blocked.and(Set::UNSTOPPABLE).is_empty());
        }
    }
}
