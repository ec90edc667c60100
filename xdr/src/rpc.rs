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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_encodes_to_what_it_was_decoded_from() {
        for (word, kind) in [(0, MsgType::Call), (1, MsgType::Reply)] {
            let bytes = [1, 2, 3, 4, 0, 0, 0, word];
            let prefix = RpcPrefix::decode(&bytes).unwrap();
            assert_eq!(prefix, RpcPrefix { xid: 0x0102_0304, kind });
            let mut buffer = [0; RpcPrefix::LEN];
            prefix.encode(&mut Writer::new(&mut buffer)).unwrap();
            assert_eq!(buffer, bytes);
        }
    }

    #[test]
    fn a_message_that_is_neither_call_nor_reply_is_refused() {
        let error = DecodeError::BadDiscriminant { at: 4, value: 2 };
        assert_eq!(RpcPrefix::decode(&[0, 0, 0, 1, 0, 0, 0, 2]), Err(error));
    }

    #[test]
    fn seven_bytes_are_no_rpc_message() {
        assert_eq!(RpcPrefix::decode(&[0; 7]), Err(DecodeError::Truncated { at: 4 }));
        assert!(RpcPrefix::decode(&[0; 8]).is_ok());
    }
}
