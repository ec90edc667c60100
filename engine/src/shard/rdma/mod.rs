//! Explicit RDMA: what own calls expose, and what is fetched for the calls of peers.

pub(crate) mod exposures;
pub(crate) mod fetch;
pub(crate) mod fetches;
pub(crate) mod offers;
pub(crate) mod steps;
pub(crate) mod windows;
