//! Placement: the positions of a message's bytes in its transmissions.

pub(crate) mod choice;
pub mod direct;
pub(crate) mod exrw;
pub mod find;
pub mod gather;
pub mod inline;
pub(crate) mod lists;
pub mod placed;
pub mod plan;
pub mod resolve;
pub(crate) mod spread;
