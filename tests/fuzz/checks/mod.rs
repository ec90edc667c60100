//! The checks of the fuzz targets: one function for each, which checks one input and panics if a
//! property does not hold.

pub mod choices;
pub mod connection;
pub mod content;
pub mod ddp;
pub mod foreign;
pub mod group;
pub mod header;
pub mod link;
pub mod memory;
pub mod mpa;
pub mod placement;
pub mod rdmap;
pub mod shard;
pub mod side;
