//! Hooks for the calls of a connection manager.

use std::time::Duration;

use crate::{
    Address, CmEvent, ConnParam, ConnectError, ConnectId, ConnectionManager, Endpoint, Handle,
    SetupError, Waker,
};

/// Hooks for the calls of a [`ConnectionManager`].
pub trait CmHooks<C: ConnectionManager>: Send {
    /// As [`ConnectionManager::listen`].
    fn listen(&mut self, inner: &mut C, at: Address) -> Result<Address, SetupError> {
        inner.listen(at)
    }
    /// As [`ConnectionManager::unlisten`].
    fn unlisten(&mut self, inner: &mut C, at: Address) {
        inner.unlisten(at);
    }
    /// As [`ConnectionManager::connect`].
    fn connect(
        &mut self,
        inner: &mut C,
        to: Address,
        on: &Handle<C>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        inner.connect(to, on, param)
    }
    /// As [`ConnectionManager::accept`].
    fn accept(
        &mut self,
        inner: &mut C,
        request: C::Request,
        on: &Handle<C>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<C>, SetupError> {
        inner.accept(request, on, param)
    }
    /// As [`ConnectionManager::cancel`].
    fn cancel(&mut self, inner: &mut C, id: ConnectId) -> Option<ConnectError> {
        inner.cancel(id)
    }
    /// As [`ConnectionManager::reject`].
    fn reject(&mut self, inner: &mut C, request: C::Request, private: &[u8]) {
        inner.reject(request, private);
    }
    /// As [`ConnectionManager::next`].
    fn next(&mut self, inner: &mut C, waker: &Waker, timeout: Duration) -> Option<CmEvent<C>> {
        inner.next(waker, timeout)
    }
}

impl<C: ConnectionManager> CmHooks<C> for () {}
