//! A received transmission whose header is decoded: where its payload begins, and how long it may be.

use rpcrdma_xdr::chunk::ChunkLists;
use rpcrdma_xdr::error::DecodeError;
use rpcrdma_xdr::onc::RpcPrefix;

use crate::error::Violation;
use crate::group::Part;
use crate::ingress::{Message, Received, Via};

/// The payload is another message than the header says.
pub(crate) const XID_MISMATCH: Violation = Violation::BadHeader("the payload has another xid");

/// A transmission whose header is decoded.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) at: Received,
    /// What lies in the first segment.
    pub(crate) bytes: &'a [u8],
    pub(crate) xid: u32,
    pub(crate) credit: u32,
    /// Where the payload begins.
    pub(crate) start: u32,
}

impl Incoming<'_> {
    /// xid and direction of the RPC. They must lie in the first segment, as the header does.
    #[inline]
    pub(crate) fn rpc_prefix(&self) -> Result<RpcPrefix, DecodeError> {
        RpcPrefix::decode(self.bytes.get(self.start as usize..).unwrap_or_default())
    }

    /// The payload, if its length is possible (wire.md E10).
    #[inline]
    pub(crate) fn part(&self, pslen: u32, min: u32) -> Result<Part, Violation> {
        let max = self.at.byte_len - self.start;
        if !pslen.is_multiple_of(4) || pslen < min || pslen > max {
            return Err(Violation::PayloadLength { value: pslen, min, max });
        }
        Ok(Part { payload_len: pslen, ..self.empty_part() })
    }

    pub(crate) fn empty_part(&self) -> Part {
        let Received { buffer, byte_len } = self.at;
        Part { buffer, byte_len, payload_start: self.start, payload_len: 0 }
    }

    /// A base message with these chunks.
    pub(crate) fn with_chunks<'a>(&self, via: Via, chunks: &ChunkLists<'a>) -> Message<'a> {
        let payload_len = match via {
            Via::NoMsg => 0,
            Via::Msg | Via::Xmt => self.at.byte_len - self.start,
        };
        let mut part = self.empty_part();
        part.payload_len = payload_len;
        let ChunkLists { reads, writes, reply } = *chunks;
        Message { via, reads, writes, reply, ..Message::single(self.xid, part) }
    }
}
