//! What became of the connection requests of peers, counted.

use crate::provider::Rejection;
use crate::stats::Counter;

/// The counters. Only the control plane writes them.
#[derive(Debug, Default)]
pub(crate) struct AdmissionTally {
    accepted: Counter,
    not_allowed: Counter,
    refused: Counter,
    full: Counter,
    peer_full: Counter,
    busy: Counter,
    stopping: Counter,
}

/// What became of the connection requests of peers since the engine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Admissions {
    /// Accepted.
    pub accepted: u64,
    /// Rejected by `connections.allow` and `connections.deny`.
    pub not_allowed: u64,
    /// Refused by the handler.
    pub refused: u64,
    /// Rejected because no shard had room (`connections.max`).
    pub full: u64,
    /// Rejected because their host or user had as many connections as it may have
    /// (`connections.max_per_peer`).
    pub peer_full: u64,
    /// Rejected because the shard did not answer within `connections.connect_timeout`, or the
    /// device could not make the connection.
    pub busy: u64,
    /// Rejected because no shard serves any more.
    pub stopping: u64,
}

impl AdmissionTally {
    /// A request was accepted.
    pub fn accepted(&self) {
        self.accepted.add(1);
    }

    /// A request was rejected.
    pub fn rejected(&self, why: Rejection) {
        let counter = match why {
            Rejection::NotAllowed => &self.not_allowed,
            Rejection::Refused { .. } => &self.refused,
            Rejection::Full => &self.full,
            Rejection::PeerFull => &self.peer_full,
            Rejection::Stopping => &self.stopping,
            _ => &self.busy,
        };
        counter.add(1);
    }

    /// Reads every counter, one after the other.
    pub fn snapshot(&self) -> Admissions {
        Admissions {
            accepted: self.accepted.count(),
            not_allowed: self.not_allowed.count(),
            refused: self.refused.count(),
            full: self.full.count(),
            peer_full: self.peer_full.count(),
            busy: self.busy.count(),
            stopping: self.stopping.count(),
        }
    }
}
