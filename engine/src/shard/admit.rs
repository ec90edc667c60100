//! New connections, and requests of the control plane.
//!
//! ```text
//!   Request ──admit──▶ yes, or no: the connection manager answers the peer
//!   Arrival ──attach──▶ Opening ──properties known──▶ Up, on_connect
//!              └── no room, no name ──▶ rejected, on_refused
//! ```

use rpcrdma_proto::{Connection, Opening, Role, Start, Version};
use rpcrdma_xdr::private_data::PrivateData;

use super::Core;
use crate::api::handler::{Admission, ConnectRequest, Handler};
use crate::control::arrival::{Arrival, ConnectOrder};
use crate::error::CloseReason;
use crate::handle::ShardOrder;
use crate::provider::{Address, ConnectError, ConnectId, Endpoint, Provider, Queues};
use crate::quotas::QuotaPermit;
use crate::trace;

use crate::state::peers::{Attempt, Peer, Peers, Phase};

impl<P: Provider> Core<P> {
    /// Reads messages of other threads.
    #[cold]
    pub fn read_mailbox(&mut self, now: u64, handler: &mut dyn Handler) {
        while let Some(arrival) = self.link.arrivals().pop() {
            match arrival {
                Arrival::Request { number, from, private } => {
                    self.check_request(number, from, &private, handler);
                }
                Arrival::Abandoned { from } => {
                    if self.peers.end_expecting(from) {
                        self.parts.handle.wakeup().disconnected();
                    }
                }
                Arrival::Accepted { endpoint, from, private, permit } => {
                    self.peers.end_expecting(from);
                    let comes = Comes::Accepted(permit);
                    let start = Start::Either;
                    let new = NewConnection { endpoint, address: from, private, start, comes };
                    self.admit(new, now, handler);
                }
                Arrival::Connected {
                    order: ConnectOrder { to, id, again, .. },
                    endpoint,
                    private,
                } => {
                    let start = self.link.begins_with(to, again, now, &self.parts.stats);
                    trace::version_begun(to, self.parts.handle.shard(), start);
                    let is_trying = start == Start::Two;
                    let comes = Comes::Requested(Attempt { id, is_trying, until: None });
                    let new = NewConnection { endpoint, address: to, private, start, comes };
                    self.admit(new, now, handler);
                }
                Arrival::Refused { id, reason } => {
                    self.parts.handle.wakeup().disconnected();
                    handler.on_refused(id, reason);
                }
            }
        }
        self.read_answers(now);
        while let Some(order) = self.parts.handle.pop_order() {
            let ShardOrder::Close(id) = order;
            if self.peers.named(id).is_some() {
                self.close(id.index, CloseReason::Local, now, handler);
            }
        }
        if self.parts.handle.wakeup().is_stop_wanted() {
            self.begin_stop(now);
        }
    }

    /// Decides whether a peer may connect.
    fn check_request(
        &mut self,
        number: u64,
        from: Address,
        private: &[u8],
        handler: &mut dyn Handler,
    ) {
        let connections = self.peers.count_from(from.origin());
        let request = ConnectRequest { from, private, connections };
        let is_stopping = self.parts.handle.wakeup().is_stop_wanted();
        let admission = if is_stopping { Admission::Refuse } else { handler.admit(&request) };
        let outcome = match admission {
            Admission::Accept => Ok(()),
            Admission::Refuse => Err(0),
            Admission::RefuseWith(code) => Err(code),
        };
        let attachment = self.link.attachment();
        if !attachment.is_some_and(|attachment| attachment.answer(number, from, outcome)) {
            return self.parts.handle.wakeup().disconnected();
        }
        match outcome {
            Ok(()) => self.peers.expect(from),
            Err(_) => self.parts.stats.connections_not_admitted.add(1),
        }
    }

    /// Takes over a connection from the connection manager.
    fn admit(&mut self, new: NewConnection<P>, now: u64, handler: &mut dyn Handler) {
        let NewConnection { endpoint, address, private, start, comes } = new;
        let (asked, permit) = match comes {
            Comes::Requested(asked) => (Some(asked), None),
            Comes::Accepted(permit) => (None, Some(permit)),
        };
        let role = if asked.is_some() { Role::Client } else { Role::Server };
        let connect = asked.map(|asked| asked.id);
        let Ok(attached) = self.io.queues().attach(endpoint) else {
            self.reject(None, address, connect, handler);
            return;
        };
        let vacancy = self.peers.vacancy().filter(|_| Peers::can_name(attached.qp_num));
        let Some(id) = vacancy else {
            self.reject(Some(attached.qp), address, connect, handler);
            return;
        };
        let ledger = &mut self.parts.ledger;
        let opening = Opening { private, version: start };
        let Ok(conn) = Connection::open(role, id.index, self.link.settings(), &opening, ledger)
        else {
            self.reject(Some(attached.qp), address, connect, handler);
            return;
        };
        let qp_num = attached.qp_num;
        // A side that can fall back waits less than one that cannot.
        let until = match start {
            Start::Two if self.link.is_free_to_choose() => self.parts.timers.negotiation_until(now),
            _ => self.parts.timers.opening_until(now),
        };
        let folds = [(); 2].map(|()| self.parts.sampling.gap());
        let peer = Peer::new(conn, id, qp_num, asked, until, folds);
        self.peers.insert(peer, address, permit);
        self.io.bind(id.index, attached.qp);
        let Some(peer) = self.peers.at(id.index) else { return };
        if let Some(send) = peer.conn.begin()
            && !self.parts.outbox.control(peer, &send)
            && let Some(asked) = &mut peer.connect
        {
            // No first message was sent, so silence has no meaning.
            asked.is_trying = false;
        }
        self.note_ready(id.index, now, handler);
    }

    /// There is no room for a connection, or its queue pair number is out of range.
    #[cold]
    fn reject(
        &mut self,
        qp: Option<<P::Queues as Queues>::Qp>,
        address: Address,
        connect: Option<ConnectId>,
        handler: &mut dyn Handler,
    ) {
        if let Some(qp) = qp {
            self.io.queues().disconnect(qp);
            self.io.queues().destroy(qp);
        }
        self.parts.handle.wakeup().disconnected();
        self.parts.stats.connections_rejected.add(1);
        trace::shard_full(address, self.parts.handle.shard());
        if let Some(id) = connect {
            handler.on_refused(id, ConnectError::NoRoom);
        }
    }

    /// Records, once, that the version or the properties of a peer are known.
    #[inline]
    pub fn note_ready(&mut self, index: u32, now: u64, handler: &mut dyn Handler) {
        let Some((peer, address)) = self.peers.with_address(index) else { return };
        let is_trying = peer.connect.is_some_and(|asked| asked.is_trying);
        if is_trying && peer.conn.version().is_some() {
            self.link.note_version(peer, address, now, &self.parts.stats);
        }
        if peer.phase == Phase::Opening && peer.conn.is_ready() {
            self.come_up(index, now, handler);
        }
    }

    #[cold]
    fn come_up(&mut self, index: u32, now: u64, handler: &mut dyn Handler) {
        let Some((peer, address)) = self.peers.with_address(index) else { return };
        peer.phase = Phase::Up;
        self.parts.stats.connections_established.add(1);
        match peer.conn.version() {
            Some(Version::One) => self.parts.stats.connections_version_one.add(1),
            _ => self.parts.stats.connections_version_two.add(1),
        }
        let (id, connect) = (peer.id, peer.connect.map(|asked| asked.id));
        let (shard, limits) = (self.parts.handle.shard(), peer.conn.limits());
        trace::connected(shard, id, *address, connect.is_some(), limits);
        if handler.on_connect(id, connect, limits) != Admission::Accept {
            // Without an answer the peer would assume version one.
            self.leave(index, CloseReason::Refused, now, handler);
        }
    }
}

/// A connection made by the connection manager.
struct NewConnection<P: Provider> {
    endpoint: Endpoint<P::Cm>,
    /// The address of the peer.
    address: Address,
    /// The private data of the peer.
    private: Option<PrivateData>,
    start: Start,
    comes: Comes,
}

/// Which side requested a connection.
enum Comes {
    /// This side, by this attempt.
    Requested(Attempt),
    /// The peer.
    Accepted(QuotaPermit),
}
