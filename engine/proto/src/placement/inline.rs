//! The inline message: a minimal header, then the payload.

use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::rtr::fixed::{Msg, Stamp};

/// A message that is a minimal header and the payload behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlinePlan {
    /// The RPC's xid.
    pub xid: u32,
    /// Whether it is a call, which requests credits, or a reply, which grants them.
    pub direction: Direction,
    /// Bytes of payload.
    pub payload: u32,
    /// The handle that the message is to invalidate.
    pub invalidate: Option<u32>,
}

impl InlinePlan {
    /// Bytes of the header.
    pub const HEADER_LEN: u32 = Msg::LEN as u32;

    /// Encodes the header.
    #[inline]
    pub(crate) fn encode_header(
        &self,
        stamp: Stamp,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        writer.put(&Msg::new(self.xid, stamp))
    }
}

/// Which way an RPC message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From requester to responder.
    Call,
    /// From responder to requester.
    Reply,
}
