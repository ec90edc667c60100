//! What stands in a test for what fails: a provider with faults, and system calls that are refused;
//! the software fabric as a subject of the rules of a device; and processes that a test starts.

pub mod children;
pub mod denied;
pub mod fabric;
pub mod fault;
