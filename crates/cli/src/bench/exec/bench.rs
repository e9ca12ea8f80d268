//! All recordings under all policies: the figures and the goals.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use quire_linux::text::Share;

use super::library::recordings;
use super::policy::Policy;
use super::replay::{Outcome, ram_bytes, replay};
use crate::bench::driver::Bench;
use crate::bench::options::{Filter, Format};
use crate::bench::sheet::{Bound, Key, Place, Sheet, verdict};
use crate::host::{Host, memory};
use crate::isa::Isa;
use crate::record::Case;
use crate::recording::Recording;
use crate::refused::Refused;
use crate::tlb;

/// The recordings' pages, and those of the formats they can be replayed in.
const PAGE_SHIFT: u32 = 12;
/// The share of touched text that shall be in foldable blocks of 64 KiB.
const SHARE: f64 = 0.80;
/// The bytes read and the faults, as multiples of those with read-around.
const BYTES: Bound = Bound::AtMost(1.25);
const FAULTS: Bound = Bound::AtMost(0.5);

/// Options of `bench exec`.
#[derive(Args, Debug)]
pub(crate) struct ExecArgs {
    /// Recordings made by `quire record` [default: five that come with the command]
    recordings: Vec<PathBuf>,
    /// The page-table format, with pages of 4K
    #[arg(long, value_enum, default_value_t = Isa::Arm4k)]
    isa: Isa,
    /// A table for people or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Only these variants: page-at-a-time, read-around, read-ahead, exec-64K, tiers-2M
    #[arg(long, value_delimiter = ',')]
    variants: Vec<String>,
}

pub(crate) struct Exec {
    isa: Isa,
    policies: Vec<Policy>,
    recordings: Vec<(String, Recording)>,
    /// For each recording, the outcome of each policy.
    outcomes: Vec<Vec<Outcome>>,
}

/// A figure: metric, unit and value.
type Figure = (String, &'static str, f64);

fn figures(outcome: &Outcome, page: u64) -> Vec<Figure> {
    let text = &outcome.text;
    let share = |part: u64| part as f64 / text.touched.max(1) as f64;
    let beyond = outcome.pages_read.saturating_sub(outcome.touched);
    let mut all = vec![
        ("touched text in foldable 64K blocks".to_owned(), "share", share(text.foldable)),
        ("touched text in folded blocks and leaves".to_owned(), "share", share(text.folded)),
        ("faults".to_owned(), "count", outcome.faults as f64),
        ("faults in text".to_owned(), "count", outcome.text_faults as f64),
        ("reads".to_owned(), "count", outcome.reads as f64),
        ("bytes read".to_owned(), "bytes", (outcome.pages_read * page) as f64),
        ("bytes read and not touched".to_owned(), "bytes", (beyond * page) as f64),
        ("bytes copied for writes".to_owned(), "bytes", (outcome.copied * page) as f64),
    ];
    for (geometry, [first, again]) in tlb::ALL.iter().zip(&text.misses) {
        for (misses, when) in [(first, "first touches"), (again, "all once more")] {
            let name = |what: &str| format!("iTLB {}, {when}: {what}", geometry.name);
            all.push((name("misses"), "count", misses.first as f64));
            all.push((name("walks"), "count", misses.walks as f64));
        }
    }
    all
}

/// The labels of `thpmaps` for text, with the place of their kind and size, and their bytes.
fn labels(share: &Share, page: u64) -> Vec<((usize, usize), String, f64)> {
    let mut all = vec![((0, 0), "text file".to_owned(), share.total)];
    let kinds = [(1, "aligned", &share.aligned), (2, "unaligned", &share.unaligned)];
    for (kind, word, sizes) in kinds {
        for (order, pages) in sizes.iter().enumerate().filter(|(_, pages)| **pages > 0) {
            let name = format!("text file-thp-{word}-{}kB", (page >> 10) << order);
            all.push(((kind, order), name, *pages));
        }
    }
    all.push(((3, 0), "text file-thp-partial".to_owned(), share.partial));
    all.push(((4, 0), "text file-cont-aligned-64kB".to_owned(), share.cont));
    all.push(((5, 0), "text file-by-blocks".to_owned(), share.blocks));
    all.into_iter().map(|(at, name, pages)| (at, name, (pages * page) as f64)).collect()
}

impl Exec {
    /// Adds the figures of a recording; labels of all policies stand in the order of their sizes.
    fn put(&self, name: &str, page: u64, outcomes: &[Outcome], sheet: &mut Sheet) {
        let case = Case::new(name, None).with(&self.isa.name());
        let mut last = Vec::new();
        for (policy, outcome) in self.policies.iter().zip(outcomes) {
            for (metric, unit, value) in figures(outcome, page) {
                sheet.put(Key::new(&case, policy.name(), (&metric, unit)), vec![value]);
            }
            let labels = labels(&outcome.text.folios.file, page).into_iter();
            last.extend(labels.map(|(at, metric, value)| (at, policy.name(), metric, value)));
        }
        last.sort_by_key(|(at, ..)| *at);
        for (_, policy, metric, value) in last {
            sheet.put(Key::new(&case, policy, (&metric, "bytes")), vec![value]);
        }
    }
}

/// Text that is read in preferred sizes beside read-around.
fn sentence(name: &str, policy: Policy, own: &Outcome, around: &Outcome) -> String {
    let ratio = |one: u64, other: u64| one as f64 / other.max(1) as f64;
    let share = |outcome: &Outcome| ratio(outcome.text.foldable, outcome.text.touched);
    let bytes = ratio(own.pages_read, around.pages_read);
    let faults = ratio(own.faults, around.faults);
    format!(
        "{name}, {}: {:.0} % of touched text in foldable 64K blocks, {:.0} % with {} (goal: at \
         least {:.0} %; {}); {bytes:.2} times the bytes ({}); {faults:.2} times the faults ({}), \
         {:.2} in text.",
        policy.name(),
        100.0 * share(own),
        100.0 * share(around),
        Policy::Around.name(),
        100.0 * SHARE,
        verdict(share(own) >= SHARE),
        BYTES.judge(bytes),
        FAULTS.judge(faults),
        ratio(own.text_faults, around.text_faults),
    )
}

impl Bench for Exec {
    type Args = ExecArgs;

    fn titles(_: &ExecArgs) -> [&'static str; 3] {
        [
            "exec",
            "Text",
            "The layout of real programs' text under different ways to read it: recorded first \
             touches are replayed on the hosted machine. All figures are counts.",
        ]
    }

    fn new(args: &ExecArgs, host: &Host, _: &mut Sheet) -> Result<Self> {
        let names = Policy::ALL.map(|policy| policy.name().to_owned());
        let filter = Filter::new(&args.variants, &names)?;
        if args.isa.page_shift() != PAGE_SHIFT {
            let why = format!("{} has other pages than the recordings, 4K", args.isa.name());
            return Err(Refused(why).into());
        }
        let recordings = recordings(&args.recordings)?;
        for (name, recording) in &recordings {
            if recording.page != 1 << PAGE_SHIFT {
                let why = format!("{name}: it was recorded in pages of {}", recording.page);
                return Err(Refused(why).into());
            }
            // Frames have metadata; their content is touched only where the program writes.
            memory::require(host, &format!("replaying {name}"), ram_bytes(recording) / 64)?;
        }
        let policies = Policy::ALL.into_iter().filter(|policy| filter.has(policy.name())).collect();
        Ok(Exec { isa: args.isa, policies, recordings, outcomes: Vec::new() })
    }

    fn measure(&mut self, _: &Host, sheet: &mut Sheet) -> Result<()> {
        for (name, recording) in &self.recordings {
            let replay = |&policy| {
                replay(recording, self.isa, policy).with_context(|| format!("replaying {name}"))
            };
            let outcomes = self.policies.iter().map(replay).collect::<Result<Vec<_>>>()?;
            let touched = outcomes.first().map_or((0, 0), |out| (out.touched, out.text.touched));
            let note = &recording.note;
            sheet.setting(format!(
                "{name}: {}, which {}; {} of {} touched pages are in segments, {} of them text.",
                recording.program,
                if note.is_empty() { "does something" } else { note },
                touched.0,
                recording.pages(),
                touched.1,
            ));
            self.put(name, recording.page, &outcomes, sheet);
            self.outcomes.push(outcomes);
        }
        Ok(())
    }

    fn goals(&self, sheet: &mut Sheet) {
        for ((name, _), outcomes) in self.recordings.iter().zip(&self.outcomes) {
            let of = |wanted: Policy| {
                outcomes.get(self.policies.iter().position(|policy| *policy == wanted)?)
            };
            let Some(around) = of(Policy::Around) else { continue };
            for policy in [Policy::Exec, Policy::Tiers] {
                if let Some(own) = of(policy) {
                    sheet.finding(sentence(name, policy, own, around));
                }
            }
        }
    }

    fn words(&self, sheet: &mut Sheet) {
        for geometry in tlb::ALL {
            sheet.setting(format!("iTLB {}: {}.", geometry.name, geometry.about));
        }
        sheet.words(include_str!("words.txt"), &[("isa", self.isa.name())]);
    }

    /// Figures down, policies across.
    fn place(&self, key: &Key) -> Place {
        let at = self.policies.iter().position(|policy| policy.name() == key.variant);
        let column = (at.unwrap_or(0) as u64, key.variant.clone());
        Place { table: format!("exec {}", key.case), row: key.metric.clone(), column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::exec::text::Look;
    use crate::bench::sheet::tests::empty;

    fn outcome(faults: u64, pages_read: u64, foldable: u64) -> Outcome {
        let text = Look { touched: 100, foldable, ..Look::default() };
        Outcome { faults, pages_read, text, ..Outcome::default() }
    }

    #[test]
    fn b6_goals_are_judged_beside_read_around() {
        let around = outcome(100, 1000, 10);
        let said = |own: &Outcome| sentence("x", Policy::Exec, own, &around);
        let good = said(&outcome(50, 1250, 80));
        assert_eq!(good.matches("; met").count(), 3, "{good}");
        assert!(good.contains("80 % of touched") && good.contains("10 % with read-around"));
        for bad in [outcome(51, 1250, 80), outcome(50, 1251, 80), outcome(50, 1250, 79)] {
            assert_eq!(said(&bad).matches("MISSED").count(), 1);
        }
    }

    #[test]
    fn b6_policies_stand_across_and_labels_in_the_order_of_their_sizes() {
        let policies = vec![Policy::Around, Policy::Exec];
        let (recordings, outcomes) = (Vec::new(), Vec::new());
        let exec = Exec { isa: Isa::Arm4k, policies, recordings, outcomes };
        let both = [(4, 16), (2, 4)].map(|(order, pages)| {
            let mut outcome = outcome(1, 1, 1);
            outcome.text.folios.file.aligned[order] = pages;
            outcome
        });
        let mut sheet = empty();
        exec.put("cc1", 4096, &both, &mut sheet);
        let run = sheet.finish(|key| exec.place(key), &[]);
        let [table] = &run.tables[..] else { panic!("one table") };
        assert_eq!(table.columns, ["read-around", "exec-64K"]);
        let at = |label: &str| table.rows.iter().position(|(name, _)| name == label).unwrap();
        let labels = [
            "faults",
            "text file",
            "text file-thp-aligned-16kB",
            "text file-thp-aligned-64kB",
            "text file-cont-aligned-64kB",
        ];
        assert!(labels.is_sorted_by_key(|label| at(label)), "{table:?}");
        assert_eq!(table.rows[at(labels[2])].1[0], None, "only one policy has it");
    }
}
