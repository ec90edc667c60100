//! `ib_send_lat` and `ib_send_bw` of perftest: their arguments and their output.
//!
//! On a device of iWARP the queue pair is connected by the connection manager (`-R`), which reaches
//! the server at an address of the device. Of some 40 runs on siw of a busy host one hung before its
//! first message, or was refused: such a run is repeated. On any other device perftest agrees over a TCP
//! socket.

use std::path::Path;

use super::process::Listening;
use super::tool::{OutputError, PackageSource, ToolKind, ToolName, ToolRun, row_under};
use super::{Measure, Pattern, PeerTask, Printed, ToolRound, number, whole_ns};
use crate::machine::address::{self, CLASS};
use crate::machine::files::Files;

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

/// The options behind `ib_send_bw`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Parser)]
#[command(name = "ib_send_bw", no_binary_name = true, disable_version_flag = true)]
pub struct IbSendBw {
    /// Device [default: that of the other side, or the first]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Bytes of a message [default: wire length of a call of the other side]
    #[arg(short, long, value_name = "BYTES", value_parser = crate::peers::tool::length)]
    pub size: Option<usize>,
}

impl ToolKind for IbSendLat {
    fn what(&self) -> ToolName<'_> {
        ToolName { name: "ib_send_lat", program: "ib_send_lat", source: PACKAGE }
    }

    fn arguments(&self, task: &PeerTask, run: &ToolRun) -> [Vec<String>; 2] {
        arguments(&system(), size(self.size, task), self.device.as_deref(), run, &[])
    }

    fn parse(&self, task: &PeerTask, out: &str) -> Result<ToolRound, OutputError> {
        let (row, values) = numbers(HEAD, out, "a row of nine numbers")?;
        let [bytes, count, min, max, median, mean, _, p99, p999] = values;
        if bytes as usize != size(self.size, task) {
            return Err(OutputError::of(row, "as many bytes as it was asked for"));
        }
        let times = [median, mean, min, p99, p999, max].map(whole_ns);
        Ok(ToolRound::of_times(count as u64, times))
    }

    fn notes(&self, task: &PeerTask, device: Option<&str>) -> Vec<String> {
        vec![
            on_the_wire(size(self.size, task), self.device.as_deref().or(device)),
            "prints half of a round trip, which is doubled here, in hundredths of a us; drops its \
             two longest round trips, so that its maximum is the third longest"
                .to_owned(),
        ]
    }

    fn can(&self, pattern: Pattern) -> bool {
        pattern == Pattern::RoundTrips
    }

    fn listens(&self, device: Option<&str>) -> Option<Listening> {
        Some(listening(&system(), self.device.as_deref().or(device)))
    }

    fn attempts(&self, device: Option<&str>) -> u32 {
        attempts(self.device.as_deref().or(device))
    }

    fn missing(&self) -> Option<String> {
        no_device()
    }
}

impl ToolKind for IbSendBw {
    fn what(&self) -> ToolName<'_> {
        ToolName { name: "ib_send_bw", program: "ib_send_bw", source: PACKAGE }
    }

    fn arguments(&self, task: &PeerTask, run: &ToolRun) -> [Vec<String>; 2] {
        // In bits: the unit of its bytes differs from version to version.
        let (files, device) = (system(), self.device.as_deref());
        arguments(&files, size(self.size, task), device, run, &["--report_gbits"])
    }

    fn parse(&self, task: &PeerTask, out: &str) -> Result<ToolRound, OutputError> {
        let (row, values) = numbers(HEAD_BW, out, "a row of five numbers")?;
        let [bytes, count, _, gigabits, millions] = values;
        if bytes as usize != size(self.size, task) {
            return Err(OutputError::of(row, "as many bytes as it was asked for"));
        }
        let count = count as u64;
        let printed = |measure, value| Printed { measure, value, samples: count };
        let rate = printed(Measure::Rate, millions * 1e6 / 2.0);
        Ok(ToolRound { figures: vec![printed(Measure::Data, gigabits / 8.0), rate], count })
    }

    fn notes(&self, task: &PeerTask, device: Option<&str>) -> Vec<String> {
        vec![
            on_the_wire(size(self.size, task), self.device.as_deref().or(device)),
            "messages go one way, 128 of them in flight: half of them are taken as the rate of \
             round trips, of which each has two"
                .to_owned(),
        ]
    }

    fn can(&self, pattern: Pattern) -> bool {
        pattern == Pattern::Messages
    }

    fn listens(&self, device: Option<&str>) -> Option<Listening> {
        Some(listening(&system(), self.device.as_deref().or(device)))
    }

    fn attempts(&self, device: Option<&str>) -> u32 {
        attempts(self.device.as_deref().or(device))
    }

    fn missing(&self) -> Option<String> {
        no_device()
    }
}

/// Bytes of a message: neither tool can send nothing.
fn size(asked: Option<usize>, task: &PeerTask) -> usize {
    asked.unwrap_or(task.wire_len).max(1)
}

/// The arguments of the server and of the client, with `more` for both.
fn arguments(
    files: &Files,
    size: usize,
    device: Option<&str>,
    run: &ToolRun,
    more: &[&str],
) -> [Vec<String>; 2] {
    let named = device.or(run.device.as_deref());
    let iwarp = iwarp(files, named);
    let (count, port) = (run.count.max(COUNT_MIN).to_string(), run.port.to_string());
    let (len, inline) = (size.to_string(), size.min(INLINE).to_string());
    let mut both = vec!["-F", "-p", &port, "-s", &len, "-n", &count];
    both.extend(more);
    if iwarp.is_some() {
        both.extend(["-R", "-I", "0"]);
    } else if size <= INLINE {
        both.extend(["-I", &inline]);
    }
    if let Some(device) = iwarp.as_deref().or(named) {
        both.extend(["-d", device]);
    }
    let mut client = both.clone();
    let address = run.address.or_else(|| address::of_device(files, iwarp.as_deref()?));
    let address = address.map_or_else(|| "127.0.0.1".to_owned(), |at| at.to_string());
    client.push(&address);
    [both, client].map(|side| side.into_iter().map(str::to_owned).collect())
}

/// The device of this name, or the first without one, if it is one of iWARP.
fn iwarp(files: &Files, named: Option<&str>) -> Option<String> {
    let name = named.map(str::to_owned).or_else(|| files.names(CLASS).into_iter().next())?;
    let kind = files.text(&format!("{CLASS}/{name}/node_type"))?;
    kind.ends_with("RNIC").then_some(name)
}

/// Where a server listens. Drivers of adapters state their type, siw has none.
fn listening(files: &Files, device: Option<&str>) -> Listening {
    match iwarp(files, device) {
        Some(name) if files.has(&format!("{CLASS}/{name}/hca_type")) => Listening::OnDevice,
        _ => Listening::OnHost,
    }
}

/// How often a run is tried.
fn attempts(device: Option<&str>) -> u32 {
    if iwarp(&system(), device).is_some() { ATTEMPTS } else { 1 }
}

/// The row of numbers under these names of columns, and its line.
fn numbers<'a, const N: usize>(
    head: &str,
    out: &'a str,
    expected: &'static str,
) -> Result<(&'a str, [f64; N]), OutputError> {
    let is_head = |line: &str| line.trim_start().starts_with("#bytes");
    if !out.lines().any(is_head) {
        let first = out.lines().next().unwrap_or_default();
        return Err(OutputError::of(first, "a line that begins with #bytes"));
    }
    let row = row_under(head, out.lines().skip_while(|line| !is_head(line)))?;
    let values: Option<Vec<f64>> = row.split_whitespace().map(number).collect();
    let values = values.and_then(|values| values.try_into().ok());
    values.map(|values| (row, values)).ok_or_else(|| OutputError::of(row, expected))
}

fn on_the_wire(size: usize, device: Option<&str>) -> String {
    let how = match iwarp(&system(), device) {
        Some(_) => "; not inline, as iWARP devices differ in what they take",
        None => "",
    };
    format!("{size} bytes, which are all there is on the wire: no protocol above Send{how}")
}

/// A device: without one they have nothing to send on.
fn no_device() -> Option<String> {
    let is_there = !system().names(CLASS).is_empty();
    (!is_there).then(|| "an RDMA device, and this machine has none".to_owned())
}

/// The files of this machine.
fn system() -> Files {
    Files::new(Path::new("/"))
}

const PACKAGE: PackageSource = PackageSource::Package("perftest");
const HEAD: &str = "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] \
    t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]";
const HEAD_BW: &str = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]";
/// The longest message that is sent inline: what perftest takes for devices that it knows.
const INLINE: usize = 236;
const COUNT_MIN: u64 = 5;
/// On iWARP.
const ATTEMPTS: u32 = 3;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::testing::Folder;

    const TOOL: IbSendLat = IbSendLat { device: None, size: None };
    const BW: IbSendBw = IbSendBw { device: None, size: None };
    const OUT_BW: &str = include_str!("../../tests/peers/ib_send_bw-4.5-64.txt");
    const OUT: &str = include_str!("../../tests/peers/ib_send_lat-4.5-64.txt");

    fn task(wire_len: usize) -> PeerTask {
        PeerTask { pattern: Pattern::RoundTrips, data_len: 1, wire_len }
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
    fn messages_that_go_one_way_are_half_as_many_round_trips() {
        let messages = PeerTask { pattern: Pattern::Messages, ..task(64) };
        let round = BW.parse(&messages, OUT_BW).expect("it is what 4.5 prints");
        let of = |measure| round.find(measure).expect("it is printed").value;
        assert_eq!((round.count, of(Measure::Rate).round()), (1000, 3747.0));
        assert!((of(Measure::Data) - 0.003837 / 8.0).abs() < 1e-9, "gigabits");
        assert!(BW.can(Pattern::Messages) && !BW.can(Pattern::RoundTrips));
        for wrong in [OUT_BW.replace("[Gb/sec]", "[MB/sec]"), OUT_BW.replace(" 64  ", " 65  ")] {
            assert!(BW.parse(&messages, &wrong).is_err());
        }
        let run = ToolRun { port: 9, count: 10, device: Some("rxe0".into()), address: None };
        let [server, client] = BW.arguments(&messages, &run);
        assert_eq!(server.join(" "), "-F -p 9 -s 64 -n 10 --report_gbits -I 64 -d rxe0");
        assert_eq!(client.last().map(String::as_str), Some("127.0.0.1"));
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
        let run = ToolRun { port: 9, count: 10, device: Some("rxe0".into()), address };
        let [server, client] = TOOL.arguments(&task(136), &run);
        assert_eq!(server.join(" "), "-F -p 9 -s 136 -n 10 -I 136 -d rxe0");
        assert_eq!(client.last().map(String::as_str), Some("10.0.0.1"));
        let [server, _] = TOOL.arguments(&task(4096), &ToolRun { device: None, ..run });
        assert_eq!(server.join(" "), "-F -p 9 -s 4096 -n 10");
    }

    #[test]
    fn on_iwarp_the_connection_manager_connects_at_an_address_of_the_device() {
        let root = Folder::new("perftest");
        let (siw, rxe) = (format!("{CLASS}/siw0"), format!("{CLASS}/zxe0"));
        root.write(&format!("{siw}/node_type"), "4: RNIC");
        root.write(&format!("{siw}/ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001");
        root.write(&format!("{rxe}/node_type"), "1: CA");
        let files = Files::new(root.path());
        let run = |device: Option<&str>, address| {
            let run = ToolRun { port: 9, count: 10, device: device.map(str::to_owned), address };
            arguments(&files, 136, None, &run, &[]).map(|side| side.join(" "))
        };
        let options = "-F -p 9 -s 136 -n 10 -R -I 0 -d siw0";
        for device in [Some("siw0"), None] {
            let [server, client] = run(device, None);
            assert_eq!((server.as_str(), client), (options, format!("{options} 10.0.0.1")));
        }
        let [_, client] = run(Some("siw0"), Some(Ipv4Addr::new(10, 0, 0, 7).into()));
        assert_eq!(client, format!("{options} 10.0.0.7"));
        let [_, client] = run(Some("zxe0"), None);
        assert_eq!(client, "-F -p 9 -s 136 -n 10 -I 136 -d zxe0 127.0.0.1");
        assert_eq!(listening(&files, Some("siw0")), Listening::OnHost);
        root.write(&format!("{siw}/hca_type"), "T6");
        assert_eq!(listening(&files, Some("siw0")), Listening::OnDevice);
    }
}
