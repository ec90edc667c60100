//! TCP sockets: how they are made, and the frames that start a connection.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use arrayvec::ArrayVec;
use rpcrdma_provider::PrivateBytes;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::wire::start::{FRAME_MAX, Frame, Kind, Malformed, Start};

/// A socket for addresses of the family of `address`.
pub(crate) fn open(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// Binds and listens. Returns the address, whose port the system chooses if it is 0.
pub(crate) fn listen(socket: &OwnedFd, at: &SocketAddr) -> Result<SocketAddr, Errno> {
    // Connections that have ended at this port are not in the way.
    sockopt::set_socket_reuseaddr(socket, true)?;
    rustix::net::bind(socket, at)?;
    rustix::net::listen(socket, BACKLOG)?;
    SocketAddr::try_from(rustix::net::getsockname(socket)?)
}

/// The next connection of a listener, and where it comes from.
pub(crate) fn accept(listener: &OwnedFd) -> Result<(OwnedFd, SocketAddr), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = loop {
        match rustix::net::accept_with(listener, flags) {
            // It has ended before it was taken.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
            outcome => break outcome?,
        }
    };
    // It may have ended meanwhile.
    let from = rustix::net::getpeername(&socket).ok().flatten();
    let from = from.and_then(|from| SocketAddr::try_from(from).ok()).unwrap_or(UNKNOWN);
    let _ = prepare(&socket);
    // An IPv6 socket has an IPv4 peer under another name.
    Ok((socket, SocketAddr::new(from.ip().to_canonical(), from.port())))
}

/// Begins to connect. True if it has connected already; else the socket becomes writable.
pub(crate) fn connect(socket: &OwnedFd, to: &SocketAddr) -> Result<bool, Errno> {
    prepare(socket)?;
    match rustix::net::connect(socket, to) {
        Ok(()) => Ok(true),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a socket that has begun to connect has connected.
///
/// # Errors
/// Why it has not, [`Errno::CONNREFUSED`] among them: also of a socket that has found itself, which
/// happens at a free port that the system chooses for both ends.
pub(crate) fn is_connected(socket: &OwnedFd) -> Result<bool, Errno> {
    sockopt::socket_error(socket)??;
    match rustix::net::getpeername(socket) {
        Ok(peer) if peer == Some(rustix::net::getsockname(socket)?) => Err(Errno::CONNREFUSED),
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Messages are sent at once, and a peer that has vanished is noticed while nothing is sent, too.
fn prepare(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVES)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Sends a start frame.
///
/// # Errors
/// [`Errno::PIPE`] also if there is no room for it, which a new connection has.
pub(crate) fn send(socket: &impl AsFd, start: &Start, private: &[u8]) -> Result<(), Errno> {
    let frame = start.encode(private);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::io::retry_on_intr(|| rustix::net::send(socket, &frame, flags))?;
    if sent == frame.len() { Ok(()) } else { Err(Errno::PIPE) }
}

/// Takes a start frame from a stream, and nothing behind it.
#[derive(Debug)]
pub(crate) struct Reader {
    kind: Kind,
    bytes: ArrayVec<u8, FRAME_MAX>,
}

/// What a look for a start frame has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The whole frame.
    Start(Start, PrivateBytes),
    /// Its end has not come yet.
    Nothing,
    /// Something else.
    Malformed(Malformed),
    /// The stream has ended; or why it has failed.
    End(Option<Errno>),
}

impl Reader {
    pub(crate) fn new(kind: Kind) -> Reader {
        Reader { kind, bytes: ArrayVec::new() }
    }

    /// Takes what is there.
    pub(crate) fn read(&mut self, socket: &impl AsFd) -> Heard {
        loop {
            match Frame::decode(self.kind, &self.bytes) {
                Ok(Some(Frame { start, private, .. })) => {
                    return Heard::Start(start, kept(private));
                }
                Ok(None) => {}
                Err(why) => return Heard::Malformed(why),
            }
            let mut bytes = [0; FRAME_MAX];
            let missing = Frame::len_known(&self.bytes).min(FRAME_MAX) - self.bytes.len();
            match rustix::net::recv(socket, &mut bytes[..missing], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Heard::End(None),
                Ok((len, _)) => self.bytes.extend(bytes[..len].iter().copied()),
                Err(Errno::AGAIN) => return Heard::Nothing,
                Err(Errno::INTR) => {}
                Err(error) => return Heard::End(Some(error)),
            }
        }
    }
}

/// The private data that a program gets. What does not fit is padding, as that of other devices.
fn kept(private: &[u8]) -> PrivateBytes {
    let mut kept = PrivateBytes::new();
    kept.extend(private.iter().copied().take(kept.capacity()));
    kept
}

/// Whether bytes are there that nobody has taken.
pub(crate) fn has_more(socket: &impl AsFd) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    matches!(rustix::net::recv(socket, &mut byte[..], flags), Ok((_, 1..)))
}

/// Reads what has come and drops it, up to a limit.
#[cold]
pub(crate) fn discard(socket: &impl AsFd) {
    let mut bytes = [0; 4096];
    for _ in 0..DISCARDED_MAX {
        match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, received)) if received > 0 => {}
            _ => return,
        }
    }
}

/// Connections that may wait to be taken; the system allows net.core.somaxconn at most.
const BACKLOG: i32 = 4096;
/// System calls that a socket is worth which is being closed.
const DISCARDED_MAX: usize = 64;
/// How long nothing comes before the system asks whether the peer is there, and how long until it
/// asks again.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How often it asks.
const KEEPALIVES: u32 = 3;
/// Of a connection that has ended before it was taken.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
