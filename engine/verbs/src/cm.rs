//! The connection manager: librdmacm's event channel, and the connections that it establishes.
#![expect(unsafe_code, reason = "librdmacm is called")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::{CmEvent, ConnParam, ConnectId, ConnectionManager, Waker};

use crate::device::Device;
use crate::port::{VerbsEndpoint, VerbsHandle};
use crate::queues::VerbsQueues;
use crate::sys::cm as sys;
use crate::sys::verbs;

/// A connection manager over librdmacm.
pub struct VerbsCm {
    _device: Arc<Device>,
}

/// A connection request that was neither accepted nor rejected. Dropping it rejects it.
pub struct VerbsRequest {
    _id: Id,
}

impl VerbsCm {
    pub(crate) fn new(device: Arc<Device>) -> Result<VerbsCm, SetupError> {
        Ok(VerbsCm { _device: device })
    }
}

impl ConnectionManager for VerbsCm {
    type Queues = VerbsQueues;
    type Request = VerbsRequest;

    fn listen(&mut self, _at: SocketAddr) -> Result<SocketAddr, SetupError> {
        Err(SetupError::Stopped)
    }

    fn connect(
        &mut self,
        _to: SocketAddr,
        _on: &VerbsHandle,
        _param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        Err(SetupError::Stopped)
    }

    fn accept(
        &mut self,
        _request: VerbsRequest,
        _on: &VerbsHandle,
        _param: &ConnParam<'_>,
    ) -> Result<VerbsEndpoint, SetupError> {
        Err(SetupError::Stopped)
    }

    fn cancel(&mut self, _id: ConnectId) {}

    fn reject(&mut self, _request: VerbsRequest, _private: &[u8]) {}

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<VerbsCm>> {
        let _ = Waker::sleep([waker], timeout);
        None
    }
}

/// An end of a connection in librdmacm. Destroyed when dropped, which waits until the events of it
/// that were taken from the channel have been acknowledged. Its queue pair is not librdmacm's.
#[derive(Debug)]
pub(crate) struct Id {
    cm: &'static sys::Cm,
    id: *mut sys::rdma_cm_id,
}

// SAFETY: librdmacm may be called by any thread, and for one id this crate calls it by one at a time:
// an `Id` is in one hand, and that of a queue pair is behind the lock of its port.
unsafe impl Send for Id {}

impl Id {
    /// For calls of librdmacm, under the lock of the port if it has a queue pair.
    pub fn as_ptr(&self) -> *mut sys::rdma_cm_id {
        self.id
    }

    /// Takes leave of the peer.
    pub fn disconnect(&self) {
        // One that is not connected has nobody to take leave of.
        // SAFETY: the id is alive.
        let _ = unsafe { (self.cm.rdma_disconnect)(self.id) };
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the id is alive, it is in nobody's hand but this one, and has no queue pair.
        let _ = unsafe { (self.cm.rdma_destroy_id)(self.id) };
    }
}

/// The device that has this address, as librdmacm finds it, and the port.
pub(crate) fn device_of(
    _cm: &'static sys::Cm,
    _address: IpAddr,
) -> Result<(*mut verbs::ibv_context, u8), SetupError> {
    Err(SetupError::Stopped)
}
