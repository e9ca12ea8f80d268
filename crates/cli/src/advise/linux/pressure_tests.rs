//! Random programs under random bounds: everything is where the counts say that it is.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::naive::{event, sensible, setting};
use super::super::replay::Machine;
use super::super::rules::{Setting, Word};
use super::super::tables::PAGES;
use super::*;
use crate::advise::memory::{Limit, Memory};
use crate::tape::{Access, Event, Span};

/// Counts everything again, page by page, and compares.
fn audit(machine: &mut Machine) -> Result<(), TestCaseError> {
    let (mut mapped, mut named) = (HashMap::<FolioId, u32>::new(), HashMap::<Slot, u32>::new());
    let (spaces, folios) = (&mut machine.spaces, &machine.folios);
    for space in spaces.iter_mut().flatten() {
        let mut own = 0;
        for block in space.tables.blocks() {
            let Some(table) = space.tables.get(block) else { continue };
            for at in 0..PAGES as usize {
                let entry = table.entry(at);
                if let Some(folio) = entry.folio() {
                    *mapped.entry(folio).or_default() += 1;
                    own += 1;
                }
                entry.slot().into_iter().for_each(|slot| *named.entry(slot).or_default() += 1);
            }
        }
        prop_assert_eq!(own, space.own, "pages of a space");
    }
    let (mut pages, mut listed) = (0, 0);
    for (id, count) in &mapped {
        let folio = folios.all[*id as usize];
        prop_assert_eq!(*count, folio.mapped, "mappings of a folio");
        pages += 1_u64 << folio.order;
    }
    prop_assert_eq!(pages, folios.pages, "pages of all folios");
    listed += folios.lists.as_ref().map_or(pages, |lists| lists.pages.iter().sum());
    prop_assert_eq!(listed, pages, "pages in the lists");
    prop_assert_eq!(named.len() as u64, folios.device.used(), "slots in use");
    for (slot, count) in named {
        prop_assert_eq!(count, folios.device.users(slot), "users of a slot");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn f1_no_page_is_lost_between_memory_and_the_device(
        events in proptest::collection::vec(event(), 1..160),
        setting in setting(),
        pages in 20_u64..1500,
        clusters in 0_u64..9,
        waits in any::<[bool; 2]>(),
    ) {
        let limit = Some(Limit { pages, slots: clusters * PAGES, waits });
        let mut machine = Machine::new(setting, Memory { limit, ..Memory::new(0.0) });
        for event in sensible(events) {
            machine.event(event);
            let touch = matches!(event, Event::Touch { .. });
            let folios = &machine.folios;
            // A touch may take one table more; a fork shares pages and takes its tables.
            let bound = folios.limit.map_or(u64::MAX, |limit| limit.pages);
            prop_assert!(!touch || folios.pages <= bound, "{} > {bound}", folios.pages);
            audit(&mut machine)?;
        }
    }
}

/// Pages of one area, written one after the other as often as said, with room for `pages` of them.
fn written(setting: Setting, limit: Limit, pages: u64, times: u64) -> Counts {
    let mut machine = Machine::new(setting, Memory { limit: Some(limit), ..Memory::new(0.0) });
    machine.event(Event::Space(0));
    machine.event(Event::Map(Area::anon(Span::of(1024, pages))));
    for _ in 0..times {
        for page in 1024..1024 + pages {
            machine.event(Event::Touch { page, access: Access::Write });
        }
    }
    machine.finish().counts
}

#[test]
fn f1_the_oldest_pages_leave_and_come_back_when_they_are_used() {
    let limit = Limit { pages: 512, slots: 4096, waits: [false; 2] };
    let once = written(Setting::never(), limit, 1024, 1);
    // All but the bound has left, a batch more at most; nothing was used again.
    assert!((512..=512 + 2 * BATCH).contains(&once.out), "{once:?}");
    assert_eq!((once.back, once.major, once.short), (0, 0, 0));
    // Each page of a second round is one that left in the first.
    let twice = written(Setting::never(), limit, 1024, 2);
    assert!(twice.major >= 512 && twice.major == twice.back, "{twice:?}");
    let free = written(Setting::never(), Limit { pages: 2048, ..limit }, 1024, 2);
    assert_eq!((free.out, free.back, free.faults()), (0, 0, 1024));
}

#[test]
fn f1_a_folio_leaves_whole_and_comes_back_whole() {
    let limit = Limit { pages: 512, slots: 4096, waits: [true; 2] };
    let setting = Setting::never().with(4, Word::Always);
    let twice = written(setting, limit, 1024, 2);
    assert_eq!((twice.cut, twice.out % 16, twice.back), (0, 0, 16 * twice.major));
    // Without room on the device for anything, the bound cannot hold.
    let none = written(setting, Limit { slots: 0, ..limit }, 1024, 1);
    assert!(none.short > 0 && none.out == 0, "{none:?}");
}

#[test]
fn f1_a_fault_takes_a_smaller_folio_rather_than_wait_where_defrag_says_so() {
    let limit = |waits| Limit { pages: 512, slots: 4096, waits };
    let setting = Setting::never().with(4, Word::Always);
    let waiting = written(setting, limit([true; 2]), 1024, 1);
    assert_eq!((waiting.folios[0], waiting.folios[4]), (0, 64));
    let other = written(setting, limit([false; 2]), 1024, 1);
    assert!(other.folios[0] > 0 && other.folios[4] < 64, "{other:?}");
}

/// A process that has room for 512 pages, uses 384 again and again, and then others for a while,
/// each after `pause` milliseconds; the pages that are active at its end, and its counts.
fn paced(pause: u64) -> (u64, Counts) {
    let limit = Limit { pages: 512, slots: 8192, waits: [false; 2] };
    let memory = Memory { limit: Some(limit), ..Memory::new(0.0) };
    let mut machine = Machine::new(Setting::never(), memory);
    machine.event(Event::Space(0));
    machine.event(Event::Map(Area::anon(Span::of(1024, 4096))));
    let mut write = |pages: std::ops::Range<u64>| {
        for page in pages {
            machine.event(Event::Touch { page: 1024 + page, access: Access::Write });
        }
        machine.event(Event::Time(pause));
    };
    // Each scan sees that the first pages were used again: they become active.
    for round in 0..15 {
        write(0..384);
        write(512 + round * 100..612 + round * 100);
    }
    // Nothing uses them any more.
    (0..15).for_each(|round| write(2048 + round * 100..2148 + round * 100));
    let active = machine.folios.lists.as_ref().map_or(0, |lists| lists.pages[1]);
    (active, machine.finish().counts)
}

#[test]
fn f1_active_folios_stay_until_the_statistics_of_the_group_say_that_they_are_too_many() {
    let (fast, slow) = (paced(0), paced(3000));
    // Without statistics, no folio is known to be active: none becomes inactive.
    assert!(fast.0 > 256, "{fast:?}");
    assert!(slow.0 <= 256 + BATCH, "{slow:?}");
}

#[test]
fn f1_pages_that_left_side_by_side_come_back_as_one_folio() {
    // Pages leave one by one, and some come back meanwhile: others take no place between them.
    let mut device = super::super::slots::Device::new(2 * PAGES);
    let first = device.take(0, 0).unwrap();
    device.take(0, 0).unwrap();
    device.release(first);
    let run: Vec<Slot> = (0..16).map(|_| device.take(0, 0).unwrap()).collect();
    assert!(run.iter().zip(run[0]..).all(|(slot, next)| *slot == next), "{run:?}");
    // At the end of the cluster the place that was left free is taken, too.
    let rest = std::iter::from_fn(|| device.take(0, 0)).collect::<Vec<Slot>>();
    assert!(rest.contains(&first) && rest.len() as u64 == 2 * PAGES - 17);
}
