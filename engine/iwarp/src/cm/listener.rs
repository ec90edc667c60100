//! Listeners, and the sockets that connect to them.

use std::net::SocketAddr;

use rpcrdma_provider::{Address, Origin, SetupError};
use rpcrdma_transport::failed::NOT_OPENED;
use rustix::io::Errno;

use super::start::{Reader, Received};
use crate::calls::{Calls, Failed};
use crate::socket::Socket;
use crate::stack::Stack;
use crate::wire::start::Kind;

/// A socket that listens.
pub struct Listener {
    socket: Socket,
    at: SocketAddr,
}

/// A socket that has connected and has not sent its whole request yet.
pub struct Caller {
    socket: Socket,
    from: SocketAddr,
    reader: Reader,
}

impl Listener {
    /// Listens.
    pub(super) fn open(at: Address, stack: &Stack) -> Result<Listener, SetupError> {
        let wanted = at.as_ip().ok_or_else(|| SetupError::listen(at, TAKES))?;
        let refused = |failed: Failed| match reason_of(failed) {
            Some(reason) => SetupError::listen(at, reason),
            None => {
                let hint = if failed.call == "bind" { NOT_BOUND } else { NOT_OPENED };
                SetupError::System { call: failed.call, source: failed.errno.into(), hint }
            }
        };
        let socket = stack.socket(&wanted).map_err(Failed::of("socket")).map_err(refused)?;
        let at = socket.listen(&wanted).map_err(refused)?;
        Ok(Listener { socket, at })
    }

    /// Its address, with the port that it has.
    pub(super) fn address(&self) -> Address {
        Address::Ip(self.at)
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The next socket that wants to connect.
    pub(super) fn accept(&self) -> Result<Caller, Errno> {
        let (socket, from) = self.socket.accept()?;
        let reader = Reader::new(Kind::Request);
        Ok(Caller { socket, from, reader })
    }
}

impl Caller {
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Its host, or the IPv6 network of it.
    pub(super) fn origin(&self) -> Origin {
        Address::Ip(self.from).origin().network()
    }

    pub(super) fn into_parts(self) -> (Socket, SocketAddr) {
        (self.socket, self.from)
    }

    /// What it has sent so far.
    pub(super) fn receive(&mut self) -> Option<Received> {
        self.reader.read(&self.socket)
    }
}

/// What the error of a call means; `None` if that is not known.
fn reason_of(Failed { call, errno }: Failed) -> Option<&'static str> {
    Some(match (call, errno) {
        // A port that the system chooses is taken by listen(2).
        ("bind" | "listen", Errno::ADDRINUSE) => "the address is in use",
        ("bind", Errno::ADDRNOTAVAIL) => "this host does not have the address",
        ("bind", Errno::ACCESS | Errno::PERM) => "the process may not listen on this port",
        ("socket", Errno::AFNOSUPPORT) => "this host does not support addresses of this kind",
        ("socket", Errno::MFILE | Errno::NFILE) => "no file is free (ulimit -n)",
        _ => return None,
    })
}

const NOT_BOUND: &str = "the address or the port cannot be used";
/// The addresses of this provider.
pub(super) const TAKES: &str = "TCP takes only IP addresses with a port (ADDR:PORT or [ADDR]:PORT)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_explained() {
        let failed = |call, errno| reason_of(Failed { call, errno });
        assert_eq!(failed("bind", Errno::ADDRINUSE), Some("the address is in use"));
        assert!(failed("bind", Errno::PERM).is_some() && failed("listen", Errno::PERM).is_none());
        let unsupported = failed("socket", Errno::AFNOSUPPORT);
        assert_eq!(unsupported, Some("this host does not support addresses of this kind"));
        for errno in [Errno::MFILE, Errno::NFILE] {
            assert_eq!(failed("socket", errno), Some("no file is free (ulimit -n)"));
        }
        let taken = Listener::open("127.0.0.1:0".parse().expect("an address"), &Stack::System)
            .expect("it listens");
        let why =
            Listener::open(taken.address(), &Stack::System).err().expect("it is taken").to_string();
        assert_eq!(why, format!("cannot listen on {}: the address is in use", taken.address()));
        // Documentation's network.
        let why = Listener::open("192.0.2.1:0".parse().expect("an address"), &Stack::System)
            .err()
            .expect("none");
        assert!(why.to_string().ends_with("this host does not have the address"), "{why}");
    }
}
