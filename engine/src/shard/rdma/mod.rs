//! Explicit RDMA: memory exposed by own calls, and data fetched for received calls.

pub(crate) mod expose;
pub(crate) mod exposures;
pub(crate) mod fetch;
pub(crate) mod fetches;
pub(crate) mod offers;
mod reads;
mod steps;
pub(crate) mod windows;

use rpcrdma_mempool::{BulkPool, Loan, RecvPool, RecvToken};
use rpcrdma_proto::{Explicit, Offered};

use self::exposures::Exposures;
use self::windows::{Exposer, Windows};
use super::send::messages::After;
use crate::error::CallError;
use crate::message::bulk::Bulk;

/// What own calls have exposed, and the memory for what moves in either direction. The calls of peers
/// that are being fetched are apart ([`Fetches`](fetches::Fetches)): they are read while they are
/// answered.
pub(crate) struct Rdma {
    exposures: Exposures,
    /// Those who wait for messages that have completed, or were given up.
    released: Vec<After>,
}

impl Rdma {
    /// With so many messages in all.
    pub fn new(exposures: Exposures, messages: usize) -> Rdma {
        Rdma { exposures, released: Vec::with_capacity(messages) }
    }

    /// Messages that have completed, or were given up, and were not looked at.
    #[inline]
    pub fn released(&self) -> usize {
        self.released.len()
    }

    /// A message has completed, or was given up, that this waits for.
    #[cold]
    pub fn on_released(&mut self, after: After) {
        self.released.push(after);
    }

    /// Keeps what the peer may read of a call until its rights are dead.
    #[cold]
    pub fn keep(&mut self, exposure: u32, pieces: impl Iterator<Item = Bulk>) {
        self.exposures.at(exposure).kept.extend(pieces);
    }

    /// The device does not give the message back that was to end the rights of a call.
    #[cold]
    pub fn on_fence_lost(&mut self, exposure: u32) {
        self.exposures.at(exposure).is_lost = true;
    }

    /// So many buffers are lost that calls of peers were fetched into.
    #[cold]
    pub fn on_buffers_lost(&mut self, count: usize) {
        self.exposures.lose_kept(count);
    }

    /// How long the buffers are that calls of peers are fetched into, and how many these may use.
    pub fn for_calls(&self) -> (u32, usize) {
        self.exposures.for_calls()
    }

    /// What can be exposed for an own call.
    pub fn ability(&self) -> Explicit {
        self.exposures.ability()
    }

    /// What a call has offered for its reply.
    pub fn offered(&self, exposure: u32) -> Offered<'_> {
        self.exposures.get(exposure).offered()
    }

    /// Whether a call is over, and waits for its memory.
    pub fn is_ended(&self, exposure: u32) -> bool {
        self.exposures.get(exposure).outcome.is_some()
    }

    /// Whether what a call has exposed is shown by keys that never end.
    pub fn is_shown_for_good(&self, exposure: u32) -> bool {
        self.exposures.is_shown_for_good(exposure)
    }

    /// Nothing of a call was posted.
    #[cold]
    pub fn on_unposted(&mut self, exposure: u32) {
        self.exposures.at(exposure).on_unposted();
    }

    /// A call is over, as its program is told; its memory stays with its peer while that is connected.
    #[cold]
    pub fn withhold(&mut self, exposure: u32, error: CallError) {
        let exposure = self.exposures.at(exposure);
        exposure.outcome = Some(Err(error));
        (exposure.is_told, exposure.is_withheld) = (true, true);
    }

    /// A peer may have given up a right with a message that does not end its call.
    #[inline]
    pub fn on_invalidated(&mut self, peer: u32, rkey: Option<u32>) {
        if let Some(rkey) = rkey {
            self.exposures.on_invalidated(peer, rkey);
        }
    }

    /// A peer has no key of a dead right any more that it might use, or no connection.
    pub fn wake_windows(&mut self, peer: u32) {
        self.exposures.windows.wake(peer);
    }

    /// Takes the windows of a connection back, before its queue pair is destroyed. Returns how many
    /// are lost.
    #[cold]
    pub fn unbind(&mut self, peer: u32, exposer: &mut dyn Exposer) -> u64 {
        self.exposures.unbind(peer, exposer)
    }

    /// Gives a loan back to the pool of the shard that it is of; any other goes home on its own.
    pub fn release(&mut self, pool: &mut RecvPool, bulk: &mut BulkPool, loan: Loan) {
        if let Err(other) = bulk.give_back(loan)
            && let Err(other) = self.exposures.rdma_buffers.give_back(other)
            && let Err(foreign) = pool.give_back(other)
        {
            drop(foreign);
        }
    }

    /// The receive buffers of replies that wait, when the shard ends.
    pub fn drain(&mut self) -> impl Iterator<Item = RecvToken> {
        self.exposures.drain()
    }

    /// Takes back every right, when the shard ends. False if the device has kept one.
    pub fn retire_all(&mut self, exposer: &mut dyn Exposer) -> bool {
        self.exposures.retire_all(exposer)
    }

    /// The buffers for explicit RDMA.
    pub fn buffers(&self) -> &BulkPool {
        &self.exposures.rdma_buffers
    }

    /// The rights to memory.
    pub fn windows(&self) -> &Windows {
        &self.exposures.windows
    }

    /// What own calls have exposed.
    pub fn exposures(&self) -> &Exposures {
        &self.exposures
    }

    /// Writes `byte` over the buffers that are at home, for tests.
    pub fn poison(&mut self, byte: u8) {
        self.exposures.rdma_buffers.poison(byte);
    }
}
