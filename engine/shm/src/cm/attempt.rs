//! Attempts to connect.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rpcrdma_provider::{ConnectError, PrivateBytes, Rejection, SetupError, ShmName};
use rpcrdma_transport::endpoint::{Peer, QpNumber};
use rpcrdma_transport::sockets::Step;
use rustix::io::Errno;

use crate::endpoint::Agreed;
use crate::fence;
use crate::handshake::{Handshake, Kind};
use crate::layout::Layout;
use crate::link::Terms;
use crate::memory::Memory;
use crate::port::Port;
use crate::queues::ShmEndpoint;
use crate::shared::Shared;
use crate::socket::{self, Received, Socket};

/// An attempt of this side to connect.
pub struct Attempt {
    to: ShmName,
    socket: Socket,
    number: QpNumber<Port>,
    hello: Handshake,
    layout: Arc<Layout>,
    /// The memory, until the hello has taken it to the peer.
    file: Option<OwnedFd>,
}

impl Attempt {
    pub(super) fn new(
        to: ShmName,
        number: QpNumber<Port>,
        rnr_retry: u8,
        private: PrivateBytes,
        shared: &Shared,
    ) -> Result<Attempt, SetupError> {
        let dimensions = shared.dimensions();
        let (memory, file) =
            Memory::create(dimensions.bytes()).map_err(|error| SetupError::System {
                call: error.call,
                hint: match error.source.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::FBIG) => "the limit of file sizes (ulimit -f) is below shm.staging",
                    Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => FORBIDDEN,
                    _ => "check the limits of memory and of open files (ulimit -n)",
                },
                source: error.source,
            })?;
        let layout = Layout::new(memory, dimensions);
        layout.prefault();
        let socket = Socket::open(shared.closer()).map_err(|source| SetupError::System {
            call: "socket",
            source,
            hint: "check the limit of open files (ulimit -n)",
        })?;
        if !shared.maps_pools() {
            socket::refuse_descriptors(&socket);
        }
        let hello = Handshake {
            kind: Kind::Hello,
            dimensions,
            has_fences: fence::is_there(),
            maps_pools: shared.maps_pools(),
            qp_num: number.num(),
            rnr_retry,
            private,
        };
        Ok(Attempt { to, socket, number, hello, layout, file: Some(file) })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Connects and sends the hello.
    pub(super) fn begin(&mut self, shared: &Shared) -> Result<Step, ConnectError> {
        match socket::connect(&self.socket, &self.to) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Step::Later),
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => {
                return Err(ConnectError::NoListener);
            }
            Err(error) => {
                let hint = match error {
                    Errno::ACCESS | Errno::PERM => NOT_WRITABLE,
                    _ => "check the path of the socket",
                };
                return Err(failed("connect", error, hint));
            }
        }
        // The listener may see it otherwise: it may have been another user when it began to listen.
        let listener = socket::peer(&self.socket).ok();
        self.hello.maps_pools &= listener.is_some_and(|peer| shared.is_owner(peer.uid));
        if let Some(peer) = listener {
            self.socket.set_user(peer.uid);
        }
        let sent = socket::send(&self.socket, &self.hello, self.file.as_ref());
        self.file = None;
        match sent {
            Ok(()) => Ok(Step::Sent),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(ConnectError::Lost),
            Err(error) => Err(failed("sendmsg", error, "it passes a memfd to the listener")),
        }
    }

    /// What the peer has answered.
    pub(super) fn receive(&self) -> Option<Received> {
        socket::receive(&self.socket, false)
    }

    /// The endpoint, if the peer has accepted.
    pub(super) fn finish(
        self,
        received: Received,
        shared: &Shared,
    ) -> Result<(ShmEndpoint, PrivateBytes), ConnectError> {
        let Attempt { socket, number, layout, hello, .. } = self;
        let answer = match received {
            Received::Handshake(answer, _) => answer,
            // A listener that goes away has not taken the request.
            Received::Malformed(_) | Received::End => {
                return Err(ConnectError::Rejected(Rejection::Unstated));
            }
        };
        match answer.kind {
            Kind::Accepted if answer.dimensions == hello.dimensions => {}
            Kind::Accepted | Kind::Hello => {
                return Err(ConnectError::Rejected(Rejection::Unstated));
            }
            Kind::Rejected => {
                return Err(ConnectError::Rejected(Rejection::decode(&answer.private)));
            }
            Kind::Unfit => return Err(ConnectError::Rejected(Rejection::Unfit)),
        }
        let terms = Terms {
            have_fences: hello.has_fences && answer.has_fences,
            maps_pools: hello.maps_pools && answer.maps_pools,
        };
        let peer = Peer { num: answer.qp_num, rnr_retry: answer.rnr_retry };
        let agreed = Agreed { side: 0, socket, layout, terms, peer };
        let unwatched = |error| SetupError::unwatched(error).as_connect_error();
        let endpoint = agreed.endpoint(number, shared).map_err(unwatched)?;
        Ok((endpoint, answer.private))
    }
}

/// A call of this host failed.
fn failed(call: &'static str, error: Errno, hint: &'static str) -> ConnectError {
    ConnectError::CallFailed { call, errno: error.raw_os_error(), hint }
}

const FORBIDDEN: &str =
    "a connection of shared memory needs memfds; allow them (seccomp), or use tcp";
const NOT_WRITABLE: &str = "this user must have write permission for the socket file, and search \
                            permission for its folders";
