//! The end of a call.

use crate::error::CallError;
use crate::incoming::Incoming;
use crate::shard::peers::PeerId;

/// A call is over: its reply, or why there is none.
#[derive(Debug)]
pub struct Completion<'a> {
    peer: PeerId,
    cookie: u64,
    result: Result<Incoming<'a>, CallError>,
}

impl<'a> Completion<'a> {
    #[inline]
    pub(crate) fn new(
        peer: PeerId,
        cookie: u64,
        result: Result<Incoming<'a>, CallError>,
    ) -> Completion<'a> {
        Completion { peer, cookie, result }
    }

    /// Who was called.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// What the program gave the call along.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The reply.
    ///
    /// # Errors
    /// Why there is none.
    pub fn result(&self) -> Result<&Incoming<'a>, CallError> {
        self.result.as_ref().map_err(|&error| error)
    }

    /// The reply, for taking segments out of it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn result_mut(&mut self) -> Result<&mut Incoming<'a>, CallError> {
        self.result.as_mut().map_err(|error| *error)
    }
}
