//! A distribution of latencies: all samples, three digits, exact extremes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// A distribution of times in nanoseconds.
///
/// Every sample is counted once and none is trimmed. Values are kept to three significant digits,
/// the extremes and the sum exactly. In JSON the values are an HdrHistogram, V2, compressed, base64.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Kept", try_from = "Kept")]
pub struct Latency {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Latency {
    /// An empty distribution. Allocates all it will ever need.
    pub fn new() -> Latency {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS)
            .expect("the bounds are constants that the histogram accepts");
        Latency { histogram, min_ns: u64::MAX, max_ns: 0, sum_ns: 0 }
    }

    pub fn of(samples: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::new();
        samples.into_iter().for_each(|ns| latency.record(ns));
        latency
    }

    /// Writes all of its memory once, while it is empty: no sample will be the first on its page.
    pub fn touch(&mut self) {
        debug_assert_eq!(self.count(), 0, "samples would be lost");
        self.histogram.reset();
    }

    /// Counts one sample. Does not allocate.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
    }

    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("both histograms have the same bounds");
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The shortest sample, exactly; 0 without samples.
    pub fn min_ns(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min_ns }
    }

    /// The smallest value that at least the share `quantile` (0 to 1) of all samples does not
    /// exceed, to three digits.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns)
    }

    /// The median, interpolated between the values the clock can show.
    ///
    /// A clock that ticks every 10 ns shows a time of 134 ns as 130 or 140, and a median that only
    /// knows these two is a coin toss. Samples of one value are taken as spread evenly from
    /// half-way to the value below to half-way to the value above. Ratios are made of this median.
    pub fn median_ns(&self) -> f64 {
        let half = self.count() as f64 / 2.0;
        let mut below = 0.0;
        let mut previous: Option<f64> = None;
        let mut values = self.histogram.iter_recorded().peekable();
        while let Some(step) = values.next() {
            let value = self.middle_ns(step.value_iterated_to());
            let count = step.count_since_last_iteration() as f64;
            if below + count < half {
                below += count;
                previous = Some(value);
                continue;
            }
            let next = values.peek().map(|next| self.middle_ns(next.value_iterated_to()));
            let low = previous.map_or(value, |previous| f64::midpoint(previous, value));
            let high = next.map_or(value, |next| f64::midpoint(value, next));
            return low + (high - low) * (half - below) / count;
        }
        0.0
    }

    /// The longest sample, exactly; 0 without samples.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The standard deviation, to three digits; 0 without samples.
    pub fn stdev_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.histogram.stdev() }
    }

    /// The values themselves, to three digits, in nanoseconds.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// The values as an HdrHistogram in its own form: V2, compressed, in base64.
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes);
        written.expect("writing to memory does not fail");
        BASE64.encode(bytes)
    }

    /// The arithmetic mean, exactly; 0 without samples.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// The middle of the values that the histogram does not distinguish from `ns`.
    fn middle_ns(&self, ns: u64) -> f64 {
        let low = self.histogram.lowest_equivalent(ns) as f64;
        let high = self.histogram.highest_equivalent(ns) as f64;
        f64::midpoint(low, high)
    }
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

#[derive(Serialize, Deserialize)]
struct Kept {
    samples: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u64,
    hdr: String,
}

impl From<Latency> for Kept {
    fn from(latency: Latency) -> Kept {
        Kept {
            samples: latency.count(),
            min_ns: latency.min_ns,
            max_ns: latency.max_ns,
            sum_ns: u64::try_from(latency.sum_ns).unwrap_or(u64::MAX),
            hdr: latency.to_base64(),
        }
    }
}

impl TryFrom<Kept> for Latency {
    type Error = String;

    fn try_from(kept: Kept) -> Result<Latency, String> {
        let bytes = BASE64.decode(&kept.hdr).map_err(|error| format!("hdr: {error}"))?;
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| format!("hdr: {error}"))?;
        let mut latency = Latency::new();
        latency.histogram.add(&read).map_err(|error| format!("hdr: {error}"))?;
        let Kept { samples, min_ns, max_ns, sum_ns, .. } = kept;
        if latency.count() != samples {
            return Err(format!("{} samples in hdr, not {samples}", latency.count()));
        }
        Ok(Latency { min_ns, max_ns, sum_ns: sum_ns.into(), ..latency })
    }
}

/// Longer samples are counted as this long; the maximum still shows them as they were.
const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: impl IntoIterator<Item = u64>) -> Latency {
        Latency::of(samples)
    }

    #[test]
    fn quantiles_of_one_to_a_thousand_are_known() {
        let latency = of(1..=1000);
        assert_eq!(latency.count(), 1000);
        assert_eq!(latency.quantile_ns(0.5), 500);
        assert_eq!(latency.quantile_ns(0.9), 900);
        assert_eq!(latency.quantile_ns(0.999), 999);
        assert_eq!(latency.quantile_ns(0.9999), 1000);
        assert!((latency.mean_ns() - 500.5).abs() < 1e-9);
    }

    #[test]
    fn the_maximum_is_exact_where_the_histogram_rounds() {
        let latency = of([100, 1_234_567_891]);
        assert_eq!(latency.max_ns(), 1_234_567_891);
        assert_eq!(latency.quantile_ns(1.0), 1_234_567_891);
        assert_eq!(latency.min_ns(), 100);
    }

    #[test]
    fn a_sample_beyond_the_bounds_is_still_counted() {
        let latency = of([1, LONGEST_NS * 2]);
        assert_eq!(latency.count(), 2);
        assert_eq!(latency.max_ns(), LONGEST_NS * 2);
    }

    #[test]
    fn values_keep_three_digits() {
        let latency = of([123_456]);
        let shown = latency.quantile_ns(0.5) as f64;
        assert!((shown / 123_456.0 - 1.0).abs() < 0.001, "{shown}");
    }

    #[test]
    fn merging_is_the_same_as_recording_everything_in_one() {
        let mut left = of(1..=500);
        left.merge(&of(501..=1000));
        assert_eq!(left, of(1..=1000));
        assert_eq!(left.min_ns(), 1);
    }

    #[test]
    fn the_median_of_a_coarse_clock_is_interpolated() {
        // A true time of 134 ns on a clock of 10 ns shows 130 in 60 % and 140 in 40 %.
        let coarse = of((0..1000).map(|i| if i % 10 < 6 { 130 } else { 140 }));
        let median = coarse.median_ns();
        assert_eq!(coarse.quantile_ns(0.5), 130);
        assert!((130.0..140.0).contains(&median), "{median}");
        let coarser = of((0..1000).map(|i| if i % 10 < 4 { 130 } else { 140 }));
        assert!(coarser.median_ns() > median);
    }

    #[test]
    fn the_median_of_equal_samples_is_that_sample() {
        assert!((of([130; 9]).median_ns() - 130.0).abs() < 1e-9);
    }

    #[test]
    fn an_empty_distribution_is_all_zeros() {
        let empty = Latency::new();
        assert_eq!(empty.median_ns(), 0.0);
        assert_eq!(empty.min_ns(), 0);
        assert_eq!(empty.mean_ns(), 0.0);
        assert_eq!(empty.quantile_ns(0.99), 0);
    }

    #[test]
    fn a_distribution_comes_back_from_json_as_it_was() {
        for latency in [of([]), of([7]), of((1..=100_000).map(|i| i * i)), of([1, LONGEST_NS * 2])]
        {
            let json = serde_json::to_string(&latency).expect("plain data");
            let back: Latency = serde_json::from_str(&json).expect("what was written");
            assert_eq!(back, latency);
        }
    }

    #[test]
    fn a_distribution_that_was_tampered_with_is_refused() {
        let json = serde_json::to_value(of([7, 8])).expect("plain data");
        for (key, wrong) in [("samples", 3.into()), ("hdr", "AAAA".into()), ("hdr", "?".into())] {
            let mut json = json.clone();
            json[key] = wrong;
            assert!(serde_json::from_value::<Latency>(json).is_err(), "{key}");
        }
    }
}
