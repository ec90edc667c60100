//! The queues on a real device, or on soft-RoCE: connected by hand, everything in one process.
//!
//! Ignored where there is no device: the emulated machine runs them, with the name of its device in
//! the environment. What a device need not be there for, and what none does when it is asked to, is
//! tested with libraries of our own.

mod asked;
mod control;
mod ends;
mod events;
mod failures;

mod kept;
mod messages;
mod remote;
mod rig;
mod rules;
mod setup;
mod wired;
