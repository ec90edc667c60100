//! Samples and statistics.

pub mod dice;
pub mod latency;
pub(crate) mod meter;
pub(crate) mod rounds;

pub use dice::Dice;
pub use latency::{Latency, Summary};
pub use meter::{End, Meter, Quota, Round};
pub use rounds::{Contender, Ratio, Series, Spent};
pub(crate) use rounds::{in_turns, median, median_of};
