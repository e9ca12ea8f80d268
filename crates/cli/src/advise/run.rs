//! The command: tries settings, and prints those that are not dominated.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use comfy_table::{Table, presets};

use super::linux::{Memory, Outcome, Setting, Word, replay};
use crate::host::Host;
use crate::host::thp;
use crate::tape::{self, Tape};

/// Options of `advise`.
#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    /// A recording of all memory, made by `quire record --memory`
    #[arg(long, value_name = "FILE")]
    recording: PathBuf,
    /// The share of attempts that find no free block of 2M, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    fragmented: f64,
}

/// Orders of 16K, 64K and 2M.
const SMALL: u8 = 2;
const MIDDLE: u8 = 4;
const BLOCK: u8 = 9;

/// A setting with its prediction.
struct Tried {
    setting: Setting,
    /// Page faults, with those of the recording that the model does not explain.
    faults: u64,
    /// Pages of the largest process.
    peak: u64,
    out: Outcome,
}

/// Predicts, and says which setting to choose.
pub(crate) fn run(args: &AdviseArgs, host: &Host) -> Result<()> {
    let tape = tape::load(&args.recording)?;
    let memory = Memory::new(args.fragmented);
    let now = Setting::of_switches(&thp::switches(host), tape.page);
    let never = replay(&tape, &Setting::never(), memory);
    let try_it = |setting: &Setting| {
        let out = replay(&tape, setting, memory);
        let (faults, peak) = predicted(&tape, &never, &out);
        Tried { setting: *setting, faults, peak, out }
    };
    let tried: Vec<Tried> = settings(now).iter().map(try_it).collect();
    let page = page(&tape, &tried, now);
    std::io::stdout().write_all(page.as_bytes())?;
    Ok(())
}

/// Faults and the peak: the model's, moved by its known error without large folios.
fn predicted(tape: &Tape, never: &Outcome, out: &Outcome) -> (u64, u64) {
    let moved = |value: u64, known: u64, model: u64| match known {
        0 => value,
        _ => (value + known).saturating_sub(model),
    };
    let faults = moved(out.counts.faults(), tape.counted, never.counts.faults());
    (faults, moved(out.peak, tape.peak / tape.page, never.peak))
}

/// The settings that are worth trying.
fn settings(now: Setting) -> Vec<Setting> {
    let mut all = vec![Setting::never(), now];
    for word in [Word::Always, Word::Madvise] {
        all.extend((SMALL..=BLOCK).map(|order| Setting::never().with(order, word)));
    }
    for most in MIDDLE..=BLOCK {
        let ladder = |setting: Setting, order| setting.with(order, Word::Always);
        all.push((SMALL..=most).fold(Setting::never(), ladder));
        let from_middle = (MIDDLE..=most).fold(Setting::never(), ladder);
        all.push(from_middle);
        all.push(from_middle.with(BLOCK, Word::Madvise));
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|setting| seen.insert(*setting));
    all
}

/// Whether `one` is at least as good as `other` in all respects, and better in one.
fn beats(one: &Tried, other: &Tried) -> bool {
    let [one, other] = [one, other].map(|tried| {
        let walks: u64 = tried.out.reach.entries.iter().sum();
        [tried.faults, tried.peak, walks]
    });
    one != other && one.iter().zip(&other).all(|(one, other)| one <= other)
}

fn page(tape: &Tape, tried: &[Tried], now: Setting) -> String {
    let mut kept: Vec<&Tried> = tried
        .iter()
        .filter(|it| !tried.iter().any(|other| beats(other, it)) || it.setting == now)
        .collect();
    kept.sort_by_key(|it| it.faults);
    kept.dedup_by_key(|it| (it.faults, it.peak, it.out.reach.entries));
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let head = ["setting", "faults", "peak KiB", "waste KiB", "cleared KiB", "tables KiB", "TLB"];
    table.set_header(head);
    let kib = |pages: u64| (pages * tape.page / 1024).to_string();
    for it in &kept {
        let mark = if it.setting == now { " (now)" } else { "" };
        table.add_row([
            format!("{}{mark}", it.setting),
            it.faults.to_string(),
            kib(it.peak),
            kib(it.out.waste),
            kib(it.out.counts.cleared),
            kib(it.out.tables),
            it.out.reach.entries[0].to_string(),
        ]);
    }
    let mut page = format!("{table}\n");
    if let Some(best) = choice(&kept) {
        let lines = best.setting.switches(tape.page);
        let _ = writeln!(page, "Fewest faults for at most a tenth more memory: {}.", best.setting);
        for (bytes, word) in lines.sizes {
            let kib = bytes / 1024;
            let file = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled");
            let _ = writeln!(page, "  echo {word} > {file}");
        }
    }
    for limit in &tape.limits {
        let _ = writeln!(page, "{limit}");
    }
    page
}

/// The setting with the fewest faults of those that need at most a tenth more memory than the
/// one that needs the least.
fn choice<'t>(kept: &[&'t Tried]) -> Option<&'t Tried> {
    let least = kept.iter().map(|it| it.peak).min()?;
    let fits = |it: &&&'t Tried| it.peak <= least + least / 10;
    kept.iter().filter(fits).min_by_key(|it| it.faults).copied()
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "a share is a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Access, Area, Event, Span, Writer};

    /// A process that writes each page of 4 MiB.
    fn tape() -> Tape {
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        writer.push(Event::Map(Area::anon(Span::of(1024, 1024))));
        writer.push(Event::Begin);
        for page in 1024..2048 {
            writer.push(Event::Touch { page, access: Access::Write });
        }
        Tape { page: 4096, body: writer.finish(), ..Tape::default() }
    }

    fn faults(setting: Setting) -> u64 {
        replay(&tape(), &setting, Memory::new(0.0)).counts.faults()
    }

    #[test]
    fn f1_a_dense_area_takes_one_fault_for_each_folio() {
        assert_eq!(faults(Setting::never()), 1024);
        for order in SMALL..=BLOCK {
            assert_eq!(faults(Setting::never().with(order, Word::Always)), 1024 >> order);
            assert_eq!(faults(Setting::never().with(order, Word::Madvise)), 1024);
        }
    }

    #[test]
    fn f1_the_advice_is_a_setting_that_none_beats() {
        let never = replay(&tape(), &Setting::never(), Memory::new(0.0));
        let tried: Vec<Tried> = settings(Setting::never())
            .into_iter()
            .map(|setting| {
                let out = replay(&tape(), &setting, Memory::new(0.0));
                let (faults, peak) = predicted(&tape(), &never, &out);
                Tried { setting, faults, peak, out }
            })
            .collect();
        let kept: Vec<&Tried> = tried.iter().collect();
        assert_eq!(choice(&kept).map(|it| it.faults), Some(2));
        assert!(page(&tape(), &tried, Setting::never()).contains("hugepages-2048kB/enabled"));
    }
}
