//! Bindings of the RDMA libraries: structures, numbers and functions, without logic.
//!
//! Written by hand after the headers of rdma-core 44, whose names they keep so that both can be
//! searched for. Nothing of it is needed to build. Only what this crate uses is here. Enumerations of
//! the libraries are integers: a library may have values that are younger than this file. The tests
//! compare all sizes, offsets and numbers with the system's headers where there are any.

pub mod cm;
pub mod verbs;
