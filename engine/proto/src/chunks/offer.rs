//! The reply to a call with chunks: whether it is possible, which result is written to which chunk,
//! and what is inline

use rpcrdma_xdr::chunk::{WriteChunk, WriteList};
use rpcrdma_xdr::onc::RpcPrefix;

use crate::demand::{Exposed, ReplyDemand};
use crate::error::{SendError, Violation};
use crate::ingress::Message;
use crate::item::ItemSet;
use crate::layout::Layout;
use crate::placement::lists::ReplyLists;
use crate::placement::plan::{Form, GroupPlan, Sizes};
use crate::placement::spread::{Spread, spread};
use crate::property::PeerLimits;
use crate::segments::total_len;
use crate::settings::{Interop, ReplyChunkUse};

/// Checks that a call's offers fit a reply to a peer with these limits: the shortest reply, after
/// the header or in the Reply chunk (wire.md W6).
///
/// # Errors
/// [`Violation::BadHeader`]: no reply can be sent, so the call must not be executed.
pub(crate) fn check_offer(peer: &PeerLimits, message: &Message<'_>) -> Result<(), Violation> {
    let Message { writes, reply, .. } = *message;
    if writes.is_empty() && reply.is_none() {
        return Ok(());
    }
    let header_len = ReplyLists { writes, reply, is_written: false }.header_len();
    let holds =
        |WriteChunk(segments): WriteChunk<'_>| total_len(segments.iter()) >= RpcPrefix::LEN as u64;
    let in_msg = peer.fits_msg(header_len, RpcPrefix::LEN as u32);
    match in_msg || (reply.is_some_and(holds) && peer.fits_header(header_len)) {
        true => Ok(()),
        false => Err(Violation::BadHeader("what is offered is more than a reply can return")),
    }
}

/// Plans a reply within what the caller offered. Its items are known to be in order.
///
/// # Errors
/// [`SendError::RoomTooSmall`] if a chunk is too short for its data: the caller answers the call
/// with RDMA_ERROR (wire.md C6).
#[inline(never)]
pub(crate) fn plan_reply<'a>(
    peer: &PeerLimits,
    interop: &Interop,
    xid: u32,
    demand: &ReplyDemand<'a>,
    writes: WriteList<'a>,
    reply: Option<WriteChunk<'a>>,
) -> Result<GroupPlan<'a>, SendError> {
    let ReplyDemand { payload, items, gather_max, copy_max, .. } = *demand;
    let mut direct = ItemSet::EMPTY;
    // RFC 8166 4.3.2.1: chunks are used up in order; wire.md C5: also by an item without bytes.
    for (index, (item, WriteChunk(segments))) in items.iter().zip(writes.iter()).enumerate() {
        // RFC 8166 4.3.2.3: an empty chunk asks for the item in line.
        if item.len == 0 || segments.is_empty() {
            continue;
        }
        let have = total_len(segments.iter());
        if u64::from(item.len) > have {
            return Err(SendError::RoomTooSmall { need: item.len, have });
        }
        direct.insert(index);
    }
    let mut lists = ReplyLists { writes, reply, is_written: false };
    let header_len = lists.header_len();
    let spread = spread(payload, items, direct)?;
    let need = spread.gathered(items, direct, gather_max, copy_max);
    let Spread { stream, bulk, .. } = spread;
    let in_msg = peer.fits_msg(header_len, stream) && need <= gather_max;
    let have = reply.map_or(0, |WriteChunk(segments)| total_len(segments.iter()));
    let in_chunk = have >= u64::from(stream) && peer.fits_header(header_len);
    // RFC 8166 4.3.3: a Reply chunk may be left unused if the reply is short.
    let prefers_chunk = interop.reply_chunk == ReplyChunkUse::Always;
    lists.is_written = in_chunk && (prefers_chunk || !in_msg);
    if !lists.is_written && !in_msg {
        return Err(match reply {
            Some(_) => SendError::RoomTooSmall { need: stream, have },
            None if peer.fits_msg(header_len, stream) => {
                SendError::TooManyPieces { need, max: gather_max }
            }
            None => SendError::NeedsExplicitRdma { payload, bulk, transmissions: 0, limit: 1 },
        });
    }
    let sizes = Sizes {
        form: Form::ChunkReply(lists),
        xid,
        stream,
        items,
        placed: ItemSet::EMPTY,
        direct,
        exposed: Exposed::NONE,
        gather_max,
    };
    let first_room = if lists.is_written { 0 } else { stream };
    Ok(GroupPlan::new(sizes, &Layout::single(header_len, first_room)))
}
