//! Why a session has no connection.

use crate::error::CloseReason;
use crate::provider::ConnectError;

/// What went wrong last with the connections of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Outage {
    /// A connection was not made.
    #[error("the last attempt to connect failed: {0}")]
    NotConnected(ConnectError),
    /// A connection was lost.
    #[error("the last connection was lost: {0}")]
    Lost(CloseReason),
}
