//! Pages of a file, while they are written back, cut off, and dropped.

use quire::cache::{FileId, FilePages, Store};
use quire::space::{AreaFlags, At, Backing, Request};
use quire::{Error, Need, Stop};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::Config;
use quire_sim::disk::unstamped;
use quire_units::{Order, PageSpan, Vpn};
use shuttle::thread;

use crate::explore;
use crate::scene::{Runner, Scene, play};

/// Pages of the file.
const PAGES: u64 = 4;

/// Plays `model` with a file of some pages, all of which the first space shows.
pub(crate) fn with_file<A: Arch>(
    config: Config,
    model: impl FnOnce(&Scene<'_, '_, '_, A>, FileId, Vpn),
) {
    with_file_of::<A>(Store::ReadWrite, config, model);
}

/// The same with a file of this store.
pub(crate) fn with_file_of<A: Arch>(
    store: Store,
    config: Config,
    model: impl FnOnce(&Scene<'_, '_, '_, A>, FileId, Vpn),
) {
    play::<A>(config, |scene| {
        let file = scene.mm.files().open(store, PAGES, Order::ZERO).expect("it is free");
        let start = scene.span().end.add(16);
        let request = Request {
            backing: Backing::File { id: file, page: 0 },
            ..Request::anon(PAGES).at(At::Fixed(start)).flags(AreaFlags::SHARED)
        };
        scene.mm.map(&scene.space, &request).expect("memory for an area");
        model(scene, file, start);
        scene.on(0, |runner| runner.write_back(file));
        scene.verify();
        scene.mm.files().truncate(file, 0, &scene.known).expect("nothing is split");
        scene.mm.files().close(file).expect("nothing of it is in memory");
    });
}

/// Writes numbers, and finds them again.
fn keeps<A: Arch>(runner: &Runner<'_, '_, '_, A>, pages: [Vpn; 2]) {
    let space = &runner.scene.space;
    for value in 1..=2 {
        pages.iter().for_each(|&page| runner.write(space, page, value));
        let kept = pages.map(|page| runner.read(space, page));
        assert_eq!(kept, [value; 2], "a store was lost");
    }
}

/// Two CPUs write, CPU 0 writes back: in the end the disk has what was written last.
fn written_back<A: Arch>(scene: &Scene<'_, '_, '_, A>, file: FileId, start: Vpn) {
    thread::scope(|scope| {
        scope.spawn(|| scene.on(1, |runner| keeps(runner, [start, start.add(1)])));
        scope.spawn(|| scene.on(2, |runner| keeps(runner, [start.add(2), start.add(3)])));
        scene.on(0, |runner| (0..2).for_each(|_| runner.write_back(file)));
    });
    scene.on(0, |runner| runner.write_back(file));
    for page in 0..PAGES {
        assert_eq!(scene.disk.stamp(file.0, page), unstamped(2), "page {page} is not on the disk");
    }
}

#[test]
fn b1_a_write_during_writeback_gets_to_the_disk() {
    explore(|| with_file::<X86_64>(Config::x86_64(), written_back));
}

/// The same, and clean pages are dropped meanwhile.
fn dropped<A: Arch>(scene: &Scene<'_, '_, '_, A>, file: FileId, start: Vpn) {
    thread::scope(|scope| {
        scope.spawn(|| scene.on(1, |runner| keeps(runner, [start, start.add(3)])));
        scope.spawn(|| {
            scene.on(2, |runner| {
                runner.operation("reclaim", || scene.mm.reclaim().reclaim(u64::MAX, &scene.known));
            });
        });
        scene.on(0, |runner| {
            runner.write_back(file);
            runner.operation("drop", || {
                scene.mm.files().drop_clean(file, FilePages::new(0, PAGES)).expect("it is in use")
            });
        });
    });
    scene.on(0, |runner| {
        let seen = [0, 3].map(|page| runner.read(&scene.space, start.add(page)));
        assert_eq!(seen, [2; 2], "a store was lost");
    });
}

#[test]
fn d6_a_write_while_clean_pages_go_stays() {
    explore(|| with_file::<X86_64>(Config::x86_64(), dropped));
}

/// CPU 0 cuts the file off and gives it its length again, CPU 1 writes, CPU 2 reads.
fn cut<A: Arch>(scene: &Scene<'_, '_, '_, A>, file: FileId, start: Vpn) {
    (0..PAGES).for_each(|page| scene.disk.put(file.0, page, unstamped(5)));
    let known = |done: Result<u64, Error>, of: &[u64]| match done {
        Ok(word) => assert!(of.contains(&word), "{word} was never there"),
        Err(Error::Missing(_)) => {}
        Err(error) => panic!("{error}"),
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            scene.on(1, |runner| {
                let done = runner.try_write(&scene.space, start.add(3), 6);
                known(done.map(|()| 6), &[6]);
            });
        });
        scope.spawn(|| {
            scene.on(2, |runner| {
                known(runner.try_read(&scene.space, start), &[5]);
                known(runner.try_read(&scene.space, start.add(3)), &[0, 5, 6]);
            });
        });
        scene.on(0, |runner| {
            let length = |pages| {
                runner
                    .operation("truncate", || scene.mm.files().truncate(file, pages, &scene.known))
                    .expect("nothing is split");
            };
            length(1);
            // No CPU sees a page beyond the end.
            let beyond = runner.try_read(&scene.space, start.add(3));
            assert!(matches!(beyond, Err(Error::Missing(_))), "{beyond:?}");
            length(PAGES);
        });
    });
}

#[test]
fn b1_no_cpu_has_a_page_beyond_the_end() {
    explore(|| with_file::<X86_64>(Config::x86_64(), cut));
}

/// Collapses pages of the file while other threads hold them.
pub(crate) fn collapse<A: Arch>(runner: &Runner<'_, '_, '_, A>, start: Vpn) {
    let scene = runner.scene;
    let all = PageSpan::new(start, start.add(PAGES));
    for _ in 0..3 {
        let done = runner.operation("collapse", || {
            scene.mm.reclaim().collapse_file(&scene.space, all, &scene.known)
        });
        match done {
            Ok(_) => {}
            Err(Stop::Need(Need::Read(reads))) => runner.carry(reads),
            Err(Stop::Need(Need::Wait(_))) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Two CPUs write, CPU 0 collapses and writes back: nothing that was written is lost.
fn collapsed<A: Arch>(scene: &Scene<'_, '_, '_, A>, file: FileId, start: Vpn) {
    thread::scope(|scope| {
        scope.spawn(|| scene.on(1, |runner| keeps(runner, [start, start.add(1)])));
        scope.spawn(|| {
            scene.on(2, |runner| {
                keeps(runner, [start.add(2), start.add(3)]);
                runner.write_back(file);
            });
        });
        scene.on(0, |runner| collapse(runner, start));
    });
    scene.on(0, |runner| {
        runner.write_back(file);
        let seen = [0, 1, 2, 3].map(|page| runner.read(&scene.space, start.add(page)));
        assert_eq!(seen, [2; 4], "a store was lost");
    });
    for page in 0..PAGES {
        assert_eq!(scene.disk.stamp(file.0, page), unstamped(2), "page {page} is not on the disk");
    }
}

#[test]
fn b4_a_write_while_a_file_collapses_stays() {
    explore(|| with_file::<X86_64>(Config::x86_64(), collapsed));
    explore(|| with_file::<Arm4k>(Config::arm64_4k(), collapsed));
}

/// CPU 0 cuts the file off within a folio, CPU 1 writes before the cut, CPU 2 collapses.
fn cut_apart<A: Arch>(scene: &Scene<'_, '_, '_, A>, file: FileId, start: Vpn) {
    scene.on(0, |runner| collapse(runner, start));
    thread::scope(|scope| {
        scope.spawn(|| scene.on(1, |runner| keeps(runner, [start, start])));
        scope.spawn(|| scene.on(2, |runner| collapse(runner, start)));
        scene.on(0, |runner| {
            let length = |pages| {
                runner
                    .operation("truncate", || scene.mm.files().truncate(file, pages, &scene.known))
                    .expect("nothing is split");
            };
            length(3);
            let beyond = runner.try_read(&scene.space, start.add(3));
            assert!(matches!(beyond, Err(Error::Missing(_))), "{beyond:?}");
            (0..PAGES).for_each(|page| scene.disk.put(file.0, page, 0));
            length(PAGES);
            assert_eq!(
                runner.read(&scene.space, start.add(3)),
                0,
                "a page that was cut off came back"
            );
        });
    });
    let last = scene.on(0, |runner| runner.read(&scene.space, start));
    assert_eq!(last, 2, "a store was lost");
}

#[test]
fn b1_a_folio_that_is_cut_apart_loses_nothing_but_what_is_beyond() {
    explore(|| with_file::<X86_64>(Config::x86_64(), cut_apart));
}
