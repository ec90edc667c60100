//! The control plane's reports: events of the crate `tracing`, with the feature
//! `tracing`.
//!
//! Each function emits one event. Without the feature they are empty, so that their callers read
//! the same. They are called where connections, listeners and shards begin and end: no turn that
//! only carries messages passes one.

use rpcrdma_proto::{PeerLimits, PropertyOutcome, Start};

use crate::connection_id::ConnectionId;
use crate::error::CloseReason;
use crate::provider::{Address, ConnectError, ConnectId, Panicked, Rejection, SetupError};
use crate::resources::ShardResources;

/// The target of all events, for filters.
#[cfg(feature = "tracing")]
const TARGET: &str = "rpcrdma";

/// Functions that emit an event of a level, with their arguments as its fields: `&` records a
/// number, `%` a value as it is displayed, `?` as it is debugged.
macro_rules! events {
    ($($(#[$doc:meta])* $level:ident $name:ident($($how:tt $field:ident: $type:ty),* $(,)?) = $text:literal;)*) => {$(
        $(#[$doc])*
        #[cfg(feature = "tracing")]
        #[cold]
        #[inline(never)]
        pub(crate) fn $name($($field: $type),*) {
            tracing::$level!(target: TARGET, $($field = $how $field,)* $text);
        }

        $(#[$doc])*
        #[cfg(not(feature = "tracing"))]
        #[inline(always)]
        pub(crate) fn $name($(_: $type),*) {}
    )*};
}

events! {
    /// An engine is made.
    info engine_made(%device: &str) = "engine made";
    /// A shard is ready; `serves` if it takes connections from the listeners.
    info shard_started(&shard: u32, &serves: bool, %resources: &ShardResources) = "shard started";
    /// A shard was asked to stop.
    info shard_stopping(&shard: u32) = "shard stopping";
    /// A shard is gone, with all its resources.
    info shard_ended(&shard: u32) = "shard ended";
    /// A thread of the engine has panicked.
    error panicked(%failure: &Panicked) = "panicked";
    /// The device, or the queues of a shard, are lost, and all its connections with them.
    error device_lost(&shard: u32, %reason: CloseReason) = "device lost";
    /// A port of the device is down.
    warn port_down(&shard: u32) = "port down";
    /// A port of the device is up again.
    info port_up(&shard: u32) = "port up";

    /// The engine listens.
    info listening(%at: Address) = "listening";
    /// The engine cannot listen.
    warn listen_failed(%at: Address, %error: &SetupError) = "listen failed";
    /// A listener is closed: no shard serves any more.
    info listener_closed(%at: Address) = "listener closed";
    /// A peer requests a connection.
    debug requested(%from: Address) = "connection requested";
    /// A peer's request is accepted.
    info accepted(%from: Address, &shard: u32) = "connection accepted";
    /// A peer's request is rejected.
    warn rejected(%from: Address, %reason: Rejection) = "connection rejected";
    /// The connection manager could not accept a request.
    warn accept_failed(%from: Address, %error: &SetupError) = "accept failed";
    /// An attempt to connect begins; `again` after version two has failed.
    info connecting(%to: Address, &shard: u32, ?attempt: ConnectId, &again: bool) = "connecting";
    /// An attempt to connect has failed.
    warn connect_failed(%to: Address, &shard: u32, ?attempt: ConnectId, %reason: ConnectError) =
        "connect failed";
    /// A shard has no room for a connection that was made.
    warn shard_full(%peer: Address, &shard: u32) = "connection rejected by a full shard";

    /// The version that the first message to a peer has.
    debug version_begun(%peer: Address, &shard: u32, ?version: Start) = "version begun";
    /// A peer supports version one only: it said so, or did not answer version two.
    warn version_fallback(%peer: Address, %reason: &str) = "fallback to version one";
    /// A peer supports none of this side's versions.
    warn version_refused(%peer: Address) = "no common version";
    /// A peer supports version two without properties.
    info properties_refused(%peer: Address) = "peer without properties";
    /// A connection is up: calls may go both ways. `peer_limits` are the properties of the peer.
    info connected(
        &shard: u32,
        ?connection: ConnectionId,
        %peer: Address,
        &requested: bool,
        ?peer_limits: &PeerLimits,
    ) = "connected";
    /// The answer to a request for changes of properties, or its timeout.
    info properties_changed(?connection: ConnectionId, ?outcome: &PropertyOutcome) =
        "properties changed";
    /// A connection ends.
    info closed(
        &shard: u32,
        ?connection: ConnectionId,
        %peer: Address,
        &calls_unanswered: u32,
        %reason: CloseReason,
    ) = "connection closed";
    /// Messages of a connection whose memory the device did not release: it stays out of use.
    error leaked(&shard: u32, ?connection: ConnectionId, &messages: u64) = "memory leaked";
}
