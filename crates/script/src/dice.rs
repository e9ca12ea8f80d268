//! Small random numbers that are the same for the same seed on every host.

/// Xorshift64*, seeded by splitmix so that seeds which differ by one bit share nothing.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The state 0 would stay 0.
        Self((z ^ z >> 31) | 1)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `sides`; 0 where there are none.
    #[inline]
    pub fn roll(&mut self, sides: u64) -> u64 {
        // The high half of a product: no division, and no low bits, which are the weaker ones.
        ((u128::from(self.word()) * u128::from(sides)) >> 64) as u64
    }

    /// True once in `rolls` on average; never where that is 0.
    #[inline]
    pub fn once_in(&mut self, rolls: u64) -> bool {
        rolls != 0 && self.roll(rolls) == 0
    }

    /// One of `all`.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::Dice;

    #[test]
    fn dice_follow_their_seed() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            (0..8).map(|_| dice.roll(1000)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
        assert_ne!(rolls(0), rolls(1));
    }

    #[test]
    fn rolls_stay_below_their_sides_and_reach_each() {
        let mut dice = Dice::new(3);
        let mut seen = [0; 6];
        (0..600).for_each(|_| seen[dice.roll(6) as usize] += 1);
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
        assert_eq!(dice.roll(0), 0);
        assert!(!dice.once_in(0));
    }
}
