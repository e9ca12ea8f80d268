//! The rounds, and the records they become.

use anyhow::Result;
use quire_machine::Ram;

use super::args::{ReadArgs, file_bytes};
use super::cold::{self, Cold};
use super::lookup::{self, Finder, Lookups, Order};
use super::naive::Naive;
use super::scene::{Layout, SHIFT, Scene, ram, with_scene};
use super::warm::{Pair, Warm};
use super::{goals, say};
use crate::bench::fault::threads::host_cpus;
use crate::bench::{empty_run, rounds};
use crate::host::Host;
use crate::record::{Case, Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// The bench's name in records.
pub(crate) const NAME: &str = "read";
/// Through the library's cache.
pub(super) const CACHE: &str = "cache";
/// The copy alone.
pub(super) const BARE: &str = "bare-copy";
/// A map of folios in one lock.
pub(super) const NAIVE: &str = "one-lock";
/// What the first reading is asked for that makes the file's folios.
const FIRST: u64 = 64 << 10;
/// What `read(2)` is asked for, in bytes.
pub(super) const CHUNKS: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];
const LOOPS: u32 = 9;

/// What was measured of a file in folios of one layout; each vector round by round.
pub(super) struct Found {
    pub(super) layout: Layout,
    /// For each chunk.
    pub(super) pairs: Vec<Vec<Pair>>,
    /// For each order, through the cache and in one lock.
    pub(super) lookups: Vec<[Vec<Lookups>; 2]>,
    /// For each chunk.
    pub(super) colds: Vec<Vec<Cold>>,
    /// For each chunk, how many folios of each order a first read makes.
    pub(super) folios: Vec<Vec<u64>>,
}

/// Measures.
///
/// # Errors
/// [`Refused`](crate::Refused) for what cannot be measured; else whatever failed on the way.
pub(crate) fn run(args: &ReadArgs, host: &Host) -> Result<Run> {
    let mut run = empty_run(NAME, host);
    let bytes = file_bytes(args.size, host, &mut run.limits)?;
    let loops = args.loops.unwrap_or(LOOPS);
    let mut ram = ram(bytes)?;
    let found = Layout::ALL.map(|layout| measure(&mut ram, (layout, bytes), loops));
    for found in found {
        let found = found?;
        push(&mut run, bytes, &found);
        goals::judge(&mut run, bytes, &found, host_cpus().len());
    }
    say::say(&mut run, Size(bytes));
    Ok(run)
}

fn measure(ram: &mut Ram, (layout, bytes): (Layout, u64), loops: u32) -> Result<Found> {
    with_scene(ram, (layout, bytes), |scene| {
        let file = scene.warm_file(FIRST >> SHIFT)?;
        let warm = |chunk| Warm::new(scene, file, chunk >> SHIFT);
        let warms = CHUNKS.into_iter().map(warm).collect::<Result<Vec<_>>>()?;
        let buffer = scene.buffer()?;
        let pairs = rounds("reading", &warms, loops, |warm| warm.sample(scene, &buffer))?;
        scene.give_back(buffer);
        drop(warms);
        let naive = Naive::new(&scene.pieces(file, scene.pages)?);
        let lookups = lookups(scene, [Finder::Cache(file), Finder::Naive(&naive)], loops)?;
        drop(naive);
        scene.mm.files().close(file)?;
        let colds =
            rounds("reading first", &CHUNKS, loops, |chunk| cold::sample(scene, chunk >> SHIFT))?;
        let folios = CHUNKS.into_iter().map(|chunk| cold::folios(scene, chunk >> SHIFT));
        Ok(Found { layout, pairs, lookups, colds, folios: folios.collect::<Result<_>>()? })
    })
}

fn lookups(
    scene: &Scene<'_, '_, '_>,
    finders: [Finder<'_>; 2],
    loops: u32,
) -> Result<Vec<[Vec<Lookups>; 2]>> {
    let cells: Vec<(Finder<'_>, Order)> =
        finders.iter().flat_map(|finder| Order::ALL.map(|order| (*finder, order))).collect();
    let mut found = rounds("looking up", &cells, loops, |cell| lookup::sample(scene, *cell))?;
    let naive = found.split_off(Order::ALL.len());
    Ok(found.into_iter().zip(naive).map(<[_; 2]>::from).collect())
}

fn push(run: &mut Run, bytes: u64, found: &Found) {
    let note = found.layout.note();
    for (chunk, pairs) in CHUNKS.into_iter().zip(&found.pairs) {
        let case = Case::new("in memory", Some(Size(chunk))).with(note);
        let rate = |ns: f64| bytes as f64 / ns;
        let gb = ("rate", "GB/s");
        put(run, (&case, CACHE), gb, pairs.iter().map(|pair| rate(pair.cache)));
        put(run, (&case, BARE), gb, pairs.iter().map(|pair| rate(pair.bare)));
        let of_bare = pairs.iter().map(|pair| pair.bare / pair.cache);
        put(run, (&case, CACHE), ("of-bare", "ratio"), of_bare);
    }
    for (order, [cache, naive]) in Order::ALL.into_iter().zip(&found.lookups) {
        let case = Case::new(order.form(), None).with(note);
        push_lookups(run, (&case, CACHE), cache);
        push_lookups(run, (&case, NAIVE), naive);
    }
    for (chunk, colds) in CHUNKS.into_iter().zip(&found.colds) {
        let case = Case::new("first read", Some(Size(chunk))).with(note);
        put(run, (&case, CACHE), ("read", "ns"), colds.iter().map(|cold| cold.read));
        put(run, (&case, CACHE), ("close", "ns"), colds.iter().map(|cold| cold.close));
    }
    for (chunk, folios) in CHUNKS.into_iter().zip(&found.folios) {
        for (order, count) in folios.iter().enumerate().filter(|(_, count)| **count > 0) {
            let case = Case::new("folios", Some(Size(1 << (order as u32 + SHIFT))));
            let case = case.with(note).with(&format!("chunks of {}", Size(chunk)));
            put(run, (&case, CACHE), ("count", "count"), [*count as f64]);
        }
    }
}

fn push_lookups(run: &mut Run, (case, variant): (&Case, &str), found: &[Lookups]) {
    let two = case.clone().on_threads(super::scene::THREADS);
    let ns = ("time", "ns");
    put(run, (case, variant), ns, found.iter().map(|lookups| lookups.one.cpu));
    put(run, (&two, variant), ns, found.iter().map(|lookups| lookups.two.cpu));
    put(run, (&two, variant), ("speed-up", "ratio"), found.iter().map(Lookups::by_clock));
    put(run, (&two, variant), ("speed-up-cpu", "ratio"), found.iter().map(Lookups::by_cpu));
}

fn put(
    run: &mut Run,
    (case, variant): (&Case, &str),
    metric: (&str, &str),
    values: impl IntoIterator<Item = f64>,
) {
    let values: Vec<f64> = values.into_iter().collect();
    if let Some(summary) = Summary::of(&values) {
        run.records.push(Record::new(NAME, case, variant, metric, summary));
    }
}
