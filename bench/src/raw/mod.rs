//! The provider seam without RPC: a Send ping-pong, as far as a protocol could possibly get.
//!
//! The same provider, shared receive queues, inline sends, selective signalling, memory and message
//! lengths as the RPC of the same run; no headers are made or read, no credits counted, no calls
//! matched. What an RPC takes above this is the engine.

use std::net::SocketAddr;

use rpcrdma_engine::provider::{Provider, Queues};

use crate::call::Traffic;
use crate::cores::CorePair;
use crate::error::BenchError;
use crate::meter::{Meter, Quota, Round};
use crate::pair::{self, Stop};
use crate::rounds::Contender;

pub mod end;
mod link;

use end::{End, Lengths};

/// Two ends of a connection, kept over all rounds.
pub struct Raw<P: Provider> {
    cores: CorePair,
    window: u64,
    timed: bool,
    client: End<P::Queues>,
    server: End<P::Queues>,
}

impl<P: Provider> Raw<P> {
    /// Sets both ends up and connects them. Round trips are timed when `timed` and only one is
    /// under way; else they are counted.
    ///
    /// # Errors
    /// When the provider has not enough of something, or the connection is not to be had.
    pub fn new(
        provider: &P,
        at: SocketAddr,
        cores: CorePair,
        traffic: Traffic,
        timed: bool,
    ) -> Result<Raw<P>, BenchError> {
        let window = traffic.window;
        let Ends { client, server } = Ends::connect(provider, at, traffic)?;
        Ok(Raw { cores, window: window.into(), timed: timed && window == 1, client, server })
    }

    /// What it uses, for the report.
    pub fn notes(&self) -> Vec<String> {
        vec![format!("raw: {}, {}", self.client.note(), self.server.note())]
    }
}

impl<P: Provider> Contender for Raw<P> {
    fn name(&self) -> &'static str {
        WHO
    }

    fn round(&mut self, quota: Quota) -> Result<Round, BenchError> {
        let Raw { cores, window, timed, client, server } = self;
        let (window, timed) = (*window, *timed);
        let outcome = pair::run(
            *cores,
            move |stop| {
                let meter = Meter::new(quota);
                if timed { ping(client, meter, stop) } else { stream(client, window, meter, stop) }
            },
            move |stop| answer(server, stop),
        )?;
        Ok(Round { preempted: outcome.preempted, ..outcome.client })
    }
}

/// Both ends of a connection.
pub struct Ends<Q: Queues> {
    /// Sends requests.
    pub client: End<Q>,
    /// Sends replies.
    pub server: End<Q>,
}

impl<Q: Queues> Ends<Q> {
    /// Opens queues for both, connects them and gives each its memory.
    ///
    /// # Errors
    /// When the provider has not enough of something, or the connection is not to be had.
    pub fn connect<P: Provider<Queues = Q>>(
        provider: &P,
        at: SocketAddr,
        traffic: Traffic,
    ) -> Result<Ends<Q>, BenchError> {
        let Traffic { request_len, reply_len, window } = traffic;
        assert!(window > 0, "a window of 0 would never send");
        let mut client = provider.open_queues(&end::attr(window))?;
        let mut server = provider.open_queues(&end::attr(window))?;
        let link = link::connect(provider, at, &mut client, &mut server)?;
        let there = Lengths { send: request_len, recv: reply_len };
        let back = Lengths { send: reply_len, recv: request_len };
        Ok(Ends {
            client: End::new(provider, client, link.client, there, window)?,
            server: End::new(provider, server, link.server, back, window)?,
        })
    }
}

/// Times round trips one after the other.
fn ping<Q: Queues>(end: &mut End<Q>, mut meter: Meter, stop: &Stop) -> Result<Round, BenchError> {
    loop {
        let from = meter.now();
        end.send(1)?;
        while end.poll()? == 0 {
            if stop.is_set() {
                return Err(BenchError::PeerGone { who: WHO });
            }
        }
        let to = meter.now();
        end.refill()?;
        if !meter.timed(from, to) {
            return Ok(meter.finish());
        }
    }
}

/// Keeps the window full and counts; at the end takes what is still under way.
fn stream<Q: Queues>(
    end: &mut End<Q>,
    window: u64,
    mut meter: Meter,
    stop: &Stop,
) -> Result<Round, BenchError> {
    let mut enough = false;
    loop {
        let under_way = end.sent() - end.received();
        if enough && under_way == 0 {
            return Ok(meter.finish());
        }
        if !enough {
            end.send(window - under_way)?;
        }
        let count = end.poll()?;
        if count > 0 {
            end.refill()?;
            enough = enough || !meter.counted(count);
        } else if stop.is_set() {
            return Err(BenchError::PeerGone { who: WHO });
        }
    }
}

/// Answers every request in the turn that brought it, until the client is done.
fn answer<Q: Queues>(end: &mut End<Q>, stop: &Stop) -> Result<(), BenchError> {
    loop {
        let count = end.poll()?;
        let owed = end.received() - end.sent();
        if owed > 0 {
            end.send(owed)?;
        }
        if count > 0 {
            end.refill()?;
        } else if owed == 0 && stop.is_set() {
            return Ok(());
        }
    }
}

pub(super) const WHO: &str = "raw";

#[cfg(test)]
mod tests {
    use rpcrdma_engine::fabric::Fabric;

    use super::*;
    use crate::meter::End as RoundEnd;

    fn raw(request_len: usize, reply_len: usize, window: u32) -> Option<Raw<Fabric>> {
        let cores = CorePair::choose(None).ok()?;
        let traffic = Traffic { request_len, reply_len, window };
        let any = "127.0.0.1:0".parse().expect("an address");
        Some(Raw::new(&Fabric::new(), any, cores, traffic, true).expect("the fabric has room"))
    }

    fn quota(count: u64) -> Quota {
        Quota { warm_up: 5, end: RoundEnd::Count(count) }
    }

    #[test]
    fn round_trips_are_timed_one_by_one_over_several_rounds() {
        let Some(mut raw) = raw(136, 120, 1) else { return };
        for _ in 0..3 {
            let round = raw.round(quota(200)).expect("the ping-pong runs");
            assert_eq!((round.completed, round.latency.count()), (200, 200));
        }
        assert_eq!(raw.client.received(), 3 * 205);
    }

    #[test]
    fn messages_too_long_to_be_inline_come_through_whole() {
        let Some(mut raw) = raw(5000, 70_000, 1) else { return };
        raw.round(quota(300)).expect("every byte of a compared message is right");
    }

    #[test]
    fn a_window_is_kept_full_and_emptied_at_the_end_of_a_round() {
        for window in [2, 32, 100] {
            let Some(mut raw) = raw(136, 5000, window) else { return };
            for _ in 0..3 {
                let round = raw.round(quota(2000)).expect("the stream runs");
                assert!(round.completed >= 2000, "{round:?}");
                assert_eq!(raw.client.received(), raw.client.sent());
                assert_eq!(raw.server.sent(), raw.client.sent());
            }
        }
    }

    #[test]
    fn a_message_with_a_wrong_number_is_noticed() {
        let Some(mut raw) = raw(136, 120, 1) else { return };
        raw.server.expect_number(7);
        let result = raw.round(quota(10));
        assert!(matches!(result, Err(BenchError::WrongBytes { number: 7, .. })), "{result:?}");
    }
}
