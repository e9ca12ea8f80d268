//! The kernel's `memcpy`, `memmove` and `memset` for arm64, checked byte by byte against loops.

#[path = "../../../../os/kernel/src/isa/aarch64/bytes.rs"]
mod kernel;

use crate::linux;

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8;
}

const ROOM: usize = 512;

/// Every length up to more than three turns of the loops.
const LENGTHS: core::ops::Range<usize> = 0..210;

/// The start, and the distance of the source from it: aligned and not, overlapping each way.
const PLACES: [(usize, isize); 10] = [
    (128, 0),
    (128, 1),
    (128, -1),
    (129, 7),
    (131, -8),
    (135, 64),
    (144, -63),
    (128, 65),
    (129, -128),
    (1, 256),
];

fn painted() -> [u8; ROOM] {
    core::array::from_fn(|at| (at * 7 + at / 256) as u8 | 1)
}

/// Whether `room` is unchanged but for `bytes` bytes from `start` on, which are `expected`.
fn is_only(room: &[u8; ROOM], start: usize, bytes: usize, expected: impl Fn(usize) -> u8) -> bool {
    let old = painted();
    room.iter().enumerate().all(|(at, byte)| match (start..start + bytes).contains(&at) {
        true => *byte == expected(at),
        false => *byte == old[at],
    })
}

fn moves(start: usize, distance: isize, bytes: usize) -> bool {
    let old = painted();
    let from = start.wrapping_add_signed(distance);
    let expected = |at: usize| old[at.wrapping_add_signed(distance)];
    let apart = distance.unsigned_abs() >= bytes;
    let mut room = painted();
    let base = room.as_mut_ptr();
    // SAFETY: both ends lie within the room, by the table; `memcpy` only where they are apart.
    let moved = unsafe { memmove(base.add(start), base.add(from), bytes) == base.add(start) };
    let moved = moved && is_only(&room, start, bytes, expected);
    let mut room = painted();
    let base = room.as_mut_ptr();
    // SAFETY: as above.
    let copied = !apart
        || unsafe { memcpy(base.add(start), base.add(from), bytes) } == base.wrapping_add(start);
    moved && copied && (!apart || is_only(&room, start, bytes, expected))
}

fn sets(start: usize, bytes: usize) -> bool {
    let mut room = painted();
    let base = room.as_mut_ptr();
    // SAFETY: it ends within the room, by the table. Of the value only the lowest byte counts.
    let set = unsafe { memset(base.add(start), 0x5a8, bytes) == base.add(start) };
    set && is_only(&room, start, bytes, |_| 0xa8)
}

/// Whether all of them are correct.
pub fn check() -> bool {
    let right = PLACES.iter().all(|&(start, distance)| {
        LENGTHS.clone().all(|bytes| moves(start, distance, bytes) && sets(start, bytes))
    });
    linux::print(&[if right { "bytes kernel\n" } else { "FAILED: bytes kernel\n" }]);
    right
}
