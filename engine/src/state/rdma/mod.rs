//! Explicit RDMA: memory exposed by own calls, and data fetched for received calls.

pub(crate) mod exposures;
pub(crate) mod fetch;
pub(crate) mod fetches;
pub(crate) mod offers;
pub(crate) mod read_keys;
pub(crate) mod windows;

use rpcrdma_mempool::{BulkPool, Loan, RecvPool, RecvToken};
use rpcrdma_proto::{Explicit, Offered};

use self::exposures::{Exposures, FetchBuffers};
use self::windows::{Exposer, Windows};
use super::lane::messages::After;
use crate::error::CallError;
use crate::message::bulk::Bulk;

/// The exposures of own calls, and the memory for explicit RDMA in either direction. Calls of peers
/// that are being fetched are separate ([`Fetches`](fetches::Fetches)): they are read while they
/// are answered.
pub(crate) struct Rdma {
    exposures: Exposures,
    /// The waiters for messages that have completed or were discarded.
    released: Vec<After>,
}

impl Rdma {
    /// For this number of messages.
    pub fn new(exposures: Exposures, messages: usize) -> Rdma {
        Rdma { exposures, released: Vec::with_capacity(messages) }
    }

    /// The number of such messages that were not yet processed.
    #[inline]
    pub fn released(&self) -> usize {
        self.released.len()
    }

    /// Records that a message for this waiter has completed or was discarded.
    #[cold]
    pub fn on_released(&mut self, after: After) {
        self.released.push(after);
    }

    /// The waiter for such a message, to be processed.
    pub fn pop_released(&mut self) -> Option<After> {
        self.released.pop()
    }

    /// Keeps memory that the peer may read for a call until its rights have ended.
    #[cold]
    pub fn keep(&mut self, exposure: u32, pieces: impl Iterator<Item = Bulk>) {
        self.exposures.at(exposure).kept.extend(pieces);
    }

    /// The device did not complete the message that was to end the rights of a call.
    #[cold]
    pub fn on_fence_lost(&mut self, exposure: u32) {
        self.exposures.at(exposure).is_lost = true;
    }

    /// Records lost buffers for fetching calls of peers.
    #[cold]
    pub fn on_buffers_lost(&mut self, count: usize) {
        self.exposures.lose_kept(count);
    }

    /// The buffers for fetching calls of peers.
    pub fn for_calls(&self) -> FetchBuffers {
        self.exposures.for_calls()
    }

    /// The current capacity to expose memory for an own call.
    pub fn ability(&self) -> Explicit {
        self.exposures.ability()
    }

    /// The segments that a call offered for its reply.
    pub fn offered(&self, exposure: u32) -> Offered<'_> {
        self.exposures.get(exposure).offered()
    }

    /// Whether a call is over, and waits for its memory.
    pub fn is_ended(&self, exposure: u32) -> bool {
        self.exposures.get(exposure).outcome.is_some()
    }

    /// Whether a call's memory is exposed by keys that never end.
    pub fn is_exposed_permanently(&self, exposure: u32) -> bool {
        self.exposures.is_exposed_permanently(exposure)
    }

    /// Nothing of a call was posted.
    #[cold]
    pub fn on_unposted(&mut self, exposure: u32) {
        self.exposures.at(exposure).on_unposted();
    }

    /// A call is over and its program notified; its peer may reach the memory while it is
    /// connected.
    #[cold]
    pub fn withhold(&mut self, exposure: u32, error: CallError) {
        let exposure = self.exposures.at(exposure);
        exposure.outcome = Some(Err(error));
        (exposure.is_reported, exposure.is_withheld) = (true, true);
    }

    /// A peer may have invalidated a right with a message that does not end its call.
    #[inline]
    pub fn on_invalidated(&mut self, peer: u32, rkey: Option<u32>) {
        if let Some(rkey) = rkey {
            self.exposures.on_invalidated(peer, rkey);
        }
    }

    /// The peer holds no usable key of an ended right any more, or has no connection.
    pub fn release_windows(&mut self, peer: u32) {
        self.exposures.windows.release(peer);
    }

    /// Retrieves the windows of a connection, before its queue pair is destroyed. Returns the
    /// number of lost ones.
    #[cold]
    pub fn unbind(&mut self, peer: u32, exposer: &mut dyn Exposer) -> u64 {
        self.exposures.unbind(peer, exposer)
    }

    /// Returns a loan to the shard's pool that it belongs to; any other loan returns by being
    /// dropped.
    pub fn release(&mut self, pool: &mut RecvPool, bulk: &mut BulkPool, loan: Loan) {
        if let Err(other) = bulk.give_back(loan)
            && let Err(other) = self.exposures.rdma_buffers.give_back(other)
            && let Err(foreign) = pool.give_back(other)
        {
            drop(foreign);
        }
    }

    /// The receive buffers of waiting replies, when the shard ends.
    pub fn drain(&mut self) -> impl Iterator<Item = RecvToken> {
        self.exposures.drain()
    }

    /// Ends every right, when the shard ends. False if the device kept one.
    pub fn retire_all(&mut self, exposer: &mut dyn Exposer) -> bool {
        self.exposures.retire_all(exposer)
    }

    /// Collects buffers that were dropped elsewhere.
    #[cold]
    pub fn reclaim(&mut self) {
        self.exposures.rdma_buffers.reclaim();
    }

    /// The buffers for explicit RDMA.
    pub fn buffers(&self) -> &BulkPool {
        &self.exposures.rdma_buffers
    }

    /// As [`Rdma::buffers`], mutable, with the bytes of each.
    pub fn buffers_mut(&mut self) -> (&mut BulkPool, u32) {
        let Exposures { rdma_buffers, rdma_buffer_len, .. } = &mut self.exposures;
        (rdma_buffers, *rdma_buffer_len)
    }

    /// The rights to memory.
    pub fn windows(&self) -> &Windows {
        &self.exposures.windows
    }

    /// The exposures of own calls.
    pub fn exposures(&self) -> &Exposures {
        &self.exposures
    }

    /// As [`Rdma::exposures`], mutable.
    pub fn exposures_mut(&mut self) -> &mut Exposures {
        &mut self.exposures
    }

    /// Writes `byte` over the free buffers, for tests.
    pub fn poison(&mut self, byte: u8) {
        self.exposures.rdma_buffers.poison(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::windows::Way;
    use super::*;
    use crate::state::rdma::read_keys::tests::pool;

    #[test]
    fn buffers_that_a_device_keeps_are_lost_to_calls_of_peers_first() {
        let windows = Windows::new(Way::Registration, Vec::new());
        let exposures = Exposures::new(1, windows, pool(8), 4096, true);
        let mut rdma = Rdma::new(exposures, 1);
        let state = |rdma: &Rdma| (rdma.for_calls().count, rdma.ability().rdma_buffer_len);
        assert_eq!(state(&rdma), (4, 4096));
        for (count, expected) in [(1, (3, 4096)), (3, (0, 4096)), (3, (0, 4096)), (1, (0, 0))] {
            rdma.on_buffers_lost(count);
            assert_eq!(state(&rdma), expected);
        }
    }
}
