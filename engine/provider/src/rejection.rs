//! Why a peer rejects a connection: its answer carries the reason as private data.
//!
//! ```text
//!   0        4         5        6      8
//!   │ "rprj" │ version │ reason │ code │ anything │
//! ```
//! The code is in the byte order of the network. No document defines this format, and devices add
//! padding (148 bytes on InfiniBand and RoCE): what does not begin like this is a rejection without
//! a reason. wire.md W28.

/// Why a peer rejects a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// It states no reason, or none in this encoding.
    #[error("no reason stated")]
    Unstated,
    /// Its configuration does not allow this host or user, or the permissions of its socket do not.
    #[error("this host or user may not connect (connections.allow, connections.deny)")]
    NotAllowed,
    /// Its program refuses the connection.
    #[error("refused by its program, code {code}")]
    Refused {
        /// The program's own code; 0 if it states none.
        code: u16,
    },
    /// None of its shards has room.
    #[error("its limit of connections is reached (connections.max)")]
    Full,
    /// It has as many connections of this host or user as it allows.
    #[error("its limit for this host or user is reached (connections.max_per_peer)")]
    PeerFull,
    /// Its program did not answer in time, or its device could not make the connection.
    #[error("it did not accept in time")]
    Busy,
    /// It is shutting down.
    #[error("it is shutting down")]
    Stopping,
    /// Over shared memory: the sizes of the two sides do not fit.
    #[error("the two sides differ in the size of a connection's memory (shm.staging)")]
    Unfit,
}

impl Rejection {
    /// Whether the same request may be accepted later, without a change of the peer's
    /// configuration or program. Then wait and try again, or go elsewhere.
    pub fn is_transient(self) -> bool {
        match self {
            Rejection::Full | Rejection::PeerFull | Rejection::Busy | Rejection::Stopping => true,
            // A peer that does not speak this format has no other way to say "later".
            Rejection::Unstated => true,
            Rejection::NotAllowed | Rejection::Refused { .. } | Rejection::Unfit => false,
        }
    }

    /// The private data of the answer; none for [`Rejection::Unstated`].
    pub fn encode(self) -> RejectionBytes {
        let (reason, code) = match self {
            Rejection::Unstated => return RejectionBytes::new(),
            Rejection::NotAllowed => (1, 0),
            Rejection::Refused { code } => (2, code),
            Rejection::Full => (3, 0),
            Rejection::PeerFull => (4, 0),
            Rejection::Busy => (5, 0),
            Rejection::Stopping => (6, 0),
            Rejection::Unfit => (7, 0),
        };
        let [m0, m1, m2, m3] = MAGIC;
        let [high, low] = code.to_be_bytes();
        RejectionBytes::from([m0, m1, m2, m3, VERSION, reason, high, low])
    }

    /// The reason in the private data of an answer.
    pub fn decode(private: &[u8]) -> Rejection {
        match private {
            [m0, m1, m2, m3, VERSION, reason, high, low, ..] if [*m0, *m1, *m2, *m3] == MAGIC => {
                match reason {
                    1 => Rejection::NotAllowed,
                    2 => Rejection::Refused { code: u16::from_be_bytes([*high, *low]) },
                    3 => Rejection::Full,
                    4 => Rejection::PeerFull,
                    5 => Rejection::Busy,
                    6 => Rejection::Stopping,
                    7 => Rejection::Unfit,
                    _ => Rejection::Unstated,
                }
            }
            _ => Rejection::Unstated,
        }
    }
}

/// The private data of a rejection.
pub type RejectionBytes = arrayvec::ArrayVec<u8, 8>;

/// Differs from that of the private data of a connection (RFC 8797).
const MAGIC: [u8; 4] = *b"rprj";
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Rejection; 9] = [
        Rejection::NotAllowed,
        Rejection::Refused { code: 0 },
        Rejection::Refused { code: 0x1234 },
        Rejection::Refused { code: u16::MAX },
        Rejection::Full,
        Rejection::PeerFull,
        Rejection::Busy,
        Rejection::Stopping,
        Rejection::Unfit,
    ];

    #[test]
    fn every_reason_arrives_with_and_without_padding() {
        for reason in ALL {
            let mut bytes = reason.encode().to_vec();
            assert_eq!((bytes.len(), Rejection::decode(&bytes)), (8, reason));
            bytes.resize(148, 0);
            assert_eq!(Rejection::decode(&bytes), reason);
            bytes.fill(0xff);
            assert_eq!(Rejection::decode(&bytes), Rejection::Unstated);
        }
        assert!(Rejection::Unstated.encode().is_empty());
        assert_eq!(Rejection::decode(&[]), Rejection::Unstated);
    }

    #[test]
    fn the_bytes_are_those_of_the_picture() {
        let bytes = Rejection::Refused { code: 0x0102 }.encode();
        assert_eq!(bytes[..], *b"rprj\x01\x02\x01\x02");
    }

    #[test]
    fn anything_else_is_a_rejection_without_a_reason() {
        let good = Rejection::Full.encode();
        for len in 0..good.len() {
            assert_eq!(Rejection::decode(&good[..len]), Rejection::Unstated, "{len} bytes");
        }
        for at in 0..5 {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert_eq!(Rejection::decode(&bytes), Rejection::Unstated, "{at}, {bit}");
            }
        }
        for reason in (8..=255).chain([0]) {
            let mut bytes = good.clone();
            bytes[5] = reason;
            assert_eq!(Rejection::decode(&bytes), Rejection::Unstated, "reason {reason}");
        }
        // The private data of a connection.
        assert_eq!(Rejection::decode(&[0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3]), Rejection::Unstated);
    }

    #[test]
    fn a_decision_is_not_tried_again_and_a_shortage_is() {
        let later = ALL.into_iter().filter(|reason| reason.is_transient());
        let (full, stops) = (Rejection::Full, Rejection::Stopping);
        assert_eq!(later.collect::<Vec<_>>(), [full, Rejection::PeerFull, Rejection::Busy, stops]);
        assert!(Rejection::Unstated.is_transient());
    }
}
