//! Which pages to read, and which to read ahead (rows B1 and B2).
//!
//! A *stream* is a reader that goes through a file from front to back. It begins with a small
//! window in small folios. A reader that comes to the *mark* in it has used the pages before, so
//! the next window is read before it is needed, larger and in folios four times as large:
//!
//! ```text
//!   miss            marked             marked
//!     |               |                  |
//!     [....] order 0  [........] order 2 [................] order 4      up to the bounds
//!      ^ mark         ^ mark             ^ mark
//! ```
//!
//! A *fault* in a mapped file tells less: programs jump. The first that holds decides:
//!
//! 1. the area is advised to be huge: one or two of the largest folios;
//! 2. reading ahead is off, or the area is advised to be random and holds no code: the page;
//! 3. the area is advised to be sequential: a stream;
//! 4. the area is read as code: a window in folios of the size that suits the CPU, within the area,
//!    and without a mark, since code does not run from front to back. An area is read as code if it
//!    is executable or has a preferred size of its own, and, where code has a preferred size, if
//!    its file holds code: a program uses its constants and data as it uses its code;
//! 5. there were many misses and few hits: the page;
//! 6. else: a window around the page.
//!
//! The figures are Linux's (mm/readahead.c and mm/filemap.c of 7.2), so that programs tuned there
//! find the same here. The differences:
//! - any touch of a marked folio continues the stream, also in its middle;
//! - a window that is cut to end aligned does not make the next ones smaller;
//! - a stream keeps windows as large as the reads that began it;
//! - code that is read as a stream keeps its preferred size;
//! - where code has a preferred size, its windows are twice as large, and a quarter of them lies
//!   before the block of the fault: calls lead back as well as ahead, and windows of whole blocks
//!   read fewer pages in vain; and a window around other pages ends with their area.

use quire_units::{Order, OrderSet};

use super::FilePages;
use super::window::{Bounds, Window};
use crate::folio::Folio;

/// After how many misses, in excess of hits, faults stop reading around.
pub const MANY_MISSES: u16 = 100;

/// The count of misses stops here, so that hits can make up for them.
const MISSES_MOST: u16 = 10 * MANY_MISSES;

/// The advice of a program on how it reads an open file or an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pattern {
    /// No advice.
    #[default]
    Normal,
    /// From front to back (`POSIX_FADV_SEQUENTIAL`, `MADV_SEQUENTIAL`): no evidence is asked for,
    /// and windows are twice as large.
    Sequential,
    /// Here and there (`POSIX_FADV_RANDOM`, `MADV_RANDOM`): nothing is read ahead.
    Random,
}

/// The area of a fault, as the file sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The pages of the file that the area shows. They hold the page of the fault.
    pub pages: FilePages,
    /// Whether the area is read as code (rule 4 above).
    pub exec: bool,
    /// Whether it was advised so (`MADV_HUGEPAGE`).
    pub huge: bool,
    /// The advice on how it is read.
    pub pattern: Pattern,
    /// The folio sizes that faults in it prefer.
    pub preference: Preference,
}

impl Mapped {
    /// Whether its hits and misses are evidence of how the file is read.
    const fn is_counted(&self) -> bool {
        matches!(self.pattern, Pattern::Normal) && !self.exec && !self.huge
    }

    /// The window for a fault at `page` of code that is not cached: aligned blocks of the preferred
    /// size, within the area.
    pub(crate) fn code_around(&self, page: u64, bounds: &Bounds) -> FilePages {
        let (block, before, ahead) = match self.tier(page, bounds) {
            None => (page, 0, limit(bounds, Pattern::Normal)),
            Some(order) => {
                let size = limit(bounds, Pattern::Sequential);
                let before = (size / 4) & !(order.pages() - 1);
                let ahead = (size - before).next_multiple_of(order.pages());
                (FilePages::block(page, order).start, before, ahead)
            }
        };
        let start = block.saturating_sub(before).max(self.pages.start).min(page);
        FilePages::new(start, (block + ahead).min(self.pages.end).max(page + 1))
    }

    /// The order of folios for code at `page`; `None` if none is preferred.
    fn tier(&self, page: u64, bounds: &Bounds) -> Option<Order> {
        let within = self.pages.intersect(FilePages::new(0, bounds.end));
        let mut tiers = self.preference.exec;
        while tiers.smallest() != tiers.largest() {
            let order = tiers.largest()?;
            if within.covers(FilePages::block(page, order)) {
                return Some(order);
            }
            tiers = tiers.below(order);
        }
        tiers.largest()
    }
}

/// The folio sizes that faults prefer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Preference {
    /// For code, as a set of orders: of several, the largest whose block around the fault lies
    /// within the area and the file; else the smallest of them. None: any size.
    pub exec: OrderSet,
    /// For areas that are advised to be huge.
    pub huge: Order,
}

/// The position of a reader: one for each open file, and one for each mapped file (Linux:
/// `file_ra_state`). Any values are valid: a mixture of two states costs only speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readahead {
    /// The page after the last that the program has read.
    next: u64,
    /// The page after the last window.
    end: u64,
    /// The size of the last window in pages, before its end was aligned.
    size: u16,
    /// The order that the last window was to have.
    order: u8,
    /// Misses in excess of hits.
    misses: u16,
    /// The folio that was read last: a program that reads small pieces needs it again.
    last: Option<Folio>,
}

impl Readahead {
    /// The window when a program reads `wanted`, which is not empty and begins within the file, and
    /// of which the first page is not cached. `before` is how many pages right before it are
    /// cached, counted up to `bounds.window`: a stream that is new to this state leaves such a
    /// trace.
    pub fn miss(
        &mut self,
        wanted: FilePages,
        before: u64,
        bounds: &Bounds,
        pattern: Pattern,
    ) -> Window {
        let (start, count) = (wanted.start, wanted.count().max(1));
        let limit = limit(bounds, pattern);
        if limit == 0 || pattern == Pattern::Random {
            return Window::exactly(wanted, bounds);
        }
        let goes_on = start == 0 || start == self.next || start + 1 == self.next;
        if goes_on || count > limit || pattern == Pattern::Sequential {
            return self.start_stream(wanted, limit, Order::ZERO, bounds);
        }
        if before <= count {
            return Window::exactly(wanted, bounds);
        }
        let before = before.min(limit);
        let seen = if before == start { 2 * before } else { before };
        let size = (seen + count).min(limit);
        self.open(start, size, Order::ZERO, start + size - 1, bounds)
    }

    /// Notes that the program has read `pages`, cached or not.
    pub fn read(&mut self, pages: FilePages) {
        self.next = pages.end;
        self.last = None;
    }

    /// Notes that the program has read `pages`, which are the end of what it needs of `folio` now.
    #[inline]
    pub(crate) fn read_of(&mut self, folio: Folio, pages: FilePages) {
        self.next = pages.end;
        self.last = Some(folio);
    }

    /// The folio that was read last, and its pages, if `page` is one of them. Only its identity
    /// tells whether it still is that.
    #[inline]
    pub(crate) fn last(&self, page: u64) -> Option<(Folio, FilePages)> {
        let folio = self.last?;
        let pages = FilePages::block(page, folio.order);
        let before = self.next.checked_sub(1)?;
        pages.contains(before).then_some((folio, pages))
    }

    /// The folio that was read last is gone.
    #[inline]
    pub(crate) fn forget_last(&mut self) {
        self.last = None;
    }

    /// The window when a reader comes to `folio`, whose mark the caller takes away; `None` if
    /// enough is cached already. `missing` is the first page after the folio that is not cached; it
    /// is enough to look `bounds.window` pages far.
    pub fn marked(
        &mut self,
        folio: FilePages,
        missing: u64,
        bounds: &Bounds,
        pattern: Pattern,
    ) -> Option<Window> {
        let mut limit = limit(bounds, pattern);
        if limit == 0 || pattern == Pattern::Random {
            return None;
        }
        let mut start = missing.max(folio.end);
        let own = u64::from(self.size);
        let last = FilePages::new(self.end.saturating_sub(own), self.end);
        let (size, order) = if last.intersect(folio).is_empty() {
            ((start - folio.start + 1).min(limit), Order::fitting(folio.count())?.get())
        } else {
            (start, limit) = (start.max(self.end), limit.max(own));
            (own, self.order)
        };
        if start >= bounds.end || start - folio.end > limit {
            return None;
        }
        let size = grown(size, limit);
        let order = Order::new((order + 2).min(31)).min(bounds.largest());
        let order = Order::fitting(size)?.min(order);
        let end = (start + size) & !(order.pages() - 1);
        let window = self.open(start, end - start, order, start, bounds);
        self.size = short(size);
        Some(window)
    }

    /// The window for a fault at `page`, which lies in the file and is not cached.
    pub fn fault(&mut self, page: u64, mapped: &Mapped, bounds: &Bounds) -> Window {
        let this = FilePages::new(page, page + 1);
        let huge = bounds.at_most(mapped.preference.huge);
        if mapped.huge && huge > bounds.smallest {
            // One folio around the page, and one more unless the program jumps.
            let block = FilePages::block(page, huge);
            return match mapped.pattern {
                Pattern::Random => Window::new(block, huge, None, bounds),
                _ => self.open(block.start, 2 * huge.pages(), huge, block.end, bounds),
            };
        }
        if bounds.window == 0 || mapped.pattern == Pattern::Random && !mapped.exec {
            return Window::exactly(this, bounds);
        }
        if mapped.pattern == Pattern::Sequential {
            return self.sequential(page, mapped, bounds);
        }
        if mapped.exec {
            return exec(page, mapped, bounds);
        }
        if mapped.is_counted() {
            self.misses = self.misses.saturating_add(1).min(MISSES_MOST);
        }
        if self.misses > MANY_MISSES {
            return Window::exactly(this, bounds);
        }
        let size = limit(bounds, Pattern::Normal);
        let start = page.saturating_sub(size / 2);
        let mark = start + size - size / 4;
        if mapped.preference.exec.is_empty() {
            return self.open(start, size, Order::ZERO, mark, bounds);
        }
        // Small folios would be in the way of the large ones of code beyond the area.
        let around = FilePages::new(start, start + size).intersect(mapped.pages);
        self.open(around.start, around.count().max(1), Order::ZERO, mark, bounds)
    }

    /// Notes that faults in the area found `pages` pages cached.
    pub fn hit(&mut self, pages: u64, mapped: &Mapped) {
        if mapped.is_counted() {
            self.misses = self.misses.saturating_sub(short(pages));
        }
    }

    /// A stream that begins at the page; with code, at its block.
    fn sequential(&mut self, page: u64, mapped: &Mapped, bounds: &Bounds) -> Window {
        let tier = if mapped.exec { mapped.tier(page, bounds) } else { None };
        let order = tier.unwrap_or_default();
        let wanted = FilePages::block(page, order).intersect(mapped.pages);
        let window = self.start_stream(wanted, limit(bounds, mapped.pattern), order, bounds);
        window.with(
            tier.map_or(OrderSet::EMPTY, |order| mapped.preference.exec & OrderSet::up_to(order)),
        )
    }

    /// The first window of a stream. The mark is the first page that the program did not ask for.
    fn start_stream(
        &mut self,
        wanted: FilePages,
        limit: u64,
        order: Order,
        bounds: &Bounds,
    ) -> Window {
        let (start, count) = (wanted.start, wanted.count().max(1));
        let size = first_size(count, limit);
        let ahead = if size > count { size - count } else { size / 2 };
        let certain = if count > limit { Order::fitting(count) } else { None };
        let order = order.max(certain.unwrap_or_default());
        self.open(start, size, order, start + size - ahead, bounds)
    }

    /// A window that the next one will follow.
    fn open(&mut self, start: u64, size: u64, order: Order, mark: u64, bounds: &Bounds) -> Window {
        let pages = FilePages::new(start, start + size);
        let window = Window::new(pages, order, Some(mark), bounds);
        self.end = window.pages.end;
        self.size = short(size.max(window.pages.count()));
        self.order = order.max(bounds.smallest).get();
        window
    }

    /// The state in two words. Positions of 2^48 pages and more are forgotten, and the folio that
    /// was read last.
    pub const fn to_words(self) -> [u64; 2] {
        [
            place(self.next) | (self.size as u64) << PLACE_BITS,
            place(self.end)
                | (self.misses as u64) << PLACE_BITS
                | (self.order as u64) << (PLACE_BITS + MISS_BITS),
        ]
    }

    /// The state from two words.
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self {
            next: words[0] & PLACE_MASK,
            size: (words[0] >> PLACE_BITS) as u16,
            end: words[1] & PLACE_MASK,
            misses: (words[1] >> PLACE_BITS) as u16 & ((1 << MISS_BITS) - 1),
            order: (words[1] >> (PLACE_BITS + MISS_BITS)) as u8,
            last: None,
        }
    }
}

const PLACE_BITS: u32 = 48;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const MISS_BITS: u32 = 11;

const _: () = assert!(MISSES_MOST < 1 << MISS_BITS);

const fn place(page: u64) -> u64 {
    if page < PLACE_MASK { page } else { PLACE_MASK }
}

/// A number of pages in 16 bits: 256 MiB of 4 KiB pages.
fn short(pages: u64) -> u16 {
    u16::try_from(pages).unwrap_or(u16::MAX)
}

/// How large a stream's windows may become.
fn limit(bounds: &Bounds, pattern: Pattern) -> u64 {
    let twice = u64::from(pattern == Pattern::Sequential);
    (bounds.window << twice).min(u64::from(u16::MAX))
}

/// The size of a stream's first window: the less is wanted, the more cautious.
fn first_size(count: u64, limit: u64) -> u64 {
    match count.next_power_of_two() {
        round if round <= limit / 32 => 4 * round,
        round if round <= limit / 4 => 2 * round,
        _ => limit.max(count),
    }
}

/// The size of the window after one of `size`.
fn grown(size: u64, limit: u64) -> u64 {
    let factor = if size < limit / 16 { 4 } else { 2 };
    (size * factor).min(limit)
}

/// The window for code.
fn exec(page: u64, mapped: &Mapped, bounds: &Bounds) -> Window {
    let order = mapped.tier(page, bounds).unwrap_or_default();
    let window = Window::new(mapped.code_around(page, bounds), order, None, bounds);
    window.with(mapped.preference.exec & OrderSet::up_to(order))
}
