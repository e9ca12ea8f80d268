//! The scenario of a pair, and those of all pairs.

use quire_arch::X86_64;
use quire_machine::Config;
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::thread;

use super::Runner;
use super::changes::{CHANGES, Changes};
use super::place::{On, Place};
use super::table::kinds;
use super::takes::{TAKES, Takes};
use super::views::is_as_before;
use crate::explore_some;
use crate::files::with_file_of;
use crate::scene::Scene;

/// How many orders of each scheduler each pair is played in, in a run of all tests.
const SCHEDULES: usize = 24;

/// CPU 2: warms its TLB, and looks when the change has returned.
fn looks(
    runner: &Runner<'_, '_, '_>,
    place: Place,
    (ready, told, over): (&[Sender<()>; 2], &Receiver<()>, &Sender<()>),
    takes: &Takes,
    seen: fn(&Runner<'_, '_, '_>, Place),
) {
    for (at, page) in place.all() {
        runner.write(&runner.scene.space, page, place.first(at));
    }
    (takes.before)(runner, place);
    is_as_before(runner, place);
    ready.iter().for_each(|ready| ready.send(()).expect("both wait"));
    told.recv().expect("the change returns");
    seen(runner, place);
    over.send(()).expect("the other waits");
}

/// Plays a pair once.
fn plays(scene: &Scene<'_, '_, '_, X86_64>, place: Place, takes: &Takes, changes: &Changes) {
    let ([taker, begins], [taker_ready, ready]) = {
        let ((one, first), (other, second)) = (channel(), channel());
        ([one, other], [first, second])
    };
    let (done, told) = channel();
    let (seen, over) = channel();
    thread::scope(|scope| {
        let is_seen = changes.seen;
        scope.spawn(move || {
            let channels = (&[taker, begins], &told, &seen);
            scene.on(2, |runner| looks(runner, place, channels, takes, is_seen));
        });
        let (act, then) = (changes.act, changes.then);
        scope.spawn(move || {
            scene.on(1, |runner| {
                ready.recv().expect("the other is warm");
                let child = act(runner, place);
                done.send(()).expect("the other waits");
                over.recv().expect("the other looks");
                then(runner, place, child);
            });
        });
        let take = takes.act;
        scene.on(0, |runner| {
            taker_ready.recv().expect("the other is warm");
            take(runner, place);
        });
    });
}

/// The pair that is played: the models take no arguments.
fn scenario(at: usize) {
    let (takes, changes) = (&TAKES[at / CHANGES.len()], &CHANGES[at % CHANGES.len()]);
    for kind in kinds(takes, changes) {
        with_file_of::<X86_64>(takes.store, Config::x86_64(), |scene, file, start| {
            let (anon, pages) = (scene.span(), scene.mm.files().get(file).map_or(0, |f| f.pages()));
            let place = match kind {
                On::File => Place { start, pages, kind, file },
                _ => Place { start: anon.start, pages: anon.count(), kind, file },
            };
            plays(scene, place, takes, changes);
        });
    }
}

/// Plays all pairs of one call that takes memory back.
fn pairs_of(name: &str) {
    let many = CHANGES.len();
    let row = TAKES.iter().position(|takes| takes.name == name).expect("there is such a call");
    for at in row * many..(row + 1) * many {
        if kinds(&TAKES[row], &CHANGES[at % many]).next().is_some() {
            println!("{name} beside {}", CHANGES[at % many].name);
            explore_some(SCHEDULES, move || scenario(at));
        }
    }
}

#[test]
fn i6_each_change_beside_a_page_out_of_the_same_space_is_seen_by_a_warm_tlb() {
    pairs_of("page out its own");
}

#[test]
fn i6_each_change_beside_a_page_out_of_all_spaces_is_seen_by_a_warm_tlb() {
    pairs_of("page out of all spaces");
}

#[test]
fn i6_each_change_beside_a_page_out_that_begins_in_a_child_is_seen_by_a_warm_tlb() {
    pairs_of("page out of a child and all others");
}

#[test]
fn i6_each_change_beside_reclaim_is_seen_by_a_warm_tlb() {
    pairs_of("reclaim");
    pairs_of("reclaim, divide folios");
}

#[test]
fn i6_each_change_beside_a_page_out_of_shared_memory_is_seen_by_a_warm_tlb() {
    pairs_of("page out a file in memory");
}

#[test]
fn i6_each_change_beside_writeback_is_seen_by_a_warm_tlb() {
    pairs_of("write back");
    pairs_of("drop clean pages");
}

#[test]
fn i6_each_change_beside_a_collapse_is_seen_by_a_warm_tlb() {
    pairs_of("collapse");
    pairs_of("collapse a file");
}

#[test]
fn i6_each_change_beside_a_scan_is_seen_by_a_warm_tlb() {
    pairs_of("scan");
}

#[test]
fn i6_each_change_beside_dropped_zeroes_and_divided_folios_is_seen_by_a_warm_tlb() {
    pairs_of("drop zeroes");
    pairs_of("divide a folio");
}
