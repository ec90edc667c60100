//! A small client of NFS version 3, and what is asked of every server: compared with what the
//! server's own file system holds.
//!
//! ```text
//!   suite ──▶ Nfs ──▶ Caller ──▶ Client<P>      generic over the provider, in real time
//!     │        └ nfs3_types: arguments and results as types, by somebody else
//!     └ the directory that the server exports, seen without it
//! ```

pub mod client;
pub mod mount;
pub mod rpc;
pub mod suite;

pub use client::{ListFrom, Nfs, Read, at};
pub use rpc::{Caller, Failure, Give, Reply, Request, Take};
pub use suite::{Moved, Scene};
