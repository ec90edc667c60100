//! The builder of a call.

use arrayvec::ArrayVec;
use rpcrdma_proto::{
    self as proto, CallDemand, CallId, CallName, CallWith, SendError, ShortSend, Version, WantKind,
};
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};

use super::unsent::Unsent;
use crate::message::sink::Sink;

use crate::api::payload::Payload;
use crate::connection_id::ConnectionId;
use crate::error::CallRefused;
use crate::message::wanted::{OPEN, WANTS_MAX, Want, Wanted};
use crate::state::parts::expose::has_room;
use crate::state::parts::{Parts, RoutedCall};
use crate::state::peers::{Peer, Peers};
use crate::state::rdma::windows::Exposer;
use crate::stats::latency::ProcedureKey;

/// Identifies a call that was made: to cancel it ([`Turn::cancel`](crate::Turn::cancel)), and to
/// repeat it with the same xid. With another client or shard it finds no call: the xids of each
/// begin elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallHandle {
    pub(crate) peer: ConnectionId,
    pub(crate) name: CallName,
}

impl CallHandle {
    /// The peer that is called.
    pub fn peer(&self) -> ConnectionId {
        self.peer
    }

    /// The xid of the call, by which its server identifies it.
    pub fn xid(&self) -> u32 {
        self.name.id.xid()
    }
}

/// A call under construction. Dropping it discards the call.
///
/// ```
/// # use rpcrdma::*;
/// # use std::time::Duration;
/// # struct Increment;
/// # impl Handler for Increment {
/// #     fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
/// #         let Ok(number) = call.reader().u32() else { return reply.refuse() };
/// #         reply.payload().put_u32(number + 1);
/// #         reply.send()
/// #     }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut engine = Engine::new(Fabric::new(), Config::default())?;
/// # engine.start(|_shard| Increment)?;
/// # let address = engine.listen("127.0.0.1:0".parse::<Address>()?)?;
/// # let mut client = engine.client()?;
/// # let peer = client.connect(address)?;
/// # let clock = Clock::new();
/// let mut call = client.call(peer, 1)?;
/// call.payload().put_u32(41);
/// call.deadline(clock.now() + Duration::from_secs(1).as_nanos() as u64);
/// call.submit()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a call is sent by `submit`"]
pub struct CallBuilder<'a> {
    payload: Payload<'a>,
    peer: &'a mut Peer,
    exposer: &'a mut dyn Exposer,
    id: CallId,
    /// Where the operation that is being written begins.
    operation: u32,
    reply_payload_max: u32,
}

impl<'a> CallBuilder<'a> {
    /// Begins a call: allocates a send slot and a call slot.
    #[inline]
    pub(crate) fn begin(
        parts: &'a mut Parts,
        peers: &'a mut Peers,
        exposer: &'a mut dyn Exposer,
        peer: ConnectionId,
        cookie: u64,
    ) -> Result<CallBuilder<'a>, CallRefused> {
        if parts.timers.is_stopping() {
            return Err(CallRefused::Stopping);
        }
        let peer = peers.named_up(peer).ok_or(CallRefused::NoPeer)?;
        if !parts.outbox.has_slot_for(&peer.lane) || !parts.outbox.allots_slot() {
            parts.stats.calls_not_sent_local.add(1);
            return Err(CallRefused::Busy);
        }
        let reply_payload_max = REPLY_PAYLOAD_DEFAULT.min(peer.conn.reply_room());
        match peer.conn.open_call(&mut parts.ledger, cookie) {
            Ok(id) => {
                parts.count_call(peer, id);
                parts.outbox.begin(RpcPrefix { xid: id.xid(), kind: MsgType::Call });
                let payload = Payload::new(parts);
                Ok(CallBuilder { payload, peer, exposer, id, operation: 0, reply_payload_max })
            }
            Err(why) => Err(CallRefused::Protocol(why)),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// Whether targets of links have no Write chunk (`interop.links_in_line`): only in version one,
    /// which is assumed until the version is known.
    pub(crate) fn has_links_in_line(&self) -> bool {
        let conn = &self.peer.conn;
        conn.settings().interop.links_in_line && conn.version() != Some(Version::Two)
    }

    /// The payload, written from behind transaction id and message type.
    #[inline]
    pub fn payload(&mut self) -> &mut Payload<'a> {
        &mut self.payload
    }

    /// Begins an operation of the call: results requested from here on belong to it, until the next
    /// operation begins. A call without this is one operation.
    ///
    /// A server matches the results of each operation separately, so that a failing operation does
    /// not consume the results of the next (wire.md E23, E24). Returns where the operation begins.
    pub fn operation(&mut self) -> u32 {
        self.operation = self.payload.outbox().end_operation();
        self.operation
    }

    /// Requests one more data item of the reply by DDP. Items are matched in order (\[RTR\] 7.4).
    ///
    /// # Panics
    /// If there are [`WANTS_MAX`] already.
    pub fn want(&mut self, want: Want) -> &mut CallBuilder<'a> {
        self.push_want(want, WantKind::Tbsn, 0, None)
    }

    /// As [`CallBuilder::want`], but the responder writes the item to a result buffer by RDMA
    /// Write. An unused result buffer comes back without the item; the peer may still have changed
    /// its contents. A shard without explicit RDMA needs none and drops it at once.
    ///
    /// # Panics
    /// If there are [`WANTS_MAX`] already, or the result buffer is shorter than the item can be.
    pub fn want_into(&mut self, want: Want, sink: Sink) -> &mut CallBuilder<'a> {
        self.push_want(want, WantKind::Exrw, 0, Some(sink))
    }

    /// As [`CallBuilder::want_into`], but the peer may choose to place the item by Send.
    ///
    /// # Panics
    /// If there are [`WANTS_MAX`] already, or the result buffer is shorter than the item can be.
    pub fn want_either(&mut self, want: Want, sink: Sink) -> &mut CallBuilder<'a> {
        self.push_want(want, WantKind::Choice, 0, Some(sink))
    }

    /// As [`CallBuilder::want_into`], but the peer places an item of at most `sent_max` bytes by
    /// Send (\[RTR\] 7.4, BYSIZE).
    ///
    /// # Panics
    /// If there are [`WANTS_MAX`] already, or the result buffer is shorter than the item can be.
    pub fn want_by_size(&mut self, want: Want, sent_max: u32, sink: Sink) -> &mut CallBuilder<'a> {
        self.push_want(want, WantKind::BySize, sent_max, Some(sink))
    }

    pub(super) fn push_want(
        &mut self,
        want: Want,
        kind: WantKind,
        sent_max: u32,
        sink: Option<Sink>,
    ) -> &mut CallBuilder<'a> {
        let is_enough = sink.as_ref().is_none_or(|sink| sink.len() >= want.len_max as usize);
        assert!(is_enough, "a sink is as long as its item can be");
        let (begin, end) = (self.operation, OPEN);
        self.payload.outbox().want(Wanted { want, kind, sent_max, sink, begin, end });
        self
    }

    /// Sets the maximum length of the reply's payload, from the transaction id on, without placed
    /// items. The default is 1024 bytes, or the capacity of one message if that is less: a peer of
    /// version one that states no sizes sends 1024 bytes including the header.
    pub fn reply_payload_max(&mut self, bytes: u32) -> &mut CallBuilder<'a> {
        self.reply_payload_max = bytes;
        self
    }

    /// Ends the call with [`CallError::DeadlineExceeded`](crate::CallError::DeadlineExceeded) if
    /// its reply has not arrived by `at`, in nanoseconds of the clock that the shard is polled
    /// with.
    ///
    /// The granularity is 1 ms (2^20 ns): a polled shard ends the call in its first turn at that
    /// time or at most 1 ms after it; a turn looks at 256 calls that are due, and the next turn
    /// continues. The call's slot, credits and xid stay in use until its reply arrives or its
    /// connection ends. `u64::MAX` is no deadline.
    #[inline]
    pub fn deadline(&mut self, at: u64) -> &mut CallBuilder<'a> {
        let (id, peer) = (self.id, self.peer.id.index);
        let Parts { ledger, timers, .. } = self.payload.parts();
        if let Some(slot) = ledger.calls.note_deadline(id, peer) {
            timers.arm(slot, at);
        }
        self
    }

    /// Sets the xid, to that of an earlier call that this one repeats: a server that detects
    /// duplicates executes it once. The rest of the call must be the same, too.
    ///
    /// The top bit is 0 on the side that connected, and 1 on the other. The first 16 of the numbers
    /// below it are not for calls.
    ///
    /// # Errors
    /// [`CallRefused::Protocol`]: the xid is not valid for calls of this side, or belongs to a call
    /// of this connection whose reply may still arrive. The call keeps its previous xid.
    pub fn xid(&mut self, xid: u32) -> Result<&mut CallBuilder<'a>, CallRefused> {
        let id = self.id;
        let ledger = &mut self.payload.parts().ledger;
        let chosen = self.peer.conn.choose_xid(ledger, id, xid);
        self.id = chosen.map_err(CallRefused::Protocol)?;
        self.payload.outbox().set_xid(xid);
        Ok(self)
    }

    /// The identity of the call. Set another xid with [`CallBuilder::xid`] before this.
    pub fn handle(&mut self) -> CallHandle {
        let (id, peer) = (self.id, self.peer.id);
        let name = self.payload.parts().ledger.calls.name(id, peer.index);
        CallHandle { peer, name: name.expect("a call under construction is open") }
    }

    /// Sends the call with the next poll.
    ///
    /// # Errors
    /// [`CallRefused`] states the reason; nothing has been sent. Placed memory and result buffers
    /// return to their pools; [`CallBuilder::try_submit`] returns them to the program.
    #[inline]
    pub fn submit(mut self) -> Result<(), CallRefused> {
        self.send()?;
        // Nothing remains to discard.
        core::mem::forget(self);
        Ok(())
    }

    /// As [`CallBuilder::submit`], and states the procedure of the call.
    pub(crate) fn submit_as(
        mut self,
        key: impl FnOnce() -> ProcedureKey,
    ) -> Result<(), CallRefused> {
        self.send()?;
        self.sent_as(key);
        Ok(())
    }

    /// As [`CallBuilder::try_submit`], and states the procedure of the call.
    #[expect(clippy::result_large_err, reason = "as there")]
    pub(crate) fn try_submit_as(
        mut self,
        key: impl FnOnce() -> ProcedureKey,
    ) -> Result<(), Unsent> {
        match self.send() {
            Ok(()) => {
                self.sent_as(key);
                Ok(())
            }
            Err(why) => Err(self.take_back(why)),
        }
    }

    fn sent_as(mut self, key: impl FnOnce() -> ProcedureKey) {
        let xid = self.id.xid();
        self.payload.parts().sampling.name_call(xid, key);
        core::mem::forget(self);
    }

    /// As [`CallBuilder::submit`], but returns the call, with its memory, if it is not sent.
    ///
    /// # Errors
    /// [`Unsent`] contains it and states the reason; nothing has been sent.
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn try_submit(mut self) -> Result<(), Unsent> {
        match self.send() {
            Ok(()) => {
                core::mem::forget(self);
                Ok(())
            }
            Err(why) => Err(self.take_back(why)),
        }
    }

    /// Ends it, with a reason and all that was written.
    #[cold]
    pub(crate) fn take_back<E: Copy>(mut self, why: E) -> Unsent<E> {
        let (call, is_whole) = self.payload.outbox().take_back_call(self.reply_payload_max);
        Unsent::new(why, call, is_whole)
    }

    #[inline(always)]
    pub(super) fn send(&mut self) -> Result<(), CallRefused> {
        if self.payload.outbox().is_plain() && self.send_short(CallWith::Nothing) {
            return Ok(());
        }
        self.send_other()
    }

    /// Sends a call that is not plain.
    #[inline(never)]
    fn send_other(&mut self) -> Result<(), CallRefused> {
        if self.send_single_item() { Ok(()) } else { self.send_planned() }
    }

    /// Sends a short message; false if the call is not one.
    #[inline(always)]
    fn send_short(&mut self, with: CallWith) -> bool {
        let (id, reply_payload_max) = (self.id, self.reply_payload_max);
        let Parts { outbox, ledger, stats, .. } = self.payload.parts();
        let short = ShortSend::Call { id, reply_payload_max, with };
        let is_sent = outbox.send_short(self.peer, ledger, short);
        if is_sent {
            stats.calls_sent.add(1);
        }
        is_sent
    }

    /// Sends a call with a single DDP item or result; false if the call is not one.
    fn send_single_item(&mut self) -> bool {
        let outbox = self.payload.outbox();
        let with = match (outbox.single_item(), outbox.wants()) {
            (Some(item), []) => CallWith::Item(item),
            (None, [want]) if outbox.has_only_wants() => {
                CallWith::Want(want.as_demand(outbox.written()))
            }
            _ => return false,
        };
        let is_sent = self.send_short(with) || self.send_continued(with);
        if is_sent {
            self.payload.outbox().end_wants();
        }
        is_sent
    }

    /// Sends a call with a single DDP item in several placement segments; false if it is not one.
    fn send_continued(&mut self, with: CallWith) -> bool {
        let (id, reply_payload_max) = (self.id, self.reply_payload_max);
        let short = ShortSend::Call { id, reply_payload_max, with };
        let Parts { outbox, ledger, stats, .. } = self.payload.parts();
        let is_sent =
            matches!(with, CallWith::Item(_)) && outbox.send_continued(self.peer, ledger, short);
        if is_sent {
            stats.calls_sent.add(1);
        }
        is_sent
    }

    /// Sends any other call, or determines why it cannot be sent.
    #[cold]
    fn send_planned(&mut self) -> Result<(), CallRefused> {
        self.check_shortage()?;
        let mut wanted = self.payload.outbox().take_wants();
        let sent = self.send_wanting(&mut wanted);
        if sent.is_ok() {
            // Result buffers that were not exposed return to their pools; the capacity stays for
            // the next call.
            wanted.clear();
        }
        self.payload.outbox().put_wants(wanted);
        sent
    }

    /// Refuses a call with a single result that waits for credits or for Receives, before its
    /// general plan is made.
    fn check_shortage(&mut self) -> Result<(), CallRefused> {
        let Parts { outbox, ledger, stats, .. } = self.payload.parts();
        let (is_plain, len) = (outbox.has_only_wants(), outbox.written());
        let [wanted] = outbox.wants() else { return Ok(()) };
        let (want, means) = (wanted.as_demand(len), outbox.gather_means());
        let reply_max = self.reply_payload_max;
        match self.peer.conn.read_call_shortage(ledger, len, reply_max, &want, means) {
            Some(why) if is_plain => {
                let is_credits = matches!(why, SendError::NotEnoughCredits { .. });
                stats.calls_not_sent_credits.add(is_credits.into());
                Err(CallRefused::Protocol(why))
            }
            _ => Ok(()),
        }
    }

    fn send_wanting(&mut self, wanted: &mut [Wanted]) -> Result<(), CallRefused> {
        let parts = self.payload.parts();
        let message = parts.outbox.assemble()?;
        let (payload, end) = (parts.outbox.written(), parts.outbox.position());
        let wants: ArrayVec<proto::Want, WANTS_MAX> =
            wanted.iter().map(|want| want.as_demand(end)).collect();
        let items = parts.outbox.items(message);
        let demand = CallDemand {
            payload,
            items: &items,
            wants: &wants,
            reply_payload_max: self.reply_payload_max,
            gather_max: parts.outbox.gather_max(),
            copy_max: parts.outbox.slots().payload_len() as u32,
            explicit: parts.rdma.ability(),
        };
        if demand.explicit.enabled && !has_room(wanted) {
            return Err(CallRefused::TooManyPieces);
        }
        let exposer = &mut *self.exposer;
        let planned = self.peer.conn.route_call(&demand).map_err(CallRefused::Protocol);
        let has_sinks = wanted.iter().any(|want| want.sink.is_some());
        let is_kept = has_sinks && demand.explicit.enabled;
        let planned = planned.and_then(|route| {
            let call = RoutedCall { id: self.id, message, demand: &demand, route: &route };
            match route.exposes() || is_kept {
                false => parts.begin_call(self.peer, call),
                true => parts.begin_exposed(self.peer, exposer, call, wanted),
            }
        });
        if let Err(CallRefused::Protocol(SendError::NotEnoughCredits { .. })) = planned {
            parts.stats.calls_not_sent_credits.add(1);
        }
        planned?;
        parts.stats.calls_sent.add(1);
        parts.outbox.enqueue(&mut self.peer.lane, self.peer.id.index, message);
        parts.outbox.submitted();
        Ok(())
    }
}

impl Drop for CallBuilder<'_> {
    #[inline]
    fn drop(&mut self) {
        self.payload.parts().uncount_call(self.peer, self.id);
    }
}

/// The default maximum of a reply's payload.
const REPLY_PAYLOAD_DEFAULT: u32 = 1024;
