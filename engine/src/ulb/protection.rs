//! The protection of a call's data: which transfers its credentials permit.

use rpcrdma_xdr::numbers::onc::auth_flavor;
use rpcrdma_xdr::onc::Auth;

/// The restrictions that the credentials of a call put on the transport.
///
/// If a checksum covers arguments and results, or if they are encrypted, they are one opaque item,
/// and no part may be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    /// Arguments and results are in the clear: AUTH_NONE, AUTH_SYS, and RPCSEC_GSS that only
    /// authenticates.
    #[default]
    None,
    /// RPCSEC_GSS with integrity.
    Integrity,
    /// RPCSEC_GSS with privacy, or with an unknown service.
    Privacy,
}

impl Protection {
    /// The protection that credentials require.
    pub fn of(credentials: &Auth<'_>) -> Protection {
        if credentials.flavor() != auth_flavor::GSS {
            return Protection::None;
        }
        // While a context is established there is no service yet, and its calls have no arguments
        // or results of the program.
        match credentials.gss_service() {
            Some(1) => Protection::None,
            Some(2) => Protection::Integrity,
            _ => Protection::Privacy,
        }
    }

    /// Whether an item may leave the stream.
    pub fn may_place(self) -> bool {
        match self {
            Protection::None => true,
            Protection::Integrity | Protection::Privacy => false,
        }
    }
}
