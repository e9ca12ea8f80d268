//! Frames at the places where Linux has them. The numbers are from `offsetof` on Linux 6 with the
//! headers <asm/ucontext.h>, <asm/sigcontext.h> and <asm/siginfo.h>: of `struct ucontext` (304
//! bytes) flags 0, stack 16, mcontext 40, sigmask 296; of `struct sigcontext` (256 bytes) r8 0,
//! rdi 64, rsp 120, rip 128, eflags 136, cs 144, ss 150, err 152, trapno 160, oldmask 168, cr2 176,
//! fpstate 184; of `struct _fpstate` mxcsr 24, sw_reserved 464. `rt_sigframe` has 8 bytes before
//! the ucontext, and the siginfo after it.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::super::super::{Action, Handler, Info, Signal, code};
use super::*;

const SP: u64 = 0x7fff_0000_0123;
const ALT: AltStack = AltStack { start: 0x10_0000, flags: 0, bytes: 0x2000 };

fn registers() -> Registers {
    let words = core::array::from_fn(|index| 0x100 + index as u64);
    let mut registers = Registers::of_words(words);
    (registers.rsp, registers.rip, registers.rflags) = (SP, 0x40_1234, 0x246);
    (registers.error, registers.trap, registers.cr2) = (6, 14, 0xdead_0000);
    registers
}

fn action(flags: Flags) -> Action {
    let (handler, mask) = (Handler::At(0x40_5678), Set::EMPTY);
    Action { handler, flags: flags | Flags::RESTORER, restorer: 0x40_9abc, mask }
}

fn built(vectors: &Vectors<'_>, flags: Flags, alt_stack: AltStack) -> Result<Frame<Registers>> {
    let info = Info::fault(Signal::SEGV, code::SEGV_UNMAPPED, 0xdead_0000);
    let blocked = Set(0x8000_0000_0000_0001);
    let delivery = Delivery { info: &info, action: &action(flags), blocked, alt_stack };
    build(&registers(), vectors, &delivery)
}

fn legacy() -> Vec<u8> {
    let mut area: Vec<u8> = (0..512_usize).map(|at| at as u8).collect();
    put_u32(&mut area, 24, 0x1f80);
    area
}

fn xsave() -> Vec<u8> {
    let mut area = legacy();
    area.resize(832, 0);
    put_u64(&mut area, 512, 7);
    area[576..].fill(0xaa);
    area
}

fn head(frame: &Frame<Registers>) -> &[u8; FRAME_BYTES] {
    frame.bytes.first_chunk().unwrap()
}

#[test]
fn a_frame_has_everything_where_linux_has_it() {
    let area = xsave();
    let frame = built(&Vectors { area: &area, features: 7 }, Flags::INFO, AltStack::NONE).unwrap();
    let word = |at| get_u64(&frame.bytes, at);
    assert_eq!(word(0), 0x40_9abc);
    assert_eq!(word(8), 7, "UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS");
    assert_eq!((word(16), word(24), word(32) as u32, word(40)), (0, 0, 2, 0));
    assert_eq!((word(48), word(48 + 56)), (0x100, 0x107), "r8, r15");
    assert_eq!((word(48 + 64), word(48 + 112)), (0x108, 0x10e), "rdi, rcx");
    assert_eq!((word(48 + 120), word(48 + 128), word(48 + 136)), (SP, 0x40_1234, 0x246));
    assert_eq!(word(48 + 144), 0x002b_0000_0000_0033, "cs, gs, fs, ss");
    assert_eq!((word(48 + 152), word(48 + 160)), (6, 14));
    assert_eq!((word(48 + 168), word(48 + 176)), (0x8000_0000_0000_0001, 0xdead_0000));
    assert_eq!(word(8 + 296), 0x8000_0000_0000_0001);
    assert_eq!((word(312) as u32, word(312 + 16)), (11, 0xdead_0000));

    let vectors = (word(48 + 184) - frame.address) as usize;
    assert_eq!(frame.bytes.len(), vectors + 836);
    assert_eq!(frame.bytes[vectors..vectors + 464], area[..464]);
    assert_eq!(frame.bytes[vectors + 512..vectors + 832], area[512..]);
    assert_eq!(frame.bytes[vectors + 464..vectors + 468], *b"SXPF");
    assert_eq!(get_u32(&frame.bytes, vectors + 468), 836);
    assert_eq!((word(vectors + 472), get_u32(&frame.bytes, vectors + 480)), (7, 832));
    assert_eq!(frame.bytes[vectors + 832..], *b"EXPF");
}

#[test]
fn a_frame_lies_below_the_red_zone_and_is_aligned() {
    for area in [legacy(), xsave()] {
        let frame = built(&Vectors { area: &area, features: 7 }, Flags::INFO, AltStack::NONE);
        let frame = frame.unwrap();
        assert!((frame.address + 8).is_multiple_of(16));
        assert!(get_u64(&frame.bytes, 48 + 184).is_multiple_of(64));
        let end = frame.address + frame.bytes.len() as u64;
        assert!(end <= SP - 128 && end > SP - 128 - 64);
        assert!(SP - frame.address <= stack_bytes(area.len()) + 128);
    }
}

#[test]
fn the_handler_gets_its_arguments_and_keeps_the_rest() {
    let mut before = registers();
    before.rflags |= 0x1_0500 | 0x40000;
    let info = Info::kill(Signal::USR1, 1, 2);
    let action = action(Flags::empty());
    let (blocked, alt_stack) = (Set::EMPTY, AltStack::NONE);
    let delivery = Delivery { info: &info, action: &action, blocked, alt_stack };
    let frame = build(&before, &Vectors { area: &legacy(), features: 0 }, &delivery).unwrap();
    let at = frame.address;
    let (rip, rflags, rax) = (0x40_5678, 0x4_0246, 0);
    let (rdi, rsi, rdx, rsp) = (10, at + 312, at + 8, at);
    let expected = Registers { rip, rflags, rax, rdi, rsi, rdx, rsp, ..before };
    assert_eq!(frame.registers, expected);
}

#[test]
fn a_built_frame_parses_back() {
    for area in [legacy(), xsave()] {
        let frame = built(&Vectors { area: &area, features: 7 }, Flags::INFO, ALT).unwrap();
        let (back, vectors_at) = parse(head(&frame)).unwrap();
        let expected = Registers { error: 0, trap: 0, cr2: 0, ..registers() };
        assert_eq!(back.registers, expected);
        assert_eq!((back.blocked, back.alt_stack), (Set(0x8000_0000_0000_0001), ALT));

        let saved = &frame.bytes[(vectors_at - frame.address) as usize..];
        assert_eq!(saved_bytes(saved.first_chunk().unwrap(), area.len()), saved.len());
        let mut restored = vec![0x55; area.len()];
        restore_vectors(saved, 7, &mut restored).unwrap();
        assert_eq!(restored[..464], area[..464]);
        assert_eq!(restored[464..512], [0; 48]);
        assert_eq!(restored[512..], area[512..]);
    }
}

#[test]
fn the_alternative_stack_is_used_when_wanted_and_never_overrun() {
    let area = legacy();
    let vectors = Vectors { area: &area, features: 0 };
    let frame = built(&vectors, Flags::ON_STACK, ALT).unwrap();
    let end = frame.address + frame.bytes.len() as u64;
    assert_eq!(end, ALT.end(), "no red zone there");
    assert!(built(&vectors, Flags::empty(), ALT).unwrap().address > ALT.end());
    let small = AltStack { bytes: 900, ..ALT };
    assert_eq!(built(&vectors, Flags::ON_STACK, small), Err(Errno::EFAULT));
    // A second signal on the same stack goes on below the first.
    let nested = |rsp, flags| {
        let info = Info::kernel(Signal::TERM);
        let (action, blocked) = (action(flags), Set::EMPTY);
        let delivery = Delivery { info: &info, action: &action, blocked, alt_stack: ALT };
        build(&Registers { rsp, ..registers() }, &vectors, &delivery)
    };
    for flags in [Flags::ON_STACK, Flags::empty()] {
        assert!(nested(frame.address, flags).unwrap().address < frame.address);
        assert_eq!(nested(ALT.start + 1000, flags), Err(Errno::EFAULT));
    }
}

#[test]
fn a_program_without_restorer_handler_or_room_gets_no_frame() {
    let area = legacy();
    let vectors = Vectors { area: &area, features: 0 };
    let (info, blocked, alt_stack) = (Info::kernel(Signal::INT), Set::EMPTY, AltStack::NONE);
    let with = |action: Action, rsp| {
        let delivery = Delivery { info: &info, action: &action, blocked, alt_stack };
        build(&Registers { rsp, ..registers() }, &vectors, &delivery).err()
    };
    let good = action(Flags::empty());
    assert_eq!(with(good, SP), None);
    assert_eq!(with(Action { flags: Flags::empty(), ..good }, SP), Some(Errno::EFAULT));
    for address in [USER_END, 0x8000_0000_0000_0000, u64::MAX] {
        let handler = Handler::At(address);
        assert_eq!(with(Action { handler, ..good }, SP), Some(Errno::EFAULT));
    }
    assert_eq!(with(Action::DEFAULT, SP), Some(Errno::EINVAL));
    for rsp in [0, 127, 128, 640, 1080] {
        assert_eq!(with(good, rsp), Some(Errno::EFAULT), "{rsp}");
    }
    let odd = Vectors { area: &[0; 513], features: 0 };
    assert_eq!(built(&odd, Flags::INFO, AltStack::NONE), Err(Errno::EINVAL));
}

#[test]
fn a_hostile_frame_changes_only_a_programs_own_state() {
    let mut bytes = [0xff; FRAME_BYTES];
    assert_eq!(parse(&bytes), Err(Errno::EFAULT), "the program counter is not canonical");
    for rip in [1 << 47, 0xffff_8000_0000_0000, 1 << 63] {
        put_u64(&mut bytes, 48 + 128, rip);
        assert_eq!(parse(&bytes), Err(Errno::EFAULT));
    }
    put_u64(&mut bytes, 48 + 128, (1 << 47) - 1);
    let (back, vectors_at) = parse(&bytes).unwrap();
    assert_eq!(back.registers.rflags, 0x5_0fd7, "no IOPL, NT, VM, VIF, VIP, ID");
    assert_eq!(back.blocked, Set(!0x4_0100));
    assert_eq!((back.registers.trap, vectors_at), (0, u64::MAX));
    assert!(back.alt_stack.changed(back.alt_stack, 0, 2048).is_err());
    let (back, _) = parse(&[0; FRAME_BYTES]).unwrap();
    assert_eq!(back.registers.rflags, 0x202);
}

#[test]
fn vector_state_without_its_notes_is_taken_without_its_extensions() {
    let area = xsave();
    let frame = built(&Vectors { area: &area, features: 7 }, Flags::INFO, AltStack::NONE).unwrap();
    let saved = &frame.bytes[frame.bytes.len() - 836..];
    let size = |at: usize, value: u32| {
        let mut changed = *saved.first_chunk().unwrap();
        put_u32(&mut changed, at, value);
        saved_bytes(&changed, 832)
    };
    assert_eq!(size(464, MAGIC1), 836);
    for (at, value) in [(464, 0), (468, 0), (480, 575), (480, 833), (480, u32::MAX), (468, 840)] {
        assert_eq!(size(at, value), 512, "{at} {value}");
    }
    let mut larger = *saved.first_chunk().unwrap();
    put_u32(&mut larger, 468, 900);
    put_u32(&mut larger, 480, 896);
    assert_eq!((saved_bytes(&larger, 896), saved_bytes(&larger, 832)), (900, 512));
    let mut restored = vec![0x55; 832];
    let mut cut = saved.to_vec();
    cut[835] = 0;
    for legacy_only in [&cut[..], &saved[..512]] {
        restore_vectors(legacy_only, 7, &mut restored).unwrap();
        assert_eq!(restored[..464], area[..464]);
        assert_eq!(get_u64(&restored, 512), 3, "x87 and SSE");
        assert_eq!(restored[520..], [0; 312]);
    }
    assert_eq!(restore_vectors(&saved[..511], 7, &mut restored), Err(Errno::EINVAL));
    assert_eq!(restore_vectors(saved, 7, &mut [0; 511]), Err(Errno::EINVAL));
}

#[test]
fn clean_vector_state_is_that_of_a_new_program() {
    let mut area = vec![0x55; 832];
    clear_vectors(&mut area).unwrap();
    assert_eq!((area[0], area[1], get_u32(&area, 24)), (0x7f, 3, 0x1f80));
    assert_eq!(area.iter().filter(|&&byte| byte != 0).count(), 4);
    assert_eq!(clear_vectors(&mut area[..100]), Err(Errno::EINVAL));
}

proptest! {
    #[test]
    fn no_bytes_make_vector_state_that_faults(
        mut saved in prop::collection::vec(any::<u8>(), 512..900),
        marked in any::<bool>(),
        features in any::<u64>(),
    ) {
        let length = saved.len();
        if marked {
            put_u32(&mut saved, length - 4, MAGIC2);
        }
        let mut area = vec![0; 832];
        restore_vectors(&saved, features, &mut area).unwrap();
        prop_assert_eq!(get_u32(&area, 24) & !0xffff, 0);
        prop_assert_eq!(get_u64(&area, 512) & !features, 0);
        prop_assert!(area[520..576].iter().all(|&byte| byte == 0));
    }
}
