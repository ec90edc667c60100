//! The core of a shard: what it owns, and its turn, top to bottom.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use rpcrdma_config::Config;
use rpcrdma_config::section::Exposure;
use rpcrdma_mempool::{BulkPool, RecvPool, RecvToken};
use rpcrdma_proto::{ReplyTo, Settings, ShardLedger};

use super::arrival::Arrival;
use super::mailbox::{End, Mailbox, Wakeup};
use super::memory::{Memory, Regions};
use super::peers::close::{Life, TICK};
use super::peers::{ConnectionId, Peers};
use super::rdma::exposures::Exposures;
use super::rdma::fetches::{Fetches, Use};
use super::rdma::windows::{Way, Windows};
use super::receive::waiting::WaitingRoom;
use super::send::doorbell::DoorbellBatching;
use super::send::messages::Messages;
use super::send::outbox::Outbox;
use super::timers::call_timeouts::CallTimeouts;
use crate::api::builder::CallBuilder;
use crate::api::handle::ShardHandle;
use crate::api::handler::Handler;
use crate::api::ticket::{Finished, Ticket};
use crate::api::turn::{Turn, release};
use crate::budget::{Budget, Explicit};
use crate::control::{Attachment, ControlShared, ShardEntry};
use crate::error::{CallRefused, CloseReason, SetupError};
use crate::io::{Io, Refill, Work};
use crate::message::map::Map;
use crate::message::saved_offer::SavedOffer;
use crate::obtained::{Obtained, ObtainedMemory};
use crate::provider::{Provider, QueueEvent, Queues, Waker, WcBatch, WorkCompletion};
use crate::stats::{SharedStats, Stats};

/// The core of a shard, short of its handler.
pub(crate) struct Core<P: Provider> {
    // Declared, and so dropped, before the memory that the device may touch.
    pub io: Io<P::Queues>,
    pub pool: RecvPool,
    pub bulk: BulkPool,
    /// Calls of peers whose data are being fetched.
    pub fetches: Fetches,
    pub outbox: Outbox,
    pub peers: Peers,
    /// Buffers of open groups, by their number.
    pub parked: Box<[Option<RecvToken>]>,
    /// Messages that arrived while no send slot was free to answer them.
    pub waiting: WaitingRoom,
    pub map: Map,
    /// What the call in hand has offered for its reply.
    pub saved_offer: SavedOffer,
    pub refill: Refill,
    pub life: Life,
    pub call_timeouts: CallTimeouts,
    /// The shard's place in the control plane, once it has one.
    pub attachment: Option<Attachment<P>>,
    pub settings: Settings,
    pub handle: ShardHandle,
    pub stats: SharedStats,
    pub arrivals: Arc<Mailbox<Arrival<P>>>,
    pub batch: WcBatch,
    pub doorbell: DoorbellBatching,
    /// Answers from other threads for whose peer no send slot was free: no more than calls are open.
    pub unanswered: VecDeque<(Ticket, Finished)>,
    /// Calls whose tickets were dropped, likewise.
    pub dropped: Vec<(ConnectionId, ReplyTo)>,
    /// Turns since there was something to do, while Receives are to be posted.
    idle: u32,
    /// What the pools live in.
    pub regions: Regions,
}

impl<P: Provider> Core<P> {
    /// Maps and registers the memory of a shard, opens its queues and posts its Receives. To be
    /// called on the thread, and so the core, that the shard will run on.
    pub fn new(
        provider: &Arc<P>,
        config: &Config,
        (shard, first_xid): (u32, u32),
        numa_node: Option<u32>,
    ) -> Result<Core<P>, SetupError> {
        let budget = Budget::new(config, provider.caps())?;
        let memory = Memory::new(config, &budget, provider.registrar(), numa_node)?;
        let Memory { recv: pool, send, headers, zero, bulk, rdma_buffers, regions } = memory;
        let mut queues = provider.open_queues(&budget.queues)?;
        let exposures = exposures(&budget.explicit, &mut queues, rdma_buffers, &regions)?;
        let wakeup = Arc::new(Wakeup::new(Waker::set_up()?));
        let stats: SharedStats = Arc::new(CachePadded::new(Stats::default()));
        let mut ledger =
            ShardLedger::new(budget.calls.max(1), budget.peers, budget.grants, budget.replies);
        ledger.calls.number_from(first_xid);
        let peers_max = budget.peers as usize;
        let obtained = obtained(&provider.caps().name, &budget, &regions);
        let tickets = budget.tickets as usize;
        let handle = ShardHandle::new(shard, wakeup.clone(), stats.clone(), tickets, obtained);
        let outbox = Outbox::new(
            (handle.clone(), stats.clone()),
            (send, headers, zero),
            Messages::new(budget.messages as usize),
            exposures,
            ledger,
            (budget.gather, budget.scatter),
            (budget.depths.inline_len, peers_max),
        );
        let (_, buffers) = outbox.exposures.for_calls();
        let most = Use { reads: budget.explicit.reading_max, buffers };
        let fetches = Fetches::new(budget.explicit.fetches as usize, peers_max, most);
        let receives = budget.receives as usize;
        let items_max = rpcrdma_xdr::numbers::limit::MITEMS_MAX as usize;
        let mut core = Core {
            io: Io::new(queues, peers_max, receives, budget.depths),
            pool,
            bulk,
            fetches,
            outbox,
            peers: Peers::new(peers_max),
            parked: (0..receives).map(|_| None).collect(),
            waiting: WaitingRoom::new(receives),
            map: Map::new(budget.pieces, items_max),
            saved_offer: SavedOffer::none(),
            refill: Refill::new(),
            life: Life::new(config),
            call_timeouts: CallTimeouts::new(config.connections().call_timeout, budget.calls, TICK),
            attachment: None,
            settings: budget.settings,
            handle,
            stats,
            arrivals: Arc::new(Mailbox::new(peers_max * 2, wakeup)),
            batch: WcBatch::new(),
            doorbell: DoorbellBatching::new(config.send().hold),
            idle: 0,
            unanswered: VecDeque::new(),
            dropped: Vec::new(),
            regions,
        };
        core.post_all(&provider.caps().name)?;
        Ok(core)
    }

    /// Posts every Receive, for the first time.
    fn post_all(&mut self, device: &str) -> Result<(), SetupError> {
        while self.pool.free() > 0 {
            self.top_up();
            if !self.refill.is_empty() {
                return Err(SetupError::Limit {
                    what: "Receives of a shared receive queue",
                    needed: self.parked.len() as u64,
                    limit: self.io.posted_receives() as u64,
                    device: device.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Takes a place in the control plane.
    pub fn attach(
        &mut self,
        control: &Arc<ControlShared<P>>,
        serves: bool,
        connections_max: usize,
    ) {
        self.attachment = Some(control.attach(ShardEntry {
            shard: self.handle.shard(),
            queues: self.io.queues().handle(),
            arrivals: self.arrivals.clone(),
            wakeup: self.handle.wakeup().clone(),
            connections_max,
            serves,
        }));
    }

    /// Does everything there is to do at `now`, once. True if there was something.
    ///
    /// A turn without anything is a load for each thing that there could be, and few branches.
    #[inline]
    pub fn turn<H: Handler>(&mut self, now: u64, handler: &mut H) -> bool {
        let mut busy = false;
        if self.handle.wakeup().answer() {
            busy = true;
            if !self.on_wakeup(now, handler) {
                return false;
            }
        }
        if self.is_due(now) {
            self.flush(now, handler);
        }
        self.batch.clear();
        if let Err(error) = self.io.poll(&mut self.batch) {
            self.lose_all(CloseReason::Queue(error), now, handler);
        }
        if self.waiting.len() | usize::from(self.doorbell.is_on()) != 0 {
            self.before_batch(now, handler);
        }
        if !self.batch.is_empty() {
            busy = true;
            self.take_in(now, handler);
        }
        if self.refill.len() | self.pool.free() != 0 {
            self.refill_if_due(busy);
        }
        // Messages that came before the end of their connection go first, but one that waits for a
        // slot does not keep the ends of others for long.
        let is_heard = self.waiting.is_empty() || self.life.is_due(now);
        while is_heard
            && !self.batch.is_full()
            && let Some(event) = self.io.next_event()
        {
            self.on_event(event, now, handler);
            busy = true;
        }
        // Buffers come home, and slots get free, outside of completions, too.
        if self.has_rdma_steps() {
            self.step_rdma(handler);
        }
        handler.on_turn(&mut self.lend(now));
        if !self.outbox.is_idle() {
            busy = true;
            if self.is_due(now) {
                self.flush(now, handler);
            }
        }
        if !self.outbox.returned.is_empty() {
            self.take_loans_home();
        }
        if self.life.is_due(now) {
            self.tick(now, handler);
        }
        busy
    }

    /// Other threads have left something. False if a panic has left the shard half done.
    #[cold]
    fn on_wakeup<H: Handler>(&mut self, now: u64, handler: &mut H) -> bool {
        if self.is_broken() {
            // The next turn ends here as well.
            self.handle.wakeup().ring();
            return false;
        }
        // Who is told to close a connection has sent before what it sent before.
        if self.doorbell.is_on() {
            self.flush(now, handler);
        }
        self.read_mailbox(now, handler);
        self.end_cancelled(handler);
        true
    }

    /// The hold learns how many messages have come together, and those that wait go first.
    #[cold]
    fn before_batch<H: Handler>(&mut self, now: u64, handler: &mut H) {
        if self.doorbell.is_on() {
            let is_receive = |wc: &&WorkCompletion| Io::<P::Queues>::work(wc.wr_id) == Work::Recv;
            self.doorbell.on_polled(self.batch.iter().filter(is_receive).count());
        }
        self.serve_waiting(now, handler);
    }

    /// Posts Receives in chains, or when there is nothing better to do: the budget has a reserve.
    #[inline]
    fn refill_if_due(&mut self, busy: bool) {
        self.idle = if busy { 0 } else { self.idle + 1 };
        if self.refill.len() >= REFILL_CHAIN || self.idle >= IDLE_TURNS {
            self.idle = 0;
            self.top_up();
        }
    }

    /// The queues are of no use any more: the shard ends, and is given no more connections.
    #[cold]
    fn lose_all<H: Handler>(&mut self, why: CloseReason, now: u64, handler: &mut H) {
        self.close_all(why, now, handler);
        self.handle.stop();
        self.life.stop(now);
    }

    #[cold]
    fn on_event<H: Handler>(&mut self, event: QueueEvent, now: u64, handler: &mut H) {
        let (qp_num, why) = match event {
            QueueEvent::Disconnected { qp_num } => (qp_num, CloseReason::PeerGone),
            QueueEvent::Failed { qp_num } => (qp_num, CloseReason::Failed),
            QueueEvent::DeviceLost => {
                self.stats.devices_lost.add(1);
                return self.lose_all(CloseReason::DeviceLost, now, handler);
            }
            QueueEvent::PortDown => return self.stats.ports_down.add(1),
            QueueEvent::PortUp => return self.stats.ports_up.add(1),
        };
        if let Some(index) = self.peers.find(qp_num) {
            self.close(index, why, now, handler);
        }
    }

    /// Begins a call.
    #[inline]
    pub fn begin_call(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
    ) -> Result<CallBuilder<'_>, CallRefused> {
        if self.life.is_stopping() {
            return Err(CallRefused::Stopping);
        }
        CallBuilder::begin(&mut self.outbox, &mut self.peers, &mut self.io, peer, cookie)
    }

    /// The shard as its program may use it between polls.
    #[inline]
    pub fn lend(&mut self, now: u64) -> Turn<'_> {
        Turn {
            outbox: &mut self.outbox,
            peers: &mut self.peers,
            exposer: &mut self.io,
            pool: &mut self.pool,
            bulk: &mut self.bulk,
            handle: &self.handle,
            stopping: self.life.is_stopping(),
            now,
        }
    }

    /// A buffer that nobody needs any more: to be posted with the next chain of Receives.
    #[inline]
    pub fn free_buffer(&mut self, token: RecvToken) {
        if let Err(full) = self.refill.try_push(token) {
            self.pool.put(full.element());
        }
    }

    /// Gives loans that left with a message back to their pools. Those that were dropped elsewhere
    /// the pools find themselves, when they need them.
    fn take_loans_home(&mut self) {
        let mut returned = core::mem::take(&mut self.outbox.returned);
        for loan in returned.drain(..) {
            let rdma_buffers = &mut self.outbox.exposures.rdma_buffers;
            release(&mut self.pool, &mut self.bulk, rdma_buffers, loan);
        }
        self.outbox.returned = returned;
    }

    /// Whether the steps of explicit RDMA have anything to do.
    #[inline]
    pub(super) fn has_rdma_steps(&self) -> bool {
        self.outbox.released.len() | self.fetches.waiting() != 0
    }

    /// Whether the steps of explicit RDMA can go on before anything else has happened. What a program
    /// gives back from another thread is found when the shard wakes.
    fn can_step_rdma(&mut self) -> bool {
        let Core { outbox, fetches, peers, .. } = self;
        outbox.exposures.rdma_buffers.reclaim();
        !outbox.released.is_empty()
            || fetches.here().any(|id| match id.and_then(|id| peers.named(id)) {
                Some(peer) => outbox.has_slot_for(&peer.lane),
                None => true,
            })
            || outbox.messages.free() > 0
                && fetches.can_begin(&outbox.exposures.rdma_buffers, peers.len() == 1)
    }

    /// Sleeps until there may be something to do, at most `timeout`.
    pub fn sleep(&mut self, timeout: Duration) {
        // Whoever has the time to sleep has it to post what waits for a longer chain.
        self.top_up();
        let is_refilled = self.refill.is_empty() && self.pool.free() == 0;
        if !self.outbox.is_idle()
            || !is_refilled
            || self.can_serve_waiting()
            || self.can_step_rdma()
        {
            return;
        }
        let wakeup = self.handle.wakeup().clone();
        if self.can_answer() {
            return wakeup.ring();
        }
        if wakeup.fall_asleep() {
            self.stats.sleeps.add(1);
            // A device that cannot wait is polled; it will say what is wrong then.
            let _ = self.io.queues().wait(&wakeup.waker, timeout);
            wakeup.wake_up();
            wakeup.waker.drain();
        }
    }
}

/// Turns without work after which what is left over is done.
const IDLE_TURNS: u32 = 64;
/// Receives that are posted at a time while there is other work.
const REFILL_CHAIN: usize = 16;

impl<P: Provider> Drop for Core<P> {
    /// Brings all memory home before it is unmapped, whether the shard has stopped, was never quite
    /// made, or its handler has panicked.
    fn drop(&mut self) {
        self.attachment = None;
        self.handle.wakeup().end(End::Dropped);
        self.handle.drop_finished();
        let parked = self.parked.iter_mut().filter_map(Option::take);
        let waiting = self.waiting.drain();
        let held = self.fetches.drain().chain(self.outbox.exposures.drain());
        for token in parked.chain(waiting).chain(self.refill.drain(..)).chain(held) {
            self.pool.put(token);
        }
        if !self.outbox.exposures.retire_all(&mut self.io) {
            self.outbox.abandon_messages();
        }
        self.io.destroy(&mut self.pool, &mut self.outbox);
    }
}

/// What own calls expose, and the windows for it.
fn exposures(
    explicit: &Explicit,
    queues: &mut impl Queues,
    rdma_buffers: BulkPool,
    regions: &Regions,
) -> Result<Exposures, SetupError> {
    let windows = (0..explicit.windows).map(|_| queues.open_window());
    let windows = windows.collect::<Result<_, SetupError>>()?;
    let way = match explicit.exposure {
        None | Some(Exposure::Windows | Exposure::Auto) => Way::Windows,
        Some(Exposure::Registration) => Way::Registration,
        Some(Exposure::StaticInsecure) => Way::Static(regions.keys()),
    };
    let windows = Windows::new(way, windows);
    let (rdma_buffers, fetches) = ((rdma_buffers, explicit.rdma_buffer_len), explicit.fetches > 0);
    Ok(Exposures::new(explicit.exposures as usize, windows, rdma_buffers, fetches))
}

/// What a shard has got.
fn obtained(device: &str, budget: &Budget, regions: &Regions) -> Obtained {
    let explicit = &budget.explicit;
    Obtained {
        device: device.to_owned(),
        memory: regions.report().map(|(what, region)| ObtainedMemory::new(what, region)).collect(),
        exposure: explicit.exposure,
        windows: explicit.windows,
        fetches: explicit.reading_max,
        inline_max: budget.depths.inline_len,
    }
}
