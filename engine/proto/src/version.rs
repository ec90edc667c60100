//! The versions: the supported ones, the one that a connection begins with, and the state of the
//! negotiation.

use rpcrdma_xdr::numbers::{VERSION_ONE, VERSION_TWO};

/// A version of RPC-over-RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Version {
    /// RFC 8166.
    One = VERSION_ONE,
    /// \[V2\], with its extensions.
    Two = VERSION_TWO,
}

impl Version {
    /// The number on the wire (`rdma_vers`).
    #[inline]
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }
}

bitflags::bitflags! {
    /// Which versions one side speaks; at least one of them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Versions: u8 {
        /// Version one.
        const ONE = 1;
        /// Version two.
        const TWO = 2;
    }
}

impl Versions {
    /// Whether this `rdma_vers` is among them.
    #[must_use]
    pub fn speaks(self, vers: u32) -> bool {
        match vers {
            VERSION_ONE => self.contains(Self::ONE),
            VERSION_TWO => self.contains(Self::TWO),
            _ => false,
        }
    }

    /// The lowest and the highest, as ERR_VERS states them (wire.md B8).
    #[must_use]
    pub fn range(self) -> (u32, u32) {
        let low = if self.contains(Self::ONE) { VERSION_ONE } else { VERSION_TWO };
        let high = if self.contains(Self::TWO) { VERSION_TWO } else { VERSION_ONE };
        (low, high)
    }
}

/// The version that a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// Version one, with any peer.
    One,
    /// Version two; a client falls back to version one if it must and [`crate::Settings::versions`]
    /// allows.
    Two,
    /// The version of the peer's first message: for servers.
    Either,
}

/// Which ends are known to support the other's version. Until both are, every message takes the
/// general way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Met {
    /// The peer has not shown its version.
    Neither,
    /// The peer has. It may not have our answer yet, which has at most 1024 bytes.
    Peer,
    /// Both.
    Both,
}

/// The first message of the peer decides. A message that says so itself is of no version.
pub(crate) const UNDECIDED: u32 = 0;
