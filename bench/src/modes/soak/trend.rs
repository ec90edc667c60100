//! Trends: the change of a figure over time, by the slopes of all pairs of its samples.
//!
//! The median of these slopes (Theil and Sen) does not move when a quarter of the samples are wild,
//! as tails of latency are. Its interval comes from the same slopes, by their ranks (Kendall).

use crate::stats::median_of;

/// How much a figure changes from the first sample to the last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// What the figure is at the first sample, by the line.
    pub start: f64,
    pub change: f64,
    /// The change is at least this, with 95 % confidence.
    pub low: f64,
    /// The change is at most this, with 95 % confidence.
    pub high: f64,
}

impl Trend {
    /// The trend of samples at rising times. `None` of fewer than `SAMPLES_MIN`.
    pub fn of(samples: &[(f64, f64)]) -> Option<Trend> {
        let (first, last) = (samples.first()?.0, samples.last()?.0);
        if samples.len() < SAMPLES_MIN || last <= first {
            return None;
        }
        let mut slopes = Vec::with_capacity(samples.len() * (samples.len() - 1) / 2);
        for (index, (at, value)) in samples.iter().enumerate() {
            let later = samples[index + 1..].iter().filter(|(then, _)| then > at);
            slopes.extend(later.map(|(then, other)| (other - value) / (then - at)));
        }
        slopes.sort_by(f64::total_cmp);
        let (time, slope) = (last - first, median_of(&slopes));
        let (low, high) = interval(&slopes, samples.len());
        let mut starts: Vec<f64> =
            samples.iter().map(|(at, value)| value - slope * (at - first)).collect();
        starts.sort_by(f64::total_cmp);
        let start = median_of(&starts);
        Some(Trend { start, change: slope * time, low: low * time, high: high * time })
    }

    /// Whether it rises for certain, and by more than so much.
    pub fn rises_by(&self, least: f64) -> bool {
        self.low > 0.0 && self.change > least
    }

    /// The change as a share of what it was at the start.
    pub fn share(&self) -> f64 {
        if self.start > 0.0 { self.change / self.start } else { 0.0 }
    }
}

/// The slopes between which the true one lies with 95 % confidence.
fn interval(slopes: &[f64], samples: usize) -> (f64, f64) {
    let (n, pairs) = (samples as f64, slopes.len() as f64);
    let spread = Z_95 * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let low = ((pairs - spread) / 2.0).floor().max(0.0) as usize;
    let high = ((pairs + spread) / 2.0).ceil().min(pairs - 1.0) as usize;
    (slopes[low], slopes[high])
}

/// Fewer samples than this have no interval worth its name.
pub const SAMPLES_MIN: usize = 8;
/// The quantile of the normal distribution for 95 % on both sides.
const Z_95: f64 = 1.96;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Dice;

    fn samples(count: usize, value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..count).map(|at| (at as f64, value(at as f64))).collect()
    }

    #[test]
    fn a_line_is_found_exactly() {
        let trend = Trend::of(&samples(101, |at| 5.0 + 0.5 * at)).expect("enough samples");
        assert!((trend.change - 50.0).abs() < 1e-9 && (trend.start - 5.0).abs() < 1e-9);
        assert!((trend.low - 50.0).abs() < 1e-9 && (trend.high - 50.0).abs() < 1e-9);
        assert!(trend.rises_by(49.0) && !trend.rises_by(51.0));
        assert!((trend.share() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn what_stays_does_not_rise() {
        let trend = Trend::of(&samples(100, |_| 7.0)).expect("enough samples");
        assert_eq!((trend.change, trend.low, trend.high), (0.0, 0.0, 0.0));
        assert!(!trend.rises_by(0.0));
    }

    #[test]
    fn a_fifth_of_wild_samples_does_not_move_it() {
        let wild = |at: f64| if at % 5.0 == 0.0 { 1e6 * at } else { 10.0 + at };
        let trend = Trend::of(&samples(100, wild)).expect("enough samples");
        assert!((50.0..200.0).contains(&trend.change), "{trend:?}");
    }

    #[test]
    fn noise_has_an_interval_with_nothing_in_it() {
        let mut rising = 0;
        for seed in 0..100 {
            let mut dice = Dice::new(seed);
            let noise = samples(60, |_| 0.0).into_iter();
            let noise: Vec<(f64, f64)> = noise.map(|(at, _)| (at, dice.share())).collect();
            let trend = Trend::of(&noise).expect("enough samples");
            assert!(trend.low <= trend.change && trend.change <= trend.high);
            rising += usize::from(trend.rises_by(0.0));
        }
        // One in forty by chance.
        assert!(rising <= 8, "{rising} of 100");
    }

    #[test]
    fn a_slow_leak_of_whole_steps_is_found() {
        let steps = Trend::of(&samples(200, |at| (at / 60.0).floor())).expect("enough samples");
        assert!(steps.rises_by(1.0), "{steps:?}");
    }

    #[test]
    fn few_samples_and_no_time_have_no_trend() {
        assert_eq!(Trend::of(&[]), None);
        assert_eq!(Trend::of(&samples(SAMPLES_MIN - 1, |at| at)), None);
        assert!(Trend::of(&samples(SAMPLES_MIN, |at| at)).is_some());
        assert_eq!(Trend::of(&[(1.0, 2.0); 20]), None);
    }
}
