//! Which connection a call is sent on, and calls that have waited.

use super::api::Session;
use super::calls::{Resend, State};
use super::outcome::SessionError;
use super::state::Done;
use crate::api::owned::PlacedMemory;
use crate::connection_id::ConnectionId;
use crate::error::CallRefused;
use crate::provider::Provider;

impl<P: Provider> Session<P> {
    /// Sends calls that wait, in order, as far as there are credits.
    pub(super) fn send_waiting(&mut self, done: Done<'_>) -> bool {
        let mut busy = false;
        while let Some(index) = self.state.calls.first()
            && let Some(peer) = self.choose()
        {
            // Its bytes count while it waits: the sending changes them.
            self.state.calls.leave(index);
            match self.send_kept(index, peer) {
                Ok(()) => {}
                Err(why) if self.is_passing(why) => {
                    self.state.calls.wait(index);
                    break;
                }
                Err(why) => {
                    let execution = self.state.calls.at(index).execution();
                    self.state.fail(index, SessionError::Refused(why, execution), done);
                }
            }
            busy = true;
        }
        busy
    }

    /// The connection with most credits.
    pub(super) fn choose(&mut self) -> Option<ConnectionId> {
        let shard = &mut self.client.shard().core.peers;
        // One that is being lost has credits, too.
        let mut credits =
            |id: &ConnectionId| shard.named_up(*id).map_or(0, |peer| peer.conn.credits_available());
        self.state.lines.peers().max_by_key(&mut credits)
    }

    /// Whether a refused call can be sent later, or on another connection.
    pub(super) fn is_passing(&mut self, why: CallRefused) -> bool {
        why.is_transient() || (why == CallRefused::NoPeer && !self.state.is_closed)
    }

    /// Sends a call from its record. A call that is refused is as before.
    pub(super) fn send_kept(&mut self, index: u32, peer: ConnectionId) -> Result<(), CallRefused> {
        let Session { client, state, .. } = self;
        let mut builder = client.call(peer, index.into())?;
        if let Some(xid) = state.calls.at(index).xid {
            builder.xid(xid)?;
        } else {
            while state.calls.keeps_xid(builder.id().xid()) {
                // The next one of that slot has another.
                drop(builder);
                builder = client.call(peer, index.into())?;
            }
        }
        let record = state.calls.at(index);
        let memory = match record.resend {
            Resend::Never => PlacedMemory::Moves,
            Resend::SameXid => {
                record.call.share_placed();
                PlacedMemory::Stays
            }
        };
        let id = builder.id();
        builder.submit_owned(&mut record.call, memory)?;
        record.state = State::Sent { peer, id };
        record.xid = (record.resend == Resend::SameXid).then(|| id.xid());
        Ok(())
    }
}
