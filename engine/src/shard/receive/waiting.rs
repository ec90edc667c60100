//! Messages that wait for a send slot to answer them, in order for each peer.
//!
//! A peer that accepts no sent messages gets only a share of the slots ([`Outbox::has_slot_for`]):
//! its messages wait, those of other peers do not.

use std::collections::VecDeque;

use rpcrdma_mempool::RecvToken;

use super::disposition::RecvInfo;
use crate::shard::peers::{Peer, Peers};
use crate::shard::send::outbox::Outbox;

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
