//! `check`: looks at the host and says what would spoil a measurement or a deployment.
//!
//! ```text
//!   files of the host ─┐
//!   a few questions ───┼─▶ findings: severity, what was seen, why, the command ─▶ conclusion
//!   configuration ─────┘
//! ```
//! Everything is read through [`host::Host`], so that a copy of another machine's files is looked at as
//! this one is. Nothing is changed.

mod args;
mod checkup;
pub mod conclusion;
mod cores;
pub mod device;
pub mod finding;
pub mod host;
mod link;
mod memory;
mod power;
mod shm;
mod system;
mod tcp;
mod text;
mod time;
pub mod wanted;

pub use args::{Args, EXAMPLES, look, measure, report, wanted};
pub use checkup::{Checkup, Section};
