//! Folios that leave memory and come back, while others use them, share them or end.

use quire::Scope;
use quire::fault::SizePolicy;
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::Config;
use quire_units::{Order, PageSpan};
use shuttle::thread;

use crate::explore;
use crate::scene::{FOLIO, Runner, Scene, play};

/// Writes numbers to `pages` and finds them again.
fn keeps<A: Arch>(runner: &Runner<'_, '_, '_, A>, pages: [u64; 2]) {
    let scene = runner.scene;
    for value in 1..=2 {
        pages.iter().for_each(|&at| runner.write(&scene.space, scene.page(at), value));
        let kept = pages.map(|at| runner.read(&scene.space, scene.page(at)));
        assert_eq!(kept, [value; 2], "a store was lost");
    }
}

/// Two CPUs write pages of the same folios, while CPU 0 pages them out, twice.
fn in_use<A: Arch>(config: Config) {
    play::<A>(config, |scene| {
        thread::scope(|scope| {
            scope.spawn(|| scene.on(1, |runner| keeps(runner, [0, FOLIO])));
            scope.spawn(|| scene.on(2, |runner| keeps(runner, [1, FOLIO + 1])));
            scene.on(0, |runner| {
                runner.page_out(&scene.space, scene.span());
                runner.page_out(&scene.space, PageSpan::new(scene.page(2), scene.page(6)));
            });
        });
    });
}

#[test]
fn d3_a_writer_keeps_what_it_wrote_while_pages_leave() {
    explore(|| in_use::<X86_64>(Config::x86_64()));
}

#[test]
fn d3_a_writer_keeps_what_it_wrote_while_folded_blocks_leave() {
    explore(|| in_use::<Arm4k>(Config::arm64_4k()));
}

/// All that is there is on the device; two CPUs bring the same folios back.
fn back<A: Arch>(config: Config) {
    play::<A>(config, |scene| {
        scene.on(0, |runner| {
            for at in 0..scene.span().count() {
                runner.write(&scene.space, scene.page(at), at + 1);
            }
            runner.page_out(&scene.space, scene.span());
            scene.mm.reclaim().reclaim(u64::MAX, &scene.known);
        });
        let reads = |runner: &Runner<'_, '_, '_, A>, from| {
            for at in [from, FOLIO + from] {
                assert_eq!(runner.read(&scene.space, scene.page(at)), at + 1, "it came back");
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| scene.on(1, |runner| reads(runner, 0)));
            scope.spawn(|| scene.on(2, |runner| keeps(runner, [1, FOLIO + 1])));
            scene.on(0, |runner| {
                runner
                    .operation("discard", || {
                        scene.mm.discard(&scene.space, PageSpan::new(scene.page(2), scene.page(3)))
                    })
                    .expect("sound pages");
                assert_eq!(runner.read(&scene.space, scene.page(2)), 0, "it was thrown away");
            });
        });
    });
}

#[test]
fn d3_folios_come_back_once_for_all() {
    explore(|| back::<X86_64>(Config::x86_64()));
}

/// A child writes and ends, the parent writes, and CPU 0 takes from both what it can get.
fn at_the_end<A: Arch>(
    config: Config,
    reclaims: fn(&Scene<'_, '_, '_, A>, &Runner<'_, '_, '_, A>),
) {
    play::<A>(config, |scene| {
        let mut child = None;
        scene.on(1, |runner| {
            for at in 0..scene.span().count() {
                runner.write(&scene.space, scene.page(at), 7);
            }
            child = Some(runner.fork(2));
        });
        let child = child.expect("it was forked");
        thread::scope(|scope| {
            scope.spawn(|| scene.on(1, |runner| keeps(runner, [0, FOLIO])));
            scope.spawn(|| {
                scene.on(2, |runner| {
                    runner.enter(&child);
                    runner.write(&child, scene.page(1), 8);
                    let seen = [0, 1, FOLIO].map(|at| runner.read(&child, scene.page(at)));
                    assert_eq!(seen, [7, 8, 7], "the child's memory is its own");
                });
                scene.known.end(child);
            });
            scene.on(0, |runner| reclaims(scene, runner));
        });
    });
}

#[test]
fn d6_a_space_ends_while_its_folios_leave() {
    explore(|| {
        at_the_end::<X86_64>(Config::x86_64(), |scene, runner| {
            runner.page_out(&scene.space, scene.span());
        });
    });
}

#[test]
fn d6_a_space_ends_while_the_reclaimer_goes_round() {
    explore(|| {
        at_the_end::<X86_64>(Config::x86_64(), |scene, runner| {
            runner.operation("age", || scene.mm.reclaim().age_all(&scene.known));
            runner.operation("reclaim", || scene.mm.reclaim().reclaim(u64::MAX, &scene.known));
            runner.write_back(scene.swap);
        });
    });
}

#[test]
fn d6_a_space_ends_while_single_pages_leave() {
    explore(|| {
        at_the_end::<Arm4k>(Config::arm64_4k(), |scene, runner| {
            let one = PageSpan::new(scene.page(1), scene.page(2));
            runner.operation("page out", || {
                scene
                    .mm
                    .paging()
                    .page_out(&scene.space, one, Scope::Own, &scene.known)
                    .expect("sound pages")
            });
            runner.write_back(scene.swap);
        });
    });
}

/// CPU 1 makes one folio of pages that CPU 0 pages out: it waits for that, and all of them leave.
fn while_collapsing<A: Arch>(config: Config) {
    play::<A>(config, |scene| {
        scene.mm.policy().set_size(Order::new(FOLIO.ilog2() as u8), SizePolicy::Never).unwrap();
        scene.on(0, |runner| {
            for at in 0..FOLIO {
                runner.write(&scene.space, scene.page(at), at + 1);
            }
        });
        let pages = PageSpan::new(scene.page(0), scene.page(FOLIO));
        thread::scope(|scope| {
            scope.spawn(|| {
                scene.on(1, |runner| {
                    let order = Order::new(FOLIO.ilog2() as u8);
                    runner
                        .operation("collapse", || {
                            scene.mm.reclaim().collapse(&scene.space, pages, order)
                        })
                        .expect("there is memory");
                });
            });
            scene.on(0, |runner| {
                runner.operation("page out", || {
                    let done =
                        scene.mm.paging().page_out(&scene.space, pages, Scope::Own, &scene.known);
                    done.expect("sound pages")
                });
            });
        });
        assert_eq!(scene.mm.paging().swapped(&scene.space), FOLIO, "some of them stayed");
        scene.on(0, |runner| {
            runner.write_back(scene.swap);
            for at in 0..FOLIO {
                assert_eq!(runner.read(&scene.space, scene.page(at)), at + 1, "it came back");
            }
        });
    });
}

#[test]
fn d3_pages_that_go_out_while_they_collapse_leave() {
    explore(|| while_collapsing::<X86_64>(Config::x86_64()));
}
