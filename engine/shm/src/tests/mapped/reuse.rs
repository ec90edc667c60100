//! Keys that are used again for other memory, and pools that are gone.
#![expect(unsafe_code, reason = "the memory of a region is written and read by its address")]

use std::sync::Arc;

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_mempool::{Access, Keys, PageSize, Region, RegionSpec, Registrar, Rights, Sge};
use rpcrdma_transport::body::{Acks, Header, OP_SEND};
use rpcrdma_transport::carrier::{Incoming, Outgoing, Vacant};
use rpcrdma_transport::keys::{KeyCache, KeyTable};

use super::super::rules::Host;
use super::rules::Mapped;
use crate::channel::Channel;
use crate::consumer::Consumer;
use crate::link::Link;
use crate::pools::Files;
use crate::port::EndSpec;
use crate::producer::Producer;

/// The ends of a connection, and the registrations of the sending side.
struct Scene {
    files: Arc<Files>,
    keys: KeyCache,
    tx: Producer,
    rx: Consumer,
    sender: Arc<Link>,
    receiver: Arc<Link>,
    _hosts: [Host; 2],
}

impl Scene {
    fn new() -> Scene {
        let device = Mapped::plain();
        let hosts = [(); 2].map(|()| Host::new(&device, &SMALL));
        let (ours, theirs) = endpoints(&device, &hosts[0], &hosts[1], 7);
        let (Channel(sender), Channel(receiver)) = (ours.end().clone(), theirs.end().clone());
        let table = Arc::<KeyTable>::default();
        let files = Arc::new(Files::new(Arc::clone(&table), true));
        let spec = EndSpec { files: Arc::clone(&files), reads_max: 4, first: 0 };
        let (tx, _) = ours.end().ends(1, &spec);
        let (_, rx) = theirs.end().ends(2, &spec);
        let keys = KeyCache::of(table);
        Scene { files, keys, tx, rx, sender, receiver, _hosts: hosts }
    }

    fn register(&self, region: &Region) -> Keys {
        self.files.register(region, Rights::own(Access::LOCAL_WRITE)).expect("room")
    }

    /// Registers and deregisters other memory until the next registration has this key.
    fn until_next_is(&self, key: u32) {
        let region = region(false, 0);
        loop {
            let keys = self.register(&region);
            self.files.deregister(keys).expect("registered");
            // The place is the same, and the tag is counted.
            if keys.lkey == before(key) {
                return;
            }
        }
    }

    /// Publishes a long message.
    fn publish(&mut self, region: &Region, keys: Keys) {
        let sge = Sge { addr: region.base().as_ptr() as u64, length: LEN, lkey: keys.lkey };
        let mut slot = self.tx.claim(LEN).expect("room");
        let body = slot.body();
        body.header = Header { op: OP_SEND, byte_len: LEN, ..Header::empty() };
        body.refer(&[sge], |_| 0);
        slot.publish(Acks::default(), &self.keys);
    }

    /// The first byte of the message that was published.
    fn take(&mut self) -> u8 {
        let front = self.rx.front().expect("published");
        let mut first = None;
        let outcome = self.rx.pull(&front, &self.keys, |from, _| {
            // SAFETY: the consumer passes on memory that is readable now.
            first = Some(unsafe { from.read() });
            Ok(())
        });
        assert_eq!(outcome, Some(Ok(())));
        self.rx.release();
        first.expect("it has bytes")
    }

    fn send(&mut self, region: &Region, keys: Keys) -> u8 {
        self.publish(region, keys);
        self.take()
    }

    /// Whether messages out of it are read from where it is: its first byte may change until then.
    fn is_mapped(&mut self, region: &Region, keys: Keys) -> bool {
        fill(region, 1);
        self.publish(region, keys);
        fill(region, 2);
        self.take() == 2
    }

    /// The keys of the pools that the receiver has.
    fn pools(&self) -> Vec<u32> {
        self.receiver.pools().iter().map(|pool| pool.name.key).collect()
    }

    /// The sender's socket takes nothing more.
    fn fill_socket(&self) {
        while rustix::net::send(self.sender.socket(), &[0], rustix::net::SendFlags::DONTWAIT)
            .is_ok()
        {}
    }
}

/// Memory that begins with this byte.
fn region(shared: bool, first: u8) -> Region {
    let mut spec = RegionSpec::new(8192);
    (spec.pages, spec.lock, spec.shared) = (PageSize::Base4K, false, shared);
    let region = Region::map(&spec).expect("memory");
    fill(&region, first);
    region
}

fn fill(region: &Region, first: u8) {
    // SAFETY: the region has this byte, and there is no reference to it.
    unsafe { region.base().as_ptr().write(first) };
}

/// The key that the place of `key` had before: keys.rs counts their upper bits.
fn before(key: u32) -> u32 {
    key - (1 << 14)
}

const LEN: u32 = 5000;

#[test]
fn a_pool_that_is_not_registered_any_more_is_withdrawn() {
    let mut scene = Scene::new();
    let [first, second] = [1, 2].map(|byte| region(true, byte));
    let (of_first, of_second) = (scene.register(&first), scene.register(&second));
    assert_eq!((scene.send(&first, of_first), scene.send(&second, of_second)), (1, 2));
    assert_eq!(scene.pools(), [of_first.lkey, of_second.lkey]);
    scene.files.deregister(of_first).expect("registered");
    assert!(scene.is_mapped(&second, of_second));
    assert!(scene.receiver.read_words());
    assert_eq!(scene.pools(), [of_second.lkey]);
}

/// Another connection exposes the pool at that moment, and holds its memfd.
#[test]
fn a_key_that_is_used_again_is_not_read_from_its_earlier_memory_while_a_peer_holds_that() {
    let mut scene = Scene::new();
    let (first, second) = (region(true, 7), region(true, 8));
    let keys = scene.register(&first);
    assert_eq!(scene.send(&first, keys), 7);
    assert!(scene.is_mapped(&first, keys));
    let held = scene.files.find(keys.lkey);
    scene.files.deregister(keys).expect("registered");
    scene.until_next_is(keys.lkey);
    assert_eq!(scene.register(&second), keys);
    assert_eq!(scene.send(&second, keys), 8);
    drop(held);
    assert_eq!(scene.send(&second, keys), 8);
    assert!(scene.is_mapped(&second, keys), "it is exposed");
}

/// Nothing can be sent to the peer: its socket has no room.
#[test]
fn a_pool_that_is_gone_is_not_used_although_the_peer_still_has_it() {
    let mut scene = Scene::new();
    let (first, second) = (region(true, 7), region(true, 8));
    let keys = scene.register(&first);
    assert_eq!(scene.send(&first, keys), 7);
    assert!(scene.is_mapped(&first, keys));
    scene.files.deregister(keys).expect("registered");
    scene.fill_socket();
    scene.until_next_is(keys.lkey);
    assert_eq!(scene.register(&second), keys);
    for _ in 0..3 {
        assert_eq!(scene.send(&second, keys), 8);
    }
    assert_eq!(scene.pools(), [keys.lkey]);
    // It has room again, and gets the report.
    for _ in 0..100 {
        assert!(scene.receiver.read_words());
    }
    assert_eq!(scene.send(&second, keys), 8);
    assert!(scene.is_mapped(&second, keys));
    assert_eq!(scene.pools(), [keys.lkey]);
}
