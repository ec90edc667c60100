//! What it is measured on: the fabric or a device, the cores, the machine and its noise.

pub mod cores;
pub mod env;
pub mod jitter;
pub mod site;
pub mod verbs;
