//! The transport header: four fixed words, then a body that depends on version and procedure.
//!
//! ```text
//!   0      4       8         12      16
//!   | xid  | vers  | credit  | proc  | MSG, NOMSG   reads, writes, reply chunk
//!                                    | ERROR        error
//!                                    | OPTIONAL     opttype, length, structure     (version two)
//! ```
//! A message is a header and, after its last byte, the payload stream.

use crate::chunk::ChunkLists;
use crate::cursor::{Reader, Writer, pad_len};
use crate::error::{DecodeError, NoRoom};
use crate::numbers::{VERSION_ONE, VERSION_TWO, errcode, opttype, proc, size};
use crate::property::{ConnProp, ReqProp, RespProp, UpdProp};
use crate::rtr::fixed::{self, Empty, FixedXmtCont, FixedXmtReq, FixedXmtResp, Stamp};
use crate::rtr::report::ReptErr;
use crate::rtr::transmit::{XmtCont, XmtReq, XmtResp};

/// The fixed words of every header of every version (RFC 8166 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The transaction (`rdma_xid`).
    pub xid: u32,
    /// The version (`rdma_vers`).
    pub vers: u32,
    /// Credits requested or granted (`rdma_credit`).
    pub credit: u32,
    /// What follows (`rdma_proc`).
    pub proc: u32,
}

impl Prefix {
    /// Reads the four words without checking their values.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] below 16 bytes: such a message is dropped (wire.md B12).
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        Self::read(&mut reader)
    }

    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [xid, vers, credit, proc] = reader.words()?;
        Ok(Self { xid, vers, credit, proc })
    }

    /// The length of the shortest message that begins with this header (wire.md B12).
    #[must_use]
    pub const fn shortest(&self) -> usize {
        match (self.proc, self.vers) {
            (proc::ERROR, _) => size::ERROR,
            (proc::OPTIONAL, VERSION_TWO) => size::OPTIONAL,
            _ => size::HEADER_MIN,
        }
    }
}

/// A whole transport header, of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The transaction (`rdma_xid`).
    pub xid: u32,
    /// The version (`rdma_vers`).
    pub vers: u32,
    /// Credits requested or granted (`rdma_credit`; wire.md B11).
    pub credit: u32,
    /// The body, selected by `rdma_proc`.
    pub body: Body<'a>,
}

/// The body of a header: all that follows the fixed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A payload stream follows the header.
    Msg(ChunkLists<'a>),
    /// The payload stream is moved by explicit RDMA; there is at least one chunk.
    NoMsg(ChunkLists<'a>),
    /// Version one, never to be sent (wire.md B6).
    Msgp {
        /// `rdma_align`.
        align: u32,
        /// `rdma_thresh`.
        thresh: u32,
        /// The chunks.
        chunks: ChunkLists<'a>,
    },
    /// Never to be sent; to be dropped (wire.md B6).
    Done,
    /// An error report.
    Error(RdmaError),
    /// An operation of version two.
    Optional(Optional<'a>),
}

/// A transport error (RFC 8166 4.5, \[V2\] 3.1).
///
/// Not `#[non_exhaustive]`: these are all errors of both versions, another one is an invalid header,
/// and who receives an error must handle each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaError {
    /// The version is not supported; these are.
    Vers {
        /// The lowest version supported.
        low: u32,
        /// The highest version supported.
        high: u32,
    },
    /// The header is invalid; ERR_CHUNK in version one (wire.md N5).
    BadHeader,
    /// Version two: the operation is not supported.
    InvalOption,
}

/// An operation of version two (`rpcrdma2_optional`, \[V2\] 4.2; numbered as wire.md N1 says).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optional<'a> {
    /// Specify properties at connection.
    ConnProp(ConnProp<'a>),
    /// Request property modification.
    ReqProp(ReqProp<'a>),
    /// Respond to a modification request.
    RespProp(RespProp<'a>),
    /// Report updated properties.
    UpdProp(UpdProp<'a>),
    /// Transmit a request, or the start of one.
    XmtReq(XmtReq<'a>),
    /// Transmit a response, or the start of one.
    XmtResp(XmtResp<'a>),
    /// Transmit more of a request or a response.
    XmtCont(XmtCont),
    /// Report an error.
    ReptErr(ReptErr),
    /// An unknown operation, answered by RDMA_ERR_INVAL_OPTION.
    Unknown {
        /// `rdma_opttype`.
        opttype: u32,
        /// `rdma_optinfo`.
        info: &'a [u8],
    },
}

impl<'a> Header<'a> {
    /// Decodes the header at the front of a message. Also returns its length, which is the offset
    /// of the payload stream (wire.md X12).
    ///
    /// A header without chunks and items costs a few comparisons.
    ///
    /// # Errors
    /// [`DecodeError`] states which rule of the wire format is broken. The length of the whole
    /// message is not checked here (wire.md B12).
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        if let Some((msg, _)) = fixed::Msg::split(bytes) {
            let (xid, vers, credit) = (msg.xid.get(), msg.vers.get(), msg.credit.get());
            let header = |body| Self { xid, vers, credit, body };
            if msg.is_plain() && is_known(vers) {
                return Ok((header(Body::Msg(ChunkLists::EMPTY)), fixed::Msg::LEN));
            }
            if msg.proc() == proc::OPTIONAL && vers == VERSION_TWO {
                if let Some((optional, len)) = Optional::decode_fixed(bytes) {
                    return Ok((header(Body::Optional(optional)), len));
                }
                return Self::decode_optional(bytes, xid, credit);
            }
        }
        Self::decode_any(bytes)
    }

    /// Decodes every header, including the common ones.
    #[cold]
    fn decode_any(bytes: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(bytes);
        let Prefix { xid, vers, credit, proc } = Prefix::read(&mut reader)?;
        if proc != proc::ERROR && !is_known(vers) {
            return Err(DecodeError::UnknownVersion { vers });
        }
        let body = match (proc, vers) {
            (proc::MSG, _) => Body::Msg(ChunkLists::decode(&mut reader)?),
            (proc::NOMSG, _) => match ChunkLists::decode(&mut reader)? {
                chunks if chunks.is_empty() => return Err(DecodeError::NoChunk),
                chunks => Body::NoMsg(chunks),
            },
            // wire.md B6: version two has the number, but no structure for it.
            (proc::MSGP, VERSION_ONE) => Body::Msgp {
                align: reader.u32()?,
                thresh: reader.u32()?,
                chunks: ChunkLists::decode(&mut reader)?,
            },
            (proc::DONE, _) => Body::Done,
            (proc::ERROR, _) => Body::Error(RdmaError::decode(&mut reader, vers)?),
            (proc::OPTIONAL, VERSION_TWO) => return Self::decode_optional(bytes, xid, credit),
            _ => return Err(DecodeError::BadDiscriminant { at: 12, value: proc }),
        };
        Ok((Self { xid, vers, credit, body }, reader.position()))
    }

    /// Decodes a header of any operation, and constructs it in place.
    #[inline(never)]
    fn decode_optional(
        bytes: &'a [u8],
        xid: u32,
        credit: u32,
    ) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(bytes);
        Prefix::read(&mut reader)?;
        let number = reader.u32()?;
        let len_at = reader;
        let len = reader.u32()? as usize;
        let mut info = reader.inner(len)?;
        let optional = match number {
            opttype::XMTREQ => Optional::XmtReq(XmtReq::decode(&mut info)?),
            opttype::XMTRESP => Optional::XmtResp(XmtResp::decode(&mut info)?),
            _ => return Self::decode_rare(number, len_at, xid, credit),
        };
        // wire.md X12: the structure fills its opaque exactly.
        info.finish()?;
        let body = Body::Optional(optional);
        Ok((Self { xid, vers: VERSION_TWO, credit, body }, reader.position()))
    }

    #[cold]
    fn decode_rare(
        number: u32,
        reader: Reader<'a>,
        xid: u32,
        credit: u32,
    ) -> Result<(Self, usize), DecodeError> {
        let (optional, len) = Optional::decode_rare(number, reader)?;
        let body = Body::Optional(optional);
        Ok((Self { xid, vers: VERSION_TWO, credit, body }, len))
    }

    /// Encodes the header.
    ///
    /// The caller pairs `vers` and `body`: RDMA_OPTIONAL and RDMA_ERR_INVAL_OPTION exist only in
    /// version two, RDMA_MSGP only in version one.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    #[inline]
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        debug_assert!(self.body_is_of_version());
        let (xid, stamp) = (self.xid, Stamp { vers: self.vers, credit: self.credit });
        match &self.body {
            Body::Msg(chunks) if chunks.is_empty() => writer.put(&fixed::Msg::new(xid, stamp)),
            Body::Optional(Optional::XmtReq(req)) if req.dp.is_empty() && req.rsd.is_empty() => {
                let (dp, rsd) = (Empty::LIST, Empty::LIST);
                writer.put(&FixedXmtReq::new(xid, stamp, dp, rsd, req.end()))
            }
            Body::Optional(Optional::XmtResp(resp)) if resp.dp.is_empty() => {
                writer.put(&FixedXmtResp::new(xid, stamp, Empty::LIST, resp.end()))
            }
            Body::Optional(Optional::XmtCont(cont)) => {
                writer.put(&FixedXmtCont::new(xid, stamp, cont.end()))
            }
            _ => self.encode_any(writer),
        }
    }

    #[inline(never)]
    fn encode_any(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let proc = self.body.proc();
        writer.put_words::<4, { size::PREFIX }>([self.xid, self.vers, self.credit, proc])?;
        match &self.body {
            Body::Msg(chunks) | Body::NoMsg(chunks) => chunks.encode(writer),
            Body::Msgp { align, thresh, chunks } => {
                writer.put_u32(*align)?;
                writer.put_u32(*thresh)?;
                chunks.encode(writer)
            }
            Body::Done => Ok(()),
            Body::Error(error) => error.encode(writer),
            Body::Optional(optional) => optional.encode(writer),
        }
    }

    /// The number of bytes that [`Header::encode`] writes.
    #[inline]
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        size::PREFIX
            + match &self.body {
                Body::Msg(chunks) | Body::NoMsg(chunks) => chunks.encoded_len(),
                Body::Msgp { chunks, .. } => 8 + chunks.encoded_len(),
                Body::Done => 0,
                Body::Error(RdmaError::Vers { .. }) => size::ERROR_VERS - size::PREFIX,
                Body::Error(_) => size::ERROR - size::PREFIX,
                Body::Optional(optional) => 8 + optional.encoded_len(),
            }
    }

    const fn body_is_of_version(&self) -> bool {
        match &self.body {
            Body::Optional(_) | Body::Error(RdmaError::InvalOption) => self.vers == VERSION_TWO,
            Body::Msgp { .. } => self.vers == VERSION_ONE,
            _ => true,
        }
    }
}

impl Body<'_> {
    /// The number of the body on the wire (`rdma_proc`).
    #[inline]
    #[must_use]
    pub const fn proc(&self) -> u32 {
        match self {
            Self::Msg(_) => proc::MSG,
            Self::NoMsg(_) => proc::NOMSG,
            Self::Msgp { .. } => proc::MSGP,
            Self::Done => proc::DONE,
            Self::Error(_) => proc::ERROR,
            Self::Optional(_) => proc::OPTIONAL,
        }
    }
}

impl RdmaError {
    #[cold]
    fn decode(reader: &mut Reader<'_>, vers: u32) -> Result<Self, DecodeError> {
        let at = reader.at_u32();
        match reader.u32()? {
            // RFC 8166 4.1.2: this structure is fixed for all versions (wire.md B4).
            errcode::VERS => Ok(Self::Vers { low: reader.u32()?, high: reader.u32()? }),
            _ if !is_known(vers) => Err(DecodeError::UnknownVersion { vers }),
            errcode::BAD_HEADER => Ok(Self::BadHeader),
            errcode::INVAL_OPTION if vers == VERSION_TWO => Ok(Self::InvalOption),
            value => Err(DecodeError::BadDiscriminant { at, value }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Vers { low, high } => {
                writer.put_u32(errcode::VERS)?;
                writer.put_u32(*low)?;
                writer.put_u32(*high)
            }
            Self::BadHeader => writer.put_u32(errcode::BAD_HEADER),
            Self::InvalOption => writer.put_u32(errcode::INVAL_OPTION),
        }
    }
}

impl<'a> Optional<'a> {
    /// The operation's number on the wire (`rdma_opttype`).
    #[inline]
    #[must_use]
    pub const fn opttype(&self) -> u32 {
        match self {
            Self::ConnProp(_) => opttype::CONNPROP,
            Self::ReqProp(_) => opttype::REQPROP,
            Self::RespProp(_) => opttype::RESPROP,
            Self::UpdProp(_) => opttype::UPDPROP,
            Self::XmtReq(_) => opttype::XMTREQ,
            Self::XmtResp(_) => opttype::XMTRESP,
            Self::XmtCont(_) => opttype::XMTCONT,
            Self::ReptErr(_) => opttype::REPTERR,
            Self::Unknown { opttype, .. } => *opttype,
        }
    }

    /// The three operations of the data path without items, with the header's length.
    #[inline]
    fn decode_fixed(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let dp = crate::Array::EMPTY;
        Some(match fixed::Operation::peek(bytes)?.opttype.get() {
            opttype::XMTREQ => {
                let FixedXmtReq { end, .. } = FixedXmtReq::<Empty, Empty>::read(bytes)?;
                let (rsd, count) = (crate::Array::EMPTY, end.count.get());
                let (rsbuf, pslen) = (end.rsbuf.get(), end.pslen.get());
                (Self::XmtReq(XmtReq { dp, rsd, count, rsbuf, pslen }), size::XMTREQ_MIN)
            }
            opttype::XMTRESP => {
                let FixedXmtResp { end, .. } = FixedXmtResp::<Empty>::read(bytes)?;
                let (count, pslen) = (end.count.get(), end.pslen.get());
                (Self::XmtResp(XmtResp { dp, count, pslen }), size::XMTRESP_MIN)
            }
            opttype::XMTCONT => {
                let FixedXmtCont { end, .. } = FixedXmtCont::read(bytes)?;
                let (xnum, itype) = (end.xnum.get(), end.itype.get());
                let pslen = end.pslen.get();
                (Self::XmtCont(XmtCont { xnum, itype, pslen }), size::XMTCONT)
            }
            _ => return None,
        })
    }

    #[cold]
    fn decode_rare(number: u32, mut reader: Reader<'a>) -> Result<(Self, usize), DecodeError> {
        if !matches!(number, opttype::CONNPROP..=opttype::REPTERR) {
            let info = reader.opaque(u32::MAX)?;
            return Ok((Self::Unknown { opttype: number, info }, reader.position()));
        }
        let len = reader.u32()? as usize;
        let mut info = reader.inner(len)?;
        let optional = match number {
            opttype::CONNPROP => Self::ConnProp(ConnProp::decode(&mut info)?),
            opttype::REQPROP => Self::ReqProp(ReqProp::decode(&mut info)?),
            opttype::RESPROP => Self::RespProp(RespProp::decode(&mut info)?),
            opttype::UPDPROP => Self::UpdProp(UpdProp::decode(&mut info)?),
            opttype::XMTREQ => Self::XmtReq(XmtReq::decode(&mut info)?),
            opttype::XMTRESP => Self::XmtResp(XmtResp::decode(&mut info)?),
            opttype::XMTCONT => Self::XmtCont(XmtCont::decode(&mut info)?),
            _ => Self::ReptErr(ReptErr::decode(&mut info)?),
        };
        info.finish()?;
        Ok((optional, reader.position()))
    }

    fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.opttype())?;
        match self {
            Self::Unknown { info, .. } => writer.put_opaque(info),
            Self::ConnProp(op) => writer.put_sized(|w| op.encode(w)),
            Self::ReqProp(op) => writer.put_sized(|w| op.want.encode(w)),
            Self::RespProp(op) => writer.put_sized(|w| op.encode(w)),
            Self::UpdProp(op) => writer.put_sized(|w| op.now.encode(w)),
            Self::XmtReq(op) => writer.put_sized(|w| op.encode(w)),
            Self::XmtResp(op) => writer.put_sized(|w| op.encode(w)),
            Self::XmtCont(op) => writer.put_sized(|w| op.encode(w)),
            Self::ReptErr(op) => writer.put_sized(|w| op.encode(w)),
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::ConnProp(op) => op.encoded_len(),
            Self::ReqProp(op) => op.want.encoded_len(),
            Self::RespProp(op) => op.encoded_len(),
            Self::UpdProp(op) => op.now.encoded_len(),
            Self::XmtReq(op) => op.encoded_len(),
            Self::XmtResp(op) => op.encoded_len(),
            Self::XmtCont(_) => size::XMTCONT - size::OPTIONAL,
            Self::ReptErr(op) => op.encoded_len(),
            Self::Unknown { info, .. } => info.len() + pad_len(info.len()),
        }
    }
}

#[inline]
const fn is_known(vers: u32) -> bool {
    matches!(vers, VERSION_ONE | VERSION_TWO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::rtr::placement::{Loc, MsgItem, Tbsns};
    use std::vec::Vec;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn encoded(header: &Header<'_>) -> Vec<u8> {
        let mut buffer = [0; 1024];
        let mut writer = Writer::new(&mut buffer);
        header.encode(&mut writer).unwrap();
        writer.written().to_vec()
    }

    const fn v2(body: Body<'_>) -> Header<'_> {
        Header { xid: 1, vers: 2, credit: 3, body }
    }

    const REQ: XmtReq<'static> =
        XmtReq { dp: Array::EMPTY, rsd: Array::EMPTY, count: 2, rsbuf: 3, pslen: 4 };
    const RESP: XmtResp<'static> = XmtResp { dp: Array::EMPTY, count: 2, pslen: 4 };
    const CONT: XmtCont = XmtCont { xnum: 1, itype: 5, pslen: 4 };

    #[test]
    fn a_header_passed_by_value_stays_small() {
        assert!(size_of::<Header<'_>>() <= 96, "{}", size_of::<Header<'_>>());
        assert!(size_of::<MsgItem<'_>>() <= 40, "{}", size_of::<MsgItem<'_>>());
        assert!(size_of::<DecodeError>() <= 16, "{}", size_of::<DecodeError>());
    }

    #[test]
    fn the_smallest_headers_have_the_sizes_of_the_table() {
        let len = |body| encoded(&v2(body)).len();
        assert_eq!(len(Body::Msg(ChunkLists::EMPTY)), size::HEADER_MIN);
        assert_eq!(len(Body::Optional(Optional::XmtReq(REQ))), size::XMTREQ_MIN);
        assert_eq!(len(Body::Optional(Optional::XmtResp(RESP))), size::XMTRESP_MIN);
        assert_eq!(len(Body::Optional(Optional::XmtCont(CONT))), size::XMTCONT);
        assert_eq!(len(Body::Error(RdmaError::BadHeader)), size::ERROR);
        assert_eq!(len(Body::Error(RdmaError::Vers { low: 1, high: 2 })), size::ERROR_VERS);
    }

    #[test]
    fn the_short_way_and_the_long_way_agree() {
        let items = [MsgItem {
            disp: 8,
            length: 9,
            loc: Loc::Tbsn { offset: 0, segments: Tbsns::run(0, 3) },
        }];
        for body in [
            Body::Msg(ChunkLists::EMPTY),
            Body::Optional(Optional::XmtReq(REQ)),
            Body::Optional(Optional::XmtResp(RESP)),
            Body::Optional(Optional::XmtCont(CONT)),
            Body::Optional(Optional::XmtReq(XmtReq { dp: Array::from_slice(&items), ..REQ })),
            Body::Optional(Optional::XmtResp(XmtResp { dp: Array::from_slice(&items), ..RESP })),
        ] {
            let header = v2(body);
            let mut long = [0; 1024];
            let mut writer = Writer::new(&mut long);
            header.encode_any(&mut writer).unwrap();
            assert_eq!(encoded(&header), writer.written());
            assert_eq!(header.encoded_len(), writer.position());
            let message = [writer.written(), &[1, 2, 3, 4]].concat();
            assert_eq!(Header::decode(&message), Ok((header, writer.position())));
            assert_eq!(Header::decode_any(&message), Ok((header, writer.position())));
            let Body::Optional(optional) = body else { continue };
            let mut reader = Reader::new(&message);
            reader.inner(size::PREFIX + 4).unwrap();
            let rare = Optional::decode_rare(optional.opttype(), reader);
            assert_eq!(rare, Ok((optional, writer.position())));
        }
    }

    #[test]
    fn any_prefix_is_read() {
        let prefix = Prefix { xid: 1, vers: 77, credit: 3, proc: 99 };
        assert_eq!(Prefix::decode(&words(&[1, 77, 3, 99, 5])), Ok(prefix));
        assert_eq!(Prefix::decode(&[0; 15]), Err(DecodeError::Truncated { at: 12 }));
    }

    #[test]
    fn an_unknown_version_is_refused() {
        for vers in [0, 3, 0x0100_0000, u32::MAX] {
            for proc in [0, 1, 2, 3, 5, 6] {
                let message = words(&[1, vers, 3, proc, 0, 0, 0, 0]);
                assert_eq!(Header::decode(&message), Err(DecodeError::UnknownVersion { vers }));
            }
        }
    }

    #[test]
    fn an_error_about_the_version_is_understood_in_any_version_and_no_other_is() {
        for vers in [0, 1, 2, 3, u32::MAX] {
            let message = words(&[1, vers, 3, 4, 1, 5, 6]);
            let (header, len) = Header::decode(&message).unwrap();
            assert_eq!(len, 28);
            assert_eq!(header.body, Body::Error(RdmaError::Vers { low: 5, high: 6 }));
        }
        let message = words(&[1, 3, 3, 4, 2]);
        assert_eq!(Header::decode(&message), Err(DecodeError::UnknownVersion { vers: 3 }));
    }

    // RFC 8166 4.1.2
    #[test]
    fn the_errors_of_version_one_are_one_with_a_range_and_two() {
        for (error, body) in
            [(RdmaError::Vers { low: 5, high: 6 }, &[1, 5, 6][..]), (RdmaError::BadHeader, &[2])]
        {
            let header = Header { xid: 1, vers: 1, credit: 3, body: Body::Error(error) };
            let bytes = words(&[&[1, 1, 3, 4], body].concat());
            assert_eq!(encoded(&header), bytes);
            assert_eq!(Header::decode(&bytes), Ok((header, bytes.len())));
        }
    }

    #[test]
    fn version_one_has_no_optional_operations_and_no_error_about_them() {
        let error = DecodeError::BadDiscriminant { at: 12, value: 5 };
        assert_eq!(Header::decode(&words(&[1, 1, 3, 5, 7, 12, 1, 5, 4])), Err(error));
        let error = DecodeError::BadDiscriminant { at: 16, value: 3 };
        assert_eq!(Header::decode(&words(&[1, 1, 3, 4, 3])), Err(error));
        assert!(Header::decode(&words(&[1, 2, 3, 4, 3])).is_ok());
    }

    #[test]
    fn version_two_has_no_msgp() {
        let error = DecodeError::BadDiscriminant { at: 12, value: 2 };
        assert_eq!(Header::decode(&words(&[1, 2, 3, 2, 0, 0, 0, 0, 0])), Err(error));
        assert!(Header::decode(&words(&[1, 1, 3, 2, 0, 0, 0, 0, 0])).is_ok());
    }

    #[test]
    fn unassigned_numbers_are_refused() {
        for vers in [1, 2] {
            for proc in [6, 7, 256, u32::MAX] {
                let error = DecodeError::BadDiscriminant { at: 12, value: proc };
                assert_eq!(Header::decode(&words(&[1, vers, 3, proc, 0, 0, 0])), Err(error));
            }
            for code in [0, 4, u32::MAX] {
                let error = DecodeError::BadDiscriminant { at: 16, value: code };
                assert_eq!(Header::decode(&words(&[1, vers, 3, 4, code, 0, 0])), Err(error));
            }
        }
    }

    #[test]
    fn nomsg_without_a_chunk_is_refused() {
        for vers in [1, 2] {
            let message = words(&[1, vers, 3, 1, 0, 0, 0]);
            assert_eq!(Header::decode(&message), Err(DecodeError::NoChunk));
            assert!(Header::decode(&words(&[1, vers, 3, 1, 0, 0, 1, 0])).is_ok());
        }
    }

    #[test]
    fn a_structure_must_fill_its_opaque_exactly() {
        let exact = words(&[1, 2, 3, 5, 7, 12, 1, 5, 4, 0, 0]);
        assert!(Header::decode(&exact).is_ok());
        for (len, error) in [
            (8, DecodeError::Truncated { at: 32 }),
            (11, DecodeError::Truncated { at: 32 }),
            (13, DecodeError::Trailing { at: 36, extra: 1 }),
            (16, DecodeError::Trailing { at: 36, extra: 4 }),
            (24, DecodeError::Truncated { at: 24 }),
            (u32::MAX, DecodeError::Truncated { at: 24 }),
        ] {
            let mut message = exact.clone();
            message[20..24].copy_from_slice(&len.to_be_bytes());
            assert_eq!(Header::decode(&message), Err(error), "length {len}");
        }
    }

    #[test]
    fn a_plain_request_with_another_length_is_not_taken_for_one() {
        for len in [0, 16, 24] {
            let message = words(&[1, 2, 3, 5, 5, len, 0, 0, 1, 1, 8, 0]);
            assert!(Header::decode(&message).is_err(), "length {len}");
        }
        let cut = words(&[1, 2, 3, 5, 5, 20, 0, 0, 1, 1]);
        assert_eq!(Header::decode(&cut), Err(DecodeError::Truncated { at: 24 }));
    }

    #[test]
    fn unknown_operations_are_kept_as_bytes() {
        let message = words(&[1, 2, 3, 5, 9, 5, 0x6865_6c6c, 0x6f00_0000, 0xffff_ffff]);
        let (header, len) = Header::decode(&message).unwrap();
        let optional = Optional::Unknown { opttype: 9, info: b"hello" };
        assert_eq!((header, len), (v2(Body::Optional(optional)), 32));
        assert_eq!(encoded(&header), message[..32]);
    }
}
