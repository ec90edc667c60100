//! `fi_pingpong` of libfabric: its arguments and its output.

use super::tool::{OutputError, PackageSource, ToolKind, ToolName, ToolRun, row_under};
use super::{Measure, Pattern, PeerTask, Printed, ToolRound, number, whole_ns};

/// The options behind `fi_pingpong`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Parser)]
#[command(name = "fi_pingpong", no_binary_name = true, disable_version_flag = true)]
pub struct FiPingpong {
    /// Provider, as listed by fi_info: shm, tcp, verbs
    #[arg(short, long, value_name = "NAME", default_value = "shm")]
    pub provider: String,
    /// Type of endpoint: msg, rdm or dgram [default: rdm; tcp: msg]
    #[arg(short, long, value_name = "TYPE")]
    pub endpoint: Option<String>,
    /// Bytes of a message [default: payload of the other side]
    #[arg(short, long, value_name = "BYTES", value_parser = crate::peers::tool::length)]
    pub size: Option<usize>,
}

impl FiPingpong {
    fn endpoint(&self) -> &str {
        let usual = if self.provider == "tcp" { "msg" } else { "rdm" };
        self.endpoint.as_deref().unwrap_or(usual)
    }
}

impl ToolKind for FiPingpong {
    fn what(&self) -> ToolName<'_> {
        let source = PackageSource::Package("libfabric-bin");
        ToolName { name: "fi_pingpong", program: "fi_pingpong", source }
    }

    fn arguments(&self, task: &PeerTask, run: &ToolRun) -> [Vec<String>; 2] {
        let size = self.size.unwrap_or(task.data_len).to_string();
        let (count, port) = (run.count.to_string(), run.port.to_string());
        let both = ["-p", &self.provider, "-e", self.endpoint(), "-I", &count, "-S", &size];
        let with = |more: &[&str]| {
            both.iter().chain(more).map(|argument| (*argument).to_owned()).collect::<Vec<_>>()
        };
        [with(&["-B", &port]), with(&["-P", &port, "127.0.0.1"])]
    }

    fn parse(&self, task: &PeerTask, out: &str) -> Result<ToolRound, OutputError> {
        let row = row_under(HEAD, out.lines())?;
        let wrong = || OutputError::of(row, "a row of eight numbers");
        let columns: Vec<&str> = row.split_whitespace().collect();
        let [_, sent, answered, _, time, mb_per_s, half_us, _] =
            columns[..].try_into().map_err(|_| wrong())?;
        // It sends and answers alike, or something was lost.
        if answered.strip_prefix('=') != Some(sent) || !time.ends_with('s') {
            return Err(wrong());
        }
        let (mb_per_s, half_us) = number(mb_per_s).zip(number(half_us)).ok_or_else(wrong)?;
        let half_us = self.sharper(task, mb_per_s, half_us).ok_or_else(wrong)?;
        // What it sent is printed as 10k: how many there were is known by who asked.
        let count = shortened_count(sent).ok_or_else(wrong)?;
        let value = whole_ns(half_us);
        let figures = vec![Printed { measure: Measure::Mean, value, samples: count }];
        Ok(ToolRound { figures, count })
    }

    fn notes(&self, task: &PeerTask, _device: Option<&str>) -> Vec<String> {
        let (provider, endpoint) = (&self.provider, self.endpoint());
        let size = self.size.unwrap_or(task.data_len);
        vec![
            format!(
                "provider {provider}, endpoint {endpoint}, {size} bytes with headers of its own"
            ),
            "prints the mean of half a round trip, which is doubled here, without a warm-up; no \
             median, no quantile, no maximum, so that means are compared"
                .to_owned(),
        ]
    }

    fn can(&self, pattern: Pattern) -> bool {
        pattern == Pattern::RoundTrips
    }
}

impl FiPingpong {
    /// Half a round trip in us: it is printed with two digits behind the point, and so is its
    /// reciprocal, the bandwidth. The one with more digits is taken; both must say the same.
    fn sharper(&self, task: &PeerTask, mb_per_s: f64, half_us: f64) -> Option<f64> {
        let size = self.size.unwrap_or(task.data_len) as f64;
        if size == 0.0 || mb_per_s == 0.0 {
            return Some(half_us);
        }
        let by_bytes = size / mb_per_s;
        let tolerance = ROUNDING / mb_per_s * by_bytes + ROUNDING;
        if (by_bytes - half_us).abs() > tolerance * 1.01 {
            return None;
        }
        Some(if mb_per_s > half_us { by_bytes } else { half_us })
    }
}

/// A count as it is printed: 800, 10k, 1m.
fn shortened_count(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['k', 'm', 'g']);
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

const HEAD: &str = "bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec";
/// Half of the last digit.
const ROUNDING: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(provider: &str) -> FiPingpong {
        FiPingpong { provider: provider.into(), endpoint: None, size: None }
    }

    fn task(data_len: usize) -> PeerTask {
        PeerTask { pattern: Pattern::RoundTrips, data_len, wire_len: 136 }
    }

    const SHORT: &str = include_str!("../../tests/peers/fi_pingpong-1.17-shm-64.txt");

    #[test]
    fn a_mean_is_taken_from_the_column_with_more_digits() {
        for (text, data_len, whole_ns, count) in [
            (SHORT, 64, 2.0 * 64.0 / 59.18 * 1e3, 10_000),
            (include_str!("../../tests/peers/fi_pingpong-1.17-tcp-64.txt"), 64, 106_840.0, 10_000),
            (
                include_str!("../../tests/peers/fi_pingpong-1.17-shm-4096.txt"),
                4096,
                2.0 * 4096.0 / 843.28 * 1e3,
                100_000,
            ),
        ] {
            let round = tool("shm").parse(&task(data_len), text).expect("it is what 1.17 prints");
            let [Printed { measure: Measure::Mean, value, samples }] = round.figures[..] else {
                panic!("a mean and nothing else: {round:?}");
            };
            assert!((value / whole_ns - 1.0).abs() < 1e-9, "{value}");
            assert_eq!((samples, round.count), (count, count));
        }
    }

    #[test]
    fn other_shapes_are_errors_that_show_the_line() {
        let wrong = [
            (String::new(), "nothing"),
            (SHORT.replace("usec/xfer", "nsec/xfer"), "nsec/xfer"),
            (SHORT.replace("=10k", "=9k"), "=9k"),
            (SHORT.replace("1.08", "1.18"), "1.18"),
            (SHORT.replace("1.08", "x"), "59.18"),
            (SHORT.replace("0.92", ""), "59.18"),
            (format!("{SHORT}and more\n"), "and more"),
        ];
        for (text, shown) in wrong {
            let error = tool("shm").parse(&task(64), &text).expect_err(&text).to_string();
            assert!(error.contains(shown), "{error}");
        }
    }

    #[test]
    fn counts_are_printed_short() {
        for (text, count) in [("800", 800), ("10k", 10_000), ("1m", 1_000_000)] {
            assert_eq!(shortened_count(text), Some(count));
        }
        for wrong in ["", "k", "1.2m", "10kk", "x"] {
            assert_eq!(shortened_count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn tcp_has_endpoints_with_connections_unless_others_are_requested() {
        let run = ToolRun { port: 9, count: 10, device: None, address: None };
        let [server, client] = tool("tcp").arguments(&task(64), &run);
        assert_eq!(server.join(" "), "-p tcp -e msg -I 10 -S 64 -B 9");
        assert_eq!(client.join(" "), "-p tcp -e msg -I 10 -S 64 -P 9 127.0.0.1");
        assert_eq!(tool("shm").endpoint(), "rdm");
    }
}
