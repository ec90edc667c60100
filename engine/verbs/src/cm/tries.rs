//! The tries of attempts to connect, and their time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_provider::{CmEvent, ConnectError, ConnectId};

use super::VerbsCm;
use super::attempt::{Attempt, AttemptStage};
use super::owner::Owner;
use super::reason::Failure;
use crate::cm_id::Id;
use crate::error;

impl VerbsCm {
    /// Begins a try: resolves the address.
    pub(super) fn begin(&mut self, attempt: &mut Attempt) -> Result<(), Failure> {
        let key = self.new_key();
        let device = Arc::clone(&self.device);
        let options = &device.options;
        let id = Id::new(&self.channel, key).map_err(|error| self.give_up(&error))?;
        if let Some(class) = options.traffic_class {
            id.set_traffic_class(class)
                .map_err(|source| self.give_up(&error::of("rdma_set_option", source)))?;
        }
        let source = device.source.filter(|source| source.is_ipv4() == attempt.to.is_ipv4());
        let source = source.map(|source| SocketAddr::new(source, 0));
        id.resolve_address(source, attempt.to, options.resolve_timeout)
            .map_err(|source| self.give_up(&error::of("rdma_resolve_addr", source)))?;
        self.owners.insert(key, Owner::Attempt(attempt.name));
        attempt.key = key;
        attempt.stage = AttemptStage::Address(id);
        attempt.until = Instant::now() + options.resolve_timeout;
        Ok(())
    }

    /// Handles a failed try: pauses before the next one, or ends the attempt.
    pub(super) fn failed(&mut self, mut attempt: Attempt, failure: Failure) {
        self.owners.remove(&attempt.key);
        attempt.stage = AttemptStage::Pause;
        match attempt.tries.after(failure) {
            Ok(pause) => {
                attempt.until = Instant::now() + pause;
                self.attempts.insert(attempt.name, attempt);
            }
            Err(reason) => self.ready.push_back(CmEvent::Refused { id: attempt.name, reason }),
        }
    }

    /// Handles timeouts: the next try after a pause, or the end of a try without an answer.
    pub(super) fn on_time(&mut self, now: Instant) {
        let due = self.attempts.values().filter(|it| it.until <= now);
        let due: Vec<ConnectId> = due.map(|it| it.name).collect();
        for name in due {
            let Some(mut attempt) = self.attempts.remove(&name) else { continue };
            let outcome = match attempt.stage {
                AttemptStage::Pause => self.begin(&mut attempt),
                _ => Err(Failure::Passing(ConnectError::TimedOut)),
            };
            match outcome {
                Ok(()) => drop(self.attempts.insert(name, attempt)),
                Err(failure) => self.failed(attempt, failure),
            }
        }
    }

    /// The time until the next timeout.
    pub(super) fn quiet(&self, now: Instant) -> Duration {
        let next = self.attempts.values().map(|it| it.until).min();
        next.map_or(Duration::MAX, |next| next.saturating_duration_since(now))
    }
}
