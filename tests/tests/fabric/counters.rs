//! Counters wrap under traffic: outstanding requests are found by their identifiers, and completed
//! ones are not.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rpcrdma::{CallRefused, ConnectionId, Fabric};
use rpcrdma_testing::fault::{FaultLog, FaultPlan, FaultyProvider};
use rpcrdma_tests::checked_provider::{CheckedProvider, Watch};
use rpcrdma_tests::script::{Order, Part, Place, Script};
use rpcrdma_tests::world::{Plan, World, is_passing};

type Device = CheckedProvider<FaultyProvider<Fabric>>;

/// Two clients with two connections each, in a world where things go wrong as planned.
struct Scene {
    world: World<Device>,
    watch: Arc<Watch>,
    /// Which client each connection is of.
    peers: Vec<(usize, ConnectionId)>,
}

impl Scene {
    fn new(faults: FaultPlan, plan: &Plan) -> Scene {
        let (fabric, watch) = (Fabric::new(), Arc::new(Watch::default()));
        let logs: Mutex<Vec<Arc<FaultLog>>> = Mutex::new(Vec::new());
        let open = || {
            let faulty = FaultyProvider::new(fabric.clone(), faults);
            // A shard that cannot post its Receives when it is made is not made.
            faulty.hooks().log().end();
            logs.lock().expect("one thread").push(faulty.hooks().log());
            CheckedProvider::new(faulty, Arc::clone(&watch))
        };
        let mut world = World::new(&open, plan);
        let peers = [0, 1, 0, 1].map(|client| (client, world.connect(client))).to_vec();
        world.quiesce();
        logs.into_inner().expect("one thread").iter().for_each(|log| log.begin());
        Scene { world, watch, peers }
    }

    /// As many calls of all connections in turn as can be under way at one time, all of them right.
    fn calls(&mut self, count: u32, script: impl Fn(u32) -> Script) {
        let mut checked = 0;
        for seed in 0..count {
            let (client, peer) = self.peers[seed as usize % self.peers.len()];
            let script = script(seed);
            let mut is_made = false;
            self.world.until("a call is made", |world| {
                is_made = match world.call(client, peer, &script) {
                    Ok(_) => true,
                    Err(why) if is_passing(why) => false,
                    Err(why) => panic!("{why}: {script:?}"),
                };
                is_made
            });
            checked += self.world.check_done();
        }
        checked += self.world.check_all();
        assert_eq!(checked, count as usize, "each call is answered once");
    }
}

fn plan() -> Plan {
    Plan {
        clients: 2,
        ..Plan::both(|raw| {
            raw.connections.max = 4;
            raw.receive.spares = 64;
        })
    }
}

fn mixed(seed: u32) -> Script {
    let small = [Part::Inline(64 + seed % 300)];
    let bulk = [Part::Inline(8), Part::Bulk(9_000 + seed % 5), Part::Inline(3)];
    match seed % 5 {
        0 | 1 => Script::new(seed, &small, &small),
        2 => Script::new(seed, &small, &small).order(Order::Later),
        3 => Script::new(seed, &[Part::Inline(3_000)], &bulk),
        _ => Script::new(seed, &bulk, &small).order(Order::Later),
    }
}

fn count(rounds: &AtomicU64) -> u64 {
    rounds.load(Ordering::Relaxed)
}

#[test]
fn numbers_of_sends_wrap_while_sends_are_outstanding() {
    let mut scene = Scene::new(FaultPlan::default(), &plan());
    scene.calls(200, mixed);
    // Both ends of four connections, if not all of them just when nothing was outstanding.
    assert!((2..=8).contains(&count(&scene.watch.rounds.sends)), "{:?}", scene.watch.rounds);
    scene.world.check_nothing_leaked();
}

#[test]
fn marks_of_refusals_wrap_while_earlier_posts_are_outstanding() {
    let faults = FaultPlan {
        send_cut_ppm: 300_000,
        send_refused_ppm: 300_000,
        recv_cut_ppm: 300_000,
        recv_refused_ppm: 300_000,
        completion_delayed_ppm: 300_000,
        polls_late_max: 5,
        ..FaultPlan::default()
    };
    let (mut sends, mut marks, mut receives) = (0, 0, 0);
    for seed in 0..8 {
        let mut scene = Scene::new(FaultPlan { seed, ..faults }, &plan());
        scene.calls(200, mixed);
        let rounds = &scene.watch.rounds;
        sends += count(&rounds.sends);
        marks += count(&rounds.send_marks);
        receives += count(&rounds.receive_marks);
        scene.world.check_nothing_leaked();
    }
    assert!(sends > 20 && marks > 20 && receives > 8, "{sends} {marks} {receives}");
}

#[test]
fn keys_of_windows_wrap_while_other_windows_are_bound() {
    let plan = Plan {
        clients: 2,
        ..Plan::both(|raw| {
            raw.connections.max = 4;
            raw.explicit.windows = "3".into();
        })
    };
    let mut scene = Scene::new(FaultPlan::default(), &plan);
    scene.calls(160, |seed| {
        let bulk = [Part::Bulk(20_000 + seed % 7)];
        let script = Script::new(seed, &[Part::Inline(8)], &bulk).place(Place::Into(1));
        if seed % 3 == 0 { script.order(Order::Later) } else { script }
    });
    assert!(count(&scene.watch.rounds.keys) >= 4, "{:?}", scene.watch.rounds);
    scene.world.check_all_returned();
    scene.world.check_nothing_leaked();
}

#[test]
fn ids_of_connections_wrap_while_others_have_open_calls() {
    let mut scene = Scene::new(FaultPlan::default(), &plan());
    let (client, lasting) = scene.peers[0];
    let mut names = HashSet::from([lasting]);
    for round in 0..6 {
        let held: Vec<u64> = (0..4)
            .map(|seed| {
                let script = mixed(seed).order(Order::Later);
                scene.world.call_when_possible(client, lasting, &script)
            })
            .collect();
        // The other connection of the client goes, with a call under way, and another comes.
        let (_, going) = scene.peers[2];
        assert!(names.insert(going), "round {round}: {going:?} was the name of another");
        let lost = scene.world.call_when_possible(client, going, &mixed(round).order(Order::Never));
        assert!(scene.world.clients[client].handle().close(going));
        let mut done = scene.world.finish();
        done.sort_by_key(|done| done.cookie);
        let (last, others) = done.split_last().expect("five calls");
        assert_eq!((last.cookie, last.peer, last.result.is_err()), (lost, going, true));
        assert_eq!(others.iter().map(|done| done.cookie).collect::<Vec<_>>(), held);
        others.iter().for_each(|done| assert!(done.peer == lasting && done.check().0 < 2));
        scene.world.quiesce();
        scene.peers[2].1 = scene.world.connect(client);
        for gone in names.iter().filter(|name| **name != lasting) {
            let refused = scene.world.call(client, *gone, &mixed(0));
            assert_eq!(refused, Err(CallRefused::NoPeer), "round {round}: {gone:?}");
        }
        scene.calls(40, mixed);
    }
    scene.world.check_nothing_leaked();
}
