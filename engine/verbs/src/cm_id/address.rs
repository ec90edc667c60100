//! Conversion of socket addresses between the system's types and Rust's.
#![expect(unsafe_code, reason = "the first two bytes of a socket address state its type")]

use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// An address for a foreign function.
#[derive(Clone, Copy)]
pub(super) struct RawAddress(sockaddr_storage);

impl RawAddress {
    /// For the argument of a call, which does not write to it.
    pub fn as_mut_ptr(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }

    /// The address of a socket that a foreign function has returned, if it is IPv4 or IPv6.
    pub fn of(raw: &sockaddr_storage) -> Option<SocketAddr> {
        match i32::from(raw.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that this is what is there, and it is as long.
                let found: sockaddr_in = unsafe { ptr::from_ref(raw).cast::<sockaddr_in>().read() };
                let ip = Ipv4Addr::from(found.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(found.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that this is what is there, and it is as long.
                let found: sockaddr_in6 =
                    unsafe { ptr::from_ref(raw).cast::<sockaddr_in6>().read() };
                let (ip, port) = (found.sin6_addr.s6_addr.into(), u16::from_be(found.sin6_port));
                let (flow, scope) = (u32::from_be(found.sin6_flowinfo), found.sin6_scope_id);
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> RawAddress {
        let mut raw = MaybeUninit::<sockaddr_storage>::zeroed();
        match address {
            SocketAddr::V4(v4) => {
                let filled = sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is as long as any address, and aligned for all of them.
                unsafe { raw.as_mut_ptr().cast::<sockaddr_in>().write(filled) };
            }
            SocketAddr::V6(v6) => {
                let filled = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo().to_be(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { raw.as_mut_ptr().cast::<sockaddr_in6>().write(filled) };
            }
        }
        // SAFETY: all of it was zeroed, which is a value, and a part was written since.
        RawAddress(unsafe { raw.assume_init() })
    }
}

/// The address in a GID: RoCE's are addresses of the internet, version 4 ones mapped.
pub(crate) fn of_gid(gid: [u8; 16]) -> IpAddr {
    let v6 = Ipv6Addr::from(gid);
    v6.to_ipv4_mapped().map_or(v6.into(), IpAddr::from)
}

const _: () = assert!(size_of::<sockaddr_in6>() <= size_of::<sockaddr_storage>());

#[cfg(test)]
mod tests {
    use super::*;

    fn back(text: &str) -> Option<SocketAddr> {
        let mut address = RawAddress::from(text.parse::<SocketAddr>().expect("an address"));
        assert!(!address.as_mut_ptr().is_null());
        RawAddress::of(&address.0)
    }

    #[test]
    fn addresses_of_both_versions_survive_the_conversion() {
        for text in ["10.0.0.1:20049", "0.0.0.0:0", "[fd00::1]:65535", "[::]:1", "[fe80::1%3]:7"] {
            assert_eq!(back(text), Some(text.parse().expect("an address")), "{text}");
        }
    }

    #[test]
    fn the_port_is_in_the_order_of_the_network() {
        let address = RawAddress::from(SocketAddr::from(([10, 1, 2, 3], 0x1234)));
        // SAFETY: the first eight bytes of the storage were written.
        let bytes: [u8; 8] = unsafe { ptr::from_ref(&address.0).cast::<[u8; 8]>().read() };
        assert_eq!(bytes[2..], [0x12, 0x34, 10, 1, 2, 3]);
    }

    #[test]
    fn an_address_of_another_family_is_none() {
        let mut address = RawAddress::from(SocketAddr::from(([10, 0, 0, 1], 1)));
        address.0.ss_family = libc::AF_UNIX as libc::sa_family_t;
        assert_eq!(RawAddress::of(&address.0), None);
    }

    #[test]
    fn a_gid_holds_an_address_of_either_version() {
        let mapped = "::ffff:10.0.0.1".parse::<Ipv6Addr>().expect("an address").octets();
        assert_eq!(of_gid(mapped), "10.0.0.1".parse::<IpAddr>().expect("an address"));
        let v6 = "fd00::1".parse::<Ipv6Addr>().expect("an address");
        assert_eq!(of_gid(v6.octets()), IpAddr::V6(v6));
    }
}
