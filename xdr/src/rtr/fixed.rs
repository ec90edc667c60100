//! The headers of the data path as fixed structures, which are read and written without a codec.
//!
//! ```text
//!   Msg               | xid vers credit MSG      | 0 0 0 |
//!   FixedXmtReq<D, R> | xid vers credit OPTIONAL | XMTREQ length  | D | R | count rsbuf pslen |
//!   FixedXmtResp<D>   | xid vers credit OPTIONAL | XMTRESP length | D | count pslen |
//!   FixedXmtCont      | xid vers credit OPTIONAL | XMTCONT length | xnum itype pslen |
//!
//!   D: Empty | 0 |   OneItem      | 1 | disp length TBSN 0 1 segment |
//!   R: Empty | 0 |   OneDirection | 1 | begin end | 1 | min_len TBSN |
//! ```
//! All other headers are variable, and only the codec reads them ([`crate::header`]). Checking a
//! fixed header costs one bounds check, and one comparison for each word of its form.

pub use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::array::Extent;
use crate::numbers::{opttype, placement, proc, size};

/// RDMA_MSG with three empty lists, in either version.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Msg {
    /// The transaction (`rdma_xid`).
    pub xid: U32,
    /// The version (`rdma_vers`).
    pub vers: U32,
    /// Credits requested or granted (`rdma_credit`).
    pub credit: U32,
    /// The procedure and the three lists: all zero.
    rest: [u8; 16],
}

/// The start of an RDMA_OPTIONAL header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Operation {
    /// The transaction (`rdma_xid`).
    pub xid: U32,
    /// The version (`rdma_vers`).
    pub vers: U32,
    /// Credits requested or granted (`rdma_credit`).
    pub credit: U32,
    /// The procedure (`rdma_proc`).
    pub proc: U32,
    /// The operation (`rdma_opttype`).
    pub opttype: U32,
    /// Bytes of its structure (`rdma_optinfo`).
    info_len: U32,
}

/// The first, or only, transmission of a request (`optxmt_req`), with these lists.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FixedXmtReq<D, R> {
    /// The start.
    pub operation: Operation,
    /// The items (`optxrq_dp`).
    pub dp: D,
    /// The directions (`optxrq_rsd`).
    pub rsd: R,
    /// The fields after the lists.
    pub end: ReqEnd,
}

/// The fields after the lists of a request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReqEnd {
    /// Transmissions in this group (`optxrq_count`).
    pub count: U32,
    /// Transmissions that the reply may take (`optxrq_rsbuf`; wire.md E7).
    pub rsbuf: U32,
    /// Bytes of the payload stream in this transmission (`optxrq_pslen`; wire.md E10).
    pub pslen: U32,
}

/// The first, or only, transmission of a response (`optxmt_resp`), with this list.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FixedXmtResp<D> {
    /// The start.
    pub operation: Operation,
    /// The items (`optxrs_dp`).
    pub dp: D,
    /// The fields after the list.
    pub end: RespEnd,
}

/// The fields after the list of a response.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RespEnd {
    /// Transmissions in this group (`optxrs_count`; wire.md X15).
    pub count: U32,
    /// Bytes of the payload stream in this transmission (`optxrs_pslen`; wire.md E10).
    pub pslen: U32,
}

/// Every further transmission of a group (`optxmt_cont`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FixedXmtCont {
    /// The start.
    pub operation: Operation,
    /// The structure.
    pub end: ContEnd,
}

/// The structure of a continuation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ContEnd {
    /// The index of this transmission in the group (`optxc_xnum`; wire.md E1).
    pub xnum: U32,
    /// The operation that started the group (`optxc_itype`; wire.md E3).
    pub itype: U32,
    /// Bytes of the payload stream in this transmission (`optxc_pslen`; wire.md E10).
    pub pslen: U32,
}

/// An empty list.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Empty {
    count: U32,
}

/// A list of one item, at the start of one placement segment.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OneItem {
    items: U32,
    /// The position of the item in the virtual XDR stream (`xmdmi_disp`).
    pub disp: U32,
    /// Bytes of the item, without padding (`xmdmi_length`).
    pub length: U32,
    kind: U32,
    offset: U32,
    segments: U32,
    /// The segment (`xmdl_bsnum`).
    pub segment: U32,
}

/// A list of one set of directions, with one item to place by Send.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OneDirection {
    sets: U32,
    /// First byte of the range in the request's virtual stream (`xmdrsdr_begin`; wire.md E23).
    pub begin: U32,
    /// The byte after the range (`xmdrsdr_end`).
    pub end: U32,
    items: U32,
    /// A shorter item is sent inline (`xmdrsdi_minlen`).
    pub min_len: U32,
    kind: U32,
}

/// A list of a fixed header.
pub trait FixedList: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned {
    /// Whether the words are this list.
    fn is_valid(&self) -> bool;
}

/// The fields of a header that concern the connection.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The version (`rdma_vers`).
    pub vers: u32,
    /// Credits requested or granted (`rdma_credit`).
    pub credit: u32,
}

impl Msg {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// The header of a message.
    #[inline]
    #[must_use]
    pub fn new(xid: u32, Stamp { vers, credit }: Stamp) -> Self {
        Self { xid: xid.into(), vers: vers.into(), credit: credit.into(), rest: NO_CHUNKS }
    }

    /// The first words of a message as this header, and the bytes after them; `None` if it is
    /// shorter.
    #[inline]
    #[must_use]
    pub fn split(bytes: &[u8]) -> Option<(&Self, &[u8])> {
        Self::ref_from_prefix(bytes).ok()
    }

    /// Whether procedure and lists are those of the header.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.rest == NO_CHUNKS
    }

    /// The procedure (`rdma_proc`), unchecked.
    #[inline]
    #[must_use]
    pub fn proc(&self) -> u32 {
        let [a, b, c, d, ..] = self.rest;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl Operation {
    /// The start of the header of an operation, which has `header_len` bytes in all.
    #[inline]
    #[must_use]
    pub fn new(xid: u32, Stamp { vers, credit }: Stamp, opttype: u32, header_len: u32) -> Self {
        let info_len = header_len.saturating_sub(size::OPTIONAL as u32);
        Self {
            xid: xid.into(),
            vers: vers.into(),
            credit: credit.into(),
            proc: proc::OPTIONAL.into(),
            opttype: opttype.into(),
            info_len: info_len.into(),
        }
    }

    /// The first words of a message as this start; `None` if it is shorter.
    #[inline]
    #[must_use]
    pub fn peek(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(operation, _)| operation)
    }

    /// Whether it starts a header of this operation and length. The caller has checked the
    /// procedure.
    #[inline]
    pub(super) fn is(&self, opttype: u32, header_len: usize) -> bool {
        self.opttype.get() == opttype && self.info_len.get() == (header_len - size::OPTIONAL) as u32
    }
}

impl<D: FixedList, R: FixedList> FixedXmtReq<D, R> {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// The only transmission of a request.
    #[inline]
    #[must_use]
    pub fn new(xid: u32, stamp: Stamp, dp: D, rsd: R, end: ReqEnd) -> Self {
        let operation = Operation::new(xid, stamp, opttype::XMTREQ, Self::LEN as u32);
        Self { operation, dp, rsd, end }
    }

    /// The header of a message, if it has exactly this form. The caller has checked version and
    /// procedure.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<&Self> {
        let (header, _) = Self::ref_from_prefix(bytes).ok()?;
        let Self { operation, dp, rsd, .. } = header;
        let is_it = operation.is(opttype::XMTREQ, Self::LEN) && dp.is_valid() && rsd.is_valid();
        is_it.then_some(header)
    }
}

impl<D: FixedList> FixedXmtResp<D> {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// The only transmission of a response.
    #[inline]
    #[must_use]
    pub fn new(xid: u32, stamp: Stamp, dp: D, end: RespEnd) -> Self {
        let operation = Operation::new(xid, stamp, opttype::XMTRESP, Self::LEN as u32);
        Self { operation, dp, end }
    }

    /// The header of a message, if it has exactly this form. The caller has checked version and
    /// procedure.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<&Self> {
        let (header, _) = Self::ref_from_prefix(bytes).ok()?;
        let is_it = header.operation.is(opttype::XMTRESP, Self::LEN) && header.dp.is_valid();
        is_it.then_some(header)
    }
}

impl FixedXmtCont {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// A further transmission.
    #[inline]
    #[must_use]
    pub fn new(xid: u32, stamp: Stamp, end: ContEnd) -> Self {
        Self { operation: Operation::new(xid, stamp, opttype::XMTCONT, Self::LEN as u32), end }
    }

    /// The header of a message, if it has exactly this form. The caller has checked version and
    /// procedure.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<&Self> {
        let (header, _) = Self::ref_from_prefix(bytes).ok()?;
        header.operation.is(opttype::XMTCONT, Self::LEN).then_some(header)
    }
}

impl ReqEnd {
    /// From these numbers.
    #[inline]
    #[must_use]
    pub fn new(count: u32, rsbuf: u32, pslen: u32) -> Self {
        Self { count: count.into(), rsbuf: rsbuf.into(), pslen: pslen.into() }
    }
}

impl RespEnd {
    /// From these numbers.
    #[inline]
    #[must_use]
    pub fn new(count: u32, pslen: u32) -> Self {
        Self { count: count.into(), pslen: pslen.into() }
    }
}

impl ContEnd {
    /// From these numbers.
    #[inline]
    #[must_use]
    pub fn new(xnum: u32, itype: u32, pslen: u32) -> Self {
        Self { xnum: xnum.into(), itype: itype.into(), pslen: pslen.into() }
    }
}

impl Empty {
    /// The list.
    pub const LIST: Self = Self { count: U32::ZERO };
}

impl FixedList for Empty {
    #[inline]
    fn is_valid(&self) -> bool {
        self.count == U32::ZERO
    }
}

impl OneItem {
    /// The item of `length` bytes at `disp` in this segment.
    #[inline]
    #[must_use]
    pub fn new(disp: u32, length: u32, segment: u32) -> Self {
        Self {
            items: ONE,
            disp: disp.into(),
            length: length.into(),
            kind: TBSN,
            // [RTR] 7.3: our items begin at the start of their first segment.
            offset: U32::ZERO,
            segments: ONE,
            segment: segment.into(),
        }
    }
}

impl FixedList for OneItem {
    #[inline]
    fn is_valid(&self) -> bool {
        let is_one = self.items == ONE && self.segments == ONE;
        is_one && self.kind == TBSN && self.offset == U32::ZERO
    }
}

impl OneDirection {
    /// Bytes of the list.
    pub const LEN: usize = size_of::<Self>();
    /// Where the set is in the list.
    pub const SET: Extent = Extent::one(4, Self::LEN as u32 - 4);

    /// The direction for the result of this range of the request.
    #[inline]
    #[must_use]
    pub fn new(begin: u32, end: u32, min_len: u32) -> Self {
        let (begin, end, min_len) = (begin.into(), end.into(), min_len.into());
        Self { sets: ONE, begin, end, items: ONE, min_len, kind: TBSN }
    }

    /// The list in these bytes, if it has exactly this form.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_bytes(bytes).ok().filter(|list| list.is_valid())
    }
}

impl FixedList for OneDirection {
    #[inline]
    fn is_valid(&self) -> bool {
        self.sets == ONE && self.items == ONE && self.kind == TBSN
    }
}

pub(super) const ONE: U32 = U32::new(1);
pub(super) const TBSN: U32 = U32::new(placement::TBSN);
/// RDMA_MSG, and three empty lists.
const NO_CHUNKS: [u8; 16] = [0; 16];
const _: () = assert!(proc::MSG == 0);
// The lengths that other modules use.
const _: () = assert!(Msg::LEN == size::HEADER_MIN);
const _: () = assert!(size_of::<Operation>() == size::OPTIONAL);
const _: () = assert!(FixedXmtReq::<Empty, Empty>::LEN == size::XMTREQ_MIN);
const _: () = assert!(FixedXmtResp::<Empty>::LEN == size::XMTRESP_MIN);
const _: () = assert!(FixedXmtCont::LEN == size::XMTCONT);
const _: () = assert!(size_of::<OneItem>() == 4 + size::MITEM_TBSN + 4);
const _: () = assert!(OneDirection::LEN == 4 + size::RSDSET + size::RSDITEM_TBSN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::chunk::ChunkLists;
    use crate::cursor::Writer;
    use crate::header::{Body, Header, Optional};
    use crate::numbers::VERSION_TWO;
    use crate::rtr::placement::{Loc, MsgItem, RsdItem, RsdLoc, RsdSet, Tbsns};
    use crate::rtr::transmit;
    use std::vec::Vec;

    const STAMP: Stamp = Stamp { vers: VERSION_TWO, credit: 9 };
    const ITEM: MsgItem<'static> = MsgItem {
        disp: 8,
        length: 100,
        loc: Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(&[2]) },
    };

    /// Compares with the codec's output, which must decode to the same.
    fn coded(body: Body<'_>) -> Vec<u8> {
        let header = Header { xid: 7, vers: STAMP.vers, credit: STAMP.credit, body };
        let mut bytes = [0; 200];
        let mut writer = Writer::new(&mut bytes);
        header.encode(&mut writer).expect("200 bytes are enough");
        let bytes = writer.written().to_vec();
        assert_eq!(Header::decode(&bytes), Ok((header, bytes.len())));
        bytes
    }

    fn request(dp: &[MsgItem<'_>], rsd: &[RsdSet<'_>]) -> Vec<u8> {
        let (dp, rsd) = (Array::from_slice(dp), Array::from_slice(rsd));
        let req = transmit::XmtReq { dp, rsd, count: 1, rsbuf: 3, pslen: 40 };
        coded(Body::Optional(Optional::XmtReq(req)))
    }

    #[test]
    fn fixed_headers_equal_those_of_the_codec() {
        assert_eq!(Msg::new(7, STAMP).as_bytes(), coded(Body::Msg(ChunkLists::EMPTY)));
        let end = ReqEnd::new(1, 3, 40);
        let item = OneItem::new(8, 100, 2);
        let plain = FixedXmtReq::new(7, STAMP, Empty::LIST, Empty::LIST, end);
        assert_eq!(plain.as_bytes(), request(&[], &[]));
        let write = FixedXmtReq::new(7, STAMP, item, Empty::LIST, end);
        assert_eq!(write.as_bytes(), request(&[ITEM], &[]));
        let items = [RsdItem { min_len: 5, loc: RsdLoc::Tbsn }];
        let set = RsdSet { begin: 8, end: 40, items: Array::from_slice(&items) };
        let read = FixedXmtReq::new(7, STAMP, Empty::LIST, OneDirection::new(8, 40, 5), end);
        assert_eq!(read.as_bytes(), request(&[], &[set]));
        let resp = transmit::XmtResp { dp: Array::from_slice(&[ITEM]), count: 1, pslen: 40 };
        let reply = FixedXmtResp::new(7, STAMP, item, RespEnd::new(1, 40));
        assert_eq!(reply.as_bytes(), coded(Body::Optional(Optional::XmtResp(resp))));
        let cont = transmit::XmtCont { xnum: 1, itype: opttype::XMTRESP, pslen: 40 };
        let fixed = FixedXmtCont::new(7, STAMP, ContEnd::new(1, opttype::XMTRESP, 40));
        assert_eq!(fixed.as_bytes(), coded(Body::Optional(Optional::XmtCont(cont))));
    }

    #[test]
    fn each_header_decodes_only_as_its_own_kind() {
        let item = OneItem::new(8, 100, 2);
        let end = ReqEnd::new(1, 3, 40);
        let write = FixedXmtReq::new(7, STAMP, item, Empty::LIST, end);
        let bytes = write.as_bytes();
        assert_eq!(FixedXmtReq::<OneItem, Empty>::read(bytes), Some(&write));
        assert_eq!(FixedXmtReq::<OneItem, Empty>::read(&bytes[..bytes.len() - 1]), None);
        assert_eq!(FixedXmtReq::<Empty, Empty>::read(bytes), None);
        assert_eq!(FixedXmtReq::<Empty, OneDirection>::read(bytes), None);
        assert_eq!(FixedXmtResp::<OneItem>::read(bytes), None);
        assert_eq!(FixedXmtCont::read(bytes), None);
        // Operation, length, items, kind, offset, segments and directions determine the form.
        let determining: Vec<usize> = (0..bytes.len() / 4)
            .filter(|word| {
                let mut bytes = bytes.to_vec();
                bytes[4 * word + 3] ^= 1;
                FixedXmtReq::<OneItem, Empty>::read(&bytes).is_none()
            })
            .collect();
        assert_eq!(determining, [4, 5, 6, 9, 10, 11, 13]);
    }

    #[test]
    fn a_direction_is_read_from_its_own_bytes() {
        let direction = OneDirection::new(8, 40, 5);
        assert_eq!(OneDirection::read(direction.as_bytes()), Some(&direction));
        for word in 0..6 {
            let mut bytes = direction.as_bytes().to_vec();
            bytes[4 * word + 3] ^= 1;
            assert_eq!(OneDirection::read(&bytes).is_none(), [0, 3, 5].contains(&word), "{word}");
        }
        assert_eq!(OneDirection::read(&direction.as_bytes()[4..]), None);
    }
}
