//! How many translations the touched pages of a process need, and how far a TLB reaches.

use super::linux::tables::{Body, PAGES, Table, Tables};
use crate::tlb::{ALL, Block, Geometry, Tlb};

/// The translations of a process's touched pages of private memory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reach {
    /// Touched pages.
    pub(crate) touched: u64,
    /// For each of [`ALL`]: entries that translate all of them.
    pub(crate) entries: [u64; ALL.len()],
    /// Walks of tables when all are used once more, after a first time, in the order of addresses.
    pub(crate) walks: [u64; ALL.len()],
}

/// The translations of all tables of a process.
pub(super) fn reach(tables: &mut Tables) -> Reach {
    let blocks = tables.blocks();
    let mut out = Reach::default();
    for (place, geometry) in ALL.iter().enumerate() {
        let mut all = Vec::new();
        for block in &blocks {
            if let Some(table) = tables.get(*block) {
                translations(table, *block, geometry, &mut all);
            }
        }
        out.entries[place] = all.len() as u64;
        let mut tlb = Tlb::new(geometry);
        all.iter().for_each(|block| tlb.fetch(*block));
        let first = tlb.misses.walks;
        all.iter().for_each(|block| tlb.fetch(*block));
        out.walks[place] = tlb.misses.walks - first;
    }
    for block in &blocks {
        let touched = tables.get(*block).map_or([0; PAGES as usize / 64], |table| table.touched);
        out.touched += touched.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
    }
    out
}

/// The blocks that translate the touched pages of a table, ascending.
fn translations(table: &Table, block: u64, geometry: &Geometry, into: &mut Vec<Block>) {
    let all = match &table.body {
        Body::Block(_) => {
            let touched = table.touched.iter().any(|word| *word != 0);
            into.extend(touched.then_some(Block { number: block, order: 9 }));
            return;
        }
        Body::Pages(all) => all,
    };
    let mut at = 0;
    while at < all.len() {
        let joined = geometry.joins.iter().map(|order| 1_usize << order).find(|count| {
            at.is_multiple_of(*count)
                && all[at].folio().is_some()
                && all[at..at + count].iter().all(|entry| entry == &all[at])
        });
        let count = joined.unwrap_or(1);
        if (at..at + count).any(|at| table.is_touched(at)) {
            let first = block * PAGES + at as u64;
            into.push(Block::of(first, count.trailing_zeros() as u8));
        }
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::super::linux::tables::Entry;
    use super::*;

    #[test]
    fn f1_pages_of_one_folio_share_a_translation_as_far_as_the_cpu_joins_them() {
        let mut tables = Tables::default();
        let table = tables.at(3);
        table.pages()[..16].fill(Entry::of(7, true));
        table.pages()[16] = Entry::of(8, true);
        (0..17).for_each(|at| table.touch(at));
        let mut block = Table::new(Body::Block(Entry::of(9, true)));
        block.touch(5);
        tables.put(4, block);
        let reach = reach(&mut tables);
        assert_eq!(reach.touched, 18);
        // Blocks of 64 KiB, and of 32 KiB, one page, and the block of 2 MiB.
        assert_eq!(reach.entries, [1 + 1 + 1, 2 + 1 + 1]);
        assert_eq!(reach.walks, [0, 0]);
    }
}
