//! The port: what a provider adds to the transport for one set of queues.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use rpcrdma_provider::{SetupError, Waker};

use crate::Transport;
use crate::carrier::Carrier;
use crate::numbers::Numbers;

/// The shared side of a set of queues: what connection managers and other threads reach, and where
/// the thread of the queues sleeps.
pub trait Port: Debug + Send + Sync + Sized {
    /// What carries the messages.
    type Carrier: Carrier<Tx: Send, Rx: Send> + Clone + Send;

    /// The numbers of its queue pairs.
    fn numbers(&self) -> &Numbers;

    /// Opens an end of a carrier for the queue pair `num`. Called once for each end that a path of
    /// these queues uses.
    ///
    /// # Errors
    /// If the end cannot be opened any more, or the system refuses.
    fn open(&self, end: &Self::Carrier, num: u32) -> Result<Ends<Self::Carrier>, SetupError>;

    /// Sleeps until there may be work, `other` is rung, or `timeout` is over.
    ///
    /// # Errors
    /// If the system cannot wait.
    fn sleep(
        &self,
        transport: &Transport<Self::Carrier>,
        other: &Waker,
        timeout: Duration,
    ) -> io::Result<()>;
}

/// Both directions of a carrier's end.
pub type Ends<C> = (<C as Carrier>::Tx, <C as Carrier>::Rx);
