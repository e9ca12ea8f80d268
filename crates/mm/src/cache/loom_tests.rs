//! Every interleaving of two CPUs on the index of one file: `RUSTFLAGS="--cfg loom" cargo test -p
//! quire-mm --lib --release loom_`.

use std::boxed::Box;
use std::vec::Vec;

use loom::thread;
use quire_arch::X86_64;
use quire_hw::FrameRun;
use quire_units::{FrameSpan, Order, Pfn};

use super::{Entry, FILE_PAGES_MAX, File, FileId, FilePages, Index, Note, Store, identity};
use crate::folio::{Folio, FolioFlags, Folios};
use crate::phys::{Kind, Meta, Slot};
use crate::radix::Tree;

/// Nodes of three levels, on the way to two distant pages.
const NODES: usize = 5;
/// The places of a node that the models use.
const WORDS: usize = 4;
/// The first page that needs the highest level.
const FAR: u64 = 1 << 18;
const ALL: FilePages = FilePages::new(0, FILE_PAGES_MAX);

type Board = crate::table::board::Board<NODES, WORDS>;
type Model = Index<'static, X86_64, Board>;

/// An empty index, leaked: the threads of a model need data that lives for ever.
fn bare() -> Model {
    let board: &'static Board = Box::leak(Box::new(Board::new()));
    // One more for a folio.
    let slots: Vec<Slot> = (0..=NODES).map(|_| Slot::default()).collect();
    let file: &'static File = Box::leak(Box::new(File::default()));
    Index::new(board, Meta::new(Pfn::new(0), slots.leak()), file, FileId(0))
}

/// An index of three levels, whose nodes for the first pages are there and empty.
fn leaked() -> Model {
    let index = bare();
    let meta = index.tree.meta;
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

fn entry_of(folio: Folio) -> Entry {
    Entry::Folio { folio, dirty: false }
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

/// The first page's word is the root itself until another page comes, and then a node has it.
#[test]
fn loom_b1_the_only_folio_is_found_while_another_comes() {
    loom::model(|| {
        let index = bare();
        let first = put(index, 0, 0);
        assert!(index.set_dirty(0, first, true));
        let other = thread::spawn(move || index.find(0).0);
        let run = index.tree.meta.forge(FrameSpan::new(Pfn::new(0), 1), true);
        index.insert(1, folio(1, 0), &mut Some(run)).expect("it has a node");
        let found = other.join().expect("no thread panics");
        let due = Entry::Folio { folio: first, dirty: true };
        assert_eq!(found, due, "a dirty page was lost");
    });
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
        let parts = [1, 0].map(|page| (page, entry_of(folio(page, 0))));
        assert!(index.part(0, entry_of(whole), parts.into_iter()));
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

/// A folio leaves for a swap device, and comes back, beside a reader: it is held by the reader, or
/// leaves; and the reader finds it, or its slots, and never nothing.
#[test]
fn loom_d9_a_folio_that_a_reader_holds_does_not_leave() {
    loom::model(|| {
        let index = leaked();
        let meta = index.tree.meta;
        let folio = Folio { head: Pfn::new(NODES as u64), order: Order::ZERO };
        let (own, slot) = (identity(FileId(0), 1), identity(FileId(1), 9));
        let run = meta.forge(folio.span(), false);
        let folios = Folios::new(meta);
        folios.adopt_cached(&run, folio.order, own, FolioFlags::UPTODATE);
        index.insert(1, folio, &mut None).expect("its node is there");
        let reader = thread::spawn(move || {
            let (entry, _) = index.find(1);
            assert!(entry.has_content(), "it was never away and not in memory");
            match entry {
                Entry::Folio { folio, .. } => {
                    let held = folios.cached(folio.head, own).is_some_and(|it| it.hold());
                    (held, held && folios.known(folio).1 == own)
                }
                _ => (false, false),
            }
        });
        let secluded = {
            let cached = folios.cached(folio.head, own).expect("it is the file's");
            cached.learn(cached.known() | FolioFlags::SECLUDED);
            drop(cached);
            folios.is_indexed_only(folio)
        };
        let (away, here) = (Entry::Away { place: 9, order: folio.order }, entry_of(folio));
        let judge = |known: FolioFlags, alone: bool| alone.then_some(known - FolioFlags::SECLUDED);
        let leave = || folios.reidentify(folio, (own, slot), judge);
        let left = index.exchange(1, Order::ZERO, |now| now == here, away, leave).is_some();
        if left {
            let back = || folios.reidentify(folio, (slot, own), |known, _| Some(known));
            assert!(index.exchange(1, Order::ZERO, |now| now == away, here, back).is_some());
        }
        let (held, is_its) = reader.join().expect("no thread panics");
        // A reader that came before the mark, or after the return, has it.
        assert!(!held || is_its || left, "it was another file's while it was held");
        assert!(secluded || !left, "it left while a reader held it");
    });
}

/// Two folios that go into an empty file, each with a frame for each node that it may need.
fn both_go_in(first: u64, second: u64) {
    loom::model(move || {
        let index = bare();
        let insert = move |page: u64, frame: u64| {
            let mut frames = frame..frame + 2;
            let mut spare = None;
            while index.insert(page, folio(page, 0), &mut spare).is_err() {
                let frame = frames.next().expect("one for each level");
                let meta = index.tree.meta;
                spare = Some(meta.forge(FrameSpan::new(Pfn::new(frame), 1), true));
            }
        };
        let other = thread::spawn(move || insert(second, 2));
        insert(first, 0);
        other.join().expect("no thread panics");
        for page in [first, second] {
            let found = index.find(page).0;
            assert!(matches!(found, Entry::Folio { folio: it, .. } if it == folio(page, 0)));
        }
    });
}

#[test]
fn loom_b1_the_first_page_and_another_go_in_beside_each_other() {
    both_go_in(0, 1);
}

#[test]
fn loom_b1_two_pages_that_each_need_a_root_go_in_beside_each_other() {
    both_go_in(1, 2);
}

/// A note at the first page is forgotten while a folio takes its place.
#[test]
fn loom_b1_a_note_that_is_forgotten_takes_no_folio_with_it() {
    loom::model(|| {
        let index = bare();
        index.note(0, Order::ZERO, Note::Small);
        let other = thread::spawn(move || index.prune(ALL, &mut |_| {}));
        let own = put(index, 0, 0);
        other.join().expect("no thread panics");
        assert!(matches!(index.find(0).0, Entry::Folio { folio, .. } if folio == own));
    });
}

/// A node is taken out, and its frame becomes another node: a CPU that was on its way to it does
/// not take it for what it was.
fn reused_beside_a_writer(kind: Kind, level: u8, page: u64) {
    loom::model(move || {
        let index = leaked();
        let node = index.tree.walk(1, 0).expect("it is there").node;
        let meta = index.tree.meta;
        let other = thread::spawn(move || {
            let mut gone = None;
            index.prune(FilePages::new(0, FAR), &mut |run| {
                if run.start() == node.frame {
                    gone = Some(run);
                }
            });
            let tree = Tree::<X86_64, _>::new(index.tree.hw, meta, &index.file.root, kind, 0);
            gone.is_some() && tree.adopt(&mut gone, page, level).is_some()
        });
        let locked = index.tree.lock(node, 1).map(|lock| {
            index.tree.write(&lock, 1, 1, folio(1, 0).head.get() << 12 | 2);
            index.tree.add_used(&lock, 1);
        });
        let reused = other.join().expect("no thread panics");
        assert!(locked.is_none() || !reused, "written as the node that it was");
    });
}

#[test]
fn loom_b1_a_node_of_other_pages_is_not_taken_for_what_it_was() {
    reused_beside_a_writer(Kind::Index, 0, FAR);
}

#[test]
fn loom_b1_a_node_of_another_level_is_not_taken_for_what_it_was() {
    reused_beside_a_writer(Kind::Index, 1, 0);
}

#[test]
fn loom_b1_a_cluster_of_slots_is_not_taken_for_the_node_that_it_was() {
    reused_beside_a_writer(Kind::Swap, 0, 0);
}

#[test]
fn loom_b4_a_lookup_beside_a_parting_finds_a_folio() {
    loom::model(|| {
        let index = leaked();
        let whole = put(index, 0, 1);
        let other = thread::spawn(move || {
            let parts = [1, 0].map(|page| (page, entry_of(folio(page, 0))));
            assert!(index.part(0, entry_of(whole), parts.into_iter()));
        });
        let (entry, at) = index.find(1);
        assert!(matches!(entry, Entry::Folio { .. }) && at.contains(1), "{entry:?} at {at:?}");
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

/// A reader that finds a file opened again finds nothing of the file that it was before.
#[test]
fn loom_b1_a_file_that_is_opened_again_has_nothing_of_the_one_before() {
    loom::model(|| {
        // The first page needs no node.
        let index = bare();
        let file = index.file;
        assert!(file.open(Store::Memory, 4, Order::ZERO));
        let first = put(index, 0, 0);
        let opener = thread::spawn(move || {
            assert!(index.remove(0, first, None));
            file.close();
            assert!(file.open(Store::ReadOnly, 4, Order::ZERO));
        });
        if file.store() == Some(Store::ReadOnly) {
            assert_eq!(index.find(0).0, Entry::Empty);
        }
        opener.join().expect("no thread panics");
    });
}
