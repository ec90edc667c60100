//! The actions that a handler may take once a turn.

use rpcrdma_mempool::{BulkPool, Loan, RecvPool};
use rpcrdma_proto::{CallId, CallState, NO_MARK, PeerLimits, ShardLedger};
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};

use super::builder::{CallBuilder, CallHandle};
use super::reply::{Answer, Reply, ReplyContext};
use crate::api::payload::Payload;
use crate::connection_id::ConnectionId;
use crate::error::CallRefused;
use crate::handle::ShardHandle;
use crate::handle::ticket::{Finished, Ticket};
use crate::provider::Address;
use crate::state::parts::Parts;
use crate::state::peers::{Peers, Phase};
use crate::state::rdma::windows::Exposer;
use crate::stats::sampling::NO_TIMER;

/// The shard, lent to its program between two polls.
///
/// ```
/// use rpcrdma::{Answer, Call, Finished, Handler, Reply, Ticket, Turn};
///
/// /// Answers calls at the end of their turn.
/// #[derive(Default)]
/// struct AtTheEnd(Vec<Ticket>);
///
/// impl Handler for AtTheEnd {
///     fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
///         let (answer, ticket) = reply.defer();
///         self.0.push(ticket);
///         answer
///     }
///
///     fn on_turn(&mut self, turn: &mut Turn<'_>) {
///         while let Some(ticket) = self.0.pop() {
///             if let Err((ticket, _)) = turn.finish(ticket, Finished::default()) {
///                 return self.0.push(ticket); // no room for a reply: in the next turn
///             }
///         }
///     }
/// }
/// ```
pub struct Turn<'a> {
    pub(crate) parts: &'a mut Parts,
    pub(crate) peers: &'a mut Peers,
    pub(crate) exposer: &'a mut dyn Exposer,
    pub(crate) pool: &'a mut RecvPool,
    pub(crate) bulk: &'a mut BulkPool,
    pub(crate) now: u64,
    #[cfg(feature = "storage")]
    pub(crate) joint: super::joint::Joint<'a>,
}

impl Turn<'_> {
    /// The time of this turn, in nanoseconds of the clock that the shard is polled with.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether the program has done work in this turn that the shard cannot see.
    #[inline]
    pub(crate) fn has_worked(&self) -> bool {
        #[cfg(feature = "storage")]
        return self.joint.has_worked;
        #[cfg(not(feature = "storage"))]
        false
    }

    /// The handle to reach this shard from other threads.
    pub fn handle(&self) -> &ShardHandle {
        &self.parts.handle
    }

    /// Begins a call. `cookie` comes back with its completion.
    ///
    /// # Errors
    /// [`CallRefused`] states the reason. Never waits.
    #[inline]
    pub fn call(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
    ) -> Result<CallBuilder<'_>, CallRefused> {
        CallBuilder::begin(self.parts, self.peers, self.exposer, peer, cookie)
    }

    /// Ends a call of this shard before its reply: it completes in the next turn with
    /// [`CallError::Cancelled`](crate::CallError::Cancelled), unless its reply arrives first. A
    /// call with exposed memory completes when its peer can no longer reach the memory. False if
    /// there is nothing to end: the call has ended, is about to end, or was not submitted.
    pub fn cancel(&mut self, call: CallHandle) -> bool {
        let CallHandle { peer, name } = call;
        let is_up = self.peers.named(peer).is_some_and(|peer| peer.phase == Phase::Up);
        let Parts { ledger: ShardLedger { calls, .. }, timers, rdma, handle, .. } =
            &mut *self.parts;
        let slot = calls.slot(name.id, peer.index);
        let is_open = calls.find(name.id.xid(), peer.index).is_some_and(|(_, entry)| {
            matches!(entry.state, CallState::Sent | CallState::Replying)
                // It waits for its memory.
                && (entry.mark == NO_MARK || !rdma.is_ended(entry.mark))
        });
        let Some(slot) = slot.filter(|_| is_up && is_open) else { return false };
        if calls.name(name.id, peer.index) != Some(name) {
            return false;
        }
        timers.cancel(slot, name);
        handle.wakeup().ring();
        true
    }

    /// As [`Turn::cancel`], for a call that is known to be open.
    pub(crate) fn cancel_open(&mut self, peer: ConnectionId, id: CallId) -> bool {
        let name = self.parts.ledger.calls.name(id, peer.index);
        name.is_some_and(|name| self.cancel(CallHandle { peer, name }))
    }

    /// Answers a deferred call. Returns the ticket if its connection has ended (then it is void),
    /// if it belongs to another shard, or if no send slot is free for this peer (then try again
    /// next turn).
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn resume(
        &mut self,
        mut ticket: Ticket,
        answer: impl for<'r> FnOnce(Reply<'r>) -> Answer<'r>,
    ) -> Result<(), Ticket> {
        if ticket.shard != self.parts.handle.shard() {
            return Err(ticket);
        }
        let Some(peer) = self.peers.named(ticket.peer).filter(|peer| peer.phase == Phase::Up)
        else {
            return Err(ticket);
        };
        if !self.parts.outbox.has_slot_for(&peer.lane) {
            return Err(ticket);
        }
        if !self.parts.outbox.allots_slot() {
            return Err(ticket);
        }
        ticket.dropped = None;
        let prefix = RpcPrefix { xid: ticket.to.xid, kind: MsgType::Reply };
        self.parts.outbox.begin(prefix);
        let payload = Payload::new(self.parts);
        let (saved_offer, timer) = (ticket.offer.if_any(), ticket.timer);
        let asked = ReplyContext { to: &ticket.to, saved_offer, timer };
        let over = peer.tally.over();
        let _answer = answer(Reply::new(payload, &mut *peer, prefix.xid, Some(&asked)));
        if timer != NO_TIMER && peer.tally.over() != over {
            self.parts.sampling.end_service(timer, ticket.peer, prefix.xid);
        }
        Ok(())
    }

    /// As [`Turn::resume`], with an answer made on another thread.
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn finish(&mut self, ticket: Ticket, finished: Finished) -> Result<(), (Ticket, Finished)> {
        let mut finished = Some(finished);
        self.resume(ticket, |mut reply| {
            let Finished { head, bulk, origin, tail } = finished.take().unwrap_or_default();
            reply.operation(origin);
            reply.payload().put_fixed(&head);
            if !bulk.is_empty() {
                reply.payload().place_pieces(bulk.into_iter().map(Into::into));
            }
            reply.payload().put_fixed(&tail);
            reply.send()
        })
        .map_err(|ticket| (ticket, finished.take().unwrap_or_default()))
    }

    /// Whether a ticket can still be answered.
    pub fn is_open(&mut self, ticket: &Ticket) -> bool {
        ticket.shard == self.parts.handle.shard()
            && self.peers.named(ticket.peer).is_some_and(|peer| peer.phase == Phase::Up)
    }

    /// A registered buffer for the program, of the configured length.
    pub fn buffer(&mut self) -> Option<Loan> {
        self.bulk.take()
    }

    /// Returns a buffer or a taken segment without the atomic operations of dropping it.
    pub fn release(&mut self, loan: Loan) {
        self.parts.rdma.release(self.pool, self.bulk, loan);
    }

    /// Begins what was submitted to a storage, by one system call for all of it; none if there is
    /// nothing. Call it last in [`Handler::on_turn`](crate::Handler::on_turn), in every turn.
    ///
    /// The first call joins the storage to this shard: the memory of its loans is registered with
    /// the ring, and from then on an operation that is done ends the shard's sleep. What is refused
    /// of it leaves a [`Note`](rpcrdma_storage::Note). Operations that were submitted or have
    /// completed are work: the idle policy does not wait behind this turn.
    #[cfg(feature = "storage")]
    #[inline]
    pub fn drive<T>(&mut self, storage: &mut rpcrdma_storage::Storage<T>) {
        self.joint.drive(storage, &self.parts.handle);
    }

    /// The address of a peer, as [`Call::address`](crate::Call::address) returns it; that of the
    /// listener if this side has connected. `None` when the connection has ended.
    pub fn address(&mut self, peer: ConnectionId) -> Option<Address> {
        self.peers.named_with_address(peer).map(|(_, address)| *address)
    }

    /// The limits of a peer.
    pub fn limits(&mut self, peer: ConnectionId) -> Option<&PeerLimits> {
        self.peers.named(peer).map(|peer| peer.conn.limits())
    }

    /// Transmissions that may be sent to a peer now.
    pub fn credits(&mut self, peer: ConnectionId) -> u32 {
        self.peers.named(peer).map_or(0, |peer| peer.conn.credits_available())
    }
}
