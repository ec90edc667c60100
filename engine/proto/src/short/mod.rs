//! The short way: messages of one transmission that need no resolution, and the plain ones of them.
//!
//! ```text
//!   plain         RDMA_MSG with an RPC message in it and nothing else, in either version
//!   single item   RDMA_OPTIONAL with one item placed by Send, or with one result asked for
//!   chunk         RDMA_MSG with one Read segment or one Write chunk, to a server: [`ChunkCall`]
//! ```
//! [`Connection::on_short`] takes received messages: it recognises both kinds from one look at a
//! header. [`Connection::begin_short`] plans messages to send. A message that is not exactly of one
//! kind, or breaks a rule, takes the general way, the only one that reports errors. Both ways leave
//! the connection in the same state and put the same bytes on the wire, which tests compare.

mod chunk;
mod continued;
mod message;
mod single_item;

use core::ops::Range;

use rpcrdma_xdr::numbers::{VERSION_TWO, msg_type, proc};
use rpcrdma_xdr::onc::Rpc;
use rpcrdma_xdr::rtr::fixed::Msg;

use self::message::ShortHeader;
use crate::answer::Finished;
use crate::calls::{CallId, CallState, NO_MARK};
use crate::connection::{Connection, ShardLedger};
use crate::gate::Gate;
use crate::ingress::ReplyTo;
use crate::placement::direct::WantSet;
use crate::placement::inline::Direction;
use crate::settings::Role;

pub use self::chunk::{ChunkCall, ChunkCallPlan, ChunkReply, InvalidatingReply};
pub use self::continued::{ContinuedPlan, ItemStretch};
pub use self::message::{
    CallWith, GatherMeans, SegmentItem, Short, ShortKind, ShortPlan, ShortSend, SingleItem,
};

impl Connection {
    /// Where in a connection lies what a plain message reads and writes.
    pub const SHORT_STATE: Range<usize> = 0..core::mem::offset_of!(Connection, group);

    /// Sets the gate after a change of its parts.
    #[inline]
    pub(crate) fn set_gate(&mut self) {
        self.gate = self.gate_of_parts();
    }

    /// Whether a message of this version may be a short one.
    #[inline(always)]
    fn admits(&self, vers: u32) -> bool {
        debug_assert_eq!(self.gate, self.gate_of_parts(), "the gate follows its parts");
        self.gate == Gate::Open && vers == self.vers
    }

    #[inline]
    fn gate_of_parts(&self) -> Gate {
        Gate::of(self.met, self.group.open().is_some())
    }

    /// Takes a valid short message of `byte_len` bytes; the argument holds those in the first
    /// segment of its receive buffer. `None`, without effect: pass the transmission to
    /// [`Connection::on_transmission`].
    #[inline(always)]
    pub fn on_short<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        byte_len: u32,
        first_segment: &'a [u8],
    ) -> Option<Short<'a>> {
        let (header, payload) = Msg::split(first_segment)?;
        if !self.admits(header.vers.get()) {
            return None;
        }
        if header.is_plain() {
            let is_whole = first_segment.len() == byte_len as usize;
            return if is_whole { self.on_plain(ledger, header, payload) } else { None };
        }
        if header.proc() != proc::OPTIONAL || self.vers != VERSION_TWO {
            return None;
        }
        self.on_single_item(ledger, byte_len, first_segment).map(Short::SingleItem)
    }

    /// Plans a short message with `payload` bytes of payload, and encodes its header. `None`,
    /// without effect, if it needs the general way, [`Connection::begin_call`] or
    /// [`Connection::begin_reply`], which reports the reason.
    #[inline(always)]
    pub fn begin_short(
        &mut self,
        ledger: &mut ShardLedger,
        payload: u32,
        message: ShortSend<'_>,
        means: GatherMeans,
    ) -> Option<ShortPlan> {
        match message {
            ShortSend::Call { id, reply_payload_max, with: CallWith::Nothing } => {
                self.begin_plain_call(ledger, id, payload, reply_payload_max)
            }
            ShortSend::Call { id, reply_payload_max, with: CallWith::Item(item) } => {
                self.begin_write_call(ledger, id, payload, reply_payload_max, &item, means)
            }
            ShortSend::Call { id, reply_payload_max, with: CallWith::Want(want) } => {
                self.begin_read_call(ledger, id, payload, reply_payload_max, &want, means)
            }
            ShortSend::Reply { to, item: None } => self.begin_plain_reply(ledger, to, payload),
            ShortSend::Reply { to, item: Some((item, direction)) } => {
                self.begin_read_reply(ledger, to, payload, item, direction, means)
            }
        }
    }

    /// Takes a plain message if it breaks no rule.
    #[inline(always)]
    fn on_plain<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        header: &Msg,
        payload: &'a [u8],
    ) -> Option<Short<'a>> {
        let rpc = Rpc::peek(payload)?;
        if header.xid != rpc.xid {
            return None;
        }
        let (xid, credit) = (header.xid.get(), header.credit.get());
        match rpc.kind.get() {
            msg_type::CALL => {
                let kind = ShortKind::Call(self.on_plain_call(ledger, xid, credit)?);
                Some(Short::Plain { kind, payload })
            }
            msg_type::REPLY => {
                let kind = ShortKind::Reply(self.on_plain_reply(ledger, xid, credit)?);
                Some(Short::Plain { kind, payload })
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn on_plain_call(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        credit: u32,
    ) -> Option<ReplyTo> {
        if self.role == Role::Client {
            return None;
        }
        // The general way handles a peer that exceeds its grant, and closes the connection.
        self.inflow.admit(credit, &mut ledger.grants).ok()?;
        self.idle_messages = 0;
        Some(ReplyTo::plain(xid))
    }

    #[inline(always)]
    fn on_plain_reply(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        credit: u32,
    ) -> Option<Finished> {
        let (id, entry) = ledger.calls.find_own(xid, self.peer)?;
        if entry.state != CallState::Sent || credit == 0 || entry.mark != NO_MARK {
            return None;
        }
        self.idle_messages = 0;
        self.credits.on_grant(credit);
        self.end_own_call(ledger, id)
    }

    /// Plans a call without items or results.
    #[inline]
    fn begin_plain_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        payload: u32,
        reply_payload_max: u32,
    ) -> Option<ShortPlan> {
        if reply_payload_max > self.reply_room() || payload > self.plain_room() {
            return None;
        }
        let (_, entry) = ledger.calls.find_own_mut(id.xid(), self.peer)?;
        if entry.state != CallState::Opened || self.credits.available() == 0 {
            return None;
        }
        ledger.replies.reserve(1).ok()?;
        let taken = self.credits.take(1);
        debug_assert!(taken.is_ok(), "a credit was just found available");
        entry.state = CallState::Sent;
        entry.credits = 1;
        entry.receives = 1;
        entry.reply_count_max = 1;
        entry.wants = WantSet::NONE;
        entry.is_xmt = false;
        let header = Msg::new(id.xid(), self.stamp(Direction::Call));
        Some(ShortPlan::without_item(ShortHeader::Plain(header)))
    }

    /// Plans a reply without items to a call without directions.
    #[inline]
    fn begin_plain_reply(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        payload: u32,
    ) -> Option<ShortPlan> {
        if payload > self.plain_room() || self.invalidated(to).is_some() {
            return None;
        }
        self.inflow.release(to.credits, &mut ledger.grants);
        let header = Msg::new(to.xid, self.stamp(Direction::Reply));
        Some(ShortPlan::without_item(ShortHeader::Plain(header)))
    }
}
