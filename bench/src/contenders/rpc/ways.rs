//! The loops of one client and its server: closed, open, and with pauses.

use rpcrdma_engine::Provider;

use super::churn::OpenLoop;
use super::contender::Rpc;
use super::ends::stopwatch;
use super::idle::{PausedRound, Pauses};
use crate::contenders::open::{Offer, OpenRound, drive};
use crate::contenders::tally::{Tally, with_cpu};
use crate::error::BenchError;
use crate::stats::{Quota, Round};

impl<P: Provider> Rpc<P> {
    /// Keeps the window full for one round and counts: what it can do at most.
    pub fn closed(&mut self, quota: Quota) -> Result<Round, BenchError> {
        self.measure(quota, false)
    }

    /// Times calls one after the other for one round, with any window.
    pub fn one_by_one(&mut self, quota: Quota) -> Result<Round, BenchError> {
        self.measure(quota, true)
    }

    /// Offers calls for one round, whether or not others have come back, up to the window.
    pub fn open(&mut self, offer: &Offer) -> Result<OpenRound, BenchError> {
        let outcome = self.run(Tally::Nothing, |caller, _, stop| {
            drive(&mut OpenLoop::new(caller, stop, None), offer, &stopwatch())
        })?;
        Ok(OpenRound { preempted: outcome.preempted, ..outcome.client })
    }

    /// Makes calls with pauses before them for one round, both threads idle as the configuration
    /// says.
    pub fn paused(&mut self, pauses: &Pauses) -> Result<PausedRound, BenchError> {
        let outcome = self.run(Tally::Nothing, |caller, idling, stop| {
            let (round, cpu) = with_cpu(|| caller.paused(pauses, idling, stop));
            round.map(|round| (round, cpu))
        })?;
        let (round, client_cpu) = outcome.client;
        let cpu = [client_cpu, outcome.server.cpu];
        Ok(PausedRound { cpu, preempted: outcome.preempted, ..round })
    }
}
