//! Messages that wait for a send slot: looked at when there is one to answer them, each peer's in order.
//!
//! A peer that takes nothing of what is sent to it may have a share of the slots and no more
//! ([`Outbox::has_slot_for`](crate::shard::send::outbox::Outbox::has_slot_for)): its messages wait, those of others
//! do not.

use std::collections::VecDeque;

use rpcrdma_mempool::RecvToken;

use super::transmission::RecvInfo;
use crate::api::handler::Handler;
use crate::provider::Provider;
use crate::shard::core::Core;
use crate::shard::peers::Peer;

/// A message that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub token: RecvToken,
    pub recv: RecvInfo,
    pub qp_num: u32,
}

/// All that wait, of all peers.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    /// Of each peer in the order of arrival.
    list: VecDeque<Waiting>,
    /// How often it was gone through.
    scan: u64,
}

impl WaitingRoom {
    /// For as many as there are receive buffers.
    pub fn new(receives: usize) -> WaitingRoom {
        WaitingRoom { list: VecDeque::with_capacity(receives), scan: 0 }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// A message that comes behind all others of its peer.
    #[cold]
    pub fn push(&mut self, peer: &mut Peer, it: Waiting) {
        peer.waiting += 1;
        self.list.push_back(it);
    }

    /// A message that comes before all others of its peer.
    #[cold]
    pub fn push_first(&mut self, peer: &mut Peer, it: Waiting) {
        peer.waiting += 1;
        // Not in the same scan: what is behind it would come first.
        peer.passed_over = self.scan;
        self.list.push_front(it);
    }

    /// The buffers of all of them, for whoever does not want the messages.
    pub fn drain(&mut self) -> impl Iterator<Item = RecvToken> {
        self.list.drain(..).map(|it| it.token)
    }
}

impl<P: Provider> Core<P> {
    /// Takes up messages that wait, as many as there are slots for: none of a peer that has its
    /// share, and none behind one that waits on. Once through the list.
    #[cold]
    pub fn serve_waiting<H: Handler>(&mut self, now: u64, handler: &mut H) {
        self.waiting.scan += 1;
        let mut at = 0;
        while self.outbox.send.free() > 0
            && let Some(&Waiting { qp_num, .. }) = self.waiting.list.get(at)
        {
            let Core { peers, outbox, waiting, .. } = &mut *self;
            let index = peers.find(qp_num);
            let peer = index.and_then(|index| peers.at(index));
            if let Some(peer) = peer {
                if peer.passed_over == waiting.scan || !outbox.has_slot_for(&peer.lane) {
                    peer.passed_over = waiting.scan;
                    at += 1;
                    continue;
                }
                peer.waiting -= 1;
            }
            let before = waiting.list.len();
            let Some(Waiting { token, recv, .. }) = waiting.list.remove(at) else { return };
            match index {
                Some(index) => self.receive(index, token, (recv, false), now, handler),
                None => self.free_buffer(token),
            }
            // It was put to the front: what comes next has moved by one.
            at += usize::from(self.waiting.list.len() == before);
        }
    }

    /// Whether one of the messages that wait can be taken up.
    pub fn can_serve_waiting(&mut self) -> bool {
        let Core { waiting, peers, outbox, .. } = self;
        waiting.list.iter().any(|it| match peers.find(it.qp_num).and_then(|at| peers.at(at)) {
            Some(peer) => outbox.has_slot_for(&peer.lane),
            None => outbox.send.free() > 0,
        })
    }

    /// Drops the messages of a connection that is gone: its number may be used again.
    #[cold]
    pub fn drop_waiting(&mut self, qp_num: u32) {
        for _each_once in 0..self.waiting.len() {
            let Some(it) = self.waiting.list.pop_front() else { return };
            if it.qp_num == qp_num {
                self.stats.late.add(1);
                self.free_buffer(it.token);
            } else {
                self.waiting.list.push_back(it);
            }
        }
    }
}
