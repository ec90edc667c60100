//! The headers of a base message with one chunk: fixed structures around a list of segments.
//!
//! ```text
//!   OneRead     | xid vers credit MSG | 1 position segment 0 | 0 | 0 |
//!   OneWrite    | xid vers credit MSG | 0 | 1 n | n segments | 0 | 0 |
//! ```
//! All other base headers with chunks are variable, and only the codec reads them
//! ([`crate::header`]).

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::array::Extent;
use crate::chunk::RdmaSegment;
use crate::cursor::Writer;
use crate::error::NoRoom;
use crate::numbers::{limit, proc, size};
use crate::rtr::fixed::Stamp;

/// An RDMA segment as a fixed structure.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FixedSegment {
    /// The remote key.
    pub handle: U32,
    /// Bytes.
    pub length: U32,
    /// The remote address, or an offset that the registration defines.
    pub offset: U64,
}

impl FixedSegment {
    /// As a value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> RdmaSegment {
        let Self { handle, length, offset } = self;
        RdmaSegment { handle: handle.get(), length: length.get(), offset: offset.get() }
    }
}

/// RDMA_MSG with one entry in its Read list, and no other chunk.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OneRead {
    /// The first words.
    pub start: BaseStart,
    mark: U32,
    /// The position of the data in the XDR stream, unchecked.
    pub position: U32,
    /// The memory that contains the data.
    pub target: FixedSegment,
    /// The ends of all three lists.
    end: [U32; 3],
}

/// The first words of a base header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BaseStart {
    /// The transaction (`rdma_xid`).
    pub xid: U32,
    /// The version (`rdma_vers`).
    pub vers: U32,
    /// Credits requested or granted (`rdma_credit`).
    pub credit: U32,
    /// The procedure (`rdma_proc`).
    proc: U32,
}

impl BaseStart {
    /// Those of a header of this procedure.
    #[inline]
    #[must_use]
    pub fn new(xid: u32, Stamp { vers, credit }: Stamp, proc: u32) -> Self {
        let (xid, vers, credit) = (xid.into(), vers.into(), credit.into());
        Self { xid, vers, credit, proc: proc.into() }
    }
}

impl OneRead {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();
    /// Where the entry of the Read list is in the header.
    pub const LIST: Extent = Extent::one(size_of::<BaseStart>() as u32, ENTRY_LEN as u32);

    /// The header of a message, if it has exactly this form.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<&Self> {
        let (header, _) = Self::ref_from_prefix(bytes).ok()?;
        let is_it = header.start.proc.get() == proc::MSG
            && header.mark == ONE
            && header.end == [U32::ZERO; 3];
        is_it.then_some(header)
    }
}

/// RDMA_MSG with one chunk in its Write list, and no other.
#[derive(Clone, Copy, Debug)]
pub struct OneWrite<'a> {
    /// The first words.
    pub start: &'a BaseStart,
    /// Its Write list, to be kept for the reply.
    pub list: &'a [u8],
    /// The segments of its chunk.
    pub segments: &'a [FixedSegment],
    /// Bytes of the header.
    pub len: u32,
}

/// What precedes the segments in a Write list of one chunk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ListStart {
    mark: U32,
    count: U32,
}

impl<'a> OneWrite<'a> {
    /// The header of a message, if it has exactly this form.
    #[inline]
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (start, rest) = BaseStart::ref_from_prefix(bytes).ok()?;
        let (reads, rest) = U32::ref_from_prefix(rest).ok()?;
        let segments = Self::segments(rest)?;
        let (list, rest) = rest.split_at_checked(list_len(segments.len()))?;
        let (reply, _) = U32::ref_from_prefix(rest).ok()?;
        let len = header_len(segments.len() as u32);
        let is_it = start.proc.get() == proc::MSG && *reads == U32::ZERO && *reply == U32::ZERO;
        is_it.then_some(Self { start, list, segments, len })
    }

    /// The segments of the chunk of a Write list, if the bytes begin with a list of one.
    #[inline]
    #[must_use]
    pub fn segments(list: &'a [u8]) -> Option<&'a [FixedSegment]> {
        let (ListStart { mark, count }, rest) = ListStart::ref_from_prefix(list).ok()?;
        if *mark != ONE || count.get() > limit::ITEM_SEGMENTS_MAX {
            return None;
        }
        let count = count.get() as usize;
        let (segments, rest) = <[FixedSegment]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let (end, _) = U32::ref_from_prefix(rest).ok()?;
        (*end == U32::ZERO).then_some(segments)
    }

    /// Where the chunk is in the header.
    #[inline]
    #[must_use]
    pub fn extent(&self) -> Extent {
        Self::extent_of(self.list.len()).copied_to((size_of::<BaseStart>() + WORD) as u32)
    }

    /// Where the chunk is in a Write list of so many bytes.
    #[inline]
    #[must_use]
    pub fn extent_of(list_len: usize) -> Extent {
        Extent::one(0, list_len.saturating_sub(WORD) as u32)
    }

    /// Puts the header of a reply, whose `len` bytes fill these segments in order (RFC 8166 3.4.6).
    ///
    /// # Errors
    /// [`NoRoom`] if the writer has fewer bytes than the [header](header_len).
    pub fn put_filled(
        writer: &mut Writer<'_>,
        (xid, stamp): (u32, Stamp),
        segments: &[FixedSegment],
        len: u32,
    ) -> Result<(), NoRoom> {
        writer.put(&BaseStart::new(xid, stamp, proc::MSG))?;
        let list = ListStart { mark: ONE, count: (segments.len() as u32).into() };
        writer.put(&(U32::ZERO))?;
        writer.put(&list)?;
        let mut left = len;
        for segment in segments {
            let length = segment.length.get().min(left);
            left -= length;
            writer.put(&FixedSegment { length: length.into(), ..*segment })?;
        }
        writer.put(&[U32::ZERO; 2])
    }
}

/// Bytes of a header with one Write chunk of so many segments.
#[inline]
#[must_use]
pub const fn header_len(segments: u32) -> u32 {
    (size::HEADER_MIN + size_of::<ListStart>()) as u32 + segments * size::SEGMENT as u32
}

const fn list_len(segments: usize) -> usize {
    size_of::<ListStart>() + segments * size_of::<FixedSegment>() + WORD
}

const WORD: usize = 4;
/// Bytes of an entry of the Read list, with its mark.
const ENTRY_LEN: usize = 2 * WORD + size_of::<FixedSegment>();
const ONE: U32 = U32::new(1);
const _: () = assert!(size_of::<FixedSegment>() == size::SEGMENT);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{Array, List};
    use crate::chunk::{ChunkLists, ReadSegment, WriteChunk};
    use crate::header::{Body, Header};
    use std::vec::Vec;

    const STAMP: Stamp = Stamp { vers: 1, credit: 9 };
    const SEGMENT: RdmaSegment = RdmaSegment { handle: 3, length: 100, offset: 1 << 40 | 5 };

    fn coded(chunks: ChunkLists<'_>) -> Vec<u8> {
        let header = Header { xid: 7, vers: 1, credit: 9, body: Body::Msg(chunks) };
        let mut bytes = [0; 8192];
        let mut writer = Writer::new(&mut bytes);
        header.encode(&mut writer).expect("enough room");
        writer.written().to_vec()
    }

    fn one_read() -> Vec<u8> {
        let reads = [ReadSegment { position: 40, target: SEGMENT }];
        coded(ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY })
    }

    fn one_write(segments: &[RdmaSegment]) -> Vec<u8> {
        let writes = [WriteChunk(Array::from_slice(segments))];
        coded(ChunkLists { writes: List::from_slice(&writes), ..ChunkLists::EMPTY })
    }

    /// The words whose lowest bit decides whether the header has this form.
    fn determining(bytes: &[u8], is_read: impl Fn(&[u8]) -> bool) -> Vec<usize> {
        let other = |word: &usize| {
            let mut bytes = bytes.to_vec();
            bytes[4 * word + 3] ^= 1;
            !is_read(&bytes)
        };
        (0..bytes.len() / 4).filter(other).collect()
    }

    #[test]
    fn a_header_with_one_read_segment_equals_that_of_the_codec() {
        let bytes = one_read();
        let read = OneRead::read(&bytes).expect("of this form");
        assert_eq!(bytes.len(), OneRead::LEN);
        assert_eq!((read.start.xid.get(), read.start.vers.get()), (7, 1));
        assert_eq!((read.start.credit.get(), read.position.get()), (9, 40));
        assert_eq!(read.target.get(), SEGMENT);
        let list = List::<ReadSegment>::at(&bytes, OneRead::LIST);
        assert_eq!(
            list.iter().collect::<Vec<_>>(),
            [ReadSegment { position: 40, target: SEGMENT }]
        );
        assert!(OneRead::read(&bytes[..bytes.len() - 1]).is_none());
        assert!(OneRead::read(&one_write(&[SEGMENT])).is_none());
        // Procedure, mark, and the three ends.
        assert_eq!(determining(&bytes, |bytes| OneRead::read(bytes).is_some()), [3, 4, 10, 11, 12]);
    }

    #[test]
    fn a_header_with_one_write_chunk_equals_that_of_the_codec() {
        for count in [0, 1, 4, 256] {
            let segments: Vec<_> =
                (0..count).map(|handle| RdmaSegment { handle, ..SEGMENT }).collect();
            let bytes = one_write(&segments);
            let write = OneWrite::read(&bytes).expect("of this form");
            assert_eq!((write.len as usize, write.start.xid.get()), (bytes.len(), 7));
            let is_same = |segments: &[FixedSegment], due: &[RdmaSegment]| {
                segments.iter().map(FixedSegment::get).eq(due.iter().copied())
            };
            assert!(is_same(write.segments, &segments));
            let kept = OneWrite::segments(write.list).expect("a list of one");
            assert!(is_same(kept, &segments));
            let kept = (write.list, OneWrite::extent_of(write.list.len()));
            for (bytes, extent) in [kept, (&bytes[..], write.extent())] {
                let list = List::<WriteChunk<'_>>::at(bytes, extent).iter().collect::<Vec<_>>();
                assert_eq!(list, [WriteChunk(Array::from_slice(&segments))]);
            }
            assert!(OneWrite::read(&bytes[..bytes.len() - 1]).is_none());
            assert!(OneWrite::segments(&write.list[..write.list.len() - 1]).is_none());
        }
        let many = [SEGMENT; 257];
        assert!(OneWrite::read(&one_write(&many)).is_none(), "a chunk has at most 256 segments");
        let bytes = one_write(&[SEGMENT; 2]);
        let is_read = |bytes: &[u8]| OneWrite::read(bytes).is_some();
        // Procedure, Read list, mark, count, the end of the Write list, and the Reply chunk.
        assert_eq!(determining(&bytes, is_read), [3, 4, 5, 6, 15, 16]);
        assert!(OneWrite::read(&one_read()).is_none());
    }

    #[test]
    fn a_filled_chunk_equals_that_of_the_codec() {
        let offered = [SEGMENT, RdmaSegment { length: 0, ..SEGMENT }, SEGMENT];
        let bytes = one_write(&offered);
        let segments = OneWrite::read(&bytes).expect("of this form").segments;
        for (len, due) in [(0, [0; 3]), (7, [7, 0, 0]), (100, [100, 0, 0]), (107, [100, 0, 7])] {
            let filled = core::array::from_fn::<_, 3, _>(|at| RdmaSegment {
                length: due[at],
                ..offered[at]
            });
            let mut header = std::vec![0; header_len(3) as usize];
            let mut writer = Writer::new(&mut header);
            OneWrite::put_filled(&mut writer, (7, STAMP), segments, len).expect("as long");
            assert_eq!(header, one_write(&filled));
        }
        let mut short = [0; 27];
        let put = OneWrite::put_filled(&mut Writer::new(&mut short), (7, STAMP), segments, 1);
        assert!(put.is_err());
    }
}
