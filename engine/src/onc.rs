//! RPC headers (RFC 5531) for programs, after XID and message type.
//!
//! ```no_run
//! use rpcrdma::onc::{CallHeader, ReplyHeader, RpcProgram};
//! # use rpcrdma::{Answer, Call, Client, ConnectionId, Provider, Reply};
//!
//! # fn call<P: Provider>(client: &mut Client<P>, peer: ConnectionId) -> Result<(), Box<dyn std::error::Error>> {
//! let mut call = client.call(peer, 1)?;
//! call.payload().put_fixed(&CallHeader::plain(100_003, 3, 0));
//! # Ok(())
//! # }
//! const PROGRAM: RpcProgram = RpcProgram { number: 100_003, version: 3, procedures: 22 };
//!
//! fn on_call<'a>(call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
//!     match call.arguments(&PROGRAM) {
//!         Ok((_procedure, _reader)) => reply.payload().put_fixed(&ReplyHeader::SUCCESS),
//!         Err(denial) => return reply.deny(&denial),
//!     }
//!     reply.send()
//! }
//! ```

use arrayvec::ArrayVec;

use crate::api::reply::{Answer, Reply};
use crate::message::incoming::Incoming;
use crate::message::payload_reader::{EndOfMessage, PayloadReader};

pub use rpcrdma_xdr::cursor::Reader;
pub use rpcrdma_xdr::error::DecodeError;
pub use rpcrdma_xdr::numbers::limit::AUTH_SYS_GROUPS_MAX;
pub use rpcrdma_xdr::numbers::onc::{auth_flavor, auth_stat};
pub use rpcrdma_xdr::onc::{
    AcceptStatus, Auth, AuthSys, CallHeader, HeaderError, MsgType, ReplyHeader, RpcPrefix,
    RpcProgram,
};

/// Room for a header whose bytes are not contiguous.
pub type HeaderRoom = ArrayVec<u8, { CallHeader::LEN_MAX }>;

/// Why a reply has no results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// The header of the reply is invalid.
    #[error("the header of the reply: {0}")]
    Header(#[from] DecodeError),
    /// The server did not execute the call. The verifier is left out.
    #[error("the server did not execute the call: {0:?}")]
    Denied(ReplyHeader<'static>),
}

/// Arguments that end too early are GARBAGE_ARGS.
impl From<EndOfMessage> for ReplyHeader<'static> {
    fn from(_: EndOfMessage) -> Self {
        AcceptStatus::GarbageArguments.into()
    }
}

impl Incoming<'_> {
    /// The procedure of a call to this program, and a reader positioned at the arguments. The
    /// credentials are skipped.
    ///
    /// # Errors
    /// The reply to a call that is invalid, or to another program; see [`Reply::deny`].
    pub fn arguments(
        &self,
        program: &RpcProgram,
    ) -> Result<(u32, PayloadReader<'_>), ReplyHeader<'static>> {
        let (mut reader, mut room) = (self.reader(), HeaderRoom::new());
        let procedure = program.check(&reader.call_header(&mut room)?)?;
        Ok((procedure, reader))
    }

    /// A reader positioned at the results of a call. The verifier is skipped.
    ///
    /// # Errors
    /// [`ResultsError`] if the call was not executed.
    pub fn results(&self) -> Result<PayloadReader<'_>, ResultsError> {
        self.reader().results()
    }
}

impl<'a> Reply<'a> {
    /// Sends a reply header that has no results: the call is not executed.
    pub fn deny(mut self, header: &ReplyHeader<'_>) -> Answer<'a> {
        self.payload().put_fixed(&header.bytes());
        self.send()
    }
}

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

    /// The same, positioned at the results of a call. The verifier is skipped.
    ///
    /// # Errors
    /// [`ResultsError`] if the call was not executed.
    pub fn results(mut self) -> Result<PayloadReader<'a>, ResultsError> {
        let mut room = HeaderRoom::new();
        let denial = match self.reply_header(&mut room)? {
            ReplyHeader::Accepted { status: AcceptStatus::Success, .. } => return Ok(self),
            ReplyHeader::Accepted { status, .. } => ReplyHeader::accepted(status),
            ReplyHeader::RpcMismatch { low, high } => ReplyHeader::RpcMismatch { low, high },
            ReplyHeader::AuthError { why } => ReplyHeader::AuthError { why },
        };
        Err(ResultsError::Denied(denial))
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
