//! Changes of transport properties: answers of peers, and timeouts.

use rpcrdma_proto::PropertyOutcome;

use crate::api::handler::Handler;
use crate::state::peers::Peer;
use crate::state::timers::Timers;
use crate::trace;

impl Peer {
    /// Processes the answer to an own request for changes.
    pub fn finish_properties(&mut self, outcome: &PropertyOutcome, handler: &mut dyn Handler) {
        self.asking_since = None;
        trace::properties_changed(self.id, outcome);
        handler.on_properties(self.id, outcome);
    }

    /// Abandons a request that is not answered in time (wire.md P8).
    pub fn give_up_properties(&mut self, now: u64, timers: &Timers, handler: &mut dyn Handler) {
        if self.asking_since.is_some_and(|since| timers.is_answer_late(since, now)) {
            self.asking_since = None;
            if let Some(outcome) = self.conn.on_reqprop_timeout() {
                self.finish_properties(&outcome, handler);
            }
        }
    }
}
