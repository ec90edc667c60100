//! The connection manager of a watched provider: it watches nothing itself.

use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::{
    CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Endpoint, Handle, Waker,
};

use super::WatchedQueues;

/// A connection manager for watched queues.
pub struct WatchedCm<C>(pub(super) C);

impl<C: ConnectionManager> ConnectionManager for WatchedCm<C> {
    type Queues = WatchedQueues<C::Queues>;
    type Request = C::Request;

    fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, SetupError> {
        self.0.listen(at)
    }

    fn unlisten(&mut self, at: SocketAddr) {
        self.0.unlisten(at);
    }

    fn connect(
        &mut self,
        to: SocketAddr,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.0.connect(to, on, param)
    }

    fn accept(
        &mut self,
        request: C::Request,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<Self>, SetupError> {
        self.0.accept(request, on, param)
    }

    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError> {
        self.0.cancel(id)
    }

    fn reject(&mut self, request: C::Request, private: &[u8]) {
        self.0.reject(request, private);
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>> {
        self.0.next(waker, timeout).map(CmEvent::passed_on)
    }
}
