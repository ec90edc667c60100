//! The contenders: floor, provider and RPC, and their traffic.

pub(crate) mod agree;
pub mod arrivals;
pub(crate) mod blocks;
pub mod far;
pub(crate) mod floor;
pub mod open;
pub mod raw;
pub mod rendezvous;
pub mod rpc;
pub(crate) mod stat;
pub(crate) mod tally;
pub(crate) mod wire;
