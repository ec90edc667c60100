//! The loops of one client and its server: closed, open, and with pauses.

use std::{iter, mem, panic, thread};

use rpcrdma::Provider;

use super::caller::Caller;
use super::churn::OpenLoop;
use super::contender::Rpc;
use super::ends::stopwatch;
use super::idle::{Idling, PausedRound, Pauses};
use crate::contenders::open::{Offer, OpenRound, drive};
use crate::contenders::tally::{Tally, with_cpu};
use crate::error::BenchError;
use crate::machine::pair::{Stop, preemptions};
use crate::machine::pin;
use crate::stats::{End, Meter, Quota, Round};

impl<P: Provider> Rpc<P> {
    /// Keeps the window of each client full for one round and counts: what it can do at most.
    pub fn closed(&mut self, quota: Quota) -> Result<Round, BenchError> {
        if self.others.is_empty() {
            return self.measure(quota, false);
        }
        let idle = self.config.engine().idle;
        let clients = 1 + self.others.len() as u64;
        let part = |count: u64| count.div_ceil(clients);
        let end = match quota.end {
            End::Count(count) => End::Count(part(count)),
            End::Time(time) => End::Time(time),
        };
        let quota = Quota { warm_up: part(quota.warm_up), end };
        let (rounds, preempted) = self
            .run_all(|_, caller, stop| caller.window(Meter::new(quota), Idling::new(idle), stop))?;
        let add = |sum: Round, one: Round| Round {
            completed: sum.completed + one.completed,
            elapsed_ns: sum.elapsed_ns.max(one.elapsed_ns),
            ..sum
        };
        let round = rounds.into_iter().reduce(add).expect("there is a client");
        Ok(Round { preempted, ..round })
    }

    /// Times calls one after the other for one round, with any window.
    pub fn one_by_one(&mut self, quota: Quota) -> Result<Round, BenchError> {
        self.measure(quota, true)
    }

    /// Offers calls for one round, whether or not others have come back, up to the window of each
    /// client.
    pub fn open(&mut self, offer: &Offer) -> Result<OpenRound, BenchError> {
        let clients = 1 + self.others.len();
        let (rounds, preempted) = self.run_all(|client, caller, stop| {
            let offer = offer.part(client, clients);
            drive(&mut OpenLoop::new(caller, stop, None), &offer, &stopwatch())
        })?;
        Ok(OpenRound { preempted, ..OpenRound::together(rounds) })
    }

    /// Runs a part of the round on every client, each on its core, while the server answers. Returns
    /// how often a thread lost its core, too.
    fn run_all<T: Send>(
        &mut self,
        work: impl Fn(usize, &mut Caller<P>, &Stop) -> Result<T, BenchError> + Sync,
    ) -> Result<(Vec<T>, u64), BenchError> {
        let (mut others, work) = (mem::take(&mut self.others), &work);
        let outcome = self.run(Tally::Nothing, |caller, _, stop| {
            thread::scope(|scope| {
                let mut threads = Vec::new();
                for (index, (caller, core)) in others.iter_mut().enumerate() {
                    threads.push(scope.spawn(move || {
                        pin(*core)?;
                        let before = preemptions();
                        let done = work(index + 1, caller, stop)?;
                        Ok((done, preemptions().saturating_sub(before)))
                    }));
                }
                let first = work(0, caller, stop).map(|done| (done, 0));
                let others = threads.into_iter().map(|thread| {
                    thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
                });
                iter::once(first).chain(others).collect::<Result<Vec<(T, u64)>, BenchError>>()
            })
        });
        self.others = others;
        let outcome = outcome?;
        let (done, lost): (Vec<T>, Vec<u64>) = outcome.client.into_iter().unzip();
        Ok((done, outcome.preempted + lost.iter().sum::<u64>()))
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
