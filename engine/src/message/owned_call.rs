//! A call that belongs to the program: written before there is a connection for it, kept after a
//! refusal, sent again.

use rpcrdma_proto::WantKind;
use rpcrdma_xdr::onc::RpcPrefix;

use crate::error::CallRefused;
use crate::message::bulk::{Bulk, ITEMS_MAX, PIECES_MAX};
use crate::message::sink::Sink;
use crate::message::values::put_values;
use crate::message::wanted::{WANTS_MAX, Want, Wanted};

/// A call that is not bound to a connection: its message, the memory placed in it or given for its
/// results, and its deadline.
///
/// [`Client::submit`](crate::Client::submit) sends it, and returns it if it cannot be sent now
/// ([`Unsent::into_call`](crate::Unsent::into_call)). A [`CallBuilder`](crate::CallBuilder) writes
/// the same call into registered memory at once; this one is copied there when it is sent. Writing
/// begins behind the transaction id and the message type, as with [`Payload`](crate::Payload).
///
/// Cost: its vectors grow with its first calls. [`OwnedCall::clear`] keeps them.
///
/// ```
/// # use rpcrdma::*;
/// # use std::time::Duration;
/// # struct Increment;
/// # impl Handler for Increment {
/// #     fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
/// #         let Ok(number) = call.reader().u32() else { return reply.refuse() };
/// #         reply.payload().put_u32(number + 1);
/// #         reply.send()
/// #     }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut engine = Engine::new(Fabric::new(), Config::default())?;
/// # engine.start(|_shard| Increment)?;
/// # let address = engine.listen("127.0.0.1:0".parse::<Address>()?)?;
/// # let mut client = engine.client()?;
/// # let peer = client.connect(address)?;
/// let mut call = OwnedCall::new();
/// call.put_u32(41);
/// client.submit(peer, 1, call).map_err(|unsent| unsent.why())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct OwnedCall {
    payload: Vec<u8>,
    /// What happens behind so many bytes of the payload, in order.
    marks: Vec<(u32, Mark)>,
    pieces: Vec<Bulk>,
    /// By want.
    sinks: Vec<Option<Sink>>,
    /// Placed data, with their counts and padding.
    placed_len: u32,
    reply_payload_max: Option<u32>,
    deadline: Option<u64>,
    /// Whether there are marks or a deadline.
    has_more: bool,
}

/// A step of a call that writes nothing into its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The next so many pieces are a data item.
    Place(usize),
    /// An operation begins.
    Operation,
    /// The next result is requested.
    Want { want: Want, kind: WantKind, sent_max: u32 },
}

impl OwnedCall {
    /// An empty call.
    pub fn new() -> OwnedCall {
        OwnedCall::default()
    }

    put_values!();

    /// Writes fixed-length opaque data: bytes, padding.
    #[inline]
    pub fn put_fixed(&mut self, bytes: &[u8]) {
        self.payload.extend_from_slice(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        if padding > 0 {
            self.payload.extend_from_slice(&[0; 3][..padding]);
        }
    }

    /// Writes the count of variable-length opaque data, and sends the bytes from their place, as
    /// [`Payload::place`](crate::Payload::place) does. More than a message can carry is an error
    /// when the call is submitted.
    pub fn place(&mut self, bulk: impl Into<Bulk>) {
        self.place_pieces([bulk.into()]);
    }

    /// As [`OwnedCall::place`], for one data item in several pieces.
    pub fn place_pieces(&mut self, pieces: impl IntoIterator<Item = Bulk>) {
        let first = self.pieces.len();
        // What is not marked is not cleared, if the iterator panics.
        self.mark(Mark::Place(0));
        self.pieces.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
        let len: usize = self.pieces[first..].iter().map(|piece| piece.len()).sum();
        let placed = u32::try_from(COUNT_LEN + len.next_multiple_of(4)).unwrap_or(u32::MAX);
        self.placed_len = self.placed_len.saturating_add(placed);
        if let Some((_, Mark::Place(count))) = self.marks.last_mut() {
            *count = self.pieces.len() - first;
        }
    }

    /// The current position in the unreduced XDR stream; `u32::MAX` behind what a call can be.
    pub fn position(&self) -> u32 {
        let written = u32::try_from(RpcPrefix::LEN + self.payload.len()).unwrap_or(u32::MAX);
        written.saturating_add(self.placed_len)
    }

    /// Begins an operation; see [`CallBuilder::operation`](crate::CallBuilder::operation).
    pub fn operation(&mut self) {
        self.mark(Mark::Operation);
    }

    /// Requests one more data item of the reply by DDP, as
    /// [`CallBuilder::want`](crate::CallBuilder::want) does.
    ///
    /// # Panics
    /// If there are 8 already.
    pub fn want(&mut self, want: Want) {
        self.push_want(want, WantKind::Tbsn, 0, None);
    }

    /// As [`CallBuilder::want_into`](crate::CallBuilder::want_into).
    ///
    /// # Panics
    /// If there are 8 already, or the result buffer is shorter than the item can be.
    pub fn want_into(&mut self, want: Want, sink: Sink) {
        self.push_want(want, WantKind::Exrw, 0, Some(sink));
    }

    /// As [`CallBuilder::want_either`](crate::CallBuilder::want_either).
    ///
    /// # Panics
    /// As [`OwnedCall::want_into`].
    pub fn want_either(&mut self, want: Want, sink: Sink) {
        self.push_want(want, WantKind::Choice, 0, Some(sink));
    }

    /// As [`CallBuilder::want_by_size`](crate::CallBuilder::want_by_size).
    ///
    /// # Panics
    /// As [`OwnedCall::want_into`].
    pub fn want_by_size(&mut self, want: Want, sent_max: u32, sink: Sink) {
        self.push_want(want, WantKind::BySize, sent_max, Some(sink));
    }

    fn push_want(&mut self, want: Want, kind: WantKind, sent_max: u32, sink: Option<Sink>) {
        let is_enough = sink.as_ref().is_none_or(|sink| sink.len() >= want.len_max as usize);
        assert!(is_enough, "a sink is as long as its item can be");
        assert!(self.sinks.len() < WANTS_MAX, "a call has at most {WANTS_MAX} wants");
        self.sinks.push(sink);
        self.mark(Mark::Want { want, kind, sent_max });
    }

    /// Results requested so far.
    pub fn wants(&self) -> usize {
        self.sinks.len()
    }

    /// Sets the maximum length of the reply's payload; see
    /// [`CallBuilder::reply_payload_max`](crate::CallBuilder::reply_payload_max).
    pub fn reply_payload_max(&mut self, bytes: u32) {
        self.reply_payload_max = Some(bytes);
    }

    /// Ends the call if its reply has not arrived by `at`; see
    /// [`CallBuilder::deadline`](crate::CallBuilder::deadline).
    pub fn deadline(&mut self, at: u64) {
        (self.deadline, self.has_more) = (Some(at), true);
    }

    /// Empties it; its memory returns to its pools.
    #[inline]
    pub fn clear(&mut self) {
        self.payload.clear();
        self.reply_payload_max = None;
        if self.has_more {
            self.clear_more();
        }
    }

    #[inline(never)]
    fn clear_more(&mut self) {
        (self.deadline, self.has_more) = (None, false);
        self.marks.clear();
        self.pieces.clear();
        self.sinks.clear();
        self.placed_len = 0;
    }

    /// The memory placed so far, piece by piece in the order of placing; once. The call cannot be
    /// sent without it.
    pub fn take_placed(&mut self) -> std::vec::IntoIter<Bulk> {
        core::mem::take(&mut self.pieces).into_iter()
    }

    /// The result buffer of a want, by the order of requests; once. `None` if it had none.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        self.sinks.get_mut(want)?.take()
    }

    /// Bytes that it holds: its payload and the data placed in it.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.payload.len() + self.placed_len as usize
    }

    /// When the call ends without a reply, if it has a deadline.
    #[inline]
    pub fn deadline_at(&self) -> Option<u64> {
        self.deadline
    }

    #[inline]
    pub(crate) fn reply_max(&self) -> Option<u32> {
        self.reply_payload_max
    }

    #[inline]
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Whether it has a deadline, an item, an operation or a want.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// What happens behind so many bytes of the payload, in order.
    #[inline]
    pub(crate) fn marks(&self) -> &[(u32, Mark)] {
        &self.marks
    }

    /// The pieces placed in it. Those of a call that is sent once are taken out.
    pub(crate) fn pieces_mut(&mut self) -> &mut Vec<Bulk> {
        &mut self.pieces
    }

    /// Checks that all its memory is there, and no more items or pieces than a message can carry.
    /// A shard without explicit RDMA needs no result buffers.
    pub(crate) fn check(&self, needs_sinks: bool) -> Result<(), CallRefused> {
        let (mut items, mut pieces) = (0, 0);
        for (_, mark) in &self.marks {
            if let Mark::Place(count) = mark {
                (items, pieces) = (items + 1, pieces + count);
            }
        }
        if pieces != self.pieces.len() || (needs_sinks && !self.has_sinks()) {
            return Err(CallRefused::Incomplete);
        }
        match items > ITEMS_MAX || pieces > PIECES_MAX {
            true => Err(CallRefused::TooManyPieces),
            false => Ok(()),
        }
    }

    /// Whether every result buffer is there.
    fn has_sinks(&self) -> bool {
        let needs_one =
            |mark: &Mark| matches!(mark, Mark::Want { kind, .. } if *kind != WantKind::Tbsn);
        let needed = self.marks.iter().filter(|(_, mark)| needs_one(mark)).count();
        self.sinks.iter().flatten().count() == needed
    }

    /// Makes the placed memory constant, so that it is sent again and stays: allocates a few words
    /// for each loan.
    pub(crate) fn share_placed(&mut self) {
        if self.pieces.iter().any(|piece| matches!(piece, Bulk::Loan(_))) {
            self.pieces = self.pieces.drain(..).map(Bulk::share).collect();
        }
    }

    /// Puts back the result buffers, by want, of an attempt to send it.
    pub(crate) fn put_sinks(&mut self, sinks: impl Iterator<Item = Option<Sink>>) {
        for (place, sink) in self.sinks.iter_mut().zip(sinks) {
            *place = sink;
        }
    }

    /// Takes back the result buffers of a call that has failed, by their wants. False if one is
    /// missing: the device may still write to it. A shard without explicit RDMA keeps none.
    pub(crate) fn take_sinks_of(
        &mut self,
        mut take_sink: impl FnMut(usize) -> Option<Sink>,
        is_kept: bool,
    ) -> bool {
        for (want, place) in self.sinks.iter_mut().enumerate() {
            *place = take_sink(want);
        }
        !is_kept || self.has_sinks()
    }

    /// A call as it was written into the slots of a shard: the bytes behind its first two words,
    /// with the count of each item, which is at its position in the unreduced stream.
    pub(crate) fn of_draft<'a>(
        written: impl Iterator<Item = &'a [u8]>,
        items: impl Iterator<Item = (u32, usize)>,
        pieces: impl IntoIterator<Item = Bulk>,
        wants: impl Iterator<Item = Wanted>,
        reply_payload_max: u32,
    ) -> OwnedCall {
        let mut call = OwnedCall { reply_payload_max: Some(reply_payload_max), ..OwnedCall::new() };
        let stream: Vec<u8> = written.flatten().copied().collect();
        let mut rest = stream.get(RpcPrefix::LEN..).unwrap_or_default();
        let mut pieces = pieces.into_iter();
        let mut items = items.peekable();
        let mut begun = 0;
        let mut wants = wants.peekable();
        loop {
            let next_item = items.peek().map(|(position, _)| position - COUNT_LEN as u32);
            let next_want = wants.peek().map(|wanted| wanted.begin);
            match (next_item, next_want) {
                (item, Some(begin)) if item.is_none_or(|item| begin <= item) => {
                    if begin > begun {
                        call.put_from(&mut rest, begin);
                        call.operation();
                        begun = begin;
                    }
                    let Wanted { want, kind, sent_max, sink, .. } = wants.next().expect("peeked");
                    call.push_want(want, kind, sent_max, sink);
                }
                (Some(position), _) => {
                    let (_, count) = items.next().expect("peeked");
                    call.put_from(&mut rest, position);
                    rest = rest.get(COUNT_LEN..).unwrap_or_default();
                    call.place_pieces(pieces.by_ref().take(count));
                }
                (None, _) => break,
            }
        }
        call.payload.extend_from_slice(rest);
        // Of an item whose count did not fit.
        call.pieces.extend(pieces);
        call
    }

    /// Writes the next bytes up to a position.
    fn put_from(&mut self, rest: &mut &[u8], position: u32) {
        let len = position.saturating_sub(self.position()) as usize;
        let (now, later) = rest.split_at(len.min(rest.len()));
        self.payload.extend_from_slice(now);
        *rest = later;
    }

    fn mark(&mut self, mark: Mark) {
        self.has_more = true;
        self.marks.push((self.payload.len() as u32, mark));
    }
}

/// Bytes of the count in front of a data item.
const COUNT_LEN: usize = 4;
