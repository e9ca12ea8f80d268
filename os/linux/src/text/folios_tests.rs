//! The fold against a model that looks at one page at a time, and its lines to the letter.

use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const GRAIN: Grain = Grain { page: 4096, cont: 64 << 10 };

fn piece(page: u64, frame: u64, count: u64, order: u8) -> Piece {
    let head = frame >> order << order;
    Piece { page, frame, count, head, order, anon: true, block: false, folded: false }
}

fn folded(pieces: &[Piece]) -> Folios {
    let mut folding = Folding::new(GRAIN);
    pieces.iter().for_each(|piece| folding.add(*piece));
    folding.done()
}

#[test]
fn b6_a_folio_counts_by_whether_it_is_whole_and_aligned() {
    let sum = folded(&[piece(32, 64, 16, 4), piece(49, 96, 16, 4), piece(80, 128, 8, 4)]);
    let mut want = Share { total: 40, partial: 8, cont: 16, ..Share::default() };
    want.aligned[4] = 16;
    want.unaligned[4] = 16;
    assert_eq!(sum, Folios { anon: want, ..Folios::default() });
}

#[test]
fn b6_pieces_of_one_folio_count_as_one_however_they_were_told() {
    let cut = [piece(32, 64, 5, 4), piece(37, 69, 10, 4), piece(47, 79, 1, 4)];
    assert_eq!(folded(&cut), folded(&[piece(32, 64, 16, 4)]));
    // The neighbour begins where the first ends, and is another folio.
    let beside = folded(&[piece(0, 16, 16, 4), piece(16, 32, 16, 4)]);
    assert_eq!((beside.anon.aligned[4], beside.anon.aligned[5], beside.anon.cont), (32, 0, 32));
    // Not beside each other in pages, or in frames: in part, twice.
    for second in [piece(41, 72, 8, 4), piece(40, 73, 7, 4)] {
        assert_eq!(folded(&[piece(32, 64, 8, 4), second]).anon.aligned[4], 0);
    }
}

#[test]
fn b6_contiguous_blocks_are_aligned_in_pages_and_in_frames_and_within_one_folio() {
    let cont = |piece| folded(&[piece]).anon.cont;
    assert_eq!(cont(piece(0, 512, 512, 9)), 512);
    assert_eq!(cont(piece(1, 513, 511, 9)), 496);
    assert_eq!(cont(piece(1, 512, 512, 9)), 0, "frames are aligned, pages are not");
    assert_eq!(cont(piece(4, 516, 20, 9)), 0, "aligned alike, but no whole block");
    // Sixteen folios of one page are no block, wherever they lie.
    assert_eq!(cont(piece(0, 512, 16, 0)), 0);
    // A fold without large blocks: each page is one.
    let mut folding = Folding::new(Grain { page: 65536, cont: 4096 });
    folding.add(piece(3, 5, 2, 1));
    assert_eq!(folding.done().anon.cont, 2);
}

#[test]
fn b6_mapped_pages_are_summed_by_kind() {
    let block = Piece { block: true, anon: false, ..piece(0, 512, 512, 9) };
    let fold = Piece { folded: true, ..piece(513, 1024, 16, 4) };
    let mut sum = folded(&[block, piece(512, 3, 1, 0), fold]);
    assert_eq!((sum.file.blocks, sum.file.folded), (512, 0));
    assert_eq!((sum.anon.blocks, sum.anon.folded), (0, 16));
    let other = sum;
    sum.add(&other);
    assert_eq!((sum.file.total, sum.anon.total, sum.file.aligned[9]), (1024, 34, 1024));
}

const TABLE: &str = "\
anon:                           408 kB
anon-thp-aligned-64kB:          192 kB ( 47%)
anon-thp-aligned-128kB:         128 kB ( 31%)
anon-thp-unaligned-16kB:         16 kB (  4%)
anon-thp-partial:                40 kB ( 10%)
anon-cont-aligned-64kB:         320 kB ( 78%)
anon-folded:                     64 kB ( 16%)
file:                            16 kB
file-by-blocks:                  16 kB (100%)
";

fn table() -> Folios {
    let mut anon = Share { total: 102, partial: 10, cont: 80, folded: 16, ..Share::default() };
    (anon.aligned[4], anon.aligned[5], anon.unaligned[2]) = (48, 32, 4);
    Folios { anon, file: Share { total: 4, blocks: 4, ..Share::default() } }
}

#[test]
fn b6_the_table_has_a_line_for_each_label_that_is_not_zero() {
    let mut out = Text::new();
    table().print_table(&mut out, GRAIN).unwrap();
    assert_eq!(String::from_utf8(out.bytes().to_vec()).unwrap(), TABLE);
    let mut out = Text::new();
    Folios::default().print_table(&mut out, GRAIN).unwrap();
    assert_eq!(out.bytes(), b"");
}

#[test]
fn b6_a_line_has_the_same_labels_and_figures_as_the_table() {
    let mut out = Text::new();
    table().print_line(&mut out, GRAIN).unwrap();
    let line = String::from_utf8(out.bytes().to_vec()).unwrap();
    assert!(line.starts_with("  anon: 408 kB  anon-thp-aligned-64kB: 192 kB (47%)  anon-thp"));
    let words = |text: &str| {
        let text = text.replace("( ", "(").replace("( ", "(");
        text.split_whitespace().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(words(&line), words(TABLE));
}

/// A page of the model: frame, and order of its folio.
type Page = Option<(u64, u8)>;

/// The result of one page at a time: each page asks where its folio's pages are mapped.
fn model(pages: &[Page]) -> Share {
    let mut share = Share::default();
    let at = |page: i64| usize::try_from(page).ok().and_then(|page| *pages.get(page)?);
    for (page, found) in pages.iter().enumerate() {
        let Some((frame, order)) = *found else { continue };
        share.total += 1;
        if order == 0 {
            continue;
        }
        let size = 1_u64 << order;
        let (page, own) = (page as i64, frame % size);
        // The page that shows frame `other` of the folio must be as far away as the frames are.
        let shown = |other: u64| {
            let there = at(page + other as i64 - own as i64);
            there == Some((frame - own + other, order))
        };
        let whole = (0..size).all(shown);
        let aligned = (page as u64).wrapping_sub(own).is_multiple_of(size);
        match (whole, aligned) {
            (true, true) => share.aligned[usize::from(order)] += 1,
            (true, false) => share.unaligned[usize::from(order)] += 1,
            (false, _) => share.partial += 1,
        }
        let block = 16;
        let in_block = frame % block;
        let alike = page as u64 % block == in_block && size >= block;
        let first = own.wrapping_sub(in_block);
        share.cont += u64::from(alike && (first..first + block).all(shown));
    }
    share
}

/// An area of folios at random places: order, where its mapping begins in it, how much of it is
/// mapped, and how many pages are empty before.
fn area() -> impl Strategy<Value = Vec<Page>> {
    let folio = (0_u8..7, 0_u64..64, 1_u64..65, 0_usize..3, any::<bool>());
    proptest::collection::vec(folio, 1..12).prop_map(|folios| {
        let mut pages: Vec<Page> = Vec::new();
        for (at, (order, skip, most, gap, align)) in folios.into_iter().enumerate() {
            let size = 1_u64 << order;
            pages.extend(std::iter::repeat_n(None, gap));
            while align && !(pages.len() as u64).is_multiple_of(size) {
                pages.push(None);
            }
            let head = 128 * (at as u64 + 1);
            let first = if align { 0 } else { skip % size };
            let count = if align { size } else { most.min(size - first) };
            pages.extend((first..first + count).map(|own| Some((head + own, order))));
        }
        pages
    })
}

proptest! {
    #[test]
    fn b6_runs_agree_with_one_page_at_a_time(pages in area(), cut in 1_u64..9) {
        let mut folding = Folding::new(GRAIN);
        // The same pages in pieces of at most `cut`.
        let mut page = 0;
        while page < pages.len() {
            let Some((frame, order)) = pages[page] else { page += 1; continue };
            let goes_on = |more: u64| {
                let next = pages.get(page + more as usize).copied().flatten();
                let same = (frame + more) >> order == frame >> order;
                same && next == Some((frame + more, order))
            };
            let count = (1..cut).take_while(|more| goes_on(*more)).count() as u64 + 1;
            folding.add(piece(page as u64, frame, count, order));
            page += count as usize;
        }
        prop_assert_eq!(folding.done().anon, model(&pages));
    }
}
