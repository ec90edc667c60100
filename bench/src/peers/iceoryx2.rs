//! The ping-pong over iceoryx2 of `bench/peers/iceoryx2`: its arguments and its output.

use super::process::Listening;
use super::tool::{OutputError, PackageSource, ToolKind, ToolName, ToolRun, row_under};
use super::{Pattern, PeerTask, ToolRound, number};

/// The options behind `iceoryx2`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Parser)]
#[command(name = "iceoryx2", no_binary_name = true, disable_version_flag = true)]
pub struct Iceoryx2 {
    /// File of the program, if it is not on the PATH
    #[arg(long, value_name = "FILE", default_value = "rpcrdma-peer-iceoryx2")]
    pub program: String,
    /// Bytes of a message [default: payload of the other side]
    #[arg(short, long, value_name = "BYTES", value_parser = crate::peers::tool::length)]
    pub size: Option<usize>,
}

impl Iceoryx2 {
    fn size(&self, task: &PeerTask) -> usize {
        self.size.unwrap_or(task.data_len)
    }
}

impl ToolKind for Iceoryx2 {
    fn what(&self) -> ToolName<'_> {
        let source = PackageSource::Crate("bench/peers/iceoryx2");
        ToolName { name: "iceoryx2", program: &self.program, source }
    }

    fn arguments(&self, task: &PeerTask, run: &ToolRun) -> [Vec<String>; 2] {
        // A free port's number: no other run has the name.
        let name = format!("rpcrdma-bench-{}", run.port);
        let numbers = [self.size(task) as u64, run.count, run.count.min(WARM_UP)];
        ["server", "client"].map(|side| {
            let words = [side.to_owned(), name.clone()].into_iter();
            words.chain(numbers.map(|number| number.to_string())).collect()
        })
    }

    fn parse(&self, _task: &PeerTask, out: &str) -> Result<ToolRound, OutputError> {
        let row = row_under(HEAD, out.lines())?;
        let values: Option<Vec<f64>> = row.split(',').map(number).collect();
        let wrong = || OutputError::of(row, "a row of seven numbers");
        let [count, min, median, mean, p99, p999, max] =
            values.and_then(|values| values.try_into().ok()).ok_or_else(wrong)?;
        Ok(ToolRound::of_times(count as u64, [median, mean, min, p99, p999, max]))
    }

    fn notes(&self, task: &PeerTask, _device: Option<&str>) -> Vec<String> {
        vec![format!(
            "publish-subscribe of {} bytes with headers of its own; both sides poll; whole round \
             trips, every one timed",
            self.size(task)
        )]
    }

    fn can(&self, pattern: Pattern) -> bool {
        pattern == Pattern::RoundTrips
    }

    fn listens(&self, _device: Option<&str>) -> Option<Listening> {
        None
    }
}

const HEAD: &str = "count,min,p50,mean,p99,p99.9,max";
const WARM_UP: u64 = 10_000;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::peers::Measure;

    const TASK: PeerTask = PeerTask { pattern: Pattern::RoundTrips, data_len: 64, wire_len: 136 };
    const OUT: &str = "count,min,p50,mean,p99,p99.9,max\n2000,269,301,551.7,3199,4404,57606\n";

    fn peer(options: &[&str]) -> Iceoryx2 {
        Iceoryx2::try_parse_from(options).expect("they parse")
    }

    #[test]
    fn whole_round_trips_are_taken_as_they_are() {
        let round = peer(&[]).parse(&TASK, OUT).expect("it is what it prints");
        let of = |measure| round.find(measure).expect("it is printed");
        assert_eq!((round.count, of(Measure::Median).samples), (2000, 2000));
        assert_eq!((of(Measure::Min).value, of(Measure::Median).value), (269.0, 301.0));
        assert_eq!((of(Measure::Mean).value, of(Measure::P99).value), (551.7, 3199.0));
        assert_eq!((of(Measure::P999).value, of(Measure::Max).value), (4404.0, 57_606.0));
    }

    #[test]
    fn other_shapes_are_errors_that_show_the_line() {
        let wrong = [
            (String::new(), "nothing"),
            (OUT.replace("p50", "p51"), "p51"),
            (OUT.replace("301", "301ns"), "301ns"),
            (OUT.replace(",57606", ""), "4404"),
            (format!("{OUT}and more\n"), "and more"),
        ];
        for (text, shown) in wrong {
            let error = peer(&[]).parse(&TASK, &text).expect_err(&text).to_string();
            assert!(error.contains(shown), "{error}");
        }
    }

    #[test]
    fn both_sides_have_one_name_and_as_many_messages() {
        let run = ToolRun { port: 7, count: 500, device: None, address: None };
        let [server, client] = peer(&[]).arguments(&TASK, &run);
        assert_eq!(server.join(" "), "server rpcrdma-bench-7 64 500 500");
        assert_eq!(client.join(" "), "client rpcrdma-bench-7 64 500 500");
        let run = ToolRun { count: 20_000, ..run };
        let [_, client] = peer(&["-s", "4KiB"]).arguments(&TASK, &run);
        assert_eq!(client.join(" "), "client rpcrdma-bench-7 4096 20000 10000");
    }
}
