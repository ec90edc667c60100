//! A call under construction.

use arrayvec::ArrayVec;
use rpcrdma_proto::{CallDemand, CallId, Explicit, SendError};

use crate::error::CallRefused;
use crate::payload::Payload;
use crate::shard::outbox::Outbox;
use crate::shard::peers::{Peer, PeerId, Peers, Phase};
use crate::shard::turn::CALL;

/// Data items that a call may want placed.
pub const WANTS_MAX: usize = 8;

/// A data item of the reply that is wanted outside of the payload stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// If the item is shorter, it is wanted in line. 0 wants it placed whatever its length.
    pub len_min: u32,
    /// How long it can be. Receives are reserved for it.
    pub len_max: u32,
}

/// A want, and the operation that it is a result of: a part of the unreduced XDR stream.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    want: Want,
    begin: u32,
    /// [`OPEN`] for the operation that is being written.
    end: u32,
}

/// A call under construction. Dropping it takes it back.
#[must_use = "a call is sent by `submit`"]
pub struct CallBuilder<'a> {
    payload: Payload<'a>,
    peer: &'a mut Peer,
    id: CallId,
    wants: ArrayVec<Wanted, WANTS_MAX>,
    /// Where the operation begins that is being written.
    operation: u32,
    reply_payload_max: u32,
    submitted: bool,
}

impl<'a> CallBuilder<'a> {
    /// Begins a call: takes a send slot and a call slot.
    #[inline]
    pub(crate) fn begin(
        outbox: &'a mut Outbox,
        peers: &'a mut Peers,
        peer: PeerId,
        cookie: u64,
    ) -> Result<CallBuilder<'a>, CallRefused> {
        let peer = peers.named(peer).filter(|peer| peer.phase == Phase::Up);
        let peer = peer.ok_or(CallRefused::NoPeer)?;
        let Some(slot) = outbox.send.take() else {
            outbox.stats.busy_local.add(1);
            return Err(CallRefused::Busy);
        };
        match peer.conn.open_call(&mut outbox.ledger, cookie) {
            Ok(id) => Ok(CallBuilder {
                payload: Payload::begin(outbox, slot, id.xid(), CALL),
                peer,
                id,
                wants: ArrayVec::new(),
                operation: 0,
                reply_payload_max: REPLY_PAYLOAD_DEFAULT,
                submitted: false,
            }),
            Err(why) => {
                outbox.send.put(slot);
                Err(CallRefused::Protocol(why))
            }
        }
    }

    /// The payload, to be written from behind transaction id and message type.
    #[inline]
    pub fn payload(&mut self) -> &mut Payload<'a> {
        &mut self.payload
    }

    /// An operation of the call begins here: what is wanted from now on is a result of it, until
    /// the next begins. A call without this is one operation.
    ///
    /// A server matches the results of each operation on its own, so that one which fails does not
    /// use up what was wanted of the next (wire.md E23, E24). Returns where the operation begins.
    pub fn operation(&mut self) -> u32 {
        let begin = self.payload.position();
        for wanted in self.wants.iter_mut().filter(|wanted| wanted.end == OPEN) {
            wanted.end = begin;
        }
        self.operation = begin;
        begin
    }

    /// Wants one more data item of the reply placed. Items are matched in order (\[RTR\] 7.4).
    ///
    /// # Panics
    /// If there are [`WANTS_MAX`] already.
    pub fn want(&mut self, want: Want) -> &mut CallBuilder<'a> {
        self.wants.push(Wanted { want, begin: self.operation, end: OPEN });
        self
    }

    /// Says how long the payload of the reply can be, placed items not counted, from the
    /// transaction id on. 1024 bytes if nothing is said.
    pub fn reply_payload_max(&mut self, bytes: u32) -> &mut CallBuilder<'a> {
        self.reply_payload_max = bytes;
        self
    }

    /// Sends the call with the next poll.
    ///
    /// # Errors
    /// [`CallRefused`] says what is in the way; nothing has been sent. Placed memory goes home to
    /// its pool.
    #[inline]
    pub fn submit(mut self) -> Result<(), CallRefused> {
        let (len, reply_max) = (self.payload.written(), self.reply_payload_max);
        if self.wants.is_empty()
            && let Some(outbox) = self.payload.plain()
            && let (conn, ledger) = (&mut self.peer.conn, &mut outbox.ledger)
            && let Some(header) = conn.begin_plain_call(ledger, self.id, len, reply_max)
        {
            outbox.stats.calls_out.add(1);
            self.payload.send_plain(self.peer, &header);
        } else {
            self.send_planned()?;
        }
        self.submitted = true;
        Ok(())
    }

    /// Sends what is not plain, or finds out why it cannot be sent.
    #[cold]
    fn send_planned(&mut self) -> Result<(), CallRefused> {
        let message = self.payload.assemble()?;
        let payload = self.payload.written();
        let end = self.payload.position();
        let outbox = self.payload.outbox();
        let wants: ArrayVec<rpcrdma_proto::Want, WANTS_MAX> = self
            .wants
            .iter()
            .map(|wanted| {
                let Wanted { want, begin, end: last } = *wanted;
                rpcrdma_proto::Want::sends(begin, last.min(end), want.len_min, want.len_max)
            })
            .collect();
        let demand = CallDemand {
            payload,
            items: &outbox.items(message),
            wants: &wants,
            reply_payload_max: self.reply_payload_max,
            gather_max: outbox.gather_max,
            explicit: Explicit::NONE,
        };
        let planned = self.peer.conn.begin_sends(&mut outbox.ledger, self.id, &demand);
        if let Err(SendError::NotEnoughCredits { .. }) = planned {
            outbox.stats.busy_credits.add(1);
        }
        planned
            .map_err(CallRefused::Protocol)
            .and_then(|plan| outbox.lay_out(message, &self.peer.conn, plan))?;
        outbox.stats.calls_out.add(1);
        outbox.enqueue(&mut self.peer.lane, self.peer.id.index, message);
        self.payload.submitted();
        Ok(())
    }
}

impl Drop for CallBuilder<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.submitted {
            let outbox = self.payload.outbox();
            self.peer.conn.finish_call(&mut outbox.ledger, self.id);
        }
    }
}

/// The end of an operation that is being written: that of the call.
const OPEN: u32 = u32::MAX;
/// What the payload of a reply is taken to be if the caller says nothing.
const REPLY_PAYLOAD_DEFAULT: u32 = 1024;
