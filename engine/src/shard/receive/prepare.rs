//! Checks a received message, and records the locations of its parts.

use rpcrdma_proto::{CallId, Connection, KeptPlaced, Message, NO_MARK, Offered, Part, Violation};

use crate::message::map::Map;
use crate::message::saved_offer::{SavedOffer, can_return};
use crate::state::parts::Parts;
use crate::state::rdma::Rdma;
use crate::state::rdma::fetch::{Found, OFFER_TOO_LONG, buffers_needed};

/// Whether a call is complete.
pub(crate) enum Whole {
    /// It is.
    Here,
    /// Part of it is in the memory of the caller.
    Remote(Found),
}

/// A reply to a call with exposed memory, which waits until the rights have ended.
pub(crate) struct ExposedReply {
    /// The place of the exposure.
    pub place: u32,
    pub placed: KeptPlaced,
}

/// Checks a call and records the locations of its parts, if all of them are here.
#[inline]
pub(crate) fn prepare_call(
    conn: &Connection,
    message: &Message<'_>,
    parts: &[Part],
    map: &mut Map,
    saved_offer: &mut SavedOffer,
    rdma: &Rdma,
) -> Result<Whole, Violation> {
    let placed = conn.resolve_call(message, parts)?;
    let offer = message.offer();
    // wire.md W6: an offer whose reply would have too long a header.
    if !can_return(&offer) {
        return Err(OFFER_TOO_LONG);
    }
    if !placed.is_here() {
        match buffers_needed(&placed, rdma.for_calls())? {
            0 => {}
            needs => {
                let (placed, offer) = (placed.keep(), offer.keep());
                return Ok(Whole::Remote(Found { needs, placed, offer }));
            }
        }
    }
    saved_offer.set(&offer);
    let structure = &conn.settings().structure;
    map.clear();
    map.set_items(structure, &placed, &[], |_| 0);
    map.set_payload(structure, parts);
    Ok(Whole::Here)
}

/// Checks a reply and records the locations of its parts, unless its call has memory exposed.
#[inline]
pub(crate) fn prepare_reply(
    conn: &Connection,
    Parts { ledger, rdma, .. }: &Parts,
    id: CallId,
    message: &Message<'_>,
    parts: &[Part],
    map: &mut Map,
) -> Result<Option<ExposedReply>, Violation> {
    let mark = ledger.calls.find(id.xid(), conn.peer()).map_or(NO_MARK, |(_, entry)| entry.mark);
    if mark != NO_MARK {
        let placed = conn.resolve_reply(ledger, id, message, parts, &rdma.offered(mark))?;
        return Ok(Some(ExposedReply { place: mark, placed: placed.keep() }));
    }
    let placed = conn.resolve_reply(ledger, id, message, parts, &Offered::NONE)?;
    let structure = &conn.settings().structure;
    map.clear();
    map.set_items(structure, &placed, &[], |_| 0);
    map.set_payload(structure, parts);
    Ok(None)
}

/// As [`prepare_reply`], for a reply of a group with a single item. False if it needs the general
/// way.
#[inline]
pub(crate) fn prepare_segmented(
    conn: &Connection,
    Parts { ledger, .. }: &Parts,
    id: CallId,
    first_segment: &[u8],
    map: &mut Map,
) -> bool {
    let Some(item) = conn.find_segmented(ledger, id, first_segment) else { return false };
    map.clear();
    map.set_segmented(&item);
    map.set_payload(&conn.settings().structure, conn.group());
    true
}
