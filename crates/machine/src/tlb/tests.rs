//! The TLB's replacement, its levels, and the reach of a flush.

use quire_hw::{Flush, Pieces};
use quire_units::{Asid, CpuSet, Order, PageSpan, Pfn, Prot, Vpn};

use super::{Hit, TablePointer, Tlb, TlbGeometry, Translation, WalkCache, reaches, reaches_tables};

const SMALL: TlbGeometry = TlbGeometry { first: 2, sets: 4, ways: 2, walks: 2 };

fn of(page: u64, order: u8) -> Translation {
    Translation {
        asid: Asid(1),
        global: false,
        page: Vpn::new(page),
        order: Order::new(order),
        frame: Pfn::new(page + 0x1000),
        prot: Prot::RW,
        dirty: true,
    }
}

fn span(start: u64, end: u64) -> PageSpan {
    PageSpan::new(Vpn::new(start), Vpn::new(end))
}

fn flush(pages: Option<PageSpan>, stride: u8, tables: bool, cpus: &CpuSet) -> Flush<'_> {
    let pages = pages.map(|pages| Pieces::new(pages, Order::new(stride)));
    Flush { asid: Asid(1), root: Pfn::new(0), pages, tables, cpus }
}

#[test]
fn a_translation_evicted_from_the_first_level_is_found_in_the_second() {
    let mut tlb = Tlb::new(SMALL);
    for page in 0..3 {
        tlb.insert(of(page, 0));
    }
    assert_eq!(tlb.lookup(Asid(1), Vpn::new(2)), Some((of(2, 0), Hit::First)));
    assert_eq!(tlb.lookup(Asid(1), Vpn::new(0)), Some((of(0, 0), Hit::Second)));
    assert_eq!(tlb.lookup(Asid(1), Vpn::new(0)), Some((of(0, 0), Hit::First)));
}

#[test]
fn a_full_set_forgets_the_least_recently_used() {
    let mut tlb = Tlb::new(SMALL);
    for page in [0, 4, 8, 1, 2] {
        tlb.insert(of(page, 0));
    }
    assert_eq!(tlb.lookup(Asid(1), Vpn::new(0)), None);
    assert!(tlb.lookup(Asid(1), Vpn::new(4)).is_some());
    assert!(tlb.lookup(Asid(1), Vpn::new(8)).is_some());
}

#[test]
fn blocks_serve_all_their_pages_and_tags_keep_spaces_apart() {
    let mut tlb = Tlb::new(SMALL);
    tlb.insert(of(512, 9));
    assert!(tlb.lookup(Asid(1), Vpn::new(1023)).is_some());
    assert!(tlb.lookup(Asid(1), Vpn::new(1024)).is_none());
    assert!(tlb.lookup(Asid(2), Vpn::new(600)).is_none());
    tlb.insert(Translation { global: true, ..of(7, 0) });
    assert!(tlb.lookup(Asid(2), Vpn::new(7)).is_some());
    tlb.drop_if(|held| held.order.get() == 9);
    assert!(tlb.lookup(Asid(1), Vpn::new(600)).is_none());
    assert_eq!(tlb.iter().count(), 2, "page 7, in both levels");
}

#[test]
fn a_flush_reaches_every_translation_that_covers_an_invalidated_address() {
    let cpus = CpuSet::new();
    let pages = |t: Translation| t.pages();
    let by_page = flush(Some(span(16, 48)), 0, false, &cpus);
    assert!(reaches(&by_page, pages(of(47, 0))));
    assert!(!reaches(&by_page, pages(of(48, 0))));
    assert!(reaches(&by_page, pages(of(0, 9))), "a larger block that overlaps");
    let by_block = flush(Some(span(16, 48)), 4, false, &cpus);
    assert!(reaches(&by_block, pages(of(16, 4))));
    assert!(reaches(&by_block, pages(of(32, 0))), "begins at an invalidated address");
    assert!(!reaches(&by_block, pages(of(33, 0))), "the stride was too large for it");
    assert!(reaches(&flush(None, 4, false, &cpus), pages(of(33, 0))));
}

#[test]
fn walk_caches_are_reached_only_when_asked_for() {
    let cpus = CpuSet::new();
    assert!(!reaches_tables(&flush(None, 0, false, &cpus), span(0, 512)));
    assert!(reaches_tables(&flush(None, 0, true, &cpus), span(0, 512)));
    assert!(reaches_tables(&flush(Some(span(5, 6)), 0, true, &cpus), span(0, 512)));
    assert!(!reaches_tables(&flush(Some(span(512, 513)), 0, true, &cpus), span(0, 512)));
}

#[test]
fn the_walk_cache_gives_the_pointer_nearest_to_the_leaf() {
    let pointer = |level, page, order| TablePointer {
        asid: Asid(1),
        level,
        page: Vpn::new(page),
        order: Order::new(order),
        table: Pfn::new(u64::from(level)),
        limits: Prot::all(),
    };
    let mut cache = WalkCache::new(2);
    cache.insert(pointer(2, 0, 18));
    cache.insert(pointer(1, 512, 9));
    assert_eq!(cache.lookup(Asid(1), Vpn::new(513)).map(|p| p.level), Some(1));
    assert_eq!(cache.lookup(Asid(1), Vpn::new(1)).map(|p| p.level), Some(2));
    assert_eq!(cache.lookup(Asid(2), Vpn::new(1)), None);
    cache.insert(pointer(1, 1024, 9));
    assert_eq!(cache.iter().count(), 2);
    cache.drop_if(|_| true);
    assert_eq!(cache.iter().count(), 0);
}
