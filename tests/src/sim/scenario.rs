//! The scenario of a run: its engines, programs and faults, all chosen from its seed.

use rpcrdma_config::{Config, Raw};
use rpcrdma_iwarp::network::NetworkPlan;
use rpcrdma_testing::fault::FaultPlan;

use super::trouble::{Trouble, faults, worsen};
use crate::script::{Order, Part, Random, Script};
use crate::service::source_len;
use crate::world::small;

/// The faults of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// None.
    Calm,
    /// Posts fail entirely or partly, Receives are posted late, completions are late and out of
    /// order between queue pairs.
    Rough,
    /// As before, and connections are lost, with the event at once or later.
    Storm,
    /// Bytes of headers are changed.
    Noise,
    /// All, including failures of completion queues.
    Ruin,
}

/// The scenario of a run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The faults.
    pub weather: Weather,
    /// Additional faults.
    pub trouble: Trouble,
    /// The engines, with one configuration each.
    pub engines: Vec<EngineSetup>,
    /// The delay from shard to shard, in nanoseconds.
    pub delay_ns: u64,
    /// How long a message waits for a Receive before its retries are exceeded.
    pub rnr_timer_ns: u64,
    /// Slots of the rings.
    pub slots: u32,
    /// Whether shared memory maps pools, and TCP has checksums.
    pub maps_pools: bool,
    /// What a virtual network does.
    pub network: NetworkPlan,
    /// Steps before the faults stop.
    pub steps: u32,
    /// The probability in percent that the same shard is polled again.
    pub streak: u32,
    /// The longest advance of the time in one step, in nanoseconds.
    pub leap_ns: u32,
    /// The habits of programs.
    pub habits: Habits,
}

/// One engine.
#[derive(Debug, Clone)]
pub struct EngineSetup {
    /// Its configuration.
    pub raw: Raw,
    /// Its shards.
    pub shards: usize,
    /// Whether it listens.
    pub listens: bool,
    /// The faults of its queues.
    pub faults: FaultPlan,
    /// The capabilities of its device.
    pub caps: Caps,
}

/// The chosen capabilities of a device.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Send requests of a queue pair.
    pub send_depth: u32,
    /// Gather entries of a send request.
    pub send_sge: u32,
    /// Scatter entries of an RDMA Read.
    pub read_sge: u32,
    /// Bytes that are copied while posting.
    pub inline_len: u32,
    /// Memory windows.
    pub windows: u32,
    /// RDMA Reads of a queue pair that are under way at one time.
    pub rd_atomic: u32,
}

/// How often programs act, in percent of their turns.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Calls are made.
    pub call: u32,
    /// The maximum number of calls made at one time.
    pub burst: u32,
    /// Deferred calls are answered.
    pub answer: u32,
    /// Loans are given back.
    pub release: u32,
    /// Bytes of the parts of a message, less than this in all.
    pub len_max: u32,
    /// Whether connections are closed by programs.
    pub close: bool,
    /// Whether shards are stopped in the middle.
    pub stop: bool,
    /// Peers that request a connection are not admitted.
    pub refuse_peers: u32,
}

impl EngineSetup {
    /// Whether it may be unable to fetch the data of a call, which the caller cannot know.
    pub fn is_short_for(&self, script: &Script) -> bool {
        let explicit = &self.raw.explicit;
        let (len, count) = match explicit.buffers.length.as_str() {
            "4KiB" => (4 << 10, explicit.buffers.count),
            "16KiB" => (16 << 10, explicit.buffers.count),
            _ => (64 << 10, explicit.buffers.count),
        };
        // Each item, and a message that is fetched as a whole, begins in its own buffer.
        let needed: u32 = script.call.iter().map(|part| part.len().div_ceil(len) + 1).sum();
        !explicit.enabled || explicit.fetches == 0 || i64::from(needed) + 1 > (count + 1) / 2
    }
}

impl Setup {
    /// Chooses a scenario. Choices from `beside` do not change the others.
    pub fn choose(random: &mut Random, beside: &mut Random) -> Setup {
        use Weather::{Calm, Noise, Rough, Ruin, Storm};
        let weather =
            random.choose(&[Calm, Calm, Calm, Rough, Rough, Rough, Storm, Storm, Noise, Ruin]);
        let count = 2 + random.below(2) as usize;
        let trouble = Trouble::choose(beside);
        let is_hurried = beside.below(10) == 0;
        let mut one = |at| {
            let mut it = engine(random, weather, at == 0);
            worsen(&mut it.faults, beside, trouble);
            if is_hurried {
                hurry(beside, &mut it.raw);
            }
            it
        };
        let engines = (0..count).map(&mut one).collect();
        let tempo = random.choose(&[10, 40, 90]);
        let mut setup = Setup {
            weather,
            trouble,
            engines,
            delay_ns: random.choose(&[0, 0, 500, 5_000, 50_000]),
            rnr_timer_ns: random.choose(&[1_000, 10_000, 100_000]),
            slots: random.choose(&[16, 64, 256]),
            steps: 100 + random.below(800),
            streak: random.choose(&[0, 30, 80]),
            leap_ns: random.choose(&[100, 2_000, 100_000]) * if is_hurried { 20 } else { 1 },
            habits: Habits {
                call: tempo,
                burst: 1 + random.below(6),
                answer: random.choose(&[5, 30, 90]),
                release: random.choose(&[2, 20, 90]),
                len_max: random.choose(&[300, 3_000, 12_000, PART_LEN_MAX as u32]),
                close: random.below(3) == 0,
                stop: random.below(4) == 0,
                refuse_peers: beside.choose(&[0, 0, 0, 10, 60]),
            },
            maps_pools: beside.below(3) == 0,
            network: NetworkPlan::default(),
        };
        setup.engines.iter_mut().for_each(|it| guard(beside, &mut it.raw));
        // Drawn last, so that a seed means what it did before there was a network.
        setup.network = NetworkPlan {
            seed: u64::from(beside.below(1 << 30)),
            cut_percent: beside.choose(&[0, 0, 20, 60]),
        };
        setup
    }
}

/// Bytes of the longest part.
pub const PART_LEN_MAX: usize = 24 << 10;

fn engine(random: &mut Random, weather: Weather, is_first: bool) -> EngineSetup {
    // The choices may be inconsistent; then others are chosen.
    let raw =
        (0..DRAWS_MAX).map(|_| config(random)).find(|raw| Config::try_from(raw.clone()).is_ok());
    let mut raw = raw.unwrap_or_else(small);
    let faults = faults(random, weather);
    let listens = is_first || random.below(2) == 0;
    let caps = Caps {
        send_depth: random.choose(&[4, 6, 16, 128, 1024]),
        send_sge: random.choose(&[4, 8, 30, 30]),
        read_sge: random.choose(&[1, 2, 30]),
        inline_len: random.choose(&[0, 64, 192]),
        windows: random.choose(&[0, 4, 64, 4096]),
        rd_atomic: random.choose(&[1, 2, 16]),
    };
    // A configuration with more windows than the device has is rejected.
    if raw.explicit.windows.as_str().parse().is_ok_and(|named: u32| named > caps.windows) {
        raw.explicit.windows = "auto".into();
    }
    EngineSetup { raw, caps, shards: 1 + random.below(2) as usize, listens, faults }
}

fn config(random: &mut Random) -> Raw {
    let mut raw = small();
    raw.engine.idle.policy = random.choose(&["spin", "backoff", "block"]).into();
    raw.receive.inline = random.choose(&["1KiB", "2KiB", "4KiB"]).into();
    raw.receive.placement.count = random.choose(&[0, 1, 2, 4, 4, 7]);
    raw.receive.placement.length = random.choose(&["512B", "1KiB", "2KiB", "4KiB"]).into();
    raw.receive.placement.align = random.choose(&["4B", "64B", "512B"]).into();
    raw.receive.spares = random.choose(&[0, 1, 4, 16]);
    raw.send.slots = random.choose(&[2, 4, 8, 16, 64]);
    raw.send.length = random.choose(&["1KiB", "2KiB", "8KiB"]).into();
    raw.send.inline_max = random.choose(&["0B", "64B", "192B"]).into();
    raw.send.signal_every = random.choose(&[1, 2, 5, 16, 64]);
    raw.send.zero = "4KiB".into();
    let connections = &mut raw.connections;
    connections.max = 1 + i64::from(random.below(3));
    connections.credits = random.choose(&[1, 2, 4, 8, 16]);
    connections.credits_requested = random.choose(&[1, 2, 4, 8, 16, 32]);
    connections.calls_max = random.choose(&[1, 2, 4, 8, 16]);
    connections.call_transmissions_max = random.choose(&[1, 2, 4, 8, 16]);
    connections.reply_transmissions_max = random.choose(&[1, 2, 4, 8, 16]);
    connections.request_transmissions_max = random.choose(&[1, 2, 4, 8, 16]);
    connections.response_transmissions_max = random.choose(&[1, 2, 4, 8, 16]);
    // In virtual time. Longer than any run before its end, so that only a stuck peer times out; the
    // attempts of the control plane use real time.
    connections.group_timeout = "10s".into();
    connections.connect_timeout = "60s".into();
    connections.call_timeout = NEVER.into();
    connections.send_timeout = NEVER.into();
    connections.idle_timeout = NEVER.into();
    connections.stop_timeout = "60s".into();
    raw.features.properties = random.below(8) > 0;
    raw.features.placement = random.below(6) > 0;
    raw.features.continuation = random.below(6) > 0;
    raw.connections.rnr_retry = random.choose(&[7, 7, 7, 6, 3]);
    explicit(random, &mut raw);
    raw.app.bulk.count = random.choose(&[0, 1, 3, 6, 10]);
    raw.app.bulk.length = format!("{}B", source_len(PART_LEN_MAX)).as_str().into();
    raw
}

/// Who may connect to an engine: mostly all, as often as there is room.
fn guard(random: &mut Random, raw: &mut Raw) {
    raw.connections.max_per_peer = random.choose(&[0, 0, 0, 0, 0, 0, 1, 3]);
    if random.below(40) == 0 {
        // No host and no user of a run.
        raw.connections.allow = vec!["192.0.2.0/24".to_owned()];
    }
}

/// Timeouts that expire in the run, all or none of them.
fn hurry(random: &mut Random, raw: &mut Raw) {
    let connections = &mut raw.connections;
    let times = [
        &mut connections.call_timeout,
        &mut connections.send_timeout,
        &mut connections.idle_timeout,
    ];
    for time in times {
        *time = random.choose(&[NEVER, NEVER, "1ms", "10ms", "50ms"]).into();
    }
}

/// A timeout that does not expire.
pub const NEVER: &str = "0s";

/// The version, and explicit RDMA.
fn explicit(random: &mut Random, raw: &mut Raw) {
    raw.protocol.version = random.choose(&["auto", "auto", "auto", "one", "two"]).into();
    raw.explicit.enabled = random.below(5) > 0;
    let ways = ["auto", "auto", "auto", "registration", "registration", "static-insecure"];
    raw.explicit.exposure = random.choose(&ways).into();
    raw.explicit.windows = random.choose(&["auto", "1", "3", "16"]).into();
    raw.explicit.fetches = random.choose(&[0, 1, 2, 64]);
    raw.explicit.buffers.count = random.choose(&[1, 2, 4, 8]);
    raw.explicit.buffers.length = random.choose(&["4KiB", "16KiB", "64KiB"]).into();
    let interop = &mut raw.interop;
    interop.read_chunks_max = random.choose(&[1, 2, 8]);
    interop.read_chunk_last = random.below(4) == 0;
    interop.write_chunks_max = random.choose(&[1, 2, 8]);
    interop.segments_max = random.choose(&[1, 2, 16]);
    interop.reply_chunk = random.choose(&["when-needed", "always"]).into();
    interop.long_call_with_chunks = random.below(2) == 0;
    interop.write_with_reply = random.below(2) == 0;
    interop.remote_invalidation = random.below(2) == 0;
}

/// The script of a call.
pub fn script(random: &mut Random, id: u32, len_max: u32, has_bulk: bool) -> Script {
    let call = parts(random, len_max, has_bulk);
    let order = random.choose(&ORDERS);
    let reply = match order {
        Order::Relay => call.iter().copied().find(is_bulk).into_iter().collect(),
        // An answer of another thread has one item and little else.
        Order::Elsewhere => {
            let (len, head) = (random.below(len_max), random.below(100));
            let bulk = if has_bulk { Some(Part::Bulk(len)) } else { None };
            [Some(Part::Inline(head)), bulk, Some(Part::Inline(random.below(40)))]
                .into_iter()
                .flatten()
                .collect()
        }
        _ => parts(random, len_max, has_bulk),
    };
    let mut script = Script::new(id, &call, &reply).order(order);
    for want in &mut script.wants {
        // A short item is sent inline; an item longer than its maximum fails.
        want.len_min = random.choose(&[0, 0, 0, 1, 500]).min(want.len_max);
    }
    if random.below(8) == 0 {
        script.wants.truncate(random.below(3) as usize);
    }
    script
}

fn parts(random: &mut Random, len_max: u32, has_bulk: bool) -> Vec<Part> {
    let mut left = len_max;
    let mut parts = Vec::new();
    for _ in 0..random.choose(&[0, 1, 1, 1, 2, 3, 5]) {
        let magnitude = random.choose(&[8, 200, 1_000, 4_000, 24_000]).min(left).max(1);
        let len = random.below(magnitude);
        left -= len;
        let is_inline = !has_bulk || (len < 4_000 && random.below(2) == 0);
        parts.push(if is_inline { Part::Inline(len) } else { Part::Bulk(len) });
    }
    parts
}

fn is_bulk(part: &Part) -> bool {
    matches!(part, Part::Bulk(1..))
}

const ORDERS: [Order; 12] = [
    Order::Answer,
    Order::Answer,
    Order::Answer,
    Order::Answer,
    Order::Answer,
    Order::Later,
    Order::Later,
    Order::Elsewhere,
    Order::Refuse,
    Order::Never,
    Order::Relay,
    Order::Keep,
];

/// The number of attempts until a configuration is consistent.
const DRAWS_MAX: usize = 64;
