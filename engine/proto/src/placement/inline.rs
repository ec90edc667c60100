//! The inline message: a minimal header and the payload behind it.

use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::numbers::{proc, size};

/// A message that is a minimal header and the payload behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlinePlan {
    /// The RPC's xid.
    pub xid: u32,
    /// Whether it is a call, and so asks for credits, or a reply, and so grants them.
    pub direction: Direction,
    /// Bytes of payload.
    pub payload: u32,
    /// The handle that the message is to invalidate.
    pub invalidate: Option<u32>,
}

impl InlinePlan {
    /// Bytes of the header.
    pub const HEADER_LEN: u32 = size::HEADER_MIN as u32;

    /// Encodes the header: what [`rpcrdma_xdr::Header::encode`] gives for an RDMA_MSG with three empty lists,
    /// put word by word, which costs a third.
    #[inline]
    pub(crate) fn encode_header(
        &self,
        stamp: Stamp,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        writer.put_u64(pair(self.xid, stamp.vers))?;
        writer.put_u64(pair(stamp.credit, proc::MSG))?;
        // No read list, no write list, no reply chunk.
        writer.put_u64(pair(0, 0))?;
        writer.put_u32(0)
    }
}

/// What the headers of a message say of its connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    /// `rdma_vers`.
    pub(crate) vers: u32,
    /// `rdma_credit`.
    pub(crate) credit: u32,
}

/// Which way an RPC message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From requester to responder.
    Call,
    /// From responder to requester.
    Reply,
}
