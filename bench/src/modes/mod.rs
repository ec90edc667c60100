//! The modes: what each measures, and how its result is described.

pub mod churn;
pub mod cmp;
pub mod conns;
pub mod contest;
pub mod cores;
pub mod cost;
pub mod distance;
pub mod idle;
pub mod load;
pub mod serve;
pub mod soak;
pub mod starve;
pub mod sweep;
