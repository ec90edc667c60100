//! The seam: what the engine requires of an RDMA device, in the terms of ibverbs.
//!
//! ```text
//!   Engine ──▶ Provider      one per device; control plane: may allocate, may be slow
//!                │ open_queues ──▶ Queues             one per shard; data plane: single-threaded
//!                └ open_cm ──────▶ ConnectionManager  listen, connect, accept; makes Endpoints
//!                                     └── Endpoint ──(mailbox)──▶ Queues::attach ──▶ Qp
//! ```
//!
//! The program chooses the type of the provider once; the fast path has no `dyn`.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `interposed`
//! - `device`
//! - `cm`
//! - `queues`
//! - `waker`
//! - `error`
//! - `address`, `fd`, `fork`, `rejection`, `work`, `wrap`

mod address;
mod cm;
mod device;
mod error;
mod fd;
mod fork;
pub mod interposed;
mod queues;
mod rejection;
mod waker;
mod work;
mod wrap;

pub use self::address::{Address, AddressError, Credentials, Origin, ShmName};
pub use self::cm::{
    CmEvent, ConnParam, ConnectId, ConnectionManager, Endpoint, Handle, PrivateBytes,
    RNR_RETRY_FOREVER,
};
pub use self::device::{DeviceCaps, Provider};
pub use self::error::{ConnectError, EngineThread, HostRefusal, Panicked, SetupError};
pub use self::fd::readable;
pub use self::fork::{CloseOnFork, UnshareOnFork};
pub use self::queues::{Armed, Attached, Bells, QueueAttr, QueueEvent, Queues, ring_of};
pub use self::rejection::{Rejection, RejectionBytes};
pub use self::waker::Waker;
pub use self::work::{
    Bind, CqError, PostError, RecvWr, Remote, Requests, SendFlags, SendOp, SendWr, Taken, WC_BATCH,
    WcBatch, WcOpcode, WcStatus, Window, WindowId, WorkCompletion, WrId,
};
pub use self::wrap::shortly_before_end;
