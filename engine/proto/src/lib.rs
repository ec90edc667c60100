//! The protocol state machines of RPC-over-RDMA, versions one and two, sans-IO.
//!
//! ```text
//!                    ┌──────────────────── Connection ────────────────────┐
//!   transmission ──▶ │ group ─▶ resolve      credit      property   calls │ ──▶ Ingress
//!   CallDemand   ──▶ │ route ─▶ layout ─▶ plan                            │ ──▶ Plan ─▶ Transmission
//!   ReplyDemand  ──▶ └────────────────────────────────────────────────────┘
//! ```
//! Values go in, values come out: no queue, no clock, no buffer, no callback. A [`Connection`]
//! names buffers by number and bytes by position; the engine maps these to memory. The engine keeps
//! the state that connections share in a [`ShardLedger`] and lends it to each call.
//!
//! Methods of [`Connection`] come in four kinds, in this order in the files: getters; `on_*`, which
//! take events; commands (`open_call`, `begin_call`, `begin_reply`, ...); and output (`next_*`,
//! `encode_*`). None allocates: the only allocation of the crate is the [`calls::CallTable`], when
//! a [`ShardLedger`] is made.
//!
//! All lengths are bytes and fit a `u32`; counts of transmissions are at most 64.
//!
//! Documents are cited as `[V2]` (draft-cel-nfsv4-rpcrdma-version-two-00), `[XCHAR]`
//! (draft-dnoveck-nfsv4-rpcrdma-xcharext-03) and `[RTR]` (draft-dnoveck-nfsv4-rpcrdma-rtrext-02);
//! `docs/wire.md` decides what they leave open.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `command`, `control`, `parts`, `receive`, `short`: methods of [`Connection`]
//! - `answer`, `negotiate`, `property_update`: methods that several of those use
//! - `connection`: its state
//! - `xmt`: the form of a call by the extension
//! - `route`: the form of a message
//! - `chunks`: the explicit RDMA of the base protocol
//! - `incoming`: a transmission, as it is classified
//! - `ingress`: what it means to the engine
//! - `calls`
//! - `placement`: where the bytes of a message are in its transmissions
//! - `demand`, `opening`, `property`
//! - `change`, `gate`, `group`, `layout`, `report`, `segments`, `settings`
//! - `credit`, `error`, `item`, `version`

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod answer;
pub mod calls;
pub mod change;
pub mod chunks;
mod command;
pub mod connection;
pub mod control;
pub mod credit;
pub mod demand;
pub mod error;
mod gate;
pub mod group;
mod incoming;
pub mod ingress;
pub mod item;
pub mod layout;
mod negotiate;
pub mod opening;
pub mod parts;
pub mod placement;
pub mod property;
mod property_update;
mod receive;
pub mod report;
pub mod route;
mod segments;
pub mod settings;
pub mod short;
pub mod version;
mod xmt;

pub use answer::Finished;
pub use calls::{CallId, CallName, CallState, CallTable, NO_MARK};
pub use change::{Changes, PropertyOutcome};
pub use chunks::write::RemoteWrite;
pub use connection::{Connection, Counters, ShardLedger};
pub use credit::{GrantPool, ReplyReserve};
pub use demand::{
    CallDemand, CallForm, CallRoute, Explicit, Exposed, KeptOffer, Offer, Offered, ReplyDemand,
    SegmentLists, Want, WantKind,
};
pub use error::{Fatal, Misuse, OpenError, PropertyError, SendError, Violation};
pub use group::Part;
pub use ingress::{
    Aborted, Complete, Control, ControlSend, Ignored, Ingress, Message, Received, ReplyTo, Via,
};
pub use item::{BulkItem, ItemSet};
pub use opening::Opening;
pub use parts::ReplyPart;
pub use placement::find::{Piece, SegmentedItem, payload_pieces};
pub use placement::gather::Gather;
pub use placement::inline::{Direction, InlinePlan};
pub use placement::placed::{KeptPlaced, MessageBody, Place, Placed, PlacedItem, Segments};
pub use placement::plan::{GroupPlan, Plan, Transmission};
pub use property::PeerLimits;
pub use report::{Refusal, Report};
pub use settings::{Interop, ReplyChunkUse, Role, Settings};
pub use short::{
    CallWith, ChunkCall, ChunkCallPlan, ChunkReply, ContinuedPlan, GatherMeans, InvalidatingReply,
    ItemStretch, SegmentItem, Short, ShortKind, ShortPlan, ShortSend, SingleItem,
};
pub use version::{Start, Version, Versions};
