//! RDMA devices as a provider of the engine: libibverbs and librdmacm, opened at run time.
//!
//! ```text
//!   Verbs ── open_queues ──▶ VerbsQueues ─┐                      one thread
//!     │                                   ├─ Port ── queue pairs   control plane, locked
//!     ├───── open_cm ──────▶ VerbsCm ─────┘                      another thread
//!     └───── registrar ────▶ memory regions
//! ```
//!
//! Neither the libraries nor their headers are needed to build. The program also runs without them:
//! [`Verbs::open`] then reports which library is missing.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `fake`: libraries and a device for tests
//! - `provider`
//! - `cm`: connections are established
//! - `queues`
//! - `events`: of the device, for all its ports
//! - `port`
//! - `device`
//! - `cm_id`, `registrar`, `wc`
//! - `device_event`, `sys`
//! - `counters`, `error`, `fd`, `load`, `names`, `options`

mod cm;
mod cm_id;
mod counters;
mod device;
mod device_event;
mod error;
mod events;
#[cfg(any(test, feature = "fake"))]
#[doc(hidden)]
pub mod fake;
mod fd;
mod load;
mod names;
mod options;
mod port;
mod provider;
mod queues;
mod registrar;
#[doc(hidden)]
pub mod sys;
#[cfg(test)]
mod tests;
mod wc;

pub use cm::{VerbsCm, VerbsRequest};
pub use counters::DeviceEvents;
pub use device::find::{ActivePort, DeviceName, devices, missing_libraries};
pub use device::way::leads_to;
pub use options::VerbsOptions;
pub use port::{VerbsEndpoint, VerbsHandle};
pub use provider::Verbs;
pub use queues::{VerbsQp, VerbsQueues};
