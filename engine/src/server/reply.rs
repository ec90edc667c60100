//! The reply to a call: built in registered memory, sent now or later, once.

use core::marker::PhantomData;

use rpcrdma_proto::{ReplyDemand, ReplyTo};

use super::ticket::{Directions, Ticket};
use crate::error::CallRefused;
use crate::payload::Payload;
use crate::shard::peers::Peer;

/// The reply to one call. Consuming it is the only way to make the [`Answer`] that a handler owes.
#[must_use = "a call that gets no reply holds a credit of its peer for ever"]
pub struct Reply<'a> {
    payload: Payload<'a>,
    peer: &'a mut Peer,
    to: ReplyTo,
    directions: &'a Directions,
    shard: u32,
}

/// Proof that a call was answered, deferred or refused. The lifetime keeps it from being returned
/// for another call.
#[derive(Debug)]
#[must_use = "a handler returns it"]
pub struct Answer<'a>(PhantomData<fn(&'a ()) -> &'a ()>);

impl<'a> Reply<'a> {
    #[inline]
    pub(crate) fn new(
        payload: Payload<'a>,
        peer: &'a mut Peer,
        to: ReplyTo,
        directions: &'a Directions,
        shard: u32,
    ) -> Reply<'a> {
        Reply { payload, peer, to, directions, shard }
    }

    /// The payload, to be written from behind transaction id and message type.
    #[inline]
    pub fn payload(&mut self) -> &mut Payload<'a> {
        &mut self.payload
    }

    /// Sends the reply at the end of the turn. If it cannot be sent, the caller is told that its
    /// call failed: [`Reply::try_send`] says why.
    ///
    /// Cost: a header of a few words in front of the payload; no copy.
    #[inline]
    pub fn send(self) -> Answer<'a> {
        match self.try_send() {
            Ok(answer) => answer,
            Err((reply, _)) => reply.refuse(),
        }
    }

    /// As [`Reply::send`], but gives the reply back if it cannot be sent, to be refused or
    /// deferred.
    ///
    /// # Errors
    /// [`CallRefused`] says what is in the way.
    #[inline]
    pub fn try_send(mut self) -> Result<Answer<'a>, (Reply<'a>, CallRefused)> {
        match self.lay_out() {
            Ok(()) => {
                let index = self.payload.index();
                let outbox = self.payload.outbox();
                outbox.stats.replies_out.add(1);
                outbox.enqueue(&mut self.peer.lane, self.peer.id.index, index);
                self.payload.submitted();
                Ok(self.answered())
            }
            Err(why) => Err((self, why)),
        }
    }

    /// Keeps the right to answer for later, on this thread or another.
    pub fn defer(self) -> (Answer<'a>, Ticket) {
        let ticket = Ticket::new(self.peer.id, self.shard, self.to, self.directions.clone());
        (Answer(PhantomData), ticket)
    }

    /// Tells the caller that its call failed (RDMA_ERROR).
    pub fn refuse(mut self) -> Answer<'a> {
        let outbox = self.payload.outbox();
        let report = self.peer.conn.refuse(&mut outbox.ledger, &self.to);
        outbox.report(self.peer, &report);
        self.answered()
    }

    fn answered(self) -> Answer<'a> {
        self.peer.open_calls = self.peer.open_calls.saturating_sub(1);
        Answer(PhantomData)
    }

    #[inline]
    fn lay_out(&mut self) -> Result<(), CallRefused> {
        if let Some(why) = self.payload.refused() {
            return Err(why);
        }
        let index = self.payload.index();
        let payload = self.payload.written();
        let is_plain = self.payload.is_plain() && self.directions.is_empty();
        let outbox = self.payload.outbox();
        let items = if is_plain { Default::default() } else { outbox.items(index) };
        let demand = ReplyDemand {
            payload,
            items: &items,
            rsd: self.directions.sets(),
            gather_max: outbox.gather_max,
        };
        let plan = self
            .peer
            .conn
            .begin_reply(&mut outbox.ledger, &self.to, &demand)
            .map_err(CallRefused::Protocol)?;
        outbox.lay_out(index, &self.peer.conn, plan)
    }
}
