//! The gate: whether a short message may come, as one word.
//!
//! Every message needs it, and its parts are spread over a connection. Each change of a part sets
//! it; debug builds compare it with its parts at every message.

use crate::version::Met;

/// Whether a short message may come. A word with two values: all others, more than any other
/// member of a connection has, are free to mark that there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Gate {
    /// The peers have not met, or a group is open.
    Shut,
    Open,
}

impl Gate {
    /// The gate of these parts.
    #[inline]
    pub fn of(met: Met, has_group: bool) -> Gate {
        if met == Met::Both && !has_group { Gate::Open } else { Gate::Shut }
    }
}
