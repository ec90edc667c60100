//! The program on the wire.
//!
//! ```text
//!   NULL    ()                               -> ()
//!   WRITE   (offset: hyper, data: opaque<>)  -> (status, count)
//!   READ    (offset: hyper, count)           -> (status, data: opaque<>)
//!   COMMIT  (length: hyper)                  -> (status)   the file has this length, on the medium
//! ```
//! A status is 0 or an error number of the system, after which there is nothing. The data are placed.

use rpcrdma_engine::Payload;
use rpcrdma_engine::message::incoming::PayloadReader;
use rpcrdma_engine::onc::{AcceptStatus, CallHeader, HeaderRoom, ReplyHeader};

use crate::Outcome;

/// From the range that RFC 5531 leaves to users.
pub const PROGRAM: u32 = 0x2000_b10c;
pub const VERSION: u32 = 1;
pub const NULL: u32 = 0;
pub const WRITE: u32 = 1;
pub const READ: u32 = 2;
pub const COMMIT: u32 = 3;
/// The longest data of a WRITE or a READ, in bytes.
pub const BLOCK_MAX: usize = 1 << 20;

/// Why a call is not executed: the header of its reply.
pub type Denial = ReplyHeader<'static>;
pub const GARBAGE: Denial = ReplyHeader::accepted(AcceptStatus::GarbageArguments);

/// A call, decoded.
pub struct Called {
    pub procedure: u32,
    /// An offset, or a length.
    pub at: u64,
    /// Bytes of data.
    pub len: usize,
    /// Where the data are, from the start of the RPC message, if they are not placed.
    pub data: usize,
}

/// Writes the header of a call.
pub fn put_call(payload: &mut Payload<'_>, procedure: u32) {
    payload.put_fixed(&CallHeader::plain(PROGRAM, VERSION, procedure));
}

/// Reads a call up to its data.
///
/// # Errors
/// The reply to a call of anything else.
pub fn read_call(mut reader: PayloadReader<'_>) -> Result<Called, Denial> {
    let mut room = HeaderRoom::new();
    let header = reader.call_header(&mut room).map_err(|why| why.reply())?;
    let procedure = header.procedure;
    let status = match (header.program, header.version, procedure) {
        (PROGRAM, VERSION, NULL..=COMMIT) => {
            let at = if procedure == NULL { Ok(0) } else { reader.u64() };
            let len = if matches!(procedure, READ | WRITE) { reader.u32() } else { Ok(0) };
            let (at, len) = (at.map_err(|_| GARBAGE)?, len.map_err(|_| GARBAGE)? as usize);
            return Ok(Called { procedure, at, len, data: reader.position() });
        }
        (PROGRAM, VERSION, _) => AcceptStatus::ProcedureUnavailable,
        (PROGRAM, ..) => AcceptStatus::ProgramMismatch { low: VERSION, high: VERSION },
        _ => AcceptStatus::ProgramUnavailable,
    };
    Err(ReplyHeader::accepted(status))
}

/// Reads a reply up to behind its status.
///
/// # Errors
/// If the call was denied, or its status is not 0.
pub fn read_reply(reader: &mut PayloadReader<'_>) -> Outcome {
    match reader.reply_header(&mut HeaderRoom::new())? {
        ReplyHeader::Accepted { status: AcceptStatus::Success, .. } => {}
        denial => return Err(format!("the server did not execute the call: {denial:?}").into()),
    }
    match reader.u32()?.cast_signed() {
        0 => Ok(()),
        status => Err(format!("the server: {}", std::io::Error::from_raw_os_error(status)).into()),
    }
}
