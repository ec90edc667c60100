//! What a peer does wrong on the wire.
//!
//! Each violation has the layer, type and code of a Terminate message (RFC 5040 4.8, RFC 5041 7.1,
//! RFC 5044 8).

/// What a peer has done wrong: the reason of a Terminate message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// MPA: the CRC of an FPDU is wrong.
    #[error("an FPDU has a wrong CRC")]
    Crc,
    /// MPA: an FPDU has a length that no segment has.
    #[error("an FPDU of {0} bytes; a DDP segment has 14 or more, an untagged one 18")]
    FpduLength(u16),
    /// DDP: a version other than 1.
    #[error("a segment has DDP version {version}, not 1")]
    DdpVersion {
        /// The version on the wire.
        version: u8,
        /// The segment states that it is tagged.
        is_tagged: bool,
    },
    /// RDMAP: a version other than 1.
    #[error("a message has RDMAP version {0}, not 1")]
    RdmapVersion(u8),
    /// RDMAP: an operation that does not exist, or not for this kind of segment, or not inside of a
    /// Send.
    #[error("operation {0} does not exist or does not fit its segment or its place")]
    Opcode(u8),
    /// DDP, untagged: a queue other than 0, 1 and 2, or not that of the operation.
    #[error("queue number {0} does not exist or does not fit its operation")]
    Queue(u32),
    /// DDP, untagged: a message out of order.
    #[error("message number {given}, not {expected}")]
    MessageNumber {
        /// The number on the wire.
        given: u32,
        /// The next one of the queue.
        expected: u32,
    },
    /// DDP, untagged: a segment that does not follow the one before it.
    #[error("message offset {given}, not {expected}")]
    MessageOffset {
        /// The offset on the wire.
        given: u32,
        /// The bytes of the message so far.
        expected: u32,
    },
    /// DDP, untagged: a message longer than its Receive.
    #[error("a message is longer than its Receive")]
    TooLong,
    /// RDMAP: a key that is unknown, or of another connection.
    #[error("the key {0:#010x} is unknown")]
    Stag(u32),
    /// RDMAP: bytes outside of what a key opens.
    #[error("{len} bytes at {to:#x} are outside of what the key opens")]
    Bounds {
        /// The first byte.
        to: u64,
        /// Their number.
        len: u32,
    },
    /// RDMAP: a key that does not permit this.
    #[error("the key {0:#010x} does not permit this access")]
    Rights(u32),
    /// RDMAP: a key that the peer cannot invalidate.
    #[error("the key {0:#010x} cannot be invalidated by the peer")]
    Invalidation(u32),
    /// RDMAP: a Read Request that is not one segment of 28 bytes, a Read Response that answers
    /// nothing, or one Read more than was agreed.
    #[error("an RDMA Read breaks the rules of its operation")]
    Read,
    /// FPDUs that bring neither bytes nor the end of a message.
    #[error("more than {limit} FPDUs in a row without effect")]
    NoEffect {
        /// How many are allowed.
        limit: u32,
    },
}
