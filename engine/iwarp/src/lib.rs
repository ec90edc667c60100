//! iWARP in user space: an RDMA provider over plain TCP.
//!
//! ```text
//!   process A                                                        process B, or a device
//!   TcpQueues ── publish ──▶ DDP segments ──▶ FPDUs ──▶ one sendmsg ──▶ TCP ──▶ RDMAP
//!             ◀── front ──── DDP segments ◀── FPDUs ◀── one recv ◀──── TCP ◀── RDMAP
//!   TcpCm ◀────────────────── MPA request, MPA reply ────────────────────────▶
//! ```
//!
//! The wire is that of the standards: MPA (RFC 5044) with its enhanced start (RFC 6581), DDP (RFC
//! 5041) and RDMAP (RFC 5040). The peer is this provider, the kernel's siw, or an iWARP NIC.
//!
//! The rules are those of `rpcrdma-transport`, as on the software fabric. A connection is a carrier:
//! a request is done when TCP has taken its bytes, and a message is given out only when there is a
//! Receive for it. While one waits, the stream is not read, and TCP's window stops the peer.
//!
//! **The peer is not trusted.** Every length, key, offset and number is checked before memory is
//! touched. What breaks the rules is answered by a Terminate message and ends its own connection.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `provider`
//! - `cm`
//! - `shared`
//! - `queues`
//! - `end`
//! - `rx`, `tx`
//! - `link`
//! - `port`, `stack`
//! - `output`, `ready`
//! - `socket`
//! - `network`, `reads`, `system`, `terms`
//! - `calls`, `options`, `wire`

mod calls;
mod cm;
mod end;
mod link;
#[cfg(any(test, feature = "network"))]
pub mod network;
mod options;
mod output;
mod port;
mod provider;
mod queues;
mod reads;
mod ready;
mod rx;
mod shared;
mod socket;
mod stack;
mod system;
pub mod terms;
#[cfg(test)]
mod tests;
mod tx;
pub mod wire;

pub use self::cm::{TcpCm, TcpRequest, TcpSockets};
pub use self::options::TcpOptions;
pub use self::provider::Tcp;
pub use self::queues::{TcpEndpoint, TcpHandle, TcpQueues};
pub use rpcrdma_transport::clock::DeviceClock;
pub use rpcrdma_transport::queues::SoftQp as TcpQp;
