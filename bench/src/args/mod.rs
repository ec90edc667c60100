//! Options shared by modes, and their parsers.

mod groups;
pub mod parse;

pub(crate) use groups::NOT_SHM;
pub use groups::{CallArgs, CoreArgs, DeviceArgs, EngineArgs, LengthArgs, SeedArgs, WindowArgs};
