//! Round trips counted: by what both shards did, and in virtual time, where nothing else takes any.
//!
//! ```text
//!   client, server: a turn each, as long as either has anything to do
//!   neither has ──▶ the fabric's clock moves on by a tenth of the delay
//! ```
//!
//! So the time of a call is the fabric's serial delay. It does not depend on the machine's clock:
//! it is the same in every run, under any load of the machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rpcrdma::fabric::{DeviceClock, FabricOptions};
use rpcrdma::{Clock, Engine, Fabric, Snapshot};
use rpcrdma_config::Config;

use super::caller::Caller;
use super::ends::{connect, poll, quiesce};
use super::message::WHO;
use super::server::Server;
use crate::call::Load;
use crate::error::BenchError;

#[derive(Debug, Clone)]
pub struct Counted {
    pub delay_ns: u64,
    /// How long each call took, one after the other, in nanoseconds.
    pub calls_ns: Vec<u64>,
    pub per_call: PerCall,
}

/// What the two shards counted of one call, on average, and the version they spoke.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerCall {
    pub version: u32,
    /// Transmissions of the client.
    pub sends_there: f64,
    /// Transmissions of the server.
    pub sends_back: f64,
    /// RDMA Reads of the server.
    pub reads: f64,
    /// RDMA Writes of the server.
    pub writes: f64,
    /// Pieces of memory that the client showed.
    pub exposed: f64,
    /// Rights to them that the client took back by a work request of its own.
    pub invalidations: f64,
}

impl Counted {
    /// The whole round trips of a call, if all calls took the same, and nothing besides.
    pub fn round_trips(&self) -> Option<u64> {
        let (first, both_ways) = (*self.calls_ns.first()?, 2 * self.delay_ns);
        let is_exact = first.is_multiple_of(both_ways);
        let is_each = self.calls_ns.iter().all(|call| *call == first);
        (is_exact && is_each).then_some(first / both_ways)
    }
}

impl PerCall {
    /// What client and server have counted since `before`, over so many calls.
    pub(super) fn new(before: &[Snapshot], after: &[Snapshot], calls: u64) -> PerCall {
        let each = |side: usize, counter: fn(&Snapshot) -> u64| {
            let count = counter(&after[side]).saturating_sub(counter(&before[side]));
            count as f64 / calls.max(1) as f64
        };
        PerCall {
            version: if after[CLIENT].connections_version_one > 0 { 1 } else { 2 },
            sends_there: each(CLIENT, |count| count.transmissions_sent),
            sends_back: each(SERVER, |count| count.transmissions_sent),
            reads: each(SERVER, |count| count.rdma_reads),
            writes: each(SERVER, |count| count.rdma_writes),
            exposed: each(CLIENT, |count| count.exposures),
            invalidations: each(CLIENT, |count| count.invalidations),
        }
    }

    /// The minimum of round trips: one for call and reply, and another for Reads before the handler
    /// has the call. Writes travel before the reply on the same way, and the client does not wait
    /// when it takes its memory back.
    pub fn round_trips(&self) -> u64 {
        1 + u64::from(self.reads > 0.0)
    }
}

/// Makes calls one after the other in virtual time, over a fabric with the configuration's delay.
pub fn count(config: &Config, load: &Load, calls: u32) -> Result<Counted, BenchError> {
    let delay_ns = u64::try_from(config.fabric().delay.as_nanos()).unwrap_or(u64::MAX);
    let (time, step_ns) = (Arc::new(AtomicU64::new(0)), (delay_ns / 10).max(1));
    let fabric = Fabric::with_options(FabricOptions {
        slots: config.fabric().ring_slots.value(),
        delay_ns,
        clock: DeviceClock::Virtual(Arc::clone(&time)),
        ..FabricOptions::default()
    })?;
    let (engine, mut control) = Engine::without_threads(fabric, config.clone())?;
    let address = control.listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
    let mut server = engine.shard(Server::new(load))?;
    let bulk = server.turn(0).buffer();
    server.handler().serve_from(bulk)?;
    let mut client = engine.client()?;
    let peers = connect(&mut client, address, load.connections, &mut |now| {
        server.poll_once(now);
        control.step(Duration::ZERO);
        time.fetch_add(step_ns, Ordering::Release);
    })?;
    quiesce(Duration::ZERO, &mut |now| {
        poll(&mut client, now);
        server.poll_once(now);
        time.fetch_add(step_ns, Ordering::Release);
    });
    let before = [client.handle().stats(), server.handle().stats()];
    let mut caller = Caller::new(client, peers, load)?;
    let clock = Clock::new();
    let mut calls_ns = Vec::new();
    for number in 1..=u64::from(calls) {
        let from = time.load(Ordering::Acquire);
        caller.begin()?;
        loop {
            let now = clock.now();
            let is_busy = caller.poll_at(now)? | server.poll_once(now);
            server.handler().failure()?;
            if caller.received() == number {
                break;
            }
            let at = time.load(Ordering::Acquire);
            if at - from > TRIPS_MAX * delay_ns {
                return Err(BenchError::device(WHO, "a call that does not end in virtual time"));
            }
            if !is_busy {
                time.store(at + step_ns, Ordering::Release);
            }
        }
        calls_ns.push(time.load(Ordering::Acquire) - from);
    }
    let after = [caller.counters(), server.handle().stats()];
    let per_call = PerCall::new(&before, &after, calls.into());
    Ok(Counted { delay_ns, calls_ns, per_call })
}

const CLIENT: usize = 0;
const SERVER: usize = 1;
/// One-way trips that no call takes.
const TRIPS_MAX: u64 = 1000;
