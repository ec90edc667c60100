//! The table of `ib_send_lat`, or of `ib_send_bw` for a rate.
//!
//! Of the last contender, which is the one that the mode is about. Latencies are half of a round
//! trip, as `ib_send_lat` has them, in microseconds, and the bytes are those of the data. Other than
//! `ib_send_lat`, no sample is dropped: it leaves out its two largest, and computes its deviation in
//! whole cycles. Bandwidth is in 2^20 bytes a second, as `ib_send_bw` has it, of the longer way.

use std::fmt::Write as _;

use super::figure::Figure;
use super::report::Report;
use crate::error::BenchError;

pub fn text(report: &Report) -> Result<String, BenchError> {
    let figures = &report.figures;
    let rate = figures.iter().rfind(|figure| figure.name == "rate" && figure.at.is_none());
    let Some((rate, bytes)) = rate.zip(bytes(report)) else {
        let text = format!("--format perftest has no form for {}", report.mode);
        return Err(BenchError::Usage(text));
    };
    let half = |part: &str| {
        let name = format!("half_round_trip.{part}");
        let one = |figure: &&Figure| figure.of == rate.of && figure.name == name;
        figures.iter().find(one).map(|figure| figure.value / 1e3)
    };
    let values = LATENCIES.map(half);
    let mut out = head(report, rate);
    let written = if values.iter().all(Option::is_some) {
        let [min, max, typical, mean, stdev, p99, p999] = values.map(Option::unwrap_or_default);
        let count = rate.samples;
        out.push_str(LATENCY_HEAD);
        writeln!(
            out,
            " {bytes:<7} {count}          {min:<7.3}        {max:<7.3}      {typical:<7.3}  \t       \
             {mean:<7.3}     \t{stdev:<7.3}\t\t{p99:<7.3} \t\t{p999:<7.3}"
        )
    } else {
        let mib = bytes as f64 / f64::from(1 << 20);
        let peak = rate.rounds.iter().copied().fold(rate.value, f64::max) * mib;
        let (count, average, millions) = (rate.samples, rate.value * mib, rate.value / 1e6);
        out.push_str(RATE_HEAD);
        writeln!(
            out,
            " {bytes:<7}    {count:<10}       {peak:<7.2}            {average:<7.2}\t\t   \
             {millions:<7.6}"
        )
    };
    written.expect("writing to a string does not fail");
    out.push_str(RULE);
    Ok(out)
}

/// The lines above the table: like those of `ib_send_lat`, which no program parses.
fn head(report: &Report, rate: &Figure) -> String {
    let title = if rate.of == "rpc" { "RPC over RDMA" } else { rate.of.as_str() };
    let (what, machine) = (&report.what, &report.environment.machine);
    format!(
        "{RULE}                    {title} Test\n {what}\n {}, Linux {}\n \
         Half of each round trip; no sample is left out\n{RULE}",
        machine.cpu, machine.kernel
    )
}

fn bytes(report: &Report) -> Option<u64> {
    let len = |key: &str| report.settings.get(key)?.as_u64();
    len("request_data_bytes").zip(len("reply_data_bytes")).map(|(there, back)| there.max(back))
}

/// Figures in the order of the columns.
const LATENCIES: [&str; 7] = ["min", "max", "p50", "mean", "stdev", "p99", "p99.9"];
const RULE: &str = "------------------------------------------------------------------------------\
    ---------\n";
const LATENCY_HEAD: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n";
const RATE_HEAD: &str = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   \
    MsgRate[Mpps]\n";
