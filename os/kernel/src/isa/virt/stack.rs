//! The kernel's stacks: one for each CPU, and the chain of calls on them.

use core::ptr;

use crate::isa::STACK_BYTES;

/// Bytes of a stack together with the page below it that is not mapped.
pub(in crate::isa) const STACK_STEP: u64 = STACK_BYTES as u64 + GUARD_BYTES;
/// Bytes of that page.
const GUARD_BYTES: u64 = 4096;

/// Bytes of [`SPARE`].
pub(in crate::isa) const SPARE_BYTES: usize = 16 << 10;

/// A stack for saying that the stack is full.
#[repr(C, align(16))]
pub(in crate::isa) struct Spare([u8; SPARE_BYTES]);

pub(in crate::isa) static mut SPARE: Spare = Spare([0; SPARE_BYTES]);

unsafe extern "C" {
    static __stacks_start: u8;
    static __stacks_end: u8;
}

/// Calls `visit` with the return addresses of the calling chain, innermost first. `record` is the
/// first frame record: the address of the next one, to which `below` is to be added, and the
/// return address. The kernel is built with frame pointers. A chain that leaves the stacks, or does
/// not go up, ends; from the spare stack it goes on into the full one.
pub(in crate::isa) fn walk(mut record: u64, below: i64, visit: &mut dyn FnMut(u64)) {
    while is_on_stack(record) {
        let words = ptr::with_exposed_provenance::<[u64; 2]>(record as usize);
        // SAFETY: the record begins on a stack, aligned, so all of it is there.
        let [next, address] = unsafe { words.read() };
        if address == 0 {
            return;
        }
        visit(address);
        let next = next.wrapping_add_signed(below);
        if next <= record {
            return;
        }
        record = next;
    }
}

/// Whether a frame record can be at `record`: on a stack, not in the page below it, and aligned.
fn is_on_stack(record: u64) -> bool {
    let spare = (&raw const SPARE).addr() as u64;
    let start = (&raw const __stacks_start).addr() as u64;
    let end = (&raw const __stacks_end).addr() as u64;
    let stacks = start..end;
    let on_stack = stacks.contains(&record) && (record - start) % STACK_STEP >= GUARD_BYTES;
    let on_spare = (spare..spare + SPARE_BYTES as u64).contains(&record);
    (on_stack || on_spare) && record.is_multiple_of(16)
}
