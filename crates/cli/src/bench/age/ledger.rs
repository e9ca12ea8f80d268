//! The sums of a life: the folios that faults wanted and had, the moves, the times.

use quire::limits::{GROUP_ORDER, ORDERS};
use quire_units::Order;

/// One fault of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// The largest size that it could have had, and the one that it had.
    pub(super) wanted: Order,
    pub(super) had: Order,
    /// CPU time, with that of compaction, in nanoseconds.
    pub(super) ns: f64,
    /// Memory was compacted for it.
    pub(super) compacted: bool,
}

/// One compaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Episode {
    /// The size of its blocks.
    pub(super) order: Order,
    pub(super) made: u64,
    pub(super) moved: u64,
    /// The fewest pages that any mover could have moved for as many blocks, where that was
    /// computed.
    pub(super) bound: Option<u64>,
}

/// The sums of a day.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Day {
    /// Faults by the size that they wanted, and those of them that had it.
    pub(super) wanted: [u64; ORDERS],
    pub(super) had: [u64; ORDERS],
    pub(super) made: u64,
    pub(super) moved: u64,
}

impl Day {
    /// The share of faults that had the size they wanted, per cent; `None` without such faults.
    pub(super) fn share(&self, order: Order) -> Option<f64> {
        let [wanted, had] = [self.wanted, self.had].map(|of| of[order.index()] as f64);
        (wanted > 0.0).then(|| 100.0 * had / wanted)
    }

    pub(super) fn and(mut self, other: &Day) -> Day {
        for at in 0..ORDERS {
            self.wanted[at] += other.wanted[at];
            self.had[at] += other.had[at];
        }
        self.made += other.made;
        self.moved += other.moved;
        self
    }
}

/// All of it.
#[derive(Default, Debug)]
pub(super) struct Ledger {
    /// The sums of each day, the unfinished one last.
    pub(super) days: Vec<Day>,
    /// Times of all faults that wanted a large folio, and of those for which memory was compacted.
    pub(super) large: Vec<f64>,
    pub(super) compacting: Vec<f64>,
    pub(super) episodes: Vec<Episode>,
}

impl Ledger {
    pub(super) fn begin_day(&mut self) {
        self.days.push(Day::default());
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        if fault.wanted == Order::ZERO {
            return;
        }
        if let Some(day) = self.days.last_mut() {
            day.wanted[fault.wanted.index()] += 1;
            day.had[fault.wanted.index()] += u64::from(fault.had == fault.wanted);
            self.large.push(fault.ns);
            self.compacting.extend(fault.compacted.then_some(fault.ns));
        }
    }

    pub(super) fn episode(&mut self, episode: Episode) {
        if let Some(day) = self.days.last_mut() {
            day.made += if episode.order == GROUP_ORDER { episode.made } else { 0 };
            day.moved += episode.moved;
            self.episodes.push(episode);
        }
    }

    /// The sums of the last `days` days.
    pub(super) fn last(&self, days: usize) -> Day {
        let from = self.days.len().saturating_sub(days);
        self.days[from..].iter().fold(Day::default(), Day::and)
    }

    /// For each compaction that made a 2M block and was compared: the pages that moved, by those
    /// that had to.
    pub(super) fn ratios(&self) -> Vec<f64> {
        let blocks = self.episodes.iter().filter(|it| it.order == GROUP_ORDER && it.made > 0);
        let bounded = blocks.filter_map(|it| Some((it.moved, it.bound.filter(|&of| of > 0)?)));
        bounded.map(|(moved, bound)| moved as f64 / bound as f64).collect()
    }
}

/// The value that `part` of a hundred of `values` do not exceed; `None` without any.
pub(super) fn percentile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * part / 100.0).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}
