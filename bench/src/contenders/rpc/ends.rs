//! The ends of a contender: a server and clients, each made on its core, and connected.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use quanta::Clock as Ticks;
use rpcrdma::provider::DeviceCaps;
use rpcrdma::{Address, Client, Clock, ConnectionId, Engine, Provider, Shard};
use rpcrdma_config::{Config, Exposure};

use super::idle::Idling;
use super::message::WHO;
use super::server::Server;
use crate::call::Load;
use crate::error::BenchError;
use crate::machine::on_core;
use crate::machine::pair::Stop;
use crate::values::Placement;

/// An engine on a device, as configured for such calls.
pub(super) fn make_engine<P: Provider>(
    provider: P,
    config: &Config,
    load: &Load,
) -> Result<Arc<Engine<P>>, BenchError> {
    let config = exposing(config, load, provider.caps())?;
    Ok(Arc::new(Engine::new(provider, config)?))
}

/// With registrations for one call, where calls by explicit RDMA are asked for, the configuration
/// does not say how memory is exposed, and the device cannot do it by windows. Both ends belong to
/// who measures.
fn exposing(config: &Config, load: &Load, caps: &DeviceCaps) -> Result<Config, BenchError> {
    let is_open = config.explicit().exposure == Exposure::Auto;
    // A Read exposes the buffer that it fills, for which there is no window.
    let reads = caps.reads_expose && load.shape.request_data > 0;
    if load.placement != Placement::Rdma || !is_open || caps.windows > 0 && !reads {
        return Ok(config.clone());
    }
    let mut raw = config.raw().clone();
    raw.explicit.exposure = "registration".into();
    Ok(Config::try_from(raw)?)
}

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

/// Makes so many connections. `turn` is called after each poll of the client: it polls the
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

/// Receives the remaining control messages, credits and properties, for this time at least. `turn`
/// polls both sides.
pub(super) fn quiesce(time: Duration, turn: &mut dyn FnMut(u64)) {
    let (clock, until) = (Clock::new(), Instant::now() + time);
    let mut turns = 0;
    while turns < QUIESCE_TURNS || Instant::now() < until {
        turn(clock.now());
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
/// Turns after the last connection, at least.
const QUIESCE_TURNS: u32 = 1000;

#[cfg(test)]
mod tests {
    use rpcrdma::Fabric;

    use super::*;
    use crate::call::Shape;
    use crate::values::{Op, Touch};

    /// How memory is exposed for such calls, on a device with so many windows, whose Reads expose
    /// memory, too, or do not.
    fn exposure(asked: &str, op: Op, placement: Placement, device: (u32, bool)) -> Exposure {
        let mut raw = Config::profile("storage").expect("it comes with the engine").raw().clone();
        raw.explicit.exposure = asked.into();
        let (shape, touch) = (Shape::new(op, 65_536, 65_536), Touch::None);
        let load = Load { shape, placement, window: 1, connections: 1, touch, sinks: 0 };
        let (windows, reads_expose) = device;
        let caps = DeviceCaps { windows, reads_expose, ..Fabric::new().caps().clone() };
        let config = Config::try_from(raw).expect("it is valid");
        exposing(&config, &load, &caps).expect("it is valid").explicit().exposure
    }

    #[test]
    fn memory_is_registered_for_a_call_where_windows_do_not_suffice() {
        use Exposure::{Auto, Registration};
        let by_rdma = |op, device| exposure("auto", op, Placement::Rdma, device);
        assert_eq!([Op::Read, Op::Write].map(|op| by_rdma(op, (64, false))), [Auto, Auto]);
        let software_iwarp = [Op::Read, Op::Write].map(|op| by_rdma(op, (0, true)));
        assert_eq!(software_iwarp, [Registration, Registration]);
        let iwarp_with_windows = [Op::Read, Op::Write].map(|op| by_rdma(op, (64, true)));
        assert_eq!(iwarp_with_windows, [Auto, Registration]);
    }

    #[test]
    fn what_was_asked_for_is_not_changed_nor_what_needs_no_explicit_rdma() {
        let asked = exposure("static-insecure", Op::Write, Placement::Rdma, (0, true));
        assert_eq!(asked, Exposure::StaticInsecure);
        assert_eq!(exposure("auto", Op::Write, Placement::Send, (0, true)), Exposure::Auto);
    }
}
