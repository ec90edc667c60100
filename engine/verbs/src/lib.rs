//! RDMA devices as a provider of the engine: libibverbs and librdmacm, opened at run time.
//!
//! ```text
//!   Verbs ── open_queues ──▶ VerbsQueues ─┐                      one thread
//!     │                                   ├─ Port ── queue pairs   control plane, locked
//!     ├───── open_cm ──────▶ VerbsCm ─────┘                      another thread
//!     └───── registrar ────▶ memory regions
//! ```
//!
//! Neither the libraries nor their headers are needed to build, and a program that was built so runs
//! without them: [`Verbs::open`] then says what is missing.

mod cm;
mod device;
mod error;
mod events;
mod fd;
mod load;
mod options;
mod port;
mod queues;
mod registrar;
#[doc(hidden)]
pub mod sys;
#[cfg(test)]
mod tests;
mod wc;

pub use cm::{VerbsCm, VerbsRequest};
pub use device::{ActivePort, DeviceName, Verbs, devices, missing_libraries};
pub use events::DeviceEvents;
pub use options::VerbsOptions;
pub use port::{VerbsEndpoint, VerbsHandle};
pub use queues::{VerbsQp, VerbsQueues};
