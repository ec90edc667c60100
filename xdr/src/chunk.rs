//! RDMA segments, and the read, write and reply chunks made of them: the same in both versions.

use crate::array::{Array, List, Wire};
use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::{limit, size};

/// A piece of registered memory (RFC 8166 3.4.3, \[V2\] 4.2; also what \[RTR\] calls
/// `rpcrdma1_segment`, wire.md X3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdmaSegment {
    /// The remote key.
    pub handle: u32,
    /// Bytes.
    pub length: u32,
    /// The remote address, or an offset that the registration defines.
    pub offset: u64,
}

impl Wire<'_> for RdmaSegment {
    const FIXED_LEN: Option<usize> = Some(size::SEGMENT);

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [handle, length, high, low] = reader.words()?;
        Ok(Self { handle, length, offset: u64::from(high) << 32 | u64::from(low) })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let (high, low) = ((self.offset >> 32) as u32, self.offset as u32);
        writer.put_words::<4, { size::SEGMENT }>([self.handle, self.length, high, low])
    }

    #[inline]
    fn encoded_len(&self) -> usize {
        size::SEGMENT
    }
}

/// An entry of the Read list; entries of one position form one chunk (RFC 8166 3.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadSegment {
    /// The position of the data in the XDR stream; a multiple of four.
    pub position: u32,
    /// The memory that contains the data.
    pub target: RdmaSegment,
}

impl Wire<'_> for ReadSegment {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.at_u32();
        let position = reader.u32()?;
        // RFC 8166 3.4.5: every XDR item starts on a word boundary.
        if position % 4 != 0 {
            return Err(DecodeError::BadValue { at, value: position });
        }
        Ok(Self { position, target: RdmaSegment::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let RdmaSegment { handle, length, offset } = self.target;
        let (high, low) = ((offset >> 32) as u32, offset as u32);
        writer.put_words::<5, { 4 + size::SEGMENT }>([self.position, handle, length, high, low])
    }

    fn encoded_len(&self) -> usize {
        4 + size::SEGMENT
    }
}

/// The Read list (RFC 8166 4.3.1).
pub type ReadList<'a> = List<'a, ReadSegment>;

/// A counted array of segments: an entry of the Write list, or the Reply chunk (RFC 8166 3.4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteChunk<'a>(pub Array<'a, RdmaSegment>);

impl<'a> Wire<'a> for WriteChunk<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Array::decode(reader, limit::ITEM_SEGMENTS_MAX).map(Self)
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.0.encode(writer)
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

/// The Write list (RFC 8166 4.3.2).
pub type WriteList<'a> = List<'a, WriteChunk<'a>>;

/// The three lists of RDMA_MSG, RDMA_NOMSG and version one's RDMA_MSGP (RFC 8166 4.3; wire.md X1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkLists<'a> {
    /// The Read list: parts of the call that the responder reads.
    pub reads: ReadList<'a>,
    /// The Write list: memory for single results.
    pub writes: WriteList<'a>,
    /// The Reply chunk: memory for the whole reply.
    pub reply: Option<WriteChunk<'a>>,
}

impl<'a> ChunkLists<'a> {
    /// No chunk at all.
    pub const EMPTY: Self = Self { reads: List::EMPTY, writes: List::EMPTY, reply: None };

    /// Whether all three are absent; an empty Reply chunk counts as present.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let reads = List::decode(reader, limit::READ_SEGMENTS_MAX)?;
        let writes = List::decode(reader, limit::WRITE_CHUNKS_MAX)?;
        let reply = if reader.bool()? { Some(WriteChunk::decode(reader)?) } else { None };
        Ok(Self { reads, writes, reply })
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.reads.encode(writer)?;
        self.writes.encode(writer)?;
        match &self.reply {
            None => writer.put_bool(false),
            Some(chunk) => {
                writer.put_bool(true)?;
                chunk.encode(writer)
            }
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        self.reads.encoded_len()
            + self.writes.encoded_len()
            + 4
            + self.reply.as_ref().map_or(0, Wire::encoded_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_is_no_multiple_of_four_is_refused() {
        let mut bytes = [0; 20];
        for (position, valid) in [(0, true), (4, true), (1, false), (2, false), (255, false)] {
            bytes[3] = position;
            let result = ReadSegment::decode(&mut Reader::new(&bytes));
            assert_eq!(result.is_ok(), valid, "{result:?}");
        }
    }

    #[test]
    fn a_reply_chunk_without_segments_is_not_the_same_as_none() {
        let none = ChunkLists::EMPTY;
        let empty = ChunkLists { reply: Some(WriteChunk::default()), ..none };
        assert!(none.is_empty() && !empty.is_empty());
        assert_eq!((none.encoded_len(), empty.encoded_len()), (12, 16));
    }
}
