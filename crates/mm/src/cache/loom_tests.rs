//! Every interleaving of two CPUs on the index of one file: `RUSTFLAGS="--cfg loom" cargo test -p
//! quire-mm --lib --release loom_`.

use std::boxed::Box;
use std::vec::Vec;

use loom::thread;
use quire_arch::X86_64;
use quire_hw::FrameRun;
use quire_units::{FrameSpan, Order, Pfn};

use super::{Entry, FILE_PAGES_MAX, File, FileId, FilePages, Index};
use crate::folio::Folio;
use crate::phys::{Meta, Slot};

/// Nodes of three levels, on the way to two distant pages.
const NODES: usize = 5;
/// The places of a node that the models use.
const WORDS: usize = 4;
/// The first page that needs the highest level.
const FAR: u64 = 1 << 18;
const ALL: FilePages = FilePages::new(0, FILE_PAGES_MAX);

type Board = crate::table::board::Board<NODES, WORDS>;
type Model = Index<'static, X86_64, Board>;

/// An index of three levels, whose nodes for the first pages are there and empty. It is leaked: the
/// threads of a model need data that lives for ever.
fn leaked() -> Model {
    let board: &'static Board = Box::leak(Box::new(Board::new()));
    let slots: Vec<Slot> = (0..NODES).map(|_| Slot::default()).collect();
    let meta = Meta::new(Pfn::new(0), slots.leak());
    let file: &'static File = Box::leak(Box::new(File::default()));
    let index = Index::new(board, meta, file, FileId(0));
    let mut next = 0;
    let mut frame = || -> Option<FrameRun> {
        next += 1;
        Some(meta.forge(FrameSpan::new(Pfn::new(next - 1), 1), true))
    };
    for page in [FAR, 1] {
        let mut spare = None;
        while index.insert(page, folio(page, 0), &mut spare).is_err() {
            spare = frame();
        }
        assert!(index.remove(page, folio(page, 0), None));
    }
    index
}

/// The folio of `order` at a page.
fn folio(page: u64, order: u8) -> Folio {
    Folio { head: Pfn::new(1 << 20 | page << 4 | u64::from(order) << 10), order: Order::new(order) }
}

fn put(index: Model, page: u64, order: u8) -> Folio {
    let folio = folio(page, order);
    index.insert(page, folio, &mut None).expect("its node is there");
    folio
}

/// The first page of the first dirty folio that a sweep finds.
fn swept(index: Model) -> Option<u64> {
    index.next_dirty(ALL).map(|(_, at)| at.start)
}

#[test]
fn loom_b1_a_folio_that_is_marked_beside_a_sweep_is_found_by_the_next() {
    loom::model(|| {
        let index = leaked();
        let folio = put(index, 1, 0);
        let other = thread::spawn(move || swept(index));
        assert!(index.set_dirty(1, folio, true));
        let seen = other.join().expect("no thread panics");
        assert!(matches!(seen, None | Some(1)));
        assert_eq!(swept(index), Some(1), "a dirty page was lost");
    });
}

#[test]
fn loom_b1_two_marks_beside_each_other_are_found_also_when_one_is_taken_away() {
    loom::model(|| {
        let index = leaked();
        let folios = [0, 1].map(|page| put(index, page, 0));
        assert!(index.set_dirty(0, folios[0], true));
        let other = thread::spawn(move || {
            // A writeback: it takes the first, and looks for more.
            assert!(index.set_dirty(0, folios[0], false));
            swept(index)
        });
        assert!(index.set_dirty(1, folios[1], true));
        other.join().expect("no thread panics");
        assert_eq!(swept(index), Some(1), "a dirty page was lost");
    });
}

#[test]
fn loom_b4_pages_that_become_one_folio_beside_a_sweep_are_still_dirty() {
    loom::model(|| {
        let index = leaked();
        let parts = [0, 1].map(|page| put(index, page, 0));
        assert!(index.set_dirty(1, parts[1], true));
        let other = thread::spawn(move || swept(index));
        let whole = folio(0, 1);
        let mut gone = Vec::new();
        assert!(index.join(0, whole, &|old| parts.contains(&old), &mut |old| gone.push(old)));
        assert_eq!(gone, parts);
        let seen = other.join().expect("no thread panics");
        assert!(matches!(seen, Some(0 | 1)), "it was dirty all the time: {seen:?}");
        assert_eq!(swept(index), Some(0), "a dirty page was lost");
    });
}

/// One of the parts is marked while they become one folio: either the mark comes too late, and its
/// caller is told, or the folio is dirty.
#[test]
fn loom_b4_a_mark_beside_a_join_is_kept_or_refused() {
    loom::model(|| {
        let index = leaked();
        let parts = [0, 1].map(|page| put(index, page, 0));
        let other = thread::spawn(move || index.set_dirty(1, parts[1], true));
        let whole = folio(0, 1);
        assert!(index.join(0, whole, &|old| parts.contains(&old), &mut |_| {}));
        let marked = other.join().expect("no thread panics");
        assert_eq!(swept(index), marked.then_some(0));
    });
}

#[test]
fn loom_b4_a_folio_that_is_parted_beside_a_sweep_leaves_dirty_parts() {
    loom::model(|| {
        let index = leaked();
        let whole = put(index, 0, 1);
        assert!(index.set_dirty(0, whole, true));
        let other = thread::spawn(move || swept(index));
        let parts = [1, 0].map(|page| (page, folio(page, 0)));
        assert!(index.part(0, whole, parts.into_iter()));
        assert_eq!(other.join().expect("no thread panics"), Some(0));
        let dirty =
            [0, 1].map(|page| matches!(index.find(page).0, Entry::Folio { dirty, .. } if dirty));
        assert_eq!((dirty, swept(index)), ([true; 2], Some(0)));
    });
}

/// A lookup finds a folio of a page at every moment of a join and of a parting.
#[test]
fn loom_b4_a_lookup_beside_a_change_of_folios_finds_one() {
    loom::model(|| {
        let index = leaked();
        let parts = [0, 1].map(|page| put(index, page, 0));
        let other = thread::spawn(move || {
            let whole = folio(0, 1);
            assert!(index.join(0, whole, &|old| parts.contains(&old), &mut |_| {}));
        });
        let (entry, at) = index.find(1);
        assert!(matches!(entry, Entry::Folio { .. }) && at.contains(1), "{entry:?} at {at:?}");
        let next = index.next(FilePages::new(1, 2));
        assert!(next.is_some_and(|(_, at)| at.contains(1)), "{next:?}");
        other.join().expect("no thread panics");
    });
}

/// Empty nodes are taken out while a folio goes in: it is found, or the insertion lacks a node.
#[test]
fn loom_b1_a_folio_that_goes_in_beside_a_pruning_is_found() {
    loom::model(|| {
        let index = leaked();
        let other = thread::spawn(move || {
            let mut freed = 0;
            index.prune(FilePages::new(0, FAR), &mut |_| freed += 1);
            freed
        });
        let there = index.insert(1, folio(1, 0), &mut None).is_ok();
        let freed = other.join().expect("no thread panics");
        assert_eq!(index.find(1).0 != Entry::Empty, there);
        assert!(there && freed == 0 || !there && freed > 0, "{there}, {freed}");
    });
}
