//! Groups of options that modes share: the call, the engine, the device, the length, the output.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rpcrdma_config::{Config, Raw};

use super::parse::{delay, length, seconds};
use super::values::{Idle, Op, Over, Placement, Switch, Touch};
use crate::contenders::call::{Load, Shape};
use crate::contenders::far;
use crate::device::CorePair;
use crate::error::BenchError;
use crate::output::verdict::Condition;
use crate::settings::{self, Need, Wish};
use crate::stats::{End, Quota};

/// What one call does.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The call")]
pub struct CallArgs {
    /// What one call does [default: echo; bw: read]
    #[arg(long, value_enum)]
    pub op: Option<Op>,
    /// Data bytes of a request, and of a reply that carries data: 64, 4KiB, 1MiB
    /// [default: 64; read and write: 4KiB; bw: 64KiB]
    #[arg(short, long, value_name = "BYTES", value_parser = length)]
    pub size: Option<usize>,
    /// Data bytes of an echo's reply, if other than those of the request
    #[arg(long, value_name = "BYTES", value_parser = length)]
    pub reply: Option<usize>,
    /// How data travel [default: inline; bw: send]
    #[arg(short, long, value_enum)]
    pub placement: Option<Placement>,
    /// Whether a message may take several Sends
    #[arg(long, value_enum, default_value = "on")]
    pub continuation: Switch,
    /// What the receiver of data does with them; one message in 1024 is compared in any case
    #[arg(long, value_enum, default_value = "lines")]
    pub touch: Touch,
}

impl CallArgs {
    /// What one call carries; `usual` is the operation of a mode, and `size` its size if it has one
    /// of its own.
    pub fn shape(&self, usual: Op, size: Option<usize>) -> Result<Shape, BenchError> {
        let op = self.op.unwrap_or(usual);
        if self.reply.is_some() && op != Op::Echo {
            return Err(BenchError::Usage(format!(
                "--reply is the length of an echo's reply; {} has it from --size",
                op.into_str()
            )));
        }
        let size = self.size.or(size).unwrap_or(match op {
            Op::Null | Op::Echo => 64,
            Op::Read | Op::Write => 4096,
        });
        Ok(Shape::new(op, size, self.reply.unwrap_or(size)))
    }

    /// Echoes one after the other over one connection.
    pub fn one_by_one(&self) -> Result<Load, BenchError> {
        Ok(Load {
            shape: self.shape(Op::Echo, None)?,
            placement: self.placement.unwrap_or(Placement::Inline),
            window: 1,
            connections: 1,
            touch: self.touch,
            sinks: 0,
        })
    }
}

/// How many are under way, and over how many connections.
#[derive(Debug, Clone, Args)]
pub struct WindowArgs {
    /// Round trips under way at one time, over all connections
    /// [default: 1; rate: 32; bw: 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: Option<u32>,
    /// Connections between the two shards
    #[arg(short = 'k', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub connections: u32,
}

#[derive(Debug, Clone, Args)]
pub struct CoreArgs {
    /// The client's core and the server's, as in 2,3 [default: picked]
    #[arg(short, long, value_name = "C,S")]
    pub cores: Option<CorePair>,
}

/// What carries the messages.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The device")]
pub struct DeviceArgs {
    /// Over what: the software fabric, or an RDMA device through libibverbs
    #[arg(long, value_enum, default_value = "fabric")]
    pub provider: Over,
    /// The device, as ibv_devices names it [default: the one with the address, or the first]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// An address of the device, where the server listens [default: its first IPv4 address]
    #[arg(short, long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The server is `rpcrdma-bench serve` on another host: for lat, rate, bw and load
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = far::address)]
    pub connect: Option<SocketAddr>,
}

impl DeviceArgs {
    /// Has a configuration name the device of these options: one that is given here takes the place
    /// of the one that the configuration names.
    pub fn name_in(&self, raw: &mut Raw) {
        raw.engine.provider = self.provider.into_str().into();
        if self.device.is_some() || self.address.is_some() {
            raw.verbs.device = self.device.as_deref().unwrap_or("auto").into();
            raw.verbs.address = self.address.map_or("auto".into(), |it| it.to_string().into());
        }
    }

    pub fn check(&self) -> Result<(), BenchError> {
        if self.provider == Over::Fabric && (self.device.is_some() || self.address.is_some()) {
            let text = "--device and --address are for --provider verbs";
            return Err(BenchError::Usage(text.into()));
        }
        if self.provider == Over::Fabric && self.connect.is_some() {
            let text = "the software fabric lives inside one process, and no other host can be \
                reached over it: --connect is for --provider verbs";
            return Err(BenchError::Usage(text.into()));
        }
        Ok(())
    }
}

/// How the engine is set up.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The engine")]
pub struct EngineArgs {
    /// What the engine's threads do when idle [default: spin, or as the file says]
    #[arg(long, value_enum)]
    pub idle: Option<Idle>,
    /// How long short messages wait for others to leave with them, as in 50us [default: 0us, or as
    /// the file says]
    #[arg(long, value_name = "TIME", value_parser = delay)]
    pub hold: Option<Duration>,
    /// A profile that comes with the engine: latency, storage, laptop
    /// [default: latency; for data over 4 KiB: storage without memory for many clients]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// A configuration file; limits that the run needs higher are raised
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub config: Option<PathBuf>,
}

impl EngineArgs {
    /// The configuration that the options ask for, with limits raised to what is needed.
    pub fn config(
        &self,
        need: Need,
        continuation: Switch,
        device: &DeviceArgs,
    ) -> Result<Config, BenchError> {
        let wish = Wish {
            profile: self.profile.clone(),
            file: self.config.clone(),
            idle: self.idle,
            hold: self.hold,
            continuation: continuation == Switch::On,
        };
        let config = settings::config(&wish, need).and_then(|config| {
            let mut raw = config.raw().clone();
            device.name_in(&mut raw);
            Config::try_from(raw)
        });
        config.map_err(BenchError::from)
    }
}

/// How long a run is.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "The length of the run")]
pub struct LengthArgs {
    /// Measured time of each contender, spread over the rounds [default: 2; distance: 0.3]
    #[arg(short = 't', long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Measured round trips of each contender, spread over the rounds, in place of a time
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "seconds")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Round trips at the start of each round that are not counted [default: 2000; distance: 10]
    #[arg(long, value_name = "N")]
    pub warm_up: Option<u64>,
    /// Rounds; contenders take turns, A B C then C B A
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
}

impl LengthArgs {
    /// The share of one round in the whole time or count; `seconds` and `warm_up` are what the mode
    /// takes if nobody says.
    pub fn quota(&self, seconds: Duration, warm_up: u64) -> Quota {
        let end = match self.iterations {
            Some(count) => End::Count(count.div_ceil(u64::from(self.rounds))),
            None => End::Time(self.seconds.unwrap_or(seconds) / self.rounds),
        };
        Quota { warm_up: self.warm_up.unwrap_or(warm_up), end }
    }
}

/// Where what is drawn comes from, in modes that draw: arrivals, resampling, comings and goings.
#[derive(Debug, Clone, Copy, Args)]
pub struct SeedArgs {
    /// Seed of all that is drawn: the same seed, the same draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// What becomes of the result.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// What is printed
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Also write the result as JSON to a file; `-` is --format json
    #[arg(short, long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the result as a page of HTML: plots and all figures in one file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write every figure to a file: a line each, with its unit and its sample count
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write every sample to a file: a log of HdrHistogram
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Fail if a figure is so, as in 'rpc.round_trip.p99>5us' or 'rpc/floor.ratio.median>1.35';
    /// several times. A contender or a quotient, a dot, and a figure, as --format csv lists them
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<Condition>,
    /// Fail if the machine was too noisy for the run to count; --fail-if implies it
    #[arg(long)]
    pub strict: bool,
    /// Take values of options from a recipe: quick, thorough, nic, or a file
    #[arg(long, value_name = "NAME|FILE", help_heading = "Recipes")]
    pub recipe: Option<String>,
    /// No progress on the terminal
    #[arg(short, long)]
    pub quiet: bool,
}

#[cfg(test)]
impl OutputArgs {
    pub(crate) fn of(options: &[&str]) -> OutputArgs {
        use clap::FromArgMatches;

        let command = OutputArgs::augment_args(clap::Command::new("test"));
        let matches = command.try_get_matches_from([&["test"], options].concat());
        OutputArgs::from_arg_matches(&matches.expect("they parse")).expect("they parse")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// Everything, for programs
    Json,
    /// A line for each figure, for spreadsheets
    Csv,
    /// A log of every sample, for the tools of HdrHistogram
    Hdr,
    /// A page with plots, for a browser
    Html,
    /// The table of ib_send_lat, or of ib_send_bw for a rate, for programs that read theirs
    Perftest,
}
