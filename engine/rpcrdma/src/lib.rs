//! The crate that a program depends on: the engine, and by feature the futures, under one name.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use rpcrdma_engine::*;

/// Calls as futures, on any executor.
#[cfg(feature = "async")]
pub mod future {
    pub use rpcrdma_async::*;
}

/// The README of the project: its code is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
