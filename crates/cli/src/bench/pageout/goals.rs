//! What the figures come to, and whether the goals are met.

use super::count::{
    Did, ENTRIES, FALLBACKS, FLUSHES, FOLIOS, INDEX_FRAMES, INVALIDATIONS, PAGES, SLOT_FRAMES,
    SPLITS, Tally, UNFOLDS, WALKS, WHOLE,
};
use super::cycle::{BY_RUNS, Cycle, Device, Way};
use super::measure::Found;
use crate::bench::clear;
use crate::bench::fault::verdict;
use crate::isa::Isa;
use crate::record::Run;
use crate::stats::Summary;

const K4: u64 = 4 << 10;
const K64: u64 = 64 << 10;

/// So many times as fast as page at a time shall paging out of 64K folios be.
const TIMES: [(Isa, f64); 2] = [(Isa::Arm4k, 2.5), (Isa::X86_64, 1.5)];
/// Of page at a time's time so much may paging out of base pages take.
const OF_PAGES: f64 = 1.02;
/// Of the pages so many shall come back in folios as large as they left in.
const WHOLE_SHARE: f64 = 0.95;

/// Says what was found.
pub(super) fn judge(run: &mut Run, all: &[Found]) {
    for found in all {
        judge_times(run, found);
    }
    for found in all {
        tell_rest(run, found);
    }
    for found in all {
        if let Some(did) = found.did.first() {
            judge_counts(run, found, did);
        }
        if let Some(did) = found.did.get(1) {
            tell_pages(run, found, did);
        }
    }
}

/// What all sentences about `found` begin with.
fn name(found: &Found) -> String {
    let how = match (found.backing.block, found.backing.size.bytes()) {
        (true, _) => " mapped by blocks",
        (false, ..K64) => "",
        (false, _) => " mapped by entries",
    };
    format!("{}, folios of {}{how}", found.isa.name(), found.backing.size)
}

fn median(cycles: &[Cycle], of: impl Fn(&Cycle) -> f64) -> Option<f64> {
    Summary::of(&cycles.iter().map(of).collect::<Vec<_>>()).map(|summary| summary.median)
}

/// Paging out, as far as it is another by runs: judged where the device does nothing.
fn judge_times(run: &mut Run, found: &Found) {
    let out = |way| median(found.of(way, Device::Idle), |cycle| cycle.out);
    let (Some(runs), Some(pages)) = (out(Way::Runs), out(Way::Pages)) else { return };
    let (Some(times), Some(copies)) = (found.times(Device::Idle), found.times(Device::Copies))
    else {
        return;
    };
    let goal = goal_of(found, times.median);
    run.findings.push(format!(
        "{}: paging out takes {runs:.1} ns a page {BY_RUNS}, {pages:.1} ns {}: {:.2} times as fast \
         ({:.2} to {:.2}{goal}); {:.2} times where a device copies between.",
        name(found),
        clear::PAGES,
        times.median,
        times.min,
        times.max,
        copies.median
    ));
}

fn goal_of(found: &Found, times: f64) -> String {
    let least = TIMES.iter().find(|(isa, _)| *isa == found.isa).map(|(_, least)| *least);
    match (found.backing.size.bytes(), least) {
        (K64, Some(least)) => format!("; goal: at least {least}; {}", verdict(times >= least)),
        (K4, _) => {
            format!("; goal: at most {OF_PAGES} of its time; {}", verdict(1.0 / times <= OF_PAGES))
        }
        _ => String::new(),
    }
}

/// The rest of the circle, which no goal is about.
fn tell_rest(run: &mut Run, found: &Found) {
    let both = Device::ALL.map(|device| {
        let cycles = found.of(Way::Runs, device);
        Some((median(cycles, |cycle| cycle.write)?, median(cycles, |cycle| cycle.back)?))
    });
    let [Some((write, back)), Some((writes, reads))] = both else { return };
    run.findings.push(format!(
        "{}: to write takes {write:.1} ns a page and to bring back {back:.1} ns beside the device; \
         with one that copies {writes:.0} ns and {reads:.0} ns.",
        name(found)
    ));
}

fn judge_counts(run: &mut Run, found: &Found, did: &Did) {
    let (out, back) = (&did.out, &did.back);
    let of = |part: &Tally, name| Did::of(part, name);
    let folios = of(out, FOLIOS);
    let invalidations = of(out, INVALIDATIONS);
    let goal = match found.backing.size.bytes() {
        K64 => format!(" (goal: at most 1 for a folio; {})", verdict(invalidations <= folios)),
        _ => String::new(),
    };
    run.findings.push(format!(
        "{}: {folios} folios went out with {} rmap walks (goal: 1 for a folio; {}), {} swap \
         entries, {} flushes and {invalidations} invalidations{goal}; {} had no run of slots \
         (goal: 0; {}); {} leaves were split; the index took {} frames, the slots had {}.",
        name(found),
        of(out, WALKS),
        verdict(of(out, WALKS) == folios),
        of(out, ENTRIES),
        of(out, FLUSHES),
        of(out, FALLBACKS),
        verdict(of(out, FALLBACKS) == 0),
        of(out, SPLITS),
        of(out, INDEX_FRAMES),
        of(out, SLOT_FRAMES),
    ));
    let share = of(back, WHOLE) as f64 / (of(back, PAGES) as f64).max(1.0);
    run.findings.push(format!(
        "{}: of {} pages {:.1} % came back in whole folios (goal: at least {} %; {}), {} folios in \
         all.",
        name(found),
        of(back, PAGES),
        100.0 * share,
        100.0 * WHOLE_SHARE,
        verdict(share >= WHOLE_SHARE),
        of(back, FOLIOS)
    ));
}

/// What page at a time does besides: it takes contiguous blocks apart.
fn tell_pages(run: &mut Run, found: &Found, Did { out, .. }: &Did) {
    let of = |name| Did::of(out, name);
    if of(UNFOLDS) > 0 {
        run.findings.push(format!(
            "{}: {} takes {} contiguous blocks apart on the way, and makes {} flushes with {} \
             invalidations.",
            name(found),
            clear::PAGES,
            of(UNFOLDS),
            of(FLUSHES),
            of(INVALIDATIONS)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{BACKINGS, cells};
    use super::*;
    use crate::bench::empty_run;
    use crate::host::Host;

    /// Two rounds, in the second of which the machine was half as fast.
    fn found(isa: Isa, at: usize, pages: f64) -> Found {
        let cycle = |out| Cycle { out, write: 7.0, back: 11.0 };
        let rounds = |way| match way {
            Way::Runs => vec![cycle(10.0), cycle(20.0)],
            Way::Pages => vec![cycle(pages), cycle(2.0 * pages)],
        };
        let cycles = cells().into_iter().map(|(way, _)| rounds(way)).collect();
        Found { isa, backing: BACKINGS[at], cycles, did: Vec::new() }
    }

    fn said(found: Found) -> String {
        let mut run = empty_run("pageout", &Host::new(std::path::Path::new("/nonexistent")));
        judge(&mut run, &[found]);
        run.findings.join("\n")
    }

    #[test]
    fn d7_paging_out_is_judged_by_the_ratio_within_each_round() {
        let met = said(found(Isa::Arm4k, 1, 25.0));
        assert!(met.contains("15.0 ns a page by-runs, 37.5 ns page-at-a-time: 2.50"), "{met}");
        assert!(met.contains("(2.50 to 2.50; goal: at least 2.5; met)"), "{met}");
        assert!(said(found(Isa::Arm4k, 1, 24.9)).contains("goal: at least 2.5; MISSED"));
        assert!(said(found(Isa::X86_64, 1, 15.0)).contains("goal: at least 1.5; met"));
        assert!(said(found(Isa::X86_64, 1, 14.9)).contains("goal: at least 1.5; MISSED"));
    }

    #[test]
    fn d7_base_pages_shall_not_be_slower_and_blocks_have_no_goal_of_time() {
        assert!(said(found(Isa::X86_64, 0, 9.9)).contains("at most 1.02 of its time; met"));
        assert!(said(found(Isa::X86_64, 0, 9.7)).contains("at most 1.02 of its time; MISSED"));
        let blocks = said(found(Isa::Arm4k, 3, 10.0));
        assert!(blocks.contains("2M mapped by blocks") && !blocks.contains("goal"), "{blocks}");
    }

    #[test]
    fn d7_writing_and_bringing_back_are_told_with_and_without_the_device() {
        let text = said(found(Isa::X86_64, 2, 10.0));
        let words = "2M mapped by entries: to write takes 7.0 ns a page and to bring back 11.0 ns";
        assert!(text.contains(words), "{text}");
    }

    fn counts(out: Tally, whole: u64) -> String {
        let back = vec![(PAGES, 1000), (WHOLE, whole), (FOLIOS, 70)];
        said(Found { did: vec![Did { out, back }], ..found(Isa::X86_64, 1, 30.0) })
    }

    #[test]
    fn d7_blocks_that_page_at_a_time_takes_apart_are_told() {
        let did = |out| Did { out, back: Vec::new() };
        let both = vec![did(Vec::new()), did(vec![(UNFOLDS, 64), (FLUSHES, 66)])];
        let text = said(Found { did: both, ..found(Isa::Arm4k, 1, 30.0) });
        assert!(text.contains("takes 64 contiguous blocks apart on the way, and makes 66 flushes"));
        let none = said(Found { did: vec![did(Vec::new()); 2], ..found(Isa::X86_64, 1, 30.0) });
        assert!(!none.contains("apart"), "{none}");
    }

    #[test]
    fn d7_counts_are_judged_for_each_folio() {
        let good = vec![(FOLIOS, 64), (WALKS, 64), (INVALIDATIONS, 64), (FLUSHES, 2)];
        let met = counts(good, 950);
        for words in [
            "64 folios went out with 64 rmap walks (goal: 1 for a folio; met)",
            "2 flushes and 64 invalidations (goal: at most 1 for a folio; met)",
            "0 had no run of slots (goal: 0; met)",
            "of 1000 pages 95.0 % came back in whole folios (goal: at least 95 %; met)",
        ] {
            assert!(met.contains(words), "{words} in {met}");
        }
        let bad = vec![(FOLIOS, 64), (WALKS, 65), (INVALIDATIONS, 1024), (FALLBACKS, 1)];
        let missed = counts(bad, 949);
        for words in [
            "65 rmap walks (goal: 1 for a folio; MISSED)",
            "1024 invalidations (goal: at most 1 for a folio; MISSED)",
            "1 had no run of slots (goal: 0; MISSED)",
            "94.9 % came back in whole folios (goal: at least 95 %; MISSED)",
        ] {
            assert!(missed.contains(words), "{words} in {missed}");
        }
    }
}
