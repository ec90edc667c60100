//! A connection as the transport sees it, with its two ends.

use std::sync::Arc;

use rpcrdma_provider::SetupError;
use rpcrdma_transport::carrier::{Carrier, EndId};

use crate::link::Link;
use crate::rx::Rx;
use crate::tx::Tx;

/// A connection as the transport sees it.
#[derive(Clone)]
pub struct TcpEnd(pub(crate) Arc<Link>);

impl TcpEnd {
    /// Both ends of this side.
    pub(crate) fn ends(&self) -> Result<(Tx, Rx), SetupError> {
        Ok((Tx::new(Arc::clone(&self.0)), Rx::new(Arc::clone(&self.0))?))
    }
}

impl Carrier for TcpEnd {
    const IS_OF_ONE: bool = true;
    type Tx = Tx;
    type Rx = Rx;

    fn id(&self) -> EndId {
        self.0.end
    }

    /// Sends what was published.
    #[inline]
    fn wake_peer(&self) {
        self.0.flush();
    }
}
