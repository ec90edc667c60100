//! An RDMA device of this machine, with both ends of every connection on it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use rpcrdma::provider::DeviceCaps;
use rpcrdma::{Address, Provider};
use rpcrdma_config::Config;
use rpcrdma_verbs::Verbs;

use super::Device;
use crate::args::DeviceArgs;
use crate::device::Place;
use crate::error::BenchError;
use crate::machine::address;
use crate::machine::files::Files;

#[derive(Debug, Clone)]
pub struct VerbsDevice {
    verbs: Verbs,
    address: IpAddr,
    far: Option<Address>,
}

impl VerbsDevice {
    /// Opens the device that the configuration names, as overridden by these options
    /// ([`DeviceArgs::name_in`]).
    pub fn open(args: &DeviceArgs, config: &Config) -> Result<VerbsDevice, BenchError> {
        if args.connect.is_some() {
            return Err(BenchError::Usage(BOTH_ENDS.into()));
        }
        VerbsDevice::towards(args, config)
    }

    /// The same for a client whose server may be on another host.
    pub fn towards(args: &DeviceArgs, config: &Config) -> Result<VerbsDevice, BenchError> {
        let address = config.verbs().address;
        let verbs = Verbs::from_config(config)?;
        let name = &verbs.caps().name;
        let address =
            address.or_else(|| address::of_device(&Files::new(Path::new("/")), name)).ok_or_else(
                || BenchError::Usage(format!("{name} has no IPv4 address; name one: --address")),
            )?;
        Ok(VerbsDevice { verbs, address, far: args.connect })
    }

    /// The address of the device.
    pub fn ip(&self) -> IpAddr {
        self.address
    }
}

impl Device for VerbsDevice {
    type Provider = Verbs;

    fn open(&self) -> Result<Verbs, BenchError> {
        Ok(self.verbs.clone())
    }

    fn at(&self) -> Address {
        SocketAddr::new(self.address, 0).into()
    }

    fn far(&self) -> Option<Place> {
        self.far.map(Place::Host)
    }

    fn notes(&self) -> Vec<String> {
        let DeviceCaps { name, inline_len, send_sge, recv_sge, windows, rd_atomic, .. } =
            self.verbs.caps();
        vec![format!(
            "verbs: {name} at {}, up to {inline_len} bytes inline, {send_sge} gather and \
             {recv_sge} scatter entries, {windows} memory windows, {rd_atomic} Reads at a time",
            self.address
        )]
    }
}

/// Why a mode refuses `--connect`.
pub(super) const BOTH_ENDS: &str =
    "this mode runs both ends itself: --connect is for lat, rate, bw and load";
