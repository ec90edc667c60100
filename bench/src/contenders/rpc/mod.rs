//! The RPC as a contender.

mod answering;
mod caller;
mod churn;
mod contender;
mod count;
mod ends;
mod idle;
mod memory;
mod message;
mod server;
mod several;
mod tasks;
mod ways;

pub use answering::Answering;
pub use churn::{Churn, ChurnRound, Churned, PENDING_MAX};
pub use contender::Rpc;
pub use count::{Counted, PerCall, count};
pub(crate) use ends::connect;
pub use idle::{PausedRound, Pauses};
pub use memory::{IDLE, idle_memory};
pub use several::together;
pub use tasks::{Polled, Tasks};
