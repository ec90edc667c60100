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

use arrayvec::ArrayVec;
use rpcrdma_engine::Payload;
use rpcrdma_engine::incoming::{EndOfMessage, PayloadReader};

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

/// Why a call is not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// Another version of RPC than 2.
    RpcVersion,
    /// Another program.
    Program,
    /// Another version of the program.
    ProgramVersion,
    /// No such procedure.
    Procedure,
    /// The arguments cannot be decoded.
    Garbage,
}

/// A call header as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHeader {
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
    /// The server did not execute the call.
    #[error("the server denied the call: reply_stat {reply_stat}, reason {reason}")]
    Denied {
        /// 0 accepted, 1 denied.
        reply_stat: u32,
        /// accept_stat or reject_stat.
        reason: u32,
    },
    /// The server's file could not be written or read.
    #[error("the server's file: {}", std::io::Error::from_raw_os_error(*.0))]
    Status(i32),
}

/// Writes a call header with AUTH_NONE.
pub fn put_call(payload: &mut Payload<'_>, procedure: Procedure) {
    let number = PROCEDURES.iter().position(|known| *known == procedure).unwrap_or_default();
    for word in [RPC_VERSION, PROGRAM, VERSION, number as u32] {
        payload.put_u32(word);
    }
    for _credential_and_verifier in 0..2 {
        payload.put_u32(AUTH_NONE);
        payload.put_opaque(&[]);
    }
}

/// Reads a call header. Credential and verifier are passed over, whatever they are.
pub fn read_call(reader: &mut PayloadReader<'_>) -> Result<CallHeader, Denial> {
    let mut words = [0; 4];
    for word in &mut words {
        *word = reader.u32().map_err(|_| Denial::Garbage)?;
    }
    let [rpc_version, program, version, procedure] = words;
    let mut arguments = POSITION_OF_BODY + 16;
    for _credential_and_verifier in 0..2 {
        let len = skip_auth(reader).map_err(|_| Denial::Garbage)?.ok_or(Denial::Garbage)?;
        arguments += 8 + len;
    }
    match (rpc_version, program, version, PROCEDURES.get(procedure as usize)) {
        (RPC_VERSION, PROGRAM, VERSION, Some(&procedure)) => {
            Ok(CallHeader { procedure, arguments })
        }
        (RPC_VERSION, PROGRAM, VERSION, None) => Err(Denial::Procedure),
        (RPC_VERSION, PROGRAM, ..) => Err(Denial::ProgramVersion),
        (RPC_VERSION, ..) => Err(Denial::Program),
        _ => Err(Denial::RpcVersion),
    }
}

/// The words of a reply that accepts a call and carries on with a status: 0 or an error number.
pub fn reply_words(status: i32) -> [u32; 5] {
    [ACCEPTED, AUTH_NONE, 0, 0, status.cast_unsigned()]
}

/// The words of a reply that denies a call.
pub fn denial_words(denial: Denial) -> ArrayVec<u32, 6> {
    let accepted = |words: &[u32]| {
        let head = [ACCEPTED, AUTH_NONE, 0];
        head.iter().chain(words).copied().collect()
    };
    match denial {
        Denial::RpcVersion => [DENIED, 0, RPC_VERSION, RPC_VERSION].into_iter().collect(),
        Denial::Program => accepted(&[1]),
        Denial::ProgramVersion => accepted(&[2, VERSION, VERSION]),
        Denial::Procedure => accepted(&[3]),
        Denial::Garbage => accepted(&[4]),
    }
}

/// Reads a reply up to behind its status.
///
/// # Errors
/// If the call was denied, or its status is not 0.
pub fn read_reply(reader: &mut PayloadReader<'_>) -> Result<(), ReplyError> {
    let reply_stat = reader.u32()?;
    if reply_stat != ACCEPTED {
        return Err(ReplyError::Denied { reply_stat, reason: reader.u32()? });
    }
    skip_auth(reader)?.ok_or(EndOfMessage)?;
    let accept_stat = reader.u32()?;
    if accept_stat != 0 {
        return Err(ReplyError::Denied { reply_stat, reason: accept_stat });
    }
    match reader.u32()?.cast_signed() {
        0 => Ok(()),
        status => Err(ReplyError::Status(status)),
    }
}

/// Passes over a credential or a verifier and returns its padded length; `None` if it is longer
/// than RFC 5531 section 8.2 allows.
fn skip_auth(reader: &mut PayloadReader<'_>) -> Result<Option<u32>, EndOfMessage> {
    let _flavor = reader.u32()?;
    let len = reader.u32()?;
    if len > AUTH_LEN_MAX {
        return Ok(None);
    }
    let padded = len.next_multiple_of(4);
    reader.skip(padded as usize)?;
    Ok(Some(padded))
}

/// By number.
const PROCEDURES: [Procedure; 5] =
    [Procedure::Null, Procedure::Write, Procedure::Read, Procedure::Resize, Procedure::Commit];
const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
const AUTH_LEN_MAX: u32 = 400;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
/// Behind transaction id and message type.
const POSITION_OF_BODY: u32 = 8;
