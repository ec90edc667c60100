//! Resolution of a received message: where its payload and its placed items lie.
//!
//! ```text
//!   MsgItem{disp, length, TBSN{offset, [5, 6]}} ──check──▶ pieces (transmission, segment, offset, len)
//! ```
//! Everything that a peer can get wrong about placement is found here, before anything is handed
//! up. Only received bytes behind a transmission's payload are ever named: what an earlier message
//! left in a buffer stays unseen (wire.md E13).

use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::cursor::pad_len;
use rpcrdma_xdr::numbers::limit::{GROUP_MAX, STRUCTURE_SEGMENTS_MAX};
use rpcrdma_xdr::rtr::placement::{Loc, MsgItem, TbsnIter, Tbsns};
use rpcrdma_xdr::rtr::structure::RecvStructure;

use crate::error::Violation;
use crate::group::Part;
use crate::placement::direct::{ItemKind, WantSet};

/// What the items of a message are checked against.
#[derive(Debug, Clone, Copy)]
pub enum Rule<'r> {
    /// Those of a call: Table 1 of [RTR] 6.2.
    Request,
    /// Those of a reply, by the directions of its call: Table 2 of [RTR] 7.4.
    Response(&'r WantSet),
}

/// A run of received bytes within one segment of one receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The transmission of the group, which is the place among its parts.
    pub part: u32,
    /// The segment of the receive buffer, counted among all its segments.
    pub segment: u32,
    /// Bytes of the segment before the run.
    pub offset: u32,
    /// Bytes of the run.
    pub len: u32,
}

/// The placed items of a message, all found valid.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    items: Array<'a, MsgItem<'a>>,
    payload_len: u32,
    virtual_len: u32,
}

/// A placed item.
#[derive(Debug, Clone, Copy)]
pub struct PlacedItem<'a> {
    /// Its place among the items of the header: in a reply, the direction that it answers.
    pub index: usize,
    /// Where its first byte is in the stream with nothing excised.
    pub position: u32,
    /// Its bytes, without padding.
    pub len: u32,
    offset: u32,
    segments: Tbsns<'a>,
}

/// Checks every item of a message and finds its length (wire.md E13, E16, E17, E25, E30, E31, E40).
///
/// `parts` are the transmissions of the message; `rpc_len_max` bounds the message with its items.
///
/// # Errors
/// The first [`Violation`] in the order of the items.
pub fn resolve<'a>(
    structure: &RecvStructure,
    parts: &[Part],
    items: Array<'a, MsgItem<'a>>,
    rule: Rule<'_>,
    rpc_len_max: u32,
) -> Result<Placed<'a>, Violation> {
    let payload: u64 = parts.iter().map(|part| u64::from(part.payload_len)).sum();
    let mut check = Check::new(structure, parts, payload);
    if let Rule::Response(wants) = rule {
        check_count(items.len(), wants)?;
    }
    for (index, item) in items.iter().enumerate() {
        check.item(index, &item, rule)?;
    }
    check.distinct(items)?;
    let virtual_len = payload + check.excised;
    // wire.md E40
    match u32::try_from(virtual_len) {
        Ok(virtual_len) if virtual_len <= rpc_len_max => {
            Ok(Placed { items, payload_len: payload as u32, virtual_len })
        }
        _ => Err(Violation::BadHeader("the message is longer than is accepted")),
    }
}

impl<'a> Placed<'a> {
    /// The items that were placed, in order.
    pub fn iter(&self) -> impl Iterator<Item = PlacedItem<'a>> + use<'a> {
        self.items.iter().enumerate().filter_map(|(index, item)| match item.loc {
            Loc::Tbsn { offset, segments } => {
                let (position, len) = (item.disp, item.length);
                Some(PlacedItem { index, position, len, offset, segments })
            }
            Loc::Exrw(_) | Loc::TooShort | Loc::NoItem => None,
        })
    }

    /// What was done with each item of the header; in a reply, with each direction of the call.
    pub fn results(&self) -> impl Iterator<Item = ItemKind> + use<'a> {
        self.items.iter().map(|item| ItemKind::of(&item.loc))
    }

    /// Bytes of the payload stream of all transmissions.
    #[must_use]
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// Bytes of the message with nothing excised.
    #[must_use]
    pub fn virtual_len(&self) -> u32 {
        self.virtual_len
    }
}

impl<'a> PlacedItem<'a> {
    /// Where its bytes are, in order. `structure` is the one it was resolved with.
    pub fn pieces<'s>(&self, structure: &'s RecvStructure) -> ItemPieces<'a, 's> {
        ItemPieces { structure, numbers: self.segments.iter(), offset: self.offset, left: self.len }
    }
}

/// The pieces of a placed item.
#[derive(Clone)]
pub struct ItemPieces<'a, 's> {
    structure: &'s RecvStructure,
    numbers: TbsnIter<'a>,
    offset: u32,
    left: u32,
}

impl Iterator for ItemPieces<'_, '_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let (part, at) = self.structure.locate(self.numbers.next()?)?;
        let offset = core::mem::take(&mut self.offset);
        let len = (at.length - offset).min(self.left);
        self.left -= len;
        Some(Piece { part, segment: at.index, offset, len })
    }
}

/// Where the payload stream of a message is, in order. The parts are those of a received message:
/// each payload lies within its received bytes.
pub fn payload_pieces<'p>(
    structure: &'p RecvStructure,
    parts: &'p [Part],
) -> impl Iterator<Item = Piece> + 'p {
    parts.iter().enumerate().flat_map(move |(index, part)| {
        let (begin, end) = (part.payload_start, part.payload_end());
        structure.segments().filter_map(move |segment| {
            let from = begin.max(segment.start);
            let to = end.min(segment.start + segment.length);
            (from < to).then(|| Piece {
                part: index as u32,
                segment: segment.index,
                offset: from - segment.start,
                len: to - from,
            })
        })
    })
}

/// wire.md E25: exactly one item for each direction, none unsolicited.
pub(crate) fn check_count(items: usize, wants: &WantSet) -> Result<(), Violation> {
    if items == wants.len() {
        return Ok(());
    }
    let due = wants.len() as u32;
    Err(Violation::Segment { value: items as u32, min: due, max: due })
}

struct Check<'s> {
    structure: &'s RecvStructure,
    parts: &'s [Part],
    payload: u64,
    /// Bytes excised by the items so far, with padding.
    excised: u64,
    /// Where the last excised item ended.
    previous_end: u64,
    /// The number used last; all so far are increasing unless `shuffled`.
    last: Option<u32>,
    shuffled: bool,
}

impl<'s> Check<'s> {
    fn new(structure: &'s RecvStructure, parts: &'s [Part], payload: u64) -> Self {
        // [V2]: xid and direction come first, and are never excised.
        let previous_end = 8;
        let (excised, last, shuffled) = (0, None, false);
        Self { structure, parts, payload, excised, previous_end, last, shuffled }
    }

    fn item(&mut self, index: usize, item: &MsgItem<'_>, rule: Rule<'_>) -> Result<(), Violation> {
        let kind = ItemKind::of(&item.loc);
        match rule {
            Rule::Request => kind.check_in_request()?,
            Rule::Response(wants) => wants.check(index, kind)?,
        }
        match item.loc {
            Loc::TooShort | Loc::NoItem => Ok(()),
            Loc::Exrw(_) => {
                self.position(item)?;
                Err(Violation::BadHeader("an item is to be moved by explicit RDMA"))
            }
            Loc::Tbsn { offset, segments } => {
                self.position(item)?;
                self.segments(item, offset, segments)
            }
        }
    }

    /// wire.md E16: in order, disjoint, on word boundaries, within the stream.
    fn position(&mut self, item: &MsgItem<'_>) -> Result<(), Violation> {
        let disp = u64::from(item.disp);
        let max = self.payload + self.excised;
        if disp % 4 != 0 || disp < self.previous_end || disp > max {
            let clamp = |value| u32::try_from(value).unwrap_or(u32::MAX);
            let (min, max) = (clamp(self.previous_end), clamp(max));
            return Err(Violation::Offset { value: item.disp, min, max });
        }
        let padded = u64::from(item.length) + pad_len(item.length as usize) as u64;
        self.excised += padded;
        self.previous_end = disp + padded;
        Ok(())
    }

    /// wire.md E13: whole segments, of received bytes behind the payload.
    fn segments(
        &mut self,
        item: &MsgItem<'_>,
        offset: u32,
        segments: Tbsns<'_>,
    ) -> Result<(), Violation> {
        let mut left = item.length;
        for (nth, number) in segments.iter().enumerate() {
            let Some((transmission, at)) = self.structure.locate(number) else {
                return Err(self.bad_number(number));
            };
            let Some(part) = self.parts.get(transmission as usize) else {
                return Err(self.bad_number(number));
            };
            let offset = if nth == 0 { offset } else { 0 };
            // [RTR] 7.3: the offset counts from the start of the first segment.
            if offset % 4 != 0 || offset >= at.length {
                let max = at.length.saturating_sub(4);
                return Err(Violation::Offset { value: offset, min: 0, max });
            }
            let len = (at.length - offset).min(left);
            let begin = at.start + offset;
            let received = begin >= part.payload_end()
                && begin.checked_add(len).is_some_and(|end| end <= part.byte_len);
            if left == 0 || !received {
                return Err(self.bad_number(number));
            }
            left -= len;
            self.shuffled |= self.last.is_some_and(|last| number <= last);
            self.last = Some(number);
        }
        if left > 0 || segments.is_empty() {
            return Err(self.bad_number(segments.len() as u32));
        }
        Ok(())
    }

    /// Each number at most once. Increasing numbers, as all but a strange peer sends them, are
    /// that without looking; else they are ticked off in a bitmap.
    fn distinct(&self, items: Array<'_, MsgItem<'_>>) -> Result<(), Violation> {
        if !self.shuffled {
            return Ok(());
        }
        let mut seen = [0u64; (GROUP_MAX * STRUCTURE_SEGMENTS_MAX / 64) as usize];
        for item in items.iter() {
            let Loc::Tbsn { segments, .. } = item.loc else { continue };
            for number in segments.iter() {
                let word = seen.get_mut(number as usize / 64);
                let bit = 1 << (number % 64);
                match word {
                    Some(word) if *word & bit == 0 => *word |= bit,
                    _ => return Err(self.bad_number(number)),
                }
            }
        }
        Ok(())
    }

    fn bad_number(&self, value: u32) -> Violation {
        let numbers = self.parts.len() as u32 * self.structure.placement_count();
        Violation::Segment { value, min: 0, max: numbers.saturating_sub(1) }
    }
}
