//! The price of copies by Linux's rules.

use anyhow::Result;

use super::stand::{Stood, run};
use crate::advise::layout::Layout;
use crate::advise::linux::{Setting, UPPER, Word, replay};
use crate::advise::memory::Memory;
use crate::advise::search::Search;
use crate::host::thp::Guard;

/// Nanoseconds of a fork on this host.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Constants {
    /// Of a process with little memory.
    base: f64,
    /// For each area with its table.
    area: f64,
    /// For each page of its own, each page of a large folio, and each block.
    page: f64,
    part: f64,
    block: f64,
}

/// Pages of the calibration: 64 MiB.
const REGION: u64 = 1 << 14;
/// Its areas, and its forks.
const AREAS: u64 = 256;
const FORKS: u32 = 15;

impl Constants {
    /// Measures them.
    fn measure(guard: &Guard, page: u64) -> Result<Constants> {
        let fork = |layout: &Layout, setting: Setting| {
            guard.put(&setting.switches(page))?;
            Ok::<f64, anyhow::Error>(run(layout, FORKS, 0)?.fork.median)
        };
        let never = Setting::never();
        let dense = Layout::dense(REGION);
        let base = fork(&Layout::dense(1), never)?;
        let area = fork(&Layout::scattered(AREAS), never)?;
        let pages = fork(&dense, never)?;
        let parts = fork(&dense, never.with(4, Word::Always))?;
        let blocks = fork(&dense, never.with(9, Word::Always))?;
        let each = |ns: f64, count: u64| ((ns - base) / count as f64).max(0.0);
        Ok(Constants {
            base,
            area: each(area, AREAS),
            page: each(pages, REGION),
            part: each(parts, REGION),
            block: each(blocks, REGION >> 9),
        })
    }
}

/// The prediction for copies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::advise) struct Clones {
    /// Bytes of each copy that no other process has.
    pub(in crate::advise) private: u64,
    /// Bytes of its tables of entries for pages.
    pub(in crate::advise) tables: u64,
    /// Faults of each copy.
    pub(in crate::advise) faults: u64,
    /// Nanoseconds of a fork, where the constants are known.
    pub(in crate::advise) fork: Option<f64>,
}

/// Copies under one setting.
pub(in crate::advise) struct Copies {
    pub(in crate::advise) setting: Setting,
    pub(in crate::advise) predicted: Clones,
    pub(in crate::advise) measured: Option<Stood>,
}

impl Copies {
    /// Predicts `copies` of the largest process of a search under each setting that is kept, and
    /// measures them where `measured` says so.
    pub(in crate::advise) fn new(
        search: &Search,
        page: u64,
        copies: (u32, u64),
        measured: bool,
        guard: Option<&Guard>,
    ) -> Result<Vec<Copies>> {
        let layout = &search.never().out.layout;
        let constants = guard.map(|guard| Constants::measure(guard, page)).transpose()?;
        let mut all = Vec::new();
        for it in search.kept() {
            let predicted = predict(layout, &it.setting, page, copies, constants.as_ref());
            let measured = match guard.filter(|_| measured) {
                Some(guard) => {
                    guard.put(&it.setting.switches(page))?;
                    Some(run(layout, copies.0, copies.1)?)
                }
                None => None,
            };
            all.push(Copies { setting: it.setting, predicted, measured });
        }
        Ok(all)
    }
}

/// Predicts `count` copies of `layout`, each of which writes each `every`th page.
fn predict(
    layout: &Layout,
    setting: &Setting,
    page: u64,
    (count, every): (u32, u64),
    constants: Option<&Constants>,
) -> Clones {
    let memory = Memory::new(0.0);
    let alone = replay(&layout.tape(page, 0, every), setting, memory);
    let all = replay(&layout.tape(page, count, every), setting, memory);
    let clones = u64::from(count.max(1));
    let folios = &alone.counts.folios;
    let fork = constants.map(|it| {
        let parts: u64 = (1..9).map(|order| folios[order] << order).sum();
        it.base
            + it.area * layout.areas.len() as f64
            + it.page * folios[0] as f64
            + it.part * parts as f64
            + it.block * folios[9] as f64
    });
    Clones {
        private: all.counts.copied / clones * page,
        tables: alone.tables.saturating_sub(UPPER) * page,
        faults: (all.counts.copies + all.counts.kept) / clones,
        fork,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_a_copy_has_the_pages_that_it_writes_for_itself() {
        let layout = Layout::dense(4096);
        for setting in [Setting::never(), Setting::never().with(9, Word::Always)] {
            let clones = predict(&layout, &setting, 4096, (5, 16), None);
            assert_eq!((clones.private, clones.faults, clones.fork), (256 << 12, 256, None));
        }
    }

    #[test]
    fn f1_the_time_of_a_fork_is_that_of_its_parts() {
        let constants = Constants { base: 100.0, area: 10.0, page: 2.0, part: 1.0, block: 7.0 };
        let fork = |setting: Setting| {
            predict(&Layout::dense(1024), &setting, 4096, (1, 16), Some(&constants)).fork
        };
        assert_eq!(fork(Setting::never()), Some(110.0 + 2048.0));
        assert_eq!(fork(Setting::never().with(4, Word::Always)), Some(110.0 + 1024.0));
        assert_eq!(fork(Setting::never().with(9, Word::Always)), Some(110.0 + 14.0));
    }
}
