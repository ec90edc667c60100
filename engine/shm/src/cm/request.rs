//! Requests of peers to connect.

use std::sync::Arc;

use rpcrdma_provider::{Address, Credentials, PrivateBytes, SetupError};
use rpcrdma_transport::endpoint::{Peer, QpNumber};
use rustix::io::Errno;

use super::listener::Caller;
use crate::closer::Foreign;
use crate::endpoint::Agreed;
use crate::fence;
use crate::handshake::{Handshake, Kind};
use crate::layout::{Dimensions, Layout};
use crate::link::Terms;
use crate::memory::{Memory, Unfit};
use crate::port::Port;
use crate::queues::ShmEndpoint;
use crate::shared::Shared;
use crate::socket::{self, Received, Socket};

/// A pending connection request. Dropping it rejects it.
pub struct ShmRequest {
    from: Credentials,
    hello: Handshake,
    /// The socket and the memory, until it is answered.
    pending: Option<(Socket, Arc<Layout>)>,
}

impl ShmRequest {
    /// The request of a caller, with its private data. A caller that sends something else is
    /// dropped; one whose memory does not fit is answered first.
    pub(super) fn of(
        caller: Caller,
        received: Received,
        own: Dimensions,
    ) -> Option<(ShmRequest, PrivateBytes)> {
        let (socket, from) = caller.into_parts();
        let Received::Handshake(hello, Some(file)) = received else { return None };
        if hello.kind != Kind::Hello {
            return None;
        }
        let Ok(memory) = adopt(&hello, &file, own) else {
            answer(&socket, &hello, Kind::Unfit, &[]);
            return None;
        };
        file.close_now();
        let private = hello.private.clone();
        let pending = Some((socket, Layout::new(memory, hello.dimensions)));
        Some((ShmRequest { from, hello, pending }, private))
    }

    /// The process that asks.
    pub(super) fn from(&self) -> Address {
        Address::Process(self.from)
    }

    /// Answers it, and makes this side's queue pair.
    pub(super) fn accept(
        mut self,
        number: QpNumber<Port>,
        rnr_retry: u8,
        private: PrivateBytes,
        shared: &Shared,
    ) -> Result<ShmEndpoint, SetupError> {
        let Some((socket, layout)) = self.pending.take() else { return Err(SetupError::Stopped) };
        layout.prefault();
        let maps_pools =
            self.hello.maps_pools && shared.maps_pools() && shared.is_owner(self.from.uid);
        if !maps_pools {
            socket::refuse_descriptors(&socket);
        }
        let has_fences = fence::is_there();
        let terms = Terms { have_fences: has_fences && self.hello.has_fences, maps_pools };
        let peer = Peer { num: self.hello.qp_num, rnr_retry: self.hello.rnr_retry };
        let (num, agreed) = (number.num(), Agreed { side: 1, socket, layout, terms, peer });
        let endpoint = agreed.endpoint(number, shared).map_err(SetupError::unwatched)?;
        let accepted = Handshake {
            kind: Kind::Accepted,
            dimensions: self.hello.dimensions,
            has_fences,
            maps_pools,
            qp_num: num,
            rnr_retry,
            private,
        };
        match socket::send(endpoint.end().0.socket(), &accepted, None) {
            // A peer that is gone is noticed as every peer that goes.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(endpoint),
            // The peer would wait for it.
            Err(error) => Err(SetupError::System {
                call: "sendmsg",
                source: error.into(),
                hint: "the system may have no memory for the answer to a connection request",
            }),
        }
    }

    /// Answers that it is rejected.
    pub(super) fn reject(mut self, private: &[u8]) {
        if let Some((socket, _)) = self.pending.take() {
            answer(&socket, &self.hello, Kind::Rejected, private);
        }
    }
}

impl Drop for ShmRequest {
    fn drop(&mut self) {
        if let Some((socket, _)) = self.pending.take() {
            answer(&socket, &self.hello, Kind::Rejected, &[]);
        }
    }
}

impl std::fmt::Debug for ShmRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmRequest").field("from", &self.from).finish_non_exhaustive()
    }
}

/// The memory that a hello came with, if the longest message of this side has room in it, and it is
/// not much larger than what this side would have made: unmapping it takes a shard's time.
fn adopt(hello: &Handshake, file: &Foreign, own: Dimensions) -> Result<Memory, Unfit> {
    let (given, needed) = (hello.dimensions.staging, own.staging);
    if given < needed {
        return Err(Unfit::Staging { given, needed });
    }
    let limit = Dimensions {
        slots: own.slots.max(SLOTS_OF_PEERS),
        staging: own.staging.max(STAGING_OF_PEERS),
    };
    if given > limit.staging || hello.dimensions.slots > limit.slots {
        return Err(Unfit::Large);
    }
    Memory::adopt(file, hello.dimensions.bytes())
}

/// Reports why a request is not accepted. A peer that does not take the answer notices the end.
fn answer(socket: &Socket, hello: &Handshake, kind: Kind, private: &[u8]) {
    let private = PrivateBytes::try_from(private).unwrap_or_default();
    let answer = Handshake { kind, private, ..hello.clone() };
    let _ = socket::send(socket, &answer, None);
}

/// Slots of a ring that a peer may choose, if this side's own value is not larger.
const SLOTS_OF_PEERS: u32 = 1024;
/// Bytes of a staging area that a peer may choose, if this side's own value is not larger.
const STAGING_OF_PEERS: u32 = 64 << 20;
