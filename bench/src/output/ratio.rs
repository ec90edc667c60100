//! The ratio of two contenders of one run: of a figure of every round.

use super::figure::{At, Better, Figure, Unit, title};
use super::record::{Record, Records};
use super::table::Table;
use crate::stats::median;

#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    pub of: String,
    pub to: String,
    at: Option<At>,
    /// Of which figure: `round_trip.median`, `rate`.
    figure: String,
    better: Better,
    /// The median of the rounds of one, over the median of the rounds of the other.
    pub value: f64,
    /// The median of the ratios of neighbouring rounds. Far from `value` when the machine
    /// changed during the run.
    paired: f64,
    low: f64,
    high: f64,
    /// What `of` takes more than `to`, in nanoseconds and per side: half the difference of the
    /// medians of round trips.
    added_per_side_ns: Option<f64>,
    rounds: Vec<f64>,
    samples: u64,
}

impl Ratio {
    /// The ratio of a figure that both have.
    pub fn new(of: &Record, to: &Record, figure: &str) -> Option<Ratio> {
        let (above, below) = (of.figure(figure)?, to.figure(figure)?);
        let middle = |figure: &Figure| median(figure.rounds.iter().copied());
        let neighbours = above.rounds.iter().zip(&below.rounds);
        let rounds: Vec<f64> = neighbours.map(|(of, to)| of / to).collect();
        let added = (middle(&above) - middle(&below)) / 2.0;
        Some(Ratio {
            of: of.of.clone(),
            to: to.of.clone(),
            at: of.at.clone(),
            figure: figure.to_owned(),
            better: above.better,
            value: middle(&above) / middle(&below),
            paired: median(rounds.iter().copied()),
            low: rounds.iter().copied().fold(f64::INFINITY, f64::min),
            high: rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            added_per_side_ns: (figure == "round_trip.median").then_some(added),
            samples: above.samples + below.samples,
            rounds,
        })
    }

    /// Of every point to the first of them, which is no contender of its own.
    pub fn to_first(records: &Records, figure: &str) -> Vec<Ratio> {
        let first = records.iter().next();
        let others = records.iter().skip(1);
        let ratio = |of| Ratio::new(of, first?, figure);
        others.filter_map(ratio).map(|ratio| Ratio { to: "first".to_owned(), ..ratio }).collect()
    }

    /// The ratio of all rounds, and what neighbouring rounds say of it.
    pub fn figures(&self) -> Vec<Figure> {
        let of = format!("{}/{}", self.of, self.to);
        let figure = |part: &str, value: f64| {
            let name = format!("ratio.{}{part}", self.short());
            Figure::new(&of, name, value, Unit::Ratio, self.samples).better(self.better)
        };
        let added = |ns| Figure::new(&of, "added_per_side", ns, Unit::Ns, self.samples);
        let mut figures = vec![
            figure("", self.value).rounds(self.rounds.clone()),
            figure(".paired", self.paired).rounds(self.rounds.clone()),
            figure(".lowest", self.low),
            figure(".highest", self.high),
        ];
        figures.extend(self.added_per_side_ns.map(added));
        figures.into_iter().map(|figure| Figure { at: self.at.clone(), ..figure }).collect()
    }

    /// The figure without what it is a figure of: `median`, `rate`.
    fn short(&self) -> &str {
        self.figure.strip_prefix("round_trip.").unwrap_or(&self.figure)
    }

    pub fn table(ratios: &[Ratio]) -> Table {
        let heads = ["ratio of medians", "of all rounds", "paired", "lowest", "highest", ""];
        let mut table = Table::new(&[0, 5], heads);
        for ratio in ratios {
            let Ratio { of, to, value, paired, low, high, added_per_side_ns, .. } = ratio;
            let pair = format!("{} / {}, {}", title(of), title(to), ratio.short());
            let values = [value, paired, low, high].map(|value| format!("{value:.3}"));
            let added = added_per_side_ns.map(|added| format!("{added:+.0} ns per side"));
            table.row([pair].into_iter().chain(values).chain([added.unwrap_or_default()]));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::round;

    /// Two contenders, whose rounds had such medians.
    fn two(of: &[u64], to: &[u64]) -> Records {
        let mut records = Records::default();
        for (name, times) in [("rpc", of), ("floor", to)] {
            times.iter().for_each(|ns| {
                records.of(name).round(&round(*ns, &[*ns]));
            });
        }
        records
    }

    fn ratio(records: &Records, figure: &str) -> Ratio {
        let both: Vec<&Record> = records.iter().collect();
        Ratio::new(both[0], both[1], figure).expect("both have it")
    }

    #[test]
    fn a_ratio_is_of_medians_and_its_spread_of_neighbours() {
        let records = two(&[140, 150, 130], &[100, 150, 120]);
        let ratio = ratio(&records, "round_trip.median");
        assert_eq!((ratio.value, ratio.low, ratio.high), (140.0 / 120.0, 1.0, 1.4));
        assert_eq!(ratio.paired, 130.0 / 120.0);
        assert_eq!(ratio.added_per_side_ns, Some(10.0));
        let figures = ratio.figures();
        assert_eq!(figures[0].id(), "rpc/floor.ratio.median");
        assert_eq!((figures[0].better, figures[0].rounds.len()), (Better::Lower, 3));
        assert_eq!(figures[4].id(), "rpc/floor.added_per_side");
        let table = Ratio::table(&[ratio]).to_string();
        assert!(table.contains("rpc / serial floor, median"), "{table}");
        assert!(table.contains("+10 ns per side"), "{table}");
    }

    #[test]
    fn a_ratio_of_rates_adds_nothing_to_a_side() {
        let ratio = ratio(&two(&[10, 20], &[40, 40]), "rate");
        assert_eq!((ratio.value, ratio.better), (0.375, Better::Higher));
        assert_eq!(ratio.figures().len(), 4);
    }

    #[test]
    fn the_first_of_a_list_has_no_ratio_to_itself() {
        let mut records = Records::default();
        for (count, rate) in [(1, 100), (1024, 85)] {
            let at = At::new("connections", count.into(), Unit::Count);
            records.at("rpc", at).round(&round(rate, &[]));
        }
        let ratios = Ratio::to_first(&records, "rate");
        assert_eq!(ratios.len(), 1);
        assert_eq!(ratios[0].figures()[0].id(), "rpc/first@connections=1024.ratio.rate");
        assert_eq!(ratios[0].value, 0.85);
    }
}
