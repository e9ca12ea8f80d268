//! Frames at the places where Linux has them. The numbers are from `offsetof` with a compiler for
//! riscv64: of `struct ucontext` (960 bytes) flags 0, stack 16, sigmask 40, mcontext 176; of
//! `struct sigcontext` (784 bytes) registers 0, floating point 256, its fcsr 512, the reserved
//! words 772. `rt_sigframe` (1088 bytes) has the siginfo first, and the ucontext at 128.

use super::super::super::{Action, Flags, Handler, Info, Signal, code};
use super::*;

const STACK: u64 = 0x3f_ffff_0128;
const ALT: AltStack = AltStack { start: 0x10_0000, flags: 0, bytes: 0x4000 };
const TRAMPOLINE: u64 = 0x7000_0000;

fn registers() -> Registers {
    let mut regs = core::array::from_fn(|index| 0x101 + index as u64);
    regs[SP] = STACK;
    let floats = core::array::from_fn(|index| (index as u64) << 32 | 0xabcd);
    Registers { pc: 0x40_1234, regs, floats, fcsr: 0x61 }
}

fn built(from: &Registers, flags: Flags, alt_stack: AltStack) -> Result<Frame<Registers>> {
    let info = Info::fault(Signal::SEGV, code::SEGV_UNMAPPED, 0xdead_0000);
    let blocked = Set(0x8000_0000_0000_0001);
    let (handler, mask) = (Handler::At(0x40_5678), Set::EMPTY);
    let action = Action { handler, flags, restorer: 0, mask };
    let delivery = Delivery { info: &info, action: &action, blocked, alt_stack };
    build(from, &delivery, TRAMPOLINE)
}

fn head(frame: &Frame<Registers>) -> &[u8; FRAME_BYTES] {
    frame.bytes.first_chunk().unwrap()
}

#[test]
fn a_frame_has_everything_where_linux_has_it() {
    let frame = built(&registers(), Flags::INFO, ALT).unwrap();
    let (word, half) = (|at| get_u64(&frame.bytes, at), |at| get_u32(&frame.bytes, at));
    assert_eq!((half(0), word(16)), (11, 0xdead_0000));
    assert_eq!((word(128), word(136)), (0, 0));
    assert_eq!((word(144), half(152), word(160)), (0x10_0000, 0, 0x4000));
    assert_eq!(word(168), 0x8000_0000_0000_0001);
    assert_eq!((word(304), word(312), word(320)), (0x40_1234, 0x101, STACK));
    assert_eq!(word(304 + 8 * 31), 0x11f, "x31");
    assert_eq!((word(560), word(560 + 8 * 31)), (0xabcd, 31 << 32 | 0xabcd));
    assert_eq!((half(816), half(1076), word(1080)), (0x61, 0, 0));
    assert_eq!(frame.bytes.len(), 1088);
    assert_eq!(frame.address, (STACK - 1088) & !15);
}

#[test]
fn the_handler_gets_its_arguments_and_keeps_the_rest() {
    let frame = built(&registers(), Flags::INFO, AltStack::NONE).unwrap();
    let at = frame.address;
    let mut expected = Registers { pc: 0x40_5678, ..registers() };
    (expected.regs[RA], expected.regs[SP]) = (TRAMPOLINE, at);
    expected.regs[9..12].copy_from_slice(&[11, at, at + 128]);
    assert_eq!(frame.registers, expected);
    assert!(at.is_multiple_of(16));
}

#[test]
fn a_built_frame_parses_back() {
    let frame = built(&registers(), Flags::INFO, ALT).unwrap();
    let back = parse(head(&frame)).unwrap();
    assert_eq!(back.registers, registers());
    assert_eq!((back.blocked, back.alt_stack), (Set(0x8000_0000_0000_0001), ALT));
}

#[test]
fn the_alternative_stack_is_used_when_wanted_and_never_overrun() {
    let frame = built(&registers(), Flags::ON_STACK, ALT).unwrap();
    assert_eq!(frame.address + frame.bytes.len() as u64, ALT.end());
    assert!(built(&registers(), Flags::empty(), ALT).unwrap().address > ALT.end());
    let small = AltStack { bytes: 1072, ..ALT };
    assert_eq!(built(&registers(), Flags::ON_STACK, small), Err(Errno::EFAULT));
    assert!(built(&registers(), Flags::ON_STACK, AltStack { bytes: STACK_BYTES, ..ALT }).is_ok());
    let mut full = registers();
    full.regs[SP] = ALT.start + 1072;
    assert_eq!(built(&full, Flags::ON_STACK, ALT), Err(Errno::EFAULT));
}

#[test]
fn a_program_without_handler_or_room_gets_no_frame() {
    for sp in [0, 15, 16, 1087] {
        let mut low = registers();
        low.regs[SP] = sp;
        assert_eq!(built(&low, Flags::INFO, AltStack::NONE), Err(Errno::EFAULT));
    }
    let info = Info::kernel(Signal::INT);
    let (blocked, alt_stack) = (Set::EMPTY, AltStack::NONE);
    let delivery = Delivery { info: &info, action: &Action::DEFAULT, blocked, alt_stack };
    assert_eq!(build(&registers(), &delivery, TRAMPOLINE), Err(Errno::EINVAL));
}

#[test]
fn a_hostile_frame_blocks_no_signal_that_cannot_be_and_adds_no_records() {
    let frame = built(&registers(), Flags::INFO, AltStack::NONE).unwrap();
    let mut bytes = *head(&frame);
    put_u64(&mut bytes, 168, u64::MAX);
    assert_eq!(parse(&bytes).unwrap().blocked, Set(!0x4_0100));
    for at in [1076, 1080, 1084] {
        let mut bytes = *head(&frame);
        put_u32(&mut bytes, at, 1);
        assert_eq!(parse(&bytes), Err(Errno::EFAULT));
    }
}
