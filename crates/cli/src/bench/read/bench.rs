//! The cells, the figures that they become, and the goals.

use anyhow::Result;
use clap::Args;

use super::cold;
use super::lookup::{self, Finder, Lookups, Order};
use super::naive::Naive;
use super::scene::{Layout, SHIFT, Scene, THREADS, ram, ram_bytes, with_scene};
use super::warm::Warm;
use crate::bench::driver::Bench;
use crate::bench::options::Common;
use crate::bench::scene::affordable;
use crate::bench::sheet::{Bound, Key, Place, Row, Sheet};
use crate::host::Host;
use crate::record::Case;
use crate::refused::Refused;
use crate::size::Size;
use crate::threads::host_cpus;

/// Through the library's cache.
const CACHE: &str = "cache";
/// The copy alone.
const BARE: &str = "bare-copy";
/// A map of folios in one lock.
const NAIVE: &str = "one-lock";
/// The chunk of the first read, which makes the file's folios.
const FIRST: u64 = 64 << 10;
/// The bytes of one `read(2)`.
const CHUNKS: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];
const LOOPS: u32 = 9;
const RATE: (&str, &str) = ("rate", "GB/s");
const RATIO: (&str, &str) = ("of-bare", "ratio");

/// The usual size of the file, the least that is tried where memory is short, and those that may be
/// named, which are multiples of the largest chunk.
const USUAL: u64 = 1 << 30;
const SHORT: u64 = 64 << 20;
const LEAST: u64 = 16 << 20;
const MOST: u64 = 64 << 30;
const UNIT: u64 = 1 << 20;
/// Memory of the host beside the machine's RAM: slots, tables of frames, the naive cache.
const BESIDE: u64 = 64 << 20;

/// The share of the bare copy's rate that shall remain.
const OF_BARE: Bound = Bound::AtLeast(0.9);
/// Two threads shall look up this many times as fast as one.
const SPEED_UP: Bound = Bound::AtLeast(1.8);

/// Options of `bench read`.
#[derive(Args, Debug)]
pub(crate) struct ReadArgs {
    /// The size of the file, a multiple of 1M [default: 1G, or less where memory is short]
    #[arg(long)]
    size: Option<Size>,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) struct Read {
    bytes: u64,
    loops: u32,
}

fn in_memory(layout: Layout, chunk: u64, variant: &str, metric: (&str, &'static str)) -> Key {
    let case = Case::new("in memory", Some(Size(chunk))).with(layout.note());
    Key::new(&case, variant, metric)
}

/// Time of a lookup in one thread; time, and how many times as fast, in two.
fn lookup_keys(layout: Layout, order: Order, variant: &str) -> Vec<Key> {
    let one = Case::new(order.form(), None).with(layout.note());
    let two = one.clone().on_threads(THREADS);
    vec![
        Key::new(&one, variant, ("time", "ns")),
        Key::new(&two, variant, ("time", "ns")),
        Key::new(&two, variant, ("speed-up", "ratio")),
        Key::new(&two, variant, ("speed-up-cpu", "ratio")),
    ]
}

fn cold_keys(layout: Layout, chunk: u64) -> Vec<Key> {
    let case = Case::new("first read", Some(Size(chunk))).with(layout.note());
    ["read", "close"].map(|metric| Key::new(&case, CACHE, (metric, "ns"))).into()
}

/// The size of the file. A size that no file has here and a lack of memory are refused.
fn file_bytes(named: Option<Size>, host: &Host) -> Result<(u64, Option<String>), Refused> {
    let is_file = |Size(bytes)| (LEAST..=MOST).contains(&bytes) && bytes.is_multiple_of(UNIT);
    if named.is_some_and(|size| !is_file(size)) {
        let (unit, least, most) = (Size(UNIT), Size(LEAST), Size(MOST));
        return Err(Refused(format!("--size is a multiple of {unit} from {least} to {most}")));
    }
    let need = |bytes: u64| ram_bytes(bytes).saturating_add(bytes / 32).saturating_add(BESIDE);
    affordable(host, |size| format!("reading a file of {size}"), (named, USUAL, SHORT), need)
}

impl Read {
    /// Measures a file in folios of one layout.
    fn measure_layout(
        &self,
        layout: Layout,
        scene: &Scene<'_, '_, '_>,
        sheet: &mut Sheet,
    ) -> Result<()> {
        let file = scene.warm_file(FIRST >> SHIFT)?;
        let buffer = scene.buffer()?;
        let mut cells = Vec::new();
        for chunk in CHUNKS {
            let key = |variant, metric| in_memory(layout, chunk, variant, metric);
            let keys = vec![key(CACHE, RATE), key(BARE, RATE), key(CACHE, RATIO)];
            cells.push((keys, Warm::new(scene, file, chunk >> SHIFT)?));
        }
        let bytes = self.bytes as f64;
        sheet.rounds("reading", self.loops, &cells, |warm| {
            let pair = warm.sample(scene, &buffer)?;
            Ok(vec![bytes / pair.cache, bytes / pair.bare, pair.bare / pair.cache])
        })?;
        drop(cells);
        scene.give_back(buffer);
        let naive = Naive::new(&scene.pieces(file, scene.pages)?);
        let finders = [(CACHE, Finder::Cache(file)), (NAIVE, Finder::Naive(&naive))];
        let cells: Vec<(Vec<Key>, (Finder<'_>, Order))> = Order::ALL
            .into_iter()
            .flat_map(|order| {
                finders.map(|(name, finder)| (lookup_keys(layout, order, name), (finder, order)))
            })
            .collect();
        sheet.rounds("looking up", self.loops, &cells, |cell| {
            let all: Lookups = lookup::sample(scene, *cell)?;
            Ok(vec![all.one.cpu, all.two.cpu, all.by_clock(), all.by_cpu()])
        })?;
        drop(naive);
        scene.mm.files().close(file)?;
        let cells = CHUNKS.map(|chunk| (cold_keys(layout, chunk), chunk));
        sheet.rounds("reading first", self.loops, &cells, |chunk| {
            cold::sample(scene, chunk >> SHIFT)
        })?;
        for chunk in CHUNKS {
            for (order, count) in cold::folios(scene, chunk >> SHIFT)?.into_iter().enumerate() {
                if count > 0 {
                    let case = Case::new("folios", Some(Size(1 << (order as u32 + SHIFT))));
                    let chunks = format!("chunks of {}", Size(chunk));
                    sheet.count(&case.with(layout.note()).with(&chunks), CACHE, "count", count);
                }
            }
        }
        Ok(())
    }

    fn judge_reads(&self, layout: Layout, sheet: &mut Sheet) {
        for chunk in CHUNKS {
            let key = in_memory(layout, chunk, CACHE, RATIO);
            let Some(ratio) = sheet.summary(&key) else { continue };
            // The goal is about the folios that readahead makes; base pages stand for comparison.
            let goal = match layout {
                Layout::ReadAhead => format!("; {}", OF_BARE.judge(ratio.median)),
                Layout::Pages => String::new(),
            };
            sheet.finding(format!(
                "Reading {} in chunks of {} through the cache reaches {:.3} ({:.3} to {:.3}) of \
                 the rate of {BARE} ({}{goal}).",
                Size(self.bytes),
                Size(chunk),
                ratio.median,
                ratio.min,
                ratio.max,
                layout.note()
            ));
        }
    }

    fn judge_lookups(&self, layout: Layout, sheet: &mut Sheet, cpus: usize) {
        let note = layout.note();
        for order in Order::ALL {
            let medians = |variant| -> Option<Vec<f64>> {
                lookup_keys(layout, order, variant).iter().map(|key| sheet.median(key)).collect()
            };
            let (Some(own), Some(other)) = (medians(CACHE), medians(NAIVE)) else { continue };
            let ([ns, _, clock, cpu], [naive, _, other, _]) = (&own[..], &other[..]) else {
                continue;
            };
            let goal = match (order, cpus) {
                (Order::One, _) => "no goal: both write one cache line".to_owned(),
                (_, 0 | 1) => "this host has one CPU for them".to_owned(),
                _ => SPEED_UP.judge(*clock),
            };
            let form = order.form();
            sheet.finding(format!("A {form} takes {ns:.0} ns ({note}); in {NAIVE} {naive:.0} ns."));
            sheet.finding(format!(
                "Two threads: {form} {clock:.2} times as fast as one by the clock, {cpu:.2} times \
                 by their CPU time ({note}; {goal}); in {NAIVE} {other:.2} times."
            ));
        }
    }

    fn tell_cold(&self, layout: Layout, sheet: &mut Sheet) {
        for chunk in CHUNKS {
            let copy = sheet.median(&in_memory(layout, chunk, BARE, RATE));
            let copy = copy.map(|rate| (1_u64 << SHIFT) as f64 / rate);
            let cold = cold_keys(layout, chunk);
            let [Some(read), Some(close)] = [0, 1].map(|at| sheet.median(&cold[at])) else {
                continue;
            };
            sheet.finding(format!(
                "A first read in chunks of {} costs {read:.1} ns for each page beside the device, \
                 and closing the file {close:.1} ns ({}); a bare copy of the page takes {:.0} ns.",
                Size(chunk),
                layout.note(),
                copy.unwrap_or(0.0)
            ));
        }
    }

    fn judge(&self, sheet: &mut Sheet, cpus: usize) {
        for layout in Layout::ALL {
            self.judge_reads(layout, sheet);
            self.judge_lookups(layout, sheet, cpus);
            self.tell_cold(layout, sheet);
        }
    }
}

impl Bench for Read {
    type Args = ReadArgs;

    fn titles(_: &ReadArgs) -> [&'static str; 3] {
        [
            "read",
            "Files",
            "The cost of reading a file that is in memory: through the cache, beside a bare copy \
             of the same frames, and the time to find a page.",
        ]
    }

    fn new(args: &ReadArgs, host: &Host, sheet: &mut Sheet) -> Result<Self> {
        let (bytes, less) = file_bytes(args.size, host)?;
        less.into_iter().for_each(|less| sheet.skip(less));
        Ok(Read { bytes, loops: args.common.loops.unwrap_or(LOOPS) })
    }

    fn measure(&mut self, _: &Host, sheet: &mut Sheet) -> Result<()> {
        let mut ram = ram(self.bytes)?;
        for layout in Layout::ALL {
            with_scene(&mut ram, (layout, self.bytes), |scene| {
                self.measure_layout(layout, scene, sheet)
            })?;
        }
        Ok(())
    }

    fn goals(&self, sheet: &mut Sheet) {
        self.judge(sheet, host_cpus().len());
    }

    fn words(&self, sheet: &mut Sheet) {
        sheet.words(
            include_str!("words.txt"),
            &[
                ("size", Size(self.bytes).to_string()),
                ("CACHE", CACHE.to_owned()),
                ("BARE", BARE.to_owned()),
                ("NAIVE", NAIVE.to_owned()),
            ],
        );
    }

    fn place(&self, key: &Key) -> Place {
        let table = match (key.case.form.as_str(), key.metric.as_str()) {
            ("in memory", "rate") => "read in memory by chunk: GB/s, more is better (medians)",
            ("in memory", _) => "read in memory by chunk: ratio to the bare copy's rate (medians)",
            ("first read", "read") => {
                "read first by chunk: time for each page but the device (medians)"
            }
            ("first read", _) => {
                "read first by chunk: time to close the file, for each page (medians)"
            }
            ("folios", _) => "read first: how many folios of each size were read",
            (_, "time") => "read lookup: CPU time of each, in each thread (medians)",
            (_, "speed-up") => {
                "read lookup: two threads, times as fast as one by the clock (medians)"
            }
            _ => "read lookup: two threads, times as fast as one by CPU time (medians)",
        };
        let row = format!("{}, {}", key.variant, key.case.notes.join(", "));
        let row = match key.case.form.strip_prefix("lookup ") {
            Some(which) => format!("{which}, {row}"),
            None => row,
        };
        Place::by_size(key, table, row)
    }

    fn headlines(&self) -> Vec<Row> {
        vec![Row {
            what: "read a cached file, GB/s",
            form: "in memory",
            size: 64 << 10,
            note: Layout::ReadAhead.note(),
            metric: "rate",
            variants: [CACHE, BARE],
            goal: ("of-bare", "of the bare copy", OF_BARE),
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::tests::empty;
    use std::path::Path;

    #[test]
    fn b1_a_file_that_is_named_is_whole_chunks_and_neither_tiny_nor_vast() {
        let host = Host::new(Path::new("/nonexistent"));
        let bytes = |named| file_bytes(Some(Size(named)), &host);
        assert_eq!(bytes(17 << 20).unwrap(), (17 << 20, None));
        for wrong in [0, 1 << 20, (16 << 20) + 4096, 65 << 30, u64::MAX] {
            let said = bytes(wrong).unwrap_err().0;
            assert_eq!(said, "--size is a multiple of 1M from 16M to 64G");
        }
    }

    /// The findings where the cache takes `cache` times as long as the bare copy's 90, and two
    /// threads take `two` ns where one takes 100.
    fn said(layout: Layout, cache: f64, two: f64, cpus: usize) -> String {
        let mut sheet = empty();
        let bytes = (1_u64 << 30) as f64;
        for chunk in CHUNKS {
            // The machine was half as fast in the last round; the ratio did not change.
            let all = [
                (CACHE, RATE, vec![bytes / cache, bytes / (2.0 * cache)]),
                (BARE, RATE, vec![bytes / 90.0, bytes / 180.0]),
                (CACHE, RATIO, vec![90.0 / cache; 2]),
            ];
            for (variant, metric, values) in all {
                sheet.put(in_memory(layout, chunk, variant, metric), values);
            }
            let colds = cold_keys(layout, chunk).into_iter().zip([12.0, 3.0]);
            colds.for_each(|(key, ns)| sheet.put(key, vec![ns]));
        }
        for order in Order::ALL {
            for (variant, two) in [(CACHE, two), (NAIVE, 300.0)] {
                let values = [50.0, 50.0, 200.0 / two, 2.0];
                let keys = lookup_keys(layout, order, variant).into_iter().zip(values);
                keys.for_each(|(key, value)| sheet.put(key, vec![value]));
            }
        }
        Read { bytes: 1 << 30, loops: 1 }.judge(&mut sheet, cpus);
        sheet.run.findings.join("\n")
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
    fn b1_the_cost_of_a_first_read_stands_beside_the_copy_of_a_page() {
        let text = said(Layout::ReadAhead, 1.0, 1.0, 2);
        assert!(text.contains("costs 12.0 ns for each page beside the device"), "{text}");
    }
}
