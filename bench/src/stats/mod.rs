//! Samples and what is computed of them.

pub mod dice;
pub mod latency;
pub mod meter;
pub mod rounds;
