//! The device of an address, and why an address cannot be listened on.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rpcrdma_provider::SetupError;

use super::{Channel, Id};
use crate::error;
use crate::sys::{cm as sys, verbs};

/// The device and port that librdmacm finds for this address.
pub(crate) fn device_of(
    lib: &'static verbs::Verbs,
    cm: &'static sys::Cm,
    address: IpAddr,
) -> Result<(*mut verbs::ibv_context, u8), SetupError> {
    let id = Id::new(&Channel::open(lib, cm)?, 0)?;
    match id.bind(SocketAddr::new(address, 0)) {
        Ok(()) => Ok(id.device()),
        Err(error) if is_elsewhere(&error) => Ok((std::ptr::null_mut(), 0)),
        Err(source) => Err(error::of("rdma_bind_addr", source)),
    }
}

/// Whether an address belongs to no RDMA device of this machine.
fn is_elsewhere(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV | libc::EINVAL))
}

pub(crate) fn listen_error(
    address: SocketAddr,
    call: &'static str,
    source: io::Error,
) -> SetupError {
    let reason = match source.raw_os_error() {
        Some(libc::EADDRINUSE) => "the address is in use",
        Some(libc::EACCES) => "ports below 1024 are for those with the right to them",
        _ if is_elsewhere(&source) => "no RDMA device has this address (`rdma link`, `ip address`)",
        _ => return error::of(call, source),
    };
    SetupError::listen(address, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(errno: i32) -> String {
        let address = SocketAddr::from(([192, 0, 2, 1], 20049));
        let source = io::Error::from_raw_os_error(errno);
        listen_error(address, "rdma_bind_addr", source).to_string()
    }

    #[test]
    fn an_address_of_no_device_is_named_as_such() {
        for errno in [libc::EADDRNOTAVAIL, libc::ENODEV] {
            let said = said(errno);
            assert!(said.contains("192.0.2.1:20049") && said.contains("no RDMA device"), "{said}");
        }
    }

    #[test]
    fn an_address_in_use_differs_from_one_that_does_not_exist() {
        assert!(said(libc::EADDRINUSE).contains("in use"));
        assert!(said(libc::EACCES).contains("1024"));
        assert!(said(libc::EMFILE).contains("ulimit -n"), "the call and the likely cause");
    }
}
