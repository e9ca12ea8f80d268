//! Measuring by paint: the free part of the stack gets one pattern before a call, and the deepest
//! word that has another one afterwards tells how deep the call went.
//!
//! A call counts from the stack pointer of its caller on, so that its arguments and its result,
//! where it has one on the stack, count as the caller's.

use crate::machine::{on_stack, stack_pointer, stack_start};
use crate::tell;

const PAINT: u64 = 0x5041_494e_5441_494e;
const WORD: usize = size_of::<u64>();

/// The calls measured so far.
pub struct Paint {
    is_good: bool,
}

impl Paint {
    /// None.
    pub fn new() -> Self {
        Self { is_good: true }
    }

    /// Whether all of them kept their bounds.
    pub fn is_good(&self) -> bool {
        self.is_good
    }

    /// Makes the calls of `act`, and prints how many bytes of stack they needed; more than `most`
    /// is a failure.
    pub fn measure(&mut self, name: &str, most: usize, mut act: impl FnMut()) {
        let bytes = deepest(&mut act);
        let is_within = bytes <= most;
        tell!("{name:<28} {bytes:>6} of {most}{}", if is_within { "" } else { ": TOO DEEP" });
        self.is_good &= is_within;
    }
}

/// The bytes of stack below this function's frame that `act` has written to.
#[inline(never)]
fn deepest(act: &mut dyn FnMut()) -> usize {
    let (start, top) = (stack_start(), stack_pointer());
    let mut at = start;
    while at < top {
        // SAFETY: free stack, below every frame in use: nothing is called here.
        unsafe { on_stack(at).write_volatile(PAINT) };
        at += WORD;
    }
    act();
    at = start;
    // SAFETY: as above.
    while at < top && unsafe { on_stack(at).read_volatile() } == PAINT {
        at += WORD;
    }
    assert!(at > start, "the stack is full");
    top - at
}
