//! The state for reading a received message.

use arrayvec::ArrayVec;
use rpcrdma_mempool::{RecvPool, RecvToken};
use rpcrdma_proto::{KeptPlaced, Part};
use rpcrdma_xdr::numbers::limit::GROUP_MAX;

use super::incoming::Buffers;
use super::map::Map;
use super::saved_offer::SavedOffer;

/// The transmissions of one message.
pub(crate) type PartList = ArrayVec<Part, { GROUP_MAX as usize }>;

/// The state for reading a message.
pub(crate) struct Reading<'a> {
    pub pool: &'a RecvPool,
    /// The locations of its parts.
    pub map: &'a mut Map,
    /// Its offer for the reply.
    pub saved_offer: &'a mut SavedOffer,
}

/// The reply to a call with exposed memory.
pub(crate) struct KeptReply<'a> {
    pub buffers: Buffers,
    /// Its transmissions.
    pub parts: &'a [Part],
    /// What was found in it.
    pub placed: KeptPlaced,
}

/// The received bytes of the first segment of a message, which holds its header; none if it has no
/// buffers.
#[inline]
pub(crate) fn header_of<'a>(
    pool: &'a RecvPool,
    buffers: &'a [RecvToken],
    parts: &[Part],
) -> &'a [u8] {
    let first = buffers.first().zip(parts.first());
    first.map_or(&[], |(token, part)| first_segment(pool, token, part.byte_len))
}

/// The received bytes of a buffer's first segment, where the header must lie (wire.md W1).
#[inline]
pub(crate) fn first_segment<'a>(
    pool: &'a RecvPool,
    token: &'a RecvToken,
    byte_len: u32,
) -> &'a [u8] {
    let segment = pool.first_segment(token);
    &segment[..segment.len().min(byte_len as usize)]
}
