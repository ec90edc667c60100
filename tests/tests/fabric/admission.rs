//! Requests of peers: which shard is asked about them, and what becomes of them without an answer.

use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::provider::ConnectError;
use rpcrdma::{
    Address, Admission, Answer, Call, Client, ConnectRequest, Engine, Fabric, Handler, Rejection,
    Reply, Shard,
};
use rpcrdma_config::Raw;
use rpcrdma_tests::script::{Order, Part, Script};
use rpcrdma_tests::world::{Plan, World, checked, small};
use rpcrdma_xdr::private_data::PrivateData;

/// Answers with nothing, and notes who asks to connect.
#[derive(Default)]
struct Porter {
    refuses: bool,
    /// The code that it refuses with.
    code: Option<u16>,
    asked: Vec<(Address, Vec<u8>)>,
}

impl Handler for Porter {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.send()
    }

    fn admit(&mut self, request: &ConnectRequest<'_>) -> Admission {
        self.asked.push((request.from, request.private.to_vec()));
        match self.code {
            Some(code) => Admission::RefuseWith(code),
            None if self.refuses => Admission::Refuse,
            None => Admission::Accept,
        }
    }
}

/// Two shards that serve, the engine that they are of, and a client of another.
struct Scene {
    shards: Vec<Shard<Fabric, Porter>>,
    client: Client<Fabric>,
    at: Address,
    controls: [Control<Fabric>; 2],
    _engines: [Engine<Fabric>; 2],
    now: u64,
}

const STEPS: usize = 1_000;

impl Scene {
    fn new(serve: impl FnOnce(&mut Raw), call: impl FnOnce(&mut Raw)) -> Scene {
        let fabric = Fabric::new();
        let engine =
            |raw: &Raw| Engine::without_threads(fabric.clone(), checked(raw)).expect("an engine");
        let (mut here, mut there) = (small(), small());
        serve(&mut here);
        call(&mut there);
        let ((serving, mut control), (calling, other)) = (engine(&here), engine(&there));
        let at =
            control.listen("127.0.0.1:0".parse::<Address>().expect("an address")).expect("a port");
        Scene {
            shards: [0, 1].map(|_| serving.shard(Porter::default()).expect("a shard")).into(),
            client: calling.client().expect("a client"),
            at,
            controls: [control, other],
            _engines: [serving, calling],
            now: 1,
        }
    }

    /// One turn of everything but the shards.
    fn step_without(&mut self) {
        self.now += 1_000;
        self.controls.iter_mut().for_each(|control| control.step(Duration::ZERO));
        self.client.poll(self.now, |_| {});
    }

    fn step(&mut self) {
        self.step_without();
        for shard in &mut self.shards {
            shard.poll_once(self.now);
        }
    }

    /// What comes of an attempt that has begun.
    fn outcome(&mut self, id: rpcrdma::provider::ConnectId) -> Option<ConnectError> {
        for _ in 0..STEPS {
            if let Some(outcome) = self.client.connected(id) {
                return outcome.err();
            }
            self.step();
        }
        panic!("no outcome after {STEPS} steps");
    }

    fn begin(&mut self) -> rpcrdma::provider::ConnectId {
        self.client.begin_connect(self.at).expect("there is room")
    }

    fn places(&self) -> Vec<usize> {
        self.shards.iter().map(|shard| shard.handle().connections()).collect()
    }

    fn asked(&mut self) -> Vec<usize> {
        self.shards.iter_mut().map(|shard| shard.handler().asked.len()).collect()
    }
}

#[test]
fn a_handler_learns_the_address_of_a_request() {
    let mut scene = Scene::new(|_| {}, |_| {});
    let id = scene.begin();
    assert_eq!(scene.outcome(id), None);
    let all = scene.shards.iter_mut().flat_map(|shard| shard.handler().asked.drain(..));
    let [(from, private)] = all.collect::<Vec<_>>().try_into().expect("one was asked, once");
    assert_eq!(from.origin(), scene.at.origin());
    assert!(PrivateData::decode(&private).is_some(), "what the peer sent along (RFC 8797)");
}

#[test]
fn a_peer_of_any_version_learns_that_it_is_not_admitted() {
    for version in ["auto", "one", "two"] {
        let mut scene = Scene::new(|_| {}, |raw| raw.protocol.version = version.into());
        scene.shards.iter_mut().for_each(|shard| shard.handler().refuses = true);
        let id = scene.begin();
        let refused = ConnectError::Rejected(Rejection::Refused { code: 0 });
        assert_eq!(scene.outcome(id), Some(refused), "{version}");
        assert_eq!(scene.asked().iter().sum::<usize>(), 1, "it is not tried in another version");
        assert_eq!(scene.places(), [0, 0]);
        assert_eq!(scene.client.handle().connections(), 0);
    }
}

#[test]
fn a_request_without_a_timely_answer_is_rejected_and_holds_a_place_until_then() {
    let mut scene = Scene::new(|raw| raw.connections.connect_timeout = "1ms".into(), |_| {});
    let id = scene.begin();
    // The shards are not polled: they do not delay the control plane.
    let outcome = loop {
        scene.step_without();
        if let Some(outcome) = scene.client.connected(id) {
            break outcome;
        }
    };
    assert_eq!(outcome, Err(ConnectError::Rejected(Rejection::Busy)));
    assert_eq!(scene.places().iter().sum::<usize>(), 1, "a shard still has the question");
    for _ in 0..4 {
        scene.step();
    }
    assert_eq!(scene.asked().iter().sum::<usize>(), 1);
    assert_eq!(scene.places(), [0, 0], "its answer comes too late, and frees the place");
    let id = scene.begin();
    scene.step();
    scene.step();
    assert_eq!(scene.outcome(id), None);
}

#[test]
fn requests_to_a_shard_that_does_not_answer_are_limited_by_its_places() {
    let mut scene = Scene::new(|_| {}, |raw| raw.connections.max = 8);
    let ids = [(); 8].map(|()| scene.begin());
    let mut rejected = 0;
    for _ in 0..STEPS {
        scene.step_without();
        rejected += ids.iter().filter(|id| scene.client.connected(**id).is_some()).count();
    }
    let max = usize::try_from(small().connections.max).expect("a few");
    assert_eq!((scene.places(), rejected), (vec![max; 2], 8 - 2 * max));
}

#[test]
fn another_shard_is_asked_when_one_ends_or_stops_before_it_answers() {
    for is_dropped in [true, false] {
        let mut scene = Scene::new(|_| {}, |_| {});
        let id = scene.begin();
        while scene.places().iter().sum::<usize>() == 0 {
            scene.step_without();
        }
        let at = scene.places().iter().position(|count| *count > 0).expect("one was asked");
        if is_dropped {
            drop(scene.shards.remove(at));
        } else {
            scene.shards[at].handle().stop();
        }
        assert_eq!(scene.outcome(id), None, "the other one serves it");
        let other = scene.shards.iter().filter(|shard| shard.handle().connections() > 0);
        assert_eq!(other.count(), 1);
    }
}

#[test]
fn a_request_ends_with_the_control_plane() {
    let mut scene = Scene::new(|_| {}, |_| {});
    let id = scene.begin();
    while scene.places().iter().sum::<usize>() == 0 {
        scene.step_without();
    }
    // The control plane is dropped with the question open; the shard has no one to answer.
    let (other, control) = Engine::without_threads(Fabric::new(), checked(&small())).expect("one");
    drop(std::mem::replace(&mut scene.controls[0], control));
    assert_eq!(scene.outcome(id), Some(ConnectError::Rejected(Rejection::Stopping)));
    scene.step();
    assert_eq!(scene.places(), [0, 0]);
    drop(other);
}

#[test]
fn an_ipv4_address_in_ipv6_is_the_ipv4_address() {
    let mapped = || "[::ffff:127.0.0.1]:0".parse::<Address>().expect("an address");
    for (allow, deny, may) in
        [("127.0.0.0/8", None, true), ("::/0", None, false), ("::ffff:127.0.0.1", None, true)]
            .into_iter()
            .chain([("0.0.0.0/0", Some("127.0.0.1"), false), ("0.0.0.0/0", Some("::/0"), true)])
    {
        let mut scene = Scene::new(
            |raw| {
                raw.connections.allow = vec![allow.to_owned()];
                raw.connections.deny = deny.map(str::to_owned).into_iter().collect();
            },
            |_| {},
        );
        let ipv4 = scene.at;
        scene.at = scene.controls[0].listen(mapped()).expect("a port");
        let expected = (!may).then_some(ConnectError::Rejected(Rejection::NotAllowed));
        for at in [ipv4, scene.at] {
            scene.at = at;
            let id = scene.begin();
            assert_eq!(scene.outcome(id), expected, "{at}: {allow}, {deny:?}");
        }
    }
    // And both are one peer.
    let mut scene = Scene::new(|raw| raw.connections.max_per_peer = 1, |_| {});
    let id = scene.begin();
    assert_eq!(scene.outcome(id), None);
    scene.at = scene.controls[0].listen(mapped()).expect("a port");
    let id = scene.begin();
    assert_eq!(scene.outcome(id), Some(ConnectError::Rejected(Rejection::PeerFull)));
}

#[test]
fn a_peer_whose_shard_stops_and_that_no_other_takes_learns_it() {
    let mut scene = Scene::new(|_| {}, |_| {});
    scene.step();
    let id = scene.begin();
    scene.controls[1].step(Duration::ZERO);
    // The request is there, and no shard has taken it.
    scene.shards.iter().for_each(|shard| shard.handle().stop());
    let stopping = ConnectError::Rejected(Rejection::Stopping);
    assert_eq!(scene.outcome(id), Some(stopping));
    assert!(Rejection::Stopping.is_transient());
    assert_eq!(scene.controls[0].admissions().stopping, 1);
    let id = scene.begin();
    assert_eq!(scene.outcome(id), Some(ConnectError::NoListener), "there is no listener any more");
}

#[test]
fn connections_of_a_shard_that_is_gone_count_no_more() {
    let serve = |raw: &mut Raw| raw.connections.max_per_peer = 2;
    let mut scene = Scene::new(serve, |raw| raw.connections.max = 4);
    for _ in 0..2 {
        let id = scene.begin();
        assert_eq!(scene.outcome(id), None);
    }
    assert_eq!(scene.places(), [1, 1]);
    let id = scene.begin();
    assert_eq!(scene.outcome(id), Some(ConnectError::Rejected(Rejection::PeerFull)));
    drop(scene.shards.remove(0));
    let id = scene.begin();
    assert_eq!(scene.outcome(id), None);
    assert_eq!(scene.places(), [2]);
}

#[test]
fn a_request_that_is_not_answered_counts_until_its_shard_has_answered() {
    let serve = |raw: &mut Raw| {
        raw.connections.connect_timeout = "1ms".into();
        raw.connections.max_per_peer = 1;
    };
    let mut scene = Scene::new(serve, |_| {});
    for why in [Rejection::Busy, Rejection::PeerFull, Rejection::PeerFull] {
        let id = scene.begin();
        let outcome = loop {
            scene.step_without();
            if let Some(outcome) = scene.client.connected(id) {
                break outcome;
            }
        };
        assert_eq!(outcome, Err(ConnectError::Rejected(why)));
    }
    assert_eq!(scene.places().iter().sum::<usize>(), 1, "it has not more than one place");
    for _ in 0..4 {
        scene.step();
    }
    let id = scene.begin();
    scene.step();
    scene.step();
    assert_eq!(scene.outcome(id), None);
}

#[test]
fn every_code_of_a_program_arrives() {
    let mut scene = Scene::new(|_| {}, |_| {});
    for code in [0, 1, 0x1234, u16::MAX] {
        for shard in &mut scene.shards {
            shard.handler().code = Some(code);
        }
        let id = scene.begin();
        let refused = ConnectError::Rejected(Rejection::Refused { code });
        assert_eq!(scene.outcome(id), Some(refused));
    }
    assert_eq!(scene.controls[0].admissions().refused, 4);
}

/// docs/security.md: what one peer can hold.
#[test]
fn a_peer_with_all_its_connections_leaves_the_rest_to_others() {
    let (connections, credits) = (2, 4);
    let mut plan = Plan { servers: 2, clients: 2, ..Plan::default() };
    plan.serve.connections.max = 4;
    plan.serve.connections.max_per_peer = connections;
    plan.serve.connections.credits = credits;
    plan.serve.connections.request_transmissions_max = credits;
    plan.call.connections.max = 4;
    let fabric = Fabric::new();
    let mut world = World::new(&|| fabric.clone(), &plan);
    let peers = [(); 2].map(|()| world.connect(0));
    assert_eq!(world.try_connect(0), Err(ConnectError::Rejected(Rejection::PeerFull)));
    let never = Script::new(1, &[Part::Bulk(20_000)], &[]).order(Order::Never);
    for _ in 0..50 {
        for peer in peers {
            let _ = world.call(0, peer, &never);
        }
        world.quiesce();
    }
    let held = |world: &World<Fabric>| {
        let audits = world.servers.iter().flat_map(|server| server.audit().peers);
        audits.map(|peer| i64::from(peer.outstanding)).sum::<i64>()
    };
    assert_eq!(held(&world), connections * credits, "all that it may have, and no more");
    // The same client from another host.
    let other = "127.0.0.2:0".parse::<Address>().expect("an address");
    world.at = world.controls[0].listen(other).expect("a port");
    for client in [1, 0] {
        let peer = world.connect(client);
        for id in 0..20 {
            let script = Script::new(id, &[Part::Bulk(5_000)], &[Part::Bulk(5_000)]);
            world.call(client, peer, &script).expect("it has credits");
            world.until("it is answered", |world| world.check_done() == 1);
        }
    }
    assert_eq!(world.try_connect(1), Err(ConnectError::Rejected(Rejection::PeerFull)));
    assert_eq!(held(&world), connections * credits);
}

/// Peers that ask without end do not keep the control plane from the rest of its work.
#[test]
fn a_step_answers_a_limited_number_of_requests() {
    let mut scene = Scene::new(
        |raw| raw.connections.deny = vec!["127.0.0.0/8".to_owned()],
        |raw| raw.connections.max = ASKING as i64,
    );
    for _ in 0..ASKING {
        scene.begin();
    }
    let [here, there] = &mut scene.controls;
    there.step(Duration::ZERO);
    here.step(Duration::ZERO);
    let answered = here.admissions().not_allowed;
    assert!((1..ASKING as u64).contains(&answered), "{answered}");
    here.step(Duration::ZERO);
    assert_eq!(here.admissions().not_allowed, ASKING as u64);
}

/// More than a step answers, and fewer than two.
const ASKING: usize = 100;

/// Peers who connect without end do not keep the control plane from the rest.
#[test]
fn a_step_handles_so_many_requests_and_no_more() {
    let deny = |raw: &mut Raw| raw.connections.deny = vec!["127.0.0.1".into()];
    let mut scene = Scene::new(deny, |raw| raw.connections.max = 100);
    for _ in 0..100 {
        scene.begin();
    }
    let [serving, calling] = &mut scene.controls;
    calling.step(Duration::ZERO);
    for handled in [64, 100] {
        serving.step(Duration::ZERO);
        assert_eq!(serving.admissions().not_allowed, handled);
    }
}
