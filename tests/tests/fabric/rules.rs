//! Rules of the protocol documents, checked by a raw peer: see docs/conformance.md.

use rpcrdma::provider::ConnectError;
use rpcrdma::{Changes, Fabric};
use rpcrdma_config::Raw;
use rpcrdma_tests::raw_peer::{RawPeer, message, properties};
use rpcrdma_tests::script::{Part, Script};
use rpcrdma_tests::world::{Plan, World};
use rpcrdma_xdr::{Body, ChunkLists, Header, Optional, Property, RdmaError};

/// A server, and a raw peer that is connected to it.
struct Scene {
    world: World<Fabric>,
    raw: RawPeer<Fabric>,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(|_| {})
    }

    fn with(change: impl Fn(&mut Raw)) -> Scene {
        let fabric = Fabric::new();
        let mut world = World::new(&|| fabric.clone(), &Plan { clients: 0, ..Plan::both(change) });
        world.servers[0].handler().has_strangers = true;
        let mut raw = RawPeer::new(&fabric);
        raw.connect(world.at);
        for _ in 0..1_000 {
            world.step();
            match raw.turn() {
                Ok(()) if raw.is_connected() => return Scene { world, raw },
                Ok(()) | Err(ConnectError::Rejected(_)) => {}
                Err(why) => panic!("{why}"),
            }
        }
        panic!("no connection");
    }

    /// The same, with properties exchanged: the grant is 16.
    fn met() -> Scene {
        let mut scene = Scene::new();
        scene.raw.send(&properties(0x99, 16));
        scene.turns(50);
        let hello = scene.raw.recv().expect("the server's properties");
        assert_eq!(Header::decode(&hello).expect("a header").0.credit, 16);
        scene
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.world.step();
            let _ = self.raw.turn();
        }
    }

    /// What has arrived, as xid and body of the errors.
    fn errors(&mut self) -> Vec<(u32, RdmaError)> {
        self.turns(50);
        let mut errors = Vec::new();
        while let Some(bytes) = self.raw.recv() {
            match Header::decode(&bytes).expect("a header").0 {
                Header { xid, body: Body::Error(error), .. } => errors.push((xid, error)),
                other => panic!("no error: {other:?}"),
            }
        }
        errors
    }
}

/// A call whose payload has another xid than its header.
fn bad_call(xid: u32) -> Vec<u8> {
    let mut bytes = message(xid, 0, 16, &Script::new(1, &[], &[]).call_stream());
    bytes[28..32].copy_from_slice(&(xid + 1).to_be_bytes());
    bytes
}

// RFC 8166 4.5
#[test]
fn every_bad_call_is_answered_one_after_another() {
    let mut scene = Scene::met();
    for xid in 1..60 {
        scene.raw.send(&bad_call(xid));
        assert_eq!(scene.errors(), [(xid, RdmaError::BadHeader)]);
    }
    assert!(scene.raw.is_connected());
}

// RFC 8166 4.5, 4.5.4
#[test]
fn every_bad_call_of_a_burst_is_answered_or_the_connection_ends() {
    // As many as were granted, and more.
    for count in [16, 60] {
        let mut scene = Scene::met();
        for xid in 1..=count {
            scene.raw.send(&bad_call(xid));
        }
        let errors = scene.errors();
        let all: Vec<_> = (1..=count).map(|xid| (xid, RdmaError::BadHeader)).collect();
        assert!(errors == all || (count > 16 && scene.raw.is_lost()), "{count}: {errors:?}");
    }
}

/// A call of so many bytes on the wire.
fn call_of(xid: u32, len: u32) -> Vec<u8> {
    // Header, the head of the script with one part, and the part's own length.
    let around = message(xid, 0, 16, &Script::new(1, &[Part::Inline(0)], &[]).call_stream()).len();
    let parts = [Part::Inline(len - around as u32)];
    let bytes = message(xid, 0, 16, &Script::new(1, &parts, &[]).call_stream());
    assert_eq!(bytes.len(), len as usize);
    bytes
}

// [XCHAR] 3.1
#[test]
fn a_message_as_long_as_the_stated_size_is_received() {
    let mut scene = Scene::new();
    scene.raw.send(&properties(0x99, 16));
    scene.turns(50);
    let hello = scene.raw.recv().expect("the server's properties");
    let Body::Optional(Optional::ConnProp(stated)) = Header::decode(&hello).expect("valid").0.body
    else {
        panic!("properties come first")
    };
    let sizes = stated.start.iter().filter_map(|value| match Property::decode(value) {
        Ok(Property::RecvBufferSize(size)) => Some(size),
        _ => None,
    });
    let sizes: Vec<_> = sizes.collect();
    let [size] = sizes[..] else { panic!("one size: {sizes:?}") };
    for xid in 1..=20 {
        scene.raw.send(&call_of(xid, size));
        scene.turns(50);
        let reply = scene.raw.recv().expect("a reply");
        assert_eq!(reply[..4], xid.to_be_bytes());
        assert_eq!(Header::decode(&reply).expect("valid").0.body, Body::Msg(ChunkLists::EMPTY));
    }
}

// [XCHAR] 3.1
#[test]
fn a_smaller_requested_size_limits_all_later_messages() {
    let mut scene = Scene::met();
    let lens = |scene: &mut Scene, xid, reply| {
        let script = Script::new(xid, &[], &[Part::Inline(reply)]);
        scene.raw.send(&message(xid, 0, 16, &script.call_stream()));
        scene.turns(50);
        core::iter::from_fn(|| scene.raw.recv()).map(|bytes| bytes.len()).collect::<Vec<_>>()
    };
    assert!(lens(&mut scene, 1, 3000)[..].iter().all(|len| *len > 3000), "it takes that");
    let peer = *scene.world.servers[0].handler().connected.last().expect("it is connected");
    let (now, changes) = (scene.world.now, Changes::of(&[Property::RecvBufferSize(1024)]));
    let mut turn = scene.world.servers[0].turn(now);
    turn.request_properties(peer, &changes.expect("valid")).expect("it may change");
    // The request, and the reply, of which some goes in any form that fits.
    let short = lens(&mut scene, 2, 100);
    assert!(short.len() == 2 && short.iter().all(|len| *len <= 1024), "{short:?}");
    let long = lens(&mut scene, 3, 3000);
    assert!(long.len() == 1 && long.iter().all(|len| *len <= 1024), "{long:?}");
    assert!(scene.raw.is_connected());
}

// [V2] 2.3; wire.md B5
#[test]
fn a_message_of_the_default_size_is_received_from_the_first_one_on() {
    // The smallest receive buffers that may be configured.
    let mut scene = Scene::with(|raw| {
        raw.receive.inline = "4KiB".into();
        raw.receive.placement.count = 0;
    });
    for xid in 1..=20 {
        scene.raw.send(&call_of(xid, 4096));
        scene.turns(50);
        let mut replies = Vec::new();
        while let Some(bytes) = scene.raw.recv() {
            replies.extend((bytes[..4] == xid.to_be_bytes()).then_some(bytes));
        }
        let [reply] = &replies[..] else { panic!("one reply: {replies:?}") };
        assert_eq!(Header::decode(reply).expect("valid").0.body, Body::Msg(ChunkLists::EMPTY));
    }
}
