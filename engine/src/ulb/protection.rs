//! What the credentials of a call permit the transport to do.

use rpcrdma_xdr::numbers::onc::auth_flavor;
use rpcrdma_xdr::onc::Auth;

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
    /// What credentials ask for.
    pub fn of(credentials: &Auth<'_>) -> Protection {
        if credentials.flavor() != auth_flavor::GSS {
            return Protection::None;
        }
        // While a context is made there is no service yet, and its calls have neither arguments nor
        // results of the program.
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
