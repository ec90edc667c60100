//! What is measured: the floor, the provider, the RPC, and what they carry.

pub mod agree;
pub mod arrivals;
pub mod blocks;
pub mod call;
pub mod far;
pub mod floor;
pub mod open;
pub mod pair;
pub mod raw;
pub mod rpc;
pub mod stat;
pub mod wire;
