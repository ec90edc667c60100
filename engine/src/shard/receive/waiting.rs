//! Messages that wait for a send slot to answer them, in order for each peer.
//!
//! A peer that takes nothing of what is sent to it may have a share of the slots and no more
//! ([`Outbox::has_slot_for`]): its messages wait, those of others do not.

use std::collections::VecDeque;

use rpcrdma_mempool::RecvToken;

use super::disposition::RecvInfo;
use crate::shard::peers::{Peer, Peers};
use crate::shard::send::outbox::Outbox;

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

    /// Begins to go through all that wait, once.
    pub fn begin_scan(&mut self) -> Scan {
        self.scan += 1;
        Scan { at: 0, len: None }
    }

    /// Takes out the next message of a scan that can be taken up, with the place of its peer, if that
    /// is not gone: none of a peer that has its share of the slots, and none behind one that waits on.
    pub fn next(
        &mut self,
        scan: &mut Scan,
        peers: &mut Peers,
        outbox: &Outbox,
    ) -> Option<(Option<u32>, Waiting)> {
        // It was put to the front: what comes next has moved by one.
        scan.at += usize::from(scan.len.is_some_and(|len| self.list.len() > len));
        while outbox.slots().free() > 0
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

    /// Whether one of the messages that wait can be taken up.
    pub fn can_serve(&self, peers: &mut Peers, outbox: &Outbox) -> bool {
        self.list.iter().any(|it| match peers.find(it.qp_num).and_then(|at| peers.at(at)) {
            Some(peer) => outbox.has_slot_for(&peer.lane),
            None => outbox.slots().free() > 0,
        })
    }

    /// The message that waits longest.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.list.pop_front()
    }

    /// Puts a message behind all others that was taken out.
    pub fn put_back(&mut self, it: Waiting) {
        self.list.push_back(it);
    }

    /// The buffers of all of them, for whoever does not want the messages.
    pub fn drain(&mut self) -> impl Iterator<Item = RecvToken> {
        self.list.drain(..).map(|it| it.token)
    }
}

/// How far one go through all that wait has come.
pub(crate) struct Scan {
    at: usize,
    /// How many waited when the last was taken out.
    len: Option<usize>,
}
