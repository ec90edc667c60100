//! What is measured: the floor, the provider, the RPC, and what they carry.

pub(crate) mod agree;
pub mod arrivals;
pub(crate) mod blocks;
pub mod call;
pub(crate) mod far;
pub(crate) mod floor;
pub mod open;
pub mod raw;
pub mod rpc;
pub(crate) mod stat;
pub(crate) mod wire;
