//! Comparing the two sides.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use quire::check;
use quire::space::{Area, Space};
use quire_arch::Arch;
use quire_units::{PageSpan, Pfn, PhysAddr, Vpn};

use super::Beside;
use crate::system::HostedMm;

/// What new pages are allowed to be there after a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum New {
    /// None.
    None,
    /// All of these, and no others.
    Exactly(PageSpan),
    /// All of these, and others: what lies around them in their folios.
    Around(PageSpan),
    /// Some.
    Some,
}

impl<A: Arch> Beside<'_, '_, '_, A> {
    /// The pages that are resident, with their frames.
    pub(super) fn resident(&self, at: usize) -> Result<BTreeMap<u64, Pfn>, String> {
        let mut pages = BTreeMap::new();
        let told = check::leaves(self.mm, &self.lives[at].space, |leaf| {
            for page in 0..leaf.pages.count() {
                pages.insert(leaf.pages.start.add(page).get(), leaf.frame.add(page));
            }
        });
        told.map(|()| pages).map_err(|violation| violation.to_string())
    }

    /// Compares which pages are resident, and takes new ones into the model: they must be zero,
    /// and are marked.
    pub(super) fn settle(&mut self, at: usize, new: New) -> Result<(), String> {
        let real = self.resident(at)?;
        let model = &self.lives[at].model;
        for (page, frame) in &model.resident {
            let now = real.get(page);
            ensure(now == Some(frame), "the same frame", (Vpn::new(*page), frame, now))?;
        }
        let all = match new {
            New::Exactly(span) | New::Around(span) => span.start.get()..span.end.get(),
            New::None | New::Some => 0..0,
        };
        if let Some(page) = all.clone().find(|page| !real.contains_key(page)) {
            return Err(format!("{} should be resident ({new:?})", Vpn::new(page)));
        }
        for (&page, &frame) in real.iter().filter(|(page, _)| !model.resident.contains_key(page)) {
            let allowed = match new {
                New::None => false,
                New::Exactly(_) => all.contains(&page),
                New::Around(_) | New::Some => true,
            };
            ensure(allowed, "no new page here", (Vpn::new(page), new))?;
            let found = self.marks(frame).map(|mark| self.machine.ram().read_word(mark));
            ensure(found == [Some(0); 3], "a zeroed page", (Vpn::new(page), frame, found))?;
            let [_, middle, last] = self.marks(frame);
            self.machine.ram().write_word(middle, mark(frame));
            self.machine.ram().write_word(last, mark(frame));
        }
        self.lives[at].model.resident = real;
        Ok(())
    }

    /// The words of a frame that are looked at: the program's, and two where marks are left.
    fn marks(&self, frame: Pfn) -> [PhysAddr; 3] {
        let start = frame.addr(A::PAGE_SHIFT).get();
        [0, (1 << A::PAGE_SHIFT) / 2, (1 << A::PAGE_SHIFT) - 8].map(|at| PhysAddr::new(start + at))
    }

    /// Compares areas and memory, and calls in all walkers.
    pub(super) fn agree(&self, at: usize) -> Result<(), String> {
        let live = &self.lives[at];
        let areas = areas_of(self.mm, &live.space);
        let wanted = live.model.areas.areas();
        ensure(areas == wanted, "equal areas", (areas, wanted))?;
        for live in &self.lives {
            for (&page, &frame) in &live.model.resident {
                let word = live.model.words.get(&page).copied().unwrap_or(0);
                let wanted = [word, mark(frame), mark(frame)].map(Some);
                let found = self.marks(frame).map(|mark| self.machine.ram().read_word(mark));
                ensure(found == wanted, "what was left there", (Vpn::new(page), found, wanted))?;
            }
        }
        self.walk()
    }

    pub(super) fn walk(&self) -> Result<(), String> {
        let spaces: Vec<_> = self.lives.iter().map(|live| &live.space).collect();
        let totals = check::system(self.mm, &spaces).map_err(|violation| violation.to_string())?;
        let mapped: usize = self.lives.iter().map(|live| live.model.resident.len()).sum();
        ensure(totals.held == 0, "no frame lost", totals)?;
        ensure(totals.pinned == 0 && totals.mapped == mapped as u64, "no others", totals)?;
        let all = self.lives.iter().flat_map(|live| live.model.resident.values());
        let distinct: BTreeSet<_> = all.collect();
        ensure(distinct.len() == mapped, "each frame mapped once", (distinct.len(), mapped))?;
        self.machine.verdict().map_err(|violation| violation.to_string())
    }
}

/// What is left in a frame, so that it shows when it is cleared under a program's hands, or given
/// to the next without being cleared.
fn mark(frame: Pfn) -> u64 {
    frame.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

pub(super) fn areas_of<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Vec<Area> {
    let mut areas = Vec::new();
    mm.folio_map(space, |map| areas.push(map.area));
    areas
}

pub(super) fn ensure(holds: bool, what: &str, evidence: impl Debug) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("expected {what}: {evidence:?}")) }
}
