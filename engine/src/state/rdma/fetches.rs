//! All calls of a shard whose data is fetched, and their order.
//!
//! ```text
//!   open ──▶ waiting ──begin──▶ reading ──end_reading──▶ here ──pop_here──▶ close
//!               └──────────── give_up ─────────────────────▶
//! ```
//! Peers with waiting calls form a queue; the first one begins a call. While other peers exist, a
//! peer begins a further call only if its calls then hold at most half of the buffers and of the
//! reads. So a peer whose data does not arrive blocks no more than that.

use core::mem::ManuallyDrop;
use std::collections::VecDeque;

use rpcrdma_mempool::{BulkPool, Loan, RecvToken};
use rpcrdma_proto::ReplyTo;

use super::fetch::Fetch;
use super::windows::Exposer;
use crate::connection_id::ConnectionId;

/// All calls of a shard whose data is being fetched.
pub(crate) struct Fetches {
    entries: Box<[Fetch]>,
    free: Vec<u32>,
    /// The share of each peer.
    shares: Box<[Share]>,
    /// The peers whose calls wait for buffers, or for their turn; each once.
    line: VecDeque<u32>,
    /// Calls whose data has arrived, waiting for a send slot for the answer.
    here: VecDeque<u32>,
    /// Calls that are being read, and buffers that calls hold.
    used: FetchUse,
    /// The maximum of each.
    most: FetchUse,
    /// Places that are permanently out of use.
    lost: usize,
    /// Buffers that a device may still write to: kept until the queues are destroyed.
    withheld: Vec<Loan>,
    /// Buffers that a peer may still write to: kept forever.
    abandoned: ManuallyDrop<Vec<Loan>>,
    /// Whether the buffers of Reads are opened to the peer ([`ReadKeys`](super::read_keys)).
    reads_expose: bool,
}

/// Calls that are being read, and buffers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FetchUse {
    /// Calls.
    pub reads: u32,
    /// Buffers.
    pub buffers: usize,
}

/// What the end of a call's Reads leaves out of use.
#[must_use]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Buffers.
    pub buffers: usize,
    /// Whether a peer may write to one of them for ever.
    pub has_rights: bool,
}

/// The share of one peer.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    used: FetchUse,
    /// The first and the last of its waiting calls, linked by [`Fetch::next`].
    waiting: Option<(u32, u32)>,
    /// The number of calls whose data has arrived.
    ended: u64,
    /// The last observed value of that number, and the time since which it is unchanged.
    seen: Option<(u64, u64)>,
}

impl Fetches {
    /// Room for as many calls as can be open, of this number of peers.
    pub fn new(count: usize, peers: usize, most: FetchUse, reads_expose: bool) -> Fetches {
        Fetches {
            entries: (0..count).map(|_| Fetch::default()).collect(),
            free: (0..count as u32).rev().collect(),
            shares: vec![Share::default(); peers].into(),
            line: VecDeque::with_capacity(peers),
            here: VecDeque::with_capacity(count),
            used: FetchUse::default(),
            most,
            lost: 0,
            withheld: Vec::new(),
            abandoned: ManuallyDrop::default(),
            reads_expose,
        }
    }

    /// Allocates a place for a call that needs this number of buffers; the call waits. `None` if no
    /// place is left, or no message to read any data with.
    pub fn open(&mut self, peer: ConnectionId, to: ReplyTo, needs: usize) -> Option<u32> {
        if self.most.reads == 0 {
            return None;
        }
        let index = self.free.pop()?;
        let entry = &mut self.entries[index as usize];
        (entry.owner, entry.needs, entry.next) = (Some((peer, to)), needs, None);
        let share = &mut self.shares[peer.index as usize];
        match &mut share.waiting {
            Some((_, last)) => {
                self.entries[*last as usize].next = Some(index);
                *last = index;
            }
            none => {
                *none = Some((index, index));
                self.line.push_back(peer.index);
            }
        }
        Some(index)
    }

    /// The call in a place.
    pub fn at(&mut self, index: u32) -> &mut Fetch {
        &mut self.entries[index as usize]
    }

    /// Whether a call can be read now, with these buffers; see [`Fetches::begin`].
    pub fn can_begin(&self, rdma_buffers: &BulkPool, is_alone: bool) -> bool {
        self.next(rdma_buffers, is_alone).is_some()
    }

    /// The next call to read, if one may begin and buffers are free for it. `is_alone` states that
    /// there are no other peers.
    pub fn begin(&mut self, rdma_buffers: &BulkPool, is_alone: bool) -> Option<u32> {
        let peer = match self.next(rdma_buffers, is_alone)? {
            0 => self.line.pop_front()?,
            at => self.line.remove(at)?,
        };
        let share = &mut self.shares[peer as usize];
        let (first, last) = share.waiting.take()?;
        let entry = &mut self.entries[first as usize];
        if let Some(next) = entry.next.take() {
            share.waiting = Some((next, last));
            self.line.push_back(peer);
        }
        (entry.is_reading, entry.held) = (true, entry.needs);
        for used in [&mut self.used, &mut share.used] {
            used.reads += 1;
            used.buffers += entry.held;
        }
        Some(first)
    }

    /// The position in the queue of the peer whose call is next.
    fn next(&self, rdma_buffers: &BulkPool, is_alone: bool) -> Option<usize> {
        let Fetches { used, most, .. } = *self;
        if self.line.is_empty() || used.reads >= most.reads {
            return None;
        }
        let half = FetchUse { reads: most.reads.div_ceil(2), buffers: most.buffers.div_ceil(2) };
        let mut line = self.line.iter().enumerate();
        let (at, needs) = line.find_map(|(at, &peer)| {
            let share = &self.shares[peer as usize];
            let needs = self.entries[share.waiting?.0 as usize].needs;
            let is_within =
                share.used.reads < half.reads && share.used.buffers + needs <= half.buffers;
            (is_alone || share.used.reads == 0 || is_within).then_some((at, needs))
        })?;
        // The first in the queue waits until buffers return to the pool, and all others with it.
        // The other half of all buffers is for own calls: the peer may wait for their answers.
        let has_room = used.buffers + needs <= most.buffers && needs <= rdma_buffers.free();
        has_room.then_some(at)
    }

    /// Discards the waiting calls of a connection.
    #[cold]
    pub fn give_up(&mut self, peer: ConnectionId) {
        if self.reject_waiting(peer.index) {
            self.line.retain(|&other| other != peer.index);
        }
    }

    /// Ends the waiting calls of a peer without their data. False if there are none.
    #[cold]
    fn reject_waiting(&mut self, peer: u32) -> bool {
        let waiting = self.shares[peer as usize].waiting.take();
        let mut next = waiting.map(|(first, _)| first);
        while let Some(index) = next {
            self.here.push_back(index);
            next = self.entries[index as usize].next.take();
        }
        waiting.is_some()
    }

    /// The data of a call has arrived, or its connection is gone.
    pub fn end_reading(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if core::mem::take(&mut entry.is_reading) {
            entry.is_read = true;
            self.here.push_back(index);
            self.used.reads -= 1;
            if let Some((peer, _)) = entry.owner {
                let share = &mut self.shares[peer.index as usize];
                share.used.reads -= 1;
                share.ended += 1;
            }
        }
    }

    /// A call cannot be read; `is_unregistered` states that the device did not register its buffers.
    #[cold]
    pub fn fail(&mut self, index: u32, is_unregistered: bool) {
        self.end_reading(index);
        let entry = &mut self.entries[index as usize];
        (entry.is_read, entry.is_unregistered) = (false, is_unregistered);
    }

    /// Whether the buffers of Reads are opened to the peer.
    pub fn reads_expose(&self) -> bool {
        self.reads_expose
    }

    /// Closes the buffers of a call to the peer, whose Reads have ended or were not posted. If the
    /// device keeps one open, the call fails, and its buffers are out of use.
    pub fn close_buffers(&mut self, index: u32, exposer: &mut dyn Exposer) -> Lost {
        let entry = &mut self.entries[index as usize];
        if !self.reads_expose || entry.keys.close(exposer) {
            return Lost::default();
        }
        (entry.is_read, entry.is_unregistered) = (false, true);
        self.withdraw(index)
    }

    /// Closes all buffers to the peers, when the shard ends: the end of the queues need not end a
    /// registration. Buffers that the device keeps open are kept forever.
    #[cold]
    pub fn close_all(&mut self, exposer: &mut dyn Exposer) {
        for index in 0..self.entries.len() as u32 {
            if !self.entries[index as usize].keys.close(exposer) {
                let _ = self.withdraw(index);
            }
        }
    }

    /// The device did not complete the message of a call and may still write to its buffers. Both
    /// are out of use until the shard ends, and so is the place. There is one message for each call
    /// that is read at one time: that number decreases, too. The buffers are closed to the peer.
    #[cold]
    pub fn leak(&mut self, index: u32, exposer: &mut dyn Exposer) -> Lost {
        let entry = &mut self.entries[index as usize];
        entry.is_lost = true;
        // If the device keeps one, the buffers are abandoned below.
        let _ = entry.keys.close(exposer);
        self.end_reading(index);
        self.most.reads = self.most.reads.saturating_sub(1);
        if self.most.reads == 0 {
            // No data is read any more: those that wait for it are rejected.
            for at in core::mem::take(&mut self.line) {
                self.reject_waiting(at);
            }
        }
        self.withdraw(index)
    }

    /// Takes the buffers of a call out of use: forever if the device keeps one of them open.
    #[cold]
    fn withdraw(&mut self, index: u32) -> Lost {
        let entry = &mut self.entries[index as usize];
        let has_rights = entry.keys.forget();
        let kept = if has_rights { &mut *self.abandoned } else { &mut self.withheld };
        let before = kept.len();
        kept.extend(entry.loans.drain(..).flatten());
        let buffers = kept.len() - before;
        self.most.buffers -= buffers.min(self.most.buffers);
        // Calls that now need more than the total go to the front, to be rejected.
        for entry in self.entries.iter_mut().filter(|it| it.owner.is_some() && it.held == 0) {
            if entry.needs > self.most.buffers {
                entry.needs = 0;
            }
        }
        Lost { buffers, has_rights }
    }

    /// Whether a peer's data has been outstanding for `patience` without any arrival. Its
    /// accuracy is the time between two looks at the connection.
    pub fn is_late(&mut self, peer: u32, now: u64, patience: u64) -> bool {
        let share = &mut self.shares[peer as usize];
        if share.used.reads == 0 {
            share.seen = None;
            return false;
        }
        match share.seen {
            Some((ended, since)) if ended == share.ended => now.saturating_sub(since) >= patience,
            _ => {
                share.seen = Some((share.ended, now));
                false
            }
        }
    }

    /// A call whose data has arrived.
    pub fn pop_here(&mut self) -> Option<u32> {
        self.here.pop_front()
    }

    /// Puts back a call that could not be delivered yet, behind those of others.
    pub fn retry_here(&mut self, index: u32) {
        self.here.push_back(index);
    }

    /// The number of calls to deliver.
    pub fn here_len(&self) -> usize {
        self.here.len()
    }

    /// The connections of the calls to deliver.
    pub fn here(&self) -> impl Iterator<Item = Option<ConnectionId>> {
        self.here.iter().map(|&at| self.entries[at as usize].owner.map(|(peer, _)| peer))
    }

    /// The number of calls to deliver or read.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.line.len() + self.here.len()
    }

    /// Frees a place whose buffers have been returned.
    pub fn close(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.buffers.is_empty() && entry.loans.is_empty(), "all is returned");
        entry.parts.clear();
        (entry.is_read, entry.is_unregistered) = (false, false);
        let held = core::mem::take(&mut entry.held);
        self.used.buffers -= held;
        if let Some((peer, _)) = entry.owner.take() {
            self.shares[peer.index as usize].used.buffers -= held;
        }
        match entry.is_lost {
            true => self.lost += 1,
            false => self.free.push(index),
        }
    }

    /// The receive buffers of all calls, when the shard ends.
    pub fn drain(&mut self) -> impl Iterator<Item = RecvToken> {
        self.entries.iter_mut().flat_map(|entry| entry.buffers.drain(..))
    }

    /// The buffers that calls are fetched into.
    pub fn loans(&self) -> impl Iterator<Item = &Loan> {
        self.entries.iter().flat_map(|entry| entry.loans.iter().flatten())
    }

    /// The receive buffers that calls hold.
    pub fn receives(&self) -> usize {
        self.entries.iter().map(|entry| entry.buffers.len()).sum()
    }

    /// Calls that are being fetched.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len() - self.lost
    }

    /// The number of calls that there can be.
    pub fn capacity(&self) -> usize {
        self.entries.len() - self.lost
    }

    /// The number of further calls that there can be.
    pub fn places_free(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_proto::Via;

    use super::*;
    use crate::state::rdma::read_keys::tests::pool;

    /// Places for calls of two peers, which wait for so many buffers each, of four.
    fn waiting(calls: &[(u32, usize)]) -> Fetches {
        let mut fetches = Fetches::new(8, 2, FetchUse { reads: 8, buffers: 4 }, false);
        let to = ReplyTo { xid: 1, credits: 1, rsbuf: 1, via: Via::Msg, handle: None };
        for &(peer, needs) in calls {
            fetches.open(ConnectionId::first(peer), to, needs).expect("a place");
        }
        fetches
    }

    #[test]
    fn calls_have_as_many_buffers_as_there_are_and_no_more() {
        for (needs, has_room) in [(3, true), (4, false)] {
            let (mut fetches, buffers) = (waiting(&[(0, 1), (1, needs)]), pool(8));
            assert_eq!(fetches.begin(&buffers, false), Some(0));
            assert_eq!(fetches.begin(&buffers, false).is_some(), has_room, "{needs} beside one");
        }
    }

    #[test]
    fn a_peer_has_half_of_the_buffers_beside_others() {
        for (needs, is_within) in [(1, true), (2, false)] {
            let (mut fetches, buffers) = (waiting(&[(0, 1), (0, needs)]), pool(8));
            assert_eq!(fetches.begin(&buffers, false), Some(0));
            assert_eq!(fetches.can_begin(&buffers, false), is_within, "{needs} beside one");
            assert!(fetches.can_begin(&buffers, true), "{needs} beside one, and no other peer");
        }
    }
}
