//! The steps that report on the shard to other threads: some peers in each turn.

use super::Core;
use crate::provider::{Address, Provider};
use crate::state::peers::{Peer, Phase};
use crate::stats::inspection::Inspection;
use crate::stats::report::{Credits, Gauges, PeerReport, PeerState, ShardReport, Usage};

impl<P: Provider> Core<P> {
    /// Continues the report that was asked for. Other turns follow if that does not finish it.
    #[cold]
    pub(super) fn step_inspection(&mut self) {
        let inspections = self.parts.handle.inspections();
        if self.inspection.report.is_none() {
            if !inspections.is_asked() {
                return;
            }
            let report = inspections.begin();
            self.inspection = Inspection { report, next: 0, is_outdated: false };
        }
        if let Some(mut report) = self.inspection.report.take() {
            let is_done = self.look_at_peers(&mut report);
            self.inspection.report = if is_done {
                if self.inspection.is_outdated {
                    report.peers.retain(|peer| self.peers.named(peer.id).is_some());
                }
                self.finish_report(&mut report);
                self.parts.handle.inspections().answer(report)
            } else {
                Some(report)
            };
        }
        if self.inspection.report.is_some() || self.parts.handle.inspections().is_asked() {
            self.parts.handle.wakeup().ring();
        }
    }

    /// The shard at this moment.
    #[cold]
    pub fn inspect(&mut self) -> ShardReport {
        let mut report = self.parts.handle.inspections().blank();
        report.peers.extend(
            self.peers.in_places(0..u32::MAX).map(|(peer, address)| report_of(peer, address)),
        );
        self.finish_report(&mut report);
        report
    }

    /// A connection has ended: what it counted is not reported twice.
    pub fn outdate_report(&mut self, index: u32) {
        self.inspection.is_outdated |= index < self.inspection.next;
    }

    /// Adds some peers to a report. True if these were the last.
    fn look_at_peers(&mut self, report: &mut ShardReport) -> bool {
        let until = self.inspection.next.saturating_add(PEERS_PER_TURN);
        report.peers.extend(
            self.peers
                .in_places(self.inspection.next..until)
                .map(|(peer, address)| report_of(peer, address)),
        );
        self.inspection.next = until;
        until >= self.peers.capacity()
    }

    /// Adds the rest to a report on all peers.
    fn finish_report(&mut self, report: &mut ShardReport) {
        // Loans that were dropped elsewhere are free.
        self.receive.pool_mut().reclaim();
        self.bulk.reclaim();
        self.parts.rdma.reclaim();
        report.counters = self.parts.stats.snapshot();
        report.gauges = self.gauges(&report.peers);
        report.gone = *self.peers.gone();
    }

    fn gauges(&self, peers: &[PeerReport]) -> Gauges {
        let Core { io, receive, bulk, parts, .. } = self;
        let (pool, outbox, rdma, ledger) =
            (receive.pool(), &parts.outbox, &parts.rdma, &parts.ledger);
        let (buffers, windows) = (rdma.buffers(), rdma.windows());
        let (grants, replies) = (&ledger.grants, &ledger.replies);
        let connections = self.peers.capacity();
        let calls = ledger.calls.slots();
        let sum = |of: fn(&PeerReport) -> u32| peers.iter().map(|peer| u64::from(of(peer))).sum();
        Gauges {
            connections: Usage::new(connections, connections as usize - self.peers.len()),
            calls: Usage::new(calls, calls - ledger.calls.len()),
            slots: Usage::new(outbox.slots().capacity(), outbox.slots_free()),
            segments: Usage::new(pool.spares_max(), pool.spares_free()),
            buffers: Usage::new(bulk.capacity(), bulk.free()),
            rdma_buffers: Usage::new(buffers.capacity(), buffers.free()),
            windows: Usage::new(windows.total(), windows.free()),
            fetches: Usage::new(self.fetches.capacity(), self.fetches.places_free()),
            grants: Usage::new(grants.receives(), grants.receives() - grants.granted()),
            replies: Usage::new(replies.free() + replies.reserved(), replies.free()),
            receives: pool.capacity() as u64,
            receives_posted: io.posted_receives() as u64,
            receives_waiting: receive.waiting().len() as u64,
            calls_open: sum(|peer| peer.calls_open),
            messages_pending: sum(|peer| peer.messages_pending),
            sends_outstanding: sum(|peer| peer.sends_outstanding),
        }
    }
}

fn report_of(peer: &Peer, address: &Address) -> PeerReport {
    let Peer { conn, lane, .. } = peer;
    PeerReport {
        id: peer.id,
        address: *address,
        is_requested: peer.connect.is_some(),
        state: match peer.phase {
            Phase::Opening => PeerState::Opening,
            Phase::Up => PeerState::Up,
            Phase::Leaving => PeerState::Leaving,
            Phase::Closing => PeerState::Closing,
        },
        version: conn.version(),
        limits: *conn.limits(),
        counts: peer.counts(),
        credits: Credits { limit: conn.credits_limit(), used: conn.credits().in_flight() },
        granted: Credits { limit: conn.inflow().granted(), used: conn.inflow().outstanding() },
        calls_open: peer.open_calls(),
        calls_fetching: peer.fetching,
        calls_exposed: peer.exposed,
        messages_waiting: peer.waiting,
        messages_pending: lane.pending.len(),
        sends_outstanding: lane.outstanding(),
        slots: lane.slots(),
    }
}

/// Places for connections that are looked at in one turn.
const PEERS_PER_TURN: u32 = 64;
