//! The client: a handle that tasks clone, and make calls with.

use std::io;
use std::sync::Arc;
use std::thread;

use crate::{Loan, Outage, Provider, Session, SessionEvent};

use super::calls::Calls;
use super::error::{AsyncError, CallFailed};
use super::places::Places;
use super::poller::Poller;
use super::reports::{Reported, reports};
use super::request::Request;
use super::response::Response;
use super::shared::Shared;

/// A handle to make calls with, from any task and thread. A thread of its own polls the session,
/// and waits as the idle policy of its engine says.
///
/// The last handle that is dropped closes it, as [`AsyncClient::close`] does.
#[derive(Clone)]
pub struct AsyncClient(Arc<Owner>);

/// What the handles have in common, and calls do not keep.
struct Owner {
    shared: Arc<Shared>,
    reported: Reported,
}

/// What a client keeps for its thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncOptions {
    /// Calls that are queued in front of the session, in order; 1024 by default. The future of a
    /// further call waits for a place; places are given in order, too. What the session keeps is
    /// limited by its own options.
    pub queued_calls: usize,
}

impl Default for AsyncOptions {
    fn default() -> AsyncOptions {
        AsyncOptions { queued_calls: 1024 }
    }
}

impl AsyncClient {
    /// Starts the thread of a session.
    ///
    /// # Errors
    /// If the system starts no thread.
    ///
    /// # Panics
    /// If no call may be queued.
    pub fn spawn<P: Provider>(
        session: Session<P>,
        options: &AsyncOptions,
    ) -> io::Result<AsyncClient> {
        let (client, poller) = AsyncClient::new(session, options);
        thread::Builder::new().name("rpcrdma-async".to_owned()).spawn(move || poller.run())?;
        Ok(client)
    }

    /// A client, and what its thread runs.
    pub(crate) fn new<P: Provider>(
        session: Session<P>,
        options: &AsyncOptions,
    ) -> (AsyncClient, Poller<P>) {
        assert!(options.queued_calls > 0, "AsyncOptions::queued_calls is 0; it is 1 or more");
        let (sender, jobs) = async_channel::unbounded();
        let places = Places::new(options.queued_calls);
        let (reports, reported) = reports();
        let shared = Arc::new(Shared::new(sender, places, session.handle().clone()));
        let calls = Calls::new(Arc::clone(&shared), jobs);
        let poller = Poller::new(calls, session, reports);
        (AsyncClient(Arc::new(Owner { shared, reported })), poller)
    }

    /// Makes a call, when the future is polled. Dropping the future cancels it: its memory returns
    /// to its pools when no peer can write to it any more. A late answer to a call with exposed
    /// memory, such as a result buffer, ends the connection.
    ///
    /// The future keeps no handle: the client may be closed while it waits.
    pub fn call<R: Into<Request>>(
        &self,
        request: R,
    ) -> impl Future<Output = Result<Response, CallFailed>> + Send + use<R> {
        Arc::clone(&self.0.shared).call(request.into())
    }

    /// A registered buffer of the session's shard, of the configured length (`app.bulk`): for data
    /// of a call that are sent from their place, or for a result. If all are in use, the future
    /// waits until one returns, in order.
    ///
    /// # Errors
    /// [`SessionError::Closed`](crate::SessionError::Closed) or
    /// [`AsyncError::Panicked`](crate::future::AsyncError::Panicked): there is no thread.
    pub fn buffer(&self) -> impl Future<Output = Result<Loan, AsyncError>> + Send + use<> {
        Arc::clone(&self.0.shared).buffer()
    }

    /// Connections that are up.
    pub fn connections(&self) -> usize {
        self.0.shared.state().connections
    }

    /// Why there is no connection: what went wrong last. `None` while there is one, and before
    /// anything went wrong.
    pub fn outage(&self) -> Option<Outage> {
        self.0.shared.state().outage
    }

    /// What happened to its connections, oldest first, when it happens. Each event goes to one of
    /// the tasks that wait for them. Of more than 256 that no task takes, the oldest are dropped.
    /// `None` when the thread has ended.
    pub fn next_event(&self) -> impl Future<Output = Option<SessionEvent>> + Send + use<> {
        self.0.reported.next_event()
    }

    /// Closes the client for all its handles: calls that are not over end with
    /// [`SessionError::Closed`](crate::SessionError::Closed), and the connections end.
    /// Calls under way have `connections.stop_timeout` for that. The future waits until the thread
    /// has ended.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.shared.close();
        self.0.reported.end()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl std::fmt::Debug for AsyncClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncClient").field("closed", &self.0.shared.is_closed()).finish()
    }
}
