//! The sockets of the system.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_provider::CloseOnFork;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType,
    ipproto, sockopt,
};

use crate::calls::{Calls, Failed};

/// A socket for addresses of the family of `address`.
pub(crate) fn open(address: &SocketAddr) -> Result<CloseOnFork, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    CloseOnFork::open(|| {
        rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
    })
}

impl Calls for CloseOnFork {
    fn listen(&self, at: &SocketAddr) -> Result<SocketAddr, Failed> {
        // Connections that have ended at this port are not in the way.
        sockopt::set_socket_reuseaddr(self, true).map_err(Failed::of("setsockopt"))?;
        rustix::net::bind(self, at).map_err(Failed::of("bind"))?;
        rustix::net::listen(self, BACKLOG).map_err(Failed::of("listen"))?;
        let bound = rustix::net::getsockname(self).and_then(SocketAddr::try_from);
        bound.map_err(Failed::of("getsockname"))
    }

    fn accept(&self) -> Result<(CloseOnFork, SocketAddr), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let mut from = None;
            let accepted = CloseOnFork::open(|| {
                // It gives the address, too: a connection that has ended cannot be asked for it.
                let (socket, address) = rustix::net::acceptfrom_with(self, flags)?;
                from = address;
                Ok(socket)
            });
            match (accepted, from) {
                (Ok(socket), Some(from)) => {
                    let from = SocketAddr::try_from(from)?;
                    let _ = sockopt::set_tcp_nodelay(&socket, true);
                    // An IPv6 socket has an IPv4 peer under another name.
                    return Ok((socket, SocketAddr::new(from.ip().to_canonical(), from.port())));
                }
                // It has ended before it was taken.
                (Ok(_), None) | (Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO), _) => {}
                (Err(error), _) => return Err(error),
            }
        }
    }

    /// Two clocks of the system, which run at different times: that of bytes which the peer has not
    /// acknowledged, or has no room for, and that of questions to a peer which is sent nothing.
    fn set_silence_max(&self, limit: Option<Duration>) -> Result<(), Errno> {
        let quarter = (limit.unwrap_or(KEEPALIVE_DEFAULT) / 4).max(KEEPALIVE_STEP_MIN);
        let quarter = Duration::from_secs(quarter.as_millis().div_ceil(1000) as u64);
        sockopt::set_tcp_keepidle(self, 2 * quarter)?;
        sockopt::set_tcp_keepintvl(self, quarter)?;
        sockopt::set_tcp_keepcnt(self, 2)?;
        sockopt::set_socket_keepalive(self, true)?;
        let limit = limit.map_or(Duration::ZERO, |limit| limit.max(USER_TIMEOUT_MIN));
        sockopt::set_tcp_user_timeout(self, limit.as_millis() as u32)
    }

    fn connect(&self, to: &SocketAddr) -> Result<bool, Failed> {
        sockopt::set_tcp_nodelay(self, true).map_err(Failed::of("setsockopt"))?;
        match rustix::net::connect(self, to) {
            Ok(()) => Ok(true),
            Err(Errno::INPROGRESS | Errno::INTR) => Ok(false),
            Err(errno) => Err(Failed { call: "connect", errno }),
        }
    }

    fn is_connected(&self) -> Result<bool, Failed> {
        let outcome = sockopt::socket_error(self).map_err(Failed::of("getsockopt"))?;
        outcome.map_err(Failed::of("connect"))?;
        let peer = match rustix::net::getpeername(self) {
            Err(Errno::NOTCONN) => return Ok(false),
            peer => peer.map_err(Failed::of("getpeername"))?,
        };
        let own = rustix::net::getsockname(self).map_err(Failed::of("getsockname"))?;
        match peer == Some(own) {
            true => Err(Failed { call: "connect", errno: Errno::CONNREFUSED }),
            false => Ok(true),
        }
    }

    #[inline]
    fn recv(&self, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::net::recv(self, into, RecvFlags::DONTWAIT).map(|(_, len)| len)
    }

    #[inline]
    fn send(&self, from: &[u8]) -> Result<usize, Errno> {
        rustix::net::send(self, from, SEND_FLAGS)
    }

    #[inline]
    fn send_parts(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        rustix::net::sendmsg(self, from, &mut SendAncillaryBuffer::default(), SEND_FLAGS)
    }

    fn shutdown(&self, how: Shutdown) {
        let _ = rustix::net::shutdown(self, how);
    }

    fn has_more(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        matches!(rustix::net::recv(self, &mut byte[..], flags), Ok((_, 1..)))
    }
}

const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// Connections that may wait to be taken; the system allows net.core.somaxconn at most.
const BACKLOG: i32 = 4096;
/// Without a configured limit: how long the peer of a connection on which nothing is sent may leave
/// the questions of the keepalive unanswered.
const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(60);
/// The shortest time between two questions of the keepalive: the system counts it in seconds.
const KEEPALIVE_STEP_MIN: Duration = Duration::from_secs(1);
/// The shortest `TCP_USER_TIMEOUT`: TCP sends a lost packet again in that time.
const USER_TIMEOUT_MIN: Duration = Duration::from_secs(1);
