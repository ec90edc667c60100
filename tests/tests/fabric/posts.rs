//! Outcomes of posts: requests that the driver took are not posted again, those that it did not
//! take are, and its error is used as far as it can be true.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rpcrdma::{CallError, CloseReason, ConnectionId, Execution, Fabric};
use rpcrdma_testing::fault::{FaultLog, FaultPlan, FaultyProvider};
use rpcrdma_tests::checked_provider::{CheckedProvider, Watch};
use rpcrdma_tests::script::{Order, Part, Script};
use rpcrdma_tests::suite::owned::check_owned;
use rpcrdma_tests::world::{Plan, World, is_passing};

type Device = CheckedProvider<FaultyProvider<Fabric>>;

/// A world with planned faults of posts, after all connections are established.
struct Scene {
    world: World<Device>,
    watch: Arc<Watch>,
    logs: Vec<Arc<FaultLog>>,
    /// The server, as the client calls it.
    peer: ConnectionId,
    /// Receives that are posted while nothing happens.
    receives: i64,
}

impl Scene {
    fn new(faults: FaultPlan) -> Scene {
        let (fabric, watch) = (Fabric::new(), Arc::new(Watch::default()));
        let logs = Mutex::new(Vec::new());
        let open = || {
            let faulty = FaultyProvider::new(fabric.clone(), faults);
            // A shard that cannot post its Receives when it is made is not made.
            faulty.hooks().log().end();
            logs.lock().expect("one thread").push(faulty.hooks().log());
            CheckedProvider::new(faulty, Arc::clone(&watch))
        };
        let plan = Plan::both(|raw| {
            raw.connections.credits = 24;
            raw.connections.credits_requested = 24;
            raw.receive.spares = 64;
        });
        let (mut world, peer) = World::pair(&open, &plan);
        world.quiesce();
        let receives = watch.receives.load(Ordering::Relaxed);
        Scene { world, watch, logs: logs.into_inner().expect("one thread"), peer, receives }
    }

    /// From now on things go wrong, or do no more.
    fn go(&self, wrong: bool) {
        self.logs.iter().for_each(|log| if wrong { log.begin() } else { log.end() });
    }

    /// Makes calls of all kinds, over a new connection whenever there is none. Returns how they
    /// ended.
    fn calls(&mut self) -> Vec<Result<(), CallError>> {
        let world = &mut self.world;
        let mut made = 0;
        let mut scripts = workload().into_iter();
        let mut next = scripts.next();
        let mut peer = Some(self.peer);
        let mut ends = Vec::new();
        for _ in 0..20_000 {
            let to = match peer.filter(|_| world.clients[0].handle().connections() > 0) {
                Some(to) => Some(to),
                None => world.try_connect(0).ok(),
            };
            peer = to;
            while let (Some(script), Some(to)) = (&next, to) {
                match world.call(0, to, script) {
                    Ok(_) => made += 1,
                    Err(why) if is_passing(why) => break,
                    Err(_) => {
                        peer = None;
                        break;
                    }
                }
                next = scripts.next();
            }
            world.turn();
            for done in world.done.drain(..) {
                if done.result.is_ok() {
                    done.check();
                }
                ends.push(done.result.map(drop));
            }
            if next.is_none() && world.open_calls() == 0 {
                break;
            }
        }
        assert!(next.is_none(), "every call is made");
        assert_eq!(ends.len(), made, "and completed once");
        ends
    }

    /// The device has no unexpected requests, and nothing was lost.
    fn check_home(mut self) {
        self.go(false);
        self.world.quiesce();
        self.world.check_all_returned();
        self.world.check_nothing_leaked();
        let posted = self.watch.receives.load(Ordering::Relaxed);
        assert_eq!(posted, self.receives, "all Receives are posted");
        let Scene { world, watch, .. } = self;
        drop(world);
        assert_eq!(watch.regions.load(Ordering::Relaxed), 0, "all memory was released");
    }
}

fn workload() -> Vec<Script> {
    let bulk = [Part::Inline(8), Part::Bulk(60_000), Part::Inline(3)];
    let small = [Part::Inline(64)];
    let mut scripts = Vec::new();
    for seed in 0..20 {
        scripts.push(Script::new(seed, &small, &small));
        scripts.push(Script::new(seed, &bulk, &small));
        scripts.push(Script::new(seed, &small, &small).order(Order::Later));
        scripts.push(Script::new(seed, &small, &bulk));
        scripts.push(Script::new(seed, &[Part::Inline(3_000)], &[Part::Inline(4_000)]));
        scripts.push(Script::new(seed, &bulk, &bulk).order(Order::Later));
        scripts.push(Script::new(seed, &small, &small));
    }
    scripts
}

const ALWAYS: u32 = 1_000_000;
const OFTEN: u32 = 400_000;

/// Posts that end so, each with how often it happens.
fn plans() -> [(&'static str, FaultPlan); 5] {
    let plan = FaultPlan { seed: 1, polls_late_max: 5, ..FaultPlan::default() };
    [
        (
            "all are taken, and there is an error",
            FaultPlan { send_failed_ppm: ALWAYS, recv_failed_ppm: ALWAYS, ..plan },
        ),
        (
            "some are taken, and there is an error",
            FaultPlan { send_cut_ppm: ALWAYS, recv_cut_ppm: ALWAYS, ..plan },
        ),
        (
            "none is taken, and there is an error",
            FaultPlan { send_refused_ppm: OFTEN, recv_refused_ppm: OFTEN, ..plan },
        ),
        (
            "not all are taken, and there is no error",
            FaultPlan { send_silent_ppm: OFTEN, recv_silent_ppm: OFTEN, ..plan },
        ),
        (
            "now this, now that",
            FaultPlan {
                send_failed_ppm: OFTEN,
                send_cut_ppm: OFTEN,
                send_refused_ppm: OFTEN,
                send_silent_ppm: OFTEN,
                recv_failed_ppm: OFTEN,
                recv_cut_ppm: OFTEN,
                recv_refused_ppm: OFTEN,
                recv_silent_ppm: OFTEN,
                completion_delayed_ppm: OFTEN,
                ..plan
            },
        ),
    ]
}

#[test]
fn every_call_is_executed_once_whatever_a_post_reports() {
    for (what, faults) in plans() {
        let mut scene = Scene::new(faults);
        scene.go(true);
        let ends = scene.calls();
        assert!(ends.iter().all(Result::is_ok), "{what}: {ends:?}");
        let executed = scene.world.servers[0].handler().calls;
        assert_eq!(executed, ends.len() as u64, "{what}");
        let faults = scene.logs.iter().flat_map(|log| log.counts());
        let refused = faults.filter(|(name, _)| name.starts_with("sends_"));
        let refused: u64 = refused.map(|(_, count)| count).sum();
        assert!(refused > 20, "{what}: it has happened");
        assert_eq!(scene.world.servers[0].handle().connections(), 1, "{what}");
        scene.check_home();
    }
}

#[test]
fn items_between_short_messages_keep_their_order_through_a_refused_post() {
    let item = |len| [Part::Inline(5), Part::Bulk(len)];
    for (what, faults) in plans() {
        let mut wrong = 0;
        for seed in 0..12 {
            let mut scene = Scene::new(FaultPlan { seed, ..faults });
            scene.world.lends = true;
            let short = Script::new(seed as u32, &[Part::Inline(40)], &[]);
            scene.world.round(0, scene.peer, &short);
            scene.go(true);
            let made = [&short.call[..], &item(4_000), &short.call, &item(9_000), &short.call];
            let made = made.map(|parts| {
                let script = Script::new(seed as u32, parts, &[]);
                scene.world.call(0, scene.peer, &script).expect("a credit")
            });
            let audit = scene.world.clients[0].shard().audit();
            assert_eq!((audit.messages.held, audit.send.held, audit.bulk.leaving), (2, 5, 2));
            assert_eq!(audit.peers[0].pending, 0, "it is one batch");
            check_owned(&scene.world.clients[0].shard().audit());
            scene.world.turn_client(0);
            check_owned(&scene.world.clients[0].shard().audit());
            wrong += scene.logs.iter().flat_map(|log| log.counts()).map(|(_, n)| n).sum::<u64>();
            scene.go(false);
            let done = scene.world.finish();
            let order: Vec<u64> = done.iter().map(|done| done.cookie).collect();
            assert_eq!(order, made, "{what}: {seed}");
            done.iter().for_each(|done| _ = done.check());
            assert_eq!(scene.world.servers[0].handler().calls, 6, "{what}: {seed}");
            scene.world.quiesce();
            let audit = scene.world.clients[0].shard().audit();
            assert_eq!((audit.messages.held, audit.send.held), (0, 0), "{what}: {seed}");
            check_owned(&scene.world.clients[0].shard().audit());
            scene.check_home();
        }
        assert!(wrong > 3, "{what}: it has happened {wrong} times");
    }
}

/// Whether a call was lost because its peer is gone.
fn is_gone(end: &Result<(), CallError>) -> bool {
    matches!(end, Err(CallError::ConnectionLost(CloseReason::PeerGone, _)))
}

/// Calls of which nothing was sent, as their errors state.
fn unsent(ends: &[Result<(), CallError>]) -> usize {
    let is_unsent = |end: &&Result<(), CallError>| {
        end.is_err_and(|error| error.execution() == Execution::NotExecuted)
    };
    ends.iter().filter(is_unsent).count()
}

#[test]
fn a_queue_pair_reported_as_gone_ends_its_connection() {
    for seed in 0..8 {
        let faults = FaultPlan { seed, send_gone_ppm: 50_000, ..FaultPlan::default() };
        let mut scene = Scene::new(faults);
        scene.go(true);
        let ends = scene.calls();
        let lost = |end: &&Result<(), CallError>| **end != Ok(());
        assert!(ends.iter().filter(lost).all(is_gone), "{ends:?}");
        let executed = scene.world.servers[0].handler().calls as usize;
        let answered = ends.iter().filter(|end| end.is_ok()).count();
        let sent = ends.len() - unsent(&ends);
        assert!((answered..=sent).contains(&executed), "{executed} of {}", ends.len());
        assert!(answered < ends.len(), "it has happened");
        let closed = scene.world.servers[0].handle().stats().connections_closed;
        assert!(closed > 0);
        scene.check_home();
    }
}

#[test]
fn an_error_of_a_completely_taken_post_is_processed() {
    let mut executed = 0;
    for calls in [1, 3] {
        for seed in 0..10 {
            let mut scene =
                Scene::new(FaultPlan { seed, send_gone_ppm: ALWAYS, ..FaultPlan::default() });
            let (world, peer) = (&mut scene.world, scene.peer);
            scene.logs[1].begin();
            for id in 0..calls {
                let script = Script::new(id, &[Part::Inline(8)], &[Part::Inline(8)]);
                world.call(0, peer, &script).expect("a credit");
            }
            (0..3).for_each(|_| world.turn_client(0));
            let done: Vec<_> = world.done.drain(..).map(|done| done.result.map(drop)).collect();
            assert_eq!(done.len(), calls as usize, "no call is left");
            assert!(done.iter().all(is_gone), "{done:?}");
            world.quiesce();
            let here = world.servers[0].handler().calls;
            assert!(here as usize <= done.len() - unsent(&done), "{here}: {done:?}");
            executed += here;
            world.check_nothing_leaked();
        }
    }
    assert!((10..30).contains(&executed), "{executed} of 40 were taken");
}

#[test]
fn a_completion_of_a_refused_request_ends_the_connection_only() {
    let (mut unasked, mut answered) = (0, 0);
    for seed in 0..24 {
        let faults = FaultPlan {
            seed,
            send_cut_ppm: 100_000,
            send_refused_ppm: 20_000,
            send_ghost_ppm: 200_000,
            recv_cut_ppm: 100_000,
            recv_refused_ppm: 100_000,
            recv_ghost_ppm: 200_000,
            completion_delayed_ppm: 300_000,
            polls_late_max: 1 + 8 * (seed as u32 % 3),
            ..FaultPlan::default()
        };
        let mut scene = Scene::new(faults);
        scene.go(true);
        let ends = scene.calls();
        for end in ends.iter().filter(|end| end.is_err()) {
            let lost = [CloseReason::Unasked, CloseReason::PeerGone];
            let Err(CallError::ConnectionLost(why, _)) = end else { panic!("{end:?}") };
            assert!(lost.contains(why), "{end:?}");
        }
        answered += ends.iter().filter(|end| end.is_ok()).count();
        unasked += scene.world.servers[0].handle().stats().completions_unasked;
        unasked += scene.world.clients[0].handle().stats().completions_unasked;
        scene.check_home();
    }
    assert!(unasked > 20, "{unasked} times");
    assert!(answered > 1_000, "{answered} calls went through");
}

#[test]
fn a_shard_whose_device_takes_no_receives_ends_and_reports_it() {
    let mut scene = Scene::new(FaultPlan { recv_gone_ppm: ALWAYS, ..FaultPlan::default() });
    let (world, peer) = (&mut scene.world, scene.peer);
    scene.logs[0].begin();
    let script = Script::new(1, &[Part::Inline(64)], &[Part::Inline(64)]);
    world.until("the connection ends", |world| {
        let _ = world.call(0, peer, &script);
        world.clients[0].handle().connections() == 0 && world.open_calls() == 0
    });
    let ends: Vec<_> = world.done.iter().map(|done| done.result.clone().map(drop)).collect();
    assert!(ends.contains(&Ok(())), "what arrived before was answered");
    world.until("the shard ends", |world| world.servers[0].is_stopped());
    let closed = &world.servers[0].handler().closed;
    assert_eq!(closed.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [CloseReason::DeviceLost]);
    assert_eq!(world.servers[0].handle().stats().devices_lost, 1);
    world.check_nothing_leaked();
}
