//! The ends of a contender: a server and clients, each made on its core, and connected.

use std::thread;
use std::time::{Duration, Instant};

use quanta::Clock as Ticks;
use rpcrdma_engine::{Address, Client, Clock, ConnectionId, Engine, Provider, Shard};

use super::idle::Idling;
use super::message::WHO;
use super::server::Server;
use crate::contenders::call::Load;
use crate::device::on_core;
use crate::device::pair::Stop;
use crate::error::BenchError;

pub(super) fn make_server<P: Provider>(
    engine: &Engine<P>,
    core: u32,
    load: &Load,
) -> Result<Shard<P, Server>, BenchError> {
    on_core(core, || {
        let mut shard = engine.shard(Server::new(load))?;
        let bulk = shard.turn(0).buffer();
        shard.handler().serve_from(bulk)?;
        Ok(shard)
    })
}

pub(super) fn serve<P: Provider>(
    server: &mut Shard<P, Server>,
    mut idling: Idling,
    stop: &Stop,
) -> Result<(), BenchError> {
    let clock = Clock::new();
    let (mut now, mut idle) = (clock.now(), 0_u32);
    loop {
        // As the loop of a shard does: an idle turn is shorter than a reading of the clock.
        if server.poll_once(now) {
            idling.busy();
            now = clock.now();
            continue;
        }
        idle = idle.wrapping_add(1);
        if idle.is_multiple_of(TURNS_PER_READING) {
            now = clock.now();
        }
        if stop.is_set() {
            return server.handler().failure();
        }
        if let Some(timeout) = idling.idle(now) {
            server.wait(timeout);
        }
    }
}

/// Connects as often as wished. `turn` is called after each poll of the client: it polls the
/// server.
pub(crate) fn connect<P: Provider>(
    client: &mut Client<P>,
    to: Address,
    connections: u32,
    turn: &mut dyn FnMut(u64),
) -> Result<Vec<ConnectionId>, BenchError> {
    let clock = Clock::new();
    let mut peers = Vec::new();
    for _ in 0..connections {
        let attempt = client.begin_connect(to)?;
        let deadline = Instant::now() + PATIENCE;
        let peer = loop {
            let now = clock.now();
            poll(client, now);
            turn(now);
            if let Some(outcome) = client.connected(attempt) {
                break outcome.map_err(|reason| BenchError::device(WHO, reason))?;
            }
            if Instant::now() > deadline {
                return Err(BenchError::device(WHO, "no connection in time"));
            }
            thread::yield_now();
        };
        peers.push(peer);
    }
    Ok(peers)
}

/// Receives the remaining control messages: credits, properties. Continues while `more` returns
/// true.
pub(super) fn settle<P: Provider>(
    client: &mut Client<P>,
    server: &mut Shard<P, Server>,
    more: &dyn Fn() -> bool,
) {
    let clock = Clock::new();
    let mut turns = 0;
    while more() || turns < SETTLE {
        let now = clock.now();
        poll(client, now);
        server.poll_once(now);
        turns += 1;
    }
}

/// Polls a client that has made no calls.
pub(super) fn poll<P: Provider>(client: &mut Client<P>, now: u64) {
    client.poll(now, |_| {});
}

/// The nanoseconds since it was made.
pub(super) fn stopwatch() -> impl Fn() -> u64 {
    let clock = Ticks::new();
    let start = clock.raw();
    move || clock.delta_as_nanos(start, clock.raw())
}

/// Turns without work between two readings of the clock.
const TURNS_PER_READING: u32 = 16;
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Turns of both sides after the last connection, at least.
const SETTLE: u32 = 1000;
