//! A small client of NFS version 3, and checks of a server, compared with the server's own file
//! system.
//!
//! ```text
//!   suite ──▶ Nfs ──▶ Caller ──▶ Client<P>      generic over the provider, in real time
//!     │        └ nfs3_types: arguments and results as types, from another project
//!     └ the exported directory, accessed directly
//! ```

pub mod client;
pub mod defects;
pub mod foreign;
pub mod mount;
pub mod rpc;
mod servers;
pub mod suite;

pub use client::{ListFrom, Nfs, Read, at};
pub use defects::Defect;
pub use rpc::{Caller, Failure, Give, Reply, Request, Take};
pub use suite::{Moved, Scene};
