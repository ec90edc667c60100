//! The port: what a provider adds to the transport for one set of queues.

use std::fmt::Debug;
use std::time::Duration;

use rpcrdma_provider::{Bells, SetupError};

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

    /// Called at the beginning of each poll, for a port that has to ask which of its carriers have
    /// something, or to do again what has failed.
    #[inline]
    fn look(&self, _transport: &Transport<Self::Carrier>) {}

    /// What is readable when the thread is to wake up.
    fn bells(&self) -> Bells<'_>;

    /// Announces that the thread is about to sleep: how long it may, or none if there is work.
    fn arm(&self, transport: &Transport<Self::Carrier>) -> Option<Duration>;

    /// The thread is awake. Silences the bells if one is rung.
    fn disarm(&self, transport: &Transport<Self::Carrier>, is_rung: bool);
}

/// Both directions of a carrier's end.
pub type Ends<C> = (<C as Carrier>::Tx, <C as Carrier>::Rx);
