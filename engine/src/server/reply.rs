//! The reply to a call: built in registered memory, sent now or later, once.

use core::marker::PhantomData;

use rpcrdma_proto::{ReplyDemand, ReplyTo};

use super::ticket::{KeptOffer, Ticket};
use crate::error::CallRefused;
use crate::payload::Payload;
use crate::shard::peers::Peer;

/// The reply to one call. Consuming it is the only way to make the [`Answer`] that a handler owes.
#[must_use = "a call that gets no reply holds a credit of its peer for ever"]
pub struct Reply<'a> {
    payload: Payload<'a>,
    peer: &'a mut Peer,
    to: ReplyTo,
    kept: &'a KeptOffer,
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
        kept: &'a KeptOffer,
        shard: u32,
    ) -> Reply<'a> {
        Reply { payload, peer, to, kept, shard }
    }

    /// The payload, to be written from behind transaction id and message type.
    #[inline]
    pub fn payload(&mut self) -> &mut Payload<'a> {
        &mut self.payload
    }

    /// Says of which operation of the call the results are that are placed from now on: that which
    /// began at `origin` in the unreduced XDR stream of the call. A caller of several operations
    /// says for each of them where its results are wanted (wire.md E23). Operations come in order; a
    /// call of one operation needs none of this.
    pub fn operation(&mut self, origin: u32) {
        self.payload.set_origin(origin);
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
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn try_send(mut self) -> Result<Answer<'a>, (Reply<'a>, CallRefused)> {
        let len = self.payload.written();
        if self.kept.is_empty()
            && let Some(outbox) = self.payload.plain()
            && let conn = &mut self.peer.conn
            && let Some(header) = conn.begin_plain_reply(&mut outbox.ledger, &self.to, len)
        {
            outbox.stats.replies_out.add(1);
            self.payload.send_plain(self.peer, &header);
            return Ok(self.answered());
        }
        if self.send_lone() {
            return Ok(self.answered());
        }
        match self.send_planned() {
            Ok(()) => Ok(self.answered()),
            Err(why) => Err((self, why)),
        }
    }

    /// Keeps the right to answer for later, on this thread or another.
    pub fn defer(self) -> (Answer<'a>, Ticket) {
        let ticket = Ticket::new(self.peer.id, self.shard, self.to, self.kept.clone());
        (Answer(PhantomData), ticket)
    }

    /// Tells the caller that its call failed (RDMA_ERROR). What was written is given up, so that
    /// there is a send slot for this.
    pub fn refuse(mut self) -> Answer<'a> {
        self.payload.abandon();
        let outbox = self.payload.outbox();
        let report = self.peer.conn.refuse(&mut outbox.ledger, &self.to);
        outbox.answer(self.peer, &report);
        self.answered()
    }

    #[inline]
    fn answered(self) -> Answer<'a> {
        self.peer.open_calls = self.peer.open_calls.saturating_sub(1);
        Answer(PhantomData)
    }

    /// Sends a reply that brings a lone item to a call that wants one; false if it is not that.
    #[inline(never)]
    fn send_lone(&mut self) -> bool {
        let Some(direction) = self.kept.direction() else { return false };
        let len = self.payload.written();
        let Some((outbox, item)) = self.payload.lone() else { return false };
        let (means, ledger) = (outbox.lone_means(), &mut outbox.ledger);
        let both = (&item, direction);
        let plan = self.peer.conn.begin_lone_reply(ledger, &self.to, len, both, means);
        let Some(plan) = plan else { return false };
        outbox.stats.replies_out.add(1);
        self.payload.send_lone(self.peer, &plan);
        true
    }

    /// Sends what is not plain.
    #[cold]
    fn send_planned(&mut self) -> Result<(), CallRefused> {
        let message = self.payload.assemble()?;
        let payload = self.payload.written();
        let outbox = self.payload.outbox();
        let demand = ReplyDemand {
            payload,
            items: &outbox.items(message),
            offer: self.kept.offer(),
            gather_max: outbox.gather_max,
            copy_max: outbox.send.payload_len() as u32,
        };
        let conn = &mut self.peer.conn;
        let laid_out = match conn.begin_reply(&mut outbox.ledger, &self.to, &demand) {
            Ok(plan) => {
                outbox.lay_out(message, conn, plan).inspect_err(|_| conn.withdraw_reply(&self.to))
            }
            Err(why) => Err(CallRefused::Protocol(why)),
        };
        if let Err(why) = laid_out {
            return Err(self.payload.give_up(why));
        }
        outbox.stats.replies_out.add(1);
        outbox.stats.writes.add(outbox.messages.body(message).writes());
        outbox.enqueue(&mut self.peer.lane, self.peer.id.index, message);
        self.payload.submitted();
        Ok(())
    }
}
