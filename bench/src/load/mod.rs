//! Load: latency of calls that come when they come, at shares of what the system can do.

pub mod arrivals;
pub mod open;
