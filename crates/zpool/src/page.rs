//! A page of data: pieces of objects from the front, a directory from the back.
//!
//! ```text
//!   0            24                        top                            end
//!   │ header     │ piece │ hole │ piece    │   free      │ …│ 2 │ 1 │ 0   │
//!                   ▲                ▲                         └───┼───┘
//!                   └────────────────┴───── offsets of pieces ─────┘
//! ```
//!
//! | header | content |
//! |---|---|
//! | 0: u32, 4: u32 | the page before and behind it in its list, zero for none; valid while its room is at least `ROOM_MIN` |
//! | 8: u16 | entries of the directory, freed ones included; the last is never a freed one |
//! | 12: u32 | `top`: the first byte behind all pieces |
//! | 16: u32 | bytes of the pieces, holes not included |
//!
//! | piece | content |
//! |---|---|
//! | 0: u64 | its owner, or `DEAD` for a hole |
//! | 8: u32, 12: u16 | the next piece of the object: page, zero for none, and index |
//! | 14: u16 | its length in bytes, without these 18 |
//! | 16: u16 | its index in the directory |
//!
//! Other pages name a piece by its index, so the page may move it: holes are closed when the free
//! bytes behind `top` do not suffice, and not before.

use core::ops::Range;

use crate::entry::Link;
use crate::words::{get16, get32, get64, put16, put32, put64};

const HEADER: usize = 24;
const COUNT: usize = 8;
const TOP: usize = 12;
const USED: usize = 16;

/// Bytes before a piece's own.
const PIECE: usize = 18;
const NEXT: usize = 8;
const LENGTH: usize = 14;
const INDEX: usize = 16;
/// The owner of a hole. No unit has this number.
const DEAD: u64 = u64::MAX;

/// Bytes of an entry of the directory: an offset, zero for a free one.
const SLOT: usize = 2;

/// Bytes that each piece takes besides its own.
pub(crate) const OVERHEAD: usize = PIECE + SLOT;

/// Pages with less room are not listed: pieces would become small and many.
pub(crate) const ROOM_MIN: usize = 128;

/// One piece in its page.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The owner's number: see [`Owner`](crate::heap::Owner).
    pub(crate) owner: u64,
    /// The next piece of the object.
    pub(crate) next: Option<Link>,
    /// The piece's bytes of the page.
    pub(crate) range: Range<usize>,
}

/// The bytes that a piece alone in its page can have.
pub(crate) const fn payload_max(page_bytes: usize) -> usize {
    page_bytes - HEADER - OVERHEAD
}

/// Initialises a page without pieces.
pub(crate) fn init(page: &mut [u8]) {
    if let Some(header) = page.get_mut(..HEADER) {
        header.fill(0);
    }
    put32(page, TOP, HEADER as u32);
}

/// The bytes that one more piece can have, holes included.
pub(crate) fn room(page: &[u8]) -> usize {
    let taken = HEADER + get32(page, USED) as usize + SLOT * count(page) + OVERHEAD;
    page.len().saturating_sub(taken)
}

/// Whether it has no piece.
pub(crate) fn is_empty(page: &[u8]) -> bool {
    count(page) == 0 && !page.is_empty()
}

/// Entries of its directory, freed ones included.
pub(crate) fn count(page: &[u8]) -> usize {
    usize::from(get16(page, COUNT))
}

/// The page before it in its list, and the one behind it.
pub(crate) fn neighbours(page: &[u8]) -> (u32, u32) {
    (get32(page, 0), get32(page, 4))
}

/// Sets the page before it in its list.
pub(crate) fn set_before(page: &mut [u8], number: u32) {
    put32(page, 0, number);
}

/// Sets the page behind it in its list.
pub(crate) fn set_behind(page: &mut [u8], number: u32) {
    put32(page, 4, number);
}

/// The offset of directory entry `index`, which holds the offset of the piece.
fn slot(page: &[u8], index: usize) -> usize {
    page.len().saturating_sub(SLOT * (index + 1))
}

fn offset(page: &[u8], index: usize) -> Option<usize> {
    let at = if index < count(page) { get16(page, slot(page, index)) } else { 0 };
    (at != 0).then_some(usize::from(at))
}

/// The piece with this index, if there is one.
#[inline]
pub(crate) fn piece(page: &[u8], index: u16) -> Option<Piece> {
    let at = offset(page, usize::from(index))?;
    let start = at + PIECE;
    let range = start..start + usize::from(get16(page, at + LENGTH));
    let next = u64::from(get32(page, at + NEXT)) | u64::from(get16(page, at + NEXT + 4)) << 32;
    let owner = get64(page, at);
    (range.end <= page.len()).then_some(Piece { owner, next: Link::unpack(next), range })
}

/// Makes `next` the successor of piece `index` in its object.
pub(crate) fn set_next(page: &mut [u8], index: u16, next: Option<Link>) {
    if let Some(at) = offset(page, usize::from(index)) {
        let bits = Link::pack(next);
        put32(page, at + NEXT, bits as u32);
        put16(page, at + NEXT + 4, (bits >> 32) as u16);
    }
}

/// Adds a piece; `None`, and nothing is changed but for holes, when there is no room for it.
pub(crate) fn push(page: &mut [u8], owner: u64, bytes: &[u8]) -> Option<u16> {
    if bytes.len() > room(page) {
        return None;
    }
    let entries = count(page);
    let index = (0..entries).find(|&index| offset(page, index).is_none()).unwrap_or(entries);
    let size = PIECE + bytes.len();
    let end = slot(page, index.max(entries.saturating_sub(1)));
    if get32(page, TOP) as usize + size > end {
        close_holes(page);
    }
    let at = get32(page, TOP) as usize;
    if at + size > end {
        return None;
    }
    page.get_mut(at + PIECE..at + size)?.copy_from_slice(bytes);
    put64(page, at, owner);
    put16(page, at + LENGTH, bytes.len() as u16);
    put16(page, at + INDEX, index as u16);
    put32(page, TOP, (at + size) as u32);
    put16(page, slot(page, index), at as u16);
    put16(page, COUNT, entries.max(index + 1) as u16);
    put32(page, USED, get32(page, USED) + size as u32);
    set_next(page, index as u16, None);
    Some(index as u16)
}

/// Removes piece `index`.
pub(crate) fn remove(page: &mut [u8], index: u16) {
    let Some(at) = offset(page, usize::from(index)) else { return };
    let size = PIECE + usize::from(get16(page, at + LENGTH));
    put64(page, at, DEAD);
    put16(page, slot(page, usize::from(index)), 0);
    put32(page, USED, get32(page, USED).saturating_sub(size as u32));
    let mut entries = count(page);
    while entries > 0 && offset(page, entries - 1).is_none() {
        entries -= 1;
        put16(page, COUNT, entries as u16);
    }
    if get32(page, TOP) as usize == at + size {
        put32(page, TOP, at as u32);
    }
}

/// Moves all pieces to the front.
fn close_holes(page: &mut [u8]) {
    let top = (get32(page, TOP) as usize).min(page.len());
    let (mut from, mut to) = (HEADER, HEADER);
    while from + PIECE <= top {
        let size = PIECE + usize::from(get16(page, from + LENGTH));
        if from + size > top {
            break;
        }
        if get64(page, from) != DEAD {
            let index = usize::from(get16(page, from + INDEX));
            if from != to {
                page.copy_within(from..from + size, to);
                put16(page, slot(page, index), to as u16);
            }
            to += size;
        }
        from += size;
    }
    put32(page, TOP, to as u32);
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;
    use std::{assert, assert_eq, vec};

    use super::*;

    fn read(page: &[u8], index: u16) -> &[u8] {
        &page[piece(page, index).unwrap().range]
    }

    #[test]
    fn d5_a_page_is_filled_to_the_last_byte_and_emptied_again() {
        for page_bytes in [4096, 16384, 65536] {
            let mut page = vec![0xaa; page_bytes];
            init(&mut page);
            let all = vec![7; payload_max(page_bytes)];
            assert_eq!(room(&page), all.len());
            let index = push(&mut page, 1, &all).unwrap();
            assert_eq!(room(&page), 0);
            assert_eq!(push(&mut page, 1, &[1]), None, "there is no room");
            assert_eq!(read(&page, index), &all[..]);
            remove(&mut page, index);
            assert!(is_empty(&page));
            assert_eq!(room(&page), all.len());
        }
    }

    #[test]
    fn d5_holes_are_closed_when_the_end_is_too_short_and_indices_stay() {
        let mut page = vec![0; 4096];
        init(&mut page);
        let data: Vec<Vec<u8>> = (0..8).map(|n| vec![n; 480]).collect();
        let at: Vec<u16> = data.iter().map(|d| push(&mut page, 9, d).unwrap()).collect();
        (0..8).step_by(2).for_each(|n| remove(&mut page, at[n]));
        let long = vec![99; room(&page)];
        let long_at = push(&mut page, 9, &long).expect("the holes are room");
        assert_eq!(read(&page, long_at), &long[..]);
        (1..8).step_by(2).for_each(|n| assert_eq!(read(&page, at[n]), &data[n][..]));
    }

    #[test]
    fn d5_a_page_full_of_noise_ends_no_kernel() {
        let mut page = vec![0; 4096];
        for seed in 1..200_u64 {
            let mut noise = seed;
            for byte in &mut page {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                *byte = (noise >> 56) as u8;
            }
            (0..u16::MAX)
                .step_by(97)
                .for_each(|index| assert!(piece(&page, index).is_none_or(|p| p.range.end <= 4096)));
            push(&mut page, 1, &[1; 20]);
            put32(&mut page, USED, 0);
            push(&mut page, 1, &[1; 200]);
            (0..64).for_each(|index| remove(&mut page, index));
        }
    }
}
