//! The builder of a call with a binding.

use rpcrdma_xdr::onc::{ReplyHeader, RpcPrefix};

use super::binding::{BindError, Bound, Item, Order, ReplyMax};
use crate::api::builder::{CallBuilder, CallHandle};
use crate::api::payload::Payload;
use crate::api::unsent::Unsent;
use crate::message::bulk::Bulk;
use crate::message::sink::Sink;
use crate::message::wanted::Want;

/// A call written by its binding: places items where the binding allows it, and sums up the longest
/// reply.
///
/// Dropping it discards the call.
#[must_use = "a call is sent by `submit`"]
pub struct BoundCall<'a> {
    call: CallBuilder<'a>,
    bound: Bound,
    arguments: Order,
    results: Order,
    /// Bytes of the reply beyond those of the table.
    reply_more: u32,
    /// The length that the arguments ask for.
    asked: Option<u32>,
}

impl Bound {
    /// A call of this procedure.
    pub fn call<'a>(&self, call: CallBuilder<'a>) -> BoundCall<'a> {
        BoundCall::new(*self, call)
    }
}

impl<'a> BoundCall<'a> {
    fn new(bound: Bound, call: CallBuilder<'a>) -> BoundCall<'a> {
        let procedure = bound.procedure();
        BoundCall {
            call,
            bound,
            arguments: Order::new(procedure.arguments),
            results: Order::new(procedure.results),
            reply_more: 0,
            asked: None,
        }
    }

    /// The payload, written from behind transaction id and message type. [`BoundCall::argument`]
    /// writes DDP-eligible items.
    pub fn payload(&mut self) -> &mut Payload<'a> {
        self.call.payload()
    }

    /// Begins an operation, in a procedure that is a list of them: items and wants from now on
    /// belong to it.
    pub fn operation(&mut self, number: u32) {
        self.call.operation();
        self.arguments.begin(number);
        self.results.begin(number);
    }

    /// Writes the next DDP-eligible argument: its length, and its bytes from their place. If the
    /// protection of the call forbids that, they are copied into the message.
    ///
    /// # Errors
    /// [`BindError`]: no argument may be placed here, or it is too long. Nothing was written, and
    /// the memory is returned.
    pub fn argument(&mut self, bulk: impl Into<Bulk>) -> Result<(), BindError> {
        put(&mut self.arguments, self.bound, self.call.payload(), bulk.into())
    }

    /// Requests the next DDP-eligible result outside of the stream. If the protection of the call
    /// forbids that, it stays in the stream.
    ///
    /// # Errors
    /// [`BindError`]: no result may be placed here, or it cannot be so long.
    ///
    /// # Panics
    /// If there are [`WANTS_MAX`](crate::message::wanted::WANTS_MAX) already.
    pub fn result(&mut self, want: Want) -> Result<(), BindError> {
        if self.wanted(want)? {
            self.call.want(want);
        }
        Ok(())
    }

    /// As [`BoundCall::result`], but the peer writes it to a result buffer by RDMA Write.
    /// [`Completion::take_sink`](crate::Completion::take_sink) takes the index of the want. A
    /// buffer that is unused because of the protection of the call returns to its pool at once.
    ///
    /// # Errors
    /// As [`BoundCall::result`]; the memory is returned.
    ///
    /// # Panics
    /// As [`CallBuilder::want_into`].
    pub fn result_into(&mut self, want: Want, sink: Sink) -> Result<(), BindError> {
        if self.wanted(want)? {
            self.call.want_into(want, sink);
        }
        Ok(())
    }

    /// As [`BoundCall::result_into`], but the peer may choose to place it by Send.
    ///
    /// # Errors
    /// As [`BoundCall::result_into`].
    ///
    /// # Panics
    /// As [`CallBuilder::want_either`].
    pub fn result_either(&mut self, want: Want, sink: Sink) -> Result<(), BindError> {
        if self.wanted(want)? {
            self.call.want_either(want, sink);
        }
        Ok(())
    }

    /// As [`BoundCall::result_into`], but the peer places a result of at most `sent_max` bytes by
    /// Send.
    ///
    /// # Errors
    /// As [`BoundCall::result_into`].
    ///
    /// # Panics
    /// As [`CallBuilder::want_by_size`].
    pub fn result_by_size(
        &mut self,
        want: Want,
        sent_max: u32,
        sink: Sink,
    ) -> Result<(), BindError> {
        if self.wanted(want)? {
            self.call.want_by_size(want, sent_max, sink);
        }
        Ok(())
    }

    /// Expects the next DDP-eligible result in the stream, and up to `len_max` bytes of it.
    ///
    /// # Errors
    /// As [`BoundCall::result`].
    pub fn result_in_line(&mut self, len_max: u32) -> Result<(), BindError> {
        self.next_result(len_max)?;
        self.may_be_in_line(len_max);
        Ok(())
    }

    /// States how many bytes of results the arguments ask for ([`ReplyMax::Asked`]), or the maximum
    /// ([`ReplyMax::Stated`]).
    pub fn asks(&mut self, bytes: u32) {
        self.asked = Some(bytes);
    }

    /// Adds bytes that the reply may have besides its results: the body of its verifier, and the
    /// overhead of a protection. None for AUTH_NONE and AUTH_SYS.
    pub fn reply_more(&mut self, bytes: u32) {
        self.reply_more = self.reply_more.saturating_add(bytes);
    }

    /// The longest payload of the reply, without placed items; from the transaction id on.
    ///
    /// # Errors
    /// [`BindError::ReplyUnknown`] if it is not known.
    pub fn reply_max(&self) -> Result<u32, BindError> {
        let procedure = self.bound.procedure();
        let unknown = BindError::ReplyUnknown { procedure: procedure.name };
        if !self.results.is_done() {
            return Err(unknown);
        }
        let results = match (procedure.reply, self.asked) {
            (ReplyMax::Fixed(len), asked) => len.saturating_add(asked.unwrap_or(0)),
            (ReplyMax::Asked(len), Some(asked)) => len.saturating_add(padded(asked)),
            (ReplyMax::Stated, Some(asked)) => padded(asked),
            (ReplyMax::Asked(_) | ReplyMax::Stated, None) => return Err(unknown),
        };
        let behind = results.max(ReplyHeader::VERSIONS_LEN as u32);
        Ok(REPLY_HEADER_LEN.saturating_add(behind).saturating_add(self.reply_more))
    }

    /// As [`CallBuilder::deadline`].
    pub fn deadline(&mut self, at: u64) {
        self.call.deadline(at);
    }

    /// As [`CallBuilder::xid`].
    ///
    /// # Errors
    /// As there.
    pub fn xid(&mut self, xid: u32) -> Result<(), BindError> {
        self.call.xid(xid)?;
        Ok(())
    }

    /// As [`CallBuilder::handle`].
    pub fn handle(&mut self) -> CallHandle {
        self.call.handle()
    }

    /// As [`BoundCall::submit`], but returns placed memory and result buffers if the call is not
    /// sent.
    ///
    /// # Errors
    /// [`Unsent`] contains them and states the reason; nothing has been sent.
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn try_submit(mut self) -> Result<(), Unsent<BindError>> {
        match self.reply_max() {
            Ok(reply_max) => {
                self.call.reply_payload_max(reply_max);
                let sent = self.call.try_submit_as(|| self.bound.key(true));
                sent.map_err(|unsent| unsent.map(BindError::from))
            }
            Err(why) => Err(self.call.take_back(why)),
        }
    }

    /// Sends the call with the next poll.
    ///
    /// # Errors
    /// [`BindError`] states the reason; nothing has been sent.
    pub fn submit(mut self) -> Result<(), BindError> {
        let reply_max = self.reply_max()?;
        self.call.reply_payload_max(reply_max);
        self.call.submit_as(|| self.bound.key(true))?;
        Ok(())
    }

    /// Accounts for the next DDP-eligible result. False if the protection of the call, or
    /// `interop.links_in_line`, forbids placing it.
    fn wanted(&mut self, Want { len_min, len_max }: Want) -> Result<bool, BindError> {
        let item = self.next_result(len_max)?;
        let stays = item.is_link && self.call.has_links_in_line();
        let may_place = self.bound.protection().may_place() && !stays;
        // A shorter item than requested comes in the stream.
        let in_line = if may_place { len_min.saturating_sub(1).min(len_max) } else { len_max };
        self.may_be_in_line(in_line);
        Ok(may_place)
    }

    fn next_result(&mut self, len_max: u32) -> Result<&'static Item, BindError> {
        let procedure = self.bound.procedure();
        let item =
            self.results.next().ok_or(BindError::NotEligible { procedure: procedure.name })?;
        if len_max > item.len_max {
            let (len, max) = (len_max.into(), item.len_max);
            return Err(BindError::TooLong { item: item.name, len, max });
        }
        Ok(item)
    }

    fn may_be_in_line(&mut self, len: u32) {
        self.reply_more = self.reply_more.saturating_add(padded(len));
    }
}

/// Writes the next item of a message.
pub(super) fn put(
    order: &mut Order,
    bound: Bound,
    payload: &mut Payload<'_>,
    bulk: Bulk,
) -> Result<(), BindError> {
    let procedure = bound.procedure();
    let item = order.next().ok_or(BindError::NotEligible { procedure: procedure.name })?;
    if bulk.len() > item.len_max as usize {
        let (len, max) = (bulk.len() as u64, item.len_max);
        return Err(BindError::TooLong { item: item.name, len, max });
    }
    match bound.protection().may_place() {
        true => payload.place(bulk),
        false => payload.put_opaque(&bulk),
    }
    Ok(())
}

fn padded(len: u32) -> u32 {
    len.checked_next_multiple_of(4).unwrap_or(u32::MAX)
}

/// Bytes of a reply in front of the results, without a verifier.
const REPLY_HEADER_LEN: u32 = (RpcPrefix::LEN + ReplyHeader::SUCCESS_LEN) as u32;
