//! The placed items of a received message, wherever its header describes them.

use rpcrdma_xdr::array::{Array, Extent, Iter, List};
use rpcrdma_xdr::chunk::{RdmaSegment, ReadList, ReadSegment, WriteChunk, WriteList};
use rpcrdma_xdr::rtr::placement::{Loc, MsgItem, TbsnIter, Tbsns};
use rpcrdma_xdr::rtr::structure::RecvStructure;

use crate::placement::direct::ItemKind;
use crate::placement::find::Piece;
use crate::segments::total_len;

/// The valid items of a message that are not in its payload stream.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    pub(crate) items: Items<'a>,
    pub(crate) sums: Sums,
}

/// A [`Placed`] without a reference to its message, to be kept with the message.
#[derive(Debug, Clone, Copy)]
pub struct KeptPlaced {
    items: KeptItems,
    sums: Sums,
}

/// What is true of a message as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sums {
    /// Bytes of the message itself, if it is not in the transmission.
    pub(crate) body_len: Option<u32>,
    pub(crate) payload_len: u32,
    pub(crate) virtual_len: u32,
    /// Whether none of it is in the memory of the caller.
    pub(crate) is_here: bool,
}

/// Where the header describes the items.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Items<'a> {
    /// In the items of a transmit request, or of a transmit response.
    Listed { items: Array<'a, MsgItem<'a>>, is_reply: bool },
    /// In the Read list of a call.
    Read { reads: ReadList<'a> },
    /// In the Read list of a call whose only chunk is an item.
    OneRead { reads: ReadList<'a>, item: ReadItem },
    /// In the Write list of a reply.
    Written { writes: WriteList<'a> },
}

/// Where the lists of [`Items`] are in the first segment of the message.
#[derive(Debug, Clone, Copy)]
enum KeptItems {
    Listed { items: Extent, is_reply: bool },
    Read { reads: Extent },
    OneRead { reads: Extent, item: ReadItem },
    Written { writes: Extent },
}

/// An item of a Read list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadItem {
    pub(crate) position: u32,
    pub(crate) len: u32,
}

/// An item that is not in the payload stream.
#[derive(Debug, Clone, Copy)]
pub struct PlacedItem<'a> {
    /// Its index among the items of the header: in a reply, the result that it answers.
    pub index: usize,
    /// The position of its first byte in the stream with nothing excised, if the message contains
    /// it.
    pub position: Option<u32>,
    /// Its bytes, without padding. The padding may be among them if the peer reads them from
    /// memory that was offered with it (RFC 8166 3.4.5.2).
    pub len: u32,
    /// Where it is.
    pub at: Place<'a>,
}

/// Where something is that is not in the payload stream.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// In the receive buffers of the message.
    Sent(Sent<'a>),
    /// In the memory of the caller, to be fetched by RDMA Read.
    Remote(Segments<'a>),
    /// In the memory that the call offered for it, from its start on.
    Sink,
}

/// Placement segments of the receive buffers of a message.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    offset: u32,
    segments: Tbsns<'a>,
}

/// The whole of a message, where it is not in the transmission.
#[derive(Debug, Clone, Copy)]
pub struct MessageBody<'a> {
    /// Its bytes.
    pub len: u32,
    /// [`Place::Remote`] in a call, [`Place::Sink`] in a reply.
    pub at: Place<'a>,
}

/// Memory of the peer that holds one thing: so many bytes of these segments, in order.
#[derive(Debug, Clone, Copy)]
pub struct Segments<'a> {
    pub(crate) source: SegmentSource<'a>,
    pub(crate) len: u32,
}

/// Where the header names segments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SegmentSource<'a> {
    /// In an item of the extension.
    Listed(Array<'a, RdmaSegment>),
    /// In the Read list, in the entries of this position.
    Read { reads: ReadList<'a>, position: u32 },
}

impl<'a> Placed<'a> {
    /// The items that are not in the payload stream, in order.
    #[must_use]
    pub fn iter(&self) -> PlacedItems<'a> {
        PlacedItems(match self.items {
            Items::Listed { items, is_reply } => {
                PlacedSource::Listed { items: items.iter(), next: 0, is_reply }
            }
            Items::Read { reads } => PlacedSource::Read(ReadItems::new(reads)),
            Items::OneRead { reads, item } => {
                PlacedSource::OneRead(Some(read_item(reads, 0, item)))
            }
            Items::Written { writes } => PlacedSource::Written { writes: writes.iter(), next: 0 },
        })
    }

    /// The placement of each item of the header of a transmit request or response; in a reply, of
    /// each result of the call. Nothing for a base message.
    pub fn results(&self) -> impl Iterator<Item = ItemKind> + use<'a> {
        let items = match self.items {
            Items::Listed { items, .. } => items,
            Items::Read { .. } | Items::OneRead { .. } | Items::Written { .. } => Array::EMPTY,
        };
        items.iter().map(|item| ItemKind::of(&item.loc))
    }

    /// The message itself, if it is not in the transmission. Once its first bytes have arrived,
    /// [`crate::Connection::check_body`] checks them.
    #[must_use]
    pub fn body(&self) -> Option<MessageBody<'a>> {
        let len = self.sums.body_len?;
        let at = match self.items {
            Items::Read { reads } => {
                let source = SegmentSource::Read { reads, position: 0 };
                Place::Remote(Segments { source, len })
            }
            Items::Listed { .. } | Items::OneRead { .. } | Items::Written { .. } => Place::Sink,
        };
        Some(MessageBody { len, at })
    }

    /// Whether there is nothing to be fetched from the memory of the caller.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.sums.is_here
    }

    /// Bytes of the payload stream of all transmissions.
    #[must_use]
    pub fn payload_len(&self) -> u32 {
        self.sums.payload_len
    }

    /// Bytes of the message with nothing excised.
    #[must_use]
    pub fn virtual_len(&self) -> u32 {
        self.sums.virtual_len
    }

    /// What was found, to be kept with the message and used again without decoding or checking it.
    #[must_use]
    pub fn keep(&self) -> KeptPlaced {
        let items = match self.items {
            Items::Listed { items, is_reply } => {
                KeptItems::Listed { items: items.extent(), is_reply }
            }
            Items::Read { reads } => KeptItems::Read { reads: reads.extent() },
            Items::OneRead { reads, item } => KeptItems::OneRead { reads: reads.extent(), item },
            Items::Written { writes } => KeptItems::Written { writes: writes.extent() },
        };
        KeptPlaced { items, sums: self.sums }
    }
}

impl KeptPlaced {
    /// A reply whose header has these Write chunks.
    pub(crate) fn written(writes: Extent, payload_len: u32, virtual_len: u32) -> Self {
        let items = KeptItems::Written { writes };
        Self { items, sums: Sums { body_len: None, payload_len, virtual_len, is_here: true } }
    }

    /// A call whose Read list has only this item, which has bytes.
    pub(crate) fn one_read(
        reads: Extent,
        item: ReadItem,
        payload_len: u32,
        virtual_len: u32,
    ) -> Self {
        let items = KeptItems::OneRead { reads, item };
        Self { items, sums: Sums { body_len: None, payload_len, virtual_len, is_here: false } }
    }

    /// What was found in the message with this first segment.
    #[must_use]
    pub fn of<'a>(&self, first_segment: &'a [u8]) -> Placed<'a> {
        let items = match self.items {
            KeptItems::Listed { items, is_reply } => {
                Items::Listed { items: Array::at(first_segment, items), is_reply }
            }
            KeptItems::Read { reads } => Items::Read { reads: List::at(first_segment, reads) },
            KeptItems::OneRead { reads, item } => {
                Items::OneRead { reads: List::at(first_segment, reads), item }
            }
            KeptItems::Written { writes } => {
                Items::Written { writes: List::at(first_segment, writes) }
            }
        };
        Placed { items, sums: self.sums }
    }
}

/// The items that are not in the payload stream, in order.
#[derive(Clone)]
pub struct PlacedItems<'a>(PlacedSource<'a>);

#[derive(Clone)]
enum PlacedSource<'a> {
    Listed { items: Iter<'a, MsgItem<'a>>, next: usize, is_reply: bool },
    Read(ReadItems<'a>),
    OneRead(Option<PlacedItem<'a>>),
    Written { writes: Iter<'a, WriteChunk<'a>>, next: usize },
}

impl<'a> Iterator for PlacedItems<'a> {
    type Item = PlacedItem<'a>;

    fn next(&mut self) -> Option<PlacedItem<'a>> {
        match &mut self.0 {
            PlacedSource::Listed { items, next, is_reply } => loop {
                let (index, item) = (*next, items.next()?);
                *next += 1;
                if let Some(at) = place_of(&item, *is_reply) {
                    let (position, len) = (Some(item.disp), item.length);
                    return Some(PlacedItem { index, position, len, at });
                }
            },
            PlacedSource::Read(items) => items.next(),
            PlacedSource::OneRead(item) => item.take(),
            PlacedSource::Written { writes, next } => loop {
                let (index, chunk) = (*next, writes.next()?);
                *next += 1;
                if let Some(item) = written_item(index, chunk) {
                    return Some(item);
                }
            },
        }
    }
}

/// Where an item of the extension is, if it is not in the payload stream.
fn place_of<'a>(item: &MsgItem<'a>, is_reply: bool) -> Option<Place<'a>> {
    match item.loc {
        Loc::Tbsn { offset, segments } => Some(Place::Sent(Sent { offset, segments })),
        Loc::Exrw(_) if is_reply => Some(Place::Sink),
        Loc::Exrw(list) => {
            let source = SegmentSource::Listed(list);
            Some(Place::Remote(Segments { source, len: item.length }))
        }
        Loc::TooShort | Loc::NoItem => None,
    }
}

impl<'a> PlacedItem<'a> {
    /// Where its bytes are in the receive buffers, in order; nowhere if it was not placed by Send.
    /// `structure` is the one it was resolved with.
    pub fn pieces<'s>(&self, structure: &'s RecvStructure) -> ItemPieces<'a, 's> {
        let (sent, left) = match self.at {
            Place::Sent(sent) => (sent, self.len),
            Place::Remote(_) | Place::Sink => (Sent::NOWHERE, 0),
        };
        ItemPieces { structure, numbers: sent.segments.iter(), offset: sent.offset, left }
    }
}

impl Sent<'_> {
    const NOWHERE: Self = Self { offset: 0, segments: Tbsns::from_slice(&[]) };
}

impl<'a> Segments<'a> {
    /// The segments, each with as many bytes as belong to the thing; none is empty.
    #[must_use]
    pub fn iter(&self) -> SegmentIter<'a> {
        let source = match self.source {
            SegmentSource::Listed(list) => SegmentIterSource::Listed(list.iter()),
            SegmentSource::Read { reads, position } => {
                SegmentIterSource::Read { reads: reads.iter(), position }
            }
        };
        SegmentIter { source, left: self.len }
    }
}

/// The segments of one thing.
#[derive(Clone)]
pub struct SegmentIter<'a> {
    source: SegmentIterSource<'a>,
    left: u32,
}

#[derive(Clone)]
enum SegmentIterSource<'a> {
    Listed(Iter<'a, RdmaSegment>),
    Read { reads: Iter<'a, ReadSegment>, position: u32 },
}

impl Iterator for SegmentIter<'_> {
    type Item = RdmaSegment;

    fn next(&mut self) -> Option<RdmaSegment> {
        while self.left > 0 {
            let segment = match &mut self.source {
                SegmentIterSource::Listed(list) => list.next()?,
                SegmentIterSource::Read { reads, position } => {
                    reads.find(|read| read.position == *position)?.target
                }
            };
            let length = segment.length.min(self.left);
            if length > 0 {
                self.left -= length;
                return Some(RdmaSegment { length, ..segment });
            }
        }
        None
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

/// The items of a call's Read list, in order.
#[derive(Clone)]
struct ReadItems<'a> {
    chunks: ReadChunks<'a>,
    index: usize,
}

impl<'a> ReadItems<'a> {
    fn new(reads: ReadList<'a>) -> Self {
        Self { chunks: ReadChunks::new(reads), index: 0 }
    }
}

impl<'a> Iterator for ReadItems<'a> {
    type Item = PlacedItem<'a>;

    fn next(&mut self) -> Option<PlacedItem<'a>> {
        let chunk = self.chunks.find(|chunk| chunk.position > 0 && chunk.len > 0)?;
        let index = self.index;
        self.index += 1;
        let item = ReadItem { position: chunk.position, len: chunk.message_len() };
        Some(read_item(self.chunks.reads, index, item))
    }
}

fn read_item(reads: ReadList<'_>, index: usize, item: ReadItem) -> PlacedItem<'_> {
    let ReadItem { position, len } = item;
    let at = Place::Remote(Segments { source: SegmentSource::Read { reads, position }, len });
    PlacedItem { index, position: Some(position), len, at }
}

/// The item that was written to a chunk of a reply, if one was.
fn written_item<'a>(index: usize, WriteChunk(segments): WriteChunk<'_>) -> Option<PlacedItem<'a>> {
    let len = total_len(segments.iter()) as u32;
    (len > 0).then_some(PlacedItem { index, position: None, len, at: Place::Sink })
}

/// The Read chunks of a list, by rising position.
///
/// RFC 8166 3.4.5: entries of one position are one chunk, in the order of the list, wherever they
/// stand in it (wire.md C1). Each chunk is found by a look at the whole list.
#[derive(Clone)]
pub(crate) struct ReadChunks<'a> {
    reads: ReadList<'a>,
    /// The first position that may be next; none if there is no more.
    next: Option<u32>,
}

/// A Read chunk.
pub(crate) struct ReadChunk {
    pub(crate) position: u32,
    pub(crate) len: u64,
}

impl<'a> ReadChunks<'a> {
    pub(crate) fn new(reads: ReadList<'a>) -> Self {
        Self { reads, next: Some(0) }
    }
}

impl Iterator for ReadChunks<'_> {
    type Item = ReadChunk;

    fn next(&mut self) -> Option<ReadChunk> {
        let first = self.next.take()?;
        let (mut lowest, mut has_more) = (None::<ReadChunk>, false);
        for ReadSegment { position, target } in self.reads.iter() {
            let len = u64::from(target.length);
            match &mut lowest {
                _ if position < first => {}
                Some(chunk) if chunk.position == position => chunk.len += len,
                Some(chunk) if chunk.position < position => has_more = true,
                other => has_more |= other.replace(ReadChunk { position, len }).is_some(),
            }
        }
        let chunk = lowest?;
        self.next = has_more.then(|| chunk.position + 1);
        Some(chunk)
    }
}

impl ReadChunk {
    /// Its length, which is known to be that of a message.
    pub(crate) fn message_len(&self) -> u32 {
        u32::try_from(self.len).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn an_item_that_is_shorter_than_its_segments_ends_where_its_length_ends() {
        let segment = |offset, length| RdmaSegment { handle: 7, length, offset };
        let listed = [segment(0, 4), segment(100, 0), segment(200, 4), segment(300, 4)];
        let of = |len| {
            let source = SegmentSource::Listed(Array::from_slice(&listed));
            let segments = Segments { source, len }.iter();
            segments.map(|segment| (segment.offset, segment.length)).collect::<Vec<_>>()
        };
        assert_eq!(of(3), [(0, 3)]);
        assert_eq!(of(5), [(0, 4), (200, 1)]);
        assert_eq!(of(8), [(0, 4), (200, 4)]);
        assert_eq!(of(12), [(0, 4), (200, 4), (300, 4)]);
    }
}
