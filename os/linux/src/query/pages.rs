//! `PAGEMAP_SCAN`: runs of pages that are in a state (linux/fs.h).
//!
//! Without `userfaultfd` no page can be protected from writes by it: a query for that finds no page
//! that allows it.

use alloc::vec::Vec;

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::take;
use crate::files::Source;
use crate::{Errno, Result};

bitflags! {
    /// The categories of a page.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Category: u64 {
        /// Writes to it can be noted by protection.
        const MAY_PROTECT = 1 << 0;
        /// It is not protected from writes.
        const WRITTEN = 1 << 1;
        /// It is a file's.
        const FILE = 1 << 2;
        /// It is in memory.
        const PRESENT = 1 << 3;
        /// It is on a swap device.
        const SWAPPED = 1 << 4;
        /// Nothing but zeroes is in it, and it is no file's.
        const ZERO = 1 << 5;
        /// A block maps it.
        const HUGE = 1 << 6;
        /// It was written since tracking was reset.
        const SOFT_DIRTY = 1 << 7;
        /// It is a guard.
        const GUARD = 1 << 8;
        /// It was touched since tracking was reset.
        const ACCESSED = 1 << 9;
    }
}

const PROTECT: u64 = 1;
const MUST_PROTECT: u64 = 2;

/// A question after pages, and how far the answer goes, as a program lays them out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct PageScan {
    size: u64,
    flags: u64,
    /// The first byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// The address at which the scan ended.
    pub walk_end: u64,
    /// The address for regions; 0 for none.
    pub vec: u64,
    /// The number of regions with room there.
    pub vec_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// A run of pages that are alike, as programs get it: bytes, half-open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Region {
    /// Its first byte.
    pub start: u64,
    /// The byte behind its last one.
    pub end: u64,
    /// The requested categories that its pages have.
    pub categories: u64,
}

impl PageScan {
    /// Its number among the requests of `ioctl`.
    pub const REQUEST: u32 = 0xc060_6610;

    /// Reads the query of a program that can have memory below `limit`, with this page size in
    /// bytes.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a malformed one, [`Errno::EFAULT`] for addresses outside the program.
    pub fn read(input: &mut dyn Source, limit: u64, page_bytes: u64) -> Result<Self> {
        let mut bytes = [0; size_of::<Self>()];
        take(input, &mut bytes)?;
        let mut scan = Self::read_from_bytes(&bytes).map_err(|_| Errno::EINVAL)?;
        let masks = scan.inverted | scan.all_of | scan.any_of | scan.returned;
        let is_good = scan.size == bytes.len() as u64
            && scan.flags & !(PROTECT | MUST_PROTECT) == 0
            && masks & !Category::all().bits() == 0
            && scan.start.is_multiple_of(page_bytes)
            && (scan.vec != 0 || scan.vec_len == 0);
        if !is_good {
            return Err(Errno::EINVAL);
        }
        let room = scan.vec_len.checked_mul(size_of::<Region>() as u64);
        let top = room.and_then(|room| scan.vec.checked_add(room));
        if scan.end > limit || scan.start > scan.end || top.is_none_or(|top| top > limit) {
            return Err(Errno::EFAULT);
        }
        scan.end = scan.end.next_multiple_of(page_bytes);
        if scan.vec_len == 0 {
            // Without room it is a scan that tells nothing.
            scan.vec = 0;
        }
        Ok(scan)
    }

    /// Whether it is over where a page does not allow to be protected.
    #[must_use]
    pub fn must_protect(&self) -> bool {
        self.flags & MUST_PROTECT != 0
    }

    /// Whether the pages that match are to be protected.
    #[must_use]
    pub fn protects(&self) -> bool {
        self.flags & PROTECT != 0
    }

    /// How many pages it wants at most.
    #[must_use]
    pub fn most_pages(&self) -> u64 {
        if self.max_pages == 0 { u64::MAX } else { self.max_pages }
    }

    /// Whether the answer depends on this category.
    #[must_use]
    pub fn asks(&self, what: Category) -> bool {
        (self.all_of | self.any_of | self.returned) & what.bits() != 0
    }

    fn matches(&self, page: u64) -> bool {
        let page = page ^ self.inverted;
        page & self.all_of == self.all_of && (self.any_of == 0 || page & self.any_of != 0)
    }
}

/// Regions that are being gathered.
#[derive(Debug)]
pub struct Regions<'s> {
    scan: &'s PageScan,
    page_bytes: u64,
    unit: u64,
    found: Vec<Region>,
    room: usize,
    pages: u64,
    end: Option<u64>,
}

impl<'s> Regions<'s> {
    /// None yet; `room` of them and `pages` pages at most.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn new(scan: &'s PageScan, room: usize, pages: u64, page_bytes: u64) -> Result<Self> {
        let mut found = Vec::new();
        found.try_reserve_exact(room).map_err(|_| Errno::ENOMEM)?;
        Ok(Self { scan, page_bytes, unit: page_bytes, found, room, pages, end: None })
    }

    /// Protects all that is added from now on in whole units of `bytes`, a power of two.
    pub fn set_unit(&mut self, bytes: u64) {
        self.unit = bytes;
    }

    /// Takes the bytes from `start` to `end`, whole pages behind all those before, which are
    /// `page`.
    pub fn add(&mut self, start: u64, end: u64, page: Category) {
        if self.end.is_some() || start >= end || !self.scan.matches(page.bits()) {
            return;
        }
        if self.pages == 0 {
            self.end = Some(start);
            return;
        }
        let count = ((end - start) / self.page_bytes).min(self.pages);
        let stop = match self.scan.protects() {
            true => self.whole(start, start + count * self.page_bytes),
            false => start + count * self.page_bytes,
        };
        if stop == start {
            (self.end, self.pages) = (Some(start), 0);
            return;
        }
        let count = (stop - start) / self.page_bytes;
        let categories = page.bits() & self.scan.returned;
        let has_room = self.found.len() < self.room;
        match self.found.last_mut() {
            _ if self.scan.vec == 0 && !self.scan.protects() => {}
            Some(last)
                if last.end == start && (self.scan.vec == 0 || last.categories == categories) =>
            {
                last.end = stop;
            }
            _ if has_room => {
                self.found.push(Region { start, end: stop, categories });
            }
            _ => {
                self.end = Some(start);
                return;
            }
        }
        self.pages -= count;
        if stop < end {
            (self.end, self.pages) = (Some(stop), 0);
        }
    }

    /// The end of the whole units of `start` to `end`, if one begins there.
    fn whole(&self, start: u64, end: u64) -> u64 {
        if start.is_multiple_of(self.unit) { end & !(self.unit - 1) } else { start }
    }

    /// The result.
    #[must_use]
    pub fn found(&self) -> &[Region] {
        &self.found
    }

    /// How many more pages there may be.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The first page that matches and was not taken, if there is one.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const PAGE: u64 = 4096;

    fn scan(change: impl Fn(&mut PageScan)) -> Result<PageScan> {
        let mut scan = PageScan::read_from_bytes(&[0; 96]).unwrap();
        (scan.size, scan.end, scan.vec, scan.vec_len) = (96, 64 * PAGE, PAGE, 8);
        scan.returned = Category::all().bits();
        change(&mut scan);
        PageScan::read(&mut scan.as_bytes(), 1 << 47, PAGE)
    }

    /// Regions of such pages, one by one; and the end of the scan.
    fn regions(scan: &PageScan, room: usize, pages: &[u64]) -> (Vec<[u64; 3]>, Option<u64>) {
        let mut all = Regions::new(scan, room, scan.most_pages(), PAGE).unwrap();
        for (at, &page) in (0..).zip(pages) {
            all.add(at * PAGE, (at + 1) * PAGE, Category::from_bits_truncate(page));
        }
        let told = |it: &Region| [it.start / PAGE, it.end / PAGE, it.categories];
        (all.found().iter().map(told).collect(), all.end().map(|end| end / PAGE))
    }

    #[test]
    fn pages_that_are_alike_become_one_region() {
        let scan = scan(|scan| (scan.any_of, scan.returned) = (8 | 16, 8 | 4)).unwrap();
        let pages = [8, 8 | 2, 8 | 4, 0, 8 | 4, 16, 1];
        let found = vec![[0, 2, 8], [2, 3, 12], [4, 5, 12], [5, 6, 0]];
        assert_eq!(regions(&scan, 8, &pages), (found, None));
    }

    #[test]
    fn inverted_categories_match_where_they_are_not() {
        let scan = scan(|scan| (scan.inverted, scan.all_of) = (16, 8 | 16)).unwrap();
        assert_eq!(regions(&scan, 8, &[8, 8 | 16, 16, 0]).0, [[0, 1, 8]]);
    }

    #[test]
    fn it_ends_where_there_is_no_room_or_enough_was_found() {
        let wide = scan(|scan| scan.any_of = 8 | 4).unwrap();
        let pages = [8, 4, 8, 8];
        assert_eq!(regions(&wide, 2, &pages), (vec![[0, 1, 8], [1, 2, 4]], Some(2)));
        let few = scan(|scan| (scan.any_of, scan.max_pages) = (8, 2)).unwrap();
        assert_eq!(regions(&few, 8, &pages), (vec![[0, 1, 8], [2, 3, 8]], Some(3)));
        let mut all = Regions::new(&few, 8, 2, PAGE).unwrap();
        all.add(0, 8 * PAGE, Category::PRESENT);
        assert_eq!(all.found(), [Region { start: 0, end: 2 * PAGE, categories: 8 }]);
        assert_eq!(regions(&few, 8, &[8, 4, 8, 4]).1, None, "nothing more matches");
        let nowhere = scan(|scan| (scan.vec, scan.vec_len, scan.max_pages) = (0, 0, 3)).unwrap();
        assert_eq!(regions(&nowhere, 0, &pages), (vec![], Some(3)));
    }

    #[test]
    fn pages_that_are_protected_in_units_are_cut_between_them() {
        let few = scan(|scan| (scan.flags, scan.max_pages) = (1, 11)).unwrap();
        let take = |start: u64, end: u64| {
            let mut all = Regions::new(&few, 8, few.most_pages(), PAGE).unwrap();
            all.set_unit(4 * PAGE);
            all.add(start * PAGE, end * PAGE, Category::PRESENT);
            let found = all.found().first().map(|it| (it.start / PAGE, it.end / PAGE));
            (found, all.end().map(|end| end / PAGE), all.pages())
        };
        assert_eq!(take(4, 12), (Some((4, 12)), None, 3));
        assert_eq!(take(4, 24), (Some((4, 12)), Some(12), 0));
        assert_eq!(take(4, 11), (Some((4, 8)), Some(8), 0));
        assert_eq!(take(5, 16), (None, Some(5), 0));
        assert_eq!(take(4, 7), (None, Some(4), 0));
    }

    #[test]
    fn a_malformed_query_is_refused() {
        assert_eq!(scan(|scan| scan.size = 88), Err(Errno::EINVAL));
        assert_eq!(scan(|scan| scan.flags = 4), Err(Errno::EINVAL));
        assert_eq!(scan(|scan| scan.start = 1), Err(Errno::EINVAL));
        assert_eq!(scan(|scan| scan.any_of = 1 << 10), Err(Errno::EINVAL));
        assert_eq!(scan(|scan| scan.vec = 0), Err(Errno::EINVAL));
        assert_eq!(scan(|scan| scan.vec_len = 0).map(|scan| scan.vec), Ok(0));
        assert_eq!(scan(|scan| scan.start = 65 * PAGE), Err(Errno::EFAULT));
        assert_eq!(scan(|scan| scan.end = 1 << 48), Err(Errno::EFAULT));
        assert_eq!(scan(|scan| scan.vec = u64::MAX), Err(Errno::EFAULT));
        assert_eq!(scan(|scan| scan.end = 1).map(|scan| scan.end), Ok(PAGE));
    }
}
