//! The steps of a script.

use proptest::prelude::*;
use quire::Scope;

/// How many processes there are at most.
pub(crate) const LIVES: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) from: u64,
    pub(crate) pages: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Map(usize, Stretch),
    Unmap(usize, Stretch),
    Discard(usize, Stretch),
    Guard(usize, Stretch, bool),
    Free(usize, Stretch),
    Track(usize, Stretch),
    Protect(usize, Stretch, bool),
    Lock(usize, Stretch, bool),
    Move(usize, Stretch, u64),
    Write(usize, Stretch),
    Read(usize, Stretch),
    Populate(usize, Stretch),
    Collapse(usize, Stretch),
    PageOut(usize, Stretch, Scope),
    WriteBack,
    DropClean,
    Fork(usize),
    Exit(usize),
    Pin(usize, u64),
    Unpin,
    Size(u8, bool),
    Bad(u64, bool),
    Fail(u64),
    SwapOff,
    SwapOn(u8),
}

/// Pages of the window, in sixteenths of a block and a few single pages.
pub(crate) fn place() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..96_u64, 1 => 470..530_u64, 1 => 0..1024_u64]
}

pub(crate) fn stretch() -> impl Strategy<Value = Stretch> {
    let pages = prop_oneof![2 => 1..4_u64, 4 => 8..80_u64, 1 => 500..600_u64];
    (place(), pages, any::<bool>()).prop_map(|(from, pages, aligned)| {
        let from = if aligned { from & !15 } else { from };
        Stretch { from, pages }
    })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let at = 0..LIVES;
    let whose = prop_oneof![Just(Scope::Own), Just(Scope::All)];
    let one = |weight, make: fn(usize, Stretch) -> Op| {
        (weight, (0..LIVES, stretch()).prop_map(move |(at, stretch)| make(at, stretch)).boxed())
    };
    let plain = proptest::strategy::Union::new_weighted(vec![
        one(2, Op::Map),
        one(2, Op::Unmap),
        one(2, Op::Discard),
        one(2, Op::Free),
        one(2, Op::Track),
        one(8, Op::Write),
        one(8, Op::Read),
        one(1, Op::Populate),
        one(1, Op::Collapse),
    ]);
    prop_oneof![
        24 => plain,
        2 => (at.clone(), stretch(), any::<bool>()).prop_map(|(at, s, on)| Op::Protect(at, s, on)),
        1 => (at.clone(), stretch(), any::<bool>()).prop_map(|(at, s, on)| Op::Lock(at, s, on)),
        2 => (at.clone(), stretch(), any::<bool>()).prop_map(|(at, s, on)| Op::Guard(at, s, on)),
        2 => (at.clone(), stretch(), place()).prop_map(|(at, s, to)| Op::Move(at, s, to)),
        10 => (at.clone(), stretch(), whose).prop_map(|(at, s, whose)| Op::PageOut(at, s, whose)),
        5 => Just(Op::WriteBack),
        1 => Just(Op::DropClean),
        3 => at.clone().prop_map(Op::Fork),
        1 => at.clone().prop_map(Op::Exit),
        1 => (at, place()).prop_map(|(at, page)| Op::Pin(at, page)),
        1 => Just(Op::Unpin),
        3 => (1..10_u8, any::<bool>()).prop_map(|(order, on)| Op::Size(order, on)),
        1 => (0..200_u64, any::<bool>()).prop_map(|(slot, bad)| Op::Bad(slot, bad)),
        2 => (1..6_u64).prop_map(Op::Fail),
        1 => Just(Op::SwapOff),
        2 => (0..3_u8).prop_map(Op::SwapOn),
    ]
}
