//! The audit of a shard: counts the owner of every resource, between two turns. For tests.
//!
//! ```text
//!   total = free + posted + refill + parked + waiting          receive buffers
//!   total = free + in messages + returning + with the program + lost  segments and bulk buffers
//! ```
//! It keeps no state: everything is counted when it is called.

use rpcrdma_mempool::Loan;
use rpcrdma_proto::{CallState, ShardLedger};

use super::Core;
use crate::connection_id::ConnectionId;
use crate::message::bulk::Bulk;
use crate::provider::Provider;
use crate::state::lane::queue::Queue;
use crate::state::peers::{Peer, Phase};
use crate::stats::tally::Counts;

/// The resources of a shard, by owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// Receive buffers in all.
    pub receives: usize,
    /// Receive buffers on the free list.
    pub receives_free: usize,
    /// Receive buffers owned by the device.
    pub receives_posted: usize,
    /// Receive buffers on their way to the device.
    pub receives_refill: usize,
    /// Receive buffers of incomplete groups.
    pub receives_parked: usize,
    /// Receive buffers whose message waits for a send slot.
    pub receives_waiting: usize,
    /// Receive buffers of calls being fetched, and of replies that wait for rights to end.
    pub receives_held: usize,
    /// Of these, those of replies.
    pub receives_fenced: usize,
    /// Segments that can be lent.
    pub spares: Lent,
    /// The program's buffers.
    pub bulk: Lent,
    /// Buffers for explicit RDMA. Those in use by calls of either direction count as leaving.
    pub rdma_buffers: Lent,
    /// Slices of registered bytes that are out of use, and so are their buffers.
    pub slices_lost: usize,
    /// Memory windows. Those that a peer may have a right by count as held.
    pub windows: Held,
    /// Held windows in quarantine until an abandoned call is answered.
    pub windows_quarantined: usize,
    /// Own calls that have memory exposed.
    pub exposures: usize,
    /// Calls of peers that are being fetched.
    pub fetches: usize,
    /// Send slots.
    pub send: Held,
    /// Slots for the headers of groups.
    pub headers: Held,
    /// Messages.
    pub messages: Held,
    /// Messages that the device never completed.
    pub leaked: u64,
    /// Answers of other threads that were not yet processed.
    pub answers: usize,
    /// Own calls outstanding.
    pub calls: u32,
    /// Of these, abandoned calls whose reply may still arrive.
    pub abandoned: u32,
    /// Receives kept for replies.
    pub reply_receives: u32,
    /// Of these, reserved ones.
    pub reply_reserved: u32,
    /// Receives kept for calls of peers.
    pub grant_receives: u32,
    /// Of these, granted ones.
    pub granted: u32,
    /// What connections have counted that are gone.
    pub gone: Counts,
    /// The connections.
    pub peers: Vec<PeerAudit>,
}

/// Memory that leaves on loan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lent {
    /// All loans.
    pub total: usize,
    /// In their pool.
    pub free: usize,
    /// In messages that have not left, or on their way back from them.
    pub leaving: usize,
    /// Dropped, and not yet collected by their pool.
    pub returning: usize,
    /// Out of use: the device or a peer may still touch it.
    pub lost: usize,
}

/// Resources that are free or in messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// All of them.
    pub total: usize,
    /// Free.
    pub free: usize,
    /// In messages that are pending or in flight.
    pub held: usize,
}

/// One connection of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAudit {
    /// Its identifier.
    pub id: ConnectionId,
    /// The number of its queue pair.
    pub qp_num: u32,
    /// Whether this side requested it.
    pub is_asked: bool,
    /// Whether calls may go both ways.
    pub is_up: bool,
    /// Whether it has ended and waits for its sends.
    pub is_closing: bool,
    /// Calls delivered to the handler and not yet answered.
    pub open_calls: u32,
    /// Calls whose data is being fetched.
    pub fetching: u32,
    /// Calls left without an answer because the shard stops.
    pub dropped: u32,
    /// Own calls outstanding.
    pub calls: u32,
    /// Of these, abandoned ones.
    pub abandoned: u32,
    /// Credits held by own calls.
    pub credits_held: u32,
    /// Receives reserved for their replies.
    pub replies_held: u32,
    /// Credits in use, by the ledger.
    pub credits_in_flight: u32,
    /// Credits that may be used.
    pub credits_limit: u32,
    /// Credits granted to the peer.
    pub granted: u32,
    /// Of these, those that the peer uses.
    pub outstanding: u32,
    /// Transmissions of the open group that have arrived.
    pub group_here: u32,
    /// Transmissions of it that are missing.
    pub group_missing: u32,
    /// Whether the open group is a call.
    pub group_is_call: bool,
    /// Outstanding work requests of the queue pair.
    pub sends: u32,
    /// Messages that wait to be posted.
    pub pending: u32,
    /// What it has counted.
    pub counts: Counts,
}

impl<P: Provider> Core<P> {
    /// Counts everything.
    #[cold]
    pub fn audit(&self) -> Audit {
        let Core { io, receive, bulk, parts, peers, .. } = self;
        let (pool, outbox, ledger) = (receive.pool(), &parts.outbox, &parts.ledger);
        let mut audit = Audit {
            receives: pool.capacity(),
            receives_free: pool.free(),
            receives_posted: io.posted_receives(),
            receives_refill: receive.refilling(),
            receives_parked: receive.parked(),
            receives_waiting: receive.waiting().len(),
            leaked: outbox.leaked(),
            answers: parts.handle.finished() + outbox.unanswered(),
            calls: ledger.calls.len(),
            reply_receives: ledger.replies.free() + ledger.replies.reserved(),
            reply_reserved: ledger.replies.reserved(),
            grant_receives: ledger.grants.receives(),
            granted: ledger.grants.granted(),
            gone: *peers.gone(),
            ..Audit::default()
        };
        audit.spares.total = pool.spares_max();
        audit.spares.free = pool.spares_free();
        audit.spares.returning = pool.returning();
        audit.bulk.total = bulk.capacity();
        audit.bulk.free = bulk.free();
        audit.bulk.returning = bulk.returning();
        self.count_rdma(&mut audit);
        let (slots, headers, messages) = (outbox.slots(), outbox.headers(), outbox.messages());
        let held = outbox.inline_sends().len();
        audit.send = Held { total: slots.capacity(), free: outbox.slots_free(), held };
        audit.headers = Held { total: headers.capacity(), free: headers.free(), held: 0 };
        audit.messages.total = messages.capacity();
        audit.messages.free = messages.free();
        for item in outbox.inline_sends().iter().filter_map(|it| it.with.item()) {
            audit.messages.held += 1;
            self.count_pieces(item, &mut audit);
        }
        for peer in peers.iter() {
            self.count_messages(&peer.lane.pending, &mut audit);
            self.count_messages(&peer.lane.flight, &mut audit);
            let of_peer = audit_of(peer, ledger);
            audit.abandoned += of_peer.abandoned;
            audit.peers.push(of_peer);
        }
        for loan in outbox.returned() {
            self.count_leaving(loan, &mut audit);
        }
        audit
    }

    /// Counts what explicit RDMA holds.
    fn count_rdma(&self, audit: &mut Audit) {
        let rdma = &self.parts.rdma;
        let (buffers, windows, exposures) = (rdma.buffers(), rdma.windows(), rdma.exposures());
        audit.rdma_buffers.total = buffers.capacity();
        audit.rdma_buffers.free = buffers.free();
        audit.rdma_buffers.returning = buffers.returning();
        audit.windows =
            Held { total: windows.total(), free: windows.free(), held: windows.bound() };
        audit.windows_quarantined = windows.quarantined();
        audit.exposures = exposures.len();
        audit.fetches = self.fetches.len();
        audit.receives_fenced = exposures.receives();
        audit.receives_held = self.fetches.receives() + audit.receives_fenced;
        for loan in self.fetches.loans().chain(exposures.loans()) {
            self.count_leaving(loan, audit);
        }
        for lost in exposures.lost() {
            let Bulk::Loan(loan) = lost else {
                audit.slices_lost += 1;
                continue;
            };
            audit.rdma_buffers.lost += usize::from(buffers.owns(loan));
            audit.bulk.lost += usize::from(self.bulk.owns(loan));
            audit.spares.lost += usize::from(self.receive.pool().owns(loan));
        }
    }

    /// Counts the resources held by the messages of a list.
    fn count_messages(&self, queue: &Queue, audit: &mut Audit) {
        let messages = self.parts.outbox.messages();
        let mut next = queue.front();
        while let Some(index) = next {
            let (head, body) = (messages.head(index), messages.body(index));
            audit.messages.held += 1;
            audit.send.held += usize::from(head.slot.is_some()) + body.slots.len();
            audit.headers.held += usize::from(body.headers.is_some());
            self.count_pieces(index, audit);
            next = messages.next(index);
        }
    }

    /// Counts the loans held by a message.
    fn count_pieces(&self, message: u32, audit: &mut Audit) {
        for piece in &self.parts.outbox.messages().body(message).pieces {
            if let Bulk::Loan(loan) = piece {
                self.count_leaving(loan, audit);
            }
        }
    }

    /// Counts a loan that is neither in its pool nor with the program.
    fn count_leaving(&self, loan: &Loan, audit: &mut Audit) {
        audit.rdma_buffers.leaving += usize::from(self.parts.rdma.buffers().owns(loan));
        audit.bulk.leaving += usize::from(self.bulk.owns(loan));
        audit.spares.leaving += usize::from(self.receive.pool().owns(loan));
    }
}

fn audit_of(peer: &Peer, ledger: &ShardLedger) -> PeerAudit {
    let Peer { conn, lane, .. } = peer;
    let group = conn.open_group();
    let is_call = group.is_some_and(|group| group.dir == rpcrdma_xdr::onc::MsgType::Call);
    let mut audit = PeerAudit {
        id: peer.id,
        qp_num: peer.qp_num,
        is_asked: peer.connect.is_some(),
        is_up: peer.phase == Phase::Up,
        is_closing: peer.phase == Phase::Closing,
        open_calls: peer.open_calls(),
        fetching: peer.fetching,
        dropped: peer.dropped,
        calls: 0,
        abandoned: 0,
        credits_held: 0,
        replies_held: 0,
        credits_in_flight: conn.credits().in_flight(),
        credits_limit: conn.credits_limit(),
        granted: conn.inflow().granted(),
        outstanding: conn.inflow().outstanding(),
        group_here: group.map_or(0, |group| group.next),
        group_missing: group.map_or(0, |group| group.count - group.next),
        group_is_call: is_call,
        sends: lane.outstanding(),
        pending: lane.pending.len(),
        counts: peer.counts(),
    };
    let mut start = 0;
    while let Some((id, next)) = ledger.calls.next_of(peer.id.index, start) {
        if let Some((_, entry)) = ledger.calls.find(id.xid(), peer.id.index) {
            audit.calls += 1;
            audit.abandoned += u32::from(entry.state == CallState::Abandoned);
            audit.credits_held += entry.credits;
            audit.replies_held += entry.receives;
        }
        start = next;
    }
    audit
}
