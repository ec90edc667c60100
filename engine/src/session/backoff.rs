//! How long to wait before the next attempt.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::clock::nanos;
use crate::scatter::scattered;

/// Delays that double, each with a random part, so that the clients of a server that returns do not
/// all come at one time.
#[derive(Debug)]
pub(super) struct Backoff {
    min: u64,
    max: u64,
    random: u64,
}

impl Backoff {
    /// From `min` to `max`.
    pub fn new(min: Duration, max: Duration, seed: u64) -> Backoff {
        let [min, max] = [min, max].map(nanos);
        Backoff { min: min.max(1), max: max.max(min).max(1), random: seed }
    }

    /// A number that no other session begins with.
    pub fn seed() -> u64 {
        RandomState::new().hash_one(0)
    }

    /// The delay after so many failed rounds, in nanoseconds: between a half and all of
    /// `min` · 2^`rounds`, and of `max` at most.
    pub fn delay(&mut self, rounds: u32) -> u64 {
        let whole = self.min.saturating_mul(1 << rounds.min(32)).min(self.max);
        self.random = self.random.wrapping_add(1);
        let part = u64::from(scattered(self.random));
        let half = whole / 2;
        half + ((u128::from(whole - half) * u128::from(part)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_most_and_vary() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(5), 3);
        for rounds in [0, 1, 5, 9, 40, u32::MAX] {
            let whole = 10_000_000_u64.saturating_mul(1 << rounds.min(32)).min(5_000_000_000);
            let delays: Vec<u64> = (0..100).map(|_| backoff.delay(rounds)).collect();
            let (least, most) =
                (delays.iter().min().expect("some"), delays.iter().max().expect("some"));
            assert!(*least >= whole / 2 && *most < whole, "{rounds}: {least} to {most}");
            assert!(most - least > whole / 4, "{rounds}: {least} to {most}");
        }
    }

    #[test]
    fn no_delay_is_nothing_even_if_it_is_configured_so() {
        let mut backoff = Backoff::new(Duration::ZERO, Duration::ZERO, 0);
        assert!((0..100).all(|rounds| backoff.delay(rounds) <= 1));
    }

    #[test]
    fn sessions_begin_with_different_numbers() {
        assert_ne!(Backoff::seed(), Backoff::seed());
    }
}
