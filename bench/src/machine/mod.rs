//! The machine that a benchmark runs on: its cores, its files, and its noise.

pub(crate) mod address;
pub mod cores;
pub mod env;
pub mod files;
pub mod jitter;
pub(crate) mod kernel;
pub mod pair;

pub use cores::CorePair;
pub(crate) use cores::{on_core, pick, pin};
pub use jitter::Jitter;
