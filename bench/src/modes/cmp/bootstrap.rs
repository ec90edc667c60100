//! The confidence interval of a ratio, by bootstrap over its rounds.
//!
//! The measured rounds are drawn again with replacement, many times, and each draw gives a ratio.
//! The interval contains 95 % of these ratios. It assumes nothing about the shape of the noise, but
//! takes consecutive rounds as independent: a machine that was busy for half of a run makes the
//! interval wide, and one that was busy for all of it goes unnoticed.

use serde::Serialize;

use crate::stats::{Dice, median, median_of};

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Interval {
    /// The median of the rounds of one over the median of the rounds of the other.
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Whether the rounds of both sides belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Round by round in turns: neighbours met the same machine, and are drawn together.
    Paired,
    /// At different times: each side is drawn by itself.
    Unpaired,
}

impl Interval {
    /// The ratio of the medians of `of` and `to`, with its interval. `None` when a side has no
    /// round, or a figure that no ratio can be made of.
    ///
    /// The same seed gives the same interval. From fewer than [`ROUNDS_MIN`] rounds of either side
    /// it is narrower than 95 %.
    pub fn of_medians(of: &[f64], to: &[f64], pairing: Pairing, seed: u64) -> Option<Interval> {
        let usable = |figures: &[f64]| {
            !figures.is_empty() && figures.iter().all(|figure| figure.is_finite() && *figure > 0.0)
        };
        if !usable(of) || !usable(to) {
            return None;
        }
        let mut draw = Dice::new(seed);
        let mut drawn = Drawn::default();
        let mut ratios: Vec<f64> =
            (0..RESAMPLES).map(|_| drawn.ratio(&mut draw, of, to, pairing)).collect();
        ratios.sort_by(f64::total_cmp);
        Some(Interval {
            value: median(of.iter().copied()) / median(to.iter().copied()),
            low: quantile(&ratios, (1.0 - CONFIDENCE) / 2.0),
            high: quantile(&ratios, f64::midpoint(1.0, CONFIDENCE)),
        })
    }

    /// Whether this ratio is within the interval; if 1 is, no difference is seen.
    pub fn contains(&self, ratio: f64) -> bool {
        (self.low..=self.high).contains(&ratio)
    }
}

/// One draw of rounds, in memory that is used again for the next.
#[derive(Default)]
struct Drawn {
    of: Vec<f64>,
    to: Vec<f64>,
}

impl Drawn {
    fn ratio(&mut self, draw: &mut Dice, of: &[f64], to: &[f64], pairing: Pairing) -> f64 {
        self.of.clear();
        self.to.clear();
        match pairing {
            Pairing::Paired => {
                let count = of.len().min(to.len());
                for _ in 0..count {
                    let round = draw.below(count);
                    self.of.push(of[round]);
                    self.to.push(to[round]);
                }
            }
            Pairing::Unpaired => {
                self.of.extend((0..of.len()).map(|_| of[draw.below(of.len())]));
                self.to.extend((0..to.len()).map(|_| to[draw.below(to.len())]));
            }
        }
        self.of.sort_unstable_by(f64::total_cmp);
        self.to.sort_unstable_by(f64::total_cmp);
        median_of(&self.of) / median_of(&self.to)
    }
}

/// The value that the share `at` of sorted values lies below, interpolated.
fn quantile(sorted: &[f64], at: f64) -> f64 {
    let place = at * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * place.fract()
}

pub const RESAMPLES: usize = 4000;
/// How much of the ratios drawn lies in the interval.
pub const CONFIDENCE: f64 = 0.95;
/// Rounds of each side that an interval of 95 % needs: with fewer, the median lies outside of all
/// that was measured more than once in twenty times.
pub const ROUNDS_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise about 1: the sum of a few uniform numbers, as wide as requested.
    fn noisy(draw: &mut Dice, about: f64, width: f64) -> f64 {
        let sum: f64 = (0..4).map(|_| draw.below(1 << 32) as f64 / (1u64 << 32) as f64).sum();
        about * (1.0 + width * (sum / 4.0 - 0.5))
    }

    fn series(draw: &mut Dice, rounds: usize, about: f64, width: f64) -> Vec<f64> {
        (0..rounds).map(|_| noisy(draw, about, width)).collect()
    }

    fn interval(of: &[f64], to: &[f64], pairing: Pairing) -> Interval {
        Interval::of_medians(of, to, pairing, 1).expect("the figures are good")
    }

    #[test]
    fn a_series_over_itself_is_exactly_one_when_paired() {
        let rounds = series(&mut Dice::new(5), 10, 400.0, 0.3);
        let same = interval(&rounds, &rounds, Pairing::Paired);
        assert_eq!(same, Interval { value: 1.0, low: 1.0, high: 1.0 });
    }

    #[test]
    fn a_series_over_itself_contains_one_when_unpaired() {
        let rounds = series(&mut Dice::new(5), 10, 400.0, 0.3);
        let same = interval(&rounds, &rounds, Pairing::Unpaired);
        assert!(same.value == 1.0 && same.contains(1.0), "{same:?}");
        assert!(same.low < 1.0 && same.high > 1.0, "{same:?}");
    }

    #[test]
    fn a_tenth_more_is_found_under_small_noise() {
        for seed in 0..20 {
            let mut draw = Dice::new(seed);
            let of = series(&mut draw, 10, 440.0, 0.05);
            let to = series(&mut draw, 10, 400.0, 0.05);
            for pairing in [Pairing::Paired, Pairing::Unpaired] {
                let found = interval(&of, &to, pairing);
                assert!(found.contains(found.value), "{found:?}");
                assert!(found.low > 1.05 && found.high < 1.15, "seed {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn a_tenth_more_is_not_claimed_under_great_noise() {
        let mut draw = Dice::new(3);
        let of = series(&mut draw, 10, 440.0, 2.0);
        let to = series(&mut draw, 10, 400.0, 2.0);
        let found = interval(&of, &to, Pairing::Unpaired);
        assert!(found.low <= 1.0 && found.high >= 1.0, "{found:?}");
    }

    #[test]
    fn a_machine_that_changes_widens_unpaired_intervals_only() {
        // Rounds that met a machine of three speeds; one side takes a tenth more at each of them.
        let mut draw = Dice::new(9);
        let to: Vec<f64> = (0..12)
            .map(|round| 400.0 * f64::from(1 + round % 3) * noisy(&mut draw, 1.0, 0.02))
            .collect();
        let of: Vec<f64> = to.iter().map(|ns| ns * 1.1).collect();
        let width = |found: Interval| found.high - found.low;
        let paired = interval(&of, &to, Pairing::Paired);
        let unpaired = interval(&of, &to, Pairing::Unpaired);
        assert!(width(paired) < 0.01 && paired.low > 1.09, "{paired:?}");
        assert!(width(unpaired) > 0.2 && unpaired.contains(1.0), "{unpaired:?}");
    }

    /// How often in a hundred the true ratio lies in the interval.
    fn coverage(rounds: usize, pairing: Pairing, shared: f64) -> f64 {
        const RUNS: usize = 200;
        let mut draw = Dice::new(2026);
        let mut covered = 0;
        for run in 0..RUNS {
            let (mut of, mut to) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let machine = noisy(&mut draw, 1.0, shared);
                of.push(machine * noisy(&mut draw, 1.3, 0.2));
                to.push(machine * noisy(&mut draw, 1.0, 0.2));
            }
            let found = Interval::of_medians(&of, &to, pairing, run as u64);
            covered += usize::from(found.expect("the figures are good").contains(1.3));
        }
        covered as f64 / RUNS as f64
    }

    #[test]
    fn the_interval_holds_the_true_ratio_about_as_often_as_it_says() {
        for (rounds, pairing) in
            [(10, Pairing::Paired), (20, Pairing::Paired), (10, Pairing::Unpaired)]
        {
            let share = coverage(rounds, pairing, 0.0);
            assert!((0.92..=0.985).contains(&share), "{rounds}, {pairing:?}: {share}");
        }
    }

    #[test]
    fn noise_that_both_sides_share_makes_the_interval_careful_and_not_bold() {
        for rounds in [10, 20] {
            let share = coverage(rounds, Pairing::Paired, 0.5);
            assert!(share >= 0.94, "{rounds}: {share}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_another_one_about_the_same() {
        let mut draw = Dice::new(8);
        let (of, to) = (series(&mut draw, 10, 3.0, 0.5), series(&mut draw, 10, 2.0, 0.5));
        let with = |seed| Interval::of_medians(&of, &to, Pairing::Paired, seed);
        assert_eq!(with(7), with(7));
        let [one, other] = [7, 8].map(|seed| with(seed).expect("the figures are good"));
        assert_ne!(one.low, other.low);
        assert!((one.low / other.low - 1.0).abs() < 0.03, "{one:?} {other:?}");
    }

    #[test]
    fn a_single_round_has_a_ratio_and_no_width() {
        let one = interval(&[3.0], &[2.0], Pairing::Unpaired);
        assert_eq!(one, Interval { value: 1.5, low: 1.5, high: 1.5 });
    }

    #[test]
    fn no_ratio_is_made_of_nothing_or_of_what_cannot_be_divided() {
        for (of, to) in
            [(&[][..], &[1.0][..]), (&[1.0], &[]), (&[1.0], &[0.0]), (&[f64::NAN], &[1.0])]
        {
            assert_eq!(Interval::of_medians(of, to, Pairing::Paired, 1), None, "{of:?} {to:?}");
        }
    }
}
