//! The header of an RPC call: which procedure, and what its credentials leave to the transport.

use crate::incoming::{EndOfMessage, PayloadReader};

/// The header of an RPC call, behind the two words that the engine reads (RFC 5531 9).
///
/// It says enough to choose a [`Binding`](super::Binding) and to bind a procedure; credentials and
/// verifier are the program's to read and to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHeader {
    /// The program.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The flavor of the credentials.
    pub flavor: u32,
    /// What the credentials leave to the transport.
    pub protection: Protection,
}

impl CallHeader {
    /// Reads a header up to the arguments.
    ///
    /// # Errors
    /// [`HeaderError`]; a server answers RPC_MISMATCH to another version of RPC, and refuses the
    /// rest.
    pub fn read(reader: &mut PayloadReader<'_>) -> Result<CallHeader, HeaderError> {
        let rpc = reader.u32()?;
        if rpc != RPC_VERSION {
            return Err(HeaderError::RpcVersion { given: rpc });
        }
        let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let flavor = reader.u32()?;
        let mut credentials = [0; AUTH_BODY_MAX];
        let len = body(reader, &mut credentials)?;
        let protection = match flavor {
            RPCSEC_GSS => Protection::of_gss(credentials.get(..len).unwrap_or_default()),
            _ => Protection::None,
        };
        reader.u32()?;
        body(reader, &mut credentials)?;
        Ok(CallHeader { program, version, procedure, flavor, protection })
    }
}

/// What the credentials of a call leave to the transport.
///
/// Where a checksum covers arguments and results, or where they are encrypted, they are one opaque
/// item in which nothing can be told apart, and nothing may leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    /// Arguments and results lie open: AUTH_NONE, AUTH_SYS, and RPCSEC_GSS that only
    /// authenticates.
    #[default]
    None,
    /// RPCSEC_GSS with integrity.
    Integrity,
    /// RPCSEC_GSS with privacy, or with a service that is not known here.
    Privacy,
}

impl Protection {
    /// Whether an item may leave the stream.
    pub fn may_place(self) -> bool {
        match self {
            Protection::None => true,
            Protection::Integrity | Protection::Privacy => false,
        }
    }

    /// What RPCSEC_GSS credentials ask for (RFC 2203 5).
    fn of_gss(credentials: &[u8]) -> Protection {
        let word = |index: usize| {
            let rest = credentials.get(4 * index..)?;
            rest.first_chunk().map(|word| u32::from_be_bytes(*word))
        };
        // Version, procedure, sequence number, service. While a context is made there is no
        // service yet, and its calls have neither arguments nor results of the program.
        match word(3) {
            Some(1) => Protection::None,
            Some(2) => Protection::Integrity,
            _ => Protection::Privacy,
        }
    }
}

/// A call header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Another version of RPC than 2.
    #[error("RPC version {given}, and 2 is spoken")]
    RpcVersion {
        /// The version.
        given: u32,
    },
    /// Credentials or a verifier of more than 400 bytes.
    #[error("credentials or a verifier of {len} bytes, and 400 are allowed")]
    AuthBody {
        /// The length.
        len: u32,
    },
    /// The message is cut off.
    #[error(transparent)]
    End(#[from] EndOfMessage),
}

fn body(
    reader: &mut PayloadReader<'_>,
    out: &mut [u8; AUTH_BODY_MAX],
) -> Result<usize, HeaderError> {
    let len = reader.u32()?;
    let bytes = out.get_mut(..len as usize).ok_or(HeaderError::AuthBody { len })?;
    reader.fixed_into(bytes)?;
    reader.skip((len as usize).next_multiple_of(4) - len as usize)?;
    Ok(len as usize)
}

const RPC_VERSION: u32 = 2;
/// The flavor of RFC 2203.
const RPCSEC_GSS: u32 = 6;
/// The longest body of credentials or verifier (RFC 5531 8.2), a multiple of four.
const AUTH_BODY_MAX: usize = 400;

/// Bytes of a reply in front of the results: transaction id, message type, reply status, flavor and
/// length of the verifier, accept status.
pub(super) const REPLY_HEADER_LEN: u32 = 24;
/// The longest that follows it when the call was not executed: the versions of PROG_MISMATCH.
pub(super) const REPLY_MISMATCH_LEN: u32 = 8;
