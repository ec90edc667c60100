//! Attempts to connect.

use std::net::SocketAddr;

use rpcrdma_provider::{ConnectError, PrivateBytes, Rejection, SetupError};
use rpcrdma_transport::endpoint::QpNumber;
use rpcrdma_transport::sockets::Step;
use rustix::io::Errno;

use super::start::{self, Reader, Received};
use crate::calls::{Calls, Failed};
use crate::port::Port;
use crate::queues::TcpEndpoint;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::stack::Stack;
use crate::terms;
use crate::wire::start::Kind;

/// An attempt of this side to connect.
pub struct Attempt {
    to: SocketAddr,
    socket: Socket,
    number: QpNumber<Port>,
    private: PrivateBytes,
    reply: Reader,
    has_begun: bool,
}

impl Attempt {
    pub(super) fn new(
        to: SocketAddr,
        number: QpNumber<Port>,
        private: PrivateBytes,
        stack: &Stack,
    ) -> Result<Attempt, SetupError> {
        let socket = stack.socket(&to).map_err(|error| SetupError::System {
            call: "socket",
            source: error.into(),
            hint: "check the limit of open files (ulimit -n), and whether the host has IPv6",
        })?;
        let reply = Reader::new(Kind::Reply);
        Ok(Attempt { to, socket, number, private, reply, has_begun: false })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Connects, and sends the request when TCP has connected.
    pub(super) fn go_on(&mut self, shared: &Shared) -> Result<Step, ConnectError> {
        if !std::mem::replace(&mut self.has_begun, true)
            && !self.socket.connect(&self.to).map_err(reason_of)?
        {
            return Ok(Step::Connecting);
        }
        if !self.socket.is_connected().map_err(reason_of)? {
            return Ok(Step::Connecting);
        }
        let request = terms::request(&shared.requested());
        start::send(&self.socket, &request, &self.private)
            .map_err(|errno| reason_of(Failed { call: "send", errno }))?;
        Ok(Step::Sent)
    }

    /// What the peer has replied so far.
    pub(super) fn receive(&mut self) -> Option<Received> {
        self.reply.read(&self.socket)
    }

    /// The endpoint, if the peer has accepted.
    pub(super) fn finish(
        self,
        received: Received,
        shared: &Shared,
    ) -> Result<(TcpEndpoint, PrivateBytes), ConnectError> {
        let (reply, private) = match received {
            Received::Start(reply, private) => (reply, private),
            Received::Malformed(_) => return Err(misfit(NOT_MPA)),
            // A listener that goes away has not taken the request.
            Received::End(None | Some(Errno::CONNRESET | Errno::PIPE)) => {
                return Err(ConnectError::Rejected(Rejection::Unstated));
            }
            Received::End(Some(errno)) => return Err(reason_of(Failed { call: "recv", errno })),
        };
        if reply.is_rejected {
            return Err(ConnectError::Rejected(Rejection::decode(&private)));
        }
        let terms = terms::agree(&shared.requested(), &reply).map_err(|why| misfit(why.hint()))?;
        Ok((shared.endpoint(self.number, self.socket, terms), private))
    }
}

fn reason_of(Failed { call, errno: error }: Failed) -> ConnectError {
    match error {
        Errno::CONNREFUSED => ConnectError::NoListener,
        Errno::CONNRESET | Errno::PIPE => ConnectError::Lost,
        Errno::HOSTUNREACH | Errno::NETUNREACH => ConnectError::NoRoute,
        Errno::TIMEDOUT => ConnectError::TimedOut,
        error => {
            let errno = error.raw_os_error();
            let hint = match (call, error) {
                ("connect", Errno::ADDRNOTAVAIL | Errno::AGAIN) => {
                    "no local port is free (net.ipv4.ip_local_port_range)"
                }
                (_, Errno::ACCESS | Errno::PERM) => {
                    "a firewall of this host, or a filter of system calls (seccomp), may forbid it"
                }
                ("connect", _) => "check the address",
                _ => "this host may have no memory for it",
            };
            ConnectError::CallFailed { call, errno, hint }
        }
    }
}

/// The peer answers, and there is no way to use it.
fn misfit(hint: &'static str) -> ConnectError {
    let errno = Errno::PROTO.raw_os_error();
    ConnectError::CallFailed { call: "the start of MPA", errno, hint }
}

const NOT_MPA: &str = "what listens at the address does not speak iWARP";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_call_is_reported_with_what_to_do() {
        const NO_PORT: &str = "no local port is free (net.ipv4.ip_local_port_range)";
        const FORBIDDEN: &str =
            "a firewall of this host, or a filter of system calls (seccomp), may forbid it";
        const NO_MEMORY: &str = "this host may have no memory for it";
        let cases = [
            ("connect", Errno::ADDRNOTAVAIL, NO_PORT),
            ("connect", Errno::AGAIN, NO_PORT),
            ("connect", Errno::ACCESS, FORBIDDEN),
            ("connect", Errno::PERM, FORBIDDEN),
            ("connect", Errno::INVAL, "check the address"),
            ("send", Errno::ACCESS, FORBIDDEN),
            ("send", Errno::PERM, FORBIDDEN),
            ("send", Errno::ADDRNOTAVAIL, NO_MEMORY),
            ("recv", Errno::NOBUFS, NO_MEMORY),
        ];
        for (call, errno, hint) in cases {
            let expected = ConnectError::CallFailed { call, errno: errno.raw_os_error(), hint };
            assert_eq!(reason_of(Failed { call, errno }), expected);
        }
    }

    #[test]
    fn an_error_that_concerns_the_peer_is_reported_as_such() {
        for (errno, reason) in [
            (Errno::CONNREFUSED, ConnectError::NoListener),
            (Errno::CONNRESET, ConnectError::Lost),
            (Errno::PIPE, ConnectError::Lost),
            (Errno::HOSTUNREACH, ConnectError::NoRoute),
            (Errno::NETUNREACH, ConnectError::NoRoute),
            (Errno::TIMEDOUT, ConnectError::TimedOut),
        ] {
            assert_eq!(reason_of(Failed { call: "connect", errno }), reason);
        }
    }
}
