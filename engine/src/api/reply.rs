//! The reply to a call: written into registered memory, sent once, now or later.

use core::marker::PhantomData;

use rpcrdma_proto::{Offer, ReplyTo, ShortSend};

use crate::api::payload::Payload;
use crate::error::CallRefused;
use crate::handle::ticket::Ticket;
use crate::message::saved_offer::SavedOffer;
use crate::state::parts::Parts;
use crate::state::peers::Peer;
use crate::stats::latency::ProcedureKey;
use crate::stats::sampling::NO_TIMER;

/// The reply to one call. Consuming it is the only way to create the [`Answer`] of a handler.
///
/// ```
/// use rpcrdma::{Answer, Call, Reply};
///
/// fn on_call<'a>(call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
///     let Ok(number) = call.reader().u32() else {
///         return reply.refuse(); // the caller gets an error
///     };
///     reply.payload().put_u32(number + 1);
///     reply.send()
/// }
/// ```
#[must_use = "a call that gets no reply holds a credit of its peer for ever"]
pub struct Reply<'a> {
    payload: Payload<'a>,
    peer: &'a mut Peer,
    xid: u32,
    /// The rest of the call's context; `None` for a plain call.
    asked: Option<&'a ReplyContext<'a>>,
}

/// The reply context of a call that is not plain.
pub(crate) struct ReplyContext<'a> {
    pub to: &'a ReplyTo,
    /// What the call offers for its reply, if that is anything.
    pub saved_offer: Option<&'a SavedOffer>,
    /// Its timer, if it is timed.
    pub timer: u32,
}

impl ReplyContext<'_> {
    /// Whether a plain reply is as that to a plain call: the call is one transmission, and offers
    /// nothing.
    #[inline]
    fn is_single(&self) -> bool {
        self.saved_offer.is_none() && self.to.credits == 1 && self.to.handle.is_none()
    }
}

/// Proof that a call was answered, deferred or rejected. The lifetime prevents its use for another
/// call.
#[derive(Debug)]
#[must_use = "a handler returns it"]
pub struct Answer<'a>(PhantomData<fn(&'a ()) -> &'a ()>);

impl<'a> Reply<'a> {
    #[inline]
    pub(crate) fn new(
        payload: Payload<'a>,
        peer: &'a mut Peer,
        xid: u32,
        asked: Option<&'a ReplyContext<'a>>,
    ) -> Reply<'a> {
        Reply { payload, peer, xid, asked }
    }

    /// The payload, written from behind transaction id and message type.
    #[inline]
    pub fn payload(&mut self) -> &mut Payload<'a> {
        &mut self.payload
    }

    /// States the procedure of the call.
    #[inline]
    pub(crate) fn name(&mut self, key: impl FnOnce() -> ProcedureKey) {
        let timer = self.timer();
        self.payload.parts().sampling.name_service(timer, key);
    }

    /// Sets the operation whose results are placed from now on: the one that begins at `origin` in
    /// the unreduced XDR stream of the call. A caller of several operations states result buffers
    /// for each of them (wire.md E23). Operations come in order. A call of one operation does not
    /// need this.
    pub fn operation(&mut self, origin: u32) {
        self.payload.outbox().set_origin(origin);
    }

    /// Sends the reply at the end of the turn. If it cannot be sent, the caller gets an RDMA_ERROR;
    /// [`Reply::try_send`] returns the reason.
    ///
    /// Cost: a header of a few words in front of the payload; no copy.
    #[inline]
    pub fn send(mut self) -> Answer<'a> {
        if self.send_short() {
            return self.sent();
        }
        // Field by field: what is moved out of memory for this has no padding to carry.
        let Reply { payload, peer, xid, asked } = self;
        Reply { payload, peer, xid, asked }.send_or_refuse()
    }

    /// As [`Reply::send`], but returns the reply if it cannot be sent, so that it can be rejected
    /// or deferred.
    ///
    /// # Errors
    /// [`CallRefused`] states the reason.
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

    /// Keeps the right to answer later, on this thread or another.
    pub fn defer(self) -> (Answer<'a>, Ticket) {
        let offer = self.asked.and_then(|asked| asked.saved_offer.cloned());
        let offer = offer.unwrap_or(SavedOffer::none());
        let dropped = self.payload.dropped_tickets();
        let ticket = Ticket::new(self.peer.id, dropped, self.to(), self.timer(), offer);
        (Answer(PhantomData), ticket)
    }

    /// Rejects the call with RDMA_ERROR: the caller learns that there will be no reply, but not
    /// whether the call was executed. Discards the payload, which frees a send slot for the error.
    pub fn refuse(mut self) -> Answer<'a> {
        self.payload.parts().stats.refusals_handler.add(1);
        self.peer.totals.counted.refusals_handler += 1;
        self.reject()
    }

    /// Sends a reply that is not a short message. Takes it by value: that of the short way stays in
    /// registers.
    #[cold]
    fn send_or_refuse(mut self) -> Answer<'a> {
        if self.send_planned().is_ok() {
            return self.answered();
        }
        self.payload.parts().stats.refusals_unsent.add(1);
        self.peer.totals.counted.refusals_unsent += 1;
        self.reject()
    }

    fn reject(mut self) -> Answer<'a> {
        self.payload.outbox().abandon();
        let to = self.to();
        let parts = self.payload.parts();
        parts.stats.refusals_sent.add(1);
        self.peer.totals.counted.refusals_sent += 1;
        parts.refuse(self.peer, &to);
        self.answered()
    }

    /// The call to answer, and the resources for it.
    #[inline]
    fn to(&self) -> ReplyTo {
        self.asked.map_or(ReplyTo::plain(self.xid), |asked| *asked.to)
    }

    #[inline]
    fn timer(&self) -> u32 {
        self.asked.map_or(NO_TIMER, |asked| asked.timer)
    }

    /// Sends a short message; false if the reply is not one.
    #[inline(always)]
    fn send_short(&mut self) -> bool {
        let parts = self.payload.parts();
        let is_sent = match self.asked {
            Some(asked) if !asked.is_single() => send_asked(parts, self.peer, asked),
            _ => send_plain(parts, self.peer, &ReplyTo::plain(self.xid)),
        };
        if is_sent {
            parts.stats.replies_sent.add(1);
        }
        is_sent
    }

    /// The reply was sent as a short message: nothing remains to be returned.
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

    /// Sends any other reply.
    #[cold]
    fn send_planned(&mut self) -> Result<(), CallRefused> {
        let (to, saved_offer) = (self.to(), self.asked.and_then(|asked| asked.saved_offer));
        let offer = saved_offer.map_or(Offer::None, SavedOffer::offer);
        let parts = self.payload.parts();
        parts.send_reply(self.peer, &to, offer)?;
        parts.stats.replies_sent.add(1);
        Ok(())
    }
}

#[inline(always)]
fn send_plain(parts: &mut Parts, peer: &mut Peer, to: &ReplyTo) -> bool {
    let Parts { outbox, ledger, .. } = parts;
    outbox.is_plain() && outbox.send_short(peer, ledger, ShortSend::Reply { to, item: None })
}

/// As [`send_plain`], if the reply invalidates a key of the caller.
fn send_invalidating(parts: &mut Parts, peer: &mut Peer, to: &ReplyTo) -> bool {
    let Parts { outbox, ledger, .. } = parts;
    outbox.is_plain() && outbox.send_invalidating(peer, ledger, to)
}

/// As [`Reply::send_short`], to a call that is not plain: it may request a single item.
#[inline(never)]
fn send_asked(
    parts: &mut Parts,
    peer: &mut Peer,
    ReplyContext { to, saved_offer, .. }: &ReplyContext<'_>,
) -> bool {
    let Some(saved_offer) = saved_offer else {
        return send_plain(parts, peer, to) || send_invalidating(parts, peer, to);
    };
    let Parts { outbox, ledger, .. } = parts;
    let Some(item) = outbox.single_item() else { return false };
    if let Some(list) = saved_offer.write_list() {
        return outbox.send_written(peer, ledger, to, &item, list);
    }
    let Some(direction) = saved_offer.direction() else { return false };
    let short = ShortSend::Reply { to, item: Some((&item, direction)) };
    outbox.send_short(peer, ledger, short) || outbox.send_continued(peer, ledger, short)
}

/// Counts one call fewer to answer.
#[inline]
fn answered<'a>(peer: &mut Peer) -> Answer<'a> {
    peer.end_open_call();
    Answer(PhantomData)
}
