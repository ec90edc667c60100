//! Messages: received, or under construction.

pub mod bulk;
pub(crate) mod draft;
pub mod incoming;
pub(crate) mod map;
pub mod owned_call;
pub mod payload_reader;
pub(crate) mod rdma_target;
pub(crate) mod reading;
pub(crate) mod saved_offer;
pub mod sink;
pub(crate) mod values;
pub mod wanted;
pub mod xdr_bytes;

/// Bytes of the header slot of a group: 64 continuations of 36 bytes, and a first header that is
/// longer than the headroom of its slot.
pub(crate) const HEADERS_LEN: usize = 4096;
