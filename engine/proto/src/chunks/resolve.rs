//! The chunk lists of a received message: all checks, before any memory is accessed

use rpcrdma_xdr::chunk::{RdmaSegment, WriteChunk};
use rpcrdma_xdr::numbers::limit::MITEMS_MAX;

use crate::demand::Offered;
use crate::error::Violation;
use crate::ingress::{Message, Via};
use crate::placement::placed::{Items, Placed, ReadChunks, ReadItem, Sums};
use crate::segments::{check_possible, total_len};

/// Bytes that every message begins with and that are never excised: xid and direction.
const RPC_PREFIX_LEN: u64 = 8;

/// Checks the lists of a call (RFC 8166 3.4.5, 4.3; wire.md C1 - C4).
///
/// # Errors
/// [`Violation::BadHeader`] names the fault.
pub fn resolve_call<'a>(message: &Message<'a>, rpc_len_max: u32) -> Result<Placed<'a>, Violation> {
    let Message { via, part, reads, writes, reply, .. } = *message;
    let segments = reads.iter().map(|read| read.target);
    let offered = writes.iter().chain(reply).flat_map(|WriteChunk(segments)| segments.iter());
    check_possible(segments.chain(offered))?;
    let mut chunks = ReadChunks::new(reads).peekable();
    let body = chunks.next_if(|chunk| chunk.position == 0);
    let stream = body.as_ref().map_or(u64::from(part.payload_len), |chunk| chunk.len);
    match (via, &body) {
        (Via::NoMsg, None) => return Err(Violation::BadHeader("nothing is at position zero")),
        (Via::NoMsg, Some(_)) if stream < RPC_PREFIX_LEN => {
            return Err(Violation::BadHeader("the message at position zero is too short"));
        }
        (Via::NoMsg, Some(_)) | (_, None) => {}
        // wire.md C2: the payload is at position zero.
        (_, Some(_)) => return Err(Violation::BadHeader("two things are at position zero")),
    }
    let (mut excised, mut previous_end, mut count) = (0, RPC_PREFIX_LEN, 0);
    let mut last = None;
    for chunk in chunks {
        // Each chunk takes a pass over the list, so the number of chunks is bounded.
        if count == MITEMS_MAX {
            return Err(Violation::BadHeader("more than 64 Read chunks"));
        }
        let position = u64::from(chunk.position);
        if position < previous_end {
            return Err(Violation::BadHeader("a Read chunk lies within another, or too early"));
        }
        if position > stream + excised {
            return Err(Violation::BadHeader("a Read chunk lies beyond the message"));
        }
        let padded = (chunk.len + 3) & !3;
        excised += padded;
        previous_end = position + padded;
        count += 1;
        last = Some(ReadItem { position: chunk.position, len: chunk.message_len() });
    }
    let items = match last {
        Some(item) if count == 1 && item.len > 0 && body.is_none() => {
            Items::OneRead { reads, item }
        }
        _ => Items::Read { reads },
    };
    let body_len = body.map(|chunk| chunk.message_len());
    let lens = MessageLens { payload: part.payload_len, stream, excised };
    placed(items, body_len, lens, rpc_len_max)
}

/// Checks the lists of a reply against what was offered (RFC 8166 3.4.6, 4.3; wire.md C7, C8).
///
/// # Errors
/// [`Violation::BadHeader`] names the fault.
pub fn resolve_reply<'a>(
    message: &Message<'a>,
    offered: &Offered<'_>,
    rpc_len_max: u32,
) -> Result<Placed<'a>, Violation> {
    let Message { via, part, reads, writes, reply, .. } = *message;
    if !reads.is_empty() {
        return Err(Violation::BadHeader("a reply has a Read list"));
    }
    let due = offered.set.last().map_or(0, |last| last + 1);
    if !writes.is_empty() && writes.len() != due {
        return Err(Violation::BadHeader("a reply has other Write chunks than its call"));
    }
    let mut excised = 0;
    for (index, chunk) in writes.iter().enumerate() {
        let len = returned_len(chunk, offered.wants.of(offered.set, index))?;
        excised += (len + 3) & !3;
    }
    let returned = match reply {
        None => None,
        Some(chunk) => Some(returned_len(chunk, offered.reply)?),
    };
    match (via, returned) {
        (Via::NoMsg, Some(len)) if len >= RPC_PREFIX_LEN => {
            let len32 = u32::try_from(len).unwrap_or(u32::MAX);
            let lens = MessageLens { payload: 0, stream: len, excised };
            placed(Items::Written { writes }, Some(len32), lens, rpc_len_max)
        }
        (Via::NoMsg, _) => Err(Violation::BadHeader("a reply is nowhere")),
        (_, None | Some(0)) => {
            let payload = part.payload_len;
            let lens = MessageLens { payload, stream: u64::from(payload), excised };
            placed(Items::Written { writes }, None, lens, rpc_len_max)
        }
        (_, Some(_)) => Err(Violation::BadHeader("a reply is in two places")),
    }
}

/// The lengths of a received message.
struct MessageLens {
    /// Bytes of the payload in the transmission.
    payload: u32,
    /// Bytes of the payload stream, wherever it is.
    stream: u64,
    /// Bytes of all items, with their padding.
    excised: u64,
}

/// wire.md E40: the message with everything in it is no longer than is accepted.
fn placed<'a>(
    items: Items<'a>,
    body_len: Option<u32>,
    lens: MessageLens,
    rpc_len_max: u32,
) -> Result<Placed<'a>, Violation> {
    let MessageLens { payload: payload_len, stream, excised } = lens;
    match u32::try_from(stream + excised) {
        Ok(virtual_len) if virtual_len <= rpc_len_max => {
            let is_here = match &items {
                Items::Read { reads } => reads.is_empty(),
                Items::OneRead { .. } => false,
                Items::Listed { .. } | Items::Written { .. } => true,
            };
            Ok(Placed { items, sums: Sums { body_len, payload_len, virtual_len, is_here } })
        }
        _ => Err(Violation::BadHeader("the message is longer than is accepted")),
    }
}

/// How much was written to a chunk that was offered with these segments.
fn returned_len(
    WriteChunk(returned): WriteChunk<'_>,
    offered: &[RdmaSegment],
) -> Result<u64, Violation> {
    if returned.len() != offered.len() {
        return Err(Violation::BadHeader("a chunk came back with other segments"));
    }
    let mut is_short = false;
    for (segment, offer) in returned.iter().zip(offered) {
        if (segment.handle, segment.offset) != (offer.handle, offer.offset) {
            return Err(Violation::BadHeader("a chunk came back with other segments"));
        }
        // RFC 8166 3.4.6: contiguously, and in the order of the segments.
        if segment.length > offer.length || (is_short && segment.length > 0) {
            return Err(Violation::BadHeader("a chunk came back with impossible lengths"));
        }
        is_short |= segment.length < offer.length;
    }
    Ok(total_len(returned.iter()))
}
