//! A received message: its payload stream and its placed items, in the receive buffers.

use core::ops::Range;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Loan, RecvPool, RecvToken};
use rpcrdma_proto::Piece;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::onc::RpcPrefix;

use super::map::{IN_LOANS, ItemAt, Map, WriteChunks};
use super::rdma_target::RdmaTarget;
use crate::api::sink::Sink;
use crate::stats::SharedStats;

/// The receive buffers of one message.
pub(crate) type Buffers = ArrayVec<RecvToken, { GROUP_MAX as usize }>;

/// An RPC message, read in place.
///
/// Payload and items are borrowed from the receive buffers, which return to the device when the
/// message has been processed. A placed segment can be taken out and kept.
#[derive(Debug)]
pub struct Incoming<'a> {
    body: MessageBytes<'a>,
}

/// The location of a message's bytes.
#[derive(Debug)]
enum MessageBytes<'a> {
    /// A plain message: this is its payload.
    Plain(&'a [u8]),
    /// Any other message.
    Mapped(Mapped<'a>),
}

/// A message whose parts are located by a map.
#[derive(Debug)]
struct Mapped<'a> {
    pool: &'a mut RecvPool,
    buffers: &'a mut [RecvToken],
    /// Buffers filled by explicit RDMA.
    rdma_target: RdmaTarget<'a>,
    map: &'a mut Map,
    stats: &'a SharedStats,
}

impl<'a> Incoming<'a> {
    /// A message whose parts are located by the map, to be delivered: its placed bytes are counted.
    pub(crate) fn mapped(
        pool: &'a mut RecvPool,
        buffers: &'a mut [RecvToken],
        rdma_target: RdmaTarget<'a>,
        map: &'a mut Map,
        stats: &'a SharedStats,
    ) -> Incoming<'a> {
        stats.bytes_placed.add(map.placed);
        Incoming { body: MessageBytes::Mapped(Mapped { pool, buffers, rdma_target, map, stats }) }
    }

    /// A message that consists only of payload.
    #[inline]
    pub(crate) fn plain(payload: &'a [u8]) -> Incoming<'a> {
        Incoming { body: MessageBytes::Plain(payload) }
    }

    /// The payload stream: the RPC message without its placed items, from the transaction id on.
    /// One slice for a message of one transmission whose payload lies in the first segment.
    #[inline]
    pub fn payload(&self) -> PayloadStream<'_> {
        PayloadStream { incoming: self, next: 0 }
    }

    /// The payload stream as one slice, if it is contiguous: always so for short messages.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        match &self.body {
            MessageBytes::Plain(payload) => Some(payload),
            MessageBytes::Mapped(mapped) => mapped.contiguous(),
        }
    }

    /// The first word of the payload.
    pub(crate) fn xid(&self) -> u32 {
        let first = self.payload().flatten().take(4);
        first.fold(0, |word, &byte| word << 8 | u32::from(byte))
    }

    /// A reader of the payload stream, positioned behind transaction id and message type.
    pub fn reader(&self) -> PayloadReader<'_> {
        let mut reader = PayloadReader { stream: self.payload(), slice: &[], seen: 0 };
        // The engine has already read these two words of the call.
        let _ = reader.skip(RpcPrefix::LEN);
        reader
    }

    /// The items that were placed outside of the payload stream, in stream order.
    pub fn placed(&self) -> impl ExactSizeIterator<Item = PlacedItem<'_>> {
        let items = self.mapping().map_or(&[][..], |mapped| &mapped.map.items);
        items.iter().map(|&at| PlacedItem { incoming: self, at })
    }

    /// The Write chunks offered for this message, if it is a reply of the base protocol,
    /// which must use them.
    pub(crate) fn chunks(&self) -> Option<WriteChunks> {
        self.mapping().and_then(|mapped| mapped.map.chunks)
    }

    /// Takes a segment of an item out of its receive buffer; a segment of the reserve replaces it.
    ///
    /// `piece` counts the slices of [`PlacedItem::segments`]. Read the payload first: the message
    /// is borrowed anew. Cost: one pool operation, no copy.
    ///
    /// # Errors
    /// [`TakeError`] states the reason; the bytes can still be read and copied.
    pub fn take(&mut self, item: usize, piece: usize) -> Result<Loan, TakeError> {
        match &mut self.body {
            MessageBytes::Plain(_) => Err(TakeError::NoSuchPiece),
            MessageBytes::Mapped(mapped) => mapped.take(item, piece),
        }
    }

    /// Returns the result buffer of a want, without pieces that were taken.
    pub(crate) fn take_sink(&mut self, want: usize) -> Option<Sink> {
        match &mut self.body {
            MessageBytes::Plain(_) => None,
            MessageBytes::Mapped(mapped) => mapped.take_sink(want),
        }
    }

    /// The slice of the payload stream with index `at`.
    #[inline]
    fn slice(&self, at: usize) -> Option<&[u8]> {
        match &self.body {
            MessageBytes::Plain(payload) => (at == 0).then_some(payload),
            MessageBytes::Mapped(mapped) => Some(mapped.bytes(mapped.map.payload.get(at)?)),
        }
    }

    fn mapping(&self) -> Option<&Mapped<'a>> {
        match &self.body {
            MessageBytes::Plain(_) => None,
            MessageBytes::Mapped(mapped) => Some(mapped),
        }
    }
}

impl Mapped<'_> {
    fn contiguous(&self) -> Option<&[u8]> {
        match self.map.payload.as_slice() {
            [piece] => Some(self.bytes(piece)),
            _ => None,
        }
    }

    fn take(&mut self, item: usize, piece: usize) -> Result<Loan, TakeError> {
        let Mapped { pool, buffers, rdma_target, map, stats } = self;
        let entry = *map.items.get(item).ok_or(TakeError::NoSuchPiece)?;
        if piece >= entry.count as usize {
            return Err(TakeError::NoSuchPiece);
        }
        let at = entry.first as usize + piece;
        let Piece { part, segment, offset, len } = map.pieces[at];
        if map.taken[at] {
            return Err(TakeError::Taken);
        }
        // The segment holds payload in front of the item.
        if offset != 0 {
            return Err(TakeError::Shared { offset });
        }
        let mut loan = if part == IN_LOANS {
            let loan = rdma_target.loans.get_mut(segment as usize).and_then(Option::take);
            loan.ok_or(TakeError::Taken)?
        } else {
            let Some(loan) = pool.detach(&mut buffers[part as usize], segment as usize) else {
                stats.spares_out.add(1);
                return Err(TakeError::NoSpare);
            };
            loan
        };
        map.taken[at] = true;
        stats.taken.add(1);
        loan.truncate(len as usize);
        Ok(loan)
    }

    fn take_sink(&mut self, want: usize) -> Option<Sink> {
        let sink = self.rdma_target.take_sink(want)?;
        let Map { items, pieces, taken, .. } = &mut *self.map;
        for item in items.iter().filter(|item| item.index as usize == want) {
            let range = item.first as usize..(item.first + item.count) as usize;
            for at in range.filter(|&at| pieces[at].part == IN_LOANS) {
                taken[at] = true;
            }
        }
        Some(sink)
    }

    #[cold]
    fn rdma_bytes(&self, at: u32, range: Range<usize>) -> &[u8] {
        let loan = self.rdma_target.loans.get(at as usize).and_then(Option::as_deref);
        loan.and_then(|bytes| bytes.get(range)).unwrap_or_default()
    }

    #[inline]
    fn bytes(&self, piece: &Piece) -> &[u8] {
        let range = piece.offset as usize..(piece.offset + piece.len) as usize;
        if piece.part == IN_LOANS {
            return self.rdma_bytes(piece.segment, range);
        }
        let segment = self.pool.segment(&self.buffers[piece.part as usize], piece.segment as usize);
        &segment[range]
    }
}

/// Why a segment could not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The message has no such item, or the item no such piece.
    #[error("there is no such piece")]
    NoSuchPiece,
    /// It was taken before.
    #[error("the segment was taken before")]
    Taken,
    /// The segment holds other data in front of the item.
    #[error("the segment holds {offset} bytes of something else in front of the item")]
    Shared {
        /// Where the item begins.
        offset: u32,
    },
    /// The reserve is empty: loans must return first.
    #[error("no spare segment is left to put in its place")]
    NoSpare,
}

/// An item outside of the payload stream.
#[derive(Debug, Clone, Copy)]
pub struct PlacedItem<'a> {
    incoming: &'a Incoming<'a>,
    at: ItemAt,
}

impl<'a> PlacedItem<'a> {
    /// Its position in the unreduced XDR stream. A reply of the base protocol does not state it for
    /// its Write chunks; their order is that of the stream.
    pub fn position(&self) -> Option<u32> {
        self.at.position
    }

    /// In a reply: the want that it answers, by the order of requests.
    pub fn index(&self) -> usize {
        self.at.index as usize
    }

    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        self.at.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes, segment by segment. Slices that were taken are empty.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let incoming = self.incoming;
        let ItemAt { first, count, .. } = self.at;
        (first as usize..(first + count) as usize).map(move |at| match incoming.mapping() {
            Some(mapped) if !mapped.map.taken[at] => mapped.bytes(&mapped.map.pieces[at]),
            _ => &[],
        })
    }
}

/// The slices of a payload stream, in order.
#[derive(Debug, Clone)]
pub struct PayloadStream<'a> {
    incoming: &'a Incoming<'a>,
    next: usize,
}

impl<'a> Iterator for PayloadStream<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let slice = self.incoming.slice(self.next)?;
        self.next += 1;
        Some(slice)
    }
}

/// Reads XDR from a payload stream, across its slices.
///
/// ```
/// use rpcrdma_engine::PayloadReader;
///
/// let mut reader = PayloadReader::of(&[0, 0, 0, 7, 0, 0, 0, 2, b'h', b'i', 0, 0]);
/// assert_eq!(reader.u32(), Ok(7));
/// let mut name = [0; 8];
/// let name = reader.opaque_into(&mut name)?;
/// assert_eq!(name, b"hi");
/// assert!(reader.u32().is_err(), "the message ends here");
/// # Ok::<(), rpcrdma_engine::ReadError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PayloadReader<'a> {
    stream: PayloadStream<'a>,
    slice: &'a [u8],
    /// Bytes of the slices up to and including `slice`.
    seen: usize,
}

/// The payload stream ends before the requested data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message ends too early")]
pub struct EndOfMessage;

/// Why a value cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The message ends before it.
    #[error(transparent)]
    End(#[from] EndOfMessage),
    /// Opaque data or a string is longer than the caller allows.
    #[error("{len} bytes of opaque data; at most {max} are allowed")]
    TooLong {
        /// Its count.
        len: usize,
        /// The most that is allowed.
        max: usize,
    },
    /// A boolean, or the word in front of optional data, is neither 0 nor 1.
    #[error("a boolean is {value}; allowed: 0 and 1")]
    BadBool {
        /// What came.
        value: u32,
    },
    /// A string is not UTF-8.
    #[error("a string is not UTF-8 from byte {valid_up_to} on")]
    BadText {
        /// Bytes of it that are.
        valid_up_to: usize,
    },
}

impl<'a> PayloadReader<'a> {
    /// A reader of payload that a program has kept. Positions count from its first byte.
    pub fn of(bytes: &'a [u8]) -> PayloadReader<'a> {
        let nothing = &Incoming { body: MessageBytes::Plain(&[]) };
        let stream = PayloadStream { incoming: nothing, next: 1 };
        PayloadReader { stream, slice: bytes, seen: bytes.len() }
    }

    /// Bytes read so far, from the transaction id on. Placed items are not in the payload: add the
    /// padded lengths of those before it to get the position in the unreduced XDR stream.
    pub fn position(&self) -> usize {
        self.seen - self.slice.len()
    }

    /// An unsigned integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, EndOfMessage> {
        if let Some((word, rest)) = self.slice.split_first_chunk() {
            self.slice = rest;
            return Ok(u32::from_be_bytes(*word));
        }
        let mut word = [0; 4];
        self.bytes_into(&mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, EndOfMessage> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// An integer.
    pub fn i32(&mut self) -> Result<i32, EndOfMessage> {
        Ok(self.u32()?.cast_signed())
    }

    /// A hyper integer.
    pub fn i64(&mut self) -> Result<i64, EndOfMessage> {
        Ok(self.u64()?.cast_signed())
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`ReadError`], also for a value that is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, ReadError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(ReadError::BadBool { value }),
        }
    }

    /// Optional data, as [`Payload::put_optional`](crate::Payload::put_optional) writes it: whether
    /// there is a value, and the value by `read`.
    ///
    /// # Errors
    /// [`ReadError`], also that of `read`.
    pub fn optional<T, E: Into<ReadError>>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<Option<T>, ReadError> {
        match self.bool()? {
            true => read(self).map(Some).map_err(Into::into),
            false => Ok(None),
        }
    }

    /// Fixed-length opaque data, as [`Payload::put_fixed`](crate::Payload::put_fixed) writes it:
    /// bytes into `out`, padding.
    pub fn fixed_into(&mut self, out: &mut [u8]) -> Result<(), EndOfMessage> {
        let padding = out.len().next_multiple_of(4) - out.len();
        self.bytes_into(out)?;
        self.skip(padding)
    }

    /// Variable-length opaque data of at most `max` bytes: count, bytes, padding. Allocates no more
    /// than the message has.
    ///
    /// # Errors
    /// [`ReadError`]. If the data is too long only the count is read.
    pub fn opaque_vec(&mut self, max: usize) -> Result<Vec<u8>, ReadError> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(ReadError::TooLong { len, max });
        }
        let mut bytes = Vec::new();
        while bytes.len() < len {
            bytes.extend_from_slice(self.some(len - bytes.len())?);
        }
        self.skip(len.next_multiple_of(4) - len)?;
        Ok(bytes)
    }

    /// A string of at most `max` bytes: count, bytes, padding.
    ///
    /// # Errors
    /// As [`PayloadReader::opaque_vec`], and if it is not UTF-8.
    pub fn string(&mut self, max: usize) -> Result<String, ReadError> {
        String::from_utf8(self.opaque_vec(max)?).map_err(|error| {
            let valid_up_to = error.utf8_error().valid_up_to();
            ReadError::BadText { valid_up_to }
        })
    }

    /// Bytes without padding, into `out`.
    pub fn bytes_into(&mut self, mut out: &mut [u8]) -> Result<(), EndOfMessage> {
        while !out.is_empty() {
            let part = self.some(out.len())?;
            let (now, later) = out.split_at_mut(part.len());
            now.copy_from_slice(part);
            out = later;
        }
        Ok(())
    }

    /// Variable-length opaque data or a string, as
    /// [`Payload::put_opaque`](crate::Payload::put_opaque) writes it: count, bytes, padding. Copies
    /// them to the beginning of `out`, whose length is the maximum, and returns them.
    ///
    /// # Errors
    /// [`ReadError`]. If the data is too long only the count is read.
    pub fn opaque_into<'b>(&mut self, out: &'b mut [u8]) -> Result<&'b mut [u8], ReadError> {
        let (len, max) = (self.u32()? as usize, out.len());
        let out = out.get_mut(..len).ok_or(ReadError::TooLong { len, max })?;
        self.fixed_into(out)?;
        Ok(out)
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, mut len: usize) -> Result<(), EndOfMessage> {
        while len > 0 {
            len -= self.some(len)?.len();
        }
        Ok(())
    }

    /// At most `max` bytes, as many as are contiguous; at least one.
    pub fn some(&mut self, max: usize) -> Result<&'a [u8], EndOfMessage> {
        let (now, later) = match self.together() {
            [] => return Err(EndOfMessage),
            slice => slice.split_at(max.min(slice.len())),
        };
        self.slice = later;
        Ok(now)
    }

    /// All contiguous bytes from here on, without consuming them; none at the end.
    #[inline]
    pub(crate) fn together(&mut self) -> &'a [u8] {
        while self.slice.is_empty() {
            let Some(slice) = self.stream.next() else { break };
            self.slice = slice;
            self.seen += slice.len();
        }
        self.slice
    }
}
