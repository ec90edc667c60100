//! Values that are derived from the connections where a file has `auto`.

use super::peers::ConnectionsSection;
use crate::bounded::Bounded;
use crate::error::{ConfigError, at_most, sum};

/// One Receive for the reply of every call, or as many as four of the longest replies need.
pub(crate) fn replies<const MAX: u32>(
    connections: &ConnectionsSection,
) -> Result<Bounded<0, MAX>, ConfigError> {
    let calls = connections.calls_max.value();
    let longest = connections.reply_transmissions_max.value();
    let replies = calls.saturating_mul(longest).min(calls.max(4 * longest));
    Bounded::new(replies).ok_or_else(|| {
        let reason = "derived from connections.calls_max".to_owned();
        sum("receive.replies", "\"auto\"", reason, format!("a sum of {}", at_most(MAX)))
    })
}

/// Full credits for every connection, and the reserves.
pub(crate) fn buffers<const MAX: u32>(
    connections: &ConnectionsSection,
    replies: u32,
) -> Result<Bounded<1, MAX>, ConfigError> {
    let (max, credits) = (connections.max.value(), connections.credits.value());
    let control = control_reserve(max);
    let total = u64::from(max) * u64::from(credits) + u64::from(control) + u64::from(replies);
    u32::try_from(total).ok().and_then(Bounded::new).ok_or_else(|| {
        sum(
            "receive.buffers",
            "\"auto\"",
            format!(
                "connections.max {max} x connections.credits {credits}, {control} for control messages and \
                 {replies} for replies make {total}"
            ),
            format!("a sum of {}, or a number, which the connections then share", at_most(MAX)),
        )
    })
}

/// Windows for an argument, a result, the message and the reply of every call, up to the maximum.
pub(crate) fn windows<const MAX: u32>(connections: &ConnectionsSection) -> Bounded<0, MAX> {
    let windows = connections.calls_max.value().saturating_mul(WINDOWS_PER_CALL).min(MAX);
    Bounded::new(windows).expect("it was cut to the maximum")
}

pub(crate) fn control_reserve(connections: u32) -> u32 {
    (CONTROL_PER_CONNECTION * connections).min(CONTROL_SHARED_MAX)
}

/// The maximum number of outstanding control messages of one peer (`wire.md` P10).
const CONTROL_PER_CONNECTION: u32 = 4;
/// The control reserve is shared: this number is enough for any number of connections.
const CONTROL_SHARED_MAX: u32 = 64;
/// The pieces of memory that a typical call exposes: an argument, a result, its own message and its
/// reply.
const WINDOWS_PER_CALL: u32 = 4;
