//! Messages: received, or under construction.

pub mod bulk;
pub(crate) mod draft;
pub mod incoming;
pub(crate) mod map;
pub mod owned_call;
pub mod payload;
pub mod payload_reader;
pub(crate) mod rdma_target;
pub(crate) mod saved_offer;
pub(crate) mod values;
pub mod wanted;
pub mod xdr_bytes;
