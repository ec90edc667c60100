//! ONC RPC over RDMA: polling shards, server and client, over a software fabric or real devices.
//!
//! ```text
//!        program                    shard (one thread, one core)                      device
//!   Handler::on_call ◀── Call ◀── rx ◀── proto ◀── xdr ◀── Io::take_recv ◀── CQ ◀── SRQ
//!   Reply::send ──────▶ outbox ──▶ proto plans ──▶ xdr ──▶ Io::flush ──────▶ SQ ──▶ wire
//! ```
//!
//! Start with [`engine::Engine`]; serve with a [`server::handler::Handler`], call with a
//! [`client::Client`].

mod budget;
pub mod client;
pub mod clock;
pub mod control;
pub mod engine;
pub mod error;
pub mod failure;
pub mod incoming;
mod io;
mod obtained;
pub mod onc;
pub mod payload;
mod rdma_target;
pub mod server;
pub mod shard;
pub mod stats;
pub mod ulb;
mod versions;

pub use rpcrdma_fabric as fabric;
pub use rpcrdma_provider as provider;
#[cfg(feature = "verbs")]
pub use rpcrdma_verbs as verbs;

pub use client::Client;
pub use client::call::{CallBuilder, CallHandle, Want};
pub use client::completion::Completion;
pub use client::sink::{SINK_PIECES_MAX, Sink};
pub use client::unsent::Unsent;
pub use clock::Clock;
pub use engine::Engine;
pub use error::{CallError, CallRefused, CloseReason, Execution, SetupError};
pub use fabric::Fabric;
pub use failure::{EngineThread, Panicked};
pub use incoming::{EndOfMessage, Incoming, OpaqueError, PayloadReader, PlacedItem, TakeError};
pub use obtained::{Obtained, ObtainedMemory};
pub use payload::Payload;
pub use provider::{ConnectError, ConnectId, CqError, Provider, WcStatus};
pub use rpcrdma_config::{Config, ConfigError, Raw};
pub use rpcrdma_mempool::{Loan, RegisteredBytes, RegisteredSlice};
pub use rpcrdma_proto::{
    Changes, Fatal, Misuse, PeerLimits, PropertyError, PropertyOutcome, Refusal, SendError,
    Version, Violation,
};
pub use rpcrdma_xdr::{
    BackwardSupport, DecodeError, Mismatch, OutOfRange, PropId, PropIds, Property, ReptInfo,
};
pub use server::call::Call;
pub use server::handler::{Admission, ConnectRequest, Handler, RefuseCalls};
pub use server::reply::{Answer, Reply};
pub use server::ticket::{Finished, Ticket};
pub use shard::handle::{ShardHandle, ShardState};
pub use shard::message::Bulk;
pub use shard::peers::ConnectionId;
pub use shard::properties::PropertiesRefused;
pub use shard::run::Shard;
pub use shard::turn::Turn;
pub use stats::Snapshot;

/// The page docs/embedding.md: its code is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
pub struct EmbeddingPage;

/// The README, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
