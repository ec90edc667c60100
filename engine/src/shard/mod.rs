//! The turn of a shard: the steps that work on its state, and call its handler.
//!
//! ```text
//!   mailbox ─▶ flush ─▶ poll ─▶ completions ─▶ RDMA steps ─▶ flush ─▶ refill ─▶ events ─▶ RDMA steps
//!           ─▶ on_turn ─▶ flush ─▶ times
//! ```
//! The steps are methods of `Core`. The parts that they advance are in `state`; only the turn
//! receives, so what it receives with is here.

mod admit;
#[doc(hidden)]
pub mod audit;
mod cancellation;
mod close;
mod completions;
mod events;
mod flush;
mod inspect;
pub(crate) mod memory;
mod properties;
mod rdma_steps;
mod reads;
mod receive;
mod sleep;
pub(crate) mod start;
mod stop;
mod tick;
mod version_choice;
mod wait_set;

#[cfg(feature = "storage")]
use std::os::fd::AsFd;

use rpcrdma_mempool::BulkPool;

use self::memory::Regions;
use self::receive::Receive;
use self::version_choice::Link;
use self::wait_set::WaitSet;
use crate::api::builder::CallBuilder;
use crate::api::handler::Handler;
use crate::api::turn::Turn;
use crate::connection_id::ConnectionId;
use crate::error::{CallRefused, CloseReason};
use crate::provider::{Provider, WcBatch};
use crate::state::io::Io;
use crate::state::parts::Parts;
use crate::state::peers::{Names, Peers};
use crate::state::rdma::fetches::Fetches;
use crate::stats::inspection::Inspection;

/// The core of a shard, without its handler.
pub(crate) struct Core<P: Provider> {
    // Declared, and so dropped, before the memory that the device may touch.
    pub io: Io<P::Queues>,
    /// What arrives.
    pub receive: Receive,
    /// Calls of peers whose data is being fetched.
    fetches: Fetches,
    /// Sends, exposures and timers.
    pub parts: Parts,
    pub peers: Peers,
    /// The program's buffers.
    pub bulk: BulkPool,
    batch: WcBatch,
    /// Of the batch.
    names: Names,
    /// The shard's place in the engine.
    pub link: Link<P>,
    /// The memory regions of the pools.
    pub regions: Regions,
    /// Where its thread sleeps.
    pub wait_set: WaitSet,
    /// What it reports to other threads.
    inspection: Inspection,
}

impl<P: Provider> Core<P> {
    /// Does all available work at `now`, once. True if there was any.
    ///
    /// A turn without work costs one load for each source of work, and few branches.
    #[inline]
    pub fn turn<H: Handler>(&mut self, now: u64, handler: &mut H) -> bool {
        let mut busy = false;
        if self.parts.handle.wakeup().is_marked() {
            match self.on_wakeup(now, handler) {
                Some(is_busy) => busy = is_busy,
                None => return false,
            }
        }
        self.flush_if_due(now, handler);
        self.batch.clear();
        if let Err(error) = self.io.poll(&mut self.batch) {
            self.lose_all(CloseReason::Queue(error), now, handler);
        }
        if self.receive.waiting().len() | usize::from(self.parts.outbox.holds()) != 0 {
            self.before_batch(now, handler);
        }
        if !self.batch.is_empty() {
            busy = true;
            self.take_in(now, handler);
        }
        self.receive.refill_if_due(&mut self.io, &self.parts.timers, busy);
        busy |= self.poll_events(now, handler);
        // Buffers return, and slots become free, outside of completions too.
        if self.has_rdma_steps() {
            self.step_rdma(handler);
        }
        let mut turn = self.lend(now);
        handler.on_turn(&mut turn);
        busy |= turn.has_worked();
        if !self.parts.outbox.is_idle() {
            busy = true;
            self.flush_if_due(now, handler);
        }
        if self.parts.outbox.has_returned() {
            self.collect_loans();
        }
        if self.parts.timers.is_due(now) {
            busy |= self.tick(now, handler);
        }
        busy
    }

    /// Begins a call.
    #[inline]
    pub fn begin_call(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
    ) -> Result<CallBuilder<'_>, CallRefused> {
        CallBuilder::begin(&mut self.parts, &mut self.peers, &mut self.io, peer, cookie)
    }

    /// The shard, for the program's use between polls.
    #[inline]
    pub fn lend(&mut self, now: u64) -> Turn<'_> {
        Turn {
            parts: &mut self.parts,
            peers: &mut self.peers,
            exposer: &mut self.io,
            pool: self.receive.pool_mut(),
            bulk: &mut self.bulk,
            now,
            #[cfg(feature = "storage")]
            joint: crate::api::joint::Joint {
                regions: self.regions.all(),
                wait_set: self.wait_set.as_fd(),
                has_worked: false,
            },
        }
    }

    /// Returns loans that left with a message to their pools. The pools collect loans that were
    /// dropped elsewhere when they need them.
    fn collect_loans(&mut self) {
        let Core { parts: Parts { outbox, rdma, .. }, receive, bulk, .. } = self;
        for loan in outbox.take_returned() {
            rdma.release(receive.pool_mut(), bulk, loan);
        }
    }
}
