//! Rings: the carrier between two sets of queues of one process.

mod consumer;
mod memory;
mod producer;
mod ring;
mod slot;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rpcrdma_transport::carrier::{Carrier, EndId};
use rpcrdma_transport::device::Device;

pub use self::consumer::Consumer;
pub use self::producer::Producer;
use self::ring::Ring;
use crate::port::Port;

/// One end of a link, apart from the rings' ends.
#[derive(Clone)]
pub struct Rings {
    peer: Arc<Port>,
    link: Arc<Link>,
    side: usize,
}

/// Two rings between two sets of queues. The first endpoint on each side takes their ends.
pub(crate) struct Link {
    id: u64,
    ports: [Arc<Port>; 2],
    ends: [Mutex<Option<(Producer, Consumer)>>; 2],
}

/// All links of a fabric.
pub(crate) struct Links {
    device: Arc<Device>,
    size: Size,
    made: Mutex<HashMap<(u64, u64), Weak<Link>>>,
}

/// The dimensions of a fabric's rings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub slots: u32,
    pub is_delayed: bool,
    /// Their first position: 0, except in tests of wrap-around.
    pub first: u64,
}

impl Carrier for Rings {
    type Tx = Producer;
    type Rx = Consumer;

    fn id(&self) -> EndId {
        EndId { link: self.link.id, side: self.side }
    }

    #[inline]
    fn wake_peer(&self) {
        self.peer.sleeper.wake();
    }
}

impl Rings {
    /// Takes its rings' ends; none if an earlier path has taken them and died since.
    pub(crate) fn take(&self) -> Option<(Producer, Consumer)> {
        self.link.ends[self.side].lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Link {
    fn new(id: u64, ports: [Arc<Port>; 2], size: Size) -> Link {
        let Size { slots, is_delayed, first } = size;
        let (there, back) = (ring(slots, is_delayed, first), ring(slots, is_delayed, first));
        let ends = [(there.0, back.1), (back.0, there.1)];
        Link { id, ports, ends: ends.map(|end| Mutex::new(Some(end))) }
    }

    /// One of its ends.
    pub(crate) fn end(self: &Arc<Link>, side: usize) -> Rings {
        Rings { peer: Arc::clone(&self.ports[1 - side]), link: Arc::clone(self), side }
    }
}

impl Links {
    /// No links yet. Their names and those of ports are numbers of the device.
    pub(crate) fn new(device: Arc<Device>, size: Size) -> Links {
        Links { device, size, made: Mutex::default() }
    }

    /// The link between two ports. The first has the smaller number, or they are the same.
    pub(crate) fn between(&self, ports: [&Arc<Port>; 2]) -> Arc<Link> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (ports[0].id, ports[1].id);
        if let Some(link) = made.get(&key).and_then(Weak::upgrade) {
            return link;
        }
        made.retain(|_, link| link.strong_count() > 0);
        let link = Arc::new(Link::new(self.device.number(), ports.map(Arc::clone), self.size));
        made.insert(key, Arc::downgrade(&link));
        link
    }
}

/// A ring of `len` slots, a power of two: its two ends. The first slot has the position `first`.
pub(crate) fn ring(len: u32, is_delayed: bool, first: u64) -> (Producer, Consumer) {
    let ring = Arc::new(Ring::new(len, is_delayed, first));
    (Producer::new(Arc::clone(&ring), first), Consumer::new(ring, first))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rpcrdma_transport::body::Acks;
    use rpcrdma_transport::carrier::{Incoming, Outgoing, Vacant};
    use rpcrdma_transport::keys::KeyCache;

    use super::*;
    use crate::FabricOptions;

    fn no_keys() -> KeyCache {
        KeyCache::of(Arc::default())
    }

    #[test]
    fn a_copy_that_panics_counts_as_ended() {
        let (mut tx, rx) = ring(2, false, 0);
        tx.claim(0).expect("room").publish(Acks::default(), &no_keys());
        let copy = || rx.fetch(0, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(copy)).is_err());
        tx.withdraw(0);
        tx.quiesce();
        assert_eq!(rx.fetch(0, || ()), None);
    }

    #[test]
    fn what_a_dropped_side_has_published_is_taken_and_its_memory_is_not_used() {
        let (mut tx, mut rx) = ring(2, false, 0);
        tx.claim(0).expect("room").publish(Acks::default(), &no_keys());
        assert!(!rx.is_closed());
        assert_eq!(rx.fetch(0, || 7), Some(7));
        drop(tx);
        assert!(rx.is_closed());
        assert_eq!(rx.fetch(0, || 7), None);
        assert!(rx.front().is_some());
        rx.release();
        assert!(rx.front().is_none());
    }

    #[test]
    fn a_side_is_dropped_when_the_copy_in_progress_has_ended() {
        let (mut tx, rx) = ring(2, false, 0);
        tx.claim(0).expect("room").publish(Acks::default(), &no_keys());
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = rx.fetch(0, || {
                let waiter = scope.spawn(|| {
                    drop(tx);
                    has_ended.load(Ordering::Acquire)
                });
                while !rx.is_closed() && !waiter.is_finished() {
                    thread::yield_now();
                }
                // One that does not wait gets the time to return.
                (0..50).for_each(|_| thread::yield_now());
                has_ended.store(true, Ordering::Release);
                waiter
            });
            let waiter = waiter.expect("it was not withdrawn");
            assert!(waiter.join().expect("it does not panic"), "it has waited");
        });
    }

    #[test]
    fn two_ports_have_one_link_as_long_as_one_holds_it() {
        let device = Arc::new(Device::new("fabric", FabricOptions::default().settings(), None));
        let links = Links::new(device, Size { slots: 2, is_delayed: false, first: 0 });
        let [a, b, c] = [1, 2, 3].map(|id| Arc::new(Port::new(id, 1).expect("a port")));
        let made = || links.made.lock().expect("no test has panicked").len();
        let one = links.between([&a, &b]);
        let other = links.between([&a, &c]);
        assert_eq!(made(), 2, "a link that is held is kept when another is made");
        assert!(Arc::ptr_eq(&one, &links.between([&a, &b])));
        assert!(!Arc::ptr_eq(&one, &other) && one.id != other.id);
        drop((one, other));
        let _third = links.between([&b, &c]);
        assert_eq!(made(), 1, "those that are not held are forgotten");
    }
}
