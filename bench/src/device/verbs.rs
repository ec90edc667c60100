//! An RDMA device of this machine, with both ends of every connection on it.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rpcrdma_config::Config;
use rpcrdma_engine::provider::DeviceCaps;
use rpcrdma_engine::{Address, Provider};
use rpcrdma_verbs::Verbs;

use super::Device;
use crate::args::DeviceArgs;
use crate::contenders::far::Place;
use crate::error::BenchError;

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
        let address = address.or_else(|| address_of(name)).ok_or_else(|| {
            BenchError::Usage(format!("{name} has no IPv4 address; name one: --address"))
        })?;
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

/// The first IPv4 address of a device: among its GIDs they stand mapped into IPv6 addresses.
fn address_of(device: &str) -> Option<IpAddr> {
    let ports = fs::read_dir(format!("/sys/class/infiniband/{device}/ports")).ok()?;
    ports.flatten().find_map(|port| {
        let gids = fs::read_dir(port.path().join("gids")).ok()?;
        gids.flatten().find_map(|gid| mapped(fs::read_to_string(gid.path()).ok()?.trim()))
    })
}

/// The IPv4 address that a GID stands for.
pub(crate) fn mapped(gid: &str) -> Option<IpAddr> {
    gid.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped().map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_that_is_an_ipv4_address_is_seen_as_one() {
        let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001";
        assert_eq!(mapped(gid), "10.0.0.1".parse().ok());
        assert_eq!(mapped("fe80:0000:0000:0000:1c4a:5cff:fe06:0001"), None);
        assert_eq!(mapped(""), None);
    }
}
