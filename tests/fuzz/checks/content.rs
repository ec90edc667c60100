//! RPC messages from the choices of an input: a payload and its items.

use std::rc::Rc;

use rpcrdma_proto::{
    BulkItem, CallId, Complete, Ingress, Message, Offer, Offered, Part, Place, Placed, ReplyTo,
    SendError, Violation, Want, WantKind, payload_pieces,
};
use rpcrdma_xdr::{Body, Header, Optional, RdmaSegment};

use super::choices::Choices;
use super::memory::Memory;
use super::side::{Side, rpc};

/// A message as a program has it: the payload without its items, and the items.
#[derive(Debug, Clone)]
pub struct Content {
    /// The payload, with xid and direction.
    pub payload: Vec<u8>,
    /// The items, by position.
    pub items: Vec<BulkItem>,
    /// Their bytes.
    pub bulk: Vec<Vec<u8>>,
}

/// Where items lie, before there is an xid: gaps of payload in words, lengths, and words at the
/// end.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Words of payload before each item, and its bytes.
    pub items: Vec<(u32, u32)>,
    /// Words of payload behind the last.
    pub tail: u32,
}

impl Shape {
    /// Up to four items of up to `len_max` bytes. Many lengths are near multiples of `near`.
    pub fn any(choices: &mut Choices<'_>, near: u32, len_max: u32) -> Self {
        let count = choices.pick(&[0, 1, 0, 2, 3, 4]);
        let mut length = |max| length(choices, near, max);
        let items = (0..count).map(|_| (length(1200) / 4, length(len_max))).collect();
        Self { items, tail: length(len_max) / 4 }
    }

    /// The lengths of the items.
    pub fn lens(&self) -> impl Iterator<Item = u32> + '_ {
        self.items.iter().map(|(_, len)| *len)
    }
}

/// Most lengths are short, or near a bound; some are not.
fn length(choices: &mut Choices<'_>, near: u32, max: u32) -> u32 {
    let length = match choices.below(4) {
        0 => choices.below(8),
        1 => choices.below(100),
        2 => (near * choices.below(4) + 8).saturating_sub(choices.below(150)),
        _ => choices.below(max + 1),
    };
    length.min(max)
}

/// A requested item of a call with one operation.
pub fn any_want(choices: &mut Choices<'_>, end: u32, max_len: u32) -> Want {
    let kinds = [WantKind::Tbsn, WantKind::Exrw, WantKind::Choice, WantKind::BySize];
    Want {
        kind: choices.pick(&kinds),
        over: choices.below(8000),
        pieces: choices.below(3),
        ..Want::sends(0, end, if choices.flag() { choices.below(5000) } else { 0 }, max_len)
    }
}

impl Content {
    /// A message of this shape.
    pub fn new(xid: u32, reply: bool, shape: &Shape) -> Self {
        let (mut position, mut payload) = (8, 8);
        let (mut items, mut bulk) = (Vec::new(), Vec::new());
        for (index, (gap, len)) in shape.items.iter().copied().enumerate() {
            position += gap * 4;
            payload += gap * 4;
            items.push(BulkItem { position, len, origin: 0, pieces: 1 });
            bulk.push((0..len).map(|at| (at % 241) as u8 ^ (index as u8) << 4).collect());
            position += len.next_multiple_of(4);
        }
        let payload = rpc(xid, reply, (payload + shape.tail * 4) as usize);
        Self { payload, items, bulk }
    }

    /// Bytes of the stream with nothing excised.
    pub fn stream_len(&self) -> u32 {
        let items: u32 = self.items.iter().map(BulkItem::padded_len).sum();
        self.payload.len() as u32 + items
    }

    /// The stream with nothing excised, with zero padding.
    pub fn stream(&self) -> Vec<u8> {
        self.stream_without(|_| false)
    }

    /// The stream without some of the items.
    pub fn stream_without(&self, is_excised: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut stream = Vec::new();
        let (mut taken, mut position) = (0, 0);
        for (index, (item, bulk)) in self.items.iter().zip(&self.bulk).enumerate() {
            let gap = (item.position - position) as usize;
            stream.extend_from_slice(&self.payload[taken..taken + gap]);
            taken += gap;
            position = item.position + item.padded_len();
            if !is_excised(index) {
                stream.extend_from_slice(bulk);
                stream.resize(stream.len().next_multiple_of(4), 0);
            }
        }
        stream.extend_from_slice(&self.payload[taken..]);
        stream
    }
}

/// A message that has arrived whole.
#[derive(Debug)]
pub struct Whole {
    /// The call of ours that it answers; else it is a call.
    pub answers: Option<CallId>,
    /// The state that is kept to answer it.
    pub to: ReplyTo,
    /// Its transmissions.
    pub parts: Vec<Part>,
    /// The first of them.
    pub lead: Rc<[u8]>,
}

impl Whole {
    /// The arrived message, if it is one.
    pub fn of(side: &Side, ingress: &Ingress<'_>) -> Option<Self> {
        let single = |answers, message: &Message<'_>| {
            let parts = vec![message.part];
            Some(Self {
                answers,
                to: message.reply_to(),
                parts,
                lead: side.received(message.part.buffer),
            })
        };
        let answers = match ingress {
            Ingress::Call(message) => return single(None, message),
            Ingress::Reply(id, message) => return single(Some(*id), message),
            Ingress::Complete(Complete::Call) => None,
            Ingress::Complete(Complete::Reply(id)) => Some(*id),
            _ => return None,
        };
        let parts = side.conn.group().to_vec();
        let lead = side.received(parts[0].buffer);
        let message = side.conn.message(side.first_segment(&lead)).expect("a group has a lead");
        let to = message.reply_to();
        Some(Self { answers, to, parts, lead })
    }

    /// Where its items are. `offered` is what was offered for it, if it is a reply.
    pub fn resolve<'a>(
        &'a self,
        side: &Side,
        ingress: &Ingress<'a>,
        offered: &Offered<'_>,
    ) -> Result<Placed<'a>, Violation> {
        let message = match ingress {
            Ingress::Call(message) | Ingress::Reply(_, message) => *message,
            _ => side.conn.message(side.first_segment(&self.lead)).expect("a group has a lead"),
        };
        match self.answers {
            None => side.conn.resolve_call(&message, &self.parts),
            Some(id) => side.conn.resolve_reply(&side.ledger, id, &message, &self.parts, offered),
        }
    }

    /// Its stream, with every item inserted at its position in `content`. `memory` is the caller's.
    pub fn stream(
        &self,
        side: &Side,
        placed: &Placed<'_>,
        offered: &Offered<'_>,
        memory: &Memory,
        content: &Content,
    ) -> Vec<u8> {
        let structure = &side.settings.structure;
        let at = |place: &Place<'_>, sink: &[RdmaSegment], len| match place {
            Place::Remote(segments) => memory.gather(&segments.iter().collect::<Vec<_>>(), len),
            Place::Sink => memory.gather(sink, len),
            Place::Sent(_) => unreachable!("it is gathered from pieces"),
        };
        let mut payload = side.gather(&self.parts, payload_pieces(structure, &self.parts));
        assert_eq!(payload.len() as u32, placed.payload_len());
        if let Some(body) = placed.body() {
            assert!(payload.is_empty(), "all of it is in memory");
            payload = at(&body.at, offered.reply, body.len);
        }
        let (mut stream, mut rest) = (Vec::new(), &payload[..]);
        for item in placed.iter() {
            // Version one does not state the position of a reply's item; the order determines it.
            let position = item.position.unwrap_or_else(|| content.items[item.index].position);
            let (gap, behind) = rest.split_at(position as usize - stream.len());
            stream.extend_from_slice(gap);
            rest = behind;
            let bytes = match &item.at {
                Place::Sent(_) => side.gather(&self.parts, item.pieces(structure)),
                place => at(place, offered.wants.of(offered.set, item.index), item.len),
            };
            assert_eq!(bytes.len() as u32, item.len);
            stream.extend_from_slice(&bytes);
            stream.resize(stream.len().next_multiple_of(4), 0);
        }
        stream.extend_from_slice(rest);
        assert_eq!(stream.len() as u32, placed.virtual_len());
        stream
    }
}

/// Whether a message cannot be sent because of its length or its pieces.
pub fn is_too_long(error: SendError) -> bool {
    matches!(
        error,
        SendError::NeedsExplicitRdma { .. }
            | SendError::TooManyPieces { .. }
            | SendError::NoRoute { .. }
            | SendError::TooLong { .. }
            | SendError::ReplyTooLong { .. }
            | SendError::RoomTooSmall { .. }
    )
}

/// The offer of a call for its reply, from its first transmission.
pub fn offer(lead: &[u8]) -> Offer<'_> {
    match Header::decode(lead).map(|(header, _)| header.body) {
        Ok(Body::Optional(Optional::XmtReq(req))) => Offer::Directions(req.rsd),
        Ok(Body::Msg(chunks) | Body::NoMsg(chunks)) => {
            Offer::Chunks { writes: chunks.writes, reply: chunks.reply }
        }
        _ => Offer::None,
    }
}
