//! Reserved folios (hugetlb): the sizes of the pools, and what areas show of them.

use quire::PoolCounts;
use quire::arch::{Arch, Level};
use quire::cache::{FileId, FilePages, Store};
use quire::space::{Area, AreaFlags, Backing, Request};
use quire::units::{Order, PageSpan};
use quire_linux::files::{Pages, Reserved};
use quire_linux::{Errno, Result};

use super::files::MemoryFile;
use super::{Memory, PAGE_SHIFT, mm};
use crate::isa::Format;

/// The folios that a program gets where it names no size.
pub(crate) const USUAL: Order = Order::new(21 - PAGE_SHIFT as u8);

/// The largest.
const LARGEST: Order = Order::new(30 - PAGE_SHIFT as u8);

/// The sizes that there may be: single leaves, and contiguous blocks of each of the two lowest
/// levels where the ISA has them.
pub(crate) fn sizes() -> impl Iterator<Item = Order> {
    let upper = Level::new(1);
    let blocks = [Format::fold_order(Level::LAST), Some(USUAL), Format::fold_order(upper)];
    blocks.into_iter().flatten().chain([LARGEST])
}

/// Makes the pools. They are empty.
pub(super) fn init() {
    for order in sizes() {
        if mm().files().open_pool(order).is_err() {
            log!("no pool for folios of {} KiB", order.bytes(PAGE_SHIFT) >> 10);
        }
    }
}

/// The order that a program names.
pub(crate) fn order_of(size: Reserved) -> Option<Order> {
    let wanted = match size.0 {
        0 => USUAL,
        bits => Order::new(bits.checked_sub(PAGE_SHIFT)? as u8),
    };
    sizes().find(|order| *order == wanted)
}

/// The numbers of the pool of folios of `order`.
pub(crate) fn counts(order: Order) -> PoolCounts {
    mm().files().pool(order).unwrap_or_default()
}

/// Gives the pool another size, as far as there is memory; `compact` makes room for a number of
/// folios, and says whether to try again.
pub(crate) fn resize(order: Order, folios: u64, mut compact: impl FnMut(u64) -> bool) {
    let mut before = None;
    while let Some(now) = mm().files().resize_pool(order, folios)
        && now.size < folios
        && before.is_none_or(|before| now.size > before)
        && compact(folios - now.size)
    {
        before = Some(now.size);
    }
}

/// The order of the reserved folios that an area shows.
pub(crate) fn of_area(area: &Area) -> Option<Order> {
    let Backing::File { id, .. } = area.backing else { return None };
    of_file(id)
}

/// The order of the reserved folios that the pages of a file are in.
pub(crate) fn of_file(id: FileId) -> Option<Order> {
    let file = mm().files().get(id)?;
    (file.store() == Some(Store::Reserved)).then(|| file.smallest())
}

/// Promises the folios that an area of a file shows, unless it does without.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn promise(request: &Request, id: FileId, page: u64) -> Result<()> {
    if request.flags.contains(AreaFlags::NORESERVE) {
        return Ok(());
    }
    let pages = FilePages::new(page, page + request.pages);
    mm().files().promise(id, pages).map_err(|_| Errno::ENOMEM)
}

/// Promises the folios of a private area's pages once more, as far as they are free: the program
/// has just given them back, and may touch the pages again.
pub(crate) fn promise_again(area: &Area, part: PageSpan) {
    let is_own = !area.flags.intersects(AreaFlags::SHARED | AreaFlags::NORESERVE);
    if let (Some(_), Backing::File { id, page }) = (of_area(area), area.backing_of(part.start))
        && is_own
    {
        // If another process has them by now, a later touch fails.
        let _ = mm().files().promise(id, FilePages::new(page, page + part.count()));
    }
}

impl Memory {
    /// Maps reserved folios without a name, whole ones as `request` says.
    ///
    /// # Errors
    /// `ENOMEM` where too few are free; the errors of mapping.
    pub(crate) fn map_reserved(&self, request: &Request, order: Order) -> Result<PageSpan> {
        let file = MemoryFile::reserved(request.pages, order);
        let id = FileId(file.object().map_err(|_| Errno::ENOMEM)?);
        promise(request, id, 0)?;
        let backing = Backing::File { id, page: 0 };
        self.show(id.0, file, &Request { backing, ..*request })
    }
}
