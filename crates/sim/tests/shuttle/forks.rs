//! Forks, while the parent faults and writes, and while its pages leave memory.

use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::Config;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::mpsc::channel;
use shuttle::thread;

use crate::explore;
use crate::scene::{FOLIO, Runner, play};

/// Pages of one folio, and nothing else is there: else the fork would flush for that.
const WRITTEN: [u64; 2] = [1, 2];

/// A page of each folio; the first is written before the second.
const APART: [u64; 2] = [1, FOLIO + 2];

/// CPU 1 writes when it is told that the fork is over; CPU 2 forks, and looks after that was
/// written; CPU 0 disturbs them.
fn writes_after<A: Arch>(config: Config, disturb: fn(&Runner<'_, '_, '_, A>)) {
    play::<A>(config, |scene| {
        let (forked, parent) = channel();
        let (wrote, child) = channel();
        thread::scope(|scope| {
            scene.on(1, |runner| {
                WRITTEN.iter().for_each(|&at| runner.write(&scene.space, scene.page(at), 1));
                scope.spawn(|| scene.on(0, disturb));
                scope.spawn(|| scene.on(2, |runner| look(runner, &forked, &child)));
                parent.recv().expect("the child is there");
                WRITTEN.iter().for_each(|&at| runner.write(&scene.space, scene.page(at), 2));
                wrote.send(()).expect("the child waits");
                let kept = WRITTEN.map(|at| runner.read(&scene.space, scene.page(at)));
                assert_eq!(kept, [2; 2], "the parent has lost a store");
            });
        });
    });
}

fn look<A: Arch>(
    runner: &Runner<'_, '_, '_, A>,
    forked: &shuttle::sync::mpsc::Sender<()>,
    told: &shuttle::sync::mpsc::Receiver<()>,
) {
    let scene = runner.scene;
    let child = runner.fork(2);
    runner.enter(&child);
    forked.send(()).expect("the parent waits");
    told.recv().expect("the parent tells");
    let seen = WRITTEN.map(|at| runner.read(&child, scene.page(at)));
    assert_eq!(seen, [1; 2], "the child sees what was written after it");
    runner.write(&child, scene.page(WRITTEN[0]), 3);
    let seen = WRITTEN.map(|at| runner.read(&child, scene.page(at)));
    assert_eq!(seen, [3, 1], "the child has lost a store");
}

fn touches<A: Arch>(runner: &Runner<'_, '_, '_, A>) {
    let scene = runner.scene;
    runner.write(&scene.space, scene.page(0), 9);
    assert_eq!(runner.read(&scene.space, scene.page(FOLIO)), 0, "no CPU wrote that");
    assert_eq!(runner.read(&scene.space, scene.page(0)), 9, "a store was lost");
}

fn pages_out<A: Arch>(runner: &Runner<'_, '_, '_, A>) {
    runner.page_out(&runner.scene.space, runner.scene.span());
}

#[test]
fn c3_a_child_sees_nothing_later_while_others_fault() {
    explore(|| writes_after::<X86_64>(Config::x86_64(), touches));
}

#[test]
fn c3_a_child_sees_nothing_later_while_pages_leave() {
    explore(|| writes_after::<X86_64>(Config::x86_64(), pages_out));
}

#[test]
fn c3_a_child_sees_nothing_later_while_folded_blocks_leave() {
    explore(|| writes_after::<Arm4k>(Config::arm64_4k(), pages_out));
}

/// CPU 1 writes numbers to one page and then to another; no child may see the second newer than the
/// first, or miss what was there before. It forks itself as well, and CPU 0 makes the faults.
fn one_moment<A: Arch>(config: Config) {
    play::<A>(config, |scene| {
        let done = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| scene.on(1, |runner| writes_numbers(runner, &done)));
            scope.spawn(|| scene.on(2, |runner| forks_once(runner, &done)));
            scene.on(0, touches);
        });
    });
}

fn writes_numbers<A: Arch>(runner: &Runner<'_, '_, '_, A>, done: &AtomicU64) {
    let scene = runner.scene;
    for value in 1..=3 {
        APART.iter().for_each(|&at| runner.write(&scene.space, scene.page(at), value));
        done.store(value, Ordering::SeqCst);
        let kept = APART.map(|at| runner.read(&scene.space, scene.page(at)));
        assert_eq!(kept, [value; 2], "the parent has lost a store");
    }
}

fn forks_once<A: Arch>(runner: &Runner<'_, '_, '_, A>, done: &AtomicU64) {
    let scene = runner.scene;
    let before = done.load(Ordering::SeqCst);
    let child = runner.fork(2);
    let after = done.load(Ordering::SeqCst) + 1;
    runner.enter(&child);
    let [first, second] = APART.map(|at| runner.read(&child, scene.page(at)));
    assert!(second <= first, "{second} was written after {first}");
    assert!(before <= second && first <= after, "{second} and {first} in {before}..={after}");
    let again = APART.map(|at| runner.read(&child, scene.page(at)));
    assert_eq!(again, [first, second], "the child's memory has changed");
}

#[test]
fn c3_a_child_sees_one_moment_of_a_parent_that_faults() {
    explore(|| one_moment::<X86_64>(Config::x86_64()));
}
