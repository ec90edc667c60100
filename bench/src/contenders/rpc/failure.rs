//! Errors of the RPC contender.

use std::fmt::Display;

use crate::error::BenchError;

pub(super) fn device(what: &dyn Display) -> BenchError {
    BenchError::device(WHO, what)
}

/// The name in errors.
pub(super) const WHO: &str = "rpc";
