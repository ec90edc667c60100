//! Samples and statistics.

pub mod dice;
pub mod latency;
pub(crate) mod meter;
pub(crate) mod rounds;

pub use dice::Dice;
pub use latency::Latency;
pub use meter::{End, Meter, Quota, Round};
pub use rounds::{Contender, Spent};
pub(crate) use rounds::{median, median_of};
