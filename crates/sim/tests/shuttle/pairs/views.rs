//! The pages as programs see them.

use quire::Error;
use quire_units::{Access, Prot};

use super::Runner;
use super::place::{On, Place};

/// Nothing is mapped there any more.
pub(super) fn is_gone(runner: &Runner<'_, '_, '_>, place: Place) {
    for (_, page) in place.all() {
        let found = runner.try_read(&runner.scene.space, page);
        assert_eq!(found, Err(Error::NoArea(page)), "it is unmapped");
    }
}

/// All is as it was at first.
pub(super) fn is_as_before(runner: &Runner<'_, '_, '_>, place: Place) {
    for (at, page) in place.all() {
        assert_eq!(runner.read(&runner.scene.space, page), place.first(at), "page {at}");
    }
}

/// All read as zero.
pub(super) fn is_zero(runner: &Runner<'_, '_, '_>, place: Place) {
    for (at, page) in place.all() {
        assert_eq!(runner.read(&runner.scene.space, page), 0, "page {at} is new");
    }
}

/// The content is lost, unless a file has it.
pub(super) fn is_discarded(runner: &Runner<'_, '_, '_>, place: Place) {
    match place.kind {
        On::File => is_as_before(runner, place),
        _ => is_zero(runner, place),
    }
}

/// A write is refused, and nothing else has changed.
pub(super) fn is_read_only(runner: &Runner<'_, '_, '_>, place: Place) {
    for (_, page) in place.all() {
        let done = runner.try_write(&runner.scene.space, page, 77);
        assert_eq!(done, Err(Error::Denied(page, Access::Write, Prot::READ)));
    }
    is_as_before(runner, place);
}

/// Writes other numbers.
pub(super) fn writes(runner: &Runner<'_, '_, '_>, place: Place, more: u64) {
    for (at, page) in place.all() {
        runner.write(&runner.scene.space, page, more + at);
    }
}

/// They are still what [`writes`] wrote.
pub(super) fn holds(runner: &Runner<'_, '_, '_>, place: Place, more: u64) {
    for (at, page) in place.all() {
        let is = runner.read(&runner.scene.space, page);
        assert_eq!(is, more + at, "page {at}");
    }
}

/// The place that the pages move to.
pub(super) fn moved_to(place: Place) -> Place {
    Place { start: place.start.add(64), ..place }
}
