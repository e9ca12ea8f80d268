//! The cells, the figures that they become, and the goals.

use anyhow::{Context, Result};
use clap::Args;
use quire::limits::GROUP_ORDER;
use quire_units::Order;

use super::ledger::{Ledger, percentile};
use super::life::live;
use super::plan::{Plan, Policy};
use super::process::GIANT;
use crate::bench::driver::Bench;
use crate::bench::options::{Common, Filter};
use crate::bench::scene::backed_ram;
use crate::bench::sheet::{Bound, Key, Place, Sheet};
use crate::host::{Host, memory};
use crate::plot::{Curve, Plot};
use crate::record::Case;
use crate::refused::Refused;
use crate::size::Size;

const USUAL: [u32; 5] = [50, 70, 80, 90, 95];
const RAM: u64 = 1 << 30;
/// The RAM that may be named, and the unit of it.
const LEAST: u64 = 128 << 20;
const MOST: u64 = 256 << 30;
const UNIT: u64 = 2 << 20;
/// RAM from which on programs want 1G, too: eight such folios.
const GIANTS_FROM: u64 = 8 << 30;
/// Memory of the host beside the machine's RAM: slots, programs' records.
const BESIDE: u64 = 64 << 20;
/// A page, as a power of two of bytes.
const SHIFT: u32 = 12;
const MIDDLE: Order = Order::new(4);
/// The days whose faults are judged: the last week.
const JUDGED: usize = 7;

/// How full the memory is whose figures are judged, per cent, and the kernel's share of it.
const GOAL_AT: [u32; 2] = [80, 5];
const HAD_AHEAD: Bound = Bound::AtLeast(95.0);
const HAD_ON_DEMAND: Bound = Bound::AtLeast(85.0);
const HAD_MIDDLE: Bound = Bound::AtLeast(99.0);
const OF_BOUND: Bound = Bound::AtMost(1.3);
const BUDGET_NS: Bound = Bound::AtMost(1e6);

const HAD: (&str, &str) = ("had of wanted", "per cent");
const WANTED: (&str, &str) = ("wanted", "count");
const MADE: (&str, &str) = ("blocks gained", "count");
const MOVED: (&str, &str) = ("moved per block", "pages");
const COPIED: (&str, &str) = ("copied per block", "bytes");
const RATIO: (&str, &str) = ("of bound", "ratio");
const LARGE: [(&str, &str); 2] = [("large p50", "ns"), ("large p99", "ns")];
const COMPACTING: [(&str, &str); 2] = [("compacting p50", "ns"), ("compacting p99", "ns")];

/// Options of `bench age`.
#[derive(Args, Debug)]
pub(crate) struct AgeArgs {
    /// How full the memory is, per cent, from 10 to 97
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values_t = USUAL,
        value_parser = clap::value_parser!(u32).range(10..=97))]
    occupancy: Vec<u32>,
    /// The share of all frames that the kernel takes and that cannot move, per cent
    #[arg(long, default_value_t = GOAL_AT[1],
        value_parser = clap::value_parser!(u32).range(0..=40))]
    unmovable: u32,
    /// The length of the life
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// The seed of the first life; each further loop lives another
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The RAM of the machine, a multiple of 2M
    #[arg(long, default_value_t = Size(RAM))]
    memory: Size,
    /// Only these variants: nothing, grouping, on-demand, background
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    variants: Vec<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) struct Age {
    args: Settings,
    policies: Vec<Policy>,
    /// Each policy's lives at each occupancy: the first of them, for the curves.
    curves: Vec<(u32, Policy, Order, Curve)>,
}

/// The settings of all lives.
struct Settings {
    occupancy: Vec<u32>,
    unmovable: u32,
    days: u32,
    seed: u64,
    lives: u32,
    bytes: u64,
    wanted: Vec<Order>,
}

/// The size of a folio of `order`.
fn size(order: Order) -> Size {
    Size(order.pages() << SHIFT)
}

/// The figures at one occupancy about folios of `order`.
pub(super) fn case(occupied: u32, order: Order) -> Case {
    Case::new("life", Some(size(order))).with(&format!("{occupied} % full"))
}

fn key(occupied: u32, policy: Policy, order: Order, metric: (&str, &'static str)) -> Key {
    Key::new(&case(occupied, order), policy.name(), metric)
}

/// The figures of one life, about folios of one size.
pub(super) fn figures(ledger: &Ledger, order: Order) -> Vec<((&'static str, &'static str), f64)> {
    let last = ledger.last(JUDGED);
    let mut found = vec![(WANTED, last.wanted[order.index()] as f64)];
    found.extend(last.share(order).map(|share| (HAD, share)));
    if order != GROUP_ORDER {
        return found;
    }
    let blocks = ledger.episodes.iter().filter(|it| it.order == GROUP_ORDER);
    let (made, moved) = blocks.fold((0, 0), |(made, moved), it| (made + it.made, moved + it.moved));
    if made > 0 {
        let each = moved as f64 / made as f64;
        let copied = each * f64::from(1_u32 << SHIFT);
        found.extend([(MADE, made as f64), (MOVED, each), (COPIED, copied)]);
    }
    found.extend(percentile(&ledger.ratios(), 50.0).map(|ratio| (RATIO, ratio)));
    for (metrics, times) in [(LARGE, &ledger.large), (COMPACTING, &ledger.compacting)] {
        for (metric, part) in metrics.into_iter().zip([50.0, 99.0]) {
            found.extend(percentile(times, part).map(|ns| (metric, ns)));
        }
    }
    found
}

impl Age {
    /// Lives all lives of one policy at one occupancy.
    fn cell(&mut self, occupied: u32, policy: Policy, sheet: &mut Sheet) -> Result<()> {
        let mut ram = backed_ram(self.args.bytes)?;
        let mut values: Vec<(Key, Vec<f64>)> = Vec::new();
        for at in 0..self.args.lives {
            let plan = Plan {
                policy,
                bytes: self.args.bytes,
                occupied,
                unmovable: self.args.unmovable,
                days: self.args.days,
                seed: self.args.seed.wrapping_add(at.into()),
                wanted: self.args.wanted.clone(),
            };
            let ledger = live(&plan, &mut ram)
                .with_context(|| format!("{}, {occupied} % full", policy.name()))?;
            for &order in &self.args.wanted {
                for (metric, value) in figures(&ledger, order) {
                    let key = key(occupied, policy, order, metric);
                    match values.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, all)) => all.push(value),
                        None => values.push((key, vec![value])),
                    }
                }
                if at == 0 {
                    self.curves.push((occupied, policy, order, curve(&ledger, policy, order)));
                }
            }
        }
        values.into_iter().for_each(|(key, values)| sheet.put(key, values));
        Ok(())
    }

    /// Judges one figure.
    fn judge(
        &self,
        sheet: &mut Sheet,
        policy: Policy,
        about: (Order, (&str, &'static str)),
        goal: Bound,
    ) {
        let (order, metric) = about;
        let key = key(GOAL_AT[0], policy, order, metric);
        let Some(value) = sheet.median(&key) else { return };
        let shown = crate::table::value(key.unit, value);
        sheet.finding(format!(
            "{} at {} % full, {}: {} {shown} ({}).",
            size(order),
            GOAL_AT[0],
            policy.name(),
            metric.0,
            goal.judge(value)
        ));
    }
}

/// The share of each day.
fn curve(ledger: &Ledger, policy: Policy, order: Order) -> Curve {
    let days = ledger.days.iter().zip(1_u32..);
    let points = days.filter_map(|(day, number)| Some((f64::from(number), day.share(order)?)));
    Curve { name: policy.name().to_owned(), points: points.collect() }
}

impl Bench for Age {
    type Args = AgeArgs;

    fn titles(_: &AgeArgs) -> [&'static str; 3] {
        [
            "age",
            "Large folios over a machine's life",
            "The share of wanted large folios that faults get while programs come and go, and what \
             it costs to keep them available.",
        ]
    }

    fn new(args: &AgeArgs, host: &Host, sheet: &mut Sheet) -> Result<Self> {
        let bytes = args.memory.bytes();
        if !(LEAST..=MOST).contains(&bytes) || !bytes.is_multiple_of(UNIT) {
            let [least, most, unit] = [LEAST, MOST, UNIT].map(Size);
            return Err(Refused(format!(
                "--memory is a multiple of {unit} from {least} to {most}"
            ))
            .into());
        }
        memory::require(
            host,
            &format!("a machine with {}", args.memory),
            bytes + bytes / 64 + BESIDE,
        )?;
        let names = Policy::ALL.map(|policy| policy.name().to_owned());
        let filter = Filter::new(&args.variants, &names)?;
        let mut wanted = vec![MIDDLE, GROUP_ORDER];
        if bytes >= GIANTS_FROM {
            wanted.push(GIANT);
        } else {
            let (giant, from) = (size(GIANT), Size(GIANTS_FROM));
            sheet.skip(format!(
                "{giant} folios are wanted on machines of {from} or more; left out."
            ));
        }
        let mut occupancy = args.occupancy.clone();
        occupancy.sort_unstable();
        occupancy.dedup();
        Ok(Age {
            args: Settings {
                occupancy,
                unmovable: args.unmovable,
                days: args.days,
                seed: args.seed,
                lives: args.common.loops.unwrap_or(1),
                bytes,
                wanted,
            },
            policies: Policy::ALL.into_iter().filter(|policy| filter.has(policy.name())).collect(),
            curves: Vec::new(),
        })
    }

    fn measure(&mut self, _: &Host, sheet: &mut Sheet) -> Result<()> {
        for occupied in self.args.occupancy.clone() {
            for policy in self.policies.clone() {
                self.cell(occupied, policy, sheet)?;
            }
        }
        Ok(())
    }

    fn goals(&self, sheet: &mut Sheet) {
        if self.args.unmovable != GOAL_AT[1] {
            return;
        }
        self.judge(sheet, Policy::Background, (GROUP_ORDER, HAD), HAD_AHEAD);
        self.judge(sheet, Policy::OnDemand, (GROUP_ORDER, HAD), HAD_ON_DEMAND);
        for policy in [Policy::OnDemand, Policy::Background] {
            self.judge(sheet, policy, (MIDDLE, HAD), HAD_MIDDLE);
            self.judge(sheet, policy, (GROUP_ORDER, RATIO), OF_BOUND);
        }
        self.judge(sheet, Policy::OnDemand, (GROUP_ORDER, COMPACTING[1]), BUDGET_NS);
    }

    fn words(&self, sheet: &mut Sheet) {
        sheet.words(
            include_str!("words.txt"),
            &[
                ("memory", Size(self.args.bytes).to_string()),
                ("days", self.args.days.to_string()),
                ("unmovable", self.args.unmovable.to_string()),
                ("keep", Policy::KEEP.to_string()),
                ("lives", self.args.lives.to_string()),
            ],
        );
    }

    fn place(&self, key: &Key) -> Place {
        let size = key.case.size.unwrap_or(Size(0));
        let table = match key.metric.as_str() {
            "had of wanted" => {
                format!("{size} folios: per cent of the wanted ones that faults had, last week")
            }
            "wanted" => format!("{size} folios: how many faults wanted one, last week"),
            "blocks gained" => "2M blocks that compaction made".to_owned(),
            "moved per block" => "pages moved for each 2M block gained".to_owned(),
            "copied per block" => "bytes copied for each 2M block gained".to_owned(),
            "of bound" => {
                "pages moved, by the fewest that any mover could have (median of compactions)"
                    .to_owned()
            }
            _ => "CPU time of faults that want a large folio (hosted model)".to_owned(),
        };
        let row = match key.metric.split_once(' ') {
            Some((which @ ("large" | "compacting"), part)) => {
                format!("{}, {which} {part}", key.variant)
            }
            _ => key.variant.clone(),
        };
        let column = key.case.notes.first().cloned().unwrap_or_default();
        let number = column.split(' ').next().and_then(|number| number.parse().ok());
        Place { table, row, column: (number.unwrap_or_default(), column) }
    }

    fn plots(&self, _: &Sheet) -> Vec<Plot> {
        let mut plots = Vec::new();
        for &occupied in &self.args.occupancy {
            for &order in &self.args.wanted {
                let these =
                    self.curves.iter().filter(|(at, _, of, _)| (*at, *of) == (occupied, order));
                let curves = these.map(|(.., curve)| curve.clone()).collect();
                let caption = format!("{} folios at {occupied} % full", size(order));
                plots.push(Plot::curves(&caption, ["day", "per cent had"], curves));
            }
        }
        plots
    }
}
