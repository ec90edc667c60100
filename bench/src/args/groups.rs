//! Groups of options shared by modes: call, engine, device, length.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rpcrdma::{Address, Config, ProviderKind, provider_for};
use rpcrdma_config::Raw;

use super::parse::{address, delay, length, provider, seconds};
use crate::call::{Load, Shape};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::stats::{End, Quota};
use crate::values::{Idle, Op, Placement, Switch, Touch};

/// What one call does.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The call")]
pub struct CallArgs {
    /// Operation of a call [default: echo; bw: read]
    #[arg(long, value_enum)]
    pub op: Option<Op>,
    /// Payload bytes of a request, and of a reply that carries data: 64, 4KiB, 1MiB
    /// [default: 64; read and write: 4KiB; bw: 64KiB]
    #[arg(short, long, value_name = "BYTES", value_parser = length)]
    pub size: Option<usize>,
    /// Payload bytes of an echo's reply, if different from the request
    #[arg(long, value_name = "BYTES", value_parser = length)]
    pub reply: Option<usize>,
    /// How payload is transferred [default: inline; bw: send]
    #[arg(short, long, value_enum)]
    pub placement: Option<Placement>,
    /// Whether a message may take several Sends
    #[arg(long, value_enum, default_value = "on")]
    pub continuation: Switch,
    /// What the receiver reads of the payload; one message in 1024 is always compared
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
    /// Round trips in flight (queue depth), over all connections
    /// [default: 1; rate: 32; bw: 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub window: Option<u32>,
    /// Connections between client and server
    #[arg(short = 'k', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub connections: u32,
}

#[derive(Debug, Clone, Args)]
pub struct CoreArgs {
    /// Cores of client and server, as in 2,3 [default: selected by the program]
    #[arg(short, long, value_name = "C,S")]
    pub cores: Option<CorePair>,
}

/// What carries the messages.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The device")]
pub struct DeviceArgs {
    /// Provider; but for fabric and verbs, the server is in a second process
    /// [default: that of the address of --connect, else fabric]
    #[arg(long, value_parser = provider())]
    pub provider: Option<ProviderKind>,
    /// Device name as in ibv_devices [default: the one with the address, or the first]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Address of the device, or with --provider tcp of this host, where the server listens
    /// [default: the device's first IPv4 address; tcp: 127.0.0.1]
    #[arg(short, long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Use `rpcrdma-bench serve` of another host or terminal as the server: for lat, rate, bw and
    /// load
    #[arg(long, value_name = "ADDRESS[:PORT]|shm:PATH", value_parser = address)]
    pub connect: Option<Address>,
}

impl DeviceArgs {
    /// The provider: the one that is asked for, or that an address of a server implies.
    pub fn over(&self) -> ProviderKind {
        self.provider.unwrap_or_else(|| provider_for(&Config::default(), self.connect))
    }

    /// Has a configuration name the device of these options: one that is given here takes the place
    /// of the one that the configuration names.
    pub fn name_in(&self, raw: &mut Raw) {
        raw.engine.provider = self.over().as_str().into();
        if self.over() == ProviderKind::Verbs && (self.device.is_some() || self.address.is_some()) {
            raw.verbs.device = self.device.as_deref().unwrap_or("auto").into();
            raw.verbs.address = self.address.map_or("auto".into(), |it| it.to_string().into());
        }
    }

    pub fn check(&self) -> Result<(), BenchError> {
        let over = self.over();
        let has_address = !matches!(over, ProviderKind::Fabric | ProviderKind::Shm);
        if self.device.is_some() && over != ProviderKind::Verbs
            || self.address.is_some() && !has_address
        {
            let text = "--device is for --provider verbs, and --address for verbs and tcp";
            return Err(BenchError::Usage(text.into()));
        }
        if over != ProviderKind::Shm && matches!(self.connect, Some(Address::Shm(_))) {
            return Err(BenchError::Usage(NOT_SHM.into()));
        }
        if over == ProviderKind::Fabric && self.connect.is_some() {
            let text = "the software fabric lives inside one process, and no other host can be \
                reached over it: --connect is for --provider verbs, tcp or shm";
            return Err(BenchError::Usage(text.into()));
        }
        Ok(())
    }
}

pub(crate) const NOT_SHM: &str = "an address shm:... is one of shared memory: --provider shm";

/// How the engine is set up.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The engine")]
pub struct EngineArgs {
    /// Idle policy of the engine's threads [default: spin, or as in the file]
    #[arg(long, value_enum)]
    pub idle: Option<Idle>,
    /// How long a short message waits to share a doorbell, as in 50us [default: 0us, or as in
    /// the file]
    #[arg(long, value_name = "TIME", value_parser = delay)]
    pub hold: Option<Duration>,
    /// Built-in configuration profile: latency, storage, storage-large, laptop
    /// [default: latency; for data over 4 KiB: storage without memory for many clients]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Configuration file; limits that are too low for the run are raised
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub config: Option<PathBuf>,
}

/// How long a run is.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "The length of the run")]
pub struct LengthArgs {
    /// Measured seconds per contender, divided among the rounds [default: 2; distance: 0.3]
    #[arg(short = 't', long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Measured round trips per contender, divided among the rounds, instead of a time
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "seconds")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Uncounted round trips at the start of each round [default: 2000; distance: 10]
    #[arg(long, value_name = "N")]
    pub warm_up: Option<u64>,
    /// Number of rounds; contenders take turns: A B C, then C B A
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
}

impl LengthArgs {
    /// The share of one round in the whole time or count; `seconds` and `warm_up` are the
    /// defaults of the mode.
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
    /// Seed of the random numbers: the same seed gives the same sequence
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}
