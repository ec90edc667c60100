//! `ucx_perftest` of UCX: its arguments and its output.

use super::tool::{OutputError, PackageSource, ToolKind, ToolName, ToolRun, row_under};
use super::{Measure, Pattern, PeerTask, Printed, ToolRound, number, whole_ns};

/// Which of its tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Test {
    /// Tag matching: tag_lat, tag_bw
    #[default]
    Tag,
    /// Active messages: ucp_am_lat, ucp_am_bw
    Am,
}

/// The options behind `ucx`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Parser)]
#[command(name = "ucx", no_binary_name = true, disable_version_flag = true)]
pub struct Ucx {
    /// Test of ucx_perftest
    #[arg(value_enum, default_value = "tag")]
    pub test: Test,
    /// Bytes of a message [default: payload of the other side]
    #[arg(short, long, value_name = "BYTES", value_parser = crate::peers::tool::length)]
    pub size: Option<usize>,
}

impl Ucx {
    fn test(&self, pattern: Pattern) -> &'static str {
        match (self.test, pattern) {
            (Test::Tag, Pattern::RoundTrips) => "tag_lat",
            (Test::Tag, Pattern::Messages) => "tag_bw",
            (Test::Am, Pattern::RoundTrips) => "ucp_am_lat",
            (Test::Am, Pattern::Messages) => "ucp_am_bw",
        }
    }
}

impl ToolKind for Ucx {
    fn what(&self) -> ToolName<'_> {
        ToolName {
            name: "ucx",
            program: "ucx_perftest",
            source: PackageSource::Package("ucx-utils"),
        }
    }

    fn arguments(&self, task: &PeerTask, run: &ToolRun) -> [Vec<String>; 2] {
        let server = vec!["-p".to_owned(), run.port.to_string()];
        let size = self.size.unwrap_or(task.data_len);
        let mut client = server.clone();
        for argument in ["-t", self.test(task.pattern), "-f", "-v"] {
            client.push(argument.to_owned());
        }
        let warm_up = run.count.min(WARM_UP);
        for (option, value) in [("-s", size as u64), ("-n", run.count), ("-w", warm_up)] {
            client.extend([option.to_owned(), value.to_string()]);
        }
        client.push("127.0.0.1".to_owned());
        [server, client]
    }

    fn parse(&self, task: &PeerTask, out: &str) -> Result<ToolRound, OutputError> {
        let row = row_under(HEAD, out.lines())?;
        let wrong = || OutputError::of(row, "a row of eight numbers");
        let values: Option<Vec<f64>> = row.split(',').map(number).collect();
        let [count, median, _, mean, _, mib_per_s, _, messages_per_s] =
            values.and_then(|values| values.try_into().ok()).ok_or_else(wrong)?;
        let count = count as u64;
        let printed = |measure, value, samples| Printed { measure, value, samples };
        let figures = match task.pattern {
            Pattern::RoundTrips => vec![
                printed(Measure::Median, whole_ns(median), count.min(LAST)),
                printed(Measure::Mean, whole_ns(mean), count),
            ],
            Pattern::Messages => vec![
                printed(Measure::Data, mib_per_s * f64::from(1 << 20) / 1e9, count),
                printed(Measure::Rate, messages_per_s / 2.0, count),
            ],
        };
        Ok(ToolRound { figures, count })
    }

    fn notes(&self, task: &PeerTask, _device: Option<&str>) -> Vec<String> {
        let transports = std::env::var("UCX_TLS");
        let transports = transports.map_or_else(
            |_| "picks its transports itself: UCX_TLS sets them".to_owned(),
            |list| format!("UCX_TLS={list}"),
        );
        let size = self.size.unwrap_or(task.data_len);
        let mut notes = vec![format!(
            "{} of {size} bytes with headers of its own; {transports}",
            self.test(task.pattern)
        )];
        notes.push(match task.pattern {
            Pattern::RoundTrips => format!(
                "prints half of a round trip, which is doubled here; its median is of the last \
                 {LAST} round trips of a round only, its mean of all; no other quantile, no maximum"
            ),
            Pattern::Messages => {
                "messages go one way: half of them are taken as the rate of round \
                trips, of which each has two"
                    .to_owned()
            }
        });
        notes
    }
}

/// With `-v`, comma-separated values.
const HEAD: &str =
    "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr";
/// The samples that its percentile is taken of.
const LAST: u64 = 2048;
const WARM_UP: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const UCX: Ucx = Ucx { test: Test::Tag, size: None };

    fn task(pattern: Pattern) -> PeerTask {
        PeerTask { pattern, data_len: 64, wire_len: 136 }
    }

    fn value(round: &ToolRound, measure: Measure) -> (f64, u64) {
        let found = round.find(measure).expect("it is printed");
        ((found.value * 1e3).round() / 1e3, found.samples)
    }

    #[test]
    fn latencies_are_doubled_and_the_median_is_of_few_samples() {
        let round = UCX
            .parse(
                &task(Pattern::RoundTrips),
                include_str!("../../tests/peers/ucx-1.13-tag_lat.csv"),
            )
            .expect("it is what version 1.13 prints");
        assert_eq!(round.count, 200_000);
        assert_eq!(value(&round, Measure::Median), (222.0, 2048));
        assert_eq!(value(&round, Measure::Mean), (5578.0, 200_000));
    }

    #[test]
    fn bandwidth_is_of_binary_megabytes_and_a_round_trip_is_two_messages() {
        let round = UCX
            .parse(&task(Pattern::Messages), include_str!("../../tests/peers/ucx-1.13-tag_bw.csv"))
            .expect("it is what version 1.13 prints");
        assert_eq!(value(&round, Measure::Data), (1.653, 20_000));
        assert_eq!(value(&round, Measure::Rate), (12_615.0, 20_000));
    }

    #[test]
    fn other_shapes_are_errors_that_show_the_line() {
        let good = include_str!("../../tests/peers/ucx-1.13-ucp_am_lat.csv");
        let task = task(Pattern::RoundTrips);
        assert!(UCX.parse(&task, good).is_ok());
        let wrong = [
            (String::new(), "nothing"),
            (
                good.replace("overall_lat", "all_lat"),
                "iterations,50.0_percentile_lat,avg_lat,all_lat",
            ),
            (good.replace("0.107", "0.107us"), "200000,0.107us"),
            (good.replace(",785870\n", "\n"), "200000,0.107"),
            (good.replace("0.107", "-1"), "200000,-1"),
            (format!("{good}[1] UCX WARN odd\n"), "UCX WARN odd"),
            (good.lines().next().unwrap_or_default().to_owned(), "nothing"),
        ];
        for (text, shown) in wrong {
            let error = UCX.parse(&task, &text).expect_err(&text).to_string();
            assert!(error.contains(shown), "{error}");
        }
    }

    #[test]
    fn it_is_run_with_the_data_of_the_other_side_or_a_size_of_its_own() {
        let run = ToolRun { port: 7, count: 500, device: None, address: None };
        let [server, client] = UCX.arguments(&task(Pattern::RoundTrips), &run);
        assert_eq!(server, ["-p", "7"]);
        assert_eq!(client.join(" "), "-p 7 -t tag_lat -f -v -s 64 -n 500 -w 500 127.0.0.1");
        let am = Ucx { test: Test::Am, size: Some(4096) };
        let [_, client] = am.arguments(&task(Pattern::Messages), &run);
        assert!(client.join(" ").contains("-t ucp_am_bw -f -v -s 4096"), "{client:?}");
    }
}
