//! Memory is full: folios leave for the swap device, and come back, by Linux's rules.
//!
//! * A group of processes over its bound scans its inactive list, 32 pages or a folio at a time,
//!   until as many pages are free as the fault takes, and at least 32 (`memory.max`).
//! * A folio leaves whole, to aligned slots side by side. Where the device has none, it is split,
//!   and so is one of which parts are no longer mapped: those parts are free at once.
//! * Each space that maps it has entries for the slots then. One that is mapped at a place that the
//!   model does not find stays.
//! * A fault on a slot brings the largest folio that the switches allow below a block, if the pages
//!   around lie in slots side by side and aligned alike; the slots are free then. This holds for
//!   devices that answer at once (compressed memory). After a fork, each space reads its own copy.
//! * A page that comes back after fewer pages than the active list has goes to that list.
//!
//! * Reclaim decides by the statistics of the group, which Linux brings together each two seconds
//!   ([`lists`](super::lists)). Until then they are as before, at first zero. Folios that
//!   became active stay so meanwhile; and when no folio is inactive any more, Linux ends a process,
//!   however much room the device has.
//!
//! Left out: the swap cache and reading ahead for slower devices; pages of zeroes, which take a
//! slot and no device; generations (`lru_gen`); pages of files, which leave as recorded; memory of
//! the kernel for files, sockets and threads; the CPU that swaps, each of which fills a cluster of
//! its own.

use super::fault::{Around, Counts, around};
use super::folios::{FolioId, Folios};
use super::lists::{Lists, Verdict};
use super::rules::{BLOCK, LEAST};
use super::slots::Slot;
use super::space::{Space, split};
use super::tables::Entry;
use crate::tape::Area;

/// Pages that are scanned, and freed, at a time.
const BATCH: u64 = 32;
/// How often reclaim is tried before the bound is raised.
const TRIES: u32 = 17;
/// The part of the inactive list that is scanned before all of it is.
const AGAIN: (u64, u64) = (3, 10);

/// The parts of the machine that reclaim needs.
type Machine<'a> = (&'a mut [Option<Space>], &'a mut Folios);

/// Pages out until `pages` have room. Where that is impossible, raises the bound for one page.
pub(super) fn make_room((spaces, folios): Machine<'_>, counts: &mut Counts, pages: u64) {
    for _ in 0..TRIES {
        reclaim((spaces, folios), counts, pages.max(BATCH));
        if folios.have_room(pages) {
            return;
        }
        folios.stock = 0;
    }
    if pages == 1
        && let Some(limit) = &mut folios.limit
    {
        counts.short += 1;
        limit.pages += BATCH;
    }
}

/// Frees `pages` pages, if a scan of all that is inactive finds as many. With each batch of it, as
/// many active pages become inactive if that list is too long, or if nothing else could leave.
/// Where nothing is inactive, it does nothing: Linux then ends a process.
fn reclaim((spaces, folios): Machine<'_>, counts: &mut Counts, pages: u64) {
    let old = folios.lists.as_ref().is_some_and(Lists::has_old);
    let goal = folios.pages.saturating_sub(pages);
    let before = folios.pages;
    for both in [old, true] {
        let [inactive, mut active] = folios.lists.as_ref().map_or([0; 2], |lists| lists.pages);
        let mut left = inactive + inactive * AGAIN.0 / AGAIN.1;
        while left > 0 && folios.pages > goal {
            let scanned = scan((spaces, folios), counts);
            if scanned == 0 {
                break;
            }
            left = left.saturating_sub(scanned);
            if both && active > 0 {
                active = active.saturating_sub(folios.deactivate(BATCH));
            }
        }
        if folios.lists.as_ref().is_some_and(|lists| lists.known.0[0] < lists.known.0[1]) {
            folios.deactivate(BATCH);
        }
        if both || inactive == 0 || folios.pages < before {
            break;
        }
    }
    folios.lists.iter_mut().for_each(Lists::reclaimed);
}

/// Scans a part of the inactive list; returns how many pages.
fn scan((spaces, folios): Machine<'_>, counts: &mut Counts) -> u64 {
    let mut scanned = 0;
    while scanned < BATCH {
        let Some(id) = folios.next(false) else { break };
        let pages = 1 << folios.all[id as usize].order;
        scanned += pages;
        let users = spaces.iter().flatten().count();
        let is_shared = users > 1 && folios.all[id as usize].mapped > pages as u32;
        match folios.verdict(id, is_shared) {
            Verdict::Keep => folios.enlist(id, false, false),
            Verdict::Activate => {
                folios.grow_old(pages);
                folios.enlist(id, true, false);
            }
            Verdict::Leave => leave((spaces, folios), counts, id),
        }
    }
    scanned
}

/// A page of a folio in a space: the space's place, the page, and whether it is its own.
type User = (usize, u64, bool);

/// A folio leaves, or is split, or stays as an active one. It is in no list.
fn leave((spaces, folios): Machine<'_>, counts: &mut Counts, id: FolioId) {
    let folio = folios.all[id as usize];
    let users = users(spaces, id, folio.first, 1 << folio.order);
    // Whatever happens to it, it leaves a list once more.
    folios.enlist(id, true, false);
    if users.len() != folio.mapped as usize {
        return;
    }
    let mut pages: Vec<u64> = users.iter().map(|(_, page, _)| *page).collect();
    pages.sort_unstable();
    pages.dedup();
    if pages.len() < 1 << folio.order {
        counts.partial += 1;
        return divide((spaces, folios), id, &users);
    }
    let age = folios.lists.as_ref().map_or(0, |lists| lists.age);
    let Some(slot) = folios.device.take(folio.order, age) else {
        if folio.order > 0 {
            counts.cut += 1;
            divide((spaces, folios), id, &users);
        }
        return;
    };
    let mut named = vec![false; 1 << folio.order];
    for (place, page, own) in users {
        let Some(space) = &mut spaces[place] else { continue };
        let at = (page - folio.first) as usize;
        let slot = slot + at as Slot;
        if std::mem::replace(&mut named[at], true) {
            folios.device.share(slot);
        }
        folios.unmap(id, space.number, 1);
        space.left(page, Entry::swapped(slot, own));
    }
    folios.grow_old(1 << folio.order);
    counts.out += 1 << folio.order;
}

/// The mappings of a folio that lie at its own address.
fn users(spaces: &mut [Option<Space>], id: FolioId, first: u64, count: u64) -> Vec<User> {
    let mut users = Vec::new();
    for (place, space) in spaces.iter_mut().enumerate() {
        let Some(space) = space else { continue };
        for page in first..first + count {
            let (block, at) = split(page);
            let entry = space.tables.get(block).map_or(Entry::NONE, |table| table.entry(at));
            if entry.folio() == Some(id) {
                users.push((place, page, entry.is_own()));
            }
        }
    }
    users
}

/// Each mapped page becomes a folio, to be scanned next; the others are free.
fn divide((spaces, folios): Machine<'_>, id: FolioId, users: &[User]) {
    let mut parts: Vec<(u64, FolioId)> = Vec::new();
    // They are charged already.
    let limit = folios.limit.take();
    for (place, page, own) in users {
        let Some(space) = &mut spaces[*place] else { continue };
        let known = parts.iter().find(|(other, _)| other == page).map(|(_, part)| *part);
        let part = match known {
            Some(part) => {
                folios.map(part, space.number, 1);
                part
            }
            None => {
                let part = folios.make(0, space.number, (*page, 1));
                folios.delist(part);
                folios.enlist(part, false, true);
                parts.push((*page, part));
                part
            }
        };
        folios.unmap(id, space.number, 1);
        let (block, at) = split(*page);
        space.tables.at(block).pages()[at] = Entry::of(part, *own);
    }
    folios.limit = limit;
}

impl Around<'_> {
    /// A fault on a page that is on the device; the order for which others must leave first.
    pub(super) fn swap_in(
        &mut self,
        space: &mut Space,
        area: &Area,
        page: u64,
        slot: Slot,
    ) -> Option<u8> {
        let orders = self.setting.orders(area) & ((1 << BLOCK) - 1) & ((2 << self.most) - 1);
        let alone = self.folios.device.users(slot) == 1;
        let mut order = 0;
        for wanted in (LEAST..BLOCK).rev().filter(|order| alone && orders >> order & 1 != 0) {
            if !self.comes_whole(space, area, page, wanted) {
                continue;
            }
            if self.has(wanted) {
                order = wanted;
                break;
            }
            if self.waits(area, wanted) {
                return Some(wanted);
            }
        }
        if !self.folios.have_room(1 << order) {
            return Some(order);
        }
        let span = around(page, order);
        let age = self.folios.lists.as_ref().map_or(0, |lists| lists.age);
        let distance = age - self.folios.device.age(slot);
        let folio = self.folios.make(order, space.number, (span.start, 1 << order));
        if self.folios.lists.as_ref().is_some_and(|lists| distance <= lists.known.0[1]) {
            self.folios.returned(folio);
        }
        let (block, first) = split(span.start);
        let table = space.tables.at(block);
        for entry in &mut table.pages()[first..first + (1 << order)] {
            let own = entry.is_own() || alone;
            entry.slot().into_iter().for_each(|slot| self.folios.device.release(slot));
            *entry = Entry::of(folio, own);
        }
        self.counts.major += 1;
        self.counts.back += 1 << order;
        space.came(1 << order);
        None
    }

    /// Whether all pages of `order` around `page` come back as one folio.
    fn comes_whole(&self, space: &mut Space, area: &Area, page: u64, order: u8) -> bool {
        let span = around(page, order);
        let (block, first) = split(span.start);
        let Some(table) = space.tables.get(block) else { return false };
        let slot = table.entry(first).slot();
        let Some(start) = slot.filter(|slot| slot.is_multiple_of(1 << order)) else { return false };
        let same = |at: u32| {
            let slot = table.entry(first + at as usize).slot();
            slot == Some(start + at) && self.folios.device.users(start + at) == 1
        };
        area.span.covers(span) && (0..1 << order).all(same)
    }
}

#[cfg(test)]
#[path = "pressure_tests.rs"]
mod tests;
