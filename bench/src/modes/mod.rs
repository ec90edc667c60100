//! The modes: what each measures, and its report.

pub(crate) mod churn;
pub(crate) mod cmp;
pub(crate) mod conns;
pub mod contest;
pub(crate) mod cores;
pub(crate) mod cost;
pub(crate) mod distance;
pub(crate) mod idle;
pub(crate) mod load;
pub(crate) mod prove;
pub(crate) mod serve;
pub(crate) mod soak;
pub(crate) mod starve;
pub(crate) mod sweep;
