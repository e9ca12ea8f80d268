//! Numbers in bytes, as the machine has them: little-endian. Places are in bytes from the start.

/// The `N` bytes at `at`, which must be within.
pub(super) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|index| bytes[at + index])
}

/// The 32-bit number at `at`.
pub(super) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

/// The 32-bit number with a sign at `at`.
pub(super) fn get_i32(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(get(bytes, at))
}

/// The 64-bit number at `at`.
pub(super) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

/// Writes `value` at `at`; all of it must be within.
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Writes a 64-bit number at `at`.
pub(super) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, &value.to_le_bytes());
}

/// Writes a 32-bit number at `at`.
pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_le_bytes());
}
