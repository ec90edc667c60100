//! The parameters for opening a connection, apart from its settings.

use rpcrdma_xdr::numbers::{VERSION_ONE, VERSION_TWO};
use rpcrdma_xdr::private_data::PrivateData;

use crate::settings::Role;
use crate::version::{Start, UNDECIDED, Versions};

/// The parameters of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The peer's private data (RFC 8797). It affects version one only (wire.md P15).
    pub private: Option<PrivateData>,
    /// The version to begin with.
    pub version: Start,
}

impl Opening {
    /// Version two for a client, the peer's choice for a server, and no private data.
    #[must_use]
    pub fn of(role: Role) -> Self {
        let version = match role {
            Role::Client => Start::Two,
            Role::Server => Start::Either,
        };
        Self { private: None, version }
    }

    /// The `rdma_vers` that is decided from the start.
    pub(crate) fn vers(&self, speaks: Versions) -> u32 {
        match self.version {
            Start::One => VERSION_ONE,
            Start::Two => VERSION_TWO,
            // With a single version there is nothing to decide.
            Start::Either if speaks == Versions::ONE => VERSION_ONE,
            Start::Either if speaks == Versions::TWO => VERSION_TWO,
            Start::Either => UNDECIDED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_speaks_one_version_begins_with_it() {
        let vers = |version, speaks| Opening { private: None, version }.vers(speaks);
        assert_eq!(vers(Start::Either, Versions::ONE), 1);
        assert_eq!(vers(Start::Either, Versions::TWO), 2);
        assert_eq!(vers(Start::Either, Versions::all()), UNDECIDED);
        for speaks in [Versions::ONE, Versions::TWO, Versions::all()] {
            assert_eq!((vers(Start::One, speaks), vers(Start::Two, speaks)), (1, 2));
        }
        let of = |role| Opening::of(role).version;
        assert_eq!((of(Role::Client), of(Role::Server)), (Start::Two, Start::Either));
    }
}
