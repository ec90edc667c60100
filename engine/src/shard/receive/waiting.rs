//! Messages that wait for a send slot to answer them, in order for each peer.
//!
//! A peer that accepts no sent messages gets only a share of the slots ([`Outbox::has_slot_for`]):
//! its messages wait, those of other peers do not.

use std::collections::VecDeque;

use rpcrdma_mempool::RecvToken;

use super::disposition::RecvInfo;
use crate::state::peers::{Peer, Peers};
use crate::state::send::outbox::Outbox;

/// A waiting message.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub token: RecvToken,
    pub recv: RecvInfo,
    pub qp_num: u32,
}

/// The waiting messages of all peers.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    /// For each peer in the order of arrival.
    list: VecDeque<Waiting>,
    /// The number of scans.
    scan: u64,
}

impl WaitingRoom {
    /// For this number of receive buffers.
    pub fn new(receives: usize) -> WaitingRoom {
        WaitingRoom { list: VecDeque::with_capacity(receives), scan: 0 }
    }

    /// The number of waiting messages.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether no message waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a message behind all others of its peer.
    #[cold]
    pub fn push(&mut self, peer: &mut Peer, it: Waiting) {
        peer.waiting += 1;
        self.list.push_back(it);
    }

    /// Adds a message in front of all others of its peer.
    #[cold]
    pub fn push_first(&mut self, peer: &mut Peer, it: Waiting) {
        peer.waiting += 1;
        // Not in the same scan: later messages of the peer would overtake it.
        peer.passed_over = self.scan;
        self.list.push_front(it);
    }

    /// Begins one scan of all waiting messages.
    pub fn begin_scan(&mut self) -> Scan {
        self.scan += 1;
        Scan { at: 0, len: None }
    }

    /// Removes and returns the next message of a scan that can be processed, with the place of its
    /// peer if that still exists. Skips peers that have used their share of the slots, and messages
    /// behind one that waits on.
    pub fn next(
        &mut self,
        scan: &mut Scan,
        peers: &mut Peers,
        outbox: &Outbox,
    ) -> Option<(Option<u32>, Waiting)> {
        // It was put to the front: the next message has moved by one.
        scan.at += usize::from(scan.len.is_some_and(|len| self.list.len() > len));
        while outbox.slots_free() > 0
            && let Some(&Waiting { qp_num, .. }) = self.list.get(scan.at)
        {
            let index = peers.find(qp_num);
            if let Some(peer) = index.and_then(|index| peers.at(index)) {
                if peer.passed_over == self.scan || !outbox.has_slot_for(&peer.lane) {
                    peer.passed_over = self.scan;
                    scan.at += 1;
                    continue;
                }
                peer.waiting -= 1;
            }
            let it = self.list.remove(scan.at)?;
            scan.len = Some(self.list.len());
            return Some((index, it));
        }
        None
    }

    /// Whether one of the waiting messages can be processed.
    pub fn can_serve(&self, peers: &mut Peers, outbox: &Outbox) -> bool {
        self.list.iter().any(|it| match peers.find(it.qp_num).and_then(|at| peers.at(at)) {
            Some(peer) => outbox.has_slot_for(&peer.lane),
            None => outbox.slots_free() > 0,
        })
    }

    /// The message that has waited longest.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.list.pop_front()
    }

    /// Puts a removed message behind all others.
    pub fn put_back(&mut self, it: Waiting) {
        self.list.push_back(it);
    }

    /// The buffers of all messages, to discard the messages.
    pub fn drain(&mut self) -> impl Iterator<Item = RecvToken> {
        self.list.drain(..).map(|it| it.token)
    }
}

/// The position of one scan.
pub(crate) struct Scan {
    at: usize,
    /// The number of waiting messages when the last was removed.
    len: Option<usize>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_utils::CachePadded;
    use rpcrdma_config::Config;

    use super::*;
    use crate::budget::Budget;
    use crate::fabric::Fabric;
    use crate::provider::Provider;
    use crate::shard::memory::Memory;
    use crate::state::send::outbox::{OutboxPools, OutboxSizes};
    use crate::stats::Stats;

    #[test]
    fn a_scan_passes_over_the_messages_of_a_peer_that_waits_on() {
        let (fabric, config) = (Fabric::new(), Config::default());
        let budget = Budget::new(&config, fabric.caps()).expect("it fits");
        let memory = Memory::new(&config, &budget, fabric.registrar(), None).expect("memory");
        let Memory { mut recv, send, headers, zero, .. } = memory;
        let stats = Arc::new(CachePadded::new(Stats::default()));
        let pools = OutboxPools { slots: send, headers, zero };
        let outbox = Outbox::new(stats, pools, OutboxSizes::SMALL, config.send().hold);
        let mut peers = Peers::new(2);
        for qp_num in [10, 20] {
            let id = peers.vacancy().expect("two places");
            let peer = Peer { id, qp_num, ..Peer::up() };
            peers.insert(peer, "10.0.0.1:1".parse().expect("an address"), None);
        }
        let (mut room, places) = (WaitingRoom::new(4), [0, 0, 1, 0]);
        for (byte_len, place) in (0..).zip(places) {
            let peer = peers.at(place).expect("it is there");
            let (token, qp_num) = (recv.take().expect("a buffer"), peer.qp_num);
            let recv = RecvInfo { byte_len, invalidated: None };
            room.push(peer, Waiting { token, recv, qp_num });
        }
        let mut scan = room.begin_scan();
        let (_, first) = room.next(&mut scan, &mut peers, &outbox).expect("there are slots");
        assert_eq!(first.recv.byte_len, 0);
        room.push_first(peers.at(0).expect("it is there"), first);
        let (place, other) = room.next(&mut scan, &mut peers, &outbox).expect("of the other");
        assert_eq!((place, other.recv.byte_len), (Some(1), 2));
        assert!(room.next(&mut scan, &mut peers, &outbox).is_none());
        let left: Vec<u32> = room.list.iter().map(|it| it.recv.byte_len).collect();
        assert_eq!(left, [0, 1, 3], "in their order");
        room.drain().chain([other.token]).for_each(|token| recv.put(token));
    }
}
