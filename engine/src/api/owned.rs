//! Sending calls that belong to the program.

use super::builder::{CallBuilder, CallHandle};
use super::turn::Turn;
use super::unsent::Unsent;
use crate::connection_id::ConnectionId;
use crate::error::CallRefused;
use crate::message::bulk::Bulk;
use crate::message::owned_call::{Mark, OwnedCall};

impl Turn<'_> {
    /// Sends a call with the next poll, as [`Client::submit`](crate::Client::submit).
    ///
    /// # Errors
    /// As [`Client::submit`](crate::Client::submit).
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn submit(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
        call: OwnedCall,
    ) -> Result<CallHandle, Unsent> {
        submit(self.call(peer, cookie), None, call)
    }

    /// As [`Turn::submit`], with the xid of an earlier call that this one repeats
    /// ([`CallBuilder::xid`]).
    ///
    /// # Errors
    /// As [`Client::submit`](crate::Client::submit).
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn submit_with_xid(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
        xid: u32,
        call: OwnedCall,
    ) -> Result<CallHandle, Unsent> {
        submit(self.call(peer, cookie), Some(xid), call)
    }
}

/// Sends a call that was begun.
#[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
pub(crate) fn submit(
    begun: Result<CallBuilder<'_>, CallRefused>,
    xid: Option<u32>,
    mut call: OwnedCall,
) -> Result<CallHandle, Unsent> {
    let sent = begun.and_then(|mut builder| {
        if let Some(xid) = xid {
            builder.xid(xid)?;
        }
        let handle = builder.handle();
        builder.submit_owned(&mut call, PlacedMemory::Moves).map(|()| handle)
    });
    sent.map_err(|why| Unsent::new(why, call, true))
}

/// What becomes of the memory placed in a call that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlacedMemory {
    /// It is the message's.
    Moves,
    /// It is constant ([`OwnedCall::share_placed`]), and stays in the call.
    Stays,
}

impl CallBuilder<'_> {
    /// Writes a call and sends it. A refused call is as before.
    #[inline(always)]
    pub(crate) fn submit_owned(
        mut self,
        call: &mut OwnedCall,
        memory: PlacedMemory,
    ) -> Result<(), CallRefused> {
        if let Some(bytes) = call.reply_max() {
            self.reply_payload_max(bytes);
        }
        if call.has_more() {
            if let Some(at) = call.deadline_at() {
                self.deadline(at);
            }
            if !call.marks().is_empty() {
                return self.submit_marked(call, memory);
            }
        }
        self.payload().put_fixed(call.payload());
        self.submit()
    }

    #[inline(never)]
    fn submit_marked(
        mut self,
        call: &mut OwnedCall,
        memory: PlacedMemory,
    ) -> Result<(), CallRefused> {
        call.check(self.payload().parts().rdma.ability().enabled)?;
        // Memory moves only into a message that there is room for.
        if !self.payload().outbox().has_message() {
            return Err(CallRefused::Busy);
        }
        let mut pieces = core::mem::take(call.pieces_mut());
        match memory {
            PlacedMemory::Moves => self.write(call, pieces.drain(..)),
            PlacedMemory::Stays => self.write(call, pieces.iter().filter_map(Bulk::again)),
        }
        *call.pieces_mut() = pieces;
        match self.send() {
            Ok(()) => {
                core::mem::forget(self);
                Ok(())
            }
            Err(why) => {
                let (wants, pieces) = self.payload().outbox().take_back();
                call.put_sinks(wants.map(|wanted| wanted.sink));
                match memory {
                    PlacedMemory::Moves => call.pieces_mut().extend(pieces),
                    PlacedMemory::Stays => drop(pieces),
                }
                Err(why)
            }
        }
    }

    /// Writes the payload with its items and wants.
    fn write(&mut self, call: &mut OwnedCall, mut pieces: impl Iterator<Item = Bulk>) {
        let (mut written, mut wants) = (0, 0);
        for at in 0..call.marks().len() {
            let (end, mark) = call.marks()[at];
            self.payload().put_fixed(&call.payload()[written..end as usize]);
            written = end as usize;
            match mark {
                Mark::Place(count) => self.payload().place_pieces(pieces.by_ref().take(count)),
                Mark::Operation => {
                    self.operation();
                }
                Mark::Want { want, kind, sent_max } => {
                    let sink = call.take_sink(wants);
                    wants += 1;
                    self.push_want(want, kind, sent_max, sink);
                }
            }
        }
        self.payload().put_fixed(&call.payload()[written..]);
    }
}
