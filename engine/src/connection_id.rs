//! The identity of a connection.

use core::fmt;

use crate::provider::shortly_before_end;

/// Identifies a connection of one shard. Stale once the connection has ended. It is shown as the
/// place of the connection and the number of those that had this place before: `2.0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

#[cfg(test)]
impl ConnectionId {
    /// The first connection of a place.
    pub(crate) fn first(index: u32) -> ConnectionId {
        ConnectionId { index, generation: FIRST }
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation.wrapping_sub(FIRST))
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({self})")
    }
}

/// The first generation of a place.
pub(crate) const FIRST: u32 = shortly_before_end(32, 2);
