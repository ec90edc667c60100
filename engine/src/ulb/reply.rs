//! The builder of a reply with the binding of its call.

use super::binding::{BindError, Bound, Order};
use super::call::put;
use crate::api::payload::Payload;
use crate::api::reply::{Answer, Reply};
use crate::error::CallRefused;
use crate::message::bulk::Bulk;

/// A reply written by the binding of its call.
///
/// The binding decides whether a result may be placed, and the caller whether it is: other results
/// follow in the stream.
#[must_use = "a call that gets no reply holds a credit of its peer for ever"]
pub struct BoundReply<'a> {
    reply: Reply<'a>,
    bound: Bound,
    results: Order,
}

impl Bound {
    /// A reply to a call of this procedure.
    pub fn reply<'a>(&self, reply: Reply<'a>) -> BoundReply<'a> {
        BoundReply::new(*self, reply)
    }
}

impl<'a> BoundReply<'a> {
    fn new(bound: Bound, mut reply: Reply<'a>) -> BoundReply<'a> {
        reply.name(|| bound.key(false));
        BoundReply { reply, bound, results: Order::new(bound.procedure().results) }
    }

    /// The payload, written from behind transaction id and message type. [`BoundReply::result`]
    /// writes DDP-eligible items.
    pub fn payload(&mut self) -> &mut Payload<'a> {
        self.reply.payload()
    }

    /// Begins the results of an operation, in a procedure that is a list of them. `origin` is the
    /// position returned by [`Items::operation`](super::Items::operation). Its items are matched
    /// with the caller's wants for this operation, whatever the outcome of earlier ones.
    pub fn operation(&mut self, number: u32, origin: u32) {
        self.reply.operation(origin);
        self.results.begin(number);
    }

    /// Writes the next DDP-eligible result: its length, and its bytes from their place. If the
    /// protection of the call forbids that, they are copied into the message.
    ///
    /// # Errors
    /// [`BindError`]: no result may be placed here, or it is too long. Nothing was written, and the
    /// memory is returned.
    pub fn result(&mut self, bulk: impl Into<Bulk>) -> Result<(), BindError> {
        put(&mut self.results, self.bound, self.reply.payload(), bulk.into())
    }

    /// As [`Reply::send`].
    pub fn send(self) -> Answer<'a> {
        self.reply.send()
    }

    /// As [`Reply::try_send`].
    ///
    /// # Errors
    /// [`CallRefused`] states the reason.
    pub fn try_send(self) -> Result<Answer<'a>, (Reply<'a>, CallRefused)> {
        self.reply.try_send()
    }

    /// As [`Reply::refuse`].
    pub fn refuse(self) -> Answer<'a> {
        self.reply.refuse()
    }

    /// The reply, to be deferred or finished without the binding.
    pub fn into_reply(self) -> Reply<'a> {
        self.reply
    }
}
