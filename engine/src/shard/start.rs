//! The start of a shard: memory, queues and parts, and its entry in the control plane.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use rpcrdma_config::Config;
use rpcrdma_config::section::Exposure;
use rpcrdma_mempool::{BulkPool, Keys};
use rpcrdma_proto::ShardLedger;

use super::Core;
use super::memory::{Memory, Regions};
use super::receive::Receive;
use super::version_choice::Link;
use super::wait_set::WaitSet;
use crate::budget::{Budget, Explicit};
use crate::control::{ControlShared, ShardEntry};
use crate::error::SetupError;
use crate::handle::ShardHandle;
use crate::mailbox::{Mailbox, Wakeup};
use crate::message::map::Map;
use crate::provider::{Provider, Queues, Waker, WcBatch};
use crate::resources::{ShardMemory, ShardResources};
use crate::state::io::Io;
use crate::state::parts::Parts;
use crate::state::peers::{NO_NAMES, Peers};
use crate::state::rdma::Rdma;
use crate::state::rdma::exposures::Exposures;
use crate::state::rdma::fetches::{FetchUse, Fetches};
use crate::state::rdma::windows::{Way, Windows};
use crate::state::send::outbox::{Outbox, OutboxPools, OutboxSizes};
use crate::state::timers::Timers;
use crate::stats::inspection::Inspection;
use crate::stats::latency::Latencies;
use crate::stats::sampling::Sampling;
use crate::stats::{SharedStats, Stats};

/// The numbers that distinguish a shard from all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardNumbers {
    /// Its own number in the process.
    pub shard: u32,
    /// The xid of its first call.
    pub first_xid: u32,
}

impl<P: Provider> Core<P> {
    /// Maps and registers the memory of a shard, opens its queues and posts its Receives. Call it
    /// on the thread, and so the core, that the shard will run on.
    pub fn new(
        provider: &Arc<P>,
        config: &Config,
        numbers: ShardNumbers,
        numa_node: Option<u32>,
    ) -> Result<Core<P>, SetupError> {
        let budget = Budget::new(config, provider.caps())?;
        let pools = Memory::new(config, &budget, provider.registrar(), numa_node)?;
        let mut queues = provider.open_queues(&budget.queues)?;
        let keys = pools.regions.keys();
        let exposures = exposures(&budget.explicit, &mut queues, pools.rdma_buffers, keys)?;
        let messages = budget.messages as usize;
        let waker = Waker::set_up()?;
        let wait_set = WaitSet::new(&waker, &queues)?;
        let wakeup = Arc::new(Wakeup::new(waker));
        let stats: SharedStats = Arc::new(CachePadded::new(Stats::default()));
        let latencies = Arc::new(Latencies::new());
        let sample = config.stats().sample.value();
        let sampling = Sampling::new(sample, numbers.shard, latencies.clone());
        let mut ledger =
            ShardLedger::new(budget.calls.max(1), budget.peers, budget.grants, budget.replies);
        ledger.calls.number_from(numbers.first_xid);
        let peers_max = budget.peers as usize;
        let resources = resources(&provider.caps().name, &budget, &pools.regions);
        let tickets = budget.tickets as usize;
        let (number, counters) = (numbers.shard, stats.clone());
        let handle =
            ShardHandle::new(number, wakeup.clone(), counters, latencies, tickets, resources);
        let send = config.send();
        let outbox = Outbox::new(
            stats.clone(),
            OutboxPools { slots: pools.send, headers: pools.headers, zero: pools.zero },
            OutboxSizes {
                messages,
                gather_max: budget.gather,
                scatter_max: budget.scatter,
                inline_len: budget.depths.inline_len,
                peers_max,
            },
            send.hold,
        );
        let buffers = exposures.for_calls().count;
        let most = FetchUse { reads: budget.explicit.reading_max, buffers };
        let receives = budget.receives as usize;
        let items_max = rpcrdma_xdr::numbers::limit::MITEMS_MAX as usize;
        let mut core = Core {
            io: Io::new(queues, peers_max, receives, budget.depths),
            receive: Receive::new(
                pools.recv,
                receives,
                Map::new(budget.pieces, items_max),
                stats.clone(),
            ),
            fetches: Fetches::new(
                budget.explicit.fetches as usize,
                peers_max,
                most,
                budget.explicit.reads_expose,
            ),
            parts: Parts {
                outbox,
                rdma: Rdma::new(exposures, messages),
                timers: Timers::new(config, budget.calls, ledger.calls.slots()),
                ledger,
                handle,
                stats,
                sampling,
            },
            peers: Peers::new(peers_max),
            bulk: pools.bulk,
            batch: WcBatch::new(),
            names: NO_NAMES,
            link: Link::new(Mailbox::new(peers_max * 2, wakeup), budget.settings),
            regions: pools.regions,
            wait_set,
            inspection: Inspection::default(),
        };
        core.post_all(&provider.caps().name)?;
        Ok(core)
    }

    /// Posts every Receive, for the first time.
    fn post_all(&mut self, device: &str) -> Result<(), SetupError> {
        while self.receive.pool().free() > 0 {
            self.receive.top_up(&mut self.io, &self.parts.timers);
            if self.receive.is_refused() {
                return Err(SetupError::Limit {
                    what: "Receives of a shared receive queue",
                    needed: self.receive.pool().capacity() as u64,
                    limit: self.io.posted_receives() as u64,
                    device: device.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Enters the control plane.
    pub fn attach(
        &mut self,
        control: &Arc<ControlShared<P>>,
        serves: bool,
        connections_max: usize,
    ) {
        self.link.attach(control.attach(ShardEntry {
            shard: self.parts.handle.shard(),
            queues: self.io.queues().handle(),
            arrivals: self.link.arrivals().clone(),
            wakeup: self.parts.handle.wakeup().clone(),
            connections_max,
            serves,
        }));
    }
}

/// The exposures of own calls, with their windows.
fn exposures(
    explicit: &Explicit,
    queues: &mut impl Queues,
    rdma_buffers: BulkPool,
    keys: Vec<Keys>,
) -> Result<Exposures, SetupError> {
    let windows = (0..explicit.windows).map(|_| queues.open_window());
    let windows = windows.collect::<Result<_, SetupError>>()?;
    let way = match explicit.exposure {
        None | Some(Exposure::Windows | Exposure::Auto) => Way::Windows,
        Some(Exposure::Registration) => Way::Registration,
        Some(Exposure::StaticInsecure) => Way::Static(keys),
    };
    let windows = Windows::new(way, windows);
    let (count, len) = (explicit.exposures as usize, explicit.rdma_buffer_len);
    Ok(Exposures::new(count, windows, rdma_buffers, len, explicit.fetches > 0))
}

/// The actual resources of a shard.
fn resources(device: &str, budget: &Budget, regions: &Regions) -> ShardResources {
    let explicit = &budget.explicit;
    ShardResources {
        device: device.to_owned(),
        memory: regions.report().map(|(what, region)| ShardMemory::new(what, region)).collect(),
        exposure: explicit.exposure,
        windows: explicit.windows,
        fetches: explicit.reading_max,
        reads_expose: explicit.reads_expose,
        inline_max: budget.depths.inline_len,
    }
}
