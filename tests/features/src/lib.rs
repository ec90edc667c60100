//! Each feature of the crate `rpcrdma` works without the others: `tests/run features`.
//!
//! The tests of `rpcrdma` itself are compiled with all features that one of them needs.

#[cfg(test)]
mod tests;
