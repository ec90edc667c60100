//! What tests of several crates need: faults of a device, system calls that are refused, the software
//! fabric as a subject of the rules of a device, and processes that a test starts.

pub mod children;
pub mod denied;
pub mod fabric;
pub mod fault;
