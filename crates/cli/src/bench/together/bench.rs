//! The cells, the figures that they become, and the goal.

use anyhow::Result;
use clap::Args;

use super::sample::{AREAS, FORKED, FORKS, Op, apart, ram_bytes, sample};
use crate::bench::driver::Bench;
use crate::bench::options::{Common, Filter, folio_size};
use crate::bench::sheet::{Bound, Key, Place, Sheet};
use crate::host::{Host, memory};
use crate::isa::Isa;
use crate::record::Case;
use crate::refused::Refused;
use crate::size::Size;
use crate::threads::{Timing, host_cpus};

const LOOPS: u32 = 15;
const VARIANT: &str = "library";
/// Each thread has a machine and a library of its own.
const APART: &str = "apart";
/// A folio larger than this leaves no room for the areas of a thread.
const LARGEST: Size = Size(256 << 10);
/// Memory for slots and the command itself.
const BESIDE: u64 = 128 << 20;
/// How many times as fast two threads shall be as one.
const SPEED_UP: Bound = Bound::AtLeast(1.9);

/// Options of `bench together`.
#[derive(Args, Debug)]
pub(crate) struct TogetherArgs {
    /// Sizes of folios: a base page to 256K [default: 4K,64K]
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = folio_size)]
    sizes: Vec<Size>,
    /// Only these operations: mmap, mmap-PF, unmap-virt, unmap, PF, fork, fork-mixed
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    only: Vec<String>,
    /// How many threads work at the same time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    threads: u32,
    /// The page-table format
    #[arg(long, value_enum, default_value_t = Isa::X86_64)]
    isa: Isa,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) struct Together {
    isa: Isa,
    threads: u32,
    loops: u32,
    sizes: Vec<Size>,
    ops: Vec<Op>,
}

impl Together {
    /// Time in one thread and in several, and how many times as fast they are together.
    fn keys(&self, op: Op, size: Size) -> Vec<Key> {
        let one = Case::new(op.name(), Some(size));
        let all = one.clone().on_threads(self.threads);
        vec![
            Key::new(&one, VARIANT, ("time", "ns")),
            Key::new(&all, VARIANT, ("time", "ns")),
            Key::new(&all, VARIANT, ("speed-up", "ratio")),
            Key::new(&all, VARIANT, ("speed-up-cpu", "ratio")),
            Key::new(&all, APART, ("speed-up", "ratio")),
        ]
    }

    fn cells(&self) -> impl Iterator<Item = (Op, Size)> {
        self.ops.iter().flat_map(|&op| self.sizes.iter().map(move |size| (op, *size)))
    }
}

/// The sizes to measure; those that the format or this bench has no folio of are refused.
fn sizes(args: &TogetherArgs) -> Result<Vec<Size>, Refused> {
    let page = 1 << args.isa.page_shift();
    if args.sizes.is_empty() {
        let mut usual = vec![Size(page), args.isa.nearest(Size(64 << 10))];
        usual.dedup();
        return Ok(usual);
    }
    match args.sizes.iter().find(|size| size.bytes() < page || **size > LARGEST) {
        Some(size) => {
            let name = args.isa.name();
            Err(Refused(format!("{size} is not from {} to {LARGEST} ({name})", Size(page))))
        }
        None => Ok(args.sizes.clone()),
    }
}

impl Bench for Together {
    type Args = TogetherArgs;

    fn titles(_: &TogetherArgs) -> [&'static str; 3] {
        [
            "together",
            "Threads",
            "The time of an operation by one thread, and by several at the same time.",
        ]
    }

    fn new(args: &TogetherArgs, host: &Host, _: &mut Sheet) -> Result<Self> {
        let (sizes, threads) = (sizes(args)?, args.threads);
        let known = Op::ALL.map(|op| op.name().to_owned());
        let only = Filter::new(&args.only, &known)?;
        let ops = Op::ALL.into_iter().filter(|op| only.has(op.name())).collect();
        let largest = sizes.iter().copied().max().unwrap_or(LARGEST);
        let need = ram_bytes(largest, threads).saturating_add(BESIDE);
        memory::require(host, &format!("areas of {largest} in {threads} threads"), need)?;
        let cpus = host_cpus().len();
        if cpus < threads as usize {
            return Err(
                Refused(format!("{threads} threads need as many CPUs: there are {cpus}")).into()
            );
        }
        let loops = args.common.loops.unwrap_or(LOOPS);
        Ok(Together { isa: args.isa, threads, loops, sizes, ops })
    }

    fn measure(&mut self, _: &Host, sheet: &mut Sheet) -> Result<()> {
        let cells: Vec<_> =
            self.cells().map(|(op, size)| (self.keys(op, size), (op, size))).collect();
        sheet.rounds("working together", self.loops, &cells, |cell| {
            let (one, all) = (sample(self.isa, *cell, 1)?, sample(self.isa, *cell, self.threads)?);
            let apart = apart(self.isa, *cell, self.threads)?;
            let times = |all: Timing| f64::from(self.threads) * one.wall / all.wall;
            let by_cpu = f64::from(self.threads) * one.cpu / all.cpu;
            Ok(vec![one.cpu, all.cpu, times(all), by_cpu, times(apart)])
        })
    }

    fn goals(&self, sheet: &mut Sheet) {
        for (op, size) in self.cells() {
            let medians: Option<Vec<f64>> =
                self.keys(op, size).iter().map(|key| sheet.median(key)).collect();
            let Some([ns, _, clock, cpu, apart]) = medians.as_deref() else { continue };
            let goal = match self.threads {
                2 => format!(" ({})", SPEED_UP.judge(*clock)),
                _ => String::new(),
            };
            sheet.finding(format!(
                "{} of {size}: {ns:.0} ns in one thread; {} threads are {clock:.2} times as fast \
                 by the clock, {cpu:.2} times by their CPU time{goal}; {apart:.2} times where they \
                 have nothing in common.",
                op.name(),
                self.threads
            ));
        }
    }

    fn words(&self, sheet: &mut Sheet) {
        sheet.words(
            include_str!("words.txt"),
            &[
                ("isa", self.isa.name().to_owned()),
                ("areas", AREAS.to_string()),
                ("forked", FORKED.to_string()),
                ("forks", FORKS.to_string()),
            ],
        );
    }

    fn place(&self, key: &Key) -> Place {
        let threads = self.threads;
        let table = match key.metric.as_str() {
            "time" => "together: CPU time of an operation, in each thread (medians)".to_owned(),
            "speed-up" => {
                format!("together: {threads} threads, times as fast as one by the clock (medians)")
            }
            _ => format!("together: {threads} threads, times as fast as one by CPU time (medians)"),
        };
        let row = match (key.metric.as_str(), key.case.notes.first()) {
            ("time", Some(threads)) => format!("{}, {threads}", key.case.form),
            _ if key.variant == APART => format!("{}, {APART}", key.case.form),
            _ => key.case.form.clone(),
        };
        Place::by_size(key, table, row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::tests::empty;

    fn args(sizes: &[u64], isa: Isa) -> TogetherArgs {
        let sizes = sizes.iter().copied().map(Size).collect();
        let common = Common { loops: None, format: crate::bench::Format::Json };
        TogetherArgs { sizes, only: Vec::new(), threads: 2, isa, common }
    }

    #[test]
    fn e3_sizes_are_those_that_a_format_and_the_areas_have_room_for() {
        let of = |named: &[u64], isa| sizes(&args(named, isa)).map_err(|refused| refused.0);
        assert_eq!(of(&[], Isa::X86_64).unwrap(), [Size(4 << 10), Size(64 << 10)]);
        assert_eq!(of(&[], Isa::Arm64k).unwrap(), [Size(64 << 10)]);
        assert_eq!(of(&[8 << 10], Isa::X86_64).unwrap(), [Size(8 << 10)]);
        assert_eq!(
            of(&[4 << 10], Isa::Arm64k).unwrap_err(),
            "4K is not from 64K to 256K (arm64_64k)"
        );
        assert_eq!(of(&[1 << 20], Isa::X86_64).unwrap_err(), "1M is not from 4K to 256K (x86_64)");
    }

    #[test]
    fn e3_each_operation_says_how_threads_do_beside_one_and_apart() {
        let mut sheet = empty();
        let sizes = vec![Size(4 << 10)];
        let bench =
            Together { isa: Isa::X86_64, threads: 2, loops: 1, sizes, ops: vec![Op::Fault] };
        for (key, value) in
            bench.keys(Op::Fault, Size(4 << 10)).into_iter().zip([100.0, 110.0, 1.8, 1.81, 1.99])
        {
            sheet.put(key, vec![value]);
        }
        bench.goals(&mut sheet);
        assert_eq!(
            sheet.run.findings,
            ["PF of 4K: 100 ns in one thread; 2 threads are 1.80 times as fast by the clock, \
              1.81 times by their CPU time (goal: at least 1.9; MISSED); 1.99 times where they \
              have nothing in common."]
        );
    }
}
