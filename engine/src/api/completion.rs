//! The completion of a call: its reply, or an error.

use rpcrdma_proto::CallId;

use crate::connection_id::ConnectionId;
use crate::error::CallError;
use crate::message::incoming::Incoming;
use crate::message::rdma_target::RdmaTarget;
use crate::message::sink::Sink;

/// A call is over: its reply, or why there is none.
///
/// ```
/// # use rpcrdma::*;
/// # use std::time::Duration;
/// # struct Increment;
/// # impl Handler for Increment {
/// #     fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
/// #         let Ok(number) = call.reader().u32() else { return reply.refuse() };
/// #         reply.payload().put_u32(number + 1);
/// #         reply.send()
/// #     }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut engine = Engine::new(Fabric::new(), Config::default())?;
/// # engine.start(|_shard| Increment)?;
/// # let address = engine.listen("127.0.0.1:0".parse::<Address>()?)?;
/// # let mut client = engine.client()?;
/// # let peer = client.connect(address)?;
/// # let mut call = client.call(peer, 7)?;
/// # call.payload().put_u32(41);
/// # call.submit()?;
/// let mut sum = None;
/// while sum.is_none() {
///     client.poll_for(Duration::from_secs(1), |done| {
///         sum = Some(match done.result() {
///             Ok(reply) => reply.reader().u32().map_err(|_| "a short reply"),
///             Err(_why) => Err("no reply"),
///         });
///     });
/// }
/// assert_eq!(sum, Some(Ok(42)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Completion<'a> {
    peer: ConnectionId,
    cookie: u64,
    result: Result<Incoming<'a>, Failed>,
    /// The result buffers of a failed call.
    rdma_target: RdmaTarget<'a>,
}

/// A failed call, and its identity.
#[derive(Debug, Clone, Copy)]
struct Failed {
    error: CallError,
    id: CallId,
}

impl<'a> Completion<'a> {
    #[inline]
    pub(crate) fn new(peer: ConnectionId, cookie: u64, reply: Incoming<'a>) -> Completion<'a> {
        Completion { peer, cookie, result: Ok(reply), rdma_target: RdmaTarget::nothing() }
    }

    /// A failed call, with the memory that it had exposed.
    pub(crate) fn failed(
        peer: ConnectionId,
        cookie: u64,
        id: CallId,
        error: CallError,
        rdma_target: RdmaTarget<'a>,
    ) -> Completion<'a> {
        Completion { peer, cookie, result: Err(Failed { error, id }), rdma_target }
    }

    /// Returns the result buffer of a want, by the order of requests; once. No peer can write to it
    /// any more. Pieces that were taken out of an item are not in it.
    ///
    /// `None` if the want had none, or if the device may still write to it: then it is lost.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        match &mut self.result {
            Ok(incoming) => incoming.take_sink(want),
            Err(_) => self.rdma_target.take_sink(want),
        }
    }

    /// The peer that was called.
    pub fn peer(&self) -> ConnectionId {
        self.peer
    }

    /// The value that the program attached to the call.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The xid of the call. A server that detects duplicates recognizes a repetition with the same
    /// xid ([`CallBuilder::xid`](crate::CallBuilder::xid)).
    pub fn xid(&self) -> u32 {
        match &self.result {
            Ok(reply) => reply.xid(),
            Err(failed) => failed.id.xid(),
        }
    }

    /// The reply.
    ///
    /// # Errors
    /// Why there is none.
    pub fn result(&self) -> Result<&Incoming<'a>, CallError> {
        self.result.as_ref().map_err(|failed| failed.error)
    }

    /// The reply, mutable, to take segments out of it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn result_mut(&mut self) -> Result<&mut Incoming<'a>, CallError> {
        self.result.as_mut().map_err(|failed| failed.error)
    }
}
