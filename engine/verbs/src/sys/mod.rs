//! Bindings of the RDMA libraries: structures, numbers and functions, without logic.
//!
//! Written by hand after the headers of rdma-core 44, with the same names, so that both can be
//! searched. Building needs no RDMA library. Only what this crate uses is here. Enumerations of the
//! libraries are integers: a library may have values that are newer than this file. The tests
//! compare all sizes, offsets and numbers with the system's headers if they are installed.

pub mod cm;
pub mod verbs;
