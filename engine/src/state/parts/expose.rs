//! The memory that a call under construction exposes, and its release if the call is not sent.

use rpcrdma_proto::CallForm;

use super::{Parts, RoutedCall};
use crate::error::CallRefused;
use crate::message::wanted::Wanted;
use crate::state::lane::messages::After;
use crate::state::peers::Peer;
use crate::state::rdma::exposures::{Owner, TARGETS_MAX};
use crate::state::rdma::windows::Exposer;

/// Whether the result buffers together fit the number of pieces of one call.
pub(crate) fn has_room(wants: &[Wanted]) -> bool {
    let sinks = wants.iter().filter_map(|want| want.sink.as_ref());
    sinks.map(|sink| sink.pieces().len()).sum::<usize>() <= TARGETS_MAX
}

impl Parts {
    /// Plans a call on its route and lays it out, with the exposures of the route and the result
    /// buffers. Withdraws the exposures if the call cannot be made.
    #[cold]
    pub fn begin_exposed(
        &mut self,
        peer: &mut Peer,
        exposer: &mut dyn Exposer,
        call: RoutedCall<'_>,
        wants: &mut [Wanted],
    ) -> Result<(), CallRefused> {
        let owner = Owner { peer: peer.id.index, id: call.id };
        let place = self.rdma.exposures_mut().open(owner).ok_or(CallRefused::Busy)?;
        let exposed = self.expose(exposer, call, place, wants);
        let begun = exposed.and_then(|()| self.lay_out_exposed(peer, call, place));
        begun.inspect_err(|_| self.take_back(exposer, call, place, wants))
    }

    /// Exposes the memory that the route of a call requires.
    fn expose(
        &mut self,
        exposer: &mut dyn Exposer,
        RoutedCall { message, demand, route, .. }: RoutedCall<'_>,
        place: u32,
        wants: &mut [Wanted],
    ) -> Result<(), CallRefused> {
        let exposures = self.rdma.exposures_mut();
        let body = self.outbox.messages_mut().body_mut(message);
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

    /// Plans a call on its route and lays it out behind its exposures.
    fn lay_out_exposed(
        &mut self,
        peer: &mut Peer,
        RoutedCall { id, message, demand, route }: RoutedCall<'_>,
        place: u32,
    ) -> Result<(), CallRefused> {
        let Parts { outbox, rdma, ledger, stats, .. } = self;
        let exposure = rdma.exposures_mut().at(place);
        let conn = &mut peer.conn;
        let (segments, opening) = exposure.opening();
        stats.exposures.add(opening.grants.len() as u64);
        let (exposed, headroom) = (segments.exposed(), outbox.call_headroom(message));
        let planned = conn
            .begin_chunk_call(ledger, id, demand, route, &exposed, headroom)
            .map_err(CallRefused::Protocol)?;
        match planned {
            Some(plan) => outbox.lay_out_chunk_call(message, &plan, opening.grants)?,
            None => {
                let plan = conn.begin_call(ledger, id, demand, route, &exposed);
                let plan = plan.map_err(CallRefused::Protocol)?;
                outbox.lay_out_opening(message, conn, plan, opening)?;
            }
        }
        outbox.messages_mut().head_mut(message).after = After::Called(place);
        exposure.is_called = true;
        exposure.has_chunks = !matches!(route.form, CallForm::Xmt);
        if let Some((_, entry)) = ledger.calls.find_mut(id.xid(), peer.id.index) {
            entry.mark = place;
        }
        peer.exposed += 1;
        Ok(())
    }

    /// Withdraws the exposures of a call that is not made: the result buffers return to the
    /// program. No peer has received the keys. But a registration that the device keeps is reachable by
    /// guessing its key.
    #[cold]
    fn take_back(
        &mut self,
        exposer: &mut dyn Exposer,
        call: RoutedCall<'_>,
        place: u32,
        wants: &mut [Wanted],
    ) {
        let exposures = self.rdma.exposures_mut();
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
                self.stats.rights_lost.add(1);
                let body = self.outbox.messages_mut().body_mut(call.message);
                body.items.clear();
                exposures.abandon_with(place, body.pieces.drain(..));
            }
        }
    }
}
