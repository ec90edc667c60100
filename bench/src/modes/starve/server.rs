//! The server of `starve`: most calls are answered at once, some are slow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rpcrdma::{Answer, Call, Clock, Handler, Reply, Ticket, Turn};
use strum::IntoStaticStr;

use crate::stats::Dice;

#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[repr(u8)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Slow {
    /// There are none: every call is answered at once.
    #[strum(serialize = "even")]
    None = 0,
    /// They are put off by a ticket, and answered when they are due.
    Tickets = 1,
    /// The handler blocks the shard, and all calls wait.
    Blocking = 2,
}

/// What the server does with slow calls, set by the client's thread.
#[derive(Debug, Clone, Default)]
pub struct Orders(Arc<AtomicU8>);

impl Orders {
    pub fn set(&self, slow: Slow) {
        self.0.store(slow as u8, Ordering::Relaxed);
    }

    fn is(&self, slow: Slow) -> bool {
        self.0.load(Ordering::Relaxed) == slow as u8
    }
}

pub(super) struct SlowServer {
    orders: Orders,
    dice: Dice,
    /// The share of slow calls, and how long each takes.
    share: f64,
    time_ns: u64,
    clock: Clock,
    /// Slow calls in the order in which they are due: all take equally long.
    put_off: VecDeque<(u64, Ticket)>,
    pub slow: u64,
}

impl SlowServer {
    /// For at most `calls_max` open calls.
    pub fn new(
        orders: Orders,
        seed: u64,
        share: f64,
        time_ns: u64,
        calls_max: usize,
    ) -> SlowServer {
        let (dice, clock) = (Dice::new(seed), Clock::new());
        let put_off = VecDeque::with_capacity(calls_max);
        SlowServer { orders, dice, share, time_ns, clock, put_off, slow: 0 }
    }

    pub fn is_busy(&self) -> bool {
        !self.put_off.is_empty()
    }
}

impl Handler for SlowServer {
    #[inline]
    fn on_call<'a>(&mut self, _call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        if self.orders.is(Slow::None) || self.dice.share() > self.share {
            reply.payload().put_fixed(&RESULT);
            return reply.send();
        }
        self.slow += 1;
        let due = self.clock.now() + self.time_ns;
        if self.orders.is(Slow::Tickets) {
            let (answer, ticket) = reply.defer();
            self.put_off.push_back((due, ticket));
            return answer;
        }
        while self.clock.now() < due {
            std::hint::spin_loop();
        }
        reply.payload().put_fixed(&RESULT);
        reply.send()
    }

    #[inline]
    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while self.put_off.front().is_some_and(|(due, _)| *due <= turn.now()) {
            let Some((due, ticket)) = self.put_off.pop_front() else { return };
            let resumed = turn.resume(ticket, |mut reply| {
                reply.payload().put_fixed(&RESULT);
                reply.send()
            });
            if let Err(ticket) = resumed {
                // No slot at this moment; a connection that has ended needs no answer.
                if turn.is_open(&ticket) {
                    self.put_off.push_front((due, ticket));
                    return;
                }
            }
        }
    }
}

pub(super) const RESULT: [u8; 64] = [7; 64];
