//! Checks across keys: values that are valid alone and may contradict each other.
//!
//! ```text
//!   receive.buffers   every Receive of a shard
//!   ├── control reserve      min(4 x connections.max, 64): properties, grants, errors; costs no credit
//!   ├── receive.replies      for replies to our own calls
//!   └── the rest             granted as credits: 1 to each connection, up to connections.credits
//! ```

use rpcrdma_xdr::{RecvStructure, SegmentGroup};

use crate::choice::{Cores, Exposure, VersionChoice};
use crate::error::{ConfigError, at_most, sum};
use crate::section::{
    BUFFER_LEN_MAX, ConnectionsSection, EngineSection, ExplicitSection, FeaturesSection,
    ProtocolSection, ReceiveSection, SendSection, control_reserve,
};
use crate::units::{CoreNumbers, Length};

/// The default receive buffer size, which a peer may send without properties (`wire.md` P15).
const RBSIZ_DEFAULT: u64 = 4096;

/// If the configuration requires windows, their number is not zero.
pub(crate) fn check_explicit(
    explicit: &ExplicitSection,
    connections: &ConnectionsSection,
) -> Result<(), ConfigError> {
    let needed = explicit.enabled && connections.calls_max.value() > 0;
    let windows = explicit.exposure == Exposure::Windows;
    if needed && windows && explicit.windows.value() == 0 {
        return Err(sum(
            "explicit.windows",
            explicit.windows,
            "explicit.exposure \"windows\" needs them".to_owned(),
            at_least(1),
        ));
    }
    Ok(())
}

/// A list of cores has a core for every shard.
pub(crate) fn check_shards(engine: &EngineSection) -> Result<(), ConfigError> {
    match &engine.cores {
        Cores::List(cores) if cores.len() < engine.shards.as_usize() => Err(sum(
            "engine.shards",
            engine.shards,
            format!("engine.cores {} lists {} cores", CoreNumbers(cores), cores.len()),
            format!("{}, one per core", at_most(cores.len() as u32)),
        )),
        _ => Ok(()),
    }
}

/// Checks the segments of one receive buffer.
pub(crate) fn check_buffer(receive: &ReceiveSection) -> Result<(), ConfigError> {
    let placement = &receive.placement;
    if placement.count.value() == 0 {
        return Ok(());
    }
    if !placement.len.value().is_multiple_of(placement.align.value()) {
        return Err(sum(
            "receive.placement.length",
            Length(placement.len.value().into()),
            "the segments are adjacent, and each is aligned".to_owned(),
            format!(
                "a multiple of receive.placement.align {}",
                Length(placement.align.value().into())
            ),
        ));
    }
    if buffer_len(receive) > u64::from(BUFFER_LEN_MAX) {
        return Err(sum(
            "receive.placement.count",
            placement.count,
            format!("with receive.inline the buffer has {} in all", Length(buffer_len(receive))),
            format!("a buffer of at most {}", Length(BUFFER_LEN_MAX.into())),
        ));
    }
    Ok(())
}

/// Checks the Receives of a shard: every grant must have one.
pub(crate) fn check_receives(
    receive: &ReceiveSection,
    connections: &ConnectionsSection,
) -> Result<(), ConfigError> {
    let calls = connections.calls_max.value();
    let longest = connections.reply_transmissions_max.value();
    let replies = receive.replies.value();
    let replies_min = if calls == 0 { 0 } else { calls.max(longest) };
    if replies < replies_min {
        return Err(sum(
            "receive.replies",
            replies,
            format!(
                "each of connections.calls_max {calls} calls gets a reply, and one reply may have \
                 connections.reply_transmissions_max {longest} transmissions"
            ),
            at_least(replies_min),
        ));
    }
    let max = connections.max.value();
    let credits = connections.credits.value();
    let control = control_reserve(max);
    let needed =
        u64::from(max.max(credits)) + u64::from(control) + u64::from(receive.replies.value());
    if u64::from(receive.buffers.value()) < needed {
        return Err(sum(
            "receive.buffers",
            receive.buffers,
            format!(
                "one credit for each of connections.max {max}, or connections.credits {credits} for \
                 a single one, {control} for control messages and {replies} for replies"
            ),
            format!("{needed} or more"),
        ));
    }
    let group = connections.request_transmissions_max.value();
    if group > credits {
        return Err(sum(
            "connections.request_transmissions_max",
            group,
            "each transmission of a request costs a credit".to_owned(),
            format!("{}, the value of connections.credits", at_most(credits)),
        ));
    }
    Ok(())
}

/// Checks the send slots of a shard, and the credits of own calls.
pub(crate) fn check_sends(
    send: &SendSection,
    connections: &ConnectionsSection,
) -> Result<(), ConfigError> {
    let slots = send.slots.value();
    if slots / 2 < send.signal_every.value() {
        return Err(sum(
            "send.signal_every",
            send.signal_every,
            "slots return with the next completion; the others are in use until then".to_owned(),
            format!("{}, half of send.slots", at_most(slots / 2)),
        ));
    }
    let groups = [
        ("connections.call_transmissions_max", connections.call_transmissions_max),
        ("connections.response_transmissions_max", connections.response_transmissions_max),
    ];
    if let Some((key, group)) = groups.into_iter().find(|(_, group)| group.value() > slots) {
        return Err(sum(
            key,
            group,
            "all transmissions of a message need a slot at the same time".to_owned(),
            format!("{}, the value of send.slots", at_most(slots)),
        ));
    }
    let (call, credits) = (connections.call_transmissions_max, connections.credits_requested);
    if call.value() > credits.value() {
        return Err(sum(
            "connections.call_transmissions_max",
            call,
            "each transmission of a call costs a credit".to_owned(),
            format!("{}, the value of connections.credits_requested", at_most(credits.value())),
        ));
    }
    Ok(())
}

/// In version two a peer may send messages of the default size until it learns another size; a peer
/// without properties never does.
pub(crate) fn check_default_size(
    protocol: &ProtocolSection,
    receive: &ReceiveSection,
) -> Result<(), ConfigError> {
    if buffer_len(receive) >= RBSIZ_DEFAULT || protocol.version == VersionChoice::One {
        return Ok(());
    }
    Err(sum(
        "receive.inline",
        Length(receive.inline_len.value().into()),
        "in version two a peer may send messages of the default size".to_owned(),
        format!("{} or more in all segments", Length(RBSIZ_DEFAULT)),
    ))
}

/// Checks features that depend on each other.
pub(crate) fn check_features(features: &FeaturesSection) -> Result<(), ConfigError> {
    if features.properties {
        return Ok(());
    }
    let dependent = [
        ("features.placement", features.placement),
        ("features.continuation", features.continuation),
    ];
    if let Some((key, _)) = dependent.iter().find(|(_, on)| *on) {
        let reason = "peers learn of this feature from properties".to_owned();
        return Err(sum(key, true, reason, "false, or features.properties = true".to_owned()));
    }
    Ok(())
}

/// The receive buffer as a Receive Buffer Structure.
pub(crate) fn structure(receive: &ReceiveSection) -> Result<RecvStructure, ConfigError> {
    let placement = &receive.placement;
    let leading =
        SegmentGroup { count: 1, length: receive.inline_len.value(), align: 4, placement: false };
    let placed = SegmentGroup {
        count: placement.count.value(),
        length: placement.len.value(),
        align: placement.align.value(),
        placement: true,
    };
    let groups = [leading, placed];
    let used = if placement.count.value() == 0 { 1 } else { 2 };
    RecvStructure::new(&groups[..used]).map_err(|error| {
        sum(
            "receive.placement.count",
            placement.count,
            error.to_string(),
            "a valid Receive Buffer Structure".to_owned(),
        )
    })
}

pub(crate) fn buffer_len(receive: &ReceiveSection) -> u64 {
    let placement = &receive.placement;
    u64::from(receive.inline_len.value())
        + u64::from(placement.count.value()) * u64::from(placement.len.value())
}

fn at_least(limit: u32) -> String {
    format!("{limit} or more")
}
