//! What must not take too long.

pub(crate) mod call_timeouts;
mod cancellation;
pub(crate) mod deadlines;
