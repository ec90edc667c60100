//! One side of a comparison, run round by round or read from a file.

use strum::VariantArray;

use crate::error::BenchError;
use crate::modes::contest;
use crate::output::{Figure, Lost, Report, Unit};
use crate::peers::tool::Tool;
use crate::peers::{Measure, Printed, ToolRound};
use crate::stats::{Contender, Latency, Quota, Round, Series, median};

pub struct Entrant {
    pub label: String,
    /// What it uses, and what is weak about its figures.
    pub notes: Vec<String>,
    pub runner: Runner,
}

pub enum Runner {
    /// Of this program: every sample is there.
    Ours {
        contender: Box<dyn Contender>,
        /// Bytes of data that a round trip carries, both ways together.
        data_len: usize,
        rounds: Vec<Round>,
    },
    /// A tool of others, with what it printed.
    Tool {
        tool: Tool,
        rounds: Vec<ToolRound>,
    },
    Saved {
        saved: Box<Report>,
        of: String,
    },
}

#[derive(Debug)]
pub struct MeasuredSide {
    pub label: String,
    pub figures: Vec<Figure>,
    /// Every sample, where they are there.
    pub latency: Option<Latency>,
    /// How often it lost its core, where that is known.
    pub lost: Option<Lost>,
    /// Whether its rounds were run in this run, in turns with others.
    pub is_live: bool,
}

impl Entrant {
    pub fn is_live(&self) -> bool {
        !matches!(self.runner, Runner::Saved { .. })
    }

    pub fn round(&mut self, quota: Quota) -> Result<(), BenchError> {
        match &mut self.runner {
            Runner::Ours { contender, rounds, .. } => rounds.push(contender.round(quota)?),
            Runner::Tool { tool, rounds } => rounds.push(tool.round(quota)?),
            Runner::Saved { .. } => {}
        }
        Ok(())
    }

    pub fn sum_up(self) -> MeasuredSide {
        let Entrant { label, runner, .. } = self;
        match runner {
            Runner::Ours { contender, data_len, rounds } => {
                let series = Series { name: contender.name(), rounds };
                let figures = renamed(contest::figures(&series, data_len), &label);
                let lost = Some(Lost::of(series.name, series.rounds.iter()));
                let latency = Some(series.latency()).filter(|latency| latency.count() > 0);
                MeasuredSide { label, figures, latency, lost, is_live: true }
            }
            Runner::Tool { rounds, .. } => {
                let figures = printed_figures(&label, &rounds);
                MeasuredSide { label, figures, latency: None, lost: None, is_live: true }
            }
            Runner::Saved { saved, of } => {
                let Report { figures, distributions, .. } = *saved;
                let figures = figures.into_iter().filter(|figure| figure.of == of);
                let figures = renamed(figures.collect(), &label);
                let samples = distributions.into_iter().find(|one| one.name == of);
                let latency = samples.map(|samples| samples.latency);
                MeasuredSide { label, figures, latency, lost: None, is_live: false }
            }
        }
    }
}

impl MeasuredSide {
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.at.is_none() && figure.name == name)
    }
}

/// The same figures under another name.
fn renamed(figures: Vec<Figure>, label: &str) -> Vec<Figure> {
    figures.into_iter().map(|figure| Figure { of: label.to_owned(), ..figure }).collect()
}

/// What a tool printed in all rounds as figures: the median of the rounds, and the smallest
/// minimum and largest maximum.
fn printed_figures(label: &str, rounds: &[ToolRound]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for &measure in Measure::VARIANTS {
        let printed: Option<Vec<Printed>> =
            rounds.iter().map(|round| round.find(measure)).collect();
        let Some(printed) = printed.filter(|printed| !printed.is_empty()) else { continue };
        let values: Vec<f64> = printed.iter().map(|one| one.value).collect();
        let value = match measure {
            Measure::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Measure::Max => values.iter().copied().fold(0.0, f64::max),
            _ => median(values.iter().copied()),
        };
        let samples = printed.iter().map(|one| one.samples).sum();
        let (name, unit) = (measure.into_str(), unit(measure));
        if unit == Unit::Ns {
            let half = Figure::new(label, format!("half_{name}"), value / 2.0, unit, samples);
            figures.push(half.rounds(values.iter().map(|value| value / 2.0).collect()));
        }
        figures.push(Figure::new(label, name, value, unit, samples).rounds(values));
    }
    figures
}

fn unit(measure: Measure) -> Unit {
    match measure {
        Measure::Rate => Unit::PerSecond,
        Measure::Data => Unit::GbPerSecond,
        _ => Unit::Ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool_round(values: &[(Measure, f64)]) -> ToolRound {
        let figures = values.iter().map(|(measure, value)| Printed {
            measure: *measure,
            value: *value,
            samples: 5,
        });
        ToolRound { figures: figures.collect(), count: 5 }
    }

    #[test]
    fn what_a_tool_reports_is_the_median_of_its_rounds_and_the_longest_of_the_longest() {
        let round = |ns: f64| tool_round(&[(Measure::Median, ns), (Measure::Max, ns * 10.0)]);
        let figures = printed_figures("tool", &[round(100.0), round(900.0), round(200.0)]);
        let of = |name: &str| figures.iter().find(|one| one.name == name).expect("it is there");
        let median = of("round_trip.median");
        assert_eq!((median.value, median.samples, median.unit), (200.0, 15, Unit::Ns));
        assert_eq!(median.rounds, [100.0, 900.0, 200.0]);
        assert_eq!(of("half_round_trip.median").value, 100.0);
        assert_eq!(of("round_trip.max").value, 9000.0);
        assert_eq!(of("half_round_trip.max").rounds, [500.0, 4500.0, 1000.0]);
    }

    #[test]
    fn what_is_not_reported_in_every_round_is_no_figure() {
        let rounds = [
            tool_round(&[(Measure::Mean, 1.0), (Measure::Rate, 2.0)]),
            tool_round(&[(Measure::Mean, 3.0)]),
        ];
        let figures = printed_figures("tool", &rounds);
        let names: Vec<&str> = figures.iter().map(|figure| &*figure.name).collect();
        assert_eq!(names, ["half_round_trip.mean", "round_trip.mean"]);
        assert!(printed_figures("tool", &[]).is_empty());
    }
}
