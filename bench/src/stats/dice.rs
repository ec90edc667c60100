//! Random numbers with a seed: the same seed gives the same numbers on every machine.

/// A generator of pseudo-random numbers (SplitMix64). Not for secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The next number, all 64 bits of it evenly distributed.
    #[inline]
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..count`. The bias of a small count is one in 2^64 over `count`.
    #[inline]
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.roll()) * count as u128) >> 64) as usize
    }

    /// A share above 0, up to 1 and with it.
    #[inline]
    pub fn share(&mut self) -> f64 {
        ((self.roll() >> 11) + 1) as f64 * SHARE_STEP
    }

    /// A waiting time of a Poisson process: exponentially distributed around a mean.
    #[inline]
    pub fn wait(&mut self, mean: f64) -> f64 {
        -self.share().ln() * mean
    }
}

/// 2^-53: as many steps as a share keeps digits.
const SHARE_STEP: f64 = 1.0 / (1_u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_sequence() {
        // The first numbers of SplitMix64 from 1234567, as its reference implementation prints.
        let mut dice = Dice::new(1_234_567);
        let first = [dice.roll(), dice.roll(), dice.roll()];
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first, published);
    }

    #[test]
    fn every_one_of_a_count_is_reached_and_none_beyond() {
        let mut dice = Dice::new(0);
        let mut seen = [0u32; 7];
        (0..7000).for_each(|_| seen[dice.below(7)] += 1);
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_share_is_never_zero_and_at_most_one() {
        let mut dice = Dice::new(7);
        let shares: Vec<f64> = (0..100_000).map(|_| dice.share()).collect();
        assert!(shares.iter().all(|share| *share > 0.0 && *share <= 1.0));
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        // The mean of so many even shares strays by 0.0009.
        assert!((mean - 0.5).abs() < 0.004, "{mean}");
    }

    #[test]
    fn a_wait_is_finite_even_for_the_least_share() {
        assert!((-SHARE_STEP.ln()).is_finite());
        assert_eq!(-(1.0_f64.ln()), 0.0);
    }
}
