//! Whether an RDMA device of this machine is the way to an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::cm_id::find::device_of;
use crate::device::Libraries;
use crate::device::find::Contexts;

/// Whether an RDMA device of this machine has this address, or the route to it begins at an address
/// of one. An unspecified address (0.0.0.0 or ::) is one of every device with an active port.
///
/// Without the RDMA libraries, or without permission to open the devices, none is. Sends no packet:
/// whether the peer speaks RDMA is not known.
pub fn leads_to(at: SocketAddr) -> bool {
    Libraries::load().is_ok_and(|libraries| leads_by(libraries, at))
}

/// The same, as these libraries know it.
pub(crate) fn leads_by(libraries: Libraries, at: SocketAddr) -> bool {
    let Libraries { verbs, cm } = libraries;
    if at.ip().is_unspecified() {
        return Contexts::open(cm).is_ok_and(|devices| devices.have_active_port(verbs));
    }
    let Some(own) = source_of(at) else { return false };
    device_of(verbs, cm, own).is_ok_and(|(context, _)| !context.is_null())
}

/// The address of this machine that packets to this one have; for an own address, itself. `None`
/// without a route.
fn source_of(at: SocketAddr) -> Option<IpAddr> {
    let to = at.ip().to_canonical();
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // The address as it is given: a link-local one has a scope.
    let mut to = if to == at.ip() { at } else { SocketAddr::new(to, 0) };
    to.set_port(DISCARD);
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Any port: nothing is sent there.
const DISCARD: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_own_address_is_the_source_of_packets_to_itself() {
        for text in ["127.0.0.1:0", "127.0.0.1:20049", "[::ffff:127.0.0.1]:7"] {
            assert_eq!(source_of(at(text)), Some(Ipv4Addr::LOCALHOST.into()), "{text}");
        }
    }

    #[test]
    fn an_address_leads_to_a_device_if_the_libraries_find_one() {
        let fake = Fake::new();
        assert!(leads_by(fake.libraries(), at("127.0.0.1:20049")));
        assert!(leads_by(fake.libraries(), at("0.0.0.0:20049")));
        assert!(fake.alive().is_empty(), "{:?}", fake.alive());
    }

    #[test]
    fn an_address_leads_nowhere_if_a_call_fails() {
        let fake = Fake::new();
        for text in ["127.0.0.1:20049", "0.0.0.0:0"] {
            fake.fail_at(Some(0));
            assert!(!leads_by(fake.libraries(), at(text)), "{text}");
            assert!(fake.alive().is_empty(), "{:?}", fake.alive());
        }
    }
}
