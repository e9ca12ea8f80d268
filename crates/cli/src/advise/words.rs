//! Which setting to choose, why, and what it costs, in sentences.

use super::cold::Cold;
use super::options::Weigh;
use super::search::{Search, Tried};
use crate::host::cpu::rounded;

/// The least gain, in parts of a hundred, for which a setting is worth a change.
const WORTH: f64 = 2.0;

/// Whether the host's own setting is as good as `best`, near enough.
pub(super) fn is_now_best(search: &Search, best: &Tried, weigh: Weigh) -> bool {
    let Some(now) = search.of(search.now) else { return false };
    let figure = |it: &Tried| match weigh {
        Weigh::Faults => it.work(),
        Weigh::Memory => it.peak,
        Weigh::Tlb => it.entries(),
    };
    best.setting == now.setting || -change(figure(now), figure(best)) < WORTH
}

/// The setting to choose, and why.
pub(super) fn reasons(search: &Search, best: &Tried, weigh: Weigh) -> Vec<String> {
    let Some(now) = search.of(search.now) else { return Vec::new() };
    if is_now_best(search, best, weigh) {
        return vec![format!(
            "Leave the switches as they are ({}): no setting is better by {WORTH} % in {}.",
            now.setting,
            name(weigh)
        )];
    }
    let mut all = vec![format!(
        "Choose {}: {} page faults instead of {} ({:+.0} %) and {} translations instead of {}.",
        best.setting,
        best.faults,
        now.faults,
        change(now.faults, best.faults),
        best.entries(),
        now.entries()
    )];
    all.push(price(now, best));
    if now.moved() + best.moved() > 0 {
        all.push(format!(
            "To keep within its memory, {} pages leave and {} come back, instead of {} and {}.",
            best.out.counts.out, best.out.counts.back, now.out.counts.out, now.out.counts.back
        ));
    }
    all.extend(next(search, best));
    all
}

fn name(weigh: Weigh) -> &'static str {
    match weigh {
        Weigh::Faults => "page faults",
        Weigh::Memory => "memory",
        Weigh::Tlb => "translations",
    }
}

/// The price of `best`.
fn price(now: &Tried, best: &Tried) -> String {
    let cleared = |it: &Tried| it.out.counts.cleared;
    let clearing = change(cleared(now), cleared(best));
    let memory = change(now.peak, best.peak);
    if memory.abs() < 0.05 && clearing.abs() < 0.5 {
        return "It costs nothing: as many bytes are resident and cleared.".to_owned();
    }
    format!(
        "At its peak the program then has {} instead of {} ({memory:+.1} %), and the kernel clears \
         {clearing:+.0} % bytes.",
        rounded(best.peak),
        rounded(now.peak)
    )
}

/// The setting that more memory would buy.
fn next(search: &Search, best: &Tried) -> Option<String> {
    let more = search.kept().into_iter().filter(|it| it.faults < best.faults);
    let next = more.min_by_key(|it| it.peak)?;
    Some(format!(
        "With {next} it would be {faults} faults, for {memory:+.1} % memory.",
        next = next.setting,
        faults = next.faults,
        memory = change(best.peak, next.peak)
    ))
}

/// Nothing could leave, though memory was full.
pub(super) fn short(best: &Tried) -> Option<String> {
    (best.out.counts.short > 0).then(|| {
        "The memory is too little even so: nothing could leave any more, and Linux would end a \
         process."
            .to_owned()
    })
}

/// How much of the memory is not used, and what follows from it.
pub(super) fn idle(cold: &Cold, page: u64) -> String {
    let Cold { samples, share, used, lasting, once } = cold;
    let never = if *lasting == 0 { 0.0 } else { 100.0 * *once as f64 / *lasting as f64 };
    format!(
        "Between two samples {:.0} % of its private memory is not used (median of {samples}, {:.0} \
         to {:.0} %), and {never:.0} % of the pages that stay for two intervals are used in their \
         first only; {} is used in the busiest interval, and no more need stay in memory.",
        100.0 * share.median,
        100.0 * share.min,
        100.0 * share.max,
        rounded(used.max as u64 * page)
    )
}

/// From `from` to `to`, in per cent.
pub(super) fn change(from: u64, to: u64) -> f64 {
    if from == 0 { 0.0 } else { 100.0 * (to as f64 - from as f64) / from as f64 }
}
