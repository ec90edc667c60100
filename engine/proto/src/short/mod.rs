//! The short way: messages of one transmission that need no resolution.
//!
//! ```text
//!   plain         RDMA_MSG with an RPC message in it and nothing else, in either version
//!   single item   RDMA_OPTIONAL with one item placed by Send, or with one result asked for
//! ```
//! [`Connection::on_short`] takes received messages: it recognises both kinds from one look at a
//! header. [`Connection::begin_short`] plans messages to send. A message that is not exactly of one
//! kind, or breaks a rule, takes the general way, the only one that reports errors. Both ways leave
//! the connection in the same state and put the same bytes on the wire, which tests compare.

mod continued;
mod message;
mod plain;
mod single_item;

use rpcrdma_xdr::numbers::{VERSION_TWO, proc};
use rpcrdma_xdr::rtr::fixed::Msg;

use crate::connection::{Connection, ShardLedger};
use crate::version::Met;

pub use self::continued::{ContinuedPlan, ItemStretch};
pub use self::message::{
    CallWith, GatherMeans, SegmentItem, Short, ShortKind, ShortPlan, ShortSend, SingleItem,
};

impl Connection {
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
        if header.vers.get() != self.vers || self.met != Met::Both || self.group.open().is_some() {
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
                self.begin_plain_call(ledger, id, (payload, reply_payload_max))
            }
            ShortSend::Call { id, reply_payload_max, with: CallWith::Item(item) } => {
                self.begin_write_call(ledger, id, (payload, reply_payload_max), &item, means)
            }
            ShortSend::Call { id, reply_payload_max, with: CallWith::Want(want) } => {
                self.begin_read_call(ledger, id, (payload, reply_payload_max), &want, means)
            }
            ShortSend::Reply { to, item: None } => self.begin_plain_reply(ledger, to, payload),
            ShortSend::Reply { to, item: Some((item, direction)) } => {
                self.begin_read_reply(ledger, to, payload, (item, direction), means)
            }
        }
    }
}
