//! Folios of private memory.

use super::lists::{Lists, Place};
use super::slots::Device;
use crate::advise::memory::Limit;

/// The number of a folio.
pub(in crate::advise) type FolioId = u32;

/// A folio: how large it is, and who maps how many of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::advise) struct Folio {
    pub(in crate::advise) order: u8,
    /// The address of its first page, in every space that maps it.
    pub(super) first: u64,
    pub(super) place: Place,
    /// After a third space, Linux no longer knows who shares it: it counts as shared for ever.
    many: bool,
    /// Two spaces with their mapped pages.
    users: [(u32, u32); 2],
    /// Mapped pages of all spaces.
    pub(super) mapped: u32,
}

/// Pages that a CPU charges to a group at a time.
const STOCK: u64 = 64;

/// All folios.
#[derive(Default)]
pub(in crate::advise) struct Folios {
    pub(super) all: Vec<Folio>,
    free: Vec<FolioId>,
    /// Pages of all folios.
    pub(in crate::advise) pages: u64,
    /// The most that there were.
    pub(in crate::advise) peak: u64,
    /// Pages of tables, and others of the kernel for each process.
    pub(super) tables: u64,
    /// The bound of pages and tables together, the device, and the lists by which folios leave.
    pub(super) limit: Option<Limit>,
    /// Pages that were charged in advance, and that no folio has yet.
    pub(super) stock: u64,
    pub(super) device: Device,
    pub(super) lists: Option<Lists>,
}

impl Folios {
    /// No folios; with a bound, if there is one.
    pub(super) fn new(limit: Option<Limit>) -> Folios {
        let device = limit.map(|limit| Device::new(limit.slots)).unwrap_or_default();
        Folios { limit, device, lists: limit.map(|_| Lists::default()), ..Folios::default() }
    }

    /// Whether `pages` more are within the bound.
    pub(super) fn have_room(&self, pages: u64) -> bool {
        self.stock >= pages || self.is_within(pages)
    }

    fn is_within(&self, more: u64) -> bool {
        let used = self.pages + self.tables + self.stock;
        self.limit.is_none_or(|limit| used + more <= limit.pages)
    }

    /// Charges `pages`: from the stock, or with a new stock if that fits. So the last pages below
    /// the bound may be in the stock, where a large folio does not find them.
    fn charge(&mut self, pages: u64) {
        if self.limit.is_none() {
            return;
        }
        let batch = pages.max(STOCK);
        if self.stock >= pages {
            self.stock -= pages;
        } else if self.is_within(batch) {
            self.stock += batch - pages;
            // A stock that is too large is given back.
            self.stock = if self.stock > STOCK { 0 } else { self.stock };
        }
    }

    /// A folio at the page `first`, of which `count` pages are mapped in `space`.
    pub(super) fn make(&mut self, order: u8, space: u32, (first, count): (u64, u32)) -> FolioId {
        let users = [(space, count), (0, 0)];
        let place = Place::default();
        let mut folio = Folio { order, first, place, many: false, users, mapped: count };
        self.charge(1 << order);
        self.pages += 1 << order;
        self.peak = self.peak.max(self.pages);
        let id = match self.free.pop() {
            Some(id) => {
                // The lists may have elements of the folio that had the number before.
                folio.place = Place::after(self.all[id as usize].place);
                self.all[id as usize] = folio;
                id
            }
            None => {
                self.all.push(folio);
                self.all.len() as FolioId - 1
            }
        };
        self.enlist(id, false, false);
        id
    }

    /// A page of the folio has moved to the address `page`, from `from`.
    pub(super) fn moved(&mut self, id: FolioId, from: u64, page: u64) {
        let folio = &mut self.all[id as usize];
        if (folio.first..folio.first + (1 << folio.order)).contains(&from) {
            folio.first = page.saturating_sub(from - folio.first);
        }
    }

    /// `count` more of its pages are mapped in `space`.
    pub(in crate::advise) fn map(&mut self, id: FolioId, space: u32, count: u32) {
        let folio = &mut self.all[id as usize];
        folio.mapped += count;
        let known = folio.users.iter().position(|(user, count)| *user == space && *count > 0);
        let place = known.or_else(|| folio.users.iter().position(|(_, count)| *count == 0));
        match place {
            Some(place) => {
                let before = folio.users[place].1;
                folio.users[place] = (space, before + count);
            }
            None => folio.many = true,
        }
    }

    /// `count` of its pages are no longer mapped in `space`; the folio is freed with the last.
    pub(in crate::advise) fn unmap(&mut self, id: FolioId, space: u32, count: u32) {
        let folio = &mut self.all[id as usize];
        folio.mapped = folio.mapped.saturating_sub(count);
        for (user, mapped) in &mut folio.users {
            if *user == space {
                *mapped = mapped.saturating_sub(count);
            }
        }
        if folio.mapped == 0 {
            self.pages -= 1 << folio.order;
            self.delist(id);
            self.free.push(id);
        }
    }

    /// Whether `space` alone maps it, as far as Linux can tell.
    pub(in crate::advise) fn is_own(&self, id: FolioId, space: u32) -> bool {
        let folio = &self.all[id as usize];
        let own = folio.users.iter().find(|(user, count)| *user == space && *count > 0);
        !folio.many && own.is_some_and(|(_, count)| *count == folio.mapped)
            || folio.order == 0 && folio.mapped == 1
    }
}
