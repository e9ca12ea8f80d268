//! The calls that take memory back, on CPU 0.

use quire::cache::{FilePages, Store};
use quire::space::Space;
use quire::table::Division;
use quire::{ScanCursor, ScanLimits, Scope};
use quire_arch::{Arch, X86_64};
use quire_units::Order;

use super::Runner;
use super::place::{On, Place};
use crate::files::collapse;
use crate::scene::Scene;

/// A call that takes memory back.
pub(super) struct Takes {
    pub(super) name: &'static str,
    pub(super) on: On,
    /// The store of the scenario's file.
    pub(super) store: Store,
    /// Prepares the memory, on CPU 2, when all pages are written.
    pub(super) before: fn(&Runner<'_, '_, '_>, Place),
    /// The call, on CPU 0.
    pub(super) act: fn(&Runner<'_, '_, '_>, Place),
}

fn pages_out(runner: &Runner<'_, '_, '_>, place: Place, whose: Scope) {
    pages_out_of(runner, &runner.scene.space, place, whose);
}

fn pages_out_of(runner: &Runner<'_, '_, '_>, space: &Space<X86_64>, place: Place, whose: Scope) {
    let Scene { mm, known, swap, .. } = runner.scene;
    runner.cleaning("page out", || {
        mm.paging().page_out(space, place.span(), whose, known).expect("sound pages")
    });
    runner.write_back(*swap);
}

/// Takes folios out of a child, and then, as one batch, out of its parent.
fn pages_out_of_child(runner: &Runner<'_, '_, '_>, place: Place) {
    let known = &runner.scene.known;
    let child = known.second().expect("it was forked");
    pages_out_of(runner, &child, place, Scope::All);
    known.put(child);
}

/// Reclaims all that it finds, and writes it.
pub(super) fn reclaims(runner: &Runner<'_, '_, '_>, _: Place) {
    let Scene { mm, known, swap, .. } = runner.scene;
    runner.cleaning("reclaim", || mm.reclaim().reclaim(u64::MAX, known));
    runner.write_back(*swap);
}

fn scans(runner: &Runner<'_, '_, '_>, _: Place) {
    let Scene { mm, known, .. } = runner.scene;
    let any = ScanLimits { none: 511, swapped: 511, shared: 511, hard: true };
    mm.policy().set_sizes("32K:always", X86_64::PAGE_SHIFT).expect("there is such a size");
    let scan = || mm.reclaim().scan(&mut ScanCursor::default(), u64::MAX, &any, known);
    if let Some(reads) = runner.operation("scan", scan).reads {
        runner.carry(reads);
    }
}

/// The tag of a child that is there from the beginning.
const CHILD: u16 = 3;

const USUAL: Takes =
    Takes { name: "", on: On::Both, store: Store::ReadWrite, before: |_, _| {}, act: |_, _| {} };

pub(super) const TAKES: [Takes; 13] = [
    Takes {
        name: "page out its own",
        on: On::Anon,
        act: |runner, place| pages_out(runner, place, Scope::Own),
        ..USUAL
    },
    Takes {
        name: "page out of all spaces",
        on: On::Anon,
        act: |runner, place| pages_out(runner, place, Scope::All),
        ..USUAL
    },
    Takes {
        name: "page out of a child and all others",
        on: On::Anon,
        before: |runner, _| drop(runner.fork(CHILD)),
        act: pages_out_of_child,
        ..USUAL
    },
    Takes { name: "reclaim", on: On::Both, act: reclaims, ..USUAL },
    Takes {
        name: "reclaim, divide folios",
        on: On::Anon,
        act: |runner, place| {
            runner.scene.mm.policy().set_zeroes_most(Some(0));
            reclaims(runner, place);
        },
        ..USUAL
    },
    Takes {
        name: "page out a file in memory",
        on: On::File,
        store: Store::Memory,
        act: |runner, place| pages_out(runner, place, Scope::All),
        ..USUAL
    },
    Takes {
        name: "write back",
        on: On::File,
        act: |runner, place| runner.write_back(place.file),
        ..USUAL
    },
    Takes {
        name: "drop clean pages",
        on: On::File,
        act: |runner, place| {
            let files = runner.scene.mm.files();
            let all = FilePages::new(0, place.pages);
            runner.operation("drop", || files.drop_clean(place.file, all).expect("it is in use"));
        },
        ..USUAL
    },
    Takes {
        name: "collapse",
        on: On::Anon,
        act: |runner, place| {
            let (mm, order) = (runner.scene.mm, Order::new(place.pages.ilog2() as u8));
            let act = || mm.reclaim().collapse(&runner.scene.space, place.span(), order);
            runner.operation("collapse", act).expect("there is memory");
        },
        ..USUAL
    },
    Takes {
        name: "collapse a file",
        on: On::File,
        act: |runner, place| collapse(runner, place.start),
        ..USUAL
    },
    Takes { name: "scan", on: On::Anon, act: scans, ..USUAL },
    Takes {
        name: "drop zeroes",
        on: On::Anon,
        act: |runner, place| {
            let Scene { mm, space, .. } = runner.scene;
            let drop = || mm.reclaim().drop_zeroes(space, place.span());
            // An area that is being changed may be none at this moment.
            let _ = runner.cleaning("drop zeroes", drop);
        },
        ..USUAL
    },
    Takes {
        name: "divide a folio",
        on: On::Anon,
        act: |runner, place| {
            let Scene { mm, space, .. } = runner.scene;
            let how = Division::Uniform(Order::ZERO);
            let divide = || mm.spaces().divide(space, place.start.add(1), how);
            runner.operation("divide", divide).expect("no leaf is large");
        },
        ..USUAL
    },
];
