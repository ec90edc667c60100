//! The reply to a call: written into registered memory, sent once, now or later.

use core::marker::PhantomData;

use rpcrdma_proto::{Offer, ReplyDemand, ReplyTo, ShortSend};

use super::ticket::Ticket;
use crate::error::CallRefused;
use crate::message::payload::Payload;
use crate::message::saved_offer::SavedOffer;
use crate::shard::parts::Parts;
use crate::shard::peers::Peer;

/// The reply to one call. Consuming it is the only way to make the [`Answer`] that a handler owes.
#[must_use = "a call that gets no reply holds a credit of its peer for ever"]
pub struct Reply<'a> {
    payload: Payload<'a>,
    peer: &'a mut Peer,
    xid: u32,
    /// What is to be kept of the call beside that; `None` of a plain one.
    asked: Option<ReplyContext<'a>>,
}

/// What a call that is not plain has asked of its reply.
#[derive(Clone, Copy)]
pub(crate) struct ReplyContext<'a> {
    pub to: &'a ReplyTo,
    pub saved_offer: &'a SavedOffer,
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
        xid: u32,
        asked: Option<ReplyContext<'a>>,
    ) -> Reply<'a> {
        Reply { payload, peer, xid, asked }
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

    /// Sends the reply at the end of the turn. If it cannot be sent, the caller is told that there
    /// will be none: [`Reply::try_send`] says why.
    ///
    /// Cost: a header of a few words in front of the payload; no copy.
    #[inline]
    pub fn send(mut self) -> Answer<'a> {
        if self.send_short() {
            return self.sent();
        }
        match self.send_planned() {
            Ok(()) => self.answered(),
            Err(_) => self.refuse(),
        }
    }

    /// As [`Reply::send`], but gives the reply back if it cannot be sent, to be refused or
    /// deferred.
    ///
    /// # Errors
    /// [`CallRefused`] says what is in the way.
    #[inline]
    pub fn try_send(mut self) -> Result<Answer<'a>, (Reply<'a>, CallRefused)> {
        if self.send_short() {
            return Ok(self.sent());
        }
        match self.send_planned() {
            Ok(()) => Ok(self.answered()),
            Err(why) => Err((self, why)),
        }
    }

    /// Keeps the right to answer for later, on this thread or another.
    pub fn defer(self) -> (Answer<'a>, Ticket) {
        let offer = self.asked.map_or(SavedOffer::none(), |asked| asked.saved_offer.clone());
        let ticket = Ticket::new(self.peer.id, self.payload.home(), self.to(), offer);
        (Answer(PhantomData), ticket)
    }

    /// Tells the caller that there will be no reply (RDMA_ERROR): it learns nothing else, least of
    /// all whether the call was executed. What was written is given up, so that there is a send slot
    /// for this.
    pub fn refuse(mut self) -> Answer<'a> {
        self.payload.abandon();
        let to = self.to();
        let parts = self.payload.parts();
        parts.stats.refusals_out.add(1);
        parts.refuse(self.peer, &to);
        self.answered()
    }

    /// Which call it answers, and what it may use for that.
    #[inline]
    fn to(&self) -> ReplyTo {
        self.asked.map_or(ReplyTo::plain(self.xid), |asked| *asked.to)
    }

    /// Sends a short message; false if the reply is none.
    #[inline(always)]
    fn send_short(&mut self) -> bool {
        if self.asked.is_some_and(|asked| !asked.saved_offer.is_empty()) {
            return self.send_single_item();
        }
        let to = self.to();
        let short = ShortSend::Reply { to: &to, item: None };
        self.payload.is_plain() && self.payload.send_short(self.peer, short)
    }

    /// Sends a reply that brings a single item to a call that wants one; false if it is not that.
    #[inline(never)]
    fn send_single_item(&mut self) -> bool {
        let Some(ReplyContext { to, saved_offer }) = self.asked else { return false };
        let Some(direction) = saved_offer.direction() else { return false };
        let Some(item) = self.payload.single_item() else { return false };
        let short = ShortSend::Reply { to, item: Some((&item, direction)) };
        self.payload.send_short(self.peer, short)
    }

    /// The reply was sent as a short message: nothing is left to be given back.
    #[inline]
    fn sent(self) -> Answer<'a> {
        let Reply { payload, peer, .. } = self;
        core::mem::forget(payload);
        answered(peer)
    }

    #[inline]
    fn answered(self) -> Answer<'a> {
        answered(self.peer)
    }

    /// Sends what is not short.
    #[cold]
    fn send_planned(&mut self) -> Result<(), CallRefused> {
        let message = self.payload.assemble()?;
        let payload = self.payload.written();
        let (to, asked) = (self.to(), self.asked);
        let Parts { outbox, ledger, stats, .. } = self.payload.parts();
        let demand = ReplyDemand {
            payload,
            items: &outbox.items(message),
            offer: asked.map_or(Offer::None, |asked| asked.saved_offer.offer()),
            gather_max: outbox.gather_max(),
            copy_max: outbox.slots().payload_len() as u32,
        };
        let conn = &mut self.peer.conn;
        let laid_out = match conn.begin_reply(ledger, &to, &demand) {
            Ok(plan) => {
                outbox.lay_out(message, conn, plan).inspect_err(|_| conn.withdraw_reply(&to))
            }
            Err(why) => Err(CallRefused::Protocol(why)),
        };
        if let Err(why) = laid_out {
            return Err(self.payload.give_up(why));
        }
        stats.replies_out.add(1);
        stats.writes.add(outbox.messages().body(message).writes());
        outbox.enqueue(&mut self.peer.lane, self.peer.id.index, message);
        self.payload.submitted();
        Ok(())
    }
}

/// A call less that waits for its answer.
#[inline]
fn answered<'a>(peer: &mut Peer) -> Answer<'a> {
    peer.open_calls = peer.open_calls.saturating_sub(1);
    Answer(PhantomData)
}
