//! The memory of an idle connection, without the pools of its shard.
//!
//! ```text
//!   engine with N connections    ─┐
//!                                 ├─ the same pools: N connections are the difference
//!   engine with 2 N connections  ─┘
//! ```
//! Tables that an engine makes for its connections in advance are part of it. All memory of the
//! pools is resident from the start.

use rpcrdma::Fabric;
use rpcrdma_config::Config;

use super::Rpc;
use crate::call::{Load, Shape};
use crate::device::Devices;
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::files::resident;
use crate::values::{Op, Placement, Touch};

/// Bytes of resident memory that an idle connection over the fabric takes on each side.
/// Nothing else may take or return memory of the process meanwhile.
///
/// # Errors
/// What an engine, a fabric or a connection cannot be made for.
pub fn idle_memory(cores: CorePair) -> Result<f64, BenchError> {
    // What the first connection of a process sets up, once for all.
    let _first = with(cores, IDLE, 1)?;
    let before = resident();
    // All of them stay, so that none is in the memory that another has left.
    let _some = with(cores, IDLE, IDLE)?;
    let between = resident();
    let _more = with(cores, 2 * IDLE, 2 * IDLE)?;
    let grown = |from: u64, to: u64| to as f64 - from as f64;
    let difference = grown(between, resident()) - grown(before, between);
    Ok(difference / (2.0 * f64::from(IDLE)))
}

/// A client and a server that have room for so many connections, and this number of them.
fn with(cores: CorePair, room: u32, connections: u32) -> Result<Rpc<Fabric>, BenchError> {
    let mut raw = Config::profile("latency")?.raw().clone();
    raw.memory.pages = "4K".into();
    raw.memory.prefault = true;
    raw.connections.max = room.into();
    raw.receive.inline = "1KiB".into();
    raw.receive.placement.length = "4KiB".into();
    // The same whatever the room.
    raw.receive.buffers = (4 * IDLE).into();
    raw.receive.replies = 64_u32.into();
    let config = Config::try_from(raw)?;
    let load = Load {
        shape: Shape::new(Op::Echo, 64, 64),
        placement: Placement::Inline,
        window: 1,
        connections,
        touch: Touch::None,
        sinks: 0,
    };
    Rpc::on(&Devices::fabrics(&config)?, "rpc", cores, &config, &load, false)
}

/// Enough for pages of 4 KiB to even out.
pub const IDLE: u32 = 256;
