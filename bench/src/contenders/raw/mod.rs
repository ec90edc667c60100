//! The provider seam without RPC: a Send ping-pong, as far as a protocol could possibly get.
//!
//! The same provider, shared receive queues, inline sends, selective signalling, memory and message
//! lengths as the RPC of the same run; no headers are made or read, no credits counted, no calls
//! matched. What an RPC takes above this is the engine.

use rpcrdma::Address;
use rpcrdma::provider::{Provider, Queues};

use crate::call::Traffic;
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::pair::{self, Stop};
use crate::stats::{Contender, Meter, Quota, Round, Spent};

pub mod end;
mod link;

use end::{Lengths, RawEnd, WHO};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posting {
    Whatever,
    /// So many, for which both sides wait.
    Exactly(u32),
}

impl Posting {
    /// Sends that must be there before some are posted, and as many as are posted at most.
    fn bounds(self) -> (u64, u64) {
        match self {
            Posting::Whatever => (1, u64::MAX),
            Posting::Exactly(count) => (count.into(), count.into()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Posting::Whatever => WHO,
            Posting::Exactly(1) => "raw, by 1",
            Posting::Exactly(2) => "raw, by 2",
            Posting::Exactly(4) => "raw, by 4",
            Posting::Exactly(8) => "raw, by 8",
            Posting::Exactly(16) => "raw, by 16",
            Posting::Exactly(32) => "raw, by 32",
            Posting::Exactly(_) => "raw, in chains",
        }
    }
}

pub struct Raw<P: Provider> {
    cores: CorePair,
    window: u64,
    posting: Posting,
    timed: bool,
    client: RawEnd<P::Queues>,
    server: RawEnd<P::Queues>,
}

impl<P: Provider> Raw<P> {
    /// Sets both ends up and connects them. Round trips are timed when `timed` and only one is
    /// under way; else they are counted.
    pub fn new(
        provider: &P,
        at: Address,
        cores: CorePair,
        traffic: Traffic,
        posting: Posting,
        timed: bool,
    ) -> Result<Raw<P>, BenchError> {
        let window = traffic.window;
        let RawEnds { client, server } = RawEnds::connect(provider, at, traffic)?;
        let timed = timed && window == 1;
        Ok(Raw { cores, window: window.into(), posting, timed, client, server })
    }

    pub fn notes(&self) -> Vec<String> {
        vec![format!("raw: {}, {}", self.client.note(), self.server.note())]
    }
}

impl<P: Provider> Contender for Raw<P> {
    fn name(&self) -> &'static str {
        self.posting.name()
    }

    fn round(&mut self, quota: Quota) -> Result<Round, BenchError> {
        let Raw { cores, window, posting, timed, client, server } = self;
        let (window, posting, timed) = (*window, *posting, *timed);
        let outcome = pair::run(
            *cores,
            move |stop| {
                let meter = Meter::new(quota);
                if timed {
                    ping(client, meter, stop)
                } else {
                    stream(client, window, posting, meter, stop)
                }
            },
            move |stop| answer(server, posting, stop),
        )?;
        Ok(Round { preempted: outcome.preempted, ..outcome.client })
    }

    fn spent(&self) -> Vec<Spent> {
        let sides = [("client", &self.client), ("server", &self.server)];
        let spent = |(side, end): (_, &RawEnd<P::Queues>)| {
            Spent::new(self.name(), side, end.spent(), self.client.received())
        };
        sides.map(spent).to_vec()
    }
}

pub struct RawEnds<Q: Queues> {
    pub client: RawEnd<Q>,
    pub server: RawEnd<Q>,
}

impl<Q: Queues> RawEnds<Q> {
    /// Opens queues for both, connects them and gives each its memory.
    pub fn connect<P: Provider<Queues = Q>>(
        provider: &P,
        at: Address,
        traffic: Traffic,
    ) -> Result<RawEnds<Q>, BenchError> {
        let Traffic { request_len, reply_len, window } = traffic;
        assert!(window > 0, "a window of 0 would never send");
        let mut client = provider.open_queues(&end::attr(window))?;
        let mut server = provider.open_queues(&end::attr(window))?;
        let link = link::connect(provider, at, &mut client, &mut server)?;
        let there = Lengths { send: request_len, recv: reply_len };
        let back = Lengths { send: reply_len, recv: request_len };
        Ok(RawEnds {
            client: RawEnd::new(provider, client, link.client, there, window)?,
            server: RawEnd::new(provider, server, link.server, back, window)?,
        })
    }
}

fn ping<Q: Queues>(
    end: &mut RawEnd<Q>,
    mut meter: Meter,
    stop: &Stop,
) -> Result<Round, BenchError> {
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
    end: &mut RawEnd<Q>,
    window: u64,
    posting: Posting,
    mut meter: Meter,
    stop: &Stop,
) -> Result<Round, BenchError> {
    let (least, most) = posting.bounds();
    let mut enough = false;
    loop {
        let under_way = end.sent() - end.received();
        if enough && under_way == 0 {
            return Ok(meter.finish());
        }
        if !enough && window - under_way >= least {
            end.send(most.min(window - under_way))?;
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
fn answer<Q: Queues>(end: &mut RawEnd<Q>, posting: Posting, stop: &Stop) -> Result<(), BenchError> {
    let (least, most) = posting.bounds();
    loop {
        let count = end.poll()?;
        let owed = end.received() - end.sent();
        if owed >= least {
            end.send(most.min(owed))?;
        }
        if count > 0 {
            end.refill()?;
        } else if owed == 0 && stop.is_set() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma::fabric::Fabric;

    use super::*;
    use crate::stats::End as RoundEnd;

    fn raw(request_len: usize, reply_len: usize, window: u32) -> Option<Raw<Fabric>> {
        posting(request_len, reply_len, window, Posting::Whatever)
    }

    fn posting(
        request_len: usize,
        reply_len: usize,
        window: u32,
        posting: Posting,
    ) -> Option<Raw<Fabric>> {
        let cores = CorePair::choose(None).ok()?;
        let traffic = Traffic { request_len, reply_len, window };
        let any = "127.0.0.1:0".parse().expect("an address");
        let raw = Raw::new(&Fabric::new(), any, cores, traffic, posting, true);
        Some(raw.expect("the fabric has room"))
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
    fn sends_leave_in_chains_of_a_given_length() {
        for (window, count) in [(32, 16), (32, 1), (8, 8), (40, 16)] {
            let raw = posting(136, 120, window, Posting::Exactly(count));
            let Some(mut raw) = raw else { return };
            raw.round(quota(2000)).expect("the stream runs");
            for spent in raw.spent() {
                assert_eq!((spent.sends, spent.doorbells), (1.0, 1.0 / f64::from(count)));
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
