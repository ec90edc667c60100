//! The handshake: one message each way over the socket, before the memory is used.
//!
//! ```text
//!   connecting side ── Hello, with the memory ──▶ accepting side
//!                   ◀── Answer ──────────────────
//! ```
//!
//! ```text
//!   0         4         6      7        8       12      16        20       24      25       26    32        88
//!   │ "rdsm"  │ version │ kind │ status │ flags │ slots │ staging │ qp_num │ retry │ length │  0  │ private │
//! ```
//!
//! Numbers are in the byte order of the host: both processes are on it.

use rpcrdma_provider::{PrivateBytes, RNR_RETRY_FOREVER};

use crate::layout::Dimensions;

/// One side's message of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub kind: Kind,
    /// Proposed by the connecting side; the answer repeats them.
    pub dimensions: Dimensions,
    /// Its process takes part in the barriers of others.
    pub has_fences: bool,
    /// It exposes its pools, and maps those of the other side.
    pub maps_pools: bool,
    /// Its queue pair.
    pub qp_num: u32,
    /// How often its own messages are retried while the other side has no Receive.
    pub rnr_retry: u8,
    /// Connection private data.
    pub private: PrivateBytes,
}

/// What a message of the handshake states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request, with the memory.
    Hello,
    /// The request is accepted.
    Accepted,
    /// The program of the accepting side rejects it.
    Rejected,
    /// The accepting side cannot use the memory.
    Unfit,
}

/// Why a message of the handshake is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// It has not the length of one.
    #[error("a handshake message of {0} bytes; it has {HANDSHAKE_LEN}")]
    Length(usize),
    /// It does not begin as one.
    #[error("not a handshake message: it does not begin with \"rdsm\"")]
    Magic,
    /// It came with descriptors that are not expected.
    #[error("unexpected descriptors")]
    Descriptors,
    /// Another version.
    #[error("unknown version {0} of the shared memory; the only known one is {VERSION}")]
    Version(u16),
    /// An unknown kind or status.
    #[error("unknown kind {0} with status {1}")]
    Kind(u8, u8),
    /// A number is out of range.
    #[error("{0} is out of range")]
    Range(&'static str),
}

impl Handshake {
    /// Its bytes.
    pub(crate) fn encode(&self) -> [u8; HANDSHAKE_LEN] {
        let Dimensions { slots, staging } = self.dimensions;
        let (kind, status) = self.kind.code();
        let mut bytes = [0; HANDSHAKE_LEN];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[6..8].copy_from_slice(&[kind, status]);
        let flags = u32::from(self.has_fences) | u32::from(self.maps_pools) << 1;
        bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&slots.to_ne_bytes());
        bytes[16..20].copy_from_slice(&staging.to_ne_bytes());
        bytes[20..24].copy_from_slice(&self.qp_num.to_ne_bytes());
        bytes[24..26].copy_from_slice(&[self.rnr_retry, self.private.len() as u8]);
        bytes[PRIVATE_AT..][..self.private.len()].copy_from_slice(&self.private);
        bytes
    }

    /// Decodes a message of the peer.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Handshake, Malformed> {
        let bytes: &[u8; HANDSHAKE_LEN] =
            bytes.try_into().map_err(|_| Malformed::Length(bytes.len()))?;
        if bytes[0..4] != MAGIC {
            return Err(Malformed::Magic);
        }
        let version = u16::from_ne_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let number = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kind = Kind::of(bytes[6], bytes[7]).ok_or(Malformed::Kind(bytes[6], bytes[7]))?;
        let dimensions = Dimensions { slots: number(12), staging: number(16) };
        let dimensions =
            dimensions.check().map_err(|_| Malformed::Range("the size of the link"))?;
        let (rnr_retry, private_len) = (bytes[24], usize::from(bytes[25]));
        if rnr_retry > RNR_RETRY_FOREVER {
            return Err(Malformed::Range("rnr_retry"));
        }
        let private = bytes[PRIVATE_AT..].get(..private_len);
        let private = private.and_then(|private| PrivateBytes::try_from(private).ok());
        Ok(Handshake {
            kind,
            dimensions,
            has_fences: number(8) & 1 != 0,
            maps_pools: number(8) & 2 != 0,
            qp_num: number(20),
            rnr_retry,
            private: private.ok_or(Malformed::Range("the length of the private data"))?,
        })
    }
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Hello, Kind::Accepted, Kind::Rejected, Kind::Unfit];

    fn code(self) -> (u8, u8) {
        match self {
            Kind::Hello => (1, 0),
            Kind::Accepted => (2, 0),
            Kind::Rejected => (2, 1),
            Kind::Unfit => (2, 2),
        }
    }

    fn of(kind: u8, status: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|known| known.code() == (kind, status))
    }
}

/// Bytes of a message.
pub(crate) const HANDSHAKE_LEN: usize = 88;
const MAGIC: [u8; 4] = *b"rdsm";
/// Of the handshake and of the memory's layout.
const VERSION: u16 = 1;
const PRIVATE_AT: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn handshake(kind: Kind, private: &[u8]) -> Handshake {
        Handshake {
            kind,
            dimensions: Dimensions { slots: 128, staging: 1 << 20 },
            has_fences: true,
            maps_pools: false,
            qp_num: 0x12_3456,
            rnr_retry: 7,
            private: private.try_into().expect("at most 56 bytes"),
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for kind in Kind::ALL {
            for len in [0, 1, 55, 56] {
                let said = handshake(kind, &vec![9; len]);
                assert_eq!(Handshake::decode(&said.encode()), Ok(said));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = handshake(Kind::Hello, b"private").encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Handshake::decode(&bytes).expect_err("not allowed")
        };
        assert_eq!(Handshake::decode(&good[1..]), Err(Malformed::Length(87)));
        assert_eq!(Handshake::decode(&[]), Err(Malformed::Length(0)));
        assert_eq!(with(0, b'R'), Malformed::Magic);
        assert_eq!(with(4, 2), Malformed::Version(2));
        assert_eq!(with(6, 3), Malformed::Kind(3, 0));
        assert_eq!(with(7, 1), Malformed::Kind(1, 1));
        assert_eq!(with(12, 3), Malformed::Range("the size of the link"));
        assert_eq!(with(24, 8), Malformed::Range("rnr_retry"));
        assert_eq!(with(25, 57), Malformed::Range("the length of the private data"));
        assert_eq!(with(25, 255), Malformed::Range("the length of the private data"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Handshake::decode(&bytes);
        }

        #[test]
        fn any_change_of_a_handshake_is_decoded_or_refused(at in 0..HANDSHAKE_LEN, byte: u8) {
            let mut bytes = handshake(Kind::Accepted, b"private").encode();
            bytes[at] = byte;
            if let Ok(handshake) = Handshake::decode(&bytes) {
                prop_assert!(handshake.dimensions.check().is_ok() && handshake.rnr_retry <= 7);
            }
        }
    }
}
