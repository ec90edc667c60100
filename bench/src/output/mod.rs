//! The outputs of a report.

mod args;
mod csv;
pub mod environment;
pub mod figure;
mod files;
mod hdr;
pub mod html;
pub mod outcome;
mod perftest;
pub(crate) mod progress;
mod ratio;
pub(crate) mod record;
pub mod report;
pub mod session;
pub(crate) mod table;
pub(crate) mod value;

pub use args::{Format, OutputArgs};
pub use environment::{Environment, Lost};
pub use figure::{At, Better, Figure, Unit};
pub(crate) use figure::{PREFETCHED_FLOOR, SERIAL_FLOOR, point, title};
pub use files::{print, say, try_files, write};
pub(crate) use ratio::Ratio;
pub(crate) use record::{Quantity, RATE, Record, Records};
pub use report::{Axis, Curve, Distribution, Line, Listing, Report};
pub use session::{Modes, Session};
pub(crate) use table::{Column, Row, Table, contender_tables, thousands};
