//! Every interleaving of two holders of one folio: `RUSTFLAGS="--cfg loom" cargo test -p quire-mm
//! --lib --release loom_`.

use std::boxed::Box;
use std::vec::Vec;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use quire_units::{Order, Pfn, Vpn};

use super::{Folio, FolioFlags, Folios, Home};
use crate::phys::{Kind, Meta, Slot, State};

const FOLIO: Folio = Folio { head: Pfn::new(2), order: Order::new(1) };
const FRAMES: usize = 4;

/// A folio whose pages are all mapped once, and a flag for each of two holders: it is finished.
#[derive(Clone, Copy)]
struct Model {
    folios: Folios<'static>,
    done: &'static [AtomicU64; 2],
}

impl Model {
    /// The model is leaked: its threads need data that lives for ever.
    fn leaked() -> Self {
        let slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
        let meta = Meta::new(Pfn::new(0), slots.leak());
        let folios = Folios::new(meta);
        let home = Home::new(Pfn::new(0), Vpn::new(0));
        folios.adopt_mapped(meta.forge(FOLIO.span(), false), FOLIO.order, home);
        let done = Box::leak(Box::new([AtomicU64::new(0), AtomicU64::new(0)]));
        Self { folios, done }
    }

    /// Records that this holder has used the folio for the last time.
    fn note(self, own: usize) {
        // Relaxed: the folio's counts must make this store visible to the other holder.
        self.done[own].store(1, Ordering::Relaxed);
    }

    /// Whether the other holder is finished with the folio.
    fn is_left_by_other(self, own: usize) -> bool {
        self.done[1 - own].load(Ordering::Relaxed) == 1
    }

    /// Ends the mapping of both pages as a gather does. Returns whether that freed the frames.
    fn ends_mapping(self, own: usize) -> bool {
        if self.folios.retire(FOLIO, 2).is_some() {
            self.note(own);
            assert!(self.is_left_by_other(own), "in custody while it is looked at");
            return true;
        }
        self.note(own);
        let frees = self.folios.unmap(FOLIO, 2).is_some();
        assert!(!frees || self.is_left_by_other(own), "free while it is looked at");
        frees
    }

    /// Ends a hold by `give`. Returns whether that freed the frames.
    fn ends_hold(self, own: usize, give: fn(&Folios<'static>, Folio) -> bool) -> bool {
        self.note(own);
        let frees = give(&self.folios, FOLIO);
        assert!(!frees || self.is_left_by_other(own), "free before the flush");
        frees
    }

    /// Exactly one of the two holders freed the frames, and the folio is gone.
    fn settle(self, freed: [bool; 2]) {
        assert_eq!(freed.iter().filter(|freed| **freed).count(), 1);
        assert_eq!(self.folios.meta.at(FOLIO.head).state().kind(), Kind::None);
    }
}

fn put(folios: &Folios<'static>, folio: Folio) -> bool {
    folios.put(folio).is_some()
}

fn unpin(folios: &Folios<'static>, folio: Folio) -> bool {
    folios.unpin(folio).is_some()
}

#[test]
fn loom_i6_a_folio_that_is_held_is_free_after_its_holder_and_the_flush() {
    loom::model(|| {
        let model = Model::leaked();
        assert!(model.folios.hold(FOLIO), "there is room for one");
        let other = thread::spawn(move || model.ends_hold(1, put));
        let freed = [model.ends_mapping(0), other.join().expect("no thread panics")];
        model.settle(freed);
    });
}

#[test]
fn loom_i6_a_folio_that_is_pinned_is_free_after_the_device_and_the_flush() {
    loom::model(|| {
        let model = Model::leaked();
        assert!(model.folios.pin(FOLIO), "there is room for one");
        let other = thread::spawn(move || model.ends_hold(1, unpin));
        let freed = [model.ends_mapping(0), other.join().expect("no thread panics")];
        model.settle(freed);
    });
}

#[test]
fn loom_i6_the_last_of_two_holders_of_an_unmapped_folio_frees_it() {
    loom::model(|| {
        let model = Model::leaked();
        model.folios.get(FOLIO);
        model.folios.get(FOLIO);
        assert!(model.folios.unmap(FOLIO, 2).is_none(), "it is held");
        let other = thread::spawn(move || model.ends_hold(1, put));
        let freed = [model.ends_hold(0, put), other.join().expect("no thread panics")];
        model.settle(freed);
    });
}

#[test]
fn loom_c4_the_sole_holder_sees_that_the_other_has_finished_with_the_folio() {
    loom::model(|| {
        let model = Model::leaked();
        model.folios.get(FOLIO);
        let other = thread::spawn(move || model.ends_hold(1, put));
        if model.folios.is_sole(FOLIO, 2) {
            assert!(model.is_left_by_other(0), "written while it is read");
        }
        assert!(!other.join().expect("no thread panics"), "it is mapped");
        assert!(model.folios.is_sole(FOLIO, 2), "only the mapping is left");
    });
}

#[test]
fn loom_c4_a_folio_that_is_shared_while_a_hold_ends_loses_no_count() {
    loom::model(|| {
        let model = Model::leaked();
        model.folios.get(FOLIO);
        let other = thread::spawn(move || put(&model.folios, FOLIO));
        // The caller has the table's lock; a folio without other holds is counted by plain stores.
        let (frames, _) = model.folios.share_all(FOLIO.span(), true);
        assert_eq!(frames, 2);
        assert!(!other.join().expect("no thread panics"), "it is mapped");
        let counts = model.folios.counts(FOLIO);
        assert_eq!((counts.refs, counts.pins, counts.mapped), (0, 0, 4));
    });
}

/// Notes about a folio of a file that are made beside its lookup, which hides it from others.
fn noted_beside_hiding(note: fn(&Folios<'static>), what: FolioFlags) {
    loom::model(move || {
        let slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
        let meta = Meta::new(Pfn::new(0), slots.leak());
        let (folios, owner) = (Folios::new(meta), 7);
        let run = meta.forge(FOLIO.span(), false);
        folios.adopt_cached(&run, FOLIO.order, owner, FolioFlags::UPTODATE);
        let other = thread::spawn(move || note(&folios));
        let cached = folios.cached(FOLIO.head, owner).expect("nothing hides it yet");
        cached.learn(cached.known() | FolioFlags::SECLUDED);
        drop(cached);
        other.join().expect("no thread panics");
        let is = folios.known(FOLIO).0;
        assert!(is.contains(FolioFlags::SECLUDED | FolioFlags::CACHED | what), "{is:?}");
        assert!(folios.cached(FOLIO.head, owner).is_none(), "it is hidden");
        folios.readmit(FOLIO);
        assert!(folios.cached(FOLIO.head, owner).is_some_and(|it| it.known().contains(what)));
    });
}

#[test]
fn loom_d6_a_round_of_aging_does_not_show_a_folio_that_is_hidden() {
    noted_beside_hiding(|folios| folios.grow_old(FOLIO, false), FolioFlags::IDLE_LOW);
}

#[test]
fn loom_d4_a_failure_is_noted_beside_the_end_of_hiding() {
    loom::model(|| {
        let slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
        let meta = Meta::new(Pfn::new(0), slots.leak());
        let folios = Folios::new(meta);
        let known = FolioFlags::UPTODATE | FolioFlags::SECLUDED;
        folios.adopt_cached(&meta.forge(FOLIO.span(), false), FOLIO.order, 7, known);
        let other = thread::spawn(move || folios.poison(FOLIO));
        folios.readmit(FOLIO);
        other.join().expect("no thread panics");
        let is = folios.known(FOLIO).0;
        assert!(is.contains(FolioFlags::POISONED) && !is.contains(FolioFlags::SECLUDED), "{is:?}");
    });
}

/// A frame that held pages of one file becomes a folio of another: a CPU that looks for the first
/// does not find it, and one that looks for the second finds its holds.
#[test]
fn loom_b1_a_folio_has_its_identity_before_it_can_be_found() {
    loom::model(|| {
        let slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
        let meta = Meta::new(Pfn::new(0), slots.leak());
        let folios = Folios::new(meta);
        let run = meta.forge(FOLIO.span(), false);
        folios.adopt_cached(&run, FOLIO.order, 7, FolioFlags::UPTODATE);
        let gone = folios.cached(FOLIO.head, 7).and_then(|cached| cached.forget());
        assert!(gone.is_some(), "only its file had it");
        let other = thread::spawn(move || {
            assert!(folios.cached(FOLIO.head, 7).is_none(), "found as what it was");
            folios.cached(FOLIO.head, 8).is_none_or(|cached| cached.is_idle())
        });
        folios.adopt_cached(&run, FOLIO.order, 8, FolioFlags::UPTODATE);
        assert!(other.join().expect("no thread panics"), "found without its index's hold");
    });
}

#[test]
fn loom_d4_a_failure_is_noted_beside_a_change_of_the_same_folio() {
    noted_beside_hiding(|folios| folios.poison(FOLIO), FolioFlags::POISONED);
}

#[test]
fn loom_d6_a_round_of_aging_leaves_the_new_use_of_a_frame_alone() {
    loom::model(|| {
        let slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
        let meta = Meta::new(Pfn::new(0), slots.leak());
        let (folios, owner) = (Folios::new(meta), 7);
        let run = meta.forge(FOLIO.span(), false);
        folios.adopt_cached(&run, FOLIO.order, owner, FolioFlags::UPTODATE);
        let table = State::new(Kind::Table, 0);
        let other = thread::spawn(move || {
            let cached = folios.cached(FOLIO.head, owner).expect("only this thread takes it out");
            assert!(cached.forget().is_some(), "only its file had it");
            meta.at(FOLIO.head).set_state(table);
        });
        if let Some(cached) = folios.cached(FOLIO.head, owner) {
            cached.grow_old();
        }
        other.join().expect("no thread panics");
        assert_eq!(meta.at(FOLIO.head).state(), table);
    });
}

/// A mover copies the folio while a fault maps it: the fault's CPU writes it either before the
/// copy, or not at all.
#[test]
fn loom_i19_a_folio_is_copied_only_while_no_cpu_maps_it() {
    loom::model(|| {
        let model = Model::leaked();
        let (folios, owner) = (model.folios, 7);
        assert!(folios.hold(FOLIO) && folios.identify(FOLIO, owner));
        assert!(folios.unmap(FOLIO, 2).is_none(), "its entries are swap entries now");
        let content = &model.done[0];
        let fault = thread::spawn(move || {
            let mapped = folios.cached(FOLIO.head, owner).is_some_and(|cached| cached.map(2));
            if mapped {
                content.store(1, Ordering::Relaxed);
            }
            mapped
        });
        let copied = folios.seclude_leaving(FOLIO).then(|| content.load(Ordering::Relaxed));
        let mapped = fault.join().expect("no thread panics");
        assert!(copied.is_none() || !mapped, "a page is written beside its copy");
        assert!(copied.is_some() || mapped, "one of the two has it");
    });
}
