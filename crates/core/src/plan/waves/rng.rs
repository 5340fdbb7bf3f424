//! Seeded randomness: the same seed gives the same choices.

/// `SplitMix64`: Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014. Eight bytes of state, no bad seeds, and plenty for breaking ties. Not for secrets.
#[derive(Debug, Clone)]
pub(super) struct SearchRng {
    state: u64,
}

impl SearchRng {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`; 0 when `end` is 0. The bias of the multiplication (below `end` in 2^32)
    /// does not matter to a search.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::SearchRng;

    #[test]
    fn first_numbers_are_those_published_for_seed_1234567() {
        let mut rng = SearchRng::new(1_234_567);
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below() {
        let mut rng = SearchRng::new(7);
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert_eq!(rng.below(0), 0);
    }
}
