//! A model of the two levels of TLB that instruction fetches go through.
//!
//! An entry translates an aligned block: a leaf, a contiguous block, or pages that the CPU *joins*
//! because their frames lie as they do. The model is stylised after published figures (Arm's
//! Neoverse N1 technical reference manual; AMD's software optimisation guides for family 19h): it
//! has their numbers of entries and joined pages, replaces the least recently used, and leaves out
//! data accesses in a shared second level.

/// One level: a number of sets, each with a number of ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Level {
    sets: u64,
    ways: usize,
}

/// The TLB of some CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    /// The name in records.
    pub(crate) name: &'static str,
    /// The description for people.
    pub(crate) about: &'static str,
    first: Level,
    second: Level,
    /// Orders of 4 KiB pages that it joins, the largest first.
    pub(crate) joins: &'static [u8],
}

/// The geometries that figures are given for.
pub(crate) const ALL: [Geometry; 2] = [
    Geometry {
        name: "48+1280",
        about: "like Neoverse N1: 48 entries in one set, then 1280 in 5 ways; contiguous blocks of \
                64 KiB take one",
        first: Level { sets: 1, ways: 48 },
        second: Level { sets: 256, ways: 5 },
        joins: &[4],
    },
    Geometry {
        name: "64+2048",
        about: "like Zen: 64 entries in one set, then 2048 in 8 ways; aligned pages whose frames \
                are aligned alike are joined up to 32 KiB",
        first: Level { sets: 1, ways: 64 },
        second: Level { sets: 256, ways: 8 },
        joins: &[3, 2, 1],
    },
];

/// An aligned block that one entry translates: its number among blocks of its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) order: u8,
}

impl Block {
    /// The block of `order` that holds `page`.
    pub(crate) fn of(page: u64, order: u8) -> Block {
        Block { number: page >> order, order }
    }
}

/// Misses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Misses {
    /// In the first level.
    pub(crate) first: u64,
    /// In both: tables were walked.
    pub(crate) walks: u64,
}

/// A TLB with its entries.
pub(crate) struct Tlb {
    first: Cache,
    second: Cache,
    pub(crate) misses: Misses,
}

/// One level with its entries: in each set, the latest first.
struct Cache {
    level: Level,
    sets: Vec<Vec<Block>>,
}

impl Cache {
    fn new(level: Level) -> Cache {
        Cache { level, sets: vec![Vec::new(); level.sets as usize] }
    }

    /// Whether it has the block, which it has afterwards.
    fn touch(&mut self, block: Block) -> bool {
        let set = &mut self.sets[(block.number % self.level.sets) as usize];
        let found = set.iter().position(|held| *held == block);
        if let Some(at) = found {
            set.remove(at);
        }
        set.insert(0, block);
        set.truncate(self.level.ways);
        found.is_some()
    }
}

impl Tlb {
    /// An empty one.
    pub(crate) fn new(geometry: &Geometry) -> Tlb {
        let (first, second) = (Cache::new(geometry.first), Cache::new(geometry.second));
        Tlb { first, second, misses: Misses::default() }
    }

    /// An instruction is fetched that `block` translates.
    pub(crate) fn fetch(&mut self, block: Block) {
        if self.first.touch(block) {
            return;
        }
        self.misses.first += 1;
        if !self.second.touch(block) {
            self.misses.walks += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Geometry = Geometry {
        name: "",
        about: "",
        first: Level { sets: 1, ways: 2 },
        second: Level { sets: 2, ways: 2 },
        joins: &[4],
    };

    fn misses(pages: &[u64]) -> (u64, u64) {
        let mut tlb = Tlb::new(&SMALL);
        pages.iter().for_each(|page| tlb.fetch(Block::of(*page, 0)));
        (tlb.misses.first, tlb.misses.walks)
    }

    #[test]
    fn the_least_recently_used_is_forgotten_level_by_level() {
        assert_eq!(misses(&[1, 1, 1]), (1, 1));
        assert_eq!(misses(&[1, 2, 1, 2]), (2, 2));
        // 3 drives 1 out of the first level; the second, where 1 and 3 share a set, has both.
        assert_eq!(misses(&[1, 2, 3, 1]), (4, 3));
        // Three in one set of the second level, which has two ways.
        assert_eq!(misses(&[1, 3, 5, 1]), (4, 4));
        // A touch keeps an entry young.
        assert_eq!(misses(&[1, 2, 1, 3, 1]), (3, 3));
    }

    #[test]
    fn a_block_is_one_entry_and_blocks_of_two_sizes_are_two() {
        let mut tlb = Tlb::new(&SMALL);
        (16..32).for_each(|page| tlb.fetch(Block::of(page, 4)));
        assert_eq!(tlb.misses, Misses { first: 1, walks: 1 });
        tlb.fetch(Block::of(1, 0));
        assert_eq!(tlb.misses, Misses { first: 2, walks: 2 }, "number 1 of order 0 is another");
    }

    /// The same, with the time of each entry's last use instead of an order.
    fn model(level: Level, blocks: &[u64]) -> Vec<bool> {
        let mut held: Vec<(u64, usize)> = Vec::new();
        let mut hits = Vec::new();
        for (now, number) in blocks.iter().enumerate() {
            let set = number % level.sets;
            let hit = held.iter_mut().find(|(other, _)| other == number);
            hits.push(hit.is_some());
            match hit {
                Some((_, used)) => *used = now,
                None => held.push((*number, now)),
            }
            let own: Vec<_> = held.iter().filter(|(other, _)| other % level.sets == set).collect();
            if own.len() > level.ways {
                let oldest = **own.iter().min_by_key(|(_, used)| *used).unwrap();
                held.retain(|entry| *entry != oldest);
            }
        }
        hits
    }

    proptest! {
        #[test]
        fn a_level_hits_as_one_that_remembers_times(
            blocks in proptest::collection::vec(0_u64..40, 0..200),
            (sets, ways) in (1_u64..5, 1_usize..5),
        ) {
            let level = Level { sets, ways };
            let mut cache = Cache::new(level);
            let mut touch = |number: &u64| cache.touch(Block { number: *number, order: 0 });
            let hits: Vec<bool> = blocks.iter().map(&mut touch).collect();
            prop_assert_eq!(hits, model(level, &blocks));
        }
    }
}
