//! What a program depends on: the engine, its providers, and by feature the futures.
//!
#![doc = include_str!("../README.md")]
//!
//! # Parts
//!
//! ```text
//!        program                    shard (one thread, one core)                      device
//!   Handler::on_call ◀── Call ◀─ receive ◀─ proto ◀─ xdr ◀── Io::take_recv ◀── CQ ◀── SRQ
//!   Reply::send ──────▶ outbox ──▶ proto plans ──▶ xdr ──▶ Io::flush ──────▶ SQ ──▶ wire
//! ```
//!
//! Start with [`Engine`]; serve with a [`Handler`], call with a [`Client`].
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `instances`: the engine of each provider, compiled here for other crates
//! - `future`: calls as futures
//! - `session`: calls that outlive their connections
//! - `engine`: what a program owns, an engine with its clients and shards
//! - `metrics`: what Prometheus reads
//! - `shard`: the turn, which works on the state and calls the handler
//! - `control`: the control plane, which shards attach to
//! - `onc`, `ulb`: the headers of ONC RPC, and the bindings of programs
//! - `api`: what a handler sees, calls, replies, completions and the turn of its shard
//! - `budget`: the sizes of the state, from the configuration and the device
//! - `state`: what a turn, and a call or reply under construction, work on
//! - `registry`: the shards of an engine
//! - `handle`: what other threads have of a shard
//! - `message`: messages received, and values for those to be sent
//! - `failure`: panics
//! - `stats`, `trace`: counters and events, where all others report
//! - `mailbox`: messages between threads
//! - `clock`, `connection_id`, `error`, `providers`, `quotas`, `resources`, `scatter`:
//!   values

pub mod api;
mod budget;
pub mod clock;
mod connection_id;
pub mod control;
pub mod engine;
pub mod error;
pub mod failure;
#[cfg(feature = "async")]
pub mod future;
pub mod handle;
// Tests of this crate compile what they use.
#[cfg(all(debug_assertions, not(test)))]
mod instances;
mod mailbox;
pub mod message;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod onc;
mod providers;
mod quotas;
mod registry;
mod resources;
mod scatter;
mod session;
#[doc(hidden)]
pub mod shard;
mod state;
pub mod stats;
mod trace;
pub mod ulb;

pub use hdrhistogram;
pub use rpcrdma_fabric as fabric;
#[cfg(feature = "tcp")]
pub use rpcrdma_iwarp as tcp;
pub use rpcrdma_provider as provider;
#[cfg(feature = "shm")]
pub use rpcrdma_shm as shm;
#[cfg(feature = "storage")]
pub use rpcrdma_storage as storage;
#[cfg(feature = "verbs")]
pub use rpcrdma_verbs as verbs;

pub use api::builder::{CallBuilder, CallHandle};
pub use api::call::Call;
pub use api::completion::Completion;
pub use api::handler::{Admission, ConnectRequest, Handler, RefuseCalls};
pub use api::payload::Payload;
pub use api::properties::PropertiesRefused;
pub use api::reply::{Answer, Reply};
pub use api::turn::Turn;
pub use api::unsent::Unsent;
pub use budget::ShardNeeds;
pub use clock::Clock;
pub use connection_id::ConnectionId;
pub use engine::Engine;
pub use engine::client::Client;
pub use engine::shard::Shard;
pub use error::{CallError, CallRefused, CloseReason, Execution, SetupError};
pub use fabric::Fabric;
pub use failure::{EngineThread, Panicked};
pub use handle::ticket::{Finished, Ticket};
pub use handle::{ShardHandle, ShardState};
pub use message::bulk::Bulk;
pub use message::incoming::{Incoming, PlacedItem, TakeError};
pub use message::owned_call::OwnedCall;
pub use message::payload_reader::{EndOfMessage, PayloadReader, ReadError};
pub use message::sink::{SINK_PIECES_MAX, Sink};
pub use message::wanted::Want;
pub use provider::{
    Address, AddressError, Armed, ConnectError, ConnectId, CqError, Credentials, HostRefusal,
    Origin, Provider, Rejection, ShmName, WcStatus,
};
#[doc(hidden)]
pub use providers::built;
pub use providers::provider_for;
pub use resources::{ShardMemory, ShardResources};
pub use rpcrdma_config::{Config, ConfigError, ProviderKind, Raw};
pub use rpcrdma_mempool::{Loan, RegisteredBytes, RegisteredSlice, file_size, process_limit};
pub use rpcrdma_proto::{
    Changes, Fatal, Misuse, PeerLimits, PropertyError, PropertyOutcome, Refusal, SendError,
    Version, Violation,
};
pub use rpcrdma_xdr::{
    BackwardSupport, DecodeError, Mismatch, OutOfRange, PropId, PropIds, Property, ReptInfo,
};
pub use session::{
    Outage, Resend, Session, SessionCall, SessionCallId, SessionCompletion, SessionError,
    SessionEvent, SessionOptions, SessionRefused, SessionUnsent,
};
#[cfg(feature = "shm")]
pub use shm::Shm;
pub use stats::Snapshot;
pub use stats::inspection::InspectError;
pub use stats::latency::{LatencyReport, ProcedureLatency};
pub use stats::report::{Credits, Gauges, PeerReport, PeerState, ShardReport, Usage};
pub use stats::tally::Counts;
#[cfg(feature = "tcp")]
pub use tcp::Tcp;

/// The README of the project: its code is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The page docs/embedding.md: its code, also that without futures, is compiled and run with the
/// tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
pub struct EmbeddingPage;

/// The page docs/storage.md: its store is compiled and run with the tests.
#[cfg(all(doctest, feature = "storage"))]
#[doc = include_str!("../../docs/storage.md")]
pub struct StoragePage;
