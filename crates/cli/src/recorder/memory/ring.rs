//! The kernel's ring buffer, as `trace_pipe_raw` gives it.
//!
//! It comes in *sub-buffers* of one page or more (`events/header_page`, `events/header_event`):
//!
//! ```text
//!   u64 time │ u64 length, with flags │ record │ record │ …
//!
//!   record:  u32  bits 0–4 kind or length, bits 5–31 time since the record before
//!     kind 1–28   data of 4 × kind bytes
//!          0      u32 length, which includes itself; data
//!         29      padding: u32 length; none when the time is 0: the rest is empty
//!         30      u32 upper bits of a longer time since the record before
//!         31      u32 upper bits of the absolute time
//! ```

/// Where the records of a sub-buffer begin.
const HEAD: usize = 16;
/// The bits of the length that are a length.
const LENGTH: u64 = (1 << 27) - 1;
/// An absolute time has 59 bits.
const ABSOLUTE: u64 = (1 << 59) - 1;

/// Gives each record of a sub-buffer, with its time in nanoseconds, to `each`.
///
/// A sub-buffer that is damaged is read up to the damage.
pub(super) fn records(page: &[u8], mut each: impl FnMut(u64, &[u8])) {
    let (Some(mut time), Some(length)) = (u64_at(page, 0), u64_at(page, 8)) else { return };
    let end = page.len().min(HEAD + (length & LENGTH) as usize);
    let mut at = HEAD;
    while let Some(head) = u32_at(&page[..end], at) {
        at += 4;
        let (kind, passed) = (head & 31, u64::from(head >> 5));
        let word = u32_at(&page[..end], at).map(|word| word as usize);
        match (kind, word) {
            (29, _) if passed == 0 => return,
            (29, Some(skip)) => at += skip,
            (30, Some(upper)) => {
                time += ((upper as u64) << 27) + passed;
                at += 4;
            }
            (31, Some(upper)) => {
                time = (time & !ABSOLUTE) | (((upper as u64) << 27) + passed);
                at += 4;
            }
            (0, Some(length)) if length >= 4 => {
                time += passed;
                let Some(data) = page[..end].get(at + 4..at + length) else { return };
                each(time, data);
                at += length.next_multiple_of(4);
            }
            (1..=28, Some(_)) => {
                time += passed;
                let length = kind as usize * 4;
                let Some(data) = page[..end].get(at..at + length) else { return };
                each(time, data);
                at += length;
            }
            _ => return,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(records: &[u8]) -> Vec<u8> {
        let mut page = 1000_u64.to_le_bytes().to_vec();
        page.extend((records.len() as u64 | 1 << 31).to_le_bytes());
        page.extend(records);
        page
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn read(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        records(page, |time, data| all.push((time, data.to_vec())));
        all
    }

    #[test]
    fn f1_records_of_all_kinds_are_read_with_their_times() {
        let all = words(&[
            5 << 5 | 2,
            0x11,
            0x22, // two words of data, 5 ns later
            7 << 5 | 30,
            1, // 2^27 + 7 ns
            3 << 5,
            12,
            0x33,
            0x44, // a length of 12: two words, 3 ns later
            1 << 5 | 29,
            8,
            0, // padding
            2 << 5 | 31,
            4, // absolute
            1,
            0x55,
        ]);
        let times: Vec<u64> = read(&page(&all)).iter().map(|(time, _)| *time).collect();
        assert_eq!(times, [1005, 1015 + (1 << 27), (4 << 27) + 2]);
        assert_eq!(read(&page(&all))[1].1, words(&[0x33, 0x44]));
        let padded = words(&[1, 9, 29, 1, 9]);
        assert_eq!(read(&page(&padded)).len(), 1, "nothing follows empty padding");
    }

    proptest! {
        #[test]
        fn f1_any_bytes_are_records_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..99),
        ) {
            let mut whole = page(&bytes);
            read(&whole);
            whole.truncate(bytes.len());
            read(&whole);
            read(&bytes);
        }
    }
}
