//! Pending signals, their actions, and the stacks of handlers.

use std::vec::Vec;

use super::*;
use crate::Errno;

fn signal(number: u64) -> Signal {
    Signal::new(number).unwrap()
}

fn queued(number: u64, value: u64) -> Info {
    let detail = Detail::Queue { pid: 1, uid: 2, value };
    Info::new(signal(number), code::QUEUE, detail)
}

fn handled(flags: Flags) -> Action {
    Action { handler: Handler::At(0x1000), flags, restorer: 0x2000, mask: Set::EMPTY }
}

#[test]
fn there_are_64_signals() {
    for number in [0, 65, 256 + 9, u64::MAX] {
        assert_eq!(Signal::new(number), Err(Errno::EINVAL));
    }
    assert_eq!((signal(1), signal(64).number()), (Signal::HUP, 64));
    assert_eq!(std::format!("{} {}", Signal::SEGV, signal(34)), "SIGSEGV signal 34");
    assert!(!Signal::SYS.is_real_time() && signal(32).is_real_time());
}

#[test]
fn a_signal_that_a_program_says_nothing_about_does_its_manual_says() {
    let of = |wanted| {
        let all = (1..=64).filter(|&number| signal(number).default() == wanted);
        all.collect::<Vec<u64>>()
    };
    assert_eq!(of(Default::Ignore), [17, 23, 28]);
    assert_eq!(of(Default::Continue), [18]);
    assert_eq!(of(Default::Stop), [19, 20, 21, 22]);
    assert_eq!(of(Default::Core), [3, 4, 5, 6, 7, 8, 11, 24, 25, 31]);
    assert_eq!(of(Default::Terminate).len(), 64 - 18);
}

#[test]
fn sigkill_and_sigstop_cannot_be_blocked() {
    let all = Set(u64::MAX);
    assert_eq!(Set::EMPTY.changed(0, all), Ok(Set(!0x4_0100)));
    assert_eq!(Set::EMPTY.changed(2, all), Ok(Set(!0x4_0100)));
    assert_eq!(Set(0b1110).changed(0, Set(1)), Ok(Set(0b1111)));
    assert_eq!(Set(0b1110).changed(1, Set(0b0110)), Ok(Set(0b1000)));
    assert_eq!(Set(0b1110).changed(2, Set(1)), Ok(Set(1)));
    assert_eq!(Set(0b1110).changed(3, Set(1)), Err(Errno::EINVAL));
}

#[test]
fn a_standard_signal_is_pending_once_and_its_first_info_counts() {
    let mut pending = Pending::new(0);
    assert_eq!(pending.add(queued(10, 1)), Ok(true));
    assert_eq!(pending.add(queued(10, 2)), Ok(false));
    assert_eq!(pending.take(Set::EMPTY), Some(queued(10, 1)));
    assert_eq!(pending.take(Set::EMPTY), None);
    assert!(pending.set().is_empty());
}

#[test]
fn real_time_signals_queue_up_to_the_limit() {
    let mut pending = Pending::new(2);
    assert_eq!(pending.add(queued(40, 1)), Ok(true));
    assert_eq!(pending.add(queued(40, 2)), Ok(true));
    assert_eq!(pending.add(queued(40, 3)), Err(Errno::EAGAIN));
    assert_eq!(pending.add(queued(41, 3)), Err(Errno::EAGAIN));
    assert_eq!(pending.set(), Set::of(signal(40)), "a refused signal left no trace");
    // A signal by kill is never refused; its information is lost.
    assert_eq!(pending.add(Info::kill(signal(41), 7, 8)), Ok(true));
    assert_eq!(pending.add(Info::kill(Signal::TERM, 7, 8)), Ok(true), "no limit for these");
    assert_eq!(pending.take(Set::EMPTY), Some(Info::kill(Signal::TERM, 7, 8)));
    assert_eq!(pending.take(Set::EMPTY), Some(queued(40, 1)));
    assert_eq!(pending.take(Set::EMPTY), Some(queued(40, 2)));
    assert_eq!(pending.take(Set::EMPTY), Some(Info::kill(signal(41), 0, 0)));
    assert_eq!(pending.take(Set::EMPTY), None);
}

#[test]
fn blocked_signals_stay_pending_and_forgotten_ones_are_gone() {
    let mut pending = Pending::new(9);
    for info in [queued(40, 1), queued(40, 2), queued(12, 3)] {
        pending.add(info).unwrap();
    }
    assert_eq!(pending.take(Set::of(signal(12)).with(signal(40))), None);
    pending.forget(Set::of(signal(40)));
    assert_eq!(pending.set(), Set::of(signal(12)));
    assert_eq!(pending.take(Set::EMPTY), Some(queued(12, 3)));
    assert_eq!(pending.take(Set::EMPTY), None);
}

#[test]
fn sigkill_comes_first_then_faults_then_the_threads_own_then_the_lowest() {
    let (mut thread, mut process) = (Pending::new(9), Pending::new(9));
    for number in [64, 31, 11, 7, 2, 1] {
        thread.add(queued(number, 0)).unwrap();
    }
    for number in [40, 8, 9, 1] {
        process.add(queued(number, 0)).unwrap();
    }
    assert_eq!(next(&mut thread, &mut process, Set::EMPTY), Some(queued(9, 0)));
    assert_eq!(next(&mut thread, &mut process, Set(u64::MAX)), None);
    let mut order = Vec::new();
    while let Some(info) = next(&mut thread, &mut process, Set::of(signal(2))) {
        order.push(info.signal.number());
    }
    assert_eq!(order, [7, 11, 31, 1, 64, 8, 1, 40]);
    thread.add(queued(19, 0)).unwrap();
    let stop = next(&mut thread, &mut process, Set(u64::MAX));
    assert_eq!(stop, Some(queued(19, 0)), "SIGSTOP cannot be blocked");
}

/// Offsets by `offsetof` of the kernel's `struct sigaction` on x86-64 and arm64: handler 0, flags
/// 8, restorer 16, mask 24; 32 bytes. On riscv64, where no test runs: handler 0, flags 8, mask 16;
/// 24 bytes.
#[test]
fn actions_are_laid_out_as_linux_does_and_unknown_flags_are_dropped() {
    let mut bytes = [0; ACTION_BYTES];
    bytes[..8].copy_from_slice(&0x1122_3344_5566_u64.to_le_bytes());
    bytes[8..16].copy_from_slice(&0xdc00_0407_u64.to_le_bytes());
    bytes[16..24].copy_from_slice(&0x77_u64.to_le_bytes());
    bytes[24..].copy_from_slice(&0x4_0101_u64.to_le_bytes());
    let action = Action::decode(&bytes);
    assert_eq!(action.handler, Handler::At(0x1122_3344_5566));
    assert_eq!(action.flags, Flags::all(), "0x400 is SA_UNSUPPORTED");
    assert_eq!((action.restorer, action.mask), (0x77, Set(1)));
    let told = action.encode();
    assert_eq!(told[8..16], 0xdc00_0007_u64.to_le_bytes());
    assert_eq!(Action::decode(&told), action);
    for (first, handler) in [(0, Handler::Default), (1, Handler::Ignore)] {
        let mut bytes = [0; ACTION_BYTES];
        bytes[0] = first;
        assert_eq!(Action::decode(&bytes).handler, handler);
        assert_eq!(Action::decode(&bytes).encode(), bytes);
    }
}

#[test]
fn sigkill_and_sigstop_have_no_other_action() {
    let mut actions = Actions::new();
    for fixed in [Signal::KILL, Signal::STOP] {
        assert_eq!(actions.set(fixed, handled(Flags::empty())), Err(Errno::EINVAL));
        assert_eq!(actions.get(fixed), &Action::DEFAULT);
    }
    assert_eq!(actions.set(Signal::TERM, handled(Flags::INFO)), Ok(Action::DEFAULT));
    assert_eq!(actions.set(Signal::TERM, Action::DEFAULT), Ok(handled(Flags::INFO)));
}

#[test]
fn a_new_program_has_no_handlers_and_keeps_ignored_signals() {
    let mut actions = Actions::new();
    let ignore = Action { handler: Handler::Ignore, ..handled(Flags::all()) };
    actions.set(Signal::HUP, ignore).unwrap();
    actions.set(Signal::INT, handled(Flags::all())).unwrap();
    actions.reset();
    let expected = Action { handler: Handler::Ignore, ..Action::DEFAULT };
    assert_eq!(actions.get(Signal::HUP), &expected);
    assert_eq!(actions.get(Signal::INT), &Action::DEFAULT);
}

#[test]
fn the_action_is_the_programs_or_the_default() {
    let mut actions = Actions::new();
    for (number, expected) in [
        (15, Decision::Terminate { core: false }),
        (11, Decision::Terminate { core: true }),
        (17, Decision::Ignore),
        (20, Decision::Stop),
        (18, Decision::Continue),
        (64, Decision::Terminate { core: false }),
    ] {
        assert_eq!(actions.deliver(&Info::kernel(signal(number))), expected);
    }
    let ignore = Action { handler: Handler::Ignore, ..Action::DEFAULT };
    actions.set(Signal::TERM, ignore).unwrap();
    assert_eq!(actions.deliver(&Info::kernel(Signal::TERM)), Decision::Ignore);
    assert!(ignore.ignores(Signal::TERM) && Action::DEFAULT.ignores(Signal::CHLD));
    assert!(!Action::DEFAULT.ignores(Signal::CONT) && !handled(Flags::all()).ignores(Signal::CHLD));
}

#[test]
fn a_handler_that_wants_to_run_once_does() {
    let mut actions = Actions::new();
    for (flags, then) in [
        (Flags::RESET, Decision::Terminate { core: false }),
        (Flags::INFO, Decision::Handle { action: handled(Flags::INFO) }),
    ] {
        actions.set(Signal::USR1, handled(flags)).unwrap();
        let first = actions.deliver(&Info::kernel(Signal::USR1));
        assert_eq!(first, Decision::Handle { action: handled(flags) });
        assert_eq!(actions.deliver(&Info::kernel(Signal::USR1)), then);
    }
}

#[test]
fn a_signal_is_blocked_while_it_is_handled_unless_the_program_says_otherwise() {
    let mask = Set(0b1000).or(Set::UNSTOPPABLE);
    let action = |flags| Action { mask, ..handled(flags) };
    let blocked = |flags| action(flags).blocked_meanwhile(Signal::HUP, Set(0b100));
    assert_eq!(blocked(Flags::empty()), Set(0b1101));
    assert_eq!(blocked(Flags::NO_DEFER), Set(0b1100));
}

#[test]
fn a_failed_instruction_is_answered_even_if_its_signal_is_blocked_or_ignored() {
    let ignore = Action { handler: Handler::Ignore, ..Action::DEFAULT };
    for (action, blocked, stays) in [
        (ignore, Set::EMPTY, false),
        (handled(Flags::INFO), Set::of(Signal::SEGV), false),
        (handled(Flags::INFO), Set::of(Signal::TERM), true),
    ] {
        let mut actions = Actions::new();
        actions.set(Signal::SEGV, action).unwrap();
        let mut now_blocked = blocked;
        actions.force(Signal::SEGV, &mut now_blocked);
        assert_eq!(now_blocked, blocked.without(Signal::SEGV));
        assert_eq!(actions.get(Signal::SEGV).handler == action.handler, stays);
    }
}

#[test]
fn an_alternative_stack_is_checked_when_it_is_set() {
    let none = AltStack::NONE;
    let stack = |flags, bytes| AltStack { start: 0x1000, flags, bytes };
    assert_eq!(none.changed(stack(0, 2047), 0, 2048), Err(Errno::ENOMEM));
    assert_eq!(none.changed(stack(4, 4096), 0, 2048), Err(Errno::EINVAL));
    assert_eq!(none.changed(stack(3, 4096), 0, 2048), Err(Errno::EINVAL));
    let set = none.changed(stack(0, 4096), 0, 2048).unwrap();
    assert_eq!(set, stack(0, 4096));
    assert_eq!(set.changed(none, 0x2001, 2048), Ok(none));
    for sp in [0x1001, 0x2000] {
        assert_eq!(set.changed(none, sp, 2048), Err(Errno::EPERM), "it is in use");
    }
    let off = set.changed(stack(2 | 1 << 31, 99), 0, 2048).unwrap();
    assert_eq!((off.start, off.bytes, off.is_some()), (0, 0, false));
}

#[test]
fn an_alternative_stack_tells_whether_it_is_in_use() {
    let stack = AltStack { start: 0x1000, flags: 0, bytes: 0x1000 };
    assert_eq!(AltStack::NONE.told(0).flags, 2);
    assert_eq!((stack.told(0x1800).flags, stack.told(0x1000).flags), (1, 0));
    let auto = AltStack { flags: 1 << 31, ..stack };
    assert_eq!(auto.told(0x1800).flags, 1 << 31);
    assert_eq!(auto.while_handled(), AltStack::NONE);
    assert_eq!(stack.while_handled(), stack);
    assert_eq!(AltStack::decode(&auto.encode()), auto);
    let bytes = stack.encode();
    assert_eq!((bytes[1], bytes[8], bytes[17]), (0x10, 0, 0x10));
    let wild = AltStack { start: u64::MAX, flags: 0, bytes: u64::MAX };
    assert!(!wild.is_in_use(5));
}
