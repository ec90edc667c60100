//! Contenders, which are measured in rounds, and the median over rounds.

use crate::error::BenchError;
use crate::stats::meter::{Quota, Round};

/// Something to be measured against others.
pub trait Contender {
    fn name(&self) -> &'static str;
    /// Runs one round. What was set up before the first round is kept.
    fn round(&mut self, quota: Quota) -> Result<Round, BenchError>;

    /// What its sides had the device do so far; empty for one that has none.
    fn spent(&self) -> Vec<Spent> {
        Vec::new()
    }
}

/// What one side had the device do for each round trip, on average, warm-up included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spent {
    pub name: &'static str,
    /// `client` or `server`.
    pub side: &'static str,
    pub round_trips: u64,
    /// Posts to the send queue.
    pub doorbells: f64,
    pub sends: f64,
    pub completions: f64,
}

impl Spent {
    /// So much over so many round trips: doorbells, Sends, completions.
    pub fn new(name: &'static str, side: &'static str, spent: [u64; 3], round_trips: u64) -> Spent {
        let [doorbells, sends, completions] =
            spent.map(|count| count as f64 / round_trips.max(1) as f64);
        Spent { name, side, round_trips, doorbells, sends, completions }
    }
}

/// The middle of the values; between the two in the middle if their number is even; 0 of none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    median_of(&values)
}

pub fn median_of(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert_eq!(median([5.0].into_iter()), 5.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
