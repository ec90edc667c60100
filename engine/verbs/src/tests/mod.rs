//! The queues on a real device, or on soft-RoCE: connected by hand, everything in one process.
//!
//! Ignored where there is no device: the emulated machine runs them, with the name of its device in
//! the environment.

mod control;
mod messages;
mod remote;
mod rig;
