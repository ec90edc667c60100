//! The result of a contest: what the contenders took, and the ratios between them.

use serde::Serialize;
use serde_json::{Value, json};

use super::plan::Settings;
use crate::output::outcome::{Better, Distribution, Figure, Lost, Outcome, Scene, Unit};
use crate::stats::latency::{Latency, Summary};
use crate::stats::meter::Round;
use crate::stats::rounds::{Ratio, Series, Spent};

/// A result, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was measured, in words.
    pub what: String,
    /// What was measured, in numbers.
    pub settings: Settings,
    /// Where, and how quietly.
    pub scene: Scene,
    /// One entry per contender, in the order they were named.
    pub contenders: Vec<ContenderReport>,
    /// The quotients between them.
    pub ratios: Vec<RatioReport>,
    /// What their sides had the device do.
    pub spent: Vec<Spent>,
}

/// The result of one contender.
#[derive(Debug, Clone, Serialize)]
pub struct ContenderReport {
    /// Its name.
    pub name: &'static str,
    /// Whole round trips, when they were timed.
    pub round_trip: Option<Summary>,
    /// Half of each figure: what others print as latency.
    pub half_round_trip: Option<Summary>,
    /// The median over the rounds of their median, interpolated within the clock's step.
    pub median_ns: Option<f64>,
    /// The median over the rounds of their round trips per second.
    pub rate: f64,
    /// Data of requests and replies in GB/s (10^9 bytes), headers not counted.
    pub data_gb_per_s: f64,
    /// How often a measuring thread lost its core.
    pub preempted: u64,
    /// Each round by itself, in order.
    pub rounds: Vec<RoundReport>,
    /// Every sample, and those of each round.
    #[serde(skip)]
    pub samples: Samples,
}

/// Round trips that were timed; without samples when they were only counted.
#[derive(Debug, Clone)]
pub struct Samples {
    /// All.
    pub all: Latency,
    /// Of each round.
    pub rounds: Vec<Latency>,
}

/// One round.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RoundReport {
    /// The interpolated median, when round trips were timed.
    pub median_ns: Option<f64>,
    /// Round trips per second.
    pub rate: f64,
    /// Round trips.
    pub completed: u64,
    /// The time they took.
    pub elapsed_ns: u64,
    /// How often a measuring thread lost its core.
    pub preempted: u64,
}

/// The quotient of two contenders.
#[derive(Debug, Clone, Serialize)]
pub struct RatioReport {
    /// The one above the line.
    pub of: &'static str,
    /// The one below.
    pub to: &'static str,
    /// Of which figure: `median` of round trips, or `rate`.
    pub figure: &'static str,
    /// Median of the rounds of one over median of the rounds of the other.
    pub value: f64,
    /// Median of the quotients of neighbouring rounds.
    pub paired: f64,
    /// Lowest quotient of neighbouring rounds.
    pub low: f64,
    /// Highest quotient of neighbouring rounds.
    pub high: f64,
    /// What `of` takes more than `to`, in nanoseconds and per side: half the difference of the
    /// medians.
    pub added_per_side_ns: Option<f64>,
    /// The quotients of neighbouring rounds, in order.
    #[serde(skip)]
    pub rounds: Vec<f64>,
    /// Round trips of both.
    #[serde(skip)]
    pub samples: u64,
}

impl ContenderReport {
    /// Sums a series up, of round trips that carry so many bytes of data both ways together.
    pub fn new(series: &Series, data_len: usize) -> ContenderReport {
        let latency = series.latency();
        let timed = latency.count() > 0;
        ContenderReport {
            name: series.name,
            round_trip: timed.then(|| latency.summary(1.0)),
            half_round_trip: timed.then(|| latency.summary(0.5)),
            median_ns: timed.then(|| series.median_ns()),
            rate: series.rate(),
            data_gb_per_s: series.rate() * data_len as f64 / 1e9,
            preempted: series.preempted(),
            rounds: series.rounds.iter().map(RoundReport::new).collect(),
            samples: Samples {
                rounds: series.rounds.iter().map(|round| round.latency.clone()).collect(),
                all: latency,
            },
        }
    }

    /// Round trips of all rounds.
    pub fn completed(&self) -> u64 {
        self.rounds.iter().map(|round| round.completed).sum()
    }

    /// How often it lost its core.
    pub fn lost(&self) -> Lost {
        Lost::of_rounds(self.name, self.rounds.iter().map(|one| (one.elapsed_ns, one.preempted)))
    }
}

impl RoundReport {
    /// Sums a round up.
    pub fn new(round: &Round) -> RoundReport {
        RoundReport {
            median_ns: (round.latency.count() > 0).then(|| round.latency.median_ns()),
            rate: round.rate(),
            completed: round.completed,
            elapsed_ns: round.elapsed_ns,
            preempted: round.preempted,
        }
    }
}

impl RatioReport {
    /// The quotient of the median round trips.
    pub fn of_medians(of: &Series, to: &Series) -> RatioReport {
        let ratio = Ratio::new(of, to, |round| round.latency.median_ns());
        let added = (of.median_ns() - to.median_ns()) / 2.0;
        RatioReport::new(of, to, "median", ratio, Some(added))
    }

    /// The quotient of the rates.
    pub fn of_rates(of: &Series, to: &Series) -> RatioReport {
        RatioReport::new(of, to, "rate", Ratio::new(of, to, Round::rate), None)
    }

    fn new(
        of: &Series,
        to: &Series,
        figure: &'static str,
        ratio: Ratio,
        added_per_side_ns: Option<f64>,
    ) -> RatioReport {
        let Ratio { value, paired, low, high, rounds } = ratio;
        let completed = |of: &Series| of.rounds.iter().map(|round| round.completed).sum::<u64>();
        RatioReport {
            of: of.name,
            to: to.name,
            figure,
            value,
            paired,
            low,
            high,
            added_per_side_ns,
            rounds,
            samples: completed(of) + completed(to),
        }
    }
}

impl Outcome for Report {
    fn mode(&self) -> &str {
        self.settings.mode
    }

    fn what(&self) -> &str {
        &self.what
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn settings(&self) -> Value {
        json!(self.settings)
    }

    fn figures(&self) -> Vec<Figure> {
        let contenders = self.contenders.iter().flat_map(ContenderReport::figures);
        let ratios = self.ratios.iter().flat_map(RatioReport::figures);
        contenders.chain(ratios).chain(self.spent.iter().flat_map(spent)).collect()
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        let timed = self.contenders.iter().filter(|one| one.round_trip.is_some());
        timed.map(|one| Distribution { name: one.name.into(), latency: &one.samples.all }).collect()
    }

    fn table(&self) -> String {
        super::table::table(self)
    }

    fn detail(&self) -> Value {
        let Report { contenders, ratios, spent, .. } = self;
        json!({ "contenders": contenders, "ratios": ratios, "spent": spent })
    }
}

impl ContenderReport {
    /// Its numbers, and those of its rounds.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        if let Some(median_ns) = self.median_ns {
            let Samples { all, rounds } = &self.samples;
            figures = Figure::round_trips(self.name, all, &rounds.iter().collect::<Vec<_>>());
            let medians = self.rounds.iter().filter_map(|round| round.median_ns).collect();
            let count = all.count();
            let median = Figure::new(self.name, "round_trip.median", median_ns, Unit::Ns, count);
            figures.push(median.rounds(medians));
        }
        let figure = |name: &'static str, value: f64, unit, rounds| {
            Figure::new(self.name, name, value, unit, self.completed()).rounds(rounds)
        };
        let rates = || self.rounds.iter().map(|round| round.rate);
        figures.push(figure("rate", self.rate, Unit::PerSecond, rates().collect()));
        if self.rate > 0.0 {
            let each = self.data_gb_per_s / self.rate;
            let data = rates().map(|rate| rate * each).collect();
            figures.push(figure("data", self.data_gb_per_s, Unit::GbPerSecond, data));
        }
        let lost = self.rounds.iter().map(|round| round.preempted as f64).collect();
        figures.push(figure("preempted", self.preempted as f64, Unit::Count, lost));
        figures
    }
}

impl RatioReport {
    /// The quotient of all rounds, and what neighbouring rounds say of it.
    pub fn figures(&self) -> Vec<Figure> {
        let of = format!("{}/{}", self.of, self.to);
        let better = if self.figure == "median" { Better::Lower } else { Better::Higher };
        let figure = |part: &str, value: f64| {
            let name = format!("ratio.{}{part}", self.figure);
            Figure::new(&of, name, value, Unit::Ratio, self.samples).better(better)
        };
        let mut figures = vec![
            figure("", self.value).rounds(self.rounds.clone()),
            figure(".paired", self.paired).rounds(self.rounds.clone()),
            figure(".lowest", self.low),
            figure(".highest", self.high),
        ];
        let added = self.added_per_side_ns;
        figures
            .extend(added.map(|ns| Figure::new(&of, "added_per_side", ns, Unit::Ns, self.samples)));
        figures
    }
}

/// What a side had the device do for each round trip.
fn spent(spent: &Spent) -> Vec<Figure> {
    let Spent { name, side, round_trips, doorbells, sends, completions } = *spent;
    let parts = [("doorbells", doorbells), ("sends", sends), ("completions", completions)];
    let figure = |(part, value)| {
        let name_of = format!("{side}.{part}");
        Figure::new(name, name_of, value, Unit::PerCall, round_trips).better(Better::Lower)
    };
    parts.map(figure).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cores::CorePair;
    use crate::device::jitter::Jitter;
    use crate::output::json;

    fn series(name: &'static str, times_ns: &[u64], preempted: u64) -> Series {
        let round = |ns: &u64| {
            let mut latency = Latency::new();
            latency.record(*ns);
            Round { latency, completed: 1, elapsed_ns: 1_000_000_000, preempted }
        };
        Series { name, rounds: times_ns.iter().map(round).collect() }
    }

    fn report(series: &[Series], ratios: Vec<RatioReport>) -> Report {
        let cores = CorePair { client: 0, server: 1 };
        let quiet =
            Jitter { core: 0, gaps_per_second: 250.0, lost_share: 0.005, longest_ns: 25_000 };
        Report {
            what: "floor: echo of 64 bytes".into(),
            settings: Settings {
                mode: "floor",
                op: "echo",
                placement: "inline",
                continuation: true,
                touch: "lines",
                request_data_bytes: 64,
                reply_data_bytes: 64,
                request_wire_bytes: 136,
                reply_wire_bytes: 120,
                request_transmissions: 1,
                reply_transmissions: 1,
                window: 1,
                connections: 1,
                cores,
                rounds: 2,
                warm_up: 0,
            },
            scene: Scene::new(cores, vec!["pages of 4 KiB".into()], [[quiet; 2]; 2], &[]),
            contenders: series.iter().map(|one| ContenderReport::new(one, 128)).collect(),
            ratios,
            spent: vec![Spent::new("raw", "client", [4, 16, 17], 16)],
        }
    }

    #[test]
    fn the_table_labels_whole_and_half_round_trips() {
        let table = report(&[series("floor", &[300, 300], 0)], Vec::new()).table();
        let row = |title: &str| {
            let mut lines = table.lines().skip_while(|line| !line.starts_with(title)).skip(1);
            lines.next().unwrap_or_default().split_whitespace().nth(1).map(str::to_owned)
        };
        assert_eq!(row("round trip, ns").as_deref(), Some("300"), "{table}");
        assert_eq!(row("half of it, ns").as_deref(), Some("150"), "{table}");
        assert!(table.contains("136 bytes there, 120 back") && table.contains("pages of 4 KiB"));
        assert!(table.contains("The machine was quiet."), "{table}");
    }

    #[test]
    fn the_ratio_and_what_a_side_adds_are_printed() {
        let all = [series("floor", &[300, 300], 0), series("raw", &[360, 360], 0)];
        let ratio = RatioReport::of_medians(&all[1], &all[0]);
        assert_eq!((ratio.value, ratio.added_per_side_ns), (1.2, Some(30.0)));
        let table = report(&all, vec![ratio]).table();
        assert!(table.contains("raw / floor, median") && table.contains("1.200"), "{table}");
        assert!(table.contains("+30 ns per side"), "{table}");
    }

    #[test]
    fn what_the_device_had_to_do_is_printed_by_round_trip() {
        let table = report(&[series("raw", &[300], 0)], Vec::new()).table();
        let row = table.lines().find(|line| line.starts_with("raw, client")).unwrap_or_default();
        let figures: Vec<&str> = row.split_whitespace().skip(2).collect();
        assert_eq!(figures, ["0.250", "1.000", "1.062", "16"], "{table}");
    }

    #[test]
    fn json_has_every_figure_under_its_name() {
        let all = [series("floor", &[300, 301], 0)];
        let json = serde_json::from_str::<Value>(&json::text(&report(&all, Vec::new())));
        let json = json.expect("a report is plain data");
        let contender = &json["contenders"][0];
        assert_eq!(contender["name"], "floor");
        assert_eq!(contender["round_trip"]["max_ns"], 301.0);
        assert_eq!(contender["half_round_trip"]["max_ns"], 150.5);
        assert_eq!(contender["rounds"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["build"]["rpcrdma"], env!("CARGO_PKG_VERSION"));
        assert!(json["machine"]["kernel"].is_string());
        assert_eq!(json["settings"]["request_wire_bytes"], 136);
    }

    #[test]
    fn slow_round_trips_are_shown_in_microseconds() {
        let table = report(&[series("floor", &[250_000], 0)], Vec::new()).table();
        assert!(table.contains("round trip, us"), "{table}");
    }
}
