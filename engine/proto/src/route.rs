//! The form of a message: inline, in a group, with placed items or not, or not possible.
//!
//! ```text
//!   no items, fits one buffer ───────────────▶ Plan::Inline   RDMA_MSG
//!   items, a peer with placement segments ───▶ Plan::Group    placed, 1 to N transmissions
//!   items that cannot be placed ─────────────▶ Plan::Group    in the payload stream
//!   none of these fits ──────────────────────▶ NeedsExplicitRdma
//! ```

use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::numbers::limit::MITEMS_MAX;
use rpcrdma_xdr::numbers::size;
use rpcrdma_xdr::property::RtrSupport;
use rpcrdma_xdr::rtr::placement::RsdSet;

use crate::chunks::offer;
use crate::demand::{CallDemand, CallForm, CallRoute, Exposed, Offer, ReplyDemand, Want};
use crate::error::{Misuse, SendError};
use crate::item::{BulkItem, ItemSet};
use crate::layout::{self, Layout, LayoutError};
use crate::placement::choice::{self, Apart, Can};
use crate::placement::direct::{self, Matches};
use crate::placement::exrw;
use crate::placement::gather::gathered;
use crate::placement::inline::{Direction, InlinePlan};
use crate::placement::lists::CallLists;
use crate::placement::plan::{Form, GroupPlan, Plan, Sizes};
use crate::placement::spread::{Spread, spread};
use crate::property::PeerLimits;
use crate::settings::Interop;

/// What a message may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Whether the operations of the extension may be used at all.
    pub(crate) xmt: bool,
    /// The most transmissions.
    pub(crate) count_max: u32,
    /// Whether items may be placed in the peer's buffers.
    pub(crate) place: bool,
    /// Whether memory may be exposed in this direction.
    pub(crate) explicit: bool,
    /// Bytes of the longest message, its items included.
    pub(crate) len_max: u32,
}

/// The plan of a call that was routed.
pub(crate) fn plan_call<'a>(
    xid: u32,
    route: &CallRoute,
    demand: &CallDemand<'a>,
    exposed: &Exposed<'a>,
) -> Plan<'a> {
    let CallDemand { payload, items, wants, gather_max, .. } = *demand;
    let form = match route.form {
        CallForm::Msg if items.is_empty() && !route.exposes() => {
            let (direction, invalidate) = (Direction::Call, None);
            return Plan::Inline(InlinePlan { xid, direction, payload, invalidate });
        }
        CallForm::Msg if !route.exposes() => Form::Msg(Direction::Call),
        CallForm::Msg | CallForm::NoMsg => {
            let is_fetched = route.form == CallForm::NoMsg;
            Form::ChunkCall(CallLists { is_fetched, wants: route.wants })
        }
        CallForm::Xmt => {
            let rsbuf = route.reply_count.max(1);
            Form::Request { wants, offered: route.wants, rsbuf }
        }
    };
    let sizes = Sizes {
        form,
        xid,
        stream: route.stream,
        items,
        placed: route.placed,
        direct: route.items,
        exposed: *exposed,
        gather_max,
    };
    Plan::Group(GroupPlan::new(sizes, &route.layout))
}

/// The plan of a reply that is not plain.
#[inline(never)]
pub(crate) fn plan_reply<'a>(
    peer: &PeerLimits,
    bounds: Bounds,
    interop: &Interop,
    xid: u32,
    demand: &ReplyDemand<'a>,
) -> Result<Plan<'a>, SendError> {
    let ReplyDemand { payload, items, offer, gather_max, copy_max } = *demand;
    check_items(payload, items, bounds.len_max)?;
    let message = Outgoing { peer, payload, items, gather_max, copy_max };
    let in_msg = || {
        let laid = message.in_msg()?;
        Ok::<_, SendError>(Plan::Group(laid.plan(Form::Msg(Direction::Reply), xid, &message)))
    };
    let rsd = match offer {
        Offer::Directions(rsd) if bounds.xmt => rsd,
        Offer::None if bounds.xmt => Array::EMPTY,
        Offer::Chunks { writes, reply } => {
            return offer::plan_reply(peer, interop, xid, demand, writes, reply).map(Plan::Group);
        }
        Offer::None | Offer::Directions(_) => return in_msg(),
    };
    // wire.md E32: a plain answer says nothing about directions, so it is for calls without.
    if rsd.is_empty()
        && let Ok(plan) = in_msg()
    {
        return Ok(plan);
    }
    let matches = direct::match_items(&rsd, items)?;
    let form = Form::Response { rsd };
    let can = Can { place: bounds.place, write: bounds.explicit };
    let mut failure = None;
    for Apart { placed, direct } in choice::choices(&matches, items, can)? {
        let header_base =
            size::XMTRESP_MIN as u32 + response_items_len(&rsd, &matches, placed, direct);
        match message.laid(header_base, Apart { placed, direct }, bounds.count_max) {
            Ok(laid) => return Ok(Plan::Group(laid.plan(form, xid, &message))),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    // wire.md E32: nothing is placed then.
    in_msg().map_err(|error| failure.unwrap_or(error))
}

/// Header bytes of the items of a transmit response, but for those that are placed.
fn response_items_len(
    rsd: &Array<'_, RsdSet<'_>>,
    matches: &Matches,
    placed: ItemSet,
    direct: ItemSet,
) -> u32 {
    let directions = rsd.iter().flat_map(|set| set.items.iter());
    let lens = matches.iter().zip(directions).map(|(found, direction)| match found.item {
        Some(item) if placed.contains(usize::from(item)) => 0,
        Some(item) if direct.contains(usize::from(item)) => {
            exrw::item_len(exrw::segments_of(&direction).len() as u32)
        }
        _ => size::MITEM_VOID as u32,
    });
    lens.sum()
}

/// A message on its way to a layout.
pub(crate) struct Outgoing<'p, 'a> {
    pub(crate) peer: &'p PeerLimits,
    pub(crate) payload: u32,
    pub(crate) items: &'a [BulkItem],
    pub(crate) gather_max: u32,
    pub(crate) copy_max: u32,
}

/// A message with its layout.
pub(crate) struct Laid {
    apart: Apart,
    stream: u32,
    layout: Layout,
    recv_size: u32,
}

impl Laid {
    /// The form of a call for whose reply these results have memory.
    pub(crate) fn route(self, form: CallForm, wants: ItemSet, reply_count: u32) -> CallRoute {
        let Self { apart: Apart { placed, direct }, stream, layout, recv_size } = self;
        CallRoute {
            form,
            items: direct,
            wants,
            body: 0,
            reply: 0,
            count: layout.count,
            reply_count,
            placed,
            stream,
            layout,
            recv_size,
        }
    }

    fn plan<'a>(self, form: Form<'a>, xid: u32, message: &Outgoing<'_, 'a>) -> GroupPlan<'a> {
        let Self { apart: Apart { placed, direct }, stream, layout, .. } = self;
        let &Outgoing { items, gather_max, .. } = message;
        let exposed = Exposed::NONE;
        let sizes = Sizes { form, xid, stream, items, placed, direct, exposed, gather_max };
        GroupPlan::new(sizes, &layout)
    }
}

impl Outgoing<'_, '_> {
    /// All in one RDMA_MSG.
    pub(crate) fn in_msg(&self) -> Result<Laid, SendError> {
        self.laid(size::HEADER_MIN as u32, Apart::NONE, 1)
    }

    /// In so many transmissions at most, with these items apart.
    pub(crate) fn laid(
        &self,
        header_base: u32,
        apart: Apart,
        count_max: u32,
    ) -> Result<Laid, SendError> {
        let Self { payload, items, gather_max, copy_max, .. } = *self;
        let Apart { placed, direct } = apart;
        let Spread { stream, pieces: stream_pieces, bulk } =
            spread(payload, items, placed.union(direct))?;
        let mut demand = layout::Demand {
            header_base,
            stream,
            stream_pieces,
            items,
            placed,
            count_max,
            gather_max,
        };
        let mut layout = layout::lay(self.peer.target(), &demand);
        // Not all of a stream is in one transmission; and what is in one can be copied together.
        if matches!(layout, Err(LayoutError::Pieces(_)))
            && (placed.is_empty() || stream <= copy_max)
        {
            demand.stream_pieces = 1;
            layout = layout::lay(self.peer.target(), &demand).and_then(|layout| {
                let apart = placed.union(direct);
                let parts = layout.parts(stream);
                let need =
                    parts.map(|part| gathered(items, apart, part, gather_max, copy_max)).max();
                match need.filter(|need| *need > gather_max) {
                    Some(need) => Err(LayoutError::Pieces(need)),
                    None => Ok(layout),
                }
            });
        }
        let layout =
            layout.map_err(|error| error.into_send_error(payload, bulk, count_max, gather_max))?;
        Ok(Laid { apart, stream, layout, recv_size: self.peer.recv_size })
    }
}

/// Whether a call can have these items and results.
pub(crate) fn check_call(demand: &CallDemand<'_>, len_max: u32) -> Result<(), SendError> {
    let virtual_len = check_items(demand.payload, demand.items, len_max)?;
    check_wants(demand.wants, virtual_len)?;
    let wanted = demand.wants.iter().map(|want| u64::from(want.max_len).next_multiple_of(4));
    let len = u64::from(demand.reply_payload_max) + wanted.sum::<u64>();
    match len > u64::from(len_max) {
        true => Err(SendError::ReplyTooLong { len, max: len_max }),
        false => Ok(()),
    }
}

/// The length of the message with nothing excised, if its items can be those of a message, and one
/// of at most `len_max` bytes.
fn check_items(payload: u32, items: &[BulkItem], len_max: u32) -> Result<u32, SendError> {
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
    let len = u32::try_from(u64::from(payload) + excised)
        .map_err(|_| Misuse("a message is shorter than 4 GiB"))?;
    if len > len_max { Err(SendError::TooLong { len, max: len_max }) } else { Ok(len) }
}

/// The ranges of reply directions are of the call's stream (wire.md E23).
fn check_wants(wants: &[Want], virtual_len: u32) -> Result<(), Misuse> {
    match wants.last() {
        Some(want) if want.end > virtual_len => {
            Err(Misuse("a range of directions leaves the call"))
        }
        _ => Ok(()),
    }
}

/// The operations that are needed for a call, for a reply, and for more than one transmission.
pub(crate) const CALL_OPERATIONS: RtrSupport = RtrSupport::XREQ.union(RtrSupport::XRESP);
