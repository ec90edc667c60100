//! The engine for C: librpcrdma and rpcrdma.h.
//!
//! ```text
//!   C program ─▶ rpcrdma_*: arguments checked, panics caught ─▶ engine ─▶ callbacks of the program
//! ```
//! The header is generated from these sources, and its names are theirs. Its first page states what
//! every function requires of pointers and threads.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `client`, `session`, `shard`
//! - `engine`, `want`
//! - `call`, `handler`, `polling`, `turn`
//! - `inspect`, `polled`
//! - `handle`, `reply`
//! - `done`, `reader`, `ticket`
//! - `message`, `payload`
//! - `config`, `events`, `loan`
//! - `arguments`, `call_id`
//! - `failure`
//! - `texts`
//! - `limits`, `provider`, `stats`, `status`
#![expect(unsafe_code, reason = "pointers of C programs become references here")]
#![expect(non_camel_case_types, reason = "the names are those of the header")]
#![expect(clippy::missing_safety_doc, reason = "the header's first page is about all functions")]

// In the order of the header.
mod status;

mod texts;

mod failure;

mod config;

mod engine;

mod events;

mod handler;

mod limits;

mod handle;

mod stats;

mod inspect;

mod polled;

mod polling;

mod shard;

mod client;

mod session;

mod turn;

mod message;

mod reader;

mod reply;

mod ticket;

mod call;

mod call_id;

mod want;

mod payload;

mod loan;

// What no function of the header is in.
mod arguments;
mod done;
mod provider;

pub use call::*;
pub use call_id::*;
pub use client::*;
pub use config::*;
pub use engine::*;
pub use events::*;
pub use failure::*;
pub use handle::*;
pub use handler::*;
pub use inspect::*;
pub use limits::*;
pub use loan::*;
pub use message::*;
pub use payload::*;
pub use polled::*;
pub use polling::*;
pub use reader::*;
pub use reply::*;
pub use session::*;
pub use shard::*;
pub use stats::*;
pub use status::*;
pub use texts::*;
pub use ticket::*;
pub use turn::*;
pub use want::*;
