//! Checks a received message, and records the locations of its parts.

use rpcrdma_proto::{CallId, Connection, Message, NO_MARK, Offered, Part, Violation};

use crate::message::map::Map;
use crate::message::saved_offer::SavedOffer;
use crate::state::parts::Parts;
use crate::state::rdma::Rdma;
use crate::state::rdma::fetch::{OFFER_TOO_LONG, buffers_needed};

/// Whether a call is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    /// It is.
    Here,
    /// Part of it is in the memory of the caller, and needs this number of buffers.
    Remote(usize),
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
    saved_offer.clear();
    map.clear();
    let placed = conn.find_call(message, parts, map)?;
    // wire.md W6: an offer whose reply would have too long a header.
    if !saved_offer.set(&message.offer()) {
        return Err(OFFER_TOO_LONG);
    }
    if !placed.is_here() {
        match buffers_needed(&placed, rdma.for_calls())? {
            0 => {}
            needs => return Ok(Whole::Remote(needs)),
        }
    }
    map.finish(&conn.settings().structure, parts);
    Ok(Whole::Here)
}

/// Checks a reply and records the locations of its parts; for a call with exposed memory this waits
/// until the rights have ended.
#[inline]
pub(crate) fn prepare_reply(
    conn: &Connection,
    Parts { ledger, rdma, .. }: &Parts,
    id: CallId,
    message: &Message<'_>,
    parts: &[Part],
    map: &mut Map,
) -> Result<(), Violation> {
    let mark = ledger.calls.find(id.xid(), conn.peer()).map_or(NO_MARK, |(_, entry)| entry.mark);
    if mark != NO_MARK {
        conn.resolve_reply(ledger, id, message, parts, &rdma.offered(mark))?;
        return Ok(());
    }
    map.clear();
    conn.find_reply(ledger, id, message, parts, &Offered::NONE, map)?;
    map.finish(&conn.settings().structure, parts);
    Ok(())
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
    map.clear();
    let found = conn.find_segmented(ledger, id, first_segment, map);
    if found.is_some() {
        map.finish(&conn.settings().structure, conn.group());
    }
    found.is_some()
}
