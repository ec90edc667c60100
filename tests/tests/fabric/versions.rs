//! Version negotiation of the engine: four kinds of version-one responders, the memory of versions,
//! and version one.

use std::collections::BTreeMap;

use rpcrdma::provider::{ConnectError, ConnectId};
use rpcrdma::{Address, CallError, CallRefused, CloseReason, ConnectionId, Execution, Fabric};
use rpcrdma_proto::{Refusal, SendError, Version};
use rpcrdma_tests::raw_peer::{RawPeer, message, properties, transmission};
use rpcrdma_tests::script::{Order, Part, Script};
use rpcrdma_tests::world::{Plan, World};
use rpcrdma_xdr::{Body, ChunkLists, Header, Optional, PrivateData, RdmaError};

const MS: u64 = 1_000_000;

/// A client of the engine and a raw server, whose every answer is a test's.
struct Scene {
    world: World<Fabric>,
    raw: RawPeer<Fabric>,
    at: Address,
    /// How the calls that are over have ended, by cookie.
    done: BTreeMap<u64, Result<usize, CallError>>,
}

impl Scene {
    /// Times are short: 50 ms for a negotiation, 10 s of memory, 200 ms for a call.
    fn new(change: impl Fn(&mut rpcrdma_config::Raw)) -> Scene {
        let fabric = Fabric::new();
        let mut plan = Plan::default();
        plan.call.protocol.negotiation_timeout = "50ms".into();
        plan.call.protocol.version_memory = "10s".into();
        plan.call.connections.call_timeout = "200ms".into();
        change(&mut plan.call);
        let world = World::new(&|| fabric.clone(), &plan);
        let mut raw = RawPeer::new(&fabric);
        let at = raw.listen();
        Scene { world, raw, at, done: BTreeMap::new() }
    }

    fn ask(&mut self) -> ConnectId {
        self.world.clients[0].begin_connect(self.at).expect("there is room")
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            // The servers of the world, and all control planes.
            let client = self.world.clients.remove(0);
            self.world.step();
            self.world.clients.insert(0, client);
            self.raw.turn().expect("it listens");
            let (now, done) = (self.world.now, &mut self.done);
            self.world.clients[0].poll(now, |completion| {
                let result =
                    completion.result().map(|reply| reply.payload().map(<[u8]>::len).sum());
                assert!(done.insert(completion.cookie(), result).is_none(), "completed once");
            });
        }
    }

    /// Lets time pass, in steps that a tick is due in.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.world.now += MS;
            self.turns(3);
        }
    }

    /// The next transmission of the client.
    fn receive(&mut self) -> Vec<u8> {
        for _ in 0..200 {
            if let Some(bytes) = self.raw.recv() {
                return bytes;
            }
            self.turns(1);
        }
        panic!("the client sends nothing");
    }

    /// Takes the first message of a client that begins with version two.
    fn hello(&mut self) -> u32 {
        let hello = self.receive();
        assert!(hello.len() <= 1024, "wire.md B1");
        let (header, _) = Header::decode(&hello).expect("a header");
        assert!(matches!(header.body, Body::Optional(Optional::ConnProp(_))));
        header.xid
    }

    fn outcome(&mut self, id: ConnectId) -> Result<ConnectionId, ConnectError> {
        for _ in 0..200 {
            if let Some(outcome) = self.world.clients[0].connected(id) {
                assert_eq!(self.world.clients[0].connected(id), None, "reported once");
                return outcome;
            }
            self.turns(1);
        }
        panic!("the attempt is not over");
    }

    fn begin(&mut self, peer: ConnectionId, cookie: u64, len: usize) -> Result<(), CallRefused> {
        let mut call = self.world.clients[0].call(peer, cookie)?;
        call.payload().put_fixed(&vec![7; len]);
        call.submit()
    }

    /// A call and its reply, in version one.
    fn round(&mut self, peer: ConnectionId, cookie: u64) {
        self.begin(peer, cookie, 40).expect("a call");
        let call = self.receive();
        let (header, _) = Header::decode(&call).expect("a header");
        assert_eq!((header.vers, header.body), (1, Body::Msg(ChunkLists::EMPTY)));
        self.raw.send(&old(message(header.xid, 1, 8, &[0; 12])));
        self.turns(20);
        assert_eq!(self.done.get(&cookie), Some(&Ok(20)));
    }

    fn stats(&self) -> rpcrdma::stats::Snapshot {
        self.world.clients[0].handle().stats()
    }
}

/// The same in version one.
fn old(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[4..8].copy_from_slice(&1_u32.to_be_bytes());
    bytes
}

fn refusal(xid: u32, vers: u32, low: u32, high: u32) -> Vec<u8> {
    let body = Body::Error(RdmaError::Vers { low, high });
    transmission(&Header { xid, vers, credit: 8, body }, &[])
}

fn said(send_size: u32, recv_size: u32) -> Vec<u8> {
    PrivateData { remote_invalidation: false, send_size, recv_size }.encode().to_vec()
}

mod old_responders {
    use super::*;

    #[test]
    fn err_vers_goes_on_in_version_one_on_the_same_connection() {
        for vers in [1, 2] {
            let mut scene = Scene::new(|_| ());
            let id = scene.ask();
            let xid = scene.hello();
            scene.raw.send(&refusal(xid, vers, 1, 1));
            let peer = scene.outcome(id).expect("a connection");
            scene.round(peer, 1);
            assert_eq!(scene.raw.received.len(), 1, "one connection");
            let stats = scene.stats();
            assert_eq!(
                (
                    stats.fallbacks_error,
                    stats.connections_version_one,
                    stats.connections_version_two
                ),
                (1, 1, 0)
            );
        }
    }

    #[test]
    fn err_vers_without_version_one_is_a_clear_error() {
        let mut scene = Scene::new(|_| ());
        let id = scene.ask();
        let xid = scene.hello();
        scene.raw.send(&refusal(xid, 2, 3, 4));
        assert_eq!(scene.outcome(id), Err(ConnectError::Version { low: 3, high: 4 }));
        assert_eq!(scene.stats().versions_refused, 1);
        scene.pass(100);
        assert_eq!(scene.raw.received.len(), 1, "it is not tried again");
    }

    #[test]
    fn silence_is_version_one_on_a_new_connection_of_the_same_attempt() {
        let mut scene = Scene::new(|_| ());
        let id = scene.ask();
        scene.hello();
        scene.pass(40);
        assert_eq!((scene.raw.received.len(), scene.world.clients[0].connected(id)), (1, None));
        scene.pass(30);
        let peer = scene.outcome(id).expect("a connection");
        assert_eq!(scene.raw.received.len(), 2);
        scene.round(peer, 1);
        let stats = scene.stats();
        assert_eq!((stats.fallbacks_silence, stats.connections_version_one), (1, 1));
        assert_eq!(scene.world.clients[0].handle().connections(), 1, "its place was kept once");
    }

    #[test]
    fn a_lost_connection_is_version_one_on_a_new_one_of_the_same_attempt() {
        let mut scene = Scene::new(|_| ());
        let id = scene.ask();
        scene.hello();
        scene.raw.disconnect();
        let peer = scene.outcome(id).expect("a connection");
        assert_eq!(scene.raw.received.len(), 2);
        scene.round(peer, 1);
        let stats = scene.stats();
        assert_eq!((stats.fallbacks_loss, stats.connections_version_one), (1, 1));
    }

    #[test]
    fn a_full_client_falls_back_without_a_second_place() {
        let mut scene = Scene::new(|raw| raw.connections.max = 1);
        let id = scene.ask();
        scene.hello();
        scene.raw.disconnect();
        let peer = scene.outcome(id).expect("a connection");
        scene.round(peer, 1);
        let full = scene.world.clients[0].begin_connect(scene.at);
        assert!(full.is_err(), "there is one place");
        assert!(scene.world.clients[0].handle().close(peer));
        scene.turns(50);
        assert_eq!(scene.world.clients[0].handle().connections(), 0);
    }

    #[test]
    fn inval_option_is_version_two_without_properties() {
        let mut scene = Scene::new(|_| ());
        let id = scene.ask();
        let xid = scene.hello();
        let body = Body::Error(RdmaError::InvalOption);
        scene.raw.send(&transmission(&Header { xid, vers: 2, credit: 4, body }, &[]));
        let peer = scene.outcome(id).expect("a connection");
        scene.begin(peer, 1, 4000).expect("every peer receives 4096 bytes");
        let call = scene.receive();
        assert_eq!((call.len(), call[7]), (4036, 2));
        let stats = scene.stats();
        assert_eq!((stats.properties_refused, stats.connections_version_two), (1, 1));
    }

    #[test]
    fn properties_are_version_two() {
        let mut scene = Scene::new(|_| ());
        let id = scene.ask();
        let xid = scene.hello();
        scene.raw.send(&properties(xid, 8));
        scene.outcome(id).expect("a connection");
        scene.pass(100);
        let stats = scene.stats();
        assert_eq!(
            (
                stats.connections_version_two,
                stats.connections_version_one,
                stats.properties_refused
            ),
            (1, 0, 0)
        );
        assert_eq!((stats.fallbacks_silence, scene.raw.received.len()), (0, 1));
    }

    #[test]
    fn a_client_of_version_two_only_does_not_fall_back() {
        let two = |raw: &mut rpcrdma_config::Raw| {
            raw.protocol.version = "two".into();
            raw.connections.connect_timeout = "100ms".into();
        };
        let mut scene = Scene::new(two);
        let id = scene.ask();
        scene.hello();
        scene.pass(60);
        assert_eq!(
            scene.world.clients[0].connected(id),
            None,
            "it waits for the connection's time"
        );
        scene.pass(60);
        assert_eq!(scene.outcome(id), Err(ConnectError::TimedOut));
        scene.turns(50);
        assert_eq!(scene.raw.received.len(), 1);
        let mut scene = Scene::new(two);
        let id = scene.ask();
        let xid = scene.hello();
        scene.raw.send(&refusal(xid, 1, 1, 1));
        assert_eq!(scene.outcome(id), Err(ConnectError::Version { low: 1, high: 1 }));
    }
}

mod memory {
    use super::*;

    /// Connects once; the server does not answer version two. Then the connection is closed.
    fn found_out(change: impl Fn(&mut rpcrdma_config::Raw)) -> Scene {
        let mut scene = Scene::new(change);
        let id = scene.ask();
        scene.hello();
        scene.raw.disconnect();
        let peer = scene.outcome(id).expect("a connection");
        assert!(scene.world.clients[0].handle().close(peer));
        scene.turns(50);
        scene
    }

    #[test]
    fn a_version_one_peer_is_remembered_for_the_configured_time() {
        let mut scene = found_out(|_| ());
        for cookie in 1..4 {
            let id = scene.ask();
            let peer = scene.outcome(id).expect("a connection");
            scene.round(peer, cookie);
            assert!(scene.world.clients[0].handle().close(peer));
            scene.turns(50);
        }
        assert_eq!(scene.stats().versions_remembered, 3);
        scene.world.now += 10_000 * MS;
        let id = scene.ask();
        let xid = scene.hello();
        scene.raw.send(&properties(xid, 8));
        scene.outcome(id).expect("it has learned version two");
        assert_eq!(scene.stats().versions_remembered, 3);
    }

    #[test]
    fn err_vers_is_remembered_as_well() {
        let mut scene = Scene::new(|_| ());
        let id = scene.ask();
        let xid = scene.hello();
        scene.raw.send(&refusal(xid, 2, 1, 1));
        scene.outcome(id).expect("a connection");
        // [V2] 5.2: the connection is lost immediately after the error.
        scene.raw.disconnect();
        scene.turns(50);
        let id = scene.ask();
        let peer = scene.outcome(id).expect("a connection");
        scene.round(peer, 1);
        assert_eq!(scene.stats().versions_remembered, 1);
    }

    #[test]
    fn without_memory_the_version_is_discovered_every_time() {
        let mut scene = found_out(|raw| raw.protocol.version_memory = "0s".into());
        let id = scene.ask();
        scene.hello();
        scene.raw.disconnect();
        scene.outcome(id).expect("a connection");
        assert_eq!((scene.stats().fallbacks_loss, scene.stats().versions_remembered), (2, 0));
    }

    #[test]
    fn the_memory_of_versions_is_per_address() {
        let mut scene = found_out(|_| ());
        let peer = scene.world.connect(0);
        scene.world.round(0, peer, &Script::new(1, &[], &[]));
        assert_eq!(
            (scene.stats().connections_version_two, scene.stats().versions_remembered),
            (1, 0)
        );
    }

    #[test]
    fn an_unreachable_peer_has_no_known_version() {
        let mut scene = Scene::new(|_| ());
        let id = scene.ask();
        scene.hello();
        let fabric = scene.world.calling().provider().clone();
        // The server ends, and no listener is left; then another server starts.
        scene.raw = RawPeer::new(&fabric);
        assert_eq!(scene.outcome(id), Err(ConnectError::NoListener));
        scene.raw.listen_at(scene.at);
        let id = scene.ask();
        let xid = scene.hello();
        scene.raw.send(&properties(xid, 8));
        scene.outcome(id).expect("a connection");
        assert_eq!(
            (scene.stats().connections_version_two, scene.stats().versions_remembered),
            (1, 0)
        );
    }

    #[test]
    fn a_refused_version_one_is_forgotten() {
        let mut scene = found_out(|_| ());
        let id = scene.ask();
        let peer = scene.outcome(id).expect("a connection");
        scene.begin(peer, 1, 40).expect("a call");
        let call = scene.receive();
        let xid = u32::from_be_bytes(call[..4].try_into().expect("a word"));
        scene.raw.send(&refusal(xid, 1, 2, 2));
        scene.turns(50);
        assert!(matches!(scene.done.get(&1), Some(Err(CallError::ConnectionLost(..)))));
        assert_eq!(scene.stats().versions_refused, 1);
        let id = scene.ask();
        let xid = scene.hello();
        scene.raw.send(&properties(xid, 8));
        scene.outcome(id).expect("a connection");
        assert_eq!(scene.stats().connections_version_two, 1);
    }

    #[test]
    fn shards_of_an_engine_share_the_memory_of_versions() {
        let mut scene = found_out(|_| ());
        let second = scene.world.calling().client().expect("another client");
        scene.world.clients.push(second);
        let id = scene.world.clients[1].begin_connect(scene.at).expect("there is room");
        for _ in 0..50 {
            scene.turns(1);
        }
        assert!(matches!(scene.world.clients[1].connected(id), Some(Ok(_))));
        assert_eq!(scene.world.clients[1].handle().stats().versions_remembered, 1);
    }
}

mod without_properties {
    use super::*;

    fn scene() -> Scene {
        Scene::new(|raw| {
            raw.features.properties = false;
            raw.features.placement = false;
            raw.features.continuation = false;
            raw.receive.placement.count = 0;
        })
    }

    /// The first call, as the server gets it.
    fn first_call(scene: &mut Scene) -> (ConnectionId, u32) {
        let id = scene.ask();
        let peer = scene.outcome(id).expect("ready at once");
        scene.begin(peer, 1, 40).expect("a call");
        let call = scene.receive();
        let (header, _) = Header::decode(&call).expect("a header");
        assert_eq!((header.vers, header.body), (2, Body::Msg(ChunkLists::EMPTY)));
        (peer, header.xid)
    }

    #[test]
    fn the_first_call_fails_with_err_vers_and_the_next_is_of_version_one() {
        let mut scene = scene();
        let (peer, xid) = first_call(&mut scene);
        scene.raw.send(&refusal(xid, 1, 1, 1));
        scene.turns(20);
        let refused =
            CallError::Rejected(Refusal::Version { low: 1, high: 1 }, Execution::NotExecuted);
        assert_eq!(scene.done.get(&1), Some(&Err(refused)));
        scene.round(peer, 2);
        assert_eq!((scene.stats().fallbacks_error, scene.raw.received.len()), (1, 1));
    }

    #[test]
    fn a_first_call_that_is_not_answered_is_silence() {
        let mut scene = scene();
        let id = scene.ask();
        let peer = scene.outcome(id).expect("ready at once");
        scene.pass(100);
        assert_eq!(scene.stats().connections_closed, 0, "a client may be silent");
        scene.begin(peer, 1, 40).expect("a call");
        scene.receive();
        scene.pass(40);
        assert_eq!(scene.done.get(&1), None);
        scene.pass(40);
        let lost = CallError::ConnectionLost(CloseReason::TimedOut, Execution::Unknown);
        assert_eq!(scene.done.get(&1), Some(&Err(lost)));
        let id = scene.ask();
        let peer = scene.outcome(id).expect("a connection");
        scene.round(peer, 2);
        assert_eq!((scene.stats().fallbacks_silence, scene.stats().versions_remembered), (1, 1));
    }

    #[test]
    fn a_connection_lost_during_the_first_call_is_remembered() {
        let mut scene = scene();
        first_call(&mut scene);
        scene.raw.disconnect();
        scene.turns(50);
        let lost = CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown);
        assert_eq!(scene.done.get(&1), Some(&Err(lost)));
        let id = scene.ask();
        let peer = scene.outcome(id).expect("a connection");
        scene.round(peer, 2);
        assert_eq!((scene.stats().fallbacks_loss, scene.stats().versions_remembered), (1, 1));
    }

    #[test]
    fn a_reply_is_version_two() {
        let mut scene = scene();
        let (_, xid) = first_call(&mut scene);
        scene.raw.send(&message(xid, 1, 8, &[0; 12]));
        scene.turns(20);
        assert_eq!(scene.done.get(&1), Some(&Ok(20)));
        scene.raw.disconnect();
        scene.turns(50);
        let id = scene.ask();
        scene.outcome(id).expect("a connection");
        assert_eq!((scene.stats().fallbacks_loss, scene.stats().versions_remembered), (0, 0));
    }
}

mod sizes {
    use super::*;

    #[test]
    fn both_sides_state_their_capabilities() {
        let mut scene = Scene::new(|_| ());
        scene.ask();
        scene.hello();
        let received = PrivateData::decode(&scene.raw.received[0]).expect("as RFC 8797 has it");
        let own = scene.world.calling().config();
        let total = own.recv_structure().total_len();
        assert_eq!(received.recv_size, total / 1024 * 1024);
        assert_eq!(received.send_size, (own.send().payload_len.value() + 28) / 1024 * 1024);
        // A server answers with its own.
        let fabric = scene.world.calling().provider().clone();
        scene.raw = RawPeer::new(&fabric);
        scene.raw.connect(scene.world.at);
        scene.turns(20);
        assert_eq!(PrivateData::decode(&scene.raw.received[0]), Some(received));
    }

    #[test]
    fn remote_invalidation_is_allowed_with_windows() {
        type Change = fn(&mut rpcrdma_config::Raw);
        let table: [(Change, bool); 5] = [
            (|_| (), true),
            (|raw| raw.interop.remote_invalidation = false, false),
            (|raw| raw.explicit.exposure = "registration".into(), false),
            (|raw| raw.explicit.windows = "0".into(), false),
            (|raw| raw.explicit.enabled = false, false),
        ];
        for (at, (change, is_allowed)) in table.into_iter().enumerate() {
            let mut scene = Scene::new(change);
            scene.ask();
            scene.hello();
            let received = PrivateData::decode(&scene.raw.received[0]).expect("as RFC 8797 has it");
            assert_eq!(received.remote_invalidation, is_allowed, "case {at}");
        }
    }

    /// The longest payload that goes and the longest reply that may be announced.
    fn largest(says: &[u8]) -> (usize, usize) {
        let mut scene = Scene::new(|raw| {
            raw.protocol.version = "one".into();
            raw.explicit.enabled = false;
        });
        scene.raw.says = says.to_vec();
        let id = scene.ask();
        let peer = scene.outcome(id).expect("a connection");
        let mut is_sent = |payload: usize, reply: u32| {
            let mut call = scene.world.clients[0].call(peer, 1).expect("a slot");
            call.payload().put_fixed(&vec![7; payload - 8]);
            call.reply_payload_max(reply);
            match call.submit() {
                Err(CallRefused::Protocol(SendError::NeedsExplicitRdma { .. })) => return false,
                result => result.expect("a credit"),
            }
            let call = scene.receive();
            assert_eq!(call.len(), payload + 28);
            let xid = u32::from_be_bytes(call[..4].try_into().expect("a word"));
            scene.raw.send(&old(message(xid, 1, 1, &[])));
            scene.turns(20);
            assert!(scene.done.remove(&1).is_some());
            true
        };
        let payload = (8..80_000 / 4).map(|words| 4 * words).rfind(|len| {
            // The sizes are whole KiB: it is enough to look around these.
            (len + 28) % 1024 <= 4 && is_sent(*len, 8)
        });
        let reply = (8..80_000 / 4)
            .map(|words| 4 * words)
            .rfind(|len| (len + 28) % 1024 <= 4 && is_sent(40, *len as u32));
        (payload.expect("some"), reply.expect("some"))
    }

    #[test]
    fn without_private_data_a_message_has_1024_bytes() {
        assert_eq!(largest(&[]), (1024 - 28, 1024 - 28));
        let mut other = said(4096, 4096);
        other[0] ^= 1;
        assert_eq!(largest(&other), (1024 - 28, 1024 - 28), "it belongs to another connection");
    }

    #[test]
    fn the_message_size_is_the_smaller_of_both_sides() {
        assert_eq!(largest(&said(2048, 3072)), (3072 - 28, 2048 - 28));
        // What a connection manager delivers is padded with zeros.
        let mut padded = said(2048, 3072);
        padded.resize(56, 0);
        assert_eq!(largest(&padded), (3072 - 28, 2048 - 28));
    }
}

mod servers {
    use super::*;

    /// What a client and a server make of each other.
    fn meet(client: &str, server: &str) -> Result<(Version, World<Fabric>), ConnectError> {
        let mut plan = Plan::default();
        plan.call.protocol.version = client.into();
        plan.serve.protocol.version = server.into();
        let fabric = Fabric::new();
        let mut world = World::new(&|| fabric.clone(), &plan);
        let peer = world.try_connect(0)?;
        let script = Script::new(1, &[Part::Inline(100)], &[Part::Inline(100)]);
        let cookie = world.call_when_possible(0, peer, &script);
        let done = world.finish();
        let [done] = done.as_slice() else { panic!("one call") };
        assert_eq!(done.cookie, cookie);
        if let Err(CallError::ConnectionLost(CloseReason::Protocol(why), _)) = done.result {
            let rpcrdma_proto::Fatal::VersionRefused { low, high } = why else { panic!("{why}") };
            return Err(ConnectError::Version { low, high });
        }
        done.check();
        let limits = world.servers[0].handler().limits.expect("it has connected");
        Ok((limits.version.expect("it is decided"), world))
    }

    #[test]
    fn every_pair_finds_its_version() {
        for (client, server, version) in [
            ("auto", "auto", Version::Two),
            ("auto", "one", Version::One),
            ("auto", "two", Version::Two),
            ("one", "auto", Version::One),
            ("one", "one", Version::One),
            ("two", "auto", Version::Two),
            ("two", "two", Version::Two),
        ] {
            let (found, world) = meet(client, server).expect("they have one in common");
            assert_eq!(found, version, "{client} {server}");
            let counted = [world.servers[0].handle().stats(), world.clients[0].handle().stats()];
            for stats in counted {
                let is_one = u64::from(version == Version::One);
                assert_eq!(
                    (stats.connections_version_one, stats.connections_version_two),
                    (is_one, 1 - is_one)
                );
            }
        }
        for (client, server, only) in [("one", "two", 2), ("two", "one", 1)] {
            let refused = ConnectError::Version { low: only, high: only };
            assert_eq!(meet(client, server).err(), Some(refused), "{client} {server}");
        }
    }

    #[test]
    fn a_rejected_client_does_not_take_the_server_for_version_one() {
        let fabric = Fabric::new();
        let mut world = World::new(&|| fabric.clone(), &Plan::default());
        world.servers[0].handler().refuses = true;
        for _ in 0..5 {
            let peer = world.try_connect(0).expect("it was up");
            world.until("it is gone", |world| {
                world.clients[0].handle().connections() + world.servers[0].handle().connections()
                    == 0
            });
            assert_eq!(world.call(0, peer, &Script::new(1, &[], &[])), Err(CallRefused::NoPeer));
        }
        let stats = world.clients[0].handle().stats();
        assert_eq!(
            (stats.connections_version_two, stats.fallbacks_loss, stats.versions_remembered),
            (5, 0, 0)
        );
    }

    /// A raw client that speaks version one to a server.
    fn raw_client(says: Vec<u8>) -> (World<Fabric>, RawPeer<Fabric>) {
        let fabric = Fabric::new();
        let mut world = World::new(&|| fabric.clone(), &Plan::default());
        world.servers[0].handler().has_strangers = true;
        let mut raw = RawPeer::new(&fabric);
        raw.says = says;
        raw.connect(world.at);
        for _ in 0..20 {
            world.step();
            raw.turn().expect("there is room");
        }
        (world, raw)
    }

    fn answers(world: &mut World<Fabric>, raw: &mut RawPeer<Fabric>, bytes: &[u8]) -> Vec<Vec<u8>> {
        raw.send(bytes);
        for _ in 0..20 {
            world.step();
            let _ = raw.turn();
        }
        std::iter::from_fn(|| raw.recv()).collect()
    }

    fn call(xid: u32, reply: &[Part], order: Order) -> Vec<u8> {
        let script = Script::new(xid, &[Part::Inline(20)], reply).order(order);
        old(message(xid, 0, 16, &script.call_stream()))
    }

    fn words(bytes: &[u8]) -> Vec<u32> {
        let words = bytes.chunks_exact(4);
        words.map(|word| u32::from_be_bytes(word.try_into().expect("four"))).collect()
    }

    #[test]
    fn a_client_of_version_one_receives_only_version_one() {
        let (mut world, mut raw) = raw_client(Vec::new());
        for xid in 1..20 {
            let replies =
                answers(&mut world, &mut raw, &call(xid, &[Part::Inline(50)], Order::Answer));
            let [reply] = replies.as_slice() else { panic!("{} messages", replies.len()) };
            let (header, len) = Header::decode(reply).expect("a header");
            assert_eq!((header.xid, header.vers, header.credit), (xid, 1, 16));
            assert_eq!((header.body, len), (Body::Msg(ChunkLists::EMPTY), 28));
        }
        let limits = world.servers[0].handler().limits.expect("it has connected");
        assert_eq!((limits.version, limits.recv_size), (Some(Version::One), 1024));
    }

    #[test]
    fn a_client_of_version_one_may_take_its_time_before_its_first_call() {
        let (mut world, mut raw) = raw_client(Vec::new());
        // wire.md B17: it has connections.connect_timeout.
        for _ in 0..4 {
            world.now += 1_000 * MS;
            world.step();
        }
        let replies = answers(&mut world, &mut raw, &call(1, &[], Order::Answer));
        assert_eq!(replies.len(), 1);
    }

    #[test]
    fn bad_messages_are_answered_as_rfc_8166_states() {
        let (mut world, mut raw) = raw_client(said(4096, 4096));
        assert_eq!(answers(&mut world, &mut raw, &call(1, &[], Order::Answer)).len(), 1);
        let mut proc = |number: u32, bytes: Option<usize>| {
            let mut call = call(7, &[], Order::Answer);
            call[12..16].copy_from_slice(&number.to_be_bytes());
            call.truncate(bytes.unwrap_or(call.len()));
            let answers = answers(&mut world, &mut raw, &call);
            answers.first().map(|answer| words(answer))
        };
        let err_chunk = Some(vec![7, 1, 16, 4, 2]);
        assert_eq!(proc(1, None), err_chunk, "RDMA_NOMSG without a chunk");
        assert_eq!(proc(2, None), err_chunk, "RDMA_MSGP");
        assert_eq!(proc(3, None), None, "RDMA_DONE");
        assert_eq!(proc(4, None), None, "RDMA_ERROR");
        assert_eq!(proc(5, None), err_chunk, "no operation of version one");
        for len in [0, 4, 15, 16, 27] {
            assert_eq!(proc(0, Some(len)), None, "{len} bytes");
        }
        assert_eq!(proc(0, Some(28)), err_chunk, "no RPC");
        for vers in [0_u32, 2, 3, u32::MAX] {
            let mut call = call(9, &[], Order::Answer);
            call[4..8].copy_from_slice(&vers.to_be_bytes());
            let seen = answers(&mut world, &mut raw, &call);
            assert_eq!(words(&seen[0]), [9, vers, 16, 4, 1, 1, 2]);
        }
        assert!(raw.is_connected());
    }

    #[test]
    fn a_reply_that_is_too_long_for_the_caller_is_err_chunk() {
        let (mut world, mut raw) = raw_client(said(2048, 2048));
        let fits = answers(&mut world, &mut raw, &call(1, &[Part::Inline(1900)], Order::Answer));
        assert!((1900..=2048).contains(&fits[0].len()));
        let long = answers(&mut world, &mut raw, &call(2, &[Part::Inline(2100)], Order::Answer));
        assert_eq!(words(&long[0]), [2, 1, 16, 4, 2]);
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_survived() {
        let (mut world, mut raw) = raw_client(said(4096, 4096));
        let fabric = world.calling().provider().clone();
        let sample = call(1, &[Part::Inline(40)], Order::Answer);
        let flips = (0..36 * 8).map(|bit| {
            let mut changed = sample.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            changed
        });
        let cuts = (0..60).map(|len| sample[..len].to_vec());
        for bytes in flips.chain(cuts) {
            if !raw.is_connected() {
                raw = RawPeer::new(&fabric);
                raw.says = said(4096, 4096);
                raw.connect(world.at);
                for _ in 0..20 {
                    world.step();
                    raw.turn().expect("there is room");
                }
            }
            answers(&mut world, &mut raw, &bytes);
        }
        let good = world.connect(0);
        world.round(0, good, &Script::new(5, &[Part::Bulk(3000)], &[Part::Bulk(3000)]));
        world.check_nothing_leaked();
    }
}

mod unanswered {
    use super::*;

    fn up(scene: &mut Scene) -> ConnectionId {
        let id = scene.ask();
        let xid = scene.hello();
        scene.raw.send(&properties(xid, 8));
        scene.outcome(id).expect("a connection")
    }

    #[test]
    fn a_peer_that_never_answers_loses_its_connection() {
        let mut scene = Scene::new(|_| ());
        let other = scene.world.connect(0);
        let peer = up(&mut scene);
        scene.begin(peer, 1, 40).expect("a call");
        scene.pass(195);
        assert_eq!(scene.done.get(&1), None, "it has 200 ms");
        scene.pass(70);
        let lost = CallError::ConnectionLost(CloseReason::NotAnswering, Execution::Unknown);
        assert_eq!(scene.done.get(&1), Some(&Err(lost)));
        assert!(scene.raw.is_lost());
        assert_eq!(scene.stats().call_timeouts, 1);
        scene.world.round(0, other, &Script::new(1, &[Part::Bulk(500)], &[]));
    }

    #[test]
    fn other_answers_do_not_prevent_the_timeout() {
        let mut scene = Scene::new(|_| ());
        let peer = up(&mut scene);
        scene.begin(peer, 1, 40).expect("a call");
        scene.receive();
        let mut cookie = 2;
        while !scene.done.contains_key(&1) && cookie < 400 {
            scene.begin(peer, cookie, 40).expect("a call");
            let call = scene.receive();
            let xid = u32::from_be_bytes(call[..4].try_into().expect("a word"));
            scene.raw.send(&message(xid, 1, 8, &[]));
            scene.pass(1);
            cookie += 1;
        }
        assert!((180..270).contains(&cookie), "{cookie}");
        let lost = CallError::ConnectionLost(CloseReason::NotAnswering, Execution::Unknown);
        assert_eq!(scene.done.get(&1), Some(&Err(lost)));
        assert!((2..cookie - 1).all(|cookie| matches!(scene.done.get(&cookie), Some(Ok(_)))));
    }

    #[test]
    fn a_server_that_answers_in_time_is_kept() {
        let mut scene = Scene::new(|_| ());
        let peer = up(&mut scene);
        for cookie in 1..20 {
            scene.begin(peer, cookie, 40).expect("a call");
            let call = scene.receive();
            let xid = u32::from_be_bytes(call[..4].try_into().expect("a word"));
            scene.pass(190);
            scene.raw.send(&message(xid, 1, 8, &[]));
            scene.turns(20);
            assert!(matches!(scene.done.get(&cookie), Some(Ok(_))));
        }
        scene.pass(1_000);
        assert!(scene.raw.is_connected(), "who owes nothing is let be");
    }

    #[test]
    fn a_timeout_of_zero_never_expires() {
        let mut scene = Scene::new(|raw| raw.connections.call_timeout = "0s".into());
        let peer = up(&mut scene);
        scene.begin(peer, 1, 40).expect("a call");
        for _ in 0..100 {
            scene.world.now += 3_600_000 * MS;
            scene.turns(3);
        }
        assert_eq!(scene.done.get(&1), None);
        assert!(scene.raw.is_connected());
    }
}
