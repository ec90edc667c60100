//! Options shared by modes, and their parsers.

mod groups;
pub mod parse;
pub mod values;

pub(crate) use groups::NOT_SHM;
pub use groups::{
    CallArgs, CoreArgs, DeviceArgs, EngineArgs, Format, LengthArgs, OutputArgs, SeedArgs,
    WindowArgs,
};
pub use values::{Idle, Op, Over, Placement, Touch};
