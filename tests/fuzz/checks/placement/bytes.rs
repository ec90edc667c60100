//! Messages that name arbitrary bytes, compared with a map of the bytes.
//!
//! ```text
//!   transmission   | header | payload ...... |   behind it   |        buffer
//!   map            |        taken            | free ........ | -- never received
//! ```

use rpcrdma_proto::{CallDemand, CallId, Ingress, Offered, Piece, Settings, Want};
use rpcrdma_xdr::numbers::opttype;
use rpcrdma_xdr::rtr::structure::Segment;
use rpcrdma_xdr::{
    Array, Body, Header, Loc, MsgItem, Optional, RdmaSegment, RecvStructure, RsdItem, RsdLoc,
    RsdSet, SegmentGroup, Tbsns, XmtCont, XmtReq, XmtResp,
};

use crate::checks::choices::Choices;
use crate::checks::content::Whole;
use crate::checks::side::{Side, optional, rpc};

/// A message with arbitrary items, in arbitrary transmissions.
pub(super) fn check(choices: &mut Choices<'_>) {
    let structure = any_structure(choices);
    let settings = Settings {
        credits_requested: 8,
        credits_granted_max: 8,
        request_rx_limit: COUNT_MAX,
        response_rx_max: COUNT_MAX,
        rpc_len_max: choices.pick(&[1 << 20, 1 << 20, 1 << 20, 1 << 20, 2000, 1200]),
        ..Settings::new(structure)
    };
    let peer = Settings {
        credits_requested: 8,
        credits_granted_max: 8,
        ..Settings::new(RecvStructure::single(4096))
    };
    let wants = choices.below(4) as usize;
    let (mut side, call) = match choices.flag() {
        true => (Side::pair(peer, settings).1, None),
        false => {
            let mut side = Side::pair(settings, peer).0;
            let Some(id) = call(&mut side, wants) else { return side.close() };
            (side, Some(id))
        }
    };
    let message = Named::any(choices, &structure, call, wants);
    let wire = message.wire(choices, &structure);
    let found = receive(&mut side, &wire);
    let expected = Map::new(&structure, &wire).place(&message, &settings);
    assert_eq!(found, expected, "{message:?}");
    side.close();
}

/// The most transmissions.
const COUNT_MAX: u32 = 4;

/// Makes a call that requests items, with room for the maximum number of transmissions.
fn call(side: &mut Side, wants: usize) -> Option<CallId> {
    let Side { conn, ledger, settings, .. } = side;
    let id = conn.open_call(ledger, 1).expect("ready");
    let wants = vec![Want::sends(0, 40, 0, 0); wants];
    let reply_payload_max = settings.structure.total_len() * (COUNT_MAX - 1);
    let demand =
        CallDemand { wants: &wants, gather_max: 64, ..CallDemand::inline(40, reply_payload_max) };
    conn.begin_sends(ledger, id, &demand).ok().map(|_| id)
}

fn any_structure(choices: &mut Choices<'_>) -> RecvStructure {
    let lead = 1024 + choices.below(16);
    let lead = SegmentGroup { count: 1, length: lead, align: 1, placement: choices.rarely(16) };
    let mut groups = vec![lead];
    for _ in 0..1 + choices.below(5) {
        let (count, length) = (1 + choices.below(6), 1 + choices.below(40));
        groups.push(SegmentGroup { count, length, align: 1, placement: !choices.rarely(4) });
    }
    RecvStructure::new(&groups).expect("within the limits")
}

/// An item as the peer describes it.
#[derive(Debug, Clone)]
struct Item {
    disp: u32,
    length: u32,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Sent { offset: u32, numbers: Vec<u32> },
    Remote(Vec<RdmaSegment>),
    TooShort,
    NoItem,
}

/// A message that names bytes.
#[derive(Debug)]
struct Named {
    /// What it answers; else it is a call.
    answers: Option<CallId>,
    /// Directions of the call that it answers.
    wants: usize,
    items: Vec<Item>,
    /// In a call: the ranges of its directions.
    sets: Vec<(u32, u32)>,
    /// Payload bytes and bytes received, as distances from the bounds.
    shapes: Vec<(u32, u32)>,
}

impl Named {
    fn any(
        choices: &mut Choices<'_>,
        structure: &RecvStructure,
        answers: Option<CallId>,
        wants: usize,
    ) -> Self {
        let count = 1 + choices.below(COUNT_MAX);
        let shapes = (0..count).map(|_| (choices.below(24), choices.below(48))).collect();
        let items = match answers {
            Some(_) if !choices.rarely(8) => wants as u32,
            _ => choices.below(4),
        };
        let (mut position, mut number) = (8, 0);
        let items =
            (0..items).map(|_| Item::any(choices, structure, &mut position, &mut number)).collect();
        let sets = match answers {
            Some(_) => 0,
            None => choices.pick(&[0, 0, 0, 1, 2]),
        };
        let sets = (0..sets).map(|_| (choices.below(300), choices.below(2000))).collect();
        Self { answers, wants, items, sets, shapes }
    }

    fn xid(&self) -> u32 {
        self.answers.map_or(7, CallId::xid)
    }

    /// Its transmissions.
    fn wire(&self, choices: &mut Choices<'_>, structure: &RecvStructure) -> Vec<Vec<u8>> {
        let wanted = [RsdItem { min_len: 0, loc: RsdLoc::Tbsn }];
        let set = |(begin, end): &(u32, u32)| RsdSet {
            begin: *begin,
            end: *end,
            items: Array::from_slice(&wanted),
        };
        let sets: Vec<_> = self.sets.iter().map(set).collect();
        let items: Vec<_> = self.items.iter().map(Item::encoded).collect();
        let (dp, rsd) = (Array::from_slice(&items), Array::from_slice(&sets));
        let (xid, count) = (self.xid(), self.shapes.len() as u32);
        let mut wire = Vec::new();
        for (index, (before, cut)) in self.shapes.iter().enumerate() {
            let xnum = index as u32;
            let operation = |pslen| match (self.answers, xnum) {
                (None, 0) => Optional::XmtReq(XmtReq { dp, rsd, count, rsbuf: 1, pslen }),
                (Some(_), 0) => Optional::XmtResp(XmtResp { dp, count, pslen }),
                (None, _) => Optional::XmtCont(XmtCont { xnum, itype: opttype::XMTREQ, pslen }),
                (Some(_), _) => Optional::XmtCont(XmtCont { xnum, itype: opttype::XMTRESP, pslen }),
            };
            let header = optional(xid, 8, operation(0), &[]).len() as u32;
            let least = if index == 0 { 8 } else { 0 };
            let len = (structure.total_len() - cut).max(header + least);
            // Around the first byte that may be placed, rarely behind it.
            let behind = if choices.rarely(8) { 8 } else { 0 };
            let near = structure.leading_len().max(header) + behind;
            let end = near.saturating_sub(*before).min(len);
            let pslen = (end.saturating_sub(header) & !3).max(least);
            let mut bytes = rpc(xid, self.answers.is_some(), pslen as usize);
            bytes.truncate(pslen as usize);
            let fill = choices.byte();
            let mut bytes = optional(xid, 8, operation(pslen), &bytes);
            bytes.resize(len as usize, fill);
            wire.push(bytes);
        }
        wire
    }
}

impl Item {
    /// Mostly behind the one before, mostly of the right length, mostly in free segments.
    fn any(
        choices: &mut Choices<'_>,
        structure: &RecvStructure,
        position: &mut u32,
        number: &mut u32,
    ) -> Self {
        let off = |choices: &mut Choices<'_>, rarity, by: u32| {
            if choices.rarely(rarity) { choices.below(by) } else { 0 }
        };
        let count = 1 + choices.below(4);
        *number = (*number + off(choices, 4, 8)).saturating_sub(off(choices, 8, 8));
        let mut numbers: Vec<u32> = (*number..*number + count).collect();
        *number += count;
        if choices.rarely(8) {
            let (at, other) = (choices.below(count) as usize, choices.below(40));
            numbers[at] = other;
        }
        if choices.rarely(16) {
            numbers.reverse();
        }
        let offset = off(choices, 6, 44);
        let whole: u32 = numbers
            .iter()
            .filter_map(|number| structure.locate(*number))
            .map(|(_, at)| at.length)
            .sum();
        let length = (whole + off(choices, 8, 4)).saturating_sub(offset + off(choices, 2, 40));
        let disp = (*position + 4 * off(choices, 2, 8) + off(choices, 16, 4))
            .saturating_sub(off(choices, 16, 16));
        *position = disp.saturating_add(length.next_multiple_of(4));
        let place = match choices.below(16) {
            0 => Place::TooShort,
            1 => Place::NoItem,
            2 => Place::Remote(remote(choices, length)),
            _ => Place::Sent { offset, numbers },
        };
        Self { disp, length, place }
    }

    fn encoded(&self) -> MsgItem<'_> {
        let loc = match &self.place {
            Place::Sent { offset, numbers } => {
                Loc::Tbsn { offset: *offset, segments: Tbsns::from_slice(numbers) }
            }
            Place::Remote(segments) => Loc::Exrw(Array::from_slice(segments)),
            Place::TooShort => Loc::TooShort,
            Place::NoItem => Loc::NoItem,
        };
        MsgItem { disp: self.disp, length: self.length, loc }
    }
}

/// Segments of about this length.
fn remote(choices: &mut Choices<'_>, length: u32) -> Vec<RdmaSegment> {
    let first = choices.below(length + 1);
    let rest = (length - first + choices.below(5)).saturating_sub(choices.below(3));
    let segment = |length| RdmaSegment { handle: 9, length, offset: 4096 };
    [first, rest].into_iter().filter(|length| *length > 0).map(segment).collect()
}

/// Bytes of the message that each item is found at: transmission and place.
type Found = Option<Vec<Vec<(usize, u32)>>>;

/// Receives a message, and names the bytes of its items.
fn receive(side: &mut Side, wire: &[Vec<u8>]) -> Found {
    let mut found = None;
    for (index, bytes) in wire.iter().enumerate() {
        let buffer = side.keep(bytes);
        let ingress = side.hand_in(buffer, bytes);
        if index + 1 < wire.len() {
            match ingress {
                Ingress::Partial => continue,
                Ingress::Reject(_) | Ingress::BadReply { .. } => return None,
                other => panic!("the first transmissions of a group: {other:?}"),
            }
        }
        let Some(whole) = Whole::of(side, &ingress) else {
            assert!(
                matches!(ingress, Ingress::Reject(_) | Ingress::BadReply { .. }),
                "{ingress:?}"
            );
            return None;
        };
        found = named(side, &whole, &ingress);
        match whole.answers {
            None => drop(side.conn.refuse(&mut side.ledger, &whole.to)),
            Some(id) => drop(side.conn.finish_call(&mut side.ledger, id)),
        }
    }
    found
}

fn named(side: &Side, whole: &Whole, ingress: &Ingress<'_>) -> Found {
    let placed = whole.resolve(side, ingress, &Offered::NONE).ok()?;
    let structure = &side.settings.structure;
    let segments: Vec<_> = structure.segments().collect();
    let bytes = |piece: Piece| {
        let start = segments[piece.segment as usize].start + piece.offset;
        (start..start + piece.len).map(move |at| (piece.part as usize, at))
    };
    Some(placed.iter().map(|item| item.pieces(structure).flat_map(bytes).collect()).collect())
}

/// What each byte of the transmissions is used for, byte by byte.
struct Map {
    /// Bytes that are received and neither header nor payload, by transmission.
    free: Vec<Vec<bool>>,
    payload: u32,
    targets: Vec<Segment>,
}

impl Map {
    fn new(structure: &RecvStructure, wire: &[Vec<u8>]) -> Self {
        let mut payload = 0;
        let free = wire
            .iter()
            .map(|bytes| {
                let (header, len) = Header::decode(bytes).expect("it was encoded");
                let Body::Optional(operation) = header.body else {
                    panic!("it was an operation");
                };
                let pslen = match operation {
                    Optional::XmtReq(req) => req.pslen,
                    Optional::XmtResp(resp) => resp.pslen,
                    Optional::XmtCont(cont) => cont.pslen,
                    other => panic!("it was none of {other:?}"),
                };
                payload += pslen;
                (0..bytes.len()).map(|at| at >= len + pslen as usize).collect()
            })
            .collect();
        let targets = structure.segments().filter(|segment| segment.placement).collect();
        Self { free, payload, targets }
    }

    /// Whether the message is to be taken, and where its items are.
    fn place(mut self, message: &Named, settings: &Settings) -> Found {
        let is_reply = message.answers.is_some();
        if is_reply && message.items.len() != message.wants {
            return None;
        }
        let (mut end, mut excised) = (8u32, 0u32);
        let mut used = Vec::new();
        let mut found = Vec::new();
        for item in &message.items {
            match (&item.place, is_reply) {
                (Place::TooShort | Place::NoItem, true) => continue,
                // Nothing in the memory of its caller is offered for a reply.
                (Place::TooShort | Place::NoItem, false) | (Place::Remote(_), true) => {
                    return None;
                }
                (Place::Sent { .. } | Place::Remote(_), _) => {}
            }
            let on_word = item.disp.is_multiple_of(4);
            if !on_word || item.disp < end || item.disp > self.payload + excised {
                return None;
            }
            end = item.disp + item.length.next_multiple_of(4);
            excised += item.length.next_multiple_of(4);
            found.push(match &item.place {
                Place::Sent { offset, numbers } => {
                    self.take(item.length, *offset, numbers, &mut used)?
                }
                Place::Remote(segments) => read(item.length, segments)?,
                Place::TooShort | Place::NoItem => return None,
            });
        }
        let len = self.payload + excised;
        let mut previous = 0;
        for (begin, end) in &message.sets {
            if *begin < previous || end <= begin || *end > len {
                return None;
            }
            previous = *end;
        }
        (len <= settings.rpc_len_max).then_some(found)
    }

    /// Every byte of every segment named, from the offset on; the item is the first of them.
    fn take(
        &mut self,
        length: u32,
        offset: u32,
        numbers: &[u32],
        used: &mut Vec<u32>,
    ) -> Option<Vec<(usize, u32)>> {
        let mut bytes = Vec::new();
        for (nth, number) in numbers.iter().enumerate() {
            let number_of = *number as usize;
            if self.targets.is_empty() || number_of >= self.targets.len() * self.free.len() {
                return None;
            }
            let segment = self.targets[number_of % self.targets.len()];
            let skip = if nth == 0 { offset } else { 0 };
            let unneeded = bytes.len() as u32 >= length;
            if !skip.is_multiple_of(4)
                || skip >= segment.length
                || used.contains(number)
                || unneeded
            {
                return None;
            }
            used.push(*number);
            let transmission = number_of / self.targets.len();
            bytes.extend((skip..segment.length).map(|at| (transmission, segment.start + at)));
        }
        if bytes.is_empty() || (bytes.len() as u32) < length || length == 0 {
            return None;
        }
        bytes.truncate(length as usize);
        for (transmission, at) in &bytes {
            let byte = self.free[*transmission].get_mut(*at as usize)?;
            if !std::mem::take(byte) {
                return None;
            }
        }
        Some(bytes)
    }
}

/// An item that is to be read is in no buffer; its segments hold it, with its padding or without
/// (wire.md E17).
fn read(length: u32, segments: &[RdmaSegment]) -> Option<Vec<(usize, u32)>> {
    let total: u32 = segments.iter().map(|segment| segment.length).sum();
    (length > 0 && (total == length || total == length.next_multiple_of(4))).then(Vec::new)
}
