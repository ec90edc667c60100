//! A received call, for the handler.

use core::ops::{Deref, DerefMut};

use crate::connection_id::ConnectionId;
use crate::message::incoming::Incoming;
use crate::provider::Address;

/// A call, read in place. The message itself is an [`Incoming`], to which this derefs.
///
/// ```
/// use rpcrdma::{Answer, Call, Reply};
///
/// fn on_call<'a>(call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
///     let Ok(count) = call.reader().u32() else { return reply.refuse() };
///     // Items that were placed arrive beside the payload; nothing is copied.
///     let bytes: usize = call.placed().map(|item| item.len() as usize).sum();
///     reply.payload().put_u32(count);
///     reply.payload().put_u64(bytes as u64);
///     reply.send()
/// }
/// ```
#[derive(Debug)]
pub struct Call<'a> {
    peer: ConnectionId,
    xid: u32,
    address: &'a Address,
    incoming: Incoming<'a>,
}

impl<'a> Call<'a> {
    #[inline]
    pub(crate) fn new(
        peer: ConnectionId,
        address: &'a Address,
        xid: u32,
        incoming: Incoming<'a>,
    ) -> Call<'a> {
        Call { peer, xid, address, incoming }
    }

    /// The calling peer.
    #[inline]
    pub fn peer(&self) -> ConnectionId {
        self.peer
    }

    /// The address of the caller, from the connection manager. An RDMA client does not choose its
    /// port, so it reconnects from a different one (RFC 8267).
    pub fn address(&self) -> Address {
        *self.address
    }

    /// The transaction id, unique among the open calls of this peer.
    #[inline]
    pub fn xid(&self) -> u32 {
        self.xid
    }
}

impl<'a> Deref for Call<'a> {
    type Target = Incoming<'a>;

    #[inline]
    fn deref(&self) -> &Incoming<'a> {
        &self.incoming
    }
}

impl<'a> DerefMut for Call<'a> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Incoming<'a> {
        &mut self.incoming
    }
}
