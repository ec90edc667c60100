//! The devices of contenders: of any provider, where its servers listen, and what it is.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use rpcrdma::error::SetupError;
use rpcrdma::provider::DeviceCaps;
use rpcrdma::{Address, Fabric, Provider, ProviderKind};
use rpcrdma_config::Config;
use rpcrdma_config::units::Length;

use super::Place;
use crate::args::DeviceArgs;
use crate::error::BenchError;
use crate::machine::address;
use crate::machine::files::Files;

/// Where contenders find their device, and where servers listen on it.
pub trait Device {
    type Provider: Provider;

    fn open(&self) -> Result<Self::Provider, BenchError>;

    /// Where servers listen; a free port is taken.
    fn at(&self) -> Address;

    /// Where a server is asked to answer, in place of one in this process.
    fn far(&self) -> Option<Place>;

    fn notes(&self) -> Vec<String>;
}

/// A device for each contender, so that one does not inherit the memory state of another.
#[derive(Debug, Clone)]
pub struct Devices<P> {
    open: Open<P>,
    config: Config,
    at: Address,
    far: Option<Place>,
    note: String,
}

/// Opens the device of a configuration.
pub type Open<P> = fn(&Config) -> Result<P, SetupError>;

impl<P: Provider> Devices<P> {
    /// The devices that the configuration names, as overridden by these options
    /// (`DeviceArgs::name_in`), for a mode that runs both ends itself.
    pub fn of_both_ends(
        open: Open<P>,
        args: &DeviceArgs,
        config: &Config,
    ) -> Result<Devices<P>, BenchError> {
        if args.connect.is_some() {
            return Err(BenchError::Usage(BOTH_ENDS.into()));
        }
        Devices::towards(open, args, config)
    }

    /// The same for a client whose server may have been started before, also on another host.
    pub fn towards(
        open: Open<P>,
        args: &DeviceArgs,
        config: &Config,
    ) -> Result<Devices<P>, BenchError> {
        let (kind, first) = (args.over(), open(config)?);
        let at = address(args, config, first.caps())?;
        let far = match kind {
            _ if args.connect.is_some() => args.connect.map(Place::Host),
            // One connects no processes, and of the other both ends may be in one.
            ProviderKind::Fabric | ProviderKind::Verbs => None,
            _ => Some(Place::Process(kind, args.address)),
        };
        let note = format!("{}: {}", kind.as_str(), about(kind, config, first.caps(), at));
        Ok(Devices { open, config: config.clone(), at, far, note })
    }

    /// The device of another configuration, which names the same.
    pub fn open_as(&self, config: &Config) -> Result<P, BenchError> {
        Ok((self.open)(config)?)
    }
}

impl Devices<Fabric> {
    /// Software fabrics, with both ends in this process.
    pub fn fabrics(config: &Config) -> Result<Devices<Fabric>, BenchError> {
        let args = DeviceArgs { provider: Some(ProviderKind::Fabric), ..DeviceArgs::default() };
        Devices::towards(Fabric::from_config, &args, config)
    }
}

impl<P: Provider> Device for Devices<P> {
    type Provider = P;

    fn open(&self) -> Result<P, BenchError> {
        self.open_as(&self.config)
    }

    fn at(&self) -> Address {
        self.at
    }

    fn far(&self) -> Option<Place> {
        self.far
    }

    fn notes(&self) -> Vec<String> {
        vec![self.note.clone()]
    }
}

/// Where the servers of a provider listen: at the address of the device if it has one, else of this
/// host.
fn address(args: &DeviceArgs, config: &Config, caps: &DeviceCaps) -> Result<Address, BenchError> {
    let ip = match args.over() {
        ProviderKind::Shm => return Ok(ANY.parse().expect("the address of any unused socket")),
        ProviderKind::Verbs => config.verbs().address.or_else(|| of_device(&caps.name)),
        _ => Some(args.address.unwrap_or(Ipv4Addr::LOCALHOST.into())),
    };
    let ip = ip.ok_or_else(|| {
        BenchError::Usage(format!("{} has no IPv4 address; name one: --address", caps.name))
    })?;
    Ok(SocketAddr::new(ip, 0).into())
}

fn of_device(name: &str) -> Option<IpAddr> {
    address::of_device(&Files::new(Path::new("/")), name)
}

/// What decides how fast a device is.
fn about(kind: ProviderKind, config: &Config, caps: &DeviceCaps, at: Address) -> String {
    match kind {
        ProviderKind::Fabric => {
            let fabric = config.fabric();
            let (slots, delay_ns) = (fabric.ring_slots, fabric.delay.as_nanos());
            format!("rings of {slots} slots, delay {delay_ns} ns")
        }
        ProviderKind::Shm => {
            let (slots, staging) = (config.shm().ring_slots, config.shm().staging.value());
            format!("rings of {slots} slots, staging areas of {} KiB", staging >> 10)
        }
        ProviderKind::Tcp => {
            let crc = if config.tcp().crc { "with" } else { "without" };
            let longest = Length(config.tcp().message_len.value().into());
            format!("iWARP {crc} checksums, messages of up to {longest}")
        }
        _ => {
            let DeviceCaps { name, inline_len, send_sge, recv_sge, windows, rd_atomic, .. } = caps;
            let ip = at.as_ip().map_or_else(|| at.to_string(), |at| at.ip().to_string());
            format!(
                "{name} at {ip}, up to {inline_len} bytes inline, {send_sge} gather and {recv_sge} \
                 scatter entries, {windows} memory windows, {rd_atomic} Reads at a time"
            )
        }
    }
}

/// An unused abstract socket.
const ANY: &str = "shm:@";
/// Why a mode refuses `--connect`.
const BOTH_ENDS: &str = "this mode runs both ends itself: --connect is for lat, rate, bw and load";
