//! Which way a message travels: inline, in a group, placed or not, or not at all.
//!
//! ```text
//!   no items, fits one buffer ───────────────▶ Plan::Inline   RDMA_MSG
//!   items, a peer with placement segments ───▶ Plan::Group    placed, 1 to N transmissions
//!   items that cannot be placed ─────────────▶ Plan::Group    in the payload stream
//!   none of these fits ──────────────────────▶ NeedsExplicitRdma
//! ```

use arrayvec::ArrayVec;
use rpcrdma_xdr::array::{Array, Wire};
use rpcrdma_xdr::numbers::limit::{GROUP_MAX, MITEMS_MAX};
use rpcrdma_xdr::numbers::size;
use rpcrdma_xdr::property::RtrSupport;
use rpcrdma_xdr::rtr::placement::RsdSet;

use crate::error::{Misuse, SendError};
use crate::placement::direct;
use crate::placement::inline::{Direction, InlinePlan};
use crate::placement::item::BulkItem;
use crate::placement::layout::{self, ItemSet, LayoutError, Target, places_items};
use crate::placement::plan::{Form, GroupPlan, Plan, Sizes};
use crate::property::PeerLimits;
use crate::settings::Settings;

/// A call to be sent.
#[derive(Debug, Clone, Copy)]
pub struct CallDemand<'a> {
    /// Bytes of the payload, without the items; the items' length words are in it.
    pub payload: u32,
    /// The items, by position.
    pub items: &'a [BulkItem],
    /// What is wanted of the reply's items, by range.
    pub wants: &'a [RsdSet<'a>],
    /// The longest payload that the reply may have, without the wanted items that are placed.
    pub reply_payload_max: u32,
    /// The longest that each wanted item may be, in the order of `wants`.
    pub reply_bulk_max: &'a [u32],
    /// The most pieces that a transmission can be gathered from, its header counted as one.
    pub gather_max: u32,
}

impl<'a> CallDemand<'a> {
    /// Whether neither the call nor the reply has items.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.items.is_empty() && self.wants.is_empty()
    }

    /// A call and a reply without items.
    #[inline]
    #[must_use]
    pub fn inline(payload: u32, reply_payload_max: u32) -> Self {
        Self {
            payload,
            items: &[],
            wants: &[],
            reply_payload_max,
            reply_bulk_max: &[],
            gather_max: 2,
        }
    }
}

/// A reply to be sent.
#[derive(Debug, Clone, Copy)]
pub struct ReplyDemand<'a> {
    /// Bytes of the payload, without the items; the items' length words are in it.
    pub payload: u32,
    /// The items, by position; each with its origin.
    pub items: &'a [BulkItem],
    /// The directions of the call, from its first transmission.
    pub rsd: Array<'a, RsdSet<'a>>,
    /// The most pieces that a transmission can be gathered from, its header counted as one.
    pub gather_max: u32,
}

impl ReplyDemand<'_> {
    /// A reply without items, to a call without directions.
    #[inline]
    #[must_use]
    pub fn inline(payload: u32) -> Self {
        Self { payload, items: &[], rsd: Array::EMPTY, gather_max: 2 }
    }
}

/// What a message may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Whether the operations of the extension may be used at all.
    pub(crate) xmt: bool,
    /// The most transmissions.
    pub(crate) count_max: u32,
}

/// The plan of a call. `rsbuf` is the number of transmissions its reply may need.
pub(crate) fn plan_call<'a>(
    peer: &PeerLimits,
    bounds: Bounds,
    xid: u32,
    rsbuf: u32,
    demand: &CallDemand<'a>,
) -> Result<Plan<'a>, SendError> {
    let plain = demand.items.is_empty() && demand.wants.is_empty() && rsbuf <= 1;
    if plain && fits_inline(peer, demand.payload) {
        let (direction, payload) = (Direction::Call, demand.payload);
        return Ok(Plan::Inline(InlinePlan { xid, direction, payload }));
    }
    plan_call_group(peer, bounds, xid, rsbuf, demand)
}

/// The plan of a reply. `xmt` says whether the call came as a transmit request.
pub(crate) fn plan_reply<'a>(
    peer: &PeerLimits,
    bounds: Bounds,
    xid: u32,
    demand: &ReplyDemand<'a>,
) -> Result<Plan<'a>, SendError> {
    let plain = demand.items.is_empty() && demand.rsd.is_empty();
    if plain && fits_inline(peer, demand.payload) {
        let (direction, payload) = (Direction::Reply, demand.payload);
        return Ok(Plan::Inline(InlinePlan { xid, direction, payload }));
    }
    plan_reply_group(peer, bounds, xid, demand)
}

/// The transmissions that the longest reply to a call may take in our own receive buffers.
pub(crate) fn reply_count(own: &Settings, demand: &CallDemand<'_>) -> Result<u32, LayoutError> {
    let usable = own.structure.total_len();
    let header_base = size::XMTRESP_MIN as u32;
    if demand.wants.is_empty() && demand.reply_payload_max <= usable - header_base {
        return Ok(1);
    }
    reply_count_of_many(own, demand)
}

#[inline(never)]
fn reply_count_of_many(own: &Settings, demand: &CallDemand<'_>) -> Result<u32, LayoutError> {
    let usable = own.structure.total_len();
    let placement = places_items(&own.structure, usable);
    let target = Target { structure: &own.structure, usable, placement };
    let mut items = ArrayVec::<BulkItem, { MITEMS_MAX as usize }>::new();
    let mut placed = ItemSet::EMPTY;
    let mut inline: u32 = 0;
    let mut unplaced = 0;
    for len in demand.reply_bulk_max.iter().take(MITEMS_MAX as usize) {
        if placement && *len > 0 {
            placed.insert(items.len());
            items.push(BulkItem { position: 0, len: *len, origin: 0, pieces: 1 });
        } else {
            inline = inline.saturating_add(len.saturating_add(3));
            unplaced += 1;
        }
    }
    let demand = layout::Demand {
        header_base: size::XMTRESP_MIN as u32 + unplaced * size::MITEM_VOID as u32,
        stream: demand.reply_payload_max.saturating_add(inline).saturating_add(3) & !3,
        stream_pieces: 1,
        items: &items,
        placed,
        count_max: GROUP_MAX,
        gather_max: u32::MAX,
    };
    layout::lay(target, &demand).map(|layout| layout.count)
}

#[inline(never)]
fn plan_call_group<'a>(
    peer: &PeerLimits,
    bounds: Bounds,
    xid: u32,
    rsbuf: u32,
    demand: &CallDemand<'a>,
) -> Result<Plan<'a>, SendError> {
    let CallDemand { payload, items, wants, gather_max, .. } = *demand;
    let virtual_len = check_items(payload, items)?;
    check_wants(wants, virtual_len)?;
    let message = Message { peer, xid, payload, items, gather_max };
    if !bounds.xmt {
        return message.in_msg(Direction::Call).map(Plan::Group);
    }
    let rsd_len = wants.iter().map(Wire::encoded_len).sum::<usize>() as u32;
    let header_base = size::XMTREQ_MIN as u32 + rsd_len;
    let form = Form::Request { wants, rsbuf: rsbuf.max(1) };
    let mut failure = None;
    if peer.placement && items.iter().any(|item| item.len > 0) {
        let placed = items_where(items, |index| items[index].len > 0);
        match message.laid(form, header_base, placed, bounds.count_max) {
            Ok(plan) => return Ok(Plan::Group(plan)),
            Err(error) => failure = Some(error),
        }
    }
    if wants.is_empty()
        && rsbuf <= 1
        && let Ok(plan) = message.in_msg(Direction::Call)
    {
        return Ok(Plan::Group(plan));
    }
    message
        .laid(form, header_base, ItemSet::EMPTY, bounds.count_max)
        .map(Plan::Group)
        .map_err(|error| failure.unwrap_or(error))
}

#[inline(never)]
fn plan_reply_group<'a>(
    peer: &PeerLimits,
    bounds: Bounds,
    xid: u32,
    demand: &ReplyDemand<'a>,
) -> Result<Plan<'a>, SendError> {
    let ReplyDemand { payload, items, rsd, gather_max } = *demand;
    check_items(payload, items)?;
    let message = Message { peer, xid, payload, items, gather_max };
    if !bounds.xmt {
        return message.in_msg(Direction::Reply).map(Plan::Group);
    }
    // wire.md E32: a plain answer says nothing about directions, so it is for calls without.
    if rsd.is_empty()
        && let Ok(plan) = message.in_msg(Direction::Reply)
    {
        return Ok(Plan::Group(plan));
    }
    let matches = direct::match_items(&rsd, items)?;
    let form = Form::Response { rsd };
    let mut failure = None;
    if peer.placement && matches.iter().any(|found| found.sends) {
        let sends =
            |index| matches.iter().any(|found| found.sends && found.item == Some(index as u8));
        let placed = items_where(items, sends);
        let rest = matches.len() as u32 - placed.len();
        let header_base = size::XMTRESP_MIN as u32 + rest * size::MITEM_VOID as u32;
        match message.laid(form, header_base, placed, bounds.count_max) {
            Ok(plan) => return Ok(Plan::Group(plan)),
            Err(error) => failure = Some(error),
        }
    }
    let header_base = (size::XMTRESP_MIN + matches.len() * size::MITEM_VOID) as u32;
    message
        .laid(form, header_base, ItemSet::EMPTY, bounds.count_max)
        .map(Plan::Group)
        .map_err(|error| failure.unwrap_or(error))
}

/// A message on its way to a form.
struct Message<'p, 'a> {
    peer: &'p PeerLimits,
    xid: u32,
    payload: u32,
    items: &'a [BulkItem],
    gather_max: u32,
}

impl<'a> Message<'_, 'a> {
    /// All in one RDMA_MSG.
    fn in_msg(&self, direction: Direction) -> Result<GroupPlan<'a>, SendError> {
        self.laid(Form::Msg(direction), size::HEADER_MIN as u32, ItemSet::EMPTY, 1)
    }

    fn laid(
        &self,
        form: Form<'a>,
        header_base: u32,
        placed: ItemSet,
        count_max: u32,
    ) -> Result<GroupPlan<'a>, SendError> {
        if !self.payload.is_multiple_of(4) {
            return Err(Misuse("a payload is a multiple of four bytes").into());
        }
        let (mut stream, mut bulk) = (u64::from(self.payload), 0);
        let mut stream_pieces = 1;
        for (index, item) in self.items.iter().enumerate() {
            bulk += u64::from(item.len);
            if !placed.contains(index) {
                stream += u64::from(item.padded_len());
                // The item, its padding if there is any, and the payload behind it.
                stream_pieces += item.pieces + u32::from(item.padded_len() > item.len) + 1;
            }
        }
        // The check of the items has found the sum of all to be a u32.
        let (stream, bulk) = (stream as u32, bulk as u32);
        let gather_max = self.gather_max;
        let items = self.items;
        let demand = layout::Demand {
            header_base,
            stream,
            stream_pieces,
            items,
            placed,
            count_max,
            gather_max,
        };
        let layout = layout::lay(self.peer.target(), &demand)
            .map_err(|error| error.into_send_error(self.payload, bulk, count_max, gather_max))?;
        let xid = self.xid;
        Ok(GroupPlan::new(Sizes { form, xid, stream, items, placed, gather_max }, &layout))
    }
}

#[inline]
fn fits_inline(peer: &PeerLimits, payload: u32) -> bool {
    payload <= peer.recv_size - InlinePlan::HEADER_LEN
}

fn items_where(items: &[BulkItem], is_placed: impl Fn(usize) -> bool) -> ItemSet {
    let mut placed = ItemSet::EMPTY;
    for index in (0..items.len()).filter(|index| is_placed(*index)) {
        placed.insert(index);
    }
    placed
}

/// The length of the message with nothing excised, if its items can be those of a message.
fn check_items(payload: u32, items: &[BulkItem]) -> Result<u32, SendError> {
    if items.len() > MITEMS_MAX as usize {
        return Err(Misuse("a message has at most 64 items").into());
    }
    let (mut excised, mut previous_end) = (0u64, 8u64);
    for item in items {
        let position = u64::from(item.position);
        let in_order = position >= previous_end && position <= u64::from(payload) + excised;
        if position % 4 != 0 || !in_order {
            return Err(Misuse("items lie in the stream in order, on word boundaries").into());
        }
        let padded = (u64::from(item.len) + 3) & !3;
        excised += padded;
        previous_end = position + padded;
    }
    u32::try_from(u64::from(payload) + excised)
        .map_err(|_| Misuse("a message is shorter than 4 GiB").into())
}

/// The ranges of reply directions are of the call's stream (wire.md E23).
fn check_wants(wants: &[RsdSet<'_>], virtual_len: u32) -> Result<(), Misuse> {
    match wants.last() {
        Some(set) if set.end > virtual_len => Err(Misuse("a range of directions leaves the call")),
        _ => Ok(()),
    }
}

/// The operations that are needed for a call, for a reply, and for more than one transmission.
pub(crate) const CALL_OPERATIONS: RtrSupport = RtrSupport::XREQ.union(RtrSupport::XRESP);
