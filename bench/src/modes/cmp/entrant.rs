//! One side of a comparison, run round by round, or as a whole result.

use std::collections::BTreeSet;

use strum::VariantArray;

use crate::error::BenchError;
use crate::modes::contest;
use crate::output::{At, Environment, Figure, Lost, Records, Report, Unit, point};
use crate::peers::tool::Tool;
use crate::peers::{Measure, Printed, ToolRound};
use crate::stats::{Contender, Latency, Quota, median};

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
        records: Records,
    },
    /// A tool of others, with what it printed.
    Tool {
        tool: Tool,
        rounds: Vec<ToolRound>,
    },
    /// A result, saved or of a mode that has run; `of` is what of it the others are compared with,
    /// and `is_chosen` whether that was asked for.
    Whole {
        report: Box<Report>,
        of: String,
        is_chosen: bool,
    },
}

#[derive(Debug)]
pub struct MeasuredSide {
    pub label: String,
    /// Each of the label, or of the label, `#` and a contender.
    pub figures: Vec<Figure>,
    /// Every sample, where they are there.
    pub latencies: Vec<(String, Latency)>,
    /// How often it lost its core, where that is known.
    pub lost: Option<Lost>,
    /// Whether its rounds were run in this run, in turns with others.
    pub is_live: bool,
    pub result: Option<WholeResult>,
}

/// What a whole result is of.
#[derive(Debug, Clone)]
pub struct WholeResult {
    /// The contender that has the name of the side.
    pub of: String,
    pub mode: String,
    pub what: String,
    pub settings: serde_json::Value,
    pub environment: Environment,
}

impl Entrant {
    pub fn is_live(&self) -> bool {
        !matches!(self.runner, Runner::Whole { .. })
    }

    pub fn round(&mut self, quota: Quota) -> Result<(), BenchError> {
        match &mut self.runner {
            Runner::Ours { contender, data_len, records } => {
                let round = contender.round(quota)?;
                contest::take(records.of(&self.label), &round, *data_len);
            }
            Runner::Tool { tool, rounds } => rounds.push(tool.round(quota)?),
            Runner::Whole { .. } => {}
        }
        Ok(())
    }

    /// What was measured; `everything` of a whole result, or the contender that the others are
    /// compared with.
    pub fn sum_up(self, everything: bool) -> MeasuredSide {
        let Entrant { label, runner, .. } = self;
        match runner {
            Runner::Ours { records, .. } => {
                let sampled = records.iter().filter_map(|one| one.samples());
                let latencies = sampled.map(|latency| (label.clone(), latency.clone())).collect();
                let (figures, lost) = (records.figures(), records.lost().pop());
                MeasuredSide { label, figures, latencies, lost, is_live: true, result: None }
            }
            Runner::Tool { rounds, .. } => {
                let figures = printed_figures(&label, &rounds);
                let latencies = Vec::new();
                MeasuredSide { label, figures, latencies, lost: None, is_live: true, result: None }
            }
            Runner::Whole { report, of, is_chosen } => {
                MeasuredSide::of_result(label, *report, &of, everything && !is_chosen)
            }
        }
    }
}

impl MeasuredSide {
    fn of_result(label: String, report: Report, of: &str, everything: bool) -> MeasuredSide {
        let named = |whose: &str| match whose.strip_prefix(of) {
            Some("") => Some(label.clone()),
            Some(point) if point.starts_with('@') => Some(format!("{label}{point}")),
            _ if everything => Some(format!("{label}#{whose}")),
            _ => None,
        };
        let Report { mode, what, settings, environment, figures, distributions, .. } = report;
        let renamed = |figure: Figure| Some(Figure { of: named(&figure.of)?, ..figure });
        let figures = figures.into_iter().filter_map(renamed).collect();
        let latencies = distributions.into_iter();
        let latencies =
            latencies.filter_map(|one| Some((named(&one.name)?, one.latency))).collect();
        let result = Some(WholeResult { of: of.to_owned(), mode, what, settings, environment });
        MeasuredSide { label, figures, latencies, lost: None, is_live: false, result }
    }

    /// The names of its points, as they are in its result.
    pub fn points(&self) -> BTreeSet<String> {
        self.figures.iter().map(|figure| self.point(&figure.of, figure.at.as_ref())).collect()
    }

    /// The name that a point of this side has in its result: `rpc@load=0.7`.
    pub fn point(&self, whose: &str, at: Option<&At>) -> String {
        let rest = whose.strip_prefix(&*self.label).unwrap_or(whose);
        let of = self.result.as_ref().map_or(&*self.label, |result| &*result.of);
        let whose = rest.strip_prefix('#').unwrap_or(of);
        point(whose, at)
    }

    pub fn figure(&self, name: &str) -> Option<&Figure> {
        let is_it = |figure: &&Figure| {
            figure.of == self.label && figure.at.is_none() && figure.name == name
        };
        self.figures.iter().find(is_it)
    }
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
