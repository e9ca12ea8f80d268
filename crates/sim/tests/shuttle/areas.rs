//! Areas that go, move and lose rights, while others fault in them.

use quire::{Error, Move};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::Config;
use quire_units::{Order, PageSpan, Prot};
use shuttle::sync::mpsc::channel;
use shuttle::thread;

use crate::explore;
use crate::scene::{FOLIO, Runner, play};

/// Reads or writes where there may be an area or not.
fn tries<A: Arch>(runner: &Runner<'_, '_, '_, A>, at: u64) {
    let scene = runner.scene;
    for value in [1, 2] {
        match runner.try_write(&scene.space, scene.page(at), value << 8 | at) {
            Ok(()) | Err(Error::NoArea(_) | Error::Denied(..)) => {}
            Err(error) => panic!("{error}"),
        }
        match runner.try_read(&scene.space, scene.page(at + 1)) {
            Ok(word) => assert!(word == 0 || word & 255 == at + 1, "{word:#x} is of another page"),
            Err(Error::NoArea(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// CPU 0 unmaps all of it and maps it anew; what is there then is new.
fn unmapped<A: Arch>(config: Config) {
    play::<A>(config, |scene| {
        thread::scope(|scope| {
            scope.spawn(|| scene.on(1, |runner| tries(runner, 0)));
            scope.spawn(|| scene.on(2, |runner| tries(runner, 1)));
            scene.on(0, |runner| {
                runner.write(&scene.space, scene.page(FOLIO), 9);
                runner
                    .operation("unmap", || scene.mm.unmap(&scene.space, scene.span()))
                    .expect("sound pages");
                let gone = runner.try_read(&scene.space, scene.page(0));
                assert!(matches!(gone, Err(Error::NoArea(_))), "{gone:?}");
                runner.operation("map", || scene.map_anon());
                assert_eq!(runner.read(&scene.space, scene.page(FOLIO)), 0, "it is new memory");
            });
        });
    });
}

#[test]
fn e3_nothing_is_mapped_where_no_area_is() {
    explore(|| unmapped::<X86_64>(Config::x86_64()));
}

#[test]
fn e3_no_folded_block_is_mapped_where_no_area_is() {
    explore(|| unmapped::<Arm4k>(Config::arm64_4k()));
}

/// CPU 0 takes the right to write and looks twice: nothing changes meanwhile.
fn protected<A: Arch>(config: Config) {
    play::<A>(config, |scene| {
        let part = PageSpan::new(scene.page(0), scene.page(2));
        thread::scope(|scope| {
            scope.spawn(|| scene.on(1, |runner| tries(runner, 0)));
            scope.spawn(|| scene.on(2, |runner| tries(runner, 1)));
            scene.on(0, |runner| {
                let protect = |prot| {
                    let act = || scene.mm.protect(&scene.space, part, prot);
                    runner.operation("protect", act).expect("all of it is mapped");
                };
                protect(Prot::READ);
                let before = [0, 1].map(|at| runner.read(&scene.space, scene.page(at)));
                let after = [0, 1].map(|at| runner.read(&scene.space, scene.page(at)));
                assert_eq!(before, after, "it was written without the right");
                protect(Prot::RW);
            });
        });
    });
}

#[test]
fn i6_no_cpu_writes_when_the_right_is_gone() {
    explore(|| protected::<X86_64>(Config::x86_64()));
}

#[test]
fn i6_no_cpu_writes_a_part_of_a_folded_block_when_the_right_is_gone() {
    explore(|| protected::<Arm4k>(Config::arm64_4k()));
}

/// Writes numbers and finds them again.
fn keeps<A: Arch>(runner: &Runner<'_, '_, '_, A>, pages: [u64; 2]) {
    let scene = runner.scene;
    for value in 1..=3 {
        pages.iter().for_each(|&at| runner.write(&scene.space, scene.page(at), value));
        let kept = pages.map(|at| runner.read(&scene.space, scene.page(at)));
        assert_eq!(kept, [value; 2], "a store was lost");
    }
}

/// CPU 0 gathers the small folios in one of eight pages, while two CPUs write them.
fn collapsed<A: Arch>(config: Config) {
    play::<A>(config, |scene| {
        // It is all there from the beginning: of nothing no folio is made.
        scene.on(0, |runner| {
            (0..scene.span().count()).for_each(|at| runner.write(&scene.space, scene.page(at), 9));
        });
        thread::scope(|scope| {
            scope.spawn(|| scene.on(1, |runner| keeps(runner, [0, FOLIO])));
            scope.spawn(|| scene.on(2, |runner| keeps(runner, [1, FOLIO + 1])));
            scene.on(0, |runner| {
                let order = Order::new(scene.span().count().ilog2() as u8);
                let act = || scene.mm.reclaim().collapse(&scene.space, scene.span(), order);
                runner.operation("collapse", act).expect("there is memory");
            });
        });
    });
}

#[test]
fn b4_a_writer_keeps_what_it_wrote_while_folios_become_one() {
    explore(|| collapsed::<X86_64>(Config::x86_64()));
}

/// CPU 1 moves an area whose pages CPU 2 has in its TLB. When the flush has reached the first CPU
/// only, CPU 0 pages out: a page that it finds at the new place, and frees after a flush of that
/// place, would still be reachable at the old one.
fn moved_beside_page_out<A: Arch>(config: Config) {
    play::<A>(config, |scene| {
        let (ready, warm) = channel();
        let (begun, half) = channel();
        let (freed, goes_on) = channel();
        let (moved, over) = channel::<()>();
        let target = scene.page(64);
        thread::scope(|scope| {
            let entered = ready.clone();
            scope.spawn(move || {
                scene.on(2, |runner| {
                    (0..FOLIO).for_each(|at| runner.write(&scene.space, scene.page(at), 7 + at));
                    ready.send(()).expect("the mover waits");
                    over.recv().expect("the area moves");
                });
            });
            scope.spawn(move || {
                scene.on(1, |runner| {
                    (0..2).for_each(|_| warm.recv().expect("both enter the space"));
                    scene.mm.hardware().midway(move || {
                        begun.send(()).expect("the other waits");
                        goes_on.recv().expect("the other returns");
                    });
                    let span = scene.span();
                    let to = || scene.mm.remap(&scene.space, span, span.count(), Move::To(target));
                    runner.operation("move", to).expect("there is room");
                    (0..FOLIO).for_each(|at| {
                        assert_eq!(runner.read(&scene.space, target.add(at)), 7 + at);
                    });
                    moved.send(()).expect("the other waits");
                });
            });
            scene.on(0, |runner| {
                entered.send(()).expect("the mover waits");
                half.recv().expect("the area moves");
                runner.page_out(&scene.space, PageSpan::new(target, target.add(FOLIO)));
                freed.send(()).expect("the mover waits");
            });
        });
    });
}

#[test]
fn i6_no_page_is_freed_while_a_tlb_reaches_it_at_the_place_that_it_moved_from() {
    explore(|| moved_beside_page_out::<X86_64>(Config::x86_64()));
}
