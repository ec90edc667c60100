//! An attempt to connect: the steps to the peer, and the pauses between its tries.
//!
//! ```text
//!   Address ──▶ Route ──▶ Answer ──▶ connected
//!      └──────────┴──────────┴── fails ──▶ Pause ──▶ Address         as often and as long as allowed
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_provider::SetupError;
use rpcrdma_provider::{CmEvent, ConnParam, ConnectError, ConnectId, PrivateBytes};

use super::VerbsCm;
use super::id::Id;
use super::owner::Owner;
use super::reason::{self, Failure};
use crate::options::VerbsOptions;
use crate::port::{Port, VerbsEndpoint};

/// A connection that is being made.
pub(super) struct Attempt {
    pub name: ConnectId,
    pub to: SocketAddr,
    pub port: Arc<Port>,
    pub private: PrivateBytes,
    pub rnr_retry: u8,
    pub stage: Stage,
    /// How the present try's end in librdmacm is named.
    pub key: u64,
    /// When the stage is over, one way or another.
    pub until: Instant,
    pub tries: Tries,
}

/// How far a try has come, and what it holds.
pub(super) enum Stage {
    /// Until the address is known.
    Address(Id),
    /// Until the route is known.
    Route(Id),
    /// Until the peer answers.
    Answer(VerbsEndpoint),
    /// Until it is time for another try.
    Pause,
}

/// How many tries are left, and how long to pause before the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tries {
    left: u32,
    /// Why the last one failed.
    last: Option<ConnectError>,
    pause: Duration,
    pause_max: Duration,
}

/// The tries of attempts, and their time.
impl VerbsCm {
    /// Begins a try: asks for the address.
    pub(super) fn begin(&mut self, attempt: &mut Attempt) -> Result<(), Failure> {
        let key = self.new_key();
        let device = Arc::clone(&self.device);
        let options = &device.options;
        let id = Id::new(&self.channel, key).map_err(|error| self.give_up(&error))?;
        if let Some(class) = options.traffic_class {
            id.set_traffic_class(class).map_err(|error| reason::of_error(&error))?;
        }
        let source = device.source.filter(|source| source.is_ipv4() == attempt.to.is_ipv4());
        let source = source.map(|source| SocketAddr::new(source, 0));
        id.resolve_address(source, attempt.to, options.resolve_timeout)
            .map_err(|error| reason::of_error(&error))?;
        self.owners.insert(key, Owner::Attempt(attempt.name));
        attempt.key = key;
        attempt.stage = Stage::Address(id);
        attempt.until = Instant::now() + options.resolve_timeout;
        Ok(())
    }

    /// A try has failed: there is a pause and another one, or the end.
    pub(super) fn failed(&mut self, mut attempt: Attempt, failure: Failure) {
        self.owners.remove(&attempt.key);
        attempt.stage = Stage::Pause;
        match attempt.tries.after(failure) {
            Ok(pause) => {
                attempt.until = Instant::now() + pause;
                self.attempts.insert(attempt.name, attempt);
            }
            Err(reason) => self.ready.push_back(CmEvent::Refused { id: attempt.name, reason }),
        }
    }

    /// What is due: the next try after a pause, or the end of one that got no answer.
    pub(super) fn on_time(&mut self, now: Instant) {
        let due = self.attempts.values().filter(|it| it.until <= now);
        let due: Vec<ConnectId> = due.map(|it| it.name).collect();
        for name in due {
            let Some(mut attempt) = self.attempts.remove(&name) else { continue };
            let outcome = match attempt.stage {
                Stage::Pause => self.begin(&mut attempt),
                _ => Err(Failure::Passing(ConnectError::TimedOut)),
            };
            match outcome {
                Ok(()) => drop(self.attempts.insert(name, attempt)),
                Err(failure) => self.failed(attempt, failure),
            }
        }
    }

    /// How long nothing is due.
    pub(super) fn quiet(&self, now: Instant) -> Duration {
        let next = self.attempts.values().map(|it| it.until).min();
        next.map_or(Duration::MAX, |next| next.saturating_duration_since(now))
    }
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

    /// Takes note of a try that has failed: the pause before the next one, or why there is none.
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

/// What a program says to its peer when it connects or accepts, checked with its retries.
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

/// Retries without end.
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
