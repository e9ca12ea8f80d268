//! The cells, and the figures that they become.

use anyhow::Result;
use clap::Args;

use crate::bench::driver::Bench;
use crate::bench::options::{Common, Filter, folio_size};
use crate::bench::scene::{Backing, MARGIN, affordable};
use crate::bench::sheet::{Key, LINUX, Place, Sheet};
use crate::host::Host;
use crate::host::fault::unavailable;
use crate::host::thp::Guard;
use crate::isa::Isa;
use crate::record::Case;
use crate::refused::Refused;
use crate::size::Size;

/// The bytes that a watcher releases at once, and those between two writes of a storm.
pub(super) const RUN: u64 = 64 << 10;
pub(super) const STRIDE: u64 = RUN;
const LIBRARY: &str = "by-runs";
const PARTS: [&str; 3] = ["arm", "storm", "release"];
const TIME: (&str, &str) = ("time", "ns");
const EACH: (&str, &str) = ("per-write", "ns");
/// The host's huge pages, which stand behind the machine's RAM.
const HOST_BLOCK: Size = Size(2 << 20);
const REGION: u64 = 1 << 30;
const REGION_LEAST: u64 = 64 << 20;
/// Memory for slots, tables and the command itself.
const BESIDE: u64 = 192 << 20;
const LOOPS: u32 = 7;

/// Options of `bench watch`.
#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// Sizes of folios: a base page to a block [default: 4K,64K,2M or what the format has]
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = folio_size)]
    sizes: Vec<Size>,
    /// How much memory is watched [default: 1G, or less where memory is short]
    #[arg(long)]
    region: Option<Size>,
    /// The page-table format
    #[arg(long, value_enum, default_value_t = Isa::X86_64)]
    isa: Isa,
    /// Only these variants: by-runs, linux
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    variants: Vec<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) struct Watch {
    isa: Isa,
    region: u64,
    loops: u32,
    sizes: Vec<Size>,
    own: bool,
    linux: bool,
}

fn key(part: &str, size: Size, variant: &str, metric: (&str, &'static str)) -> Key {
    Key::new(&Case::new(part, Some(size)), variant, metric)
}

fn keys(size: Size, variant: &str) -> Vec<Key> {
    PARTS.map(|part| key(part, size, variant, TIME)).into()
}

/// The sizes to measure; those that the format has no folio of are refused.
fn sizes(args: &WatchArgs) -> Result<Vec<Size>, Refused> {
    let (page, block) = (args.isa.nearest(Size(1)), args.isa.block());
    let usual = [page, args.isa.nearest(Size(RUN)), block];
    let mut sizes = if args.sizes.is_empty() { usual.to_vec() } else { args.sizes.clone() };
    sizes.sort();
    sizes.dedup();
    match sizes.iter().find(|size| !(page..=block).contains(size)) {
        Some(size) => {
            let name = args.isa.name();
            Err(Refused(format!("{name} has folios of {page} to {block}, not of {size}")))
        }
        None => Ok(sizes),
    }
}

impl Watch {
    fn measure_linux(&self, host: &Host, sheet: &mut Sheet) -> Result<()> {
        let guard = Guard::new(host, &mut sheet.run.settings);
        for &size in &self.sizes {
            if let Some(why) = unavailable(host, size, self.region) {
                sheet.skip(format!("{LINUX} {size}: {why}"));
                continue;
            }
            guard.only(size)?;
            let samples: Result<Vec<_>> = (0..self.loops.div_ceil(2))
                .map(|_| super::linux::sample(size, self.region))
                .collect();
            match samples {
                Ok(samples) => {
                    for (part, key) in keys(size, LINUX).into_iter().enumerate() {
                        sheet.put(key, samples.iter().map(|ns| ns[part]).collect());
                    }
                }
                Err(why) => sheet.skip(format!("{LINUX} {size}: {why:#}; left out.")),
            }
        }
        Ok(())
    }
}

impl Bench for Watch {
    type Args = WatchArgs;

    fn titles(_: &WatchArgs) -> [&'static str; 3] {
        [
            "watch",
            "Watched memory",
            "The cost of a snapshot through a watcher: to protect all memory, to release what a \
             program writes, and to release the rest. The host's kernel does more.",
        ]
    }

    fn new(args: &WatchArgs, host: &Host, sheet: &mut Sheet) -> Result<Self> {
        let sizes = sizes(args)?;
        let filter = Filter::new(&args.variants, &[LIBRARY, LINUX].map(str::to_owned))?;
        let need = |bytes: u64| bytes.saturating_add(MARGIN + BESIDE);
        let what = |size: Size| format!("watching {size}");
        let (region, less) = affordable(host, what, (args.region, REGION, REGION_LEAST), need)?;
        less.into_iter().for_each(|less| sheet.skip(less));
        if let Some(size) = sizes.iter().find(|size| region == 0 || region % size.bytes() != 0) {
            let region = Size(region);
            return Err(Refused(format!(
                "--region {region} is no whole number of folios of {size}"
            ))
            .into());
        }
        let loops = args.common.loops.unwrap_or(LOOPS);
        let (own, linux) = (filter.has(LIBRARY), filter.has(LINUX));
        Ok(Watch { isa: args.isa, region, loops, sizes, own, linux })
    }

    fn measure(&mut self, host: &Host, sheet: &mut Sheet) -> Result<()> {
        if self.own {
            let guard = Guard::new(host, &mut sheet.run.settings);
            guard.only(HOST_BLOCK)?;
            let cells: Vec<_> =
                self.sizes.iter().map(|&size| (keys(size, LIBRARY), size)).collect();
            sheet.rounds("watching", self.loops, &cells, |&size| {
                let backing = Backing { size, block: size == self.isa.block() };
                super::own::sample(self.isa, backing, self.region)
            })?;
        }
        if self.linux {
            self.measure_linux(host, sheet)?;
        }
        let writes = (self.region / STRIDE) as f64;
        for &size in &self.sizes {
            for variant in [LIBRARY, LINUX] {
                let [from, to] = [TIME, EACH].map(|metric| key("storm", size, variant, metric));
                sheet.derive(&from, to, |ns| ns / writes);
            }
        }
        Ok(())
    }

    fn goals(&self, sheet: &mut Sheet) {
        for &size in &self.sizes {
            let times = |part: &str| {
                let of = |variant| sheet.median(&key(part, size, variant, TIME));
                Some(format!("{part} {:.1}", of(LINUX)? / of(LIBRARY)?))
            };
            let times: Vec<String> = PARTS.iter().filter_map(|part| times(part)).collect();
            if !times.is_empty() {
                let times = times.join(", ");
                sheet.finding(format!(
                    "{size}, times as fast as {LINUX}, which does more: {times}."
                ));
            }
        }
    }

    fn words(&self, sheet: &mut Sheet) {
        let values = [
            ("region", Size(self.region).to_string()),
            ("isa", self.isa.name().to_owned()),
            ("run", Size(RUN).to_string()),
        ];
        sheet.words(include_str!("words.txt"), &values);
    }

    fn place(&self, key: &Key) -> Place {
        let table = match key.metric.as_str() {
            "time" => "watch: time of all of it, less is better (medians)",
            _ => "watch: time for each write of the storm, less is better (medians)",
        };
        Place::by_size(key, table, format!("{}, {}", key.case.form, key.variant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d8_sizes_are_those_of_the_format() {
        let args = |named: &[u64], isa| WatchArgs {
            sizes: named.iter().copied().map(Size).collect(),
            region: None,
            isa,
            variants: Vec::new(),
            common: Common { loops: None, format: crate::bench::Format::Json },
        };
        let of = |named: &[u64], isa| sizes(&args(named, isa)).map_err(|refused| refused.0);
        let usual = [Size(4 << 10), Size(64 << 10), Size(2 << 20)];
        assert_eq!(of(&[], Isa::X86_64).unwrap(), usual);
        assert_eq!(
            of(&[4 << 10], Isa::Arm16k).unwrap_err(),
            "arm64_16k has folios of 16K to 32M, not of 4K"
        );
    }

    #[test]
    fn d8_both_sides_arm_storm_and_release() {
        for (size, block) in [(4 << 10, false), (64 << 10, false), (2 << 20, true)] {
            let size = Size(size);
            let own = super::super::own::sample(Isa::X86_64, Backing { size, block }, 8 << 20);
            assert_eq!(own.unwrap().len(), PARTS.len());
        }
        // A host without userfaultfd, or without the right to use it, has no such column.
        if let Ok(ns) = super::super::linux::sample(Size(4096), 4 << 20) {
            assert!(ns.iter().all(|ns| *ns > 0.0), "{ns:?}");
        }
    }
}
