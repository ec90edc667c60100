//! The calls of a shard that are being fetched, and whose turn it is.
//!
//! ```text
//!   open ──▶ waiting ──begin_reading──▶ reading ──end_reading──▶ here ──pop_here──▶ close
//!               └─────────────── give_up ─────────────────────────▶
//! ```

use std::collections::VecDeque;

use rpcrdma_mempool::{Loan, RecvToken};
use rpcrdma_proto::ReplyTo;

use super::fetch::Fetch;
use super::peers::PeerId;

/// All calls of a shard whose data are being fetched.
pub(crate) struct Fetches {
    entries: Box<[Fetch]>,
    free: Vec<u32>,
    /// Those that wait for buffers, or for their turn.
    waiting: VecDeque<u32>,
    /// Those whose data are here, and that no send slot was free to answer.
    here: VecDeque<u32>,
    reading: u32,
    reading_max: u32,
    /// Buffers that calls hold.
    held: usize,
}

impl Fetches {
    /// Room for as many calls as can be open; the data of `reading_max` are fetched at one time.
    pub fn new(count: usize, reading_max: u32) -> Fetches {
        Fetches {
            entries: (0..count).map(|_| Fetch::default()).collect(),
            free: (0..count as u32).rev().collect(),
            waiting: VecDeque::with_capacity(count),
            here: VecDeque::with_capacity(count),
            reading: 0,
            reading_max,
            held: 0,
        }
    }

    /// A place for a call, which waits from now on.
    pub fn open(&mut self, peer: PeerId, to: ReplyTo) -> Option<u32> {
        let index = self.free.pop()?;
        self.entries[index as usize].owner = Some((peer, to));
        self.waiting.push_back(index);
        Some(index)
    }

    /// The call in a place that [`Fetches::open`] gave.
    pub fn at(&mut self, index: u32) -> &mut Fetch {
        &mut self.entries[index as usize]
    }

    /// The call that is to be read next, if one may.
    pub fn next_waiting(&self) -> Option<u32> {
        if self.reading >= self.reading_max {
            return None;
        }
        self.waiting.front().copied()
    }

    /// Buffers that calls hold, those that a handler took among them while it runs.
    pub fn held(&self) -> usize {
        self.held
    }

    /// The call at the front has its buffers.
    pub fn begin_reading(&mut self) {
        if let Some(index) = self.waiting.pop_front() {
            let entry = &mut self.entries[index as usize];
            entry.is_reading = true;
            entry.held = entry.loans.len();
            self.reading += 1;
            self.held += entry.held;
        }
    }

    /// The call at the front cannot be read: it is not wanted any more, or too much.
    pub fn give_up_waiting(&mut self) {
        self.here.extend(self.waiting.pop_front());
    }

    /// The calls of a connection that wait are not wanted any more.
    #[cold]
    pub fn give_up(&mut self, peer: PeerId) {
        let Fetches { entries, waiting, here, .. } = self;
        waiting.retain(|&index| {
            let is_other = entries[index as usize].owner.is_none_or(|(owner, _)| owner != peer);
            if !is_other {
                here.push_back(index);
            }
            is_other
        });
    }

    /// The data of a call are here, or its connection is gone.
    pub fn end_reading(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if core::mem::take(&mut entry.is_reading) {
            self.reading -= 1;
            entry.is_read = true;
            self.here.push_back(index);
        }
    }

    /// A call whose data are here.
    pub fn pop_here(&mut self) -> Option<u32> {
        self.here.pop_front()
    }

    /// Puts a call back that could not be delivered yet.
    pub fn retry_here(&mut self, index: u32) {
        self.here.push_front(index);
    }

    /// Whether there is something to deliver or to read.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.here.is_empty()
    }

    /// Frees a place whose buffers have been given back.
    pub fn close(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.buffers.is_empty() && entry.loans.is_empty(), "all is at home");
        entry.parts.clear();
        entry.owner = None;
        entry.is_read = false;
        self.held -= core::mem::take(&mut entry.held);
        self.free.push(index);
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
        self.entries.len() - self.free.len()
    }
}
