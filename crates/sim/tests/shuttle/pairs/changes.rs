//! The calls that change a space, on CPU 1.

use std::sync::Arc;

use quire::space::{At, Request, Space};
use quire::{Error, Move, Need, Stop};
use quire_arch::{Arch, X86_64};
use quire_units::{Access, Prot};
use shuttle::thread;

use super::Runner;
use super::place::{On, Place};
use super::takes::reclaims;
use super::views::{
    holds, is_as_before, is_discarded, is_gone, is_read_only, is_zero, moved_to, writes,
};
use crate::scene::Scene;

/// The space that a fork made.
pub(super) type Child = Option<Arc<Space<X86_64>>>;

/// How often a state is looked for that another CPU may interrupt for a moment.
const TRIES: usize = 2000;

/// A call that changes a space.
pub(super) struct Changes {
    pub(super) name: &'static str,
    pub(super) on: On,
    /// The call, on CPU 1.
    pub(super) act: fn(&Runner<'_, '_, '_>, Place) -> Child,
    /// The view of CPU 2 from then on.
    pub(super) seen: fn(&Runner<'_, '_, '_>, Place),
    /// The view of CPU 1 after that.
    pub(super) then: fn(&Runner<'_, '_, '_>, Place, Child),
}

/// Repeats a call until its pages are there.
fn done<T>(
    runner: &Runner<'_, '_, '_>,
    name: &'static str,
    call: impl Fn() -> Result<T, Stop>,
) -> T {
    loop {
        match runner.operation(name, &call) {
            Ok(done) => return done,
            Err(Stop::Need(Need::Read(reads))) => runner.carry(reads),
            Err(Stop::Need(_)) => {}
            Err(error) => panic!("{name}: {error:?}"),
        }
        // It may wait for another thread, which must have its turn for that.
        thread::yield_now();
    }
}

/// A device gets the first page and writes it.
fn pins(runner: &Runner<'_, '_, '_>, place: Place) -> Child {
    let Scene { mm, space, .. } = runner.scene;
    let pinned = done(runner, "pin", || mm.pin(space, place.start, Access::Write));
    let machine = mm.hardware().machine();
    machine.ram().write_word(pinned.frame().addr(X86_64::PAGE_SHIFT), 40);
    mm.unpin(pinned);
    None
}

fn has_device_word(runner: &Runner<'_, '_, '_>, place: Place) {
    let word = runner.read(&runner.scene.space, place.start);
    assert_eq!(word, 40, "the device wrote it");
}

/// Pages that are locked stay in memory.
fn stays(runner: &Runner<'_, '_, '_>, place: Place, _: Child) {
    let Scene { mm, space, .. } = runner.scene;
    reclaims(runner, place);
    let is_there = || {
        let mut mapped = 0;
        mm.spaces().runs(space, place.span(), &mut |seen| {
            let is_leaf = matches!(seen.what, quire::table::Sight::Leaf { .. });
            mapped += if is_leaf { seen.pages.count() } else { 0 };
        });
        mapped == place.pages
    };
    // A collapse under way takes the pages out for a moment, while faults wait.
    for _ in 0..TRIES {
        if is_there() {
            break;
        }
        thread::yield_now();
    }
    assert!(is_there(), "it is locked");
    mm.spaces().munlock(space, place.span()).expect("it is mapped");
}

fn is_noted_as_written(runner: &Runner<'_, '_, '_>, place: Place, _: Child) {
    let Scene { mm, space, .. } = runner.scene;
    let area = mm.spaces().areas(space, place.span()).next().expect("it is mapped");
    let mut written = 0;
    mm.spaces().runs(space, place.span(), &mut |seen| {
        written += if quire::is_written(&area, seen) { seen.pages.count() } else { 0 };
    });
    assert_eq!(written, place.pages, "all were written since");
}

fn nothing_more(_: &Runner<'_, '_, '_>, _: Place, _: Child) {}

/// The child has the pages as they were at the fork; of a file it has those of its parent.
fn child_has_its_own(runner: &Runner<'_, '_, '_>, place: Place, child: Child) {
    let child = child.expect("it was forked");
    runner.enter(&child);
    for (at, page) in place.all() {
        let due = if place.kind == On::File { 30 + at } else { place.first(at) };
        assert_eq!(runner.read(&child, page), due, "page {at} of the child");
    }
    runner.enter(&runner.scene.space);
    runner.scene.known.end(child);
}

/// A call of a space that must succeed.
macro_rules! changes {
    ($name:literal, $on:expr, |$mm:ident, $space:ident, $place:ident| $call:expr, $seen:expr) => {
        changes!($name, $on, |$mm, $space, $place| $call, $seen, nothing_more)
    };
    ($name:literal, $on:expr, |$mm:ident, $space:ident, $place:ident| $call:expr, $seen:expr,
     $then:expr) => {
        Changes {
            name: $name,
            on: $on,
            act: |runner, $place| {
                let Scene { mm: $mm, space: $space, .. } = runner.scene;
                runner.cleaning($name, || $call).expect($name);
                None
            },
            seen: $seen,
            then: $then,
        }
    };
}

pub(super) const CHANGES: [Changes; 14] = [
    changes!("unmap", On::Both, |mm, space, place| mm.unmap(space, place.span()), is_gone),
    changes!(
        "protect",
        On::Both,
        |mm, space, place| mm.protect(space, place.span(), Prot::READ),
        is_read_only
    ),
    changes!("discard", On::Both, |mm, space, place| mm.discard(space, place.span()), is_discarded),
    changes!(
        "map over it",
        On::Both,
        |mm, space, place| {
            mm.map(space, &Request::anon(place.pages).at(At::Fixed(place.start)))
        },
        is_zero
    ),
    changes!(
        "move",
        On::Both,
        |mm, space, place| {
            mm.remap(space, place.span(), place.pages, Move::To(moved_to(place).start))
        },
        |runner, place| {
            is_gone(runner, place);
            is_as_before(runner, moved_to(place));
        }
    ),
    changes!(
        "guard",
        On::Anon,
        |mm, space, place| mm.spaces().guard(space, place.span()),
        |runner, place| {
            for (_, page) in place.all() {
                let found = runner.try_read(&runner.scene.space, page);
                assert_eq!(found, Err(Error::Guarded(page)));
            }
        }
    ),
    changes!(
        "free lazily",
        On::Anon,
        |mm, space, place| mm.spaces().free_lazily(space, place.span()),
        |runner, place| writes(runner, place, 60),
        |runner, place, _| {
            reclaims(runner, place);
            holds(runner, place, 60);
        }
    ),
    changes!(
        "track",
        On::Anon,
        |mm, space, place| mm.spaces().track(space, place.span()),
        |runner, place| writes(runner, place, 50),
        is_noted_as_written
    ),
    changes!(
        "age",
        On::Both,
        |mm, space, place| Ok::<_, Error>(mm.spaces().clear_young(space, place.span())),
        is_as_before
    ),
    Changes {
        name: "fork",
        on: On::Both,
        act: |runner, _| Some(runner.fork(2)),
        seen: |runner, place| writes(runner, place, 30),
        then: child_has_its_own,
    },
    Changes {
        name: "write",
        on: On::Both,
        act: |runner, place| {
            writes(runner, place, 20);
            None
        },
        seen: |runner, place| holds(runner, place, 20),
        then: nothing_more,
    },
    Changes {
        name: "populate",
        on: On::Both,
        act: |runner, place| {
            let Scene { mm, space, .. } = runner.scene;
            done(runner, "populate", || mm.populate(space, place.span()));
            None
        },
        seen: is_as_before,
        then: nothing_more,
    },
    Changes {
        name: "lock in memory",
        on: On::Both,
        act: |runner, place| {
            let Scene { mm, space, .. } = runner.scene;
            done(runner, "lock", || mm.mlock(space, place.span()));
            None
        },
        seen: is_as_before,
        then: stays,
    },
    Changes {
        name: "pin for a device",
        on: On::Both,
        act: pins,
        seen: has_device_word,
        then: nothing_more,
    },
];
