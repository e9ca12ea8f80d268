//! Which settings are tried, which are kept, and which is chosen.

use std::collections::HashSet;

use anyhow::{Context, Result};

use super::linux::{Outcome, Setting, Word, replay};
use super::memory::Memory;
use super::options::Weigh;
use crate::tape::{Advice, Event, Tape};
use crate::threads;

/// Orders of 16K, 64K and 2M.
pub(super) const SMALL: u8 = 2;
const MIDDLE: u8 = 4;
pub(super) const BLOCK: u8 = 9;

/// A setting with its prediction.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tried {
    pub(super) setting: Setting,
    /// Page faults, with those of the recording that the model does not explain.
    pub(super) faults: u64,
    /// Bytes of the largest process at its peak.
    pub(super) peak: u64,
    pub(super) out: Outcome,
}

impl Tried {
    /// Entries of the first TLB that translate all touched pages.
    pub(super) fn entries(&self) -> u64 {
        self.out.reach.entries[0]
    }

    /// Pages that leave for the swap device, and that come back.
    pub(super) fn moved(&self) -> u64 {
        self.out.counts.out + self.out.counts.back
    }

    /// Faults, each page that moves counted as one.
    pub(super) fn work(&self) -> u64 {
        self.faults + self.moved()
    }

    /// The quantities of which less is better.
    fn goods(&self) -> [u64; 4] {
        [self.faults, self.peak, self.out.reach.entries.iter().sum(), self.moved()]
    }

    /// Whether it is at least as good as `other` in all respects, and better in one.
    fn beats(&self, other: &Tried) -> bool {
        let [one, other] = [self, other].map(Tried::goods);
        one != other && one.iter().zip(&other).all(|(one, other)| one <= other)
    }
}

/// All predictions of a search, in the order in which settings are tried: without large folios, and
/// as the host is now, come first.
pub(super) struct Search {
    pub(super) tried: Vec<Tried>,
    pub(super) now: Setting,
    /// How long the replays took, and the number of touches that they replayed.
    pub(super) seconds: f64,
    pub(super) touches: u64,
    /// Faults and bytes at the peak of the first recording that the model does not explain.
    pub(super) known: [i64; 2],
}

impl Search {
    /// Replays all `tapes`, of which there is at least one, under each sensible setting. Of several
    /// tapes, the medians count.
    pub(super) fn new(tapes: &[Tape], now: Setting, memory: Memory) -> Result<Search> {
        let start = std::time::Instant::now();
        let settings = settings(now, tapes.iter().any(advised));
        // The kernel's own counts are those of a run without a bound.
        let free = Memory { limit: None, ..memory };
        let never: Vec<Outcome> =
            tapes.iter().map(|tape| replay(tape, &Setting::never(), free)).collect();
        let half = settings.len().div_ceil(2);
        let one = |setting: &Setting| {
            let all = tapes.iter().zip(&never);
            let all = all.map(|(tape, never)| {
                predicted(tape, never, *setting, replay(tape, setting, memory))
            });
            middle(all.collect())
        };
        let some = |part: &[Setting]| part.iter().map(one).collect::<Result<Vec<Tried>>>();
        let tried = threads::all(settings.chunks(half).map(|part| move || some(part)))?;
        let tried: Vec<Tried> = tried.into_iter().flatten().collect();
        let one: u64 = never.iter().map(|out| out.touches).sum();
        let touches = one * (tried.len() as u64 + 1);
        let known = known(&tapes[0], &never[0]);
        Ok(Search { tried, now, seconds: start.elapsed().as_secs_f64(), touches, known })
    }

    /// The prediction for one setting that was tried.
    pub(super) fn of(&self, setting: Setting) -> Option<&Tried> {
        self.tried.iter().find(|it| it.setting == setting)
    }

    /// Without large folios.
    pub(super) fn never(&self) -> &Tried {
        &self.tried[0]
    }

    /// Those that no other beats, and the host's own, by falling faults. Of those with equal
    /// figures the first stays.
    pub(super) fn kept(&self) -> Vec<&Tried> {
        let beaten = |it: &Tried| self.tried.iter().any(|other| other.beats(it));
        let own = |it: &Tried| it.setting == self.now || it.setting == self.never().setting;
        let mut seen = HashSet::new();
        let mut kept: Vec<&Tried> = self
            .tried
            .iter()
            .filter(|it| own(it) || (!beaten(it) && seen.insert(it.goods())))
            .collect();
        kept.sort_by_key(|it| std::cmp::Reverse(it.faults));
        kept
    }

    /// The setting to choose by `weigh`, of those whose peak is at most `most` bytes; `None` where
    /// there is none.
    pub(super) fn choice(&self, weigh: Weigh, most: Option<u64>) -> Option<&Tried> {
        let fits = |it: &&Tried| most.is_none_or(|most| it.memory_bytes() <= most);
        let able: Vec<&Tried> = self.kept().into_iter().filter(fits).collect();
        let least = able.iter().map(|it| it.peak).min()?;
        let within = |share: u64| {
            let bound = least + least / share;
            able.iter().filter(move |it| it.peak <= bound).copied()
        };
        match weigh {
            Weigh::Faults => within(10).min_by_key(|it| (it.work(), it.peak)),
            Weigh::Memory => within(200).min_by_key(|it| (it.work(), it.peak)),
            Weigh::Tlb => within(4).min_by_key(|it| (it.entries(), it.work())),
        }
    }
}

impl Tried {
    /// Bytes of the largest process, or of the private memory of all of them, if that is more.
    fn memory_bytes(&self) -> u64 {
        self.peak.max(self.out.memory * 4096)
    }
}

/// The one in the middle by faults, with the middle of the peaks.
fn middle(mut all: Vec<Tried>) -> Result<Tried> {
    let mut peaks: Vec<u64> = all.iter().map(|it| it.peak).collect();
    peaks.sort_unstable();
    all.sort_by_key(|it| it.faults);
    let at = all.len() / 2;
    let peak = *peaks.get(at).context("a recording is missing")?;
    Ok(Tried { peak, ..all.swap_remove(at) })
}

/// Faults and the peak: the model's, moved by its known error without large folios.
fn predicted(tape: &Tape, never: &Outcome, setting: Setting, out: Outcome) -> Tried {
    let [faults, peak] = known(tape, never);
    let faults = out.counts.faults().saturating_add_signed(faults);
    let peak = (out.peak * tape.page).saturating_add_signed(peak);
    Tried { setting, faults, peak, out }
}

/// The faults, and the bytes at the peak, that the kernel counted beyond the model's without large
/// folios; 0 where the kernel's counts are not known.
fn known(tape: &Tape, never: &Outcome) -> [i64; 2] {
    let beyond =
        |counted: u64, model: u64| if counted == 0 { 0 } else { counted as i64 - model as i64 };
    [beyond(tape.counted, never.counts.faults()), beyond(tape.peak, never.peak * tape.page)]
}

/// Whether the program asks for large folios somewhere.
fn advised(tape: &Tape) -> bool {
    tape.events().any(|event| {
        matches!(event, Event::Advise(_, Advice::Huge))
            || matches!(event, Event::Map(area) if area.huge == Some(true))
    })
}

/// The settings that are worth trying: each size alone, and all sizes up to one, from 16K and from
/// 64K on. Sizes for advised areas only are worth it where the program gives advice.
fn settings(now: Setting, advised: bool) -> Vec<Setting> {
    let mut all = vec![Setting::never(), now];
    all.extend(single());
    if advised {
        all.extend((SMALL..=BLOCK).map(|order| Setting::never().with(order, Word::Madvise)));
    }
    for most in MIDDLE..=BLOCK {
        let ladder = |setting: Setting, order| setting.with(order, Word::Always);
        all.push((SMALL..=most).fold(Setting::never(), ladder));
        let from_middle = (MIDDLE..=most).fold(Setting::never(), ladder);
        all.push(from_middle);
        if advised {
            all.push(from_middle.with(BLOCK, Word::Madvise));
        }
    }
    let mut seen = HashSet::new();
    all.retain(|setting| seen.insert(*setting));
    all
}

/// Each size alone.
pub(super) fn single() -> impl Iterator<Item = Setting> {
    (SMALL..=BLOCK).map(|order| Setting::never().with(order, Word::Always))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Access, Area, Span, Writer};

    /// A process that writes each `step`th page of 4 MiB.
    fn tape(step: usize) -> Tape {
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        writer.push(Event::Map(Area::anon(Span::of(1024, 1024))));
        writer.push(Event::Begin);
        for page in (1024..2048).step_by(step) {
            writer.push(Event::Touch { page, access: Access::Write });
        }
        Tape { page: 4096, body: writer.finish(), ..Tape::default() }
    }

    fn search(step: usize) -> Search {
        Search::new(&[tape(step)], Setting::never(), Memory::new(0.0)).unwrap()
    }

    fn faults(setting: Setting) -> u64 {
        replay(&tape(1), &setting, Memory::new(0.0)).counts.faults()
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
    fn f1_each_weight_chooses_a_setting_that_none_beats() {
        for weigh in [Weigh::Faults, Weigh::Memory, Weigh::Tlb] {
            let dense = search(1);
            assert_eq!(dense.choice(weigh, None).map(|it| it.faults), Some(2), "{weigh:?}");
            // Each 64th page: more than pages wastes memory, and 2M uses all of it.
            let sparse = search(64);
            let best = sparse.choice(weigh, None).unwrap();
            assert!(best.setting == Setting::never() && best.faults == 16, "{weigh:?}");
        }
    }

    #[test]
    fn f1_a_bound_of_memory_leaves_out_what_needs_more() {
        let dense = search(1);
        assert!(dense.choice(Weigh::Faults, Some(4 << 20)).is_some());
        assert!(dense.choice(Weigh::Faults, Some(4095 << 10)).is_none());
        assert!(search(64).choice(Weigh::Tlb, Some(64 << 10)).is_some());
    }

    #[test]
    fn f1_settings_for_advice_are_tried_where_there_is_advice() {
        let never = Setting::never();
        let madvise =
            |all: Vec<Setting>| all.iter().filter(|it| it.sizes.contains(&Word::Madvise)).count();
        assert_eq!(madvise(settings(never, false)), 0);
        assert!(madvise(settings(never, true)) > 8 && settings(never, true).len() <= 36);
    }
}
