//! Reads the data of calls, and delivers each call when its data has arrived.
//!
//! ```text
//!   take_in ──▶ read_waiting ──Reads──▶ deliver ──▶ handler
//! ```

use rpcrdma_mempool::RecvPool;

use super::receive::Receive;
use crate::api::handler::Handler;
use crate::state::lane::messages::After;
use crate::state::parts::Parts;
use crate::state::peers::{Peer, Peers, Phase};
use crate::state::rdma::fetch::RemoteCall;
use crate::state::rdma::fetches::Fetches;
use crate::state::rdma::windows::Exposer;

impl Fetches {
    /// Accepts a call with data in the memory of its caller.
    /// False if it is rejected.
    #[cold]
    pub fn take_in(
        &mut self,
        peer: Option<&mut Peer>,
        parts: &mut Parts,
        receive: &mut Receive,
        RemoteCall { to, found, buffers, transmissions }: RemoteCall<'_>,
    ) -> bool {
        let Some(peer) = peer.filter(|peer| peer.phase == Phase::Up) else {
            receive.free_buffers(buffers);
            return false;
        };
        let is_stopping = parts.timers.is_stopping();
        let place = if is_stopping { None } else { self.open(peer.id, to, found.needs) };
        let Some(place) = place else {
            parts.reject_call(peer, &to);
            receive.free_buffers(buffers);
            return false;
        };
        peer.fetching += 1;
        self.at(place).keep(buffers, transmissions, found);
        true
    }

    /// Begins to read the data of calls, as far as buffers are free.
    pub fn read_waiting(
        &mut self,
        peers: &mut Peers,
        parts: &mut Parts,
        pool: &RecvPool,
        exposer: &mut dyn Exposer,
    ) {
        let reads_expose = self.reads_expose();
        let is_alone = peers.len() == 1;
        parts.rdma.buffers_mut().0.reclaim();
        while parts.outbox.messages().free() > 0
            && let Some(place) = self.begin(parts.rdma.buffers(), is_alone)
            && let Some(message) = parts.outbox.messages_mut().begin()
        {
            let Parts { outbox, rdma, stats, .. } = &mut *parts;
            let fetch = self.at(place);
            let peer = fetch.owner.and_then(|(peer, _)| peers.named(peer));
            let scatter_max = outbox.scatter_max();
            let body = outbox.messages_mut().body_mut(message);
            let laid_out = peer.and_then(|peer| {
                let (buffers, _) = rdma.buffers_mut();
                fetch.lay_out(pool, buffers, body, scatter_max).map(|()| peer)
            });
            let is_laid_out = laid_out.is_some();
            let ready = laid_out.filter(|_| !reads_expose || fetch.open(body, exposer));
            let requests = body.requests.len() as u16;
            let bytes = body.gather.iter().map(|sge| u64::from(sge.length)).sum();
            let Some(peer) = ready else {
                parts.release(message);
                self.fail(place, is_laid_out);
                parts.on_buffers_lost(self.close_buffers(place, exposer));
                continue;
            };
            let head = outbox.messages_mut().head_mut(message);
            (head.requests, head.after) = (requests, After::Fetched(place));
            stats.rdma_reads.add(requests.into());
            stats.bytes_read.add(bytes);
            peer.totals.counted.bytes_read += bytes;
            outbox.enqueue(&mut peer.lane, peer.id.index, message);
        }
    }

    /// Whether calls can be delivered or read without a further event.
    pub fn can_step(&self, peers: &mut Peers, Parts { outbox, rdma, .. }: &mut Parts) -> bool {
        let (buffers, _) = rdma.buffers_mut();
        buffers.reclaim();
        self.here().any(|id| match id.and_then(|id| peers.named(id)) {
            Some(peer) => outbox.has_slot_for(&peer.lane),
            None => true,
        }) || outbox.messages().free() > 0 && self.can_begin(buffers, peers.len() == 1)
    }

    /// Delivers calls whose data has arrived, as far as send slots are free to answer them.
    pub fn deliver(
        &mut self,
        peers: &mut Peers,
        parts: &mut Parts,
        receive: &mut Receive,
        handler: &mut dyn Handler,
    ) {
        for _each_once in 0..self.here_len() {
            let Some(place) = self.pop_here() else { return };
            if !self.deliver_one(place, peers, parts, receive, handler) {
                // Calls of other peers need not wait for it.
                self.retry_here(place);
                continue;
            }
            let owner = self.at(place).owner;
            self.free(place, peers, parts, receive);
            if let Some((id, _)) = owner
                && let Some(peer) = peers.at(id.index).filter(|peer| peer.phase == Phase::Up)
            {
                parts.outbox.offer_properties(peer);
            }
        }
    }

    /// Delivers a call whose data has arrived. False if no send slot is free to answer it.
    fn deliver_one(
        &mut self,
        place: u32,
        peers: &mut Peers,
        parts: &mut Parts,
        receive: &mut Receive,
        handler: &mut dyn Handler,
    ) -> bool {
        let fetch = self.at(place);
        let Some((id, to)) = fetch.owner else { return true };
        let Some((peer, address)) = peers.named_with_address(id) else { return true };
        if peer.phase != Phase::Up {
            return true;
        }
        if parts.timers.is_stopping() {
            parts.reject_call(peer, &to);
            return true;
        }
        if !parts.outbox.has_slot_for(&peer.lane) {
            return false;
        }
        let (_, buffer_len) = parts.rdma.buffers_mut();
        match fetch.prepare(&peer.conn, &to, buffer_len, receive.reading()) {
            Err(violation) => parts.reject(peer, &to, violation),
            Ok(()) => {
                let (buffers, rdma_target) = fetch.rdma_target();
                receive.deliver_call((peer, address), parts, to, (buffers, rdma_target), handler);
            }
        }
        true
    }

    /// Returns all buffers of a fetched call.
    fn free(&mut self, place: u32, peers: &mut Peers, parts: &mut Parts, receive: &mut Receive) {
        let fetch = self.at(place);
        if let Some((id, _)) = fetch.owner
            && let Some(peer) = peers.named(id)
        {
            peer.fetching -= 1;
        }
        fetch.give_back(parts.rdma.buffers_mut().0);
        let buffers = core::mem::take(&mut fetch.buffers);
        self.close(place);
        receive.free_buffers(buffers);
    }
}
