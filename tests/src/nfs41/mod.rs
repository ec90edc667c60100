//! A small client of NFS version 4.1 with its back channel, and a small server: what meets the
//! ends of the kernel in both directions of one connection.
//!
//! ```text
//!   files ──▶ session ──▶ wire ──▶ Shard<P, Calls>     COMPOUNDs of the forward direction
//!     │         │           └ callbacks                CB_COMPOUNDs, answered on the same connection
//!     └─────────┴─▶ compound, results ──▶ words        coding of RFC 8881, in RFC 5662
//! ```

pub mod callbacks;
pub mod compound;
pub mod files;
pub mod numbers;
pub mod results;
pub mod server;
pub mod session;
pub mod suite;
pub mod wire;
pub mod words;
