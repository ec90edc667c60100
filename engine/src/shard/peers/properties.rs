//! Changes of transport properties: what peers have answered, or not in time.

use rpcrdma_proto::PropertyOutcome;

use crate::api::handler::Handler;
use crate::provider::Provider;
use crate::shard::Core;

impl<P: Provider> Core<P> {
    /// A peer has answered our request for changes.
    pub fn settle_properties<H: Handler>(
        &mut self,
        index: u32,
        outcome: &PropertyOutcome,
        handler: &mut H,
    ) {
        let Some(peer) = self.peers.at(index) else { return };
        peer.asking_since = None;
        handler.on_properties(peer.id, outcome);
    }

    /// Gives up the request of a peer that does not answer it (wire.md P8).
    pub fn give_up_properties<H: Handler>(&mut self, index: u32, now: u64, handler: &mut H) {
        let Some(peer) = self.peers.at(index) else { return };
        let is_late = |since: u64| self.parts.timers.is_answer_late(since, now);
        if peer.asking_since.is_some_and(is_late) {
            peer.asking_since = None;
            if let Some(outcome) = peer.conn.on_reqprop_timeout() {
                handler.on_properties(peer.id, &outcome);
            }
        }
    }
}
