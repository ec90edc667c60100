//! What a call under construction shows to its peer, and what becomes of that if it is not made.

use rpcrdma_proto::{CallDemand, CallForm, CallId, CallRoute, Exposed};

use crate::error::CallRefused;
use crate::message::wanted::Wanted;
use crate::shard::peers::Peer;
use crate::shard::rdma::exposures::TARGETS_MAX;
use crate::shard::rdma::windows::Exposer;
use crate::shard::send::messages::After;
use crate::shard::send::outbox::Outbox;

/// Whether the sinks have no more pieces than one call can have written to.
pub(super) fn has_room(wants: &[Wanted]) -> bool {
    let sinks = wants.iter().filter_map(|want| want.sink.as_ref());
    sinks.map(|sink| sink.pieces().len()).sum::<usize>() <= TARGETS_MAX
}

/// Exposes what the route of a call names.
pub(super) fn expose(
    outbox: &mut Outbox,
    exposer: &mut dyn Exposer,
    (message, place): (u32, u32),
    (demand, route): (&CallDemand<'_>, &CallRoute),
    wants: &mut [Wanted],
) -> Result<(), CallRefused> {
    let Outbox { messages, exposures, .. } = outbox;
    let body = messages.body_mut(message);
    for item in (0..demand.items.len()).filter(|&item| route.items.contains(item)) {
        for piece in body.item_pieces(item) {
            exposures.offer_item(place, piece.sge(0, piece.len() as u32))?;
        }
        exposures.end_item(place)?;
    }
    for (index, wanted) in wants.iter_mut().enumerate() {
        if route.wants.contains(index) {
            exposures.offer_want(place, index, wanted.sink.take(), wanted.want.len_max)?;
        } else if let Some(sink) = wanted.sink.take() {
            exposures.keep_sink(place, index, sink)?;
        }
    }
    if route.reply > 0 {
        exposures.offer_reply(place, route.reply)?;
    }
    if route.body > 0 {
        exposures.offer_body(place, route.body)?;
    }
    exposures.key(place, exposer)?;
    Ok(())
}

/// Takes back what was exposed for a call that is not made: the sinks are the program's again. No
/// peer was told of it; but what the device has registered and keeps can be reached by whoever
/// guesses the key.
#[cold]
pub(super) fn take_back(
    outbox: &mut Outbox,
    exposer: &mut dyn Exposer,
    (message, place): (u32, u32),
    wants: &mut [Wanted],
) {
    let Outbox { messages, exposures, stats, .. } = outbox;
    exposures.at(place).on_unposted();
    match exposures.retire(place, exposer) {
        Some(dead) => {
            let (_, mut rdma_target) = exposures.at(place).rdma_target(&dead);
            for (index, wanted) in wants.iter_mut().enumerate() {
                if wanted.sink.is_none() {
                    wanted.sink = rdma_target.take_sink(index);
                }
            }
            exposures.close(dead);
        }
        None => {
            stats.rights_lost.add(1);
            let body = messages.body_mut(message);
            body.items.clear();
            exposures.abandon_with(place, body.pieces.drain(..));
        }
    }
}

/// Plans a call on its route and lays it out.
pub(super) fn begin(
    outbox: &mut Outbox,
    peer: &mut Peer,
    id: CallId,
    message: u32,
    (demand, route): (&CallDemand<'_>, &CallRoute),
) -> Result<(), CallRefused> {
    let conn = &mut peer.conn;
    let planned = conn.begin_call(&mut outbox.ledger, id, demand, route, &Exposed::NONE);
    let plan = planned.map_err(CallRefused::Protocol)?;
    outbox.lay_out(message, conn, plan)
}

/// As [`begin`], for a call that has memory exposed.
pub(super) fn begin_exposed(
    outbox: &mut Outbox,
    peer: &mut Peer,
    id: CallId,
    message: u32,
    place: u32,
    planned: (&CallDemand<'_>, &CallRoute),
) -> Result<(), CallRefused> {
    outbox.lay_out_exposed((message, place), &mut peer.conn, id, planned)?;
    outbox.messages.head_mut(message).after = After::Called(place);
    let exposure = outbox.exposures.at(place);
    exposure.is_called = true;
    exposure.has_chunks = !matches!(planned.1.form, CallForm::Xmt);
    if let Some((_, entry)) = outbox.ledger.calls.find_mut(id.xid(), peer.id.index) {
        entry.mark = place;
    }
    peer.exposed += 1;
    Ok(())
}
