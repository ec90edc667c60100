//! The start of every RPC message, which is all that a transport reads.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cursor::Reader;
use crate::error::DecodeError;
use crate::numbers::msg_type;

/// The direction of an RPC message (`msg_type`, RFC 5531 9; wire.md X8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MsgType {
    /// A call.
    Call = msg_type::CALL,
    /// A reply.
    Reply = msg_type::REPLY,
}

impl MsgType {
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let word = reader.u32()?;
        Self::of(word, reader)
    }

    /// What this word says, which `reader` has just taken.
    #[inline]
    fn of(word: u32, reader: &Reader<'_>) -> Result<Self, DecodeError> {
        match word {
            msg_type::CALL => Ok(Self::Call),
            msg_type::REPLY => Ok(Self::Reply),
            value => Err(DecodeError::BadDiscriminant { at: reader.at_last_word(), value }),
        }
    }
}

/// The first eight bytes of every RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcPrefix {
    /// The transaction; must equal `rdma_xid` (RFC 8166 4.2.1).
    pub xid: u32,
    /// Call or reply: the only sign of the direction (wire.md B9).
    pub kind: MsgType,
}

impl RpcPrefix {
    /// Bytes of the prefix.
    pub const LEN: usize = 8;

    /// Decodes the start of a payload stream.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] below eight bytes, [`DecodeError::BadDiscriminant`] if the
    /// message is neither call nor reply.
    #[inline]
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let Rpc { xid, kind } = reader.take()?;
        Ok(Self { xid: xid.get(), kind: MsgType::of(kind.get(), &reader)? })
    }

    /// The eight bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> [u8; Self::LEN] {
        ((self.xid as u64) << 32 | self.kind as u64).to_be_bytes()
    }
}

/// The prefix as a fixed structure, which is read without a codec.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Rpc {
    /// The transaction; must equal `rdma_xid` (RFC 8166 4.2.1).
    pub xid: U32,
    /// Call or reply (`msg_type`).
    pub kind: U32,
}

impl Rpc {
    /// The first words of a payload stream; `None` if it is shorter.
    #[inline]
    #[must_use]
    pub fn peek(payload: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(payload).ok().map(|(rpc, _)| rpc)
    }
}
