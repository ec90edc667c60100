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
pub mod report;
pub mod session;
pub(crate) mod table;
mod value;

pub use args::{Format, OutputArgs};
pub use environment::{Environment, Lost};
pub use figure::{At, Better, Figure, Unit};
pub use files::{print, say, try_files, write};
pub use report::{Axis, Curve, Distribution, Line, Listing, Report};
pub use session::Session;
pub(crate) use table::{Column, Row, Table, thousands};
