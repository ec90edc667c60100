//! Credits and receives: how many transmissions may be sent, and how many Receives are reserved.
//!
//! ```text
//!   own calls    CreditLedger  per connection and direction: granted by the peer, a transmission costs one
//!                ReplyReserve  per shard: receives that the replies may use
//!   peer's calls Inflow        per connection and direction: granted to the peer, taken by the peer
//!                GrantPool     per shard: receives that the calls may use
//! ```
//! A call holds a credit from its first transmission until its reply, or the report of its failure,
//! has arrived (wire.md E6). The sum of all grants never exceeds the receives reserved for calls,
//! so a peer that keeps to its grant never meets an empty receive queue.

use thiserror::Error;

/// More was requested than is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("need {need}, have {have}")]
pub struct Shortage {
    /// The requested number.
    pub need: u32,
    /// The available number.
    pub have: u32,
}

/// The credits of our own calls on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreditLedger {
    requested: u32,
    granted: u32,
    in_flight: u32,
}

impl CreditLedger {
    /// One credit until the first grant arrives (RFC 8166 3.3.3); at least one is requested.
    #[must_use]
    pub fn new(requested: u32) -> Self {
        Self { requested: requested.max(1), granted: 1, in_flight: 0 }
    }

    /// Takes over the grant in a message from the peer. Zero counts as one (wire.md B11).
    #[inline]
    pub fn on_grant(&mut self, credit: u32) {
        self.granted = credit.max(1);
    }

    /// Takes the credits of a call's `transmissions`, all of them or none.
    ///
    /// # Errors
    /// [`Shortage`] with the number available.
    #[inline]
    pub fn take(&mut self, transmissions: u32) -> Result<(), Shortage> {
        let have = self.available();
        if transmissions > have {
            return Err(Shortage { need: transmissions, have });
        }
        self.in_flight += transmissions;
        Ok(())
    }

    /// Returns the credits of a call whose reply or failure has arrived.
    #[inline]
    pub fn give_back(&mut self, transmissions: u32) {
        debug_assert!(transmissions <= self.in_flight, "more credits come back than were taken");
        lower(&mut self.in_flight, transmissions);
    }

    /// Transmissions that may be sent now.
    #[inline]
    #[must_use]
    pub fn available(&self) -> u32 {
        self.limit().saturating_sub(self.in_flight)
    }

    /// The most transmissions that may be outstanding: `min(requested, granted)` (RFC 8166 3.3.1).
    #[inline]
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.requested.min(self.granted)
    }

    /// The number that the header of a call requests.
    #[inline]
    #[must_use]
    pub fn requested(&self) -> u32 {
        self.requested
    }

    /// Transmissions whose reply has not arrived.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

/// A peer sent more transmissions than it was ever granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{outstanding} transmissions outstanding; {granted} granted")]
pub struct Overstep {
    /// Unanswered transmissions, including the offending ones.
    pub outstanding: u32,
    /// The highest grant that the peer knows.
    pub granted: u32,
}

/// The credits that the peer's calls hold on one connection.
///
/// A grant only grows while the connection lives: the peer may still be sending under the largest
/// grant that it has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inflow {
    granted: u32,
    wanted: u32,
    max: u32,
    outstanding: u32,
}

impl Inflow {
    /// The floor of one credit from the pool, growing up to `max`.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { granted: 1, wanted: 1, max: max.max(1), outstanding: 0 }
    }

    /// Counts the transmissions of a call as they arrive, or as its first transmission announces
    /// them.
    ///
    /// # Errors
    /// [`Overstep`] if the peer has exceeded its grant; nothing is counted then.
    #[inline]
    pub fn on_call(&mut self, transmissions: u32) -> Result<(), Overstep> {
        let Self { granted, outstanding, .. } = *self;
        if transmissions > granted - outstanding {
            let outstanding = outstanding.saturating_add(transmissions);
            return Err(Overstep { outstanding, granted });
        }
        self.outstanding += transmissions;
        Ok(())
    }

    /// As [`Inflow::on_call`] for one transmission that requests `credit`. The grant grows if it
    /// can.
    ///
    /// # Errors
    /// As there: nothing is counted, and nothing requested.
    #[inline(always)]
    pub fn admit(&mut self, credit: u32, pool: &mut GrantPool) -> Result<(), Overstep> {
        self.on_call(1)?;
        self.on_request(credit);
        self.grow(pool);
        Ok(())
    }

    /// A call of so many transmissions is answered: the peer may reuse its credits, and the grant
    /// grows if it can.
    #[inline(always)]
    pub fn release(&mut self, transmissions: u32, pool: &mut GrantPool) {
        self.on_answer(transmissions);
        self.grow(pool);
    }

    /// Records how many credits the peer requests; the own maximum limits the grant.
    #[inline]
    pub fn on_request(&mut self, credit: u32) {
        self.wanted = credit.min(self.max);
    }

    /// A call of so many transmissions is answered: the peer may reuse its credits.
    #[inline]
    pub fn on_answer(&mut self, transmissions: u32) {
        debug_assert!(transmissions <= self.outstanding, "a call was answered twice");
        lower(&mut self.outstanding, transmissions);
    }

    /// Raises the grant towards the peer's request, as far as the pool has receives.
    #[inline(always)]
    pub fn grow(&mut self, pool: &mut GrantPool) {
        // Many connections that want more than there is do not ask for each message.
        if self.wanted > self.granted && pool.free() > 0 {
            self.granted += pool.take_up_to(self.wanted - self.granted);
        }
    }

    /// What the header of a reply grants.
    #[inline]
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// Transmissions of calls that are not answered.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

/// The receives that a shard keeps posted for the calls of all its peers.
///
/// Every connection has a floor of one; the rest is first come, first served. The floors of future
/// connections stay reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantPool {
    receives: u32,
    connections_max: u32,
    connections: u32,
    granted: u32,
}

impl GrantPool {
    /// A pool of `receives`, serving at most `connections_max` connections; the latter is lowered
    /// to the former, since each connection needs a receive of its own.
    #[must_use]
    pub fn new(receives: u32, connections_max: u32) -> Self {
        Self {
            receives,
            connections_max: connections_max.min(receives),
            connections: 0,
            granted: 0,
        }
    }

    /// Gives a new connection its floor of one.
    ///
    /// # Errors
    /// [`Shortage`] if there are as many connections as the pool serves.
    pub fn open(&mut self) -> Result<(), Shortage> {
        if self.connections == self.connections_max {
            return Err(Shortage { need: 1, have: 0 });
        }
        self.connections += 1;
        self.granted += 1;
        self.check();
        Ok(())
    }

    /// Takes back a closed connection's grant, including its floor.
    pub fn close(&mut self, granted: u32) {
        assert!(self.connections > 0 && granted > 0, "only an open connection is closed");
        assert!(granted <= self.granted, "a connection returns what it was granted");
        self.connections -= 1;
        self.granted -= granted;
        self.check();
    }

    /// Takes up to `wanted` more for an open connection.
    #[inline(never)]
    fn take_up_to(&mut self, wanted: u32) -> u32 {
        let given = wanted.min(self.free());
        self.granted += given;
        self.check();
        given
    }

    /// Receives that may still be granted beyond the floors.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.receives - self.granted - (self.connections_max - self.connections)
    }

    /// The sum of all grants.
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// The receives kept for calls.
    #[must_use]
    pub fn receives(&self) -> u32 {
        self.receives
    }

    fn check(&self) {
        let floors = self.connections_max - self.connections;
        assert!(self.granted + floors <= self.receives, "more granted than receives are kept");
        assert!(self.granted >= self.connections, "every connection has its floor");
    }
}

/// The receives that a shard keeps posted for the replies to its own calls (wire.md E8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyReserve {
    receives: u32,
    reserved: u32,
}

impl ReplyReserve {
    /// A reserve of `receives`, all of them free.
    #[must_use]
    pub fn new(receives: u32) -> Self {
        Self { receives, reserved: 0 }
    }

    /// Reserves receives for the reply to a call.
    ///
    /// # Errors
    /// [`Shortage`] with the number that is free.
    #[inline]
    pub fn reserve(&mut self, transmissions: u32) -> Result<(), Shortage> {
        let have = self.free();
        if transmissions > have {
            return Err(Shortage { need: transmissions, have });
        }
        self.reserved += transmissions;
        Ok(())
    }

    /// Returns receives that a reply did not use, or that are posted again.
    #[inline]
    pub fn release(&mut self, transmissions: u32) {
        debug_assert!(transmissions <= self.reserved, "more receives return than were reserved");
        lower(&mut self.reserved, transmissions);
    }

    /// Receives that are not reserved.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        self.receives - self.reserved
    }

    /// Receives that are reserved.
    #[inline]
    #[must_use]
    pub fn reserved(&self) -> u32 {
        self.reserved
    }
}

/// Lowers a count, to 0 at least: as `saturating_sub`, in two instructions.
#[inline(always)]
pub fn lower(count: &mut u32, by: u32) {
    let (rest, is_below) = count.overflowing_sub(by);
    *count = rest;
    if is_below {
        clear(count);
    }
}

#[cold]
#[inline(never)]
fn clear(count: &mut u32) {
    *count = 0;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn one_credit_until_the_first_grant() {
        let mut ledger = CreditLedger::new(32);
        assert_eq!(ledger.available(), 1);
        assert_eq!(ledger.take(2), Err(Shortage { need: 2, have: 1 }));
        ledger.take(1).expect("one is there");
        assert_eq!(ledger.take(1), Err(Shortage { need: 1, have: 0 }));
        ledger.on_grant(8);
        assert_eq!((ledger.available(), ledger.in_flight()), (7, 1));
    }

    #[test]
    fn a_grant_of_zero_is_one_and_none_exceeds_the_request() {
        let mut ledger = CreditLedger::new(4);
        ledger.on_grant(0);
        assert_eq!(ledger.limit(), 1);
        ledger.on_grant(100);
        assert_eq!(ledger.limit(), 4);
        ledger.take(4).expect("exactly the limit");
        assert_eq!(ledger.take(1), Err(Shortage { need: 1, have: 0 }));
    }

    #[test]
    fn a_lower_grant_does_not_affect_outstanding_calls() {
        let mut ledger = CreditLedger::new(8);
        ledger.on_grant(8);
        ledger.take(6).expect("granted");
        ledger.on_grant(2);
        assert_eq!(ledger.available(), 0);
        ledger.give_back(5);
        assert_eq!(ledger.available(), 1);
    }

    #[test]
    fn a_peer_may_use_its_grant_and_not_one_more() {
        let mut pool = GrantPool::new(10, 2);
        pool.open().expect("first");
        let mut inflow = Inflow::new(4);
        inflow.on_request(100);
        inflow.grow(&mut pool);
        assert_eq!(inflow.granted(), 4, "no more than the own maximum");
        inflow.on_call(3).expect("granted");
        let overstep = Overstep { outstanding: 5, granted: 4 };
        assert_eq!(inflow.on_call(2), Err(overstep));
        assert_eq!(inflow.outstanding(), 3, "the offender is not counted");
        inflow.on_call(1).expect("the last one");
        inflow.on_answer(4);
        inflow.on_call(4).expect("all of them again");
        assert_eq!(inflow.on_call(u32::MAX), Err(Overstep { outstanding: u32::MAX, granted: 4 }));
    }

    #[test]
    fn the_floor_of_later_connections_is_never_given_away() {
        let mut pool = GrantPool::new(5, 3);
        pool.open().expect("first");
        let mut greedy = Inflow::new(64);
        greedy.on_request(64);
        greedy.grow(&mut pool);
        assert_eq!((greedy.granted(), pool.free()), (3, 0));
        pool.open().expect("second has its floor");
        pool.open().expect("third has its floor");
        assert_eq!(pool.open(), Err(Shortage { need: 1, have: 0 }));
        pool.close(greedy.granted());
        assert_eq!(pool.free(), 2, "what it had beyond its floor");
    }

    #[test]
    fn there_are_no_more_connections_than_receives() {
        let mut pool = GrantPool::new(1, 100);
        pool.open().expect("first");
        assert_eq!(pool.open(), Err(Shortage { need: 1, have: 0 }));
    }

    #[test]
    fn reply_receives_are_reserved_and_returned() {
        let mut reserve = ReplyReserve::new(4);
        reserve.reserve(3).expect("there");
        assert_eq!(reserve.reserve(2), Err(Shortage { need: 2, have: 1 }));
        reserve.release(2);
        reserve.reserve(3).expect("returned");
        assert_eq!((reserve.free(), reserve.reserved()), (0, 4));
    }

    #[derive(Debug, Clone)]
    enum Op {
        Open(u32),
        Ask(usize, u32),
        Close(usize),
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (1u32..20).prop_map(Op::Open),
            (0usize..8, 0u32..30).prop_map(|(index, credit)| Op::Ask(index, credit)),
            (0usize..8).prop_map(Op::Close),
        ]
    }

    proptest! {
        #[test]
        fn the_sum_of_all_grants_stays_within_the_receives(
            receives in 0u32..40,
            connections_max in 0u32..10,
            ops in proptest::collection::vec(any_op(), 0..60),
        ) {
            let mut pool = GrantPool::new(receives, connections_max);
            let mut open: Vec<(Inflow, u32)> = Vec::new();
            for op in ops {
                match op {
                    Op::Open(max) => {
                        let room = (open.len() as u32) < connections_max.min(receives);
                        prop_assert_eq!(pool.open().is_ok(), room);
                        if room {
                            open.push((Inflow::new(max), max));
                        }
                    }
                    Op::Ask(index, credit) if index < open.len() => {
                        let before = open[index].0.granted();
                        open[index].0.on_request(credit);
                        open[index].0.grow(&mut pool);
                        let (inflow, max) = &open[index];
                        prop_assert!(inflow.granted() >= before, "a grant never shrinks");
                        prop_assert!(inflow.granted() <= before.max(credit).min(*max));
                    }
                    Op::Close(index) if index < open.len() => {
                        let (inflow, _) = open.swap_remove(index);
                        pool.close(inflow.granted());
                    }
                    Op::Ask(..) | Op::Close(_) => {}
                }
                let sum: u32 = open.iter().map(|(inflow, _)| inflow.granted()).sum();
                prop_assert_eq!(sum, pool.granted());
                prop_assert!(sum <= receives);
                prop_assert!(open.iter().all(|(inflow, _)| inflow.granted() >= 1));
            }
        }
    }
}
