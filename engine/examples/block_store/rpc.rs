//! The program on the wire: RFC 5531 headers, procedures, and what comes with them.
//!
//! ```text
//!   NULL    ()                                 -> ()
//!   WRITE   (offset: hyper, data: opaque<>)    -> (status, count)
//!   READ    (offset: hyper, count)             -> (status, data: opaque<>)   data only if status is 0
//!   RESIZE  (length: hyper)                    -> (status)
//!   COMMIT  ()                                 -> (status)
//! ```
//! A status is 0 or the error number of the system. The data of WRITE and READ are placed.

use rpcrdma_engine::Payload;
use rpcrdma_engine::incoming::{EndOfMessage, PayloadReader};
use rpcrdma_engine::onc::{AcceptStatus, CallHeader, DecodeError, HeaderRoom, ReplyHeader};

/// From the range that RFC 5531 leaves to users.
pub const PROGRAM: u32 = 0x2000_b10c;
/// The only version.
pub const VERSION: u32 = 1;
/// The longest data of a WRITE or a READ, in bytes.
pub const BLOCK_MAX: usize = 1 << 20;

/// What can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Procedure {
    /// Nothing, to see whether there is an answer.
    Null,
    /// Writes data to an offset.
    Write,
    /// Reads data from an offset.
    Read,
    /// Cuts the file off or lengthens it.
    Resize,
    /// Returns when all data are on the medium.
    Commit,
}

/// Why a call is not executed: the header of its reply.
pub type Denial = ReplyHeader<'static>;

/// The arguments cannot be decoded.
pub const GARBAGE: Denial = ReplyHeader::accepted(AcceptStatus::GarbageArguments);

/// A call as its header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called {
    /// What is called.
    pub procedure: Procedure,
    /// Where the arguments begin, from the start of the RPC message.
    pub arguments: u32,
}

/// Why a reply is no success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// It ends too early.
    #[error("the reply is cut off")]
    Truncated(#[from] EndOfMessage),
    /// Its header is none.
    #[error("the header of the reply: {0}")]
    Header(#[from] DecodeError),
    /// The server did not execute the call.
    #[error("the server accepted the call and did not execute it: {0:?}")]
    NotExecuted(AcceptStatus),
    /// The server denied the call.
    #[error("the server denied the call")]
    Denied,
    /// The server's file could not be written or read.
    #[error("the server's file: {}", std::io::Error::from_raw_os_error(*.0))]
    Status(i32),
}

/// Writes a call header with AUTH_NONE.
pub fn put_call(payload: &mut Payload<'_>, procedure: Procedure) {
    let number = PROCEDURES.iter().position(|known| *known == procedure).unwrap_or_default();
    payload.put_fixed(&CallHeader::plain(PROGRAM, VERSION, number as u32));
}

/// Reads a call header. Credentials and verifier are passed over, whatever they are.
///
/// # Errors
/// The reply to a call of anything else.
pub fn read_call(reader: &mut PayloadReader<'_>) -> Result<Called, Denial> {
    let mut room = HeaderRoom::new();
    let header = reader.call_header(&mut room).map_err(|why| why.reply())?;
    let known = PROCEDURES.get(header.procedure as usize);
    let status = match (header.program, header.version, known) {
        (PROGRAM, VERSION, Some(&procedure)) => {
            return Ok(Called { procedure, arguments: reader.position() as u32 });
        }
        (PROGRAM, VERSION, None) => AcceptStatus::ProcedureUnavailable,
        (PROGRAM, ..) => AcceptStatus::ProgramMismatch { low: VERSION, high: VERSION },
        _ => AcceptStatus::ProgramUnavailable,
    };
    Err(ReplyHeader::accepted(status))
}

/// Reads a reply up to behind its status.
///
/// # Errors
/// If the call was denied, or its status is not 0.
pub fn read_reply(reader: &mut PayloadReader<'_>) -> Result<(), ReplyError> {
    match reader.reply_header(&mut HeaderRoom::new())? {
        ReplyHeader::Accepted { status: AcceptStatus::Success, .. } => {}
        ReplyHeader::Accepted { status, .. } => return Err(ReplyError::NotExecuted(status)),
        ReplyHeader::RpcMismatch { .. } | ReplyHeader::AuthError { .. } => {
            return Err(ReplyError::Denied);
        }
    }
    match reader.u32()?.cast_signed() {
        0 => Ok(()),
        status => Err(ReplyError::Status(status)),
    }
}

/// By number.
const PROCEDURES: [Procedure; 5] =
    [Procedure::Null, Procedure::Write, Procedure::Read, Procedure::Resize, Procedure::Commit];
