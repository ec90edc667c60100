//! Whether the peer of a link lives, for the thread that watches the sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::port::Port;

/// Whether a peer lives.
pub(crate) struct Life {
    is_cut: AtomicBool,
    port: Arc<Port>,
}

impl Life {
    /// It lives; the owner of `port` is woken when it is gone.
    pub(crate) fn new(port: Arc<Port>) -> Life {
        Life { is_cut: AtomicBool::new(false), port }
    }

    /// The peer is gone.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.port.wake();
    }

    /// Whether it is gone.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// The port whose owner is woken.
    pub(crate) fn port(&self) -> &Port {
        &self.port
    }
}
