//! TCP, to any host: iWARP in user space.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rpcrdma::{Address, Tcp};
use rpcrdma_config::Config;
use rpcrdma_config::units::Length;

use super::Device;
use super::verbs::BOTH_ENDS;
use crate::args::DeviceArgs;
use crate::device::Place;
use crate::error::BenchError;
use crate::values::Over;

/// TCP, with the server of an RPC in a second process or on another host. What sets up both ends
/// itself has them in one process.
#[derive(Debug, Clone)]
pub struct TcpDevice {
    config: Config,
    ip: IpAddr,
    far: Place,
}

impl TcpDevice {
    /// TCP as configured. The second process is started by this one.
    pub fn open(args: &DeviceArgs, config: &Config) -> Result<TcpDevice, BenchError> {
        if args.connect.is_some() {
            return Err(BenchError::Usage(BOTH_ENDS.into()));
        }
        TcpDevice::towards(args, config)
    }

    /// The same, where the second process may be one that was started before, on any host.
    pub fn towards(args: &DeviceArgs, config: &Config) -> Result<TcpDevice, BenchError> {
        let far = args.connect.map_or(Place::Process(Over::Tcp, args.address), Place::Host);
        let ip = args.address.unwrap_or(Ipv4Addr::LOCALHOST.into());
        Ok(TcpDevice { config: config.clone(), ip, far })
    }

    /// The address that its servers listen at.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }
}

impl Device for TcpDevice {
    type Provider = Tcp;

    fn open(&self) -> Result<Tcp, BenchError> {
        Ok(Tcp::from_config(&self.config)?)
    }

    fn at(&self) -> Address {
        SocketAddr::new(self.ip, 0).into()
    }

    fn far(&self) -> Option<Place> {
        Some(self.far)
    }

    fn notes(&self) -> Vec<String> {
        let tcp = self.config.tcp();
        let crc = if tcp.crc { "with" } else { "without" };
        let longest = Length(tcp.message_len.value().into());
        vec![format!("tcp: iWARP {crc} checksums, messages of up to {longest}")]
    }
}
