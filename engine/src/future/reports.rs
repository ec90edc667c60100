//! What tasks learn of the connections, and of the end.

use std::convert::Infallible;

use crate::SessionEvent;
use async_channel::{Receiver, Sender};

/// Where who polls reports what no call waits for. Dropped at the end.
pub(crate) struct Reports {
    events: Sender<SessionEvent>,
    _ended: Sender<Infallible>,
}

/// What tasks have of it.
pub(crate) struct Reported {
    events: Receiver<SessionEvent>,
    ended: Receiver<Infallible>,
}

/// Both sides.
pub(crate) fn reports() -> (Reports, Reported) {
    let (reporting, events) = async_channel::bounded(EVENTS_MAX);
    let (is_there, ended) = async_channel::bounded(1);
    (Reports { events: reporting, _ended: is_there }, Reported { events, ended })
}

impl Reports {
    /// Something happened to a connection.
    pub fn event(&self, event: SessionEvent) {
        // Of too many the oldest is dropped; without a handle none is wanted.
        let _ = self.events.force_send(event);
    }
}

impl Reported {
    /// The next event; `None` at the end.
    pub fn next_event(&self) -> impl Future<Output = Option<SessionEvent>> + Send + use<> {
        let events = self.events.clone();
        async move { events.recv().await.ok() }
    }

    /// The end.
    pub fn end(&self) -> impl Future<Output = ()> + Send + use<> {
        let ended = self.ended.clone();
        async move {
            // Nothing is ever sent.
            let _ = ended.recv().await;
        }
    }
}

/// Events that are kept.
const EVENTS_MAX: usize = 256;
