//! The connection manager: listen, connect, accept.

use std::time::Duration;

use arrayvec::ArrayVec;

use crate::{Address, ConnectError, Queues, SetupError, Waker};

/// Establishes connections. Control plane.
pub trait ConnectionManager: Send {
    /// The queues that its queue pairs are placed on.
    type Queues: Queues;
    /// A connection request that waits to be accepted or rejected.
    type Request: Send;

    /// Starts to listen; port 0 selects a free port. Returns the actual address. Refuses an address
    /// that the provider cannot use, and states which it takes.
    fn listen(&mut self, at: Address) -> Result<Address, SetupError>;
    /// Stops listening on an address that [`ConnectionManager::listen`] returned. Requests that
    /// have already arrived may still be reported; later ones are refused.
    fn unlisten(&mut self, at: Address);
    /// Starts to connect. The outcome comes from [`ConnectionManager::next`]. Refuses an address that
    /// the provider cannot use with [`ConnectError::WrongAddress`].
    fn connect(
        &mut self,
        to: Address,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError>;
    /// Accepts a request and creates its queue pair. The peer may send from now on.
    fn accept(
        &mut self,
        request: Self::Request,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<Self>, SetupError>;
    /// Cancels an attempt. Its outcome may still be reported, and the caller then ignores it.
    /// Returns why the attempt has not succeeded yet, if that is known.
    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError>;
    /// Rejects a request. The other side reads the reason in `private`
    /// ([`Rejection::decode`](crate::Rejection::decode)).
    fn reject(&mut self, request: Self::Request, private: &[u8]);
    /// The next event, waiting for it at most `timeout`. Returns early when another thread rings
    /// `waker`.
    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>>;
}

/// The handle type of a connection manager's queues.
pub type Handle<C> = <<C as ConnectionManager>::Queues as Queues>::Handle;
/// The endpoint type of a connection manager's queues.
pub type Endpoint<C> = <<C as ConnectionManager>::Queues as Queues>::Endpoint;

/// What a connection manager reports.
pub enum CmEvent<C: ConnectionManager + ?Sized> {
    /// A peer requests a connection.
    Request {
        /// To pass to [`ConnectionManager::accept`] or [`ConnectionManager::reject`].
        request: C::Request,
        /// The peer's address.
        from: Address,
        /// The connection private data of the peer (RFC 8797); trailing bytes are padding.
        private: PrivateBytes,
    },
    /// A connection that this side requested is established.
    Connected {
        /// As [`ConnectionManager::connect`] returned it.
        id: ConnectId,
        /// To attach to the queues that it was made for.
        endpoint: Endpoint<C>,
        /// The connection private data of the peer.
        private: PrivateBytes,
    },
    /// A connection that this side requested failed.
    Refused {
        /// As [`ConnectionManager::connect`] returned it.
        id: ConnectId,
        /// The reason.
        reason: ConnectError,
    },
}

/// Connection private data; 56 bytes is the maximum of a connection request.
pub type PrivateBytes = ArrayVec<u8, 56>;

/// Identifies a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectId(pub u64);

/// The parameters of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnParam<'a> {
    /// Connection private data (RFC 8797), at most 56 bytes.
    pub private: &'a [u8],
    /// How often a Send is retried when the peer has no Receive posted; 7 retries without limit.
    pub rnr_retry: u8,
    /// How long a peer may take nothing of what is sent, and answer nothing. For a provider whose
    /// connections the system watches; the others find it out when they send. `None`: as long as
    /// the system allows.
    pub send_timeout: Option<Duration>,
}

impl ConnParam<'_> {
    /// The connection private data, if both parameters are in their range.
    ///
    /// # Errors
    /// [`SetupError::Invalid`], naming the one that is not.
    pub fn checked(&self) -> Result<PrivateBytes, SetupError> {
        if self.rnr_retry > RNR_RETRY_FOREVER {
            return Err(SetupError::Invalid {
                what: "rnr_retry",
                value: self.rnr_retry.to_string(),
                allowed: "0 to 7".to_owned(),
            });
        }
        PrivateBytes::try_from(self.private).map_err(|_| SetupError::Invalid {
            what: "length of connection private data",
            value: self.private.len().to_string(),
            allowed: "at most 56 bytes".to_owned(),
        })
    }
}

/// The largest [`ConnParam::rnr_retry`]: a Send is retried without limit.
pub const RNR_RETRY_FOREVER: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_connection_are_in_their_range() {
        let checked = |private: &[u8], rnr_retry| {
            let param = ConnParam { private, rnr_retry, send_timeout: None };
            param.checked().map_err(|error| error.to_string())
        };
        let most: Vec<u8> = (0..56).collect();
        assert_eq!(checked(&most, 7).expect("both at their limits")[..], most[..]);
        assert_eq!(checked(b"", 0).expect("none")[..], b""[..]);
        let retry = checked(b"", 8).expect_err("one more");
        assert!(["rnr_retry", "8", "0 to 7"].iter().all(|part| retry.contains(part)), "{retry}");
        let long = checked(&[0; 57], 7).expect_err("one more");
        assert!(["57", "at most 56"].iter().all(|part| long.contains(part)), "{long}");
    }
}
