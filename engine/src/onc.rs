//! RPC headers (RFC 5531) for programs, after XID and message type.
//!
//! ```no_run
//! use rpcrdma_engine::onc::{CallHeader, ReplyHeader, HeaderRoom};
//! # use rpcrdma_engine::{Answer, Call, Client, ConnectionId, Provider, Reply};
//!
//! # fn call<P: Provider>(client: &mut Client<P>, peer: ConnectionId) -> Result<(), Box<dyn std::error::Error>> {
//! let mut call = client.call(peer, 1)?;
//! call.payload().put_fixed(&CallHeader::plain(100_003, 3, 0));
//! # Ok(())
//! # }
//! fn on_call<'a>(call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
//!     let mut room = HeaderRoom::new();
//!     match call.reader().call_header(&mut room) {
//!         Ok(_header) => reply.payload().put_fixed(&ReplyHeader::SUCCESS),
//!         Err(why) => reply.payload().put_fixed(&why.reply().bytes()),
//!     }
//!     reply.send()
//! }
//! ```

use arrayvec::ArrayVec;

use crate::message::incoming::PayloadReader;

pub use rpcrdma_xdr::cursor::Reader;
pub use rpcrdma_xdr::error::DecodeError;
pub use rpcrdma_xdr::numbers::limit::AUTH_SYS_GROUPS_MAX;
pub use rpcrdma_xdr::numbers::onc::{auth_flavor, auth_stat};
pub use rpcrdma_xdr::onc::{
    AcceptStatus, Auth, AuthSys, CallHeader, HeaderError, MsgType, ReplyHeader, RpcPrefix,
};

/// Room for a header whose bytes are not contiguous.
pub type HeaderRoom = ArrayVec<u8, { CallHeader::LEN_MAX }>;

impl<'a> PayloadReader<'a> {
    /// The header of a call, in place, or copied to `room` if it is not contiguous. The reader is
    /// then positioned at the arguments.
    ///
    /// # Errors
    /// [`HeaderError`]; the position of the reader is unchanged.
    pub fn call_header<'h>(
        &mut self,
        room: &'h mut HeaderRoom,
    ) -> Result<CallHeader<'h>, HeaderError>
    where
        'a: 'h,
    {
        self.header(room, CallHeader::decode)
    }

    /// The header of a reply, in place, or copied to `room` if it is not contiguous. The reader is
    /// then positioned at the results.
    ///
    /// # Errors
    /// [`DecodeError`]; the position of the reader is unchanged.
    pub fn reply_header<'h>(
        &mut self,
        room: &'h mut HeaderRoom,
    ) -> Result<ReplyHeader<'h>, DecodeError>
    where
        'a: 'h,
    {
        self.header(room, ReplyHeader::decode)
    }

    #[inline]
    fn header<'h, T, E>(
        &mut self,
        room: &'h mut HeaderRoom,
        decode: fn(&mut Reader<'h>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        'a: 'h,
    {
        let mut reader = Reader::new(self.together());
        if let Ok(header) = decode(&mut reader) {
            self.pass(reader.position());
            return Ok(header);
        }
        self.header_in_pieces(room, decode)
    }

    #[cold]
    fn header_in_pieces<'h, T, E>(
        &mut self,
        room: &'h mut HeaderRoom,
        decode: fn(&mut Reader<'h>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        'a: 'h,
    {
        room.clear();
        let mut ahead = self.clone();
        while let Ok(piece) = ahead.some(room.remaining_capacity()) {
            room.try_extend_from_slice(piece).expect("no more than there is room for");
            if room.is_full() {
                break;
            }
        }
        let mut reader = Reader::new(room);
        let header = decode(&mut reader)?;
        self.pass(reader.position());
        Ok(header)
    }

    /// Skips bytes that are known to exist.
    fn pass(&mut self, len: usize) {
        self.skip(len).expect("the header is a part of the message");
    }
}
