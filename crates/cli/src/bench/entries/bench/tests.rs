//! Goals and plots on made-up figures, and every backing of every format.

use super::*;
use crate::bench::sheet::tests::empty;

fn bench(cells: Vec<Cell>, counted: Vec<(Cell, Vec<Tally>)>) -> Entries {
    let (task, region, loops) = (Task::Fork, 1 << 30, 1);
    Entries { task, region, loops, cells, counted, settings: Vec::new(), empty: Vec::new() }
}

fn both(isa: Isa, size: u64) -> Vec<Cell> {
    [By::Runs, By::Pages].map(|by| Cell { by, isa, backing: entries(size) }).to_vec()
}

/// The findings for a first fork and an exit that take these times, cell by cell.
fn said(cells: Vec<Cell>, values: &[[Vec<f64>; 2]]) -> String {
    let (bench, mut sheet) = (bench(cells, Vec::new()), empty());
    for (cell, parts) in bench.cells.iter().zip(values) {
        for (part, values) in [FIRST, EXIT].iter().zip(parts) {
            let key = cell.key(part, TIME);
            sheet.put(key.clone(), values.clone());
            let entries = bench.entries(*cell) as f64;
            sheet.derive(&key, cell.key(part, PER_ENTRY), |ns| ns / entries);
        }
    }
    bench.goals(&mut sheet);
    sheet.run.findings.join("\n")
}

#[test]
fn c5_goals_are_judged_by_ratios_within_each_round() {
    // The machine was half as fast in the last round; the ratio did not change.
    let own = [vec![1e6, 2e6], vec![1e6, 2e6]];
    let pages = [vec![3.1e6, 6.2e6], vec![2.9e6, 5.8e6]];
    let text = said(both(Isa::Arm4k, M2), &[own, pages]);
    assert!(text.contains("first fork, 2M folios mapped by entries: 3.10 times"), "{text}");
    assert!(text.contains("goal: at least 3; met"), "{text}");
    assert!(text.contains("child exit, 2M folios mapped by entries: 2.90 times"), "{text}");
    assert!(text.contains("goal: at least 3; MISSED"), "{text}");
}

#[test]
fn c5_base_pages_may_take_two_percent_more_and_nanoseconds_are_for_each_entry() {
    let times = |first: f64| [vec![first * 262_144.0], vec![1.0]];
    let judged = |own| said(both(Isa::X86_64, K4), &[times(own), times(10.0)]);
    let good = judged(10.2);
    assert!(
        good.contains("1.020 of the time of page-at-a-time (goal: at most 1.02; met)"),
        "{good}"
    );
    assert!(judged(10.4).contains("1.040") && judged(10.4).contains("MISSED"));
    assert!(good.contains("10.20 ns for each entry (goal: at most 20; met)"), "{good}");
    assert!(judged(21.0).contains("21.00 ns for each entry (goal: at most 20; MISSED)"));
}

#[test]
fn c5_counts_are_judged_exactly() {
    let there = 262_144;
    let judged = |first: Tally| {
        let cell = both(Isa::Arm4k, M2)[0];
        let did = vec![first, Vec::new(), vec![(WORDS, there + 520)]];
        let mut sheet = empty();
        bench(vec![cell], vec![(cell, did)]).judge_counts(&mut sheet);
        sheet.run.findings.concat()
    };
    let all = 2 * there + 520;
    let good = judged(vec![(WORDS, all), (FLUSHES, 1), (UNFOLDS, 0)]);
    let written = good.contains("262144 written in the parent");
    assert!(written && !good.contains("MISSED"), "{good}");
    for bad in [
        vec![(WORDS, all + 1), (FLUSHES, 1)],
        vec![(WORDS, all), (FLUSHES, 2)],
        vec![(WORDS, all), (FLUSHES, 1), (UNFOLDS, 1)],
        vec![(WORDS, all), (FLUSHES, 1), (BREAKS, 1)],
    ] {
        assert_eq!(judged(bad).matches("MISSED").count(), 1);
    }
}

#[test]
fn c5_plots_show_each_base_page_so_that_blocks_are_divided_by_their_pages() {
    let mut sheet = empty();
    let cell = |block| {
        let backing = Backing { size: Size(32 << 20), block };
        Cell { by: By::Runs, isa: Isa::Arm16k, backing }
    };
    for (part, block, ns) in [(FIRST, false, 3.0), (EXIT, false, 1.0), (FIRST, true, 2048.0)] {
        sheet.put(cell(block).key(part, PER_ENTRY), vec![ns]);
    }
    let parts = |block| bars(&sheet, &[FIRST, EXIT], cell(block))[0].parts.clone();
    assert_eq!(parts(false), [(3.0, 0), (1.0, 1)]);
    assert_eq!(parts(true), [(1.0, 0), (0.0, 1)]);
}

#[test]
fn c5_every_backing_of_every_format_can_be_had_and_has_as_many_entries_as_it_says() {
    for isa in [Isa::X86_64, Isa::Arm4k, Isa::Arm16k, Isa::Sv48] {
        for backing in backings(isa, &[]).0 {
            let place = (isa, backing, 64 << 20);
            let leaves = with_isa!(isa, A => with_fresh::<A, _>(place, false, |scene| {
                let mut leaves = 0;
                quire::check::space(scene.mm, &scene.space)?;
                quire::check::leaves(scene.mm, &scene.space, |_| leaves += 1)?;
                Ok(leaves)
            }));
            let entry = backing.entry_bytes(1 << isa.page_shift());
            assert_eq!(leaves.unwrap(), (64 << 20) / entry, "{isa:?} {backing}");
        }
    }
}
