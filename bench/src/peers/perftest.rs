//! `ib_send_lat` of perftest: its arguments and its output.

use std::fs;

use super::tool::{Kind, Name, Run, Shape, Source, row_under};
use super::{Pattern, Task, ToolRound, number, whole_ns};

/// The options behind `ib_send_lat`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Parser)]
#[command(name = "ib_send_lat", no_binary_name = true, disable_version_flag = true)]
pub struct IbSendLat {
    /// Device [default: that of the other side, or the first]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Bytes of a message [default: wire length of a call of the other side]
    #[arg(short, long, value_name = "BYTES", value_parser = crate::peers::tool::length)]
    pub size: Option<usize>,
}

impl Kind for IbSendLat {
    fn what(&self) -> Name<'_> {
        let source = Source::Package("perftest");
        Name { name: "ib_send_lat", program: "ib_send_lat", source }
    }

    fn arguments(&self, task: &Task, run: &Run) -> [Vec<String>; 2] {
        let size = self.size(task);
        let (count, port) = (run.count.max(COUNT_MIN).to_string(), run.port.to_string());
        let (len, inline) = (size.to_string(), size.min(INLINE).to_string());
        let mut both = vec!["-F", "-p", &port, "-s", &len, "-n", &count];
        if size <= INLINE {
            both.extend(["-I", &inline]);
        }
        if let Some(device) = self.device.as_ref().or(run.device.as_ref()) {
            both.extend(["-d", device]);
        }
        let mut client = both.clone();
        let address = run.address.map_or_else(|| "127.0.0.1".to_owned(), |at| at.to_string());
        client.push(&address);
        [both, client].map(|side| side.into_iter().map(str::to_owned).collect())
    }

    fn parse(&self, task: &Task, out: &str) -> Result<ToolRound, Shape> {
        let is_head = |line: &str| line.trim_start().starts_with("#bytes");
        if !out.lines().any(is_head) {
            let first = out.lines().next().unwrap_or_default();
            return Err(Shape::of(first, "a line that begins with #bytes"));
        }
        let row = row_under(HEAD, out.lines().skip_while(|line| !is_head(line)))?;
        let wrong = || Shape::of(row, "a row of nine numbers");
        let values: Option<Vec<f64>> = row.split_whitespace().map(number).collect();
        let [bytes, count, min, max, median, mean, _, p99, p999] =
            values.and_then(|values| values.try_into().ok()).ok_or_else(wrong)?;
        if bytes as usize != self.size(task) {
            return Err(Shape::of(row, "as many bytes as it was asked for"));
        }
        let times = [median, mean, min, p99, p999, max].map(whole_ns);
        Ok(ToolRound::of_times(count as u64, times))
    }

    fn notes(&self, task: &Task) -> Vec<String> {
        let size = self.size(task);
        vec![
            format!("{size} bytes, which are all there is on the wire: no protocol above Send"),
            "prints half of a round trip, which is doubled here, in hundredths of a us; drops its \
             two longest round trips, so that its maximum is the third longest"
                .to_owned(),
        ]
    }

    fn can(&self, pattern: Pattern) -> bool {
        pattern == Pattern::RoundTrips
    }

    /// A device: without one it has nothing to send on.
    fn missing(&self) -> Option<String> {
        let devices = fs::read_dir("/sys/class/infiniband");
        let is_there = devices.is_ok_and(|mut devices| devices.next().is_some());
        (!is_there).then(|| "an RDMA device, and this machine has none".to_owned())
    }
}

impl IbSendLat {
    fn size(&self, task: &Task) -> usize {
        // It cannot send nothing.
        self.size.unwrap_or(task.wire_len).max(1)
    }
}

const HEAD: &str = "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] \
    t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]";
/// The longest message that is sent inline: what perftest takes for devices that it knows.
const INLINE: usize = 236;
const COUNT_MIN: u64 = 5;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::peers::Measure;

    const TOOL: IbSendLat = IbSendLat { device: None, size: None };
    const OUT: &str = include_str!("../../tests/peers/ib_send_lat-4.5-64.txt");

    fn task(wire_len: usize) -> Task {
        Task { pattern: Pattern::RoundTrips, data_len: 1, wire_len }
    }

    #[test]
    fn every_column_is_found_and_doubled() {
        let round = TOOL.parse(&task(64), OUT).expect("it is what 4.5 prints");
        let of = |measure| round.find(measure).expect("it is printed").value.round();
        assert_eq!(
            (round.count, of(Measure::Min), of(Measure::Median)),
            (2000, 24_380.0, 26_300.0)
        );
        assert_eq!((of(Measure::Mean), of(Measure::Max)), (1_271_480.0, 36_076_020.0));
        assert_eq!((of(Measure::P99), of(Measure::P999)), (24_224_580.0, 32_691_400.0));
    }

    #[test]
    fn other_shapes_are_errors_that_show_the_line() {
        let wrong = [
            (String::new(), "nothing"),
            ("Unable to find device\n".to_owned(), "Unable to find device"),
            (OUT.replace("t_typical[usec]", "t_median[usec]"), "t_median"),
            (OUT.replace("13.15", "n/a"), "n/a"),
            (OUT.replace("2390.19", ""), "12112.29"),
            (OUT.replace(" 64      2000", " 65      2000"), "65"),
            (format!("{OUT} 128 2000 1\n"), "128 2000 1"),
        ];
        for (text, shown) in wrong {
            let error = TOOL.parse(&task(64), &text).expect_err(&text).to_string();
            assert!(error.contains(shown), "{error}");
        }
    }

    #[test]
    fn short_messages_are_sent_inline_on_the_device_of_the_other_side() {
        let address = Some(Ipv4Addr::new(10, 0, 0, 1).into());
        let run = Run { port: 9, count: 10, device: Some("rxe0".into()), address };
        let [server, client] = TOOL.arguments(&task(136), &run);
        assert_eq!(server.join(" "), "-F -p 9 -s 136 -n 10 -I 136 -d rxe0");
        assert_eq!(client.last().map(String::as_str), Some("10.0.0.1"));
        let [server, _] = TOOL.arguments(&task(4096), &Run { device: None, ..run });
        assert_eq!(server.join(" "), "-F -p 9 -s 4096 -n 10");
    }
}
