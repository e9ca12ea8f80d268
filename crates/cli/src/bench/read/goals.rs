//! What the figures come to, and whether the goals are met.

use super::lookup::{Lookups, Order};
use super::measure::{BARE, CHUNKS, Found, NAIVE};
use super::scene::{Layout, SHIFT};
use crate::bench::fault::verdict;
use crate::record::Run;
use crate::size::Size;
use crate::stats::Summary;

/// Of the bare copy's rate so much shall remain.
const OF_BARE: f64 = 0.9;
/// Two threads shall look up so many times as fast as one.
const SPEED_UP: f64 = 1.8;

/// Says what was found of a file of `bytes`, on a host with `cpus` CPUs for this process.
pub(super) fn judge(run: &mut Run, bytes: u64, found: &Found, cpus: usize) {
    judge_reads(run, bytes, found);
    judge_lookups(run, found, cpus);
    tell_cold(run, bytes, found);
}

fn judge_reads(run: &mut Run, bytes: u64, found: &Found) {
    for (chunk, pairs) in CHUNKS.into_iter().zip(&found.pairs) {
        let Some(ratio) = summary(pairs, |pair| pair.bare / pair.cache) else { continue };
        // The goal is about the folios that readahead makes; base pages tell what they are for.
        let goal = match found.layout {
            Layout::ReadAhead => {
                format!("; goal: at least {OF_BARE}; {}", verdict(ratio.median >= OF_BARE))
            }
            Layout::Pages => String::new(),
        };
        run.findings.push(format!(
            "Reading {} in chunks of {} through the cache reaches {:.3} ({:.3} to {:.3}) of the \
             rate of {BARE} ({}{goal}).",
            Size(bytes),
            Size(chunk),
            ratio.median,
            ratio.min,
            ratio.max,
            found.layout.note()
        ));
    }
}

fn judge_lookups(run: &mut Run, found: &Found, cpus: usize) {
    let note = found.layout.note();
    for (order, [cache, naive]) in Order::ALL.into_iter().zip(&found.lookups) {
        let one = |all: &[Lookups]| summary(all, |lookups| lookups.one.cpu);
        let (Some(own), Some(other)) = (one(cache), one(naive)) else { continue };
        run.findings.push(format!(
            "A {} takes {:.0} ns ({note}); in {NAIVE} {:.0} ns.",
            order.form(),
            own.median,
            other.median
        ));
        let speed = [Lookups::by_clock, Lookups::by_cpu].map(|by| summary(cache, by));
        let [Some(clock), Some(cpu)] = speed else { continue };
        let other = summary(naive, Lookups::by_clock).map_or(0.0, |s| s.median);
        let goal = match (order, cpus) {
            (Order::One, _) => "no goal: both write one cache line".to_owned(),
            (_, 0 | 1) => "this host has one CPU for them".to_owned(),
            _ => format!("goal: at least {SPEED_UP}; {}", verdict(clock.median >= SPEED_UP)),
        };
        run.findings.push(format!(
            "Two threads: {} {:.2} times as fast as one by the clock, {:.2} times by their CPU \
             time ({note}; {goal}); in {NAIVE} {other:.2} times.",
            order.form(),
            clock.median,
            cpu.median
        ));
    }
}

fn tell_cold(run: &mut Run, bytes: u64, found: &Found) {
    let all = CHUNKS.into_iter().zip(&found.colds).zip(&found.pairs);
    for ((chunk, colds), pairs) in all {
        let copy = summary(pairs, |pair| pair.bare / (bytes >> SHIFT) as f64);
        let (read, close) = (summary(colds, |cold| cold.read), summary(colds, |cold| cold.close));
        let (Some(read), Some(close), Some(copy)) = (read, close, copy) else { continue };
        run.findings.push(format!(
            "A first read in chunks of {} costs {:.1} ns for each page beside the device, and \
             closing the file {:.1} ns ({}); a bare copy of the page takes {:.0} ns.",
            Size(chunk),
            read.median,
            close.median,
            found.layout.note(),
            copy.median
        ));
    }
}

fn summary<T>(values: &[T], of: impl Fn(&T) -> f64) -> Option<Summary> {
    Summary::of(&values.iter().map(of).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::cold::Cold;
    use super::super::warm::Pair;
    use super::*;
    use crate::bench::empty_run;
    use crate::bench::fault::threads::Timing;
    use crate::host::Host;

    fn said(layout: Layout, cache: f64, two: f64, cpus: usize) -> String {
        let time = |ns| Timing { wall: ns, cpu: 50.0 };
        let lookups = |two| vec![Lookups { one: time(100.0), two: time(two) }];
        let found = Found {
            layout,
            // The machine was half as fast in the last round; the ratio did not change.
            pairs: vec![
                vec![Pair { cache, bare: 90.0 }, Pair { cache: 2.0 * cache, bare: 180.0 }];
                3
            ],
            lookups: (0..3).map(|_| [lookups(two), lookups(300.0)]).collect(),
            colds: vec![vec![Cold { read: 12.0, close: 3.0 }]; 3],
            folios: Vec::new(),
        };
        let mut run = empty_run("read", &Host::new(std::path::Path::new("/nonexistent")));
        judge(&mut run, 1 << 30, &found, cpus);
        run.findings.join("\n")
    }

    #[test]
    fn b1_reads_are_judged_by_the_ratio_within_each_round_and_only_in_large_folios() {
        let met = said(Layout::ReadAhead, 100.0, 100.0, 2);
        assert!(met.contains("1G in chunks of 4K") && met.contains("0.900 (0.900 to"), "{met}");
        assert_eq!(met.matches("goal: at least 0.9; met").count(), 3);
        let missed = said(Layout::ReadAhead, 101.0, 100.0, 2);
        assert_eq!(missed.matches("goal: at least 0.9; MISSED").count(), 3);
        let pages = said(Layout::Pages, 101.0, 100.0, 2);
        assert!(pages.contains("0.891") && !pages.contains("at least 0.9"), "{pages}");
    }

    #[test]
    fn b1_two_threads_are_judged_by_the_clock_where_there_are_cpus_and_two_cache_lines() {
        let met = said(Layout::Pages, 1.0, 110.0, 2);
        assert_eq!(met.matches("goal: at least 1.8; met").count(), 2);
        assert!(met.contains("lookup of one page 1.82 times") && met.contains("no goal"), "{met}");
        assert!(met.contains("in one-lock 0.67 times"), "{met}");
        assert!(said(Layout::Pages, 1.0, 120.0, 2).contains("goal: at least 1.8; MISSED"));
        assert!(said(Layout::Pages, 1.0, 120.0, 1).contains("this host has one CPU"));
    }

    #[test]
    fn b1_what_a_first_read_costs_stands_beside_the_copy_of_a_page() {
        let text = said(Layout::ReadAhead, 1.0, 1.0, 2);
        assert!(text.contains("costs 12.0 ns for each page beside the device"), "{text}");
    }
}
