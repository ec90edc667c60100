//! Endpoints: what the connection manager makes of a connection that both sides want.
#![expect(unsafe_code, reason = "the words of the set-up lie in mapped memory")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rpcrdma_transport::carrier::EndId;
use rpcrdma_transport::conn::Conn;
use rpcrdma_transport::endpoint::{Peer, QpNumber};

use crate::channel::Channel;
use crate::layout::Layout;
use crate::link::{Link, Terms};
use crate::port::Port;
use crate::queues::ShmEndpoint;
use crate::shared::Shared;
use crate::socket::Socket;

/// A connection that both sides want.
pub(crate) struct Agreed {
    /// This side of it: 0 if it has connected.
    pub side: usize,
    pub socket: Socket,
    pub layout: Arc<Layout>,
    pub terms: Terms,
    pub peer: Peer,
}

impl Agreed {
    /// Makes this side's link, and the queue pair of `number` on it.
    pub(crate) fn endpoint(
        self,
        number: QpNumber<Port>,
        shared: &Shared,
    ) -> io::Result<ShmEndpoint> {
        let Agreed { side, socket, layout, terms, peer } = self;
        let words = [0, 1].map(|side| NonNull::from(&layout.side(side).progress));
        // SAFETY: the words lie in memory that the layout keeps mapped.
        let conn = unsafe { Conn::over(layout.clone(), words) };
        let end = EndId { link: shared.device().number(), side };
        let port = Arc::clone(number.port());
        let link = Link::new(end, layout, socket, terms, port, shared.watch())?;
        Ok(ShmEndpoint::new(number, Channel(link), conn, peer))
    }
}
