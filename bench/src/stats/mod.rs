//! Samples and what is computed of them.

pub mod dice;
pub mod latency;
pub(crate) mod meter;
pub(crate) mod rounds;
