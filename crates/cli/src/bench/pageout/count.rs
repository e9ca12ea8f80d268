//! A round that is not timed: every word that comes back is compared, and the library's work is
//! counted.

use anyhow::Result;
use quire::stats::{Event, Totals};
use quire_arch::Arch;

use super::cycle::{Device, Way};
use super::scene::Scene;
use crate::bench::sheet::Tally;

pub(super) const FOLIOS: &str = "folios";
pub(super) const FALLBACKS: &str = "folios without a run of slots";
pub(super) const WALKS: &str = "rmap walks";
pub(super) const ENTRIES: &str = "swap entries written";
pub(super) const FLUSHES: &str = "flushes";
pub(super) const INVALIDATIONS: &str = "invalidations";
pub(super) const UNFOLDS: &str = "contiguous blocks taken apart";
pub(super) const SPLITS: &str = "leaves split";
pub(super) const INDEX_FRAMES: &str = "frames taken for the index";
pub(super) const SLOT_FRAMES: &str = "frames taken for slots";
pub(super) const PAGES: &str = "pages";
pub(super) const WHOLE: &str = "pages in whole folios";

/// The library's counters while memory goes out.
const OUT: [(&str, Event); 8] = [
    (WALKS, Event::RmapWalks),
    (ENTRIES, Event::EntriesSwapped),
    (PAGES, Event::PagesSwapped),
    (FLUSHES, Event::Flush),
    (INVALIDATIONS, Event::Invalidations),
    (SPLITS, Event::LeafSplit),
    (UNFOLDS, Event::Unfold),
    ("breaks before a make", Event::Break),
];
/// Its counters while memory comes back.
const BACK: [(&str, Event); 6] = [
    (PAGES, Event::PagesSwappedIn),
    ("faults", Event::Fault),
    ("entries written", Event::EntriesMade),
    ("contiguous blocks written", Event::Fold),
    (FLUSHES, Event::Flush),
    (SPLITS, Event::LeafSplit),
];

/// The counts of a cycle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Did {
    /// While memory went out and was written.
    pub(super) out: Tally,
    /// While it came back.
    pub(super) back: Tally,
}

impl<A: Arch> Scene<'_, '_, '_, '_, A> {
    /// Runs one cycle over a device that copies. Fails unless the same content comes back, in
    /// folios of the same size that are mapped in the same way.
    pub(super) fn verified(&self, way: Way) -> Result<Did> {
        let stamp = 1 + way as u64;
        self.fill(stamp)?;
        let (before, free) = (self.mm.totals(), self.mm.phys().free_frames());
        self.out(way)?;
        let index_frames = free.saturating_sub(self.mm.phys().free_frames());
        self.write(Device::Copies)?;
        let gone = self.mm.totals();
        self.wipe_free();
        self.back(Device::Copies)?;
        let there = self.mm.totals();
        self.look(stamp)?;
        self.verify_backing()?;
        let order = self.order.index();
        let mut out = counted(&OUT, &before, &gone);
        out.push((FOLIOS, gone.swpout[order] - before.swpout[order]));
        out.push((FALLBACKS, sum(&gone.swpout_fallback) - sum(&before.swpout_fallback)));
        out.push((INDEX_FRAMES, index_frames));
        out.push((SLOT_FRAMES, self.slot_frames));
        let mut back = counted(&BACK, &gone, &there);
        let whole = there.swpin[order] - gone.swpin[order];
        back.push((FOLIOS, sum(&there.swpin) - sum(&gone.swpin)));
        back.push((WHOLE, whole << self.order.get()));
        Ok(Did { out, back })
    }
}

fn counted(events: &[(&'static str, Event)], before: &Totals, after: &Totals) -> Tally {
    let more = |event| after.event(event) - before.event(event);
    events.iter().map(|(name, event)| (*name, more(*event))).collect()
}

fn sum(orders: &[u64]) -> u64 {
    orders.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::super::bench::{BACKINGS, ISAS};
    use super::super::scene::{ram, with_scene};
    use quire::limits::LEAVE_MOST;

    use super::*;
    use crate::bench::sheet::count_of;
    use crate::isa::with_isa;

    const BYTES: u64 = 16 << 20;

    fn both<A: Arch>(scene: &Scene<'_, '_, '_, '_, A>) -> Result<Vec<Did>> {
        let free = scene.mm.phys().free_frames();
        let did = Way::ALL.into_iter().map(|way| scene.verified(way));
        let did = did.collect::<Result<Vec<_>>>()?;
        quire::check::system(scene.mm, &[&scene.space])?;
        // Empty nodes stay with the index, for the next time.
        let nodes = did.iter().map(|did| count_of(&did.out, INDEX_FRAMES)).sum::<u64>();
        assert_eq!(scene.mm.phys().free_frames() + nodes, free, "all others are back");
        Ok(did)
    }

    #[test]
    fn d7_every_backing_goes_out_and_comes_back_as_it_was_in_either_way() {
        let mut ram = ram(BYTES).unwrap();
        for (isa, backing) in ISAS.into_iter().flat_map(|isa| BACKINGS.map(|b| (isa, b))) {
            let place = (isa, backing, BYTES);
            let both = with_isa!(isa, A => with_scene::<A, _>(&mut ram, place, both)).unwrap();
            let folios = BYTES / backing.size.bytes();
            for Did { out, back } in &both {
                for (part, name, count) in [
                    (out, FOLIOS, folios),
                    (out, WALKS, folios),
                    (out, PAGES, BYTES >> 12),
                    (out, ENTRIES, BYTES / backing.entry_bytes(4096)),
                    (out, FALLBACKS, 0),
                    (out, SPLITS, 0),
                    (back, FOLIOS, folios),
                    (back, PAGES, BYTES >> 12),
                    (back, WHOLE, BYTES >> 12),
                ] {
                    assert_eq!(count_of(part, name), count, "{isa:?} {backing} {name}");
                }
            }
            let flushes = count_of(&both[0].out, FLUSHES);
            assert_eq!(
                flushes,
                folios.div_ceil(LEAVE_MOST as u64),
                "{isa:?} {backing}: one for a batch"
            );
        }
    }
}
