//! The scenarios, by subject: each is a function of the means to open the device.

pub mod connections;
pub mod credits;
pub mod ending;
pub mod explicit;
pub mod given_up;
pub mod inline;
pub mod kept;
pub mod late;
pub mod loans;
pub mod owned;
pub mod placed;
pub mod properties;
pub mod reactors;
pub mod refused;
pub mod scarce;
pub mod sinks;
pub mod threads;
