//! Interleaved rounds: A B C, C B A, ... and the ratios between contenders.
//!
//! A time depends on what the machine was doing at that moment; a neighbour wakes up, the host
//! moves a virtual core. Contenders that take turns meet the same machine, and the order turns
//! round each time, so that neither always comes first. What is reported is the median over the
//! rounds of each round's own median, and the ratio of two of these.

use serde::Serialize;

use crate::error::BenchError;
use crate::stats::latency::Latency;
use crate::stats::meter::{Quota, Round};
use crate::stop;

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
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

#[derive(Debug, Clone)]
pub struct Series {
    pub name: &'static str,
    pub rounds: Vec<Round>,
}

impl Series {
    /// Every sample of every round.
    pub fn latency(&self) -> Latency {
        Latency::merged(self.rounds.iter().map(|round| &round.latency))
    }

    /// The median over the rounds of their median round trip, in nanoseconds.
    pub fn median_ns(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.latency.median_ns()))
    }

    /// The median over the rounds of their round trips per second.
    pub fn rate(&self) -> f64 {
        median(self.rounds.iter().map(Round::rate))
    }

    pub fn preempted(&self) -> u64 {
        self.rounds.iter().map(|round| round.preempted).sum()
    }

    pub fn completed(&self) -> u64 {
        self.rounds.iter().map(|round| round.completed).sum()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    pub of: &'static str,
    pub to: &'static str,
    /// Of which figure: `median` of round trips, or `rate`.
    pub figure: &'static str,
    /// The median of the rounds of one, over the median of the rounds of the other.
    pub value: f64,
    /// The median of the ratios of neighbouring rounds. Far from `value` when the machine
    /// changed during the run.
    pub paired: f64,
    pub low: f64,
    pub high: f64,
    /// What `of` takes more than `to`, in nanoseconds and per side: half the difference of the
    /// medians.
    pub added_per_side_ns: Option<f64>,
    #[serde(skip)]
    pub rounds: Vec<f64>,
    /// Round trips of both.
    #[serde(skip)]
    pub samples: u64,
}

impl Ratio {
    pub fn of_medians(of: &Series, to: &Series) -> Ratio {
        let added_per_side_ns = Some((of.median_ns() - to.median_ns()) / 2.0);
        let ratio = Ratio::new("median", of, to, |round| round.latency.median_ns());
        Ratio { added_per_side_ns, ..ratio }
    }

    pub fn of_rates(of: &Series, to: &Series) -> Ratio {
        Ratio::new("rate", of, to, Round::rate)
    }

    /// The ratio of a figure of every round, `of` over `to`.
    fn new(name: &'static str, of: &Series, to: &Series, figure: fn(&Round) -> f64) -> Ratio {
        let ratios: Vec<f64> =
            of.rounds.iter().zip(&to.rounds).map(|(of, to)| figure(of) / figure(to)).collect();
        Ratio {
            of: of.name,
            to: to.name,
            figure: name,
            added_per_side_ns: None,
            samples: of.completed() + to.completed(),
            value: median(of.rounds.iter().map(figure)) / median(to.rounds.iter().map(figure)),
            paired: median(ratios.iter().copied()),
            low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            high: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            rounds: ratios,
        }
    }
}

/// Runs `rounds` rounds of every contender, each round in the opposite order of the one before.
/// `tick` is given the number of rounds of single contenders done so far.
pub fn interleave<C: Contender>(
    contenders: &mut [C],
    rounds: u32,
    quota: Quota,
    tick: impl FnMut(u32),
) -> Result<Vec<Series>, BenchError> {
    let mut all: Vec<Series> = contenders
        .iter()
        .map(|contender| Series { name: contender.name(), rounds: Vec::new() })
        .collect();
    in_turns(rounds, contenders.len(), tick, |_, index| {
        all[index].rounds.push(contenders[index].round(quota)?);
        Ok(())
    })?;
    Ok(all)
}

/// Runs one of `count` contenders after the other, each round in the opposite order of the one
/// before, until a run is asked to end. `run` is given the round and the contender, `tick` the
/// number of rounds of single contenders done so far.
pub fn in_turns(
    rounds: u32,
    count: usize,
    mut tick: impl FnMut(u32),
    mut run: impl FnMut(u32, usize) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut done = 0;
    for round in 0..rounds {
        for turn in 0..count {
            // The first round is made in any case, shortened by the meters: no contender is left
            // without a figure.
            if round > 0 && stop::is_requested() {
                return Ok(());
            }
            run(round, if round.is_multiple_of(2) { turn } else { count - 1 - turn })?;
            done += 1;
            tick(done);
        }
    }
    Ok(())
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
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::stats::meter::End;

    struct Fixed {
        name: &'static str,
        times_ns: Vec<u64>,
        log: Rc<RefCell<Vec<&'static str>>>,
    }

    impl Contender for Fixed {
        fn name(&self) -> &'static str {
            self.name
        }

        fn round(&mut self, _quota: Quota) -> Result<Round, BenchError> {
            self.log.borrow_mut().push(self.name);
            let mut latency = Latency::new();
            latency.record(self.times_ns.remove(0));
            Ok(Round { latency, completed: 1, elapsed_ns: 10, preempted: 2 })
        }
    }

    fn run(times: &[(&'static str, &[u64])], rounds: u32) -> (Vec<Series>, Vec<&'static str>) {
        let log = Rc::new(RefCell::new(Vec::new()));
        let fixed = |(name, times_ns): &(&'static str, &[u64])| Fixed {
            name,
            times_ns: times_ns.to_vec(),
            log: Rc::clone(&log),
        };
        let mut contenders: Vec<Fixed> = times.iter().map(fixed).collect();
        let quota = Quota { warm_up: 0, end: End::Count(1) };
        let series = interleave(&mut contenders, rounds, quota, |_| {}).expect("none fails");
        drop(contenders);
        (series, Rc::try_unwrap(log).expect("the contenders are gone").into_inner())
    }

    #[test]
    fn rounds_turn_their_order_each_time() {
        let (_, log) = run(&[("a", &[1; 3]), ("b", &[1; 3]), ("c", &[1; 3])], 3);
        assert_eq!(log, ["a", "b", "c", "c", "b", "a", "a", "b", "c"]);
    }

    #[test]
    fn the_ratio_is_of_medians_and_one_bad_round_does_not_move_it() {
        let (series, _) = run(&[("a", &[100, 100, 100]), ("b", &[150, 900, 150])], 3);
        let ratio = Ratio::of_medians(&series[1], &series[0]);
        assert_eq!((ratio.value, ratio.paired), (1.5, 1.5));
        assert_eq!((ratio.low, ratio.high), (1.5, 9.0));
    }

    #[test]
    fn a_machine_that_changes_shows_in_the_paired_ratio() {
        // Both become four times slower half-way; b is twice as slow as a throughout.
        let (series, _) = run(&[("a", &[100, 100, 400]), ("b", &[200, 800, 800])], 3);
        let ratio = Ratio::of_medians(&series[1], &series[0]);
        assert_eq!((ratio.value, ratio.paired), (8.0, 2.0));
    }

    #[test]
    fn a_series_sums_its_rounds() {
        let (series, _) = run(&[("a", &[100, 300, 200])], 3);
        assert_eq!(series[0].latency().count(), 3);
        assert_eq!(series[0].median_ns(), 200.0);
        assert_eq!(series[0].preempted(), 6);
        assert_eq!(series[0].rate(), 1e8);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert_eq!(median([5.0].into_iter()), 5.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
