//! The short way of short messages: those of one transmission that has nothing to be resolved.
//!
//! ```text
//!   plain         RDMA_MSG with an RPC message in it and nothing else, in either version
//!   single item   RDMA_OPTIONAL with one item placed by Send, or with one result asked for
//! ```
//! [`Connection::short_form`] recognises both in one look at a header. What is not exactly one of them,
//! or breaks a rule, takes the general way, which alone knows what to say about it. Both ways leave
//! the connection in the same state and put the same bytes on the wire, which tests compare.

mod plain;
mod single_item;

use rpcrdma_xdr::numbers::{VERSION_TWO, proc};

use crate::connection::{Connection, Finished};
use crate::ingress::ReplyTo;
use crate::version::Met;

pub use self::plain::{PLAIN_HEADER_LEN, PlainForm};
pub use self::single_item::{
    DIRECTIONS_LEN, GatherMeans, READ_CALL_LEN, SegmentItem, SingleDirection, SingleItem,
    SingleItemCall, SingleItemPlan,
};

/// What a transmission can be by the look of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortForm<'a> {
    /// A plain message: to [`Connection::on_plain`].
    Plain(PlainForm<'a>),
    /// A message with a single item or a single direction: to [`Connection::on_single_item`].
    SingleItem,
}

/// Whether a message is a call or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortKind {
    /// A call.
    Call(ReplyTo),
    /// The reply to a call of ours, which is finished with it.
    Reply(Finished),
}

impl Connection {
    /// Looks at a transmission of `byte_len` bytes, of which the first segment of its receive buffer
    /// has these. `None`: it is to be handed to [`Connection::on_transmission`].
    #[inline(always)]
    pub fn short_form<'a>(&self, byte_len: u32, first_segment: &'a [u8]) -> Option<ShortForm<'a>> {
        let (header, payload) = first_segment.split_first_chunk::<PLAIN_HEADER_LEN>()?;
        if header[4..8] != self.vers.to_be_bytes() || self.met != Met::Both {
            return None;
        }
        if self.group.open().is_some() {
            return None;
        }
        if header[12..] != [0; 16] {
            let is_item = word(header, 3) == proc::OPTIONAL && self.vers == VERSION_TWO;
            return is_item.then_some(ShortForm::SingleItem);
        }
        let is_whole = first_segment.len() == byte_len as usize;
        is_whole.then_some(ShortForm::Plain(PlainForm { header, payload }))
    }
}

/// The `index`-th word of a header.
#[inline]
fn word<const N: usize>(bytes: &[u8; N], index: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[4 * index..4 * index + 4]);
    u32::from_be_bytes(word)
}
