//! Private areas of files whose pages are protected from writes, beside a model of pages (row D8).

use std::ops::Range;

use proptest::prelude::*;
use quire_units::{Access, PageSpan};

use super::watch_tests::{PAGES, START, Scene, span, watch, with};
use crate::space::{AreaFlags, At, Backing, Request, WatchFor};
use crate::table::{Sight, WATCHED};
use crate::{Need, Shield, Stop};

#[derive(Clone, Debug)]
enum Act {
    Access { page: u64, store: Option<u64> },
    Protect { pages: Range<u64>, on: bool },
    Discard { pages: Range<u64> },
}

fn act() -> impl Strategy<Value = Act> {
    let pages = || (0..PAGES, 1..40_u64).prop_map(|(at, count)| at..(at + count).min(PAGES));
    prop_oneof![
        6 => (0..PAGES, prop::option::of(1000..2000_u64))
            .prop_map(|(page, store)| Act::Access { page, store }),
        2 => (pages(), any::<bool>()).prop_map(|(pages, on)| Act::Protect { pages, on }),
        1 => pages().prop_map(|pages| Act::Discard { pages }),
    ]
}

#[derive(Clone, Copy, Default)]
struct Page {
    /// The first word of the area's own copy.
    own: Option<u64>,
    shielded: bool,
}

/// The first word of a page of the file.
fn word_of(page: u64) -> u64 {
    page + 1
}

/// Gives the file pages that begin with their words, through a shared area that goes again.
fn fill(scene: &Scene<'_, '_>) {
    let backing = Backing::File { id: scene.file, page: 0 };
    let request = Request { backing, flags: AreaFlags::SHARED, ..Request::anon(PAGES) };
    scene.mm.map(scene.space, &request.at(At::Fixed(START))).expect("free");
    for page in 0..PAGES {
        access(scene, page, Some(word_of(page))).expect("no watcher");
    }
    scene.mm.unmap(scene.space, span(0, PAGES)).expect("mapped");
}

/// The word that an access reads or writes, or the event that its watcher is told.
fn access(scene: &Scene<'_, '_>, page: u64, store: Option<u64>) -> Result<u64, WatchFor> {
    let (cpu, space) = (scene.machine.cpu(0), scene.space);
    cpu.bind();
    space.enter(cpu.number());
    cpu.switch(space.root(), space.asid());
    let how = if store.is_some() { Access::Write } else { Access::Read };
    let (at, addr) = (START.add(page), START.add(page).addr(12));
    for _ in 0..12 {
        let done = match store {
            Some(word) => cpu.write(addr, word).map(|()| word),
            None => cpu.read(addr),
        };
        match done.map_err(|_| scene.mm.fault(space, at, how)) {
            Ok(word) => return Ok(word),
            Err(Ok(_)) => {}
            Err(Err(Stop::Need(Need::Watcher(told)))) => {
                assert_eq!((told.page, told.access), (at, how));
                return Err(told.event);
            }
            Err(Err(stop)) => panic!("{stop}"),
        }
    }
    panic!("{how:?} of page {page} traps for ever");
}

fn act_on(scene: &Scene<'_, '_>, model: &mut [Page], notes: bool, act: &Act) {
    let of = |pages: &Range<u64>| pages.start as usize..pages.end as usize;
    match act {
        Act::Access { page, store } => {
            let (done, one) = (access(scene, *page, *store), &mut model[*page as usize]);
            if store.is_some() && one.shielded && !notes {
                return assert_eq!(done, Err(WatchFor::WRITE));
            }
            if store.is_some() {
                *one = Page { own: *store, shielded: false };
            }
            assert_eq!(done, Ok(one.own.unwrap_or(word_of(*page))));
        }
        Act::Protect { pages, on } => {
            let shield = if *on { Shield::All } else { Shield::Off };
            let span = span(pages.start, pages.end);
            scene.mm.spaces().write_protect(scene.space, span, shield).expect("all is watched");
            model[of(pages)].iter_mut().for_each(|page| page.shielded = *on);
        }
        Act::Discard { pages } => {
            scene.mm.discard(scene.space, span(pages.start, pages.end)).expect("mapped");
            // The protection of a copy goes with it, and a copy may be of several pages.
            let shields = shields(scene);
            for at in of(pages) {
                let (page, is_shielded) = (&mut model[at], shields[at]);
                assert!(page.shielded || !is_shielded, "a page is protected by a discard");
                *page = Page { own: None, shielded: is_shielded };
            }
        }
    }
}

/// The pages that wait for their watcher before they are written.
fn shields(scene: &Scene<'_, '_>) -> [bool; PAGES as usize] {
    let mut shielded = [false; PAGES as usize];
    scene.mm.spaces().runs(scene.space, span(0, PAGES), &mut |seen| {
        let is_it = match seen.what {
            Sight::Leaf { attrs, .. } => attrs.contains(WATCHED),
            Sight::Marker(_) => seen.is_shielded(),
        };
        let PageSpan { start, end } = seen.pages;
        let at = start.offset_from(START) as usize..end.offset_from(START) as usize;
        shielded[at].fill(is_it);
    });
    shielded
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn d8_private_pages_of_a_file_are_protected_as_a_model_of_pages_says(
        notes in any::<bool>(),
        acts in prop::collection::vec(act(), 1..40),
    ) {
        with(|scene| {
            fill(scene);
            let backing = Backing::File { id: scene.file, page: 0 };
            let request = Request { backing, ..Request::anon(PAGES) };
            scene.mm.map(scene.space, &request.at(At::Fixed(START))).expect("free");
            let events = if notes { WatchFor::WRITE | WatchFor::ASYNC } else { WatchFor::WRITE };
            let watched = scene.mm.spaces().watch(scene.space, span(0, PAGES), watch(events));
            watched.expect("it fits");
            let mut model = [Page::default(); PAGES as usize];
            for act in &acts {
                act_on(scene, &mut model, notes, act);
                assert_eq!(shields(scene), model.map(|page| page.shielded));
            }
            scene.machine.cpu(0).leave();
        });
    }
}
