//! Calls as futures, on any executor: a thread polls a session, and tasks await its completions. Or
//! on the thread that polls: [`LocalClient`].
//!
//! ```text
//!   task: AsyncClient::call(request) ─▶ bounded queue ─▶ the thread: Session::call
//!     ▲                                                              │
//!     └──────────────── answer: Response or CallFailed ◀── Session::poll
//! ```
//! What the session has no room for waits in the queue, and a task that finds the queue full waits
//! for a place. Dropping a future cancels its call.
//!
//! ```
//! use rpcrdma::future::{AsyncClient, AsyncOptions};
//! use rpcrdma::{
//!     Address, Answer, Call, Config, Engine, Fabric, Handler, OwnedCall, Reply, Session,
//! };
//!
//! struct Increment;
//!
//! impl Handler for Increment {
//!     fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
//!         let Ok(number) = call.reader().u32() else { return reply.refuse() };
//!         reply.payload().put_u32(number + 1);
//!         reply.send()
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut engine = Engine::new(Fabric::new(), Config::default())?;
//! engine.start(|_shard| Increment)?;
//! let address = engine.listen("127.0.0.1:0".parse::<Address>()?)?;
//! let session = Session::new(engine.client()?, [address], &Default::default())?;
//! let client = AsyncClient::spawn(session, &AsyncOptions::default())?;
//! let answer = futures::executor::block_on(async {
//!     let mut call = OwnedCall::new();
//!     call.put_u32(41);
//!     client.call(call).await
//! });
//! assert_eq!(answer?.reader().u32(), Ok(42));
//! # Ok(())
//! # }
//! ```

mod awaited;
mod buffers;
mod calls;
mod client;
mod error;
mod local;
mod places;
mod poller;
mod queue;
mod reports;
mod request;
mod response;
mod shared;
#[cfg(test)]
mod tests;

pub use client::{AsyncClient, AsyncOptions};
pub use error::{AsyncError, CallFailed};
pub use local::LocalClient;
pub use request::Request;
pub use response::{Item, Piece, Response};
