//! The xid and the direction of an RPC message: all of RPC that a transport may look at.

use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, NoRoom};
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
        let at = reader.at_u32();
        match reader.u32()? {
            msg_type::CALL => Ok(Self::Call),
            msg_type::REPLY => Ok(Self::Reply),
            value => Err(DecodeError::BadDiscriminant { at, value }),
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

    /// Looks at the start of a payload stream.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] below eight bytes, [`DecodeError::BadDiscriminant`] if the
    /// message is neither call nor reply.
    #[inline]
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        Ok(Self { xid: reader.u32()?, kind: MsgType::decode(&mut reader)? })
    }

    /// Puts the eight bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if they do not fit.
    #[inline]
    pub fn encode(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put_u32(self.xid)?;
        writer.put_u32(self.kind as u32)
    }
}
