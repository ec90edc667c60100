//! The form of a call by the extension: what is placed, what the peer reads, and what it may write
//! to.
//!
//! ```text
//!   the reply   as its wants prefer ──▶ all that has memory written ──▶ memory for every want
//!   the call    items placed ─▶ in one ─▶ items read by the peer ─▶ all of it in the stream
//! ```
//! Takes the first form of the reply that some form of the call is compatible with, and the first
//! such form of the call (wire.md W17). A memory piece, or an RDMA buffer, counts as one segment.

use arrayvec::ArrayVec;
use rpcrdma_xdr::numbers::limit::{GROUP_MAX, ITEM_SEGMENTS_MAX, MITEMS_MAX};
use rpcrdma_xdr::numbers::size;

use crate::chunks::route::is_as_routed;
use crate::demand::{CallDemand, CallForm, CallRoute, Exposed, WantKind};
use crate::error::{Misuse, SendError};
use crate::item::{BulkItem, ItemSet};
use crate::layout::{self, LayoutError, Target, places_items};
use crate::placement::choice::Apart;
use crate::placement::direct;
use crate::placement::exrw;
use crate::property::PeerLimits;
use crate::route::Outgoing;
use crate::settings::Settings;

/// What a call by the extension has to keep to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits<'s> {
    pub(crate) peer: &'s PeerLimits,
    pub(crate) own: &'s Settings,
    /// Bytes of our receive buffers that the peer uses.
    pub(crate) own_recv_size: u32,
    /// The most transmissions of the call.
    pub(crate) call_max: u32,
    /// The most transmissions of the reply.
    pub(crate) reply_max: u32,
}

/// One way of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReplyWay {
    /// The results with memory.
    offered: ItemSet,
    /// Those that the plan counts on to be written.
    written: ItemSet,
}

impl Limits<'_> {
    /// The form of a call whose items and results are checked.
    ///
    /// # Errors
    /// [`SendError`] gives the reason with numbers.
    #[inline(never)]
    pub(crate) fn route(&self, demand: &CallDemand<'_>) -> Result<CallRoute, SendError> {
        let mut failure = None;
        let can_be =
            |way: &ReplyWay| way.offered.is_empty() || demand.can_have_written(way.offered, 0);
        for way in reply_ways(demand).into_iter().filter(can_be) {
            let joined = self
                .reply_count(demand, way)
                .and_then(|reply_count| self.call(demand, way.offered, reply_count));
            match joined {
                Ok(route) => return Ok(route),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(SendError::Misuse(Misuse("there is a way of the reply"))))
    }

    /// The call, with memory for these results and so many transmissions reserved for its reply.
    fn call(
        &self,
        demand: &CallDemand<'_>,
        offered: ItemSet,
        reply_count: u32,
    ) -> Result<CallRoute, SendError> {
        let CallDemand { payload, items, wants, gather_max, copy_max, explicit, .. } = *demand;
        let message = Outgoing { peer: self.peer, payload, items, gather_max, copy_max };
        let header_base = size::XMTREQ_MIN as u32 + directions_len(demand, offered);
        let lay = |reads_len: u32, apart, call_max| {
            message
                .laid(header_base.saturating_add(reads_len), apart, call_max)
                .map(|laid| laid.route(CallForm::Xmt, offered, reply_count))
        };
        let mut failure = None;
        let apart = items_where(items, |item| item.len > 0);
        if self.own.placement && self.peer.placement && !apart.is_empty() {
            match lay(0, Apart { placed: apart, ..Apart::NONE }, self.call_max) {
                Ok(route) => return Ok(route),
                Err(error) => failure = Some(error),
            }
        }
        if wants.is_empty()
            && reply_count <= 1
            && let Ok(laid) = message.in_msg()
        {
            return Ok(laid.route(CallForm::Msg, ItemSet::EMPTY, reply_count));
        }
        let read = items_where(items, |item| item.len > 0 && item.pieces <= ITEM_SEGMENTS_MAX);
        if explicit.enabled && !read.is_empty() {
            // A message that fits one transmission is not worth a round trip of the peer.
            if let Ok(route) = lay(0, Apart::NONE, 1) {
                return Ok(route);
            }
            let reads_len = read.of(items).map(|item| exrw::item_len(item.pieces.max(1))).sum();
            if let Ok(route) = lay(reads_len, Apart { direct: read, ..Apart::NONE }, self.call_max)
            {
                return Ok(route);
            }
        }
        lay(0, Apart::NONE, self.call_max).map_err(|error| failure.unwrap_or(error))
    }

    /// The transmissions that the longest reply may take in our receive buffers.
    fn reply_count(&self, demand: &CallDemand<'_>, way: ReplyWay) -> Result<u32, SendError> {
        let limit = self.reply_max;
        let room = self.own_recv_size - size::HEADER_MIN as u32;
        if demand.wants.is_empty() && demand.reply_payload_max <= room {
            return Ok(1);
        }
        let bulk = demand.wants.iter().fold(0, |sum: u32, want| sum.saturating_add(want.max_len));
        let impossible = |transmissions| SendError::NeedsExplicitRdma {
            payload: demand.reply_payload_max,
            bulk,
            transmissions,
            limit,
        };
        match self.lay_reply(demand, way) {
            Ok(count) if count <= limit => Ok(count),
            Ok(count) | Err(LayoutError::Count(count)) => Err(impossible(count)),
            Err(LayoutError::Pieces(_)) => Err(impossible(0)),
        }
    }

    fn lay_reply(&self, demand: &CallDemand<'_>, way: ReplyWay) -> Result<u32, LayoutError> {
        let (structure, usable) = (&self.own.structure, self.own_recv_size);
        let placement = places_items(structure, usable);
        let target = Target { structure, usable, placement };
        let mut items = ArrayVec::<BulkItem, { MITEMS_MAX as usize }>::new();
        let mut placed = ItemSet::EMPTY;
        let mut header_base = size::XMTRESP_MIN as u32;
        let mut inline: u32 = 0;
        for (index, want) in demand.wants.iter().enumerate().take(MITEMS_MAX as usize) {
            if way.offered.contains(index) {
                let segments = want.segments(demand.explicit).unwrap_or(0);
                header_base = header_base.saturating_add(exrw::item_len(segments));
            }
            // An item that is not written is placed, if that is allowed; otherwise it is in line.
            let (len, is_placed) = match want.asked(way.offered.contains(index)) {
                _ if way.written.contains(index) => (want.min_len.saturating_sub(1), false),
                WantKind::BySize => (want.over.max(want.min_len), placement),
                WantKind::Exrw | WantKind::Tbsn | WantKind::Choice => (want.max_len, placement),
            };
            let len = len.min(want.max_len);
            if is_placed && len > 0 {
                placed.insert(items.len());
                items.push(BulkItem { position: 0, len, origin: 0, pieces: 1 });
            } else {
                inline = inline.saturating_add(len.saturating_add(3) & !3);
                header_base = header_base.saturating_add(size::MITEM_VOID as u32);
            }
        }
        let demand = layout::Demand {
            header_base,
            stream: demand.reply_payload_max.saturating_add(inline).saturating_add(3) & !3,
            stream_pieces: 1,
            items: &items,
            placed,
            count_max: GROUP_MAX,
            gather_max: u32::MAX,
        };
        layout::lay(target, &demand).map(|layout| layout.count)
    }
}

/// The forms of the reply, in the order of preference; each differs from the one before.
fn reply_ways(demand: &CallDemand<'_>) -> ArrayVec<ReplyWay, 3> {
    let (mut direct, mut asked, mut possible) = (ItemSet::EMPTY, ItemSet::EMPTY, ItemSet::EMPTY);
    for (index, want) in demand.wants.iter().enumerate().take(MITEMS_MAX as usize) {
        let segments = want.segments(demand.explicit);
        // wire.md E29: a result whose minimum is never reached stays in the stream.
        let is_meant = want.max_len > 0 && want.max_len >= want.min_len;
        if !is_meant || segments.is_none_or(|segments| segments > ITEM_SEGMENTS_MAX) {
            continue;
        }
        possible.insert(index);
        if want.kind != WantKind::Tbsn {
            asked.insert(index);
        }
        if want.kind == WantKind::Exrw {
            direct.insert(index);
        }
    }
    let mut ways = ArrayVec::<ReplyWay, 3>::new();
    for (offered, written) in [(asked, direct), (asked, asked), (possible, possible)] {
        let way = ReplyWay { offered, written };
        if ways.last() != Some(&way) {
            ways.push(way);
        }
    }
    ways
}

/// Header bytes of the directions of a call.
fn directions_len(demand: &CallDemand<'_>, offered: ItemSet) -> u32 {
    let sets = direct::ranges(demand.wants).count() * size::RSDSET;
    let items = demand.wants.iter().enumerate().map(|(index, want)| {
        let is_offered = offered.contains(index);
        let segments = want.segments(demand.explicit).unwrap_or(0);
        match want.asked(is_offered) {
            WantKind::Tbsn => size::RSDITEM_TBSN as u32,
            // A minimum length in the place of position and length.
            WantKind::Exrw | WantKind::Choice => exrw::item_len(segments) - 4,
            WantKind::BySize => exrw::item_len(segments),
        }
    });
    sets as u32 + items.sum::<u32>()
}

/// The header length of a routed transmit request with the memory that was exposed for it.
///
/// # Errors
/// [`Misuse`] if the memory differs from the route's.
pub(crate) fn check_exposed(
    route: &CallRoute,
    demand: &CallDemand<'_>,
    exposed: &Exposed<'_>,
) -> Result<u32, Misuse> {
    let reads = route.items.of(demand.items).map(|item| item.pieces.max(1));
    let writes = route.wants.iter().filter_map(|index| demand.wants.get(index));
    let writes = writes.map(|want| want.segments(demand.explicit).unwrap_or(0));
    let counted = reads.chain(writes).sum::<u32>() as usize;
    let saved = counted.checked_sub(exposed.items.segments.len() + exposed.wants.segments.len());
    match saved.filter(|_| is_as_routed(route, demand, exposed)) {
        Some(saved) => Ok(route.layout.header_len - (saved * size::SEGMENT) as u32),
        None => Err(Misuse("what is exposed is not what the route names")),
    }
}

fn items_where(items: &[BulkItem], is_meant: impl Fn(&BulkItem) -> bool) -> ItemSet {
    let mut set = ItemSet::EMPTY;
    for (index, _) in items.iter().enumerate().filter(|(_, item)| is_meant(item)) {
        set.insert(index);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::{Explicit, Want};

    #[test]
    fn a_result_of_more_segments_than_an_item_has_is_not_written() {
        for (pieces, is_possible) in [(0, true), (1, true), (256, true), (257, false), (300, false)]
        {
            let wants = [Want { kind: WantKind::Exrw, pieces, ..Want::sends(0, 40, 0, 4000) }];
            let explicit = Explicit::unlimited(4096);
            let demand = CallDemand { wants: &wants, explicit, ..CallDemand::inline(40, 40) };
            let ways = reply_ways(&demand);
            assert!(ways.iter().all(|way| way.offered.contains(0) == is_possible), "{pieces}");
        }
    }
}
