//! Connections opened and closed beside a load, by the same client and server.
//!
//! ```text
//!   asked ──▶ connected ──▶ stands, while others come ──▶ closed
//!      └▶ failed    └ connect time
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use quanta::Clock as Ticks;
use rpcrdma::provider::ConnectId;
use rpcrdma::{Address, ConnectionId, Provider};

use super::caller::Caller;
use super::contender::Rpc;
use super::ends::{PATIENCE, stopwatch};
use super::message::WHO;
use crate::contenders::open::{Filled, Offer, OpenRound, System, drive, fill};
use crate::contenders::tally::Tally;
use crate::error::BenchError;
use crate::machine::pair::Stop;
use crate::stats::{Dice, Latency};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Churn {
    /// Connections asked for per second, independent of each other.
    pub rate: f64,
    /// Of these, how many stand at one time: the next one closes the oldest.
    pub standing: usize,
    pub seed: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Churned {
    /// From asking to the connection.
    pub connect: Latency,
    pub asked: u64,
    pub made: u64,
    pub failed: u64,
    /// Not asked for, since too many were under way.
    pub skipped: u64,
}

/// The outcome of a round, with or without churn.
#[derive(Debug, Clone)]
pub struct ChurnRound {
    pub filled: Filled,
    pub open: OpenRound,
    /// The connections that came meanwhile.
    pub churned: Churned,
}

impl<P: Provider> Rpc<P> {
    /// Keeps the window full for such a time, and then offers calls; connections come and go
    /// meanwhile if `churn` says so, and have gone at the end.
    pub fn churned(
        &mut self,
        time: Duration,
        offer: &Offer,
        churn: Option<Churn>,
    ) -> Result<ChurnRound, BenchError> {
        let to = self.address;
        let outcome = self.run(Tally::Nothing, |caller, _, stop| {
            let now_ns = stopwatch();
            let comings = churn.map(|churn| Comings::new(churn, to, caller.connections()));
            let mut calls = OpenLoop::new(caller, stop, comings);
            let filled = fill(&mut calls, time, &now_ns)?;
            let open = drive(&mut calls, offer, &now_ns)?;
            Ok(ChurnRound { filled, open, churned: calls.leave()? })
        })?;
        let mut round = outcome.client;
        round.open.preempted = outcome.preempted;
        Ok(round)
    }
}

/// Calls that are made when they are due, and connections that come and go beside them, if any do.
pub(super) struct OpenLoop<'a, P: Provider> {
    caller: &'a mut Caller<P>,
    stop: &'a Stop,
    comings: Option<Comings>,
    polls: u32,
}

impl<P: Provider> System for OpenLoop<'_, P> {
    #[inline]
    fn begin(&mut self, mark: u64) -> Result<bool, BenchError> {
        self.caller.call_due(mark)
    }

    #[inline]
    fn poll(&mut self, ended: impl FnMut(u64)) -> Result<(), BenchError> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_LOOK)
            && let Some(comings) = &mut self.comings
        {
            comings.step(self.caller);
        }
        self.caller.poll_due(self.stop, ended)
    }

    #[inline]
    fn under_way(&self) -> u64 {
        self.caller.under_way()
    }
}

impl<'a, P: Provider> OpenLoop<'a, P> {
    pub fn new(
        caller: &'a mut Caller<P>,
        stop: &'a Stop,
        comings: Option<Comings>,
    ) -> OpenLoop<'a, P> {
        OpenLoop { caller, stop, comings, polls: 0 }
    }

    /// Closes what stands, and waits for it.
    fn leave(mut self) -> Result<Churned, BenchError> {
        let Some(mut comings) = self.comings.take() else { return Ok(Churned::default()) };
        let begin_ns = comings.now_ns();
        while !comings.have_gone(self.caller) {
            self.caller.poll_due(self.stop, |_| {})?;
            if comings.now_ns() - begin_ns > PATIENCE.as_nanos() as u64 {
                return Err(BenchError::device(WHO, "connections do not close in time"));
            }
        }
        Ok(comings.churned)
    }
}

pub(super) struct Comings {
    churn: Churn,
    to: Address,
    others: usize,
    clock: Ticks,
    start: u64,
    dice: Dice,
    next_ns: f64,
    pending: Vec<(ConnectId, u64)>,
    standing: VecDeque<ConnectionId>,
    churned: Churned,
}

impl Comings {
    fn new(churn: Churn, to: Address, others: usize) -> Comings {
        let (clock, mut dice) = (Ticks::new(), Dice::new(churn.seed));
        let start = clock.raw();
        let next_ns = dice.wait(1e9 / churn.rate);
        Comings {
            churn,
            to,
            others,
            clock,
            start,
            dice,
            next_ns,
            pending: Vec::with_capacity(PENDING_MAX),
            standing: VecDeque::with_capacity(churn.standing + 1),
            churned: Churned::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.delta_as_nanos(self.start, self.clock.raw())
    }

    /// Takes connections that have been made, and asks for the next if it is due.
    #[inline]
    fn step<P: Provider>(&mut self, caller: &mut Caller<P>) {
        let now_ns = self.now_ns();
        if !self.pending.is_empty() {
            self.take(caller, now_ns);
        }
        while now_ns as f64 >= self.next_ns {
            self.next_ns += self.dice.wait(1e9 / self.churn.rate);
            self.ask(caller, now_ns);
        }
    }

    fn take<P: Provider>(&mut self, caller: &mut Caller<P>, now_ns: u64) {
        let Comings { pending, standing, churned, .. } = self;
        pending.retain(|(id, since_ns)| {
            let Some(outcome) = caller.connected(*id) else { return true };
            match outcome {
                Ok(peer) => {
                    churned.made += 1;
                    churned.connect.record(now_ns - since_ns);
                    standing.push_back(peer);
                }
                Err(_) => churned.failed += 1,
            }
            false
        });
    }

    #[cold]
    fn ask<P: Provider>(&mut self, caller: &mut Caller<P>, now_ns: u64) {
        while self.standing.len() >= self.churn.standing.max(1) {
            self.standing.pop_front().into_iter().for_each(|peer| caller.close(peer));
        }
        if self.pending.len() >= PENDING_MAX {
            self.churned.skipped += 1;
            return;
        }
        self.churned.asked += 1;
        match caller.begin_connect(self.to) {
            Ok(id) => self.pending.push((id, now_ns)),
            Err(_) => self.churned.failed += 1,
        }
    }

    /// Closes all open connections. Returns whether none is left.
    fn have_gone<P: Provider>(&mut self, caller: &mut Caller<P>) -> bool {
        let now_ns = self.now_ns();
        self.take(caller, now_ns);
        self.standing.drain(..).for_each(|peer| caller.close(peer));
        self.pending.is_empty() && caller.connections() <= self.others
    }
}

/// Connections asked for and not made yet, at most.
pub const PENDING_MAX: usize = 128;
const POLLS_PER_LOOK: u32 = 16;
