//! Connections: establishing them, and their maximum number.

use std::net::SocketAddr;

use rpcrdma::provider::ConnectError;
use rpcrdma::{CallRefused, CloseReason, Provider, Rejection};

use crate::script::{Part, Random, Script};
use crate::service::TOO_MANY;
use crate::world::{Open, Plan, World};

/// A connection to an address without a listener fails, and its place is free again.
pub fn a_connect_without_a_listener_fails<P: Provider>(open: Open<'_, P>) {
    let mut world = World::new(open, &Plan::default());
    let served = world.at;
    world.at = match served.as_ip() {
        Some(served) => SocketAddr::new(served.ip(), 1).into(),
        None => "shm:@no listener here".parse().expect("an address"),
    };
    for _ in 0..10 {
        assert_eq!(world.try_connect(0), Err(ConnectError::NoListener));
    }
    assert_eq!(world.clients[0].handle().connections(), 0);
    world.at = served;
    let peer = world.connect(0);
    world.round(0, peer, &Script::new(1, &[], &[]));
}

/// A server with as many connections as it may have rejects; when one ends there is room.
pub fn a_full_server_rejects<P: Provider>(open: Open<'_, P>) {
    let plan = Plan { clients: 2, ..Plan::default() };
    let mut world = World::new(open, &plan);
    let peers = [world.connect(0), world.connect(0)];
    for _ in 0..5 {
        assert_eq!(world.try_connect(1), Err(ConnectError::Rejected(Rejection::Full)));
    }
    assert!(world.clients[0].handle().close(peers[0]));
    world.until("it has room", |world| world.servers[0].handle().connections() == 1);
    let late = world.connect(1);
    world.round(1, late, &Script::new(1, &[], &[]));
    world.round(0, peers[1], &Script::new(2, &[], &[]));
}

/// A client with as many connections as it may have does not even try.
pub fn a_full_client_does_not_connect<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan::default();
    plan.serve.connections.max = 4;
    let mut world = World::new(open, &plan);
    let peers = [world.connect(0), world.connect(0)];
    assert_eq!(world.try_connect(0), Err(ConnectError::NoRoom));
    assert!(world.clients[0].handle().close(peers[0]));
    world.until("it has room", |world| world.clients[0].handle().connections() == 1);
    world.connect(0);
    assert_eq!(world.servers[0].handle().stats().connections_established, 3);
}

/// A handler that closes a new connection.
pub fn a_handler_refuses_a_connection<P: Provider>(open: Open<'_, P>) {
    let mut world = World::new(open, &Plan::default());
    world.servers[0].handler().refuses = true;
    // The properties were exchanged before the handler was asked, so the client may have been up.
    let outcome = world.try_connect(0);
    assert!(outcome != Err(ConnectError::TimedOut), "{outcome:?}");
    world.until("both have closed", |world| {
        world.servers[0].handle().connections() + world.clients[0].handle().connections() == 0
    });
    let closed = &world.servers[0].handler().closed;
    assert!(matches!(closed.as_slice(), [(_, CloseReason::Refused)]), "{closed:?}");
    if let Ok(peer) = outcome {
        let refused = world.call(0, peer, &Script::new(1, &[], &[]));
        assert_eq!(refused, Err(CallRefused::NoPeer));
    }
    world.servers[0].handler().refuses = false;
    let peer = world.connect(0);
    world.round(0, peer, &Script::new(1, &[], &[]));
}

/// If a handler does not admit a peer, only that attempt fails: the peer may try again.
pub fn a_peer_is_rejected_before_it_is_accepted<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { clients: 2, ..Plan::default() };
    plan.serve.connections.max = 4;
    let mut world = World::new(open, &plan);
    world.servers[0].handler().per_host_max = Some(1);
    let first = world.connect(0);
    world.round(0, first, &Script::new(1, &[], &[]));
    for _ in 0..3 {
        let refused = ConnectError::Rejected(Rejection::Refused { code: TOO_MANY });
        assert_eq!(world.try_connect(1), Err(refused));
        assert_eq!(world.clients[1].handle().connections(), 0, "it was never connected");
    }
    let stats = world.servers[0].handle().stats();
    assert_eq!((stats.connections_established, stats.connections_not_admitted), (1, 3));
    assert_eq!(world.servers[0].handle().connections(), 1, "and holds no place");
    let asked: Vec<_> = world.servers[0].handler().asked.drain(..).collect();
    let host = asked[0].0.origin();
    assert!(asked.iter().all(|(from, _)| from.origin() == host), "{asked:?}");
    assert!(world.at.as_ip().is_none_or(|_| host == world.at.origin()));
    assert_eq!(asked.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [0, 1, 1, 1]);
    world.round(0, first, &Script::new(3, &[], &[]));
    assert!(world.clients[0].handle().close(first));
    world.until("it is gone", |world| world.servers[0].handle().connections() == 0);
    let second = world.connect(1);
    world.round(1, second, &Script::new(2, &[], &[]));
    world.check_nothing_leaked();
}

/// Peers that connect at the same time are counted before they are connected.
pub fn two_simultaneous_requests_of_a_host_count_twice<P: Provider>(open: Open<'_, P>) {
    let mut world = World::new(open, &Plan::default());
    world.servers[0].handler().per_host_max = Some(1);
    let to = world.at;
    let ids = [(); 2].map(|()| world.clients[0].begin_connect(to).expect("there is room"));
    let outcomes = ids.map(|id| world.outcome(0, id));
    let connected = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(connected, 1, "{outcomes:?}");
    let refused = Err(ConnectError::Rejected(Rejection::Refused { code: TOO_MANY }));
    assert!(outcomes.contains(&refused), "{outcomes:?}");
}

/// A program can ask for the address of a peer while it is connected, on either side.
pub fn the_address_of_a_peer_is_known_while_it_is_connected<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let now = world.now;
    assert_eq!(world.clients[0].turn(now).address(peer), Some(world.at));
    let caller = world.servers[0].handler().connected[0];
    let (from, _) = world.servers[0].handler().asked[0];
    assert_eq!(world.servers[0].turn(now).address(caller), Some(from));
    assert!(world.clients[0].handle().close(peer));
    world.until("it is gone", |world| world.servers[0].handle().connections() == 0);
    assert_eq!(world.clients[0].turn(now).address(peer), None);
    assert_eq!(world.servers[0].turn(now).address(caller), None);
    // The next one has the same place.
    world.connect(0);
    assert_eq!(world.servers[0].turn(now).address(caller), None);
}

/// The lists of the configuration decide before the handler is asked, and hold nothing for a peer
/// that they do not name.
pub fn the_configuration_decides_who_may_connect<P: Provider>(open: Open<'_, P>) {
    let networks = ["0.0.0.0/0", "::/0"].map(str::to_owned);
    let users = [format!("uid:{}", rustix::process::getuid().as_raw())];
    let is_shm = open.at().as_ip().is_none();
    let (ours, others) = match is_shm {
        true => (&users[..], &networks[..]),
        false => (&networks[..], &users[..]),
    };
    let strangers = ["203.0.113.9", "uid:4294967290"].map(str::to_owned);
    for (allow, deny, may) in [
        (ours, &[][..], true),
        (&strangers, &[], false),
        (others, &[], false),
        (&[], ours, false),
        (&[], others, true),
        (&[], &strangers, true),
        (ours, ours, false),
        (&[ours, others].concat(), &strangers, true),
    ] {
        let mut plan = Plan::default();
        plan.serve.connections.allow = allow.to_vec();
        plan.serve.connections.deny = deny.to_vec();
        let mut world = World::new(open, &plan);
        for _ in 0..3 {
            let outcome = world.try_connect(0);
            if may {
                world.round(0, outcome.expect("it is named"), &Script::new(1, &[], &[]));
                break;
            }
            assert_eq!(outcome, Err(ConnectError::Rejected(Rejection::NotAllowed)));
        }
        let counted = world.controls[0].admissions();
        let expected = if may { (1, 0) } else { (0, 3) };
        assert_eq!((counted.accepted, counted.not_allowed), expected, "{allow:?} {deny:?}");
        assert_eq!(world.servers[0].handler().asked.len() as u64, counted.accepted);
        assert_eq!(world.servers[0].handle().connections() as u64, counted.accepted);
    }
}

/// A peer has as many connections as it may have, on whichever shards they are.
pub fn the_connections_of_a_peer_are_counted_over_all_shards<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { servers: 2, clients: 2, ..Plan::default() };
    plan.serve.connections.max = 4;
    plan.serve.connections.max_per_peer = 3;
    plan.call.connections.max = 4;
    let mut world = World::new(open, &plan);
    let full = Err(ConnectError::Rejected(Rejection::PeerFull));
    let mut peers: Vec<_> = [0, 1, 0].map(|client| (client, world.connect(client))).into();
    for round in 0..4 {
        for client in [0, 1] {
            assert_eq!(world.try_connect(client), full);
        }
        let asked: usize = world.servers.iter_mut().map(|it| it.handler().asked.len()).sum();
        assert_eq!(asked, peers.len() + round, "a handler is not asked about those");
        for &(client, peer) in &peers {
            world.round(client, peer, &Script::new(1, &[], &[]));
        }
        let (client, peer) = peers.remove(0);
        assert!(world.clients[client].handle().close(peer));
        world.until("it is gone", |world| {
            world.servers.iter().map(|server| server.handle().connections()).sum::<usize>() == 2
        });
        // From another shard of the same peer.
        peers.push((1 - client, world.connect(1 - client)));
    }
    let counted = world.controls[0].admissions();
    assert_eq!((counted.accepted, counted.peer_full, counted.full), (7, 8, 0));
    world.check_nothing_leaked();
}

/// Several connections of one shard share its Receives and do not disturb each other.
pub fn connections_share_one_shard<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { clients: 3, ..Plan::default() };
    plan.serve.connections.max = 6;
    many_at_once(open, &plan, 3);
}

/// Several shards serve the same address in turn; several clients call them.
pub fn connections_go_to_shards_in_turn<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { servers: 3, clients: 2, ..Plan::default() };
    plan.call.connections.max = 3;
    let mut world = many_at_once(open, &plan, 2);
    for server in &mut world.servers {
        assert_eq!(server.handler().connected.len(), 2, "each has as many");
        assert!(server.handler().calls > 50, "each was called");
    }
}

/// Every connection has calls of all kinds in flight all the time.
fn many_at_once<P: Provider>(open: Open<'_, P>, plan: &Plan, clients: usize) -> World<P> {
    let mut world = World::new(open, plan);
    let peers: Vec<_> = (0..6).map(|at| (at % clients, world.connect(at % clients))).collect();
    let mut random = Random(99);
    let mut checked = 0;
    for _ in 0..600 {
        let (client, peer) = random.choose(&peers);
        world.call_when_possible(client, peer, &random.script(20_000));
        checked += world.check_done();
    }
    checked += world.check_all();
    assert_eq!(checked, 600);
    world.check_nothing_leaked();
    world
}

/// Connections are established and closed, and release all resources.
pub fn connections_come_and_go<P: Provider>(open: Open<'_, P>) {
    let (mut world, _) = World::pair(open, &Plan::default());
    for round in 0..60 {
        let peer = world.connect(0);
        let script = Script::new(round, &[Part::Bulk(round * 300)], &[Part::Bulk(round * 200)]);
        world.round(0, peer, &script);
        let server = *world.servers[0].handler().connected.last().expect("it is connected");
        match round % 2 {
            0 => assert!(world.clients[0].handle().close(peer)),
            _ => assert!(world.servers[0].handle().close(server)),
        }
        world.until("it is gone on both sides", |world| {
            world.servers[0].handle().connections() + world.clients[0].handle().connections() == 2
        });
        let refused = world.call(0, peer, &script);
        assert_eq!(refused, Err(CallRefused::NoPeer), "the name is stale");
    }
    let stats = world.servers[0].handle().stats();
    assert_eq!((stats.connections_established, stats.connections_closed), (61, 60));
    world.check_nothing_leaked();
}
