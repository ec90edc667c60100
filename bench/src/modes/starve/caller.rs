//! The clients of `starve`: each asks for more than the server grants.

use rpcrdma::onc::RpcPrefix;
use rpcrdma::{CallRefused, Client, Clock, ConnectionId, Provider};

use super::server::RESULT;
use crate::error::BenchError;
use crate::stats::Latency;

pub(super) struct StarvedClient<P: Provider> {
    client: Client<P>,
    connections: Vec<Connection>,
    ledger: Ledger,
}

struct Connection {
    peer: ConnectionId,
    under_way: u32,
    /// Since when its next call waits for a credit.
    waiting_since: Option<u64>,
}

/// Which calls are under way: each is answered once.
#[derive(Debug)]
pub(super) struct Ledger {
    slots: Vec<Slot>,
    free: Vec<u32>,
    sent: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The call that is under way here, counted from 1; 0 is none.
    number: u32,
    began: u64,
    connection: u32,
}

#[derive(Debug, Clone, Default)]
pub struct CallTally {
    pub answered: u64,
    /// Completions of calls that were not under way.
    pub twice: u64,
    pub failed: u64,
    /// From the call to its completion.
    pub latency: Latency,
    /// How long calls waited for a credit before they could be made.
    pub stalls: Latency,
}

impl Ledger {
    fn new(calls_max: u32) -> Ledger {
        let slots = vec![Slot::default(); calls_max as usize];
        Ledger { slots, free: (0..calls_max).rev().collect(), sent: 0 }
    }

    /// Writes a call down; its cookie.
    fn begin(&mut self, connection: u32, now: u64) -> Option<u64> {
        let index = self.free.pop()?;
        self.sent += 1;
        // Never 0, and another one for every call of a slot.
        let number = (self.sent as u32).max(1);
        self.slots[index as usize] = Slot { number, began: now, connection };
        Some(u64::from(number) << 32 | u64::from(index))
    }

    /// Crosses a call out: when it began, and its connection. `None` if it is not under way.
    fn end(&mut self, cookie: u64) -> Option<(u64, u32)> {
        let (index, number) = (cookie as u32, (cookie >> 32) as u32);
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.number == number)?;
        let Slot { began, connection, .. } = std::mem::take(slot);
        self.free.push(index);
        Some((began, connection))
    }

    fn open(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }

    fn open_before(&self, time: u64) -> bool {
        self.slots.iter().any(|slot| slot.number != 0 && slot.began < time)
    }
}

impl<P: Provider> StarvedClient<P> {
    /// A client whose connections are made, each of which may have so many calls under way.
    pub fn new(client: Client<P>, peers: &[ConnectionId], calls_each: u32) -> StarvedClient<P> {
        let connection =
            |peer: &ConnectionId| Connection { peer: *peer, under_way: 0, waiting_since: None };
        let ledger = Ledger::new(peers.len() as u32 * calls_each);
        StarvedClient { client, connections: peers.iter().map(connection).collect(), ledger }
    }

    /// Makes as many calls as credits allow, and takes what has come.
    pub fn turn(
        &mut self,
        clock: &Clock,
        each: u32,
        tally: &mut CallTally,
    ) -> Result<(), BenchError> {
        let now = clock.now();
        for index in 0..self.connections.len() {
            while self.connections[index].under_way < each && self.call(index, now, tally)? {}
        }
        self.poll(clock, tally);
        Ok(())
    }

    pub fn poll(&mut self, clock: &Clock, tally: &mut CallTally) {
        let StarvedClient { client, connections, ledger } = self;
        client.poll(clock.now(), |done| {
            let Some((began, connection)) = ledger.end(done.cookie()) else {
                tally.twice += 1;
                return;
            };
            connections[connection as usize].under_way -= 1;
            let is_right = done.result().is_ok_and(|reply| {
                reply.contiguous().and_then(|bytes| bytes.get(PREFIX_LEN..)) == Some(&RESULT[..])
            });
            if is_right {
                tally.answered += 1;
                tally.latency.record(clock.now().saturating_sub(began));
            } else {
                tally.failed += 1;
            }
        });
    }

    /// Makes one call; false if there is no credit for it now.
    fn call(&mut self, index: usize, now: u64, tally: &mut CallTally) -> Result<bool, BenchError> {
        let StarvedClient { client, connections, ledger } = self;
        let connection = &mut connections[index];
        if client.turn(now).credits(connection.peer) == 0 {
            connection.waiting_since.get_or_insert(now);
            return Ok(false);
        }
        let Some(cookie) = ledger.begin(index as u32, now) else { return Ok(false) };
        let sent = client.call(connection.peer, cookie).and_then(|mut call| {
            call.payload().put_fixed(&RESULT);
            call.reply_payload_max(REPLY_MAX);
            call.submit()
        });
        match sent {
            Ok(()) => {
                connection.under_way += 1;
                if let Some(since) = connection.waiting_since.take() {
                    tally.stalls.record(now.saturating_sub(since));
                }
                Ok(true)
            }
            Err(why) => {
                ledger.end(cookie);
                match why {
                    // Not now: a slot or a credit is missing, and replies bring them back.
                    CallRefused::Busy | CallRefused::Protocol(_) => {
                        connection.waiting_since.get_or_insert(now);
                        Ok(false)
                    }
                    why => Err(BenchError::CallFailed {
                        who: WHO,
                        number: ledger.sent,
                        reason: why.to_string(),
                    }),
                }
            }
        }
    }

    pub fn open(&self) -> u64 {
        self.ledger.open()
    }

    /// Whether calls are under way that began before this time.
    pub fn has_open_before(&self, time: u64) -> bool {
        self.ledger.open_before(time)
    }

    pub fn forget_waiting(&mut self) {
        self.connections.iter_mut().for_each(|connection| connection.waiting_since = None);
    }

    pub fn closed(&self) -> u64 {
        self.client.handle().stats().connections_closed
    }
}

const WHO: &str = "starve";
/// Transaction id and message type, which the engine writes.
const PREFIX_LEN: usize = RpcPrefix::LEN;
const REPLY_MAX: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_answered_twice_is_noticed() {
        let mut ledger = Ledger::new(4);
        let cookies: Vec<u64> =
            (0..4).filter_map(|connection| ledger.begin(connection, 10)).collect();
        assert_eq!((cookies.len(), ledger.begin(0, 10)), (4, None));
        assert_eq!(ledger.end(cookies[2]), Some((10, 2)));
        assert_eq!(ledger.end(cookies[2]), None);
        let again = ledger.begin(3, 20).expect("a slot is free");
        assert_eq!(ledger.end(cookies[2]), None, "the slot is another call's");
        assert_eq!((ledger.end(again), ledger.open()), (Some((20, 3)), 3));
        assert_eq!(ledger.end(u64::MAX), None);
    }

    #[test]
    fn a_call_that_is_never_answered_stays_open() {
        let mut ledger = Ledger::new(2);
        let old = ledger.begin(0, 10).expect("a slot is free");
        ledger.begin(1, 30);
        assert!(ledger.open_before(20) && !ledger.open_before(10));
        ledger.end(old);
        assert!(!ledger.open_before(20) && ledger.open() == 1);
    }
}
