//! Records: what an experiment measured at each of its points, round by round.
//!
//! ```text
//!   a turn ──▶ round trips, times, values ──▶ record of a point ──▶ figures, samples, lost cores
//!                                             `rpc@load=0.7`
//! ```

use super::environment::Lost;
use super::figure::{At, Better, Figure, Parts, Unit};
use crate::stats::{Latency, Round, median};

/// What has one value in each round: its name, its unit, and how the rounds become one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    pub name: &'static str,
    pub unit: Unit,
    pub better: Better,
    pub whole: Whole,
}

/// The value of all rounds together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    Median,
    Sum,
    Largest,
}

/// All records of an experiment, in the order in which their points were first measured.
#[derive(Debug, Default)]
pub struct Records(Vec<Record>);

/// One point: a contender, at a value of what is varied, if anything is.
#[derive(Debug)]
pub struct Record {
    pub of: String,
    pub at: Option<At>,
    times: Vec<Times>,
    values: Vec<Values>,
    elapsed_ns: u64,
    preempted: u64,
}

/// A distribution of all rounds, and its parts in each.
#[derive(Debug)]
struct Times {
    name: &'static str,
    kind: TimesKind,
    all: Latency,
    rounds: Vec<Parts>,
    medians: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimesKind {
    /// Of whole round trips: half of each is a figure, too.
    RoundTrips,
    /// With all samples in the result.
    Sampled,
    Other,
}

#[derive(Debug)]
struct Values {
    quantity: Quantity,
    rounds: Vec<f64>,
    samples: u64,
}

impl Quantity {
    /// The median of the rounds; times are better when lower, rates when higher.
    pub const fn new(name: &'static str, unit: Unit) -> Quantity {
        Quantity { name, unit, better: Better::usual(unit), whole: Whole::Median }
    }

    /// The sum of the rounds: a number of things.
    pub const fn count(name: &'static str) -> Quantity {
        Quantity { whole: Whole::Sum, ..Quantity::new(name, Unit::Count) }
    }

    pub const fn lower(self) -> Quantity {
        Quantity { better: Better::Lower, ..self }
    }

    pub const fn higher(self) -> Quantity {
        Quantity { better: Better::Higher, ..self }
    }

    pub const fn neutral(self) -> Quantity {
        Quantity { better: Better::Neither, ..self }
    }

    pub const fn largest(self) -> Quantity {
        Quantity { whole: Whole::Largest, ..self }
    }
}

impl Records {
    /// The record of a contender that has one point.
    pub fn of(&mut self, of: &str) -> &mut Record {
        self.at(of, None)
    }

    /// The record of a contender at a point.
    pub fn at(&mut self, of: &str, at: impl Into<Option<At>>) -> &mut Record {
        let at = at.into();
        let found = self.0.iter().position(|one| one.of == of && one.at == at);
        let index = found.unwrap_or_else(|| {
            self.0.push(Record::new(of, at));
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.iter()
    }

    pub fn figures(&self) -> Vec<Figure> {
        Figure::of_each(&self.0, Record::figures)
    }

    /// How often each contender lost its core, at all points together.
    pub fn lost(&self) -> Vec<Lost> {
        let mut lost: Vec<Lost> = Vec::new();
        for Record { of, elapsed_ns, preempted, .. } in &self.0 {
            match lost.iter_mut().find(|one| one.name == *of) {
                Some(one) => {
                    one.elapsed_ns += elapsed_ns;
                    one.preempted += preempted;
                }
                None => lost.push(Lost {
                    name: of.clone(),
                    elapsed_ns: *elapsed_ns,
                    preempted: *preempted,
                }),
            }
        }
        lost
    }
}

impl Record {
    fn new(of: &str, at: Option<At>) -> Record {
        let (times, values) = (Vec::new(), Vec::new());
        Record { of: of.to_owned(), at, times, values, elapsed_ns: 0, preempted: 0 }
    }

    /// Takes a round of a closed loop: its round trips, if they were timed, and its rate.
    pub fn round(&mut self, round: &Round) -> &mut Record {
        if round.latency.count() > 0 {
            self.round_trips(&round.latency);
        }
        self.value(RATE, round.rate(), round.completed);
        self.ran(round.elapsed_ns, round.preempted)
    }

    /// Takes the whole round trips of a round.
    pub fn round_trips(&mut self, latency: &Latency) -> &mut Record {
        self.take("round_trip", TimesKind::RoundTrips, latency)
    }

    /// Takes times of a round, whose samples are in the result.
    pub fn sampled(&mut self, name: &'static str, latency: &Latency) -> &mut Record {
        self.take(name, TimesKind::Sampled, latency)
    }

    /// Takes times of a round, of which the figures are enough.
    pub fn times(&mut self, name: &'static str, latency: &Latency) -> &mut Record {
        self.take(name, TimesKind::Other, latency)
    }

    /// Takes the value of a round, which comes of so many samples.
    pub fn value(&mut self, quantity: Quantity, value: f64, samples: u64) -> &mut Record {
        match self.values.iter_mut().find(|one| one.quantity.name == quantity.name) {
            Some(one) => {
                one.rounds.push(value);
                one.samples += samples;
            }
            None => self.values.push(Values { quantity, rounds: vec![value], samples }),
        }
        self
    }

    /// Takes how long a round took, and how often a thread lost its core meanwhile.
    pub fn ran(&mut self, elapsed_ns: u64, preempted: u64) -> &mut Record {
        self.elapsed_ns += elapsed_ns;
        self.preempted += preempted;
        self
    }

    /// Its name: `rpc`, or `rpc@load=0.7`.
    pub fn id(&self) -> String {
        super::figure::point(&self.of, self.at.as_ref())
    }

    /// The samples that belong into the result.
    pub fn samples(&self) -> Option<&Latency> {
        let sampled = self.times.iter().find(|times| times.kind != TimesKind::Other);
        sampled.map(|times| &times.all)
    }

    /// The figure of such a name.
    pub fn figure(&self, name: &str) -> Option<Figure> {
        self.figures().into_iter().find(|figure| figure.name == name)
    }

    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Figure::of_each(&self.times, |times| times.figures(&self.of));
        figures.extend(self.values.iter().map(|values| values.figure(&self.of)));
        figures.into_iter().map(|figure| Figure { at: self.at.clone(), ..figure }).collect()
    }

    fn take(&mut self, name: &'static str, kind: TimesKind, latency: &Latency) -> &mut Record {
        let index = self.times.iter().position(|times| times.name == name).unwrap_or_else(|| {
            let (all, rounds, medians) = (Latency::new(), Vec::new(), Vec::new());
            self.times.push(Times { name, kind, all, rounds, medians });
            self.times.len() - 1
        });
        let times = &mut self.times[index];
        times.all.merge(latency);
        times.rounds.push(Parts::of(latency));
        times.medians.push(latency.median_ns());
        self
    }
}

impl Times {
    fn figures(&self, of: &str) -> Vec<Figure> {
        let Times { name, kind, all, rounds, medians } = self;
        let mut figures = Figure::parts(of, name, all, rounds, 1.0);
        if *kind == TimesKind::RoundTrips {
            figures.extend(Figure::parts(of, &format!("half_{name}"), all, rounds, 0.5));
            let value = median(medians.iter().copied());
            let median = Figure::new(of, format!("{name}.median"), value, Unit::Ns, all.count());
            figures.push(median.rounds(medians.clone()));
        }
        figures
    }
}

impl Values {
    fn figure(&self, of: &str) -> Figure {
        let Values { quantity: Quantity { name, unit, better, whole }, rounds, samples } = self;
        let values = rounds.iter().copied();
        let value = match whole {
            Whole::Median => median(values),
            Whole::Sum => values.sum(),
            Whole::Largest => values.fold(0.0, f64::max),
        };
        Figure::new(of, *name, value, *unit, *samples).rounds(rounds.clone()).better(*better)
    }
}

/// Round trips per second.
pub const RATE: Quantity = Quantity::new("rate", Unit::PerSecond);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::round;

    fn value(record: &Record, name: &str) -> f64 {
        record.figure(name).expect("it is there").value
    }

    #[test]
    fn the_rounds_of_a_point_become_its_figures() {
        let mut records = Records::default();
        let at = At::new("load", 0.7, Unit::Share);
        for (ns, rate) in [(300, 10), (500, 30), (310, 20)] {
            records.at("rpc", at.clone()).round(&round(rate, &[ns; 4]));
        }
        assert_eq!(records.iter().count(), 1);
        let record = records.at("rpc", at);
        assert_eq!(record.id(), "rpc@load=0.7");
        assert_eq!((value(record, "round_trip.max"), value(record, "rate")), (500.0, 20.0));
        assert_eq!(value(record, "half_round_trip.max"), 250.0);
        assert_eq!(value(record, "round_trip.median"), 310.0);
        let rate = record.figure("rate").expect("it is there");
        assert_eq!((rate.id(), rate.samples), ("rpc@load=0.7.rate".into(), 60));
        assert_eq!(rate.rounds, [10.0, 30.0, 20.0]);
        assert_eq!(record.samples().map(Latency::count), Some(12));
    }

    #[test]
    fn a_quantity_says_how_its_rounds_become_one_value() {
        let mut records = Records::default();
        let record = records.of("rpc");
        let largest = Quantity::count("backlog").largest().lower();
        for value in [1.0, 5.0, 3.0] {
            record.value(largest, value, 1).value(Quantity::count("lost"), value, 2);
        }
        assert_eq!((value(record, "backlog"), value(record, "lost")), (5.0, 9.0));
        let backlog = record.figure("backlog").expect("it is there");
        assert_eq!((backlog.better, backlog.samples), (Better::Lower, 3));
    }

    #[test]
    fn a_lost_core_counts_for_the_contender_at_all_points() {
        let mut records = Records::default();
        for (load, preempted) in [(0.1, 3), (0.2, 4)] {
            records.at("rpc", At::new("load", load, Unit::Share)).ran(1000, preempted);
        }
        records.of("closed").ran(5, 0);
        let lost = records.lost();
        let lost: Vec<_> =
            lost.iter().map(|one| (&*one.name, one.elapsed_ns, one.preempted)).collect();
        assert_eq!(lost, [("rpc", 2000, 7), ("closed", 5, 0)]);
    }
}
