//! The completion of a call: its reply, or an error.

use rpcrdma_proto::CallId;

use super::sink::Sink;
use crate::error::CallError;
use crate::message::incoming::Incoming;
use crate::message::rdma_target::RdmaTarget;
use crate::shard::peers::ConnectionId;

/// A call is over: its reply, or why there is none.
#[derive(Debug)]
pub struct Completion<'a> {
    peer: ConnectionId,
    cookie: u64,
    result: Result<Incoming<'a>, Failed>,
    /// The sinks of a call that failed.
    rdma_target: RdmaTarget<'a>,
}

/// A call that failed, and which.
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

    /// A call that failed, with the memory that it had exposed.
    pub(crate) fn failed(
        peer: ConnectionId,
        cookie: u64,
        (id, error): (CallId, CallError),
        rdma_target: RdmaTarget<'a>,
    ) -> Completion<'a> {
        Completion { peer, cookie, result: Err(Failed { error, id }), rdma_target }
    }

    /// Gives the sink of a want back, in the order in which they were stated; once. Nobody can write
    /// to it any more. What of it was taken as pieces of an item is not in it.
    ///
    /// `None` if the want had none, or if the device may still write to it: then it is lost.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        match &mut self.result {
            Ok(incoming) => incoming.take_sink(want),
            Err(_) => self.rdma_target.take_sink(want),
        }
    }

    /// Who was called.
    pub fn peer(&self) -> ConnectionId {
        self.peer
    }

    /// What the program gave the call along.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The xid of the call: a repetition that has it, too, is recognized by a server that looks for
    /// that ([`CallBuilder::xid`](crate::CallBuilder::xid)).
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

    /// The reply, for taking segments out of it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn result_mut(&mut self) -> Result<&mut Incoming<'a>, CallError> {
        self.result.as_mut().map_err(|failed| failed.error)
    }
}
