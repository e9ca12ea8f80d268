//! Copies where one side is a program's memory: where they go on after a fault.
//!
//! Each ISA has the code between these places: `__copy_user` copies many bytes at once,
//! `__copy_user_bytes` one by one, and `__copy_user_end` returns how many are left.

unsafe extern "C" {
    static __copy_user: u8;
    static __copy_user_bytes: u8;
    static __copy_user_end: u8;
}

/// Where the kernel goes on when the instruction at `pc` faulted and was not helped; none if that
/// is not within a copy.
pub(in crate::isa) fn fix_up(pc: u64) -> Option<u64> {
    let address = |place: *const u8| place.addr() as u64;
    let bytes = address(&raw const __copy_user_bytes);
    let end = address(&raw const __copy_user_end);
    if (address(&raw const __copy_user)..bytes).contains(&pc) {
        Some(bytes)
    } else {
        (bytes..end).contains(&pc).then_some(end)
    }
}
