//! An attempt to connect: its steps, and the pauses between its tries.
//!
//! ```text
//!   Address ──▶ Route ──▶ Answer ──▶ connected
//!      └──────────┴──────────┴── fails ──▶ Pause ──▶ Address         as often and as long as allowed
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_provider::{ConnectError, ConnectId, PrivateBytes};

use super::reason::Failure;
use crate::cm_id::Id;
use crate::options::VerbsOptions;
use crate::port::{Port, VerbsEndpoint};

/// A connection attempt in progress.
pub(super) struct Attempt {
    pub name: ConnectId,
    pub to: SocketAddr,
    pub port: Arc<Port>,
    pub private: PrivateBytes,
    pub rnr_retry: u8,
    pub stage: AttemptStage,
    /// The key of the current try's id in librdmacm.
    pub key: u64,
    /// When the stage ends, with or without a result.
    pub until: Instant,
    pub tries: Tries,
}

/// The progress of a try, and what it holds.
pub(super) enum AttemptStage {
    /// Until the address is known.
    Address(Id),
    /// Until the route is known.
    Route(Id),
    /// Until the peer answers.
    Answer(VerbsEndpoint),
    /// Until it is time for another try.
    Pause,
}

/// The number of tries left, and the pause before the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tries {
    left: u32,
    /// Why the last one failed.
    last: Option<ConnectError>,
    pause: Duration,
    pause_max: Duration,
}

impl Tries {
    pub fn new(options: &VerbsOptions) -> Tries {
        let (pause, pause_max) = (options.pause, options.pause_max);
        Tries { left: options.attempts, last: None, pause, pause_max }
    }

    /// Why the last try failed, if one has.
    pub fn last(&self) -> Option<ConnectError> {
        self.last
    }

    /// Records a failed try. Returns the pause before the next one, or the reason that there is
    /// none.
    pub fn after(&mut self, failure: Failure) -> Result<Duration, ConnectError> {
        let reason = match failure {
            Failure::Final(reason) => return Err(reason),
            Failure::Passing(reason) => reason,
        };
        self.last = Some(reason);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return Err(reason);
        }
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(self.pause_max);
        Ok(pause)
    }
}
