//! An attempt to connect: its steps, and the pauses between its tries.
//!
//! ```text
//!   Address ──▶ Route ──▶ Answer ──▶ connected
//!      └──────────┴──────────┴── fails ──▶ Pause ──▶ Address         as often and as long as allowed
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_provider::{ConnParam, ConnectError, ConnectId, PrivateBytes, SetupError};

use super::id::Id;
use super::reason::Failure;
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

/// The private data that a program sends when it connects or accepts, checked with its retries.
pub(super) fn private_bytes(param: &ConnParam<'_>) -> Result<PrivateBytes, SetupError> {
    if param.rnr_retry > RNR_RETRY_MAX {
        return Err(SetupError::Invalid {
            what: "rnr_retry",
            value: param.rnr_retry.to_string(),
            allowed: "0 to 7".to_owned(),
        });
    }
    PrivateBytes::try_from(param.private).map_err(|_| SetupError::Invalid {
        what: "length of connection private data",
        value: param.private.len().to_string(),
        allowed: "at most 56 bytes".to_owned(),
    })
}

/// Retry without limit.
const RNR_RETRY_MAX: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Failure = Failure::Passing(ConnectError::TimedOut);

    fn tries(attempts: u32, pause: u64, pause_max: u64) -> Tries {
        let [pause, pause_max] = [pause, pause_max].map(Duration::from_millis);
        Tries::new(&VerbsOptions { attempts, pause, pause_max, ..VerbsOptions::default() })
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut tries = tries(6, 20, 100);
        for pause in [20, 40, 80, 100, 100] {
            assert_eq!(tries.after(LATE), Ok(Duration::from_millis(pause)));
        }
        assert_eq!(tries.after(LATE), Err(ConnectError::TimedOut), "there were six");
    }

    #[test]
    fn the_last_failure_is_the_reason() {
        let mut tries = tries(2, 1, 1);
        assert_eq!(tries.last(), None);
        assert!(tries.after(LATE).is_ok());
        assert_eq!(tries.last(), Some(ConnectError::TimedOut));
        let lost = tries.after(Failure::Passing(ConnectError::Lost));
        assert_eq!(lost, Err(ConnectError::Lost));
    }

    #[test]
    fn an_answer_ends_it_at_once() {
        let no = tries(16, 20, 100).after(Failure::Final(ConnectError::Rejected));
        assert_eq!(no, Err(ConnectError::Rejected));
    }

    #[test]
    fn a_single_try_has_no_pause() {
        assert_eq!(tries(1, 20, 100).after(LATE), Err(ConnectError::TimedOut));
    }
}
