//! A link as the transport sees it, with its two ends.

use std::sync::Arc;

use rpcrdma_transport::carrier::{Carrier, EndId};

use crate::consumer::Consumer;
use crate::link::Link;
use crate::port::EndSpec;
use crate::producer::{Exposed, Producer};

/// A link as the transport sees it.
#[derive(Clone)]
pub struct Channel(pub(crate) Arc<Link>);

impl Channel {
    /// Both ends of this side.
    pub(crate) fn ends(&self, qp_num: u32, spec: &EndSpec) -> (Producer, Consumer) {
        let link = &self.0;
        let [out, back] = link.directions();
        let exposed = link.maps_pools().then(|| Exposed::new(Arc::clone(&spec.files)));
        let producer = Producer::new(Arc::clone(link), out, exposed, spec);
        (producer, Consumer::new(Arc::clone(link), back, qp_num, spec.first))
    }
}

impl Carrier for Channel {
    const IS_OF_ONE: bool = true;
    type Tx = Producer;
    type Rx = Consumer;

    fn id(&self) -> EndId {
        self.0.end()
    }

    #[inline]
    fn wake_peer(&self) {
        self.0.wake_peer();
    }
}
