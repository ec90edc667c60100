//! What stands in a test for what fails: a provider with faults, and system calls that are refused;
//! and the software fabric as a subject of the rules of a device.

pub mod denied;
pub mod fabric;
pub mod fault;
