//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rpcrdma_config::units::{Length, parse_duration, parse_length};

use crate::cores::CorePair;

/// Latency and throughput of RPC-over-RDMA, beside the floor of the machine.
///
/// Two threads on two cores, a client and a server, over the software fabric or an RDMA device.
/// Without a mode it runs `lat`: the round trip of a 64 byte echo.
#[derive(Debug, Clone, Parser)]
#[command(name = "rpcrdma-bench", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    /// What to measure
    #[arg(value_enum)]
    pub mode: Option<Mode>,

    /// What one call does
    #[arg(long, value_enum, help_heading = CALL)]
    pub op: Option<Op>,
    /// Data bytes of a request, and of a reply that carries data: 64, 4KiB, 1MiB
    /// [default: 64; read and write: 4KiB; bw: 64KiB; distance: 4, 16, 64 and 256 KiB]
    #[arg(short, long, value_name = "BYTES", value_parser = length, help_heading = CALL)]
    pub size: Option<usize>,
    /// Data bytes of an echo's reply, if other than those of the request
    #[arg(long, value_name = "BYTES", value_parser = length, help_heading = CALL)]
    pub reply: Option<usize>,
    /// How data travel [default: inline; bw: send]
    #[arg(short, long, value_enum, help_heading = CALL)]
    pub placement: Option<Placement>,
    /// Whether a message may take several Sends
    #[arg(long, value_enum, default_value = "on", help_heading = CALL)]
    pub continuation: Switch,
    /// What the receiver of data does with them; one message in 1024 is compared in any case
    #[arg(long, value_enum, default_value = "lines", help_heading = CALL)]
    pub touch: Touch,

    /// Round trips under way at one time, over all connections
    /// [default: 1; rate: 32; bw: 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: Option<u32>,
    /// Connections between the two shards
    #[arg(short = 'k', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub connections: u32,
    /// Sends of `raw` for one doorbell, as in 1,4,16: powers of two up to 32, a contender of each
    /// [default: as many as there are to be sent]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = per_post)]
    pub sends_per_post: Vec<u32>,
    /// Beside the others, fstat(2) of a file: one GETATTR each on an NFS mount with `noac`
    #[arg(long, value_name = "FILE")]
    pub stat: Option<PathBuf>,
    /// One-way delays of `distance`, as in 5us,50us [default: 0us,5us,50us,500us]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = delay)]
    pub delay: Vec<Duration>,
    /// The client's core and the server's, as in 2,3 [default: picked]
    #[arg(short, long, value_name = "C,S")]
    pub cores: Option<CorePair>,

    /// Over what: the software fabric, or an RDMA device through libibverbs
    #[arg(long, value_enum, default_value = "fabric", help_heading = DEVICE)]
    pub provider: Over,
    /// The device, as ibv_devices names it [default: the one with the address, or the first]
    #[arg(short, long, value_name = "NAME", help_heading = DEVICE)]
    pub device: Option<String>,
    /// An address of the device, where the server listens [default: its first IPv4 address]
    #[arg(short, long, value_name = "ADDRESS", help_heading = DEVICE)]
    pub address: Option<IpAddr>,

    /// What the engine's threads do when idle [default: spin, or as the file says]
    #[arg(long, value_enum, help_heading = ENGINE)]
    pub idle: Option<Idle>,
    /// How long short messages wait for others to leave with them, as in 50us [default: 0us, or as
    /// the file says]
    #[arg(long, value_name = "TIME", value_parser = delay, help_heading = ENGINE)]
    pub hold: Option<Duration>,
    /// A profile that comes with the engine: latency, storage, laptop
    /// [default: latency; for data over 4 KiB: storage without memory for many clients]
    #[arg(long, value_name = "NAME", help_heading = ENGINE)]
    pub profile: Option<String>,
    /// A configuration file; limits that the run needs higher are raised
    #[arg(long, value_name = "FILE", conflicts_with = "profile", help_heading = ENGINE)]
    pub config: Option<PathBuf>,

    /// Measured time of each contender, spread over the rounds [default: 2; distance: 0.3]
    #[arg(short = 't', long, value_name = "S", value_parser = seconds, help_heading = LENGTH)]
    pub seconds: Option<Duration>,
    /// Measured round trips of each contender, spread over the rounds, in place of a time
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "seconds", help_heading = LENGTH)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Round trips at the start of each round that are not counted [default: 2000; distance: 10]
    #[arg(long, value_name = "N", help_heading = LENGTH)]
    pub warm_up: Option<u64>,
    /// Rounds; contenders take turns, A B C then C B A
    #[arg(short, long, value_name = "N", default_value_t = 10, help_heading = LENGTH)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Also write the result as JSON to a file; `-` writes JSON, and nothing else, to the output
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
    /// No progress on the terminal
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,
}

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The machine alone: as many cache lines there and back as the RPC has bytes, no protocol
    Floor,
    /// The provider without RPC: Sends of as many bytes there and back, beside the floor
    Raw,
    /// The round trip of an RPC, beside raw and the floor
    Lat,
    /// RPCs per second with many under way, beside raw and the floor
    Rate,
    /// Bytes per second of large reads or writes, beside raw and the floor
    Bw,
    /// Reads and writes over a distance, by explicit RDMA and by Sends: round trips and times
    Distance,
}

impl Mode {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Floor => "floor",
            Mode::Raw => "raw",
            Mode::Lat => "lat",
            Mode::Rate => "rate",
            Mode::Bw => "bw",
            Mode::Distance => "distance",
        }
    }
}

/// What carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// The software fabric, within this process
    Fabric,
    /// An RDMA device
    Verbs,
}

/// What one call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// A call without arguments and a reply without results
    Null,
    /// The reply brings back the bytes of the request
    Echo,
    /// A short request, data in the reply
    Read,
    /// Data in the request, a short reply
    Write,
}

impl Op {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Op::Null => "null",
            Op::Echo => "echo",
            Op::Read => "read",
            Op::Write => "write",
        }
    }
}

/// How data travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// In the payload stream, copied by the program
    Inline,
    /// Placed by Sends into segments of the receiver's buffers, without a copy by the engine
    Send,
}

impl Placement {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Inline => "inline",
            Placement::Send => "send",
        }
    }
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It may
    On,
    /// It may not
    Off,
}

/// What the receiver of data does with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Touch {
    /// Nothing
    None,
    /// Reads the first byte of each cache line
    Lines,
    /// Compares every byte
    All,
}

impl Touch {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Touch::None => "none",
            Touch::Lines => "lines",
            Touch::All => "all",
        }
    }
}

/// What a thread does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// Polls on
    Spin,
    /// Polls for a while, then pauses longer and longer
    Backoff,
    /// Polls for a while, then sleeps until something happens
    Block,
}

impl Idle {
    /// As a configuration file has it.
    pub fn name(self) -> &'static str {
        match self {
            Idle::Spin => "spin",
            Idle::Backoff => "backoff",
            Idle::Block => "block",
        }
    }
}

/// A length: bytes, or a number with `KiB` or `MiB` as in a configuration file.
fn length(text: &str) -> Result<usize, String> {
    let bytes = match text.parse::<u64>() {
        Ok(bytes) => bytes,
        Err(_) => parse_length(text).map_err(|error| error.to_string())?,
    };
    let most = format!("at most {}", Length(LENGTH_MAX));
    usize::try_from(bytes).ok().filter(|_| bytes <= LENGTH_MAX).ok_or(most)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, as in 2 or 0.5")?;
    if !(0.001..=3600.0).contains(&seconds) {
        return Err("0.001 to 3600 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn per_post(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count: &u32| count.is_power_of_two() && *count <= 32);
    count.ok_or_else(|| "1, 2, 4, 8, 16 or 32".into())
}

/// A time from one side to the other, in whole microseconds.
fn delay(text: &str) -> Result<Duration, String> {
    let delay = parse_duration(text).map_err(|error| error.to_string())?;
    if delay > DELAY_MAX || !delay.subsec_nanos().is_multiple_of(1000) {
        return Err("0us to 100ms, in whole microseconds".into());
    }
    Ok(delay)
}

/// The longest delay: a call then takes some tenths of a second.
const DELAY_MAX: Duration = Duration::from_millis(100);
/// The longest request or reply.
const LENGTH_MAX: u64 = 64 << 20;

const CALL: &str = "The call";
const DEVICE: &str = "The device";
const ENGINE: &str = "The engine";
const LENGTH: &str = "The length of the run";
const OUTPUT: &str = "Output";

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench                           round trip of a 64 byte echo, with the floor beside it
  rpcrdma-bench lat --op read -p send     4 KiB placed into a page of the client
  rpcrdma-bench rate -k 1024              32 calls under way, over 1024 connections
  rpcrdma-bench bw --op write -s 1MiB     large writes, placed, GB/s
  rpcrdma-bench distance                  round trips of reads and writes, and what they cost
  rpcrdma-bench floor -w 32               what this machine can do at best
  rpcrdma-bench lat --json - | jq .       for a program to read
  rpcrdma-bench lat --provider verbs      over the first RDMA device of this machine

Times are of closed loops: a request leaves when a reply has come. A run that another program
disturbed is marked noisy; its ratios still mean something, its tails do not.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn lengths_have_units_or_are_bytes() {
        assert_eq!(length("64"), Ok(64));
        assert_eq!(length("64B"), Ok(64));
        assert_eq!(length("4KiB"), Ok(4096));
        assert_eq!(length("1MiB"), Ok(1 << 20));
        assert_eq!(length("64MiB"), Ok(64 << 20));
        for wrong in ["", "KiB", "4KB", "-1", "1GiB", "67108865", "99999999999999999999"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction_and_have_bounds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "NaN", "inf", "3601"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn delays_are_whole_microseconds_and_have_a_bound() {
        assert_eq!(delay("0us"), Ok(Duration::ZERO));
        assert_eq!(delay("100ms"), Ok(DELAY_MAX));
        for wrong in ["5", "us", "-1us", "101ms", "1500ns"] {
            assert!(delay(wrong).is_err(), "{wrong}");
        }
        let args = Args::try_parse_from(["rpcrdma-bench", "distance", "--delay", "5us,50us"]);
        let delays = args.expect("it parses").delay;
        assert_eq!(delays, [5, 50].map(Duration::from_micros));
    }

    #[test]
    fn sends_per_post_are_powers_of_two() {
        let args = Args::try_parse_from(["rpcrdma-bench", "rate", "--sends-per-post", "1,4,16"]);
        assert_eq!(args.expect("it parses").sends_per_post, [1, 4, 16]);
        for wrong in ["0", "3", "64", "x"] {
            assert!(per_post(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_and_a_count_exclude_each_other() {
        assert!(Args::try_parse_from(["rpcrdma-bench", "-t", "1", "-n", "5"]).is_err());
        assert!(Args::try_parse_from(["rpcrdma-bench", "-n", "0"]).is_err());
    }

    #[test]
    fn no_options_are_a_valid_command() {
        let args = Args::try_parse_from(["rpcrdma-bench"]).expect("everything has a default");
        assert_eq!((args.mode, args.rounds, args.warm_up), (None, 10, None));
    }

    #[test]
    fn the_help_has_examples() {
        let help = Args::command().render_help().to_string();
        assert!(help.contains("Examples:") && help.contains("rpcrdma-bench rate -k 1024"));
    }
}
