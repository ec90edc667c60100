//! Errors of decoding, and the only error of encoding: no room.

use thiserror::Error;

/// Why bytes from the peer are not a valid header.
///
/// Every variant is an error of the peer and is answered, if an answer is due, by RDMA_ERROR with
/// RDMA_ERR_BAD_HEADER (wire.md N5). `at` is the byte offset, from the start of the decoded bytes,
/// of the word that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the field at `at` does.
    #[error("the message ends inside the field at byte {at}")]
    Truncated {
        /// The position of the field.
        at: u32,
    },
    /// An XDR bool or an optional-data mark is neither 0 nor 1 (RFC 4506 4.4, 4.19; wire.md X9).
    #[error("the bool at byte {at} is {value}; 0 or 1 expected")]
    BadBool {
        /// The position of the word.
        at: u32,
        /// Its value.
        value: u32,
    },
    /// An enum or a union discriminant has a number that is not assigned, or not allowed here.
    #[error("the discriminant at byte {at} is {value}, which is not defined here")]
    BadDiscriminant {
        /// The position of the word.
        at: u32,
        /// Its value.
        value: u32,
    },
    /// A count or a length exceeds the accepted maximum (wire.md E40).
    #[error("the count at byte {at} is {count}; at most {max} is accepted")]
    TooMany {
        /// The position of the count.
        at: u32,
        /// Its value.
        count: u32,
        /// The largest value allowed.
        max: u32,
    },
    /// A byte between the end of an opaque and the next word boundary is not zero
    /// (RFC 4506 4.10; wire.md W5).
    #[error("the padding at byte {at} is not zero")]
    BadPadding {
        /// The position of the padding.
        at: u32,
    },
    /// The structure inside an opaque ends `extra` bytes before the opaque does (wire.md X12, P4).
    #[error("{extra} bytes follow the structure that ends at byte {at}")]
    Trailing {
        /// The position of the structure's end.
        at: u32,
        /// The number of bytes of the opaque that are left.
        extra: u32,
    },
    /// A field is well-formed, but its value is out of range.
    #[error("the value at byte {at} is {value}, which is out of range")]
    BadValue {
        /// The position of the word.
        at: u32,
        /// Its value.
        value: u32,
    },
    /// `rdma_vers` is neither one nor two; only an ERR_VERS error is decoded then.
    #[error("RPC-over-RDMA version {vers}; 1 and 2 are supported")]
    UnknownVersion {
        /// The value of `rdma_vers`.
        vers: u32,
    },
    /// RDMA_NOMSG without a chunk: the payload cannot be anywhere (RFC 8166 4.5.2).
    #[error("RDMA_NOMSG carries no chunk")]
    NoChunk,
    /// A set of properties contains a known property twice (wire.md P5).
    #[error("property {id} occurs twice")]
    DuplicateProperty {
        /// The property's number.
        id: u32,
    },
}

/// The buffer is too small.
///
/// Bytes that were written before the error stay in the buffer and have no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{need} bytes do not fit: the buffer has {left} left")]
pub struct NoRoom {
    /// Bytes that the field needs.
    pub need: u32,
    /// Bytes that are left in the buffer.
    pub left: u32,
}
