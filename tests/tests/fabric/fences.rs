//! Memory that peers can access: open during its call, and closed before the call completes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rpcrdma::provider::DeviceCaps;
use rpcrdma::shard::audit::Audit;
use rpcrdma::{
    CallError, CallRefused, CloseReason, ConnectionId, Execution, Fabric, Provider, Sink, Want,
};
use rpcrdma_mempool::RegisteredBytes;
use rpcrdma_testing::fault::{FaultPlan, FaultyProvider};
use rpcrdma_tests::checked_provider::{CheckedProvider, Watch, Weaken};
use rpcrdma_tests::script::{Order, POISON, Part, Script, part_offset, write_parts, write_pattern};
use rpcrdma_tests::world::{Plan, World, large};

/// Bytes of an argument and of a result: more than any message takes in line.
const LEN: u32 = 50_001;

struct Scene<P: Provider = Fabric> {
    world: World<CheckedProvider<P>>,
    peer: ConnectionId,
    watch: Arc<Watch>,
}

impl Scene {
    /// A server and a client that move everything that is long by RDMA Read and Write.
    fn new() -> Scene {
        Scene::of(|_| {})
    }

    /// The same with a device that can do less.
    fn of(weaken: impl Fn(&mut DeviceCaps) + Sync) -> Scene {
        let fabric = Fabric::new();
        Scene::with(move || fabric.clone(), weaken, "auto")
    }
}

impl<P: Provider> Scene<P> {
    /// The same on any provider.
    fn on(open: impl Fn() -> P + Sync) -> Scene<P> {
        Scene::with(open, |_| {}, "auto")
    }

    fn with(
        open: impl Fn() -> P + Sync,
        weaken: impl Fn(&mut DeviceCaps) + Sync,
        exposure: &str,
    ) -> Scene<P> {
        let watch = Arc::new(Watch::default());
        let open = || CheckedProvider::new(open(), Arc::clone(&watch)).weaker(&weaken);
        let mut plan =
            Plan { serve: large(LEN as usize), call: large(LEN as usize), ..Plan::default() };
        for raw in [&mut plan.serve, &mut plan.call] {
            raw.features.placement = false;
            raw.features.continuation = false;
            raw.receive.placement.count = 0;
            raw.explicit.enabled = true;
            raw.explicit.exposure = exposure.into();
            raw.explicit.buffers.length = "16KiB".into();
        }
        let (mut world, peer) = World::pair(&open, &plan);
        world.quiesce();
        Scene { world, peer, watch }
    }

    fn audit(&mut self) -> Audit {
        self.world.clients[0].shard().audit()
    }

    /// Keys that are good for anything, and calls that have some.
    fn exposed(&mut self) -> (i64, usize, usize) {
        let audit = self.audit();
        (self.watch.open.load(Ordering::Relaxed), audit.windows.held, audit.exposures)
    }

    /// A call whose argument is read and whose result is written to a sink.
    fn call(&mut self, order: Order) {
        self.try_call(order).expect("there is a way");
    }

    fn try_call(&mut self, order: Order) -> Result<(), CallRefused> {
        let parts = [Part::Bulk(LEN)];
        let script = Script::new(1, &parts, &parts).order(order);
        let now = 1;
        let mut sink = self.world.clients[0].turn(now).buffer().expect("a buffer");
        sink.truncate(LEN as usize);
        sink.fill(POISON);
        let world = &mut self.world;
        let slice = world.source(0).slice(script.seed, 0, LEN);
        let mut call = world.clients[0].call(self.peer, 9).expect("a free slot");
        call.payload().put_fixed(&script.head());
        write_parts(call.payload(), script.seed, &script.call, |payload, _, _| {
            payload.place(slice.clone());
        });
        call.want_into(Want { len_min: 0, len_max: LEN }, Sink::from(sink));
        call.submit()
    }
}

impl<P: Provider> Scene<P> {
    fn answer(&mut self) {
        let server = &mut self.world.servers[0];
        let (ticket, finished) = server.handler().elsewhere.pop().expect("a ticket");
        server.handle().finish(ticket, finished).expect("its shard is there");
    }
}

const CLOSED: (i64, usize, usize) = (0, 0, 0);

// RFC 8166 3.4.5.1, 4.4.1, 8.1.2, 8.1.3
#[test]
fn memory_is_open_from_its_call_on_and_closed_before_its_completion() {
    let mut scene = Scene::new();
    for round in 1..=20 {
        assert_eq!(scene.exposed(), CLOSED, "nothing is open for calls that may come");
        scene.call(Order::Elsewhere);
        while scene.world.servers[0].handle().stats().calls_received < round {
            scene.world.step();
        }
        scene.world.quiesce();
        // The argument was read long ago; until the reply it stays as it is.
        let (open, held, exposures) = scene.exposed();
        assert_eq!((open, exposures), (1, 1), "a result may be written to");
        assert!(held >= 2, "and an argument read");
        scene.answer();
        let watch = Arc::clone(&scene.watch);
        let mut seen = None;
        scene.world.completion(0, |mut done| {
            let placed = done.result().map(|reply| reply.placed().map(|item| item.len()).sum());
            let sink = done.take_sink(0).expect("it comes back");
            let is_written = sink.pieces().iter().all(|piece| !piece.contains(&POISON));
            seen = Some((watch.open.load(Ordering::Relaxed), is_written, placed));
        });
        assert_eq!(seen, Some((0, true, Ok(LEN))), "dead when the program is notified");
        assert_eq!(scene.exposed(), CLOSED);
    }
}

// RFC 8166 4.4.1, 4.5.4
#[test]
fn memory_of_calls_whose_connection_is_lost_is_closed_before_they_are_completed() {
    for at_server in [false, true] {
        let mut scene = Scene::new();
        scene.call(Order::Never);
        scene.world.quiesce();
        assert_eq!(scene.exposed().0, 1, "a result may be written to");
        if at_server {
            let peer = *scene.world.servers[0].handler().connected.last().expect("one");
            assert!(scene.world.servers[0].handle().close(peer));
        } else {
            assert!(scene.world.clients[0].handle().close(scene.peer));
        }
        let watch = Arc::clone(&scene.watch);
        let mut seen = None;
        scene.world.completion(0, |mut done| {
            let is_lost = matches!(done.result(), Err(CallError::ConnectionLost(..)));
            let is_back = done.take_sink(0).is_some();
            seen = Some((watch.open.load(Ordering::Relaxed), is_lost, is_back));
        });
        assert_eq!(seen, Some((0, true, true)), "{at_server}");
        assert_eq!(scene.exposed(), CLOSED);
    }
}

/// Has a call with exposed memory lose its connection, and returns how many windows it had.
fn lose_a_call<P: Provider>(scene: &mut Scene<P>) -> usize {
    scene.call(Order::Never);
    scene.world.quiesce();
    let held = scene.exposed().1;
    assert!(scene.world.clients[0].handle().close(scene.peer));
    scene.world.completion(0, |done| assert!(done.result().is_err()));
    held
}

#[test]
fn windows_of_lost_connections_are_taken_back_and_used_again() {
    let mut scene = Scene::new();
    let total = scene.audit().windows.total;
    let mut used = 0;
    while used < 2 * total {
        used += lose_a_call(&mut scene);
        assert_eq!(scene.audit().windows.free, total, "all of them are free");
        scene.peer = scene.world.connect(0);
    }
    assert_eq!(scene.watch.renewed.load(Ordering::Relaxed), used as u64);
    scene.call(Order::Answer);
    scene.world.completion(0, |done| assert!(done.result().is_ok(), "and their keys are good"));
    assert_eq!(scene.world.clients[0].handle().stats().windows_lost, 0);
}

#[test]
fn windows_that_cannot_be_renewed_are_lost_and_counted() {
    let fabric = Fabric::new();
    let plan = FaultPlan { window_lost_ppm: 1_000_000, ..FaultPlan::default() };
    let mut scene = Scene::on(|| FaultyProvider::new(fabric.clone(), plan));
    let total = scene.audit().windows.total;
    let held = lose_a_call(&mut scene);
    assert!(held > 0 && held < total, "{held} of {total}");
    let windows = scene.audit().windows;
    assert_eq!((windows.total, windows.free), (total - held, total - held));
    assert_eq!(scene.world.clients[0].handle().stats().windows_lost, held as u64);
    scene.peer = scene.world.connect(0);
    scene.call(Order::Answer);
    scene.world.completion(0, |done| assert!(done.result().is_ok(), "the others are good"));
}

/// What a device does that keeps a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// A window of a connection that is lost.
    Window,
    /// The registrations of a call that was answered.
    Answered,
    /// Those of a call whose connection is lost.
    Lost,
    /// Those of a call that is refused at the second of them.
    Refused,
}

// RFC 8166 4.5.4, 8.1.2
#[test]
fn memory_that_a_peer_may_still_reach_stays_out_of_use() {
    for keeps in [Keeps::Window, Keeps::Answered, Keeps::Lost, Keeps::Refused] {
        let always = 1_000_000;
        let plan = match keeps {
            Keeps::Window => FaultPlan { window_kept_ppm: always, ..FaultPlan::default() },
            // With this seed the first registration succeeds and the second does not.
            Keeps::Refused => FaultPlan {
                seed: 5,
                expose_refused_ppm: always / 2,
                conceal_failed_ppm: always,
                ..FaultPlan::default()
            },
            _ => FaultPlan { conceal_failed_ppm: always, ..FaultPlan::default() },
        };
        let (fabric, log) = (Fabric::new(), Mutex::new(Vec::new()));
        let open = || {
            let device = FaultyProvider::new(fabric.clone(), plan);
            log.lock().expect("one thread").push(device.hooks().log());
            device
        };
        let (windows, exposure) =
            if keeps == Keeps::Window { (u32::MAX, "windows") } else { (0, "registration") };
        let weaken = |caps: &mut DeviceCaps| caps.windows = caps.windows.min(windows);
        let mut scene = Scene::with(open, weaken, exposure);
        let before = scene.audit();
        let what = match keeps {
            Keeps::Refused => {
                let refused = scene.try_call(Order::Answer).expect_err("the device has no more");
                assert!(matches!(refused, CallRefused::CannotExpose | CallRefused::Busy));
                None
            }
            Keeps::Answered => {
                scene.call(Order::Answer);
                Some(CallError::MemoryLost)
            }
            Keeps::Window | Keeps::Lost => {
                scene.call(Order::Never);
                scene.world.quiesce();
                assert!(scene.world.clients[0].handle().close(scene.peer));
                Some(CallError::ConnectionLost(CloseReason::Local, Execution::Unknown))
            }
        };
        if let Some(what) = what {
            scene.world.completion(0, |mut done| {
                assert_eq!(done.result().map(drop), Err(what), "{keeps:?}");
                assert!(done.take_sink(0).is_none(), "{keeps:?}: a peer may write to it");
            });
        }
        scene.world.quiesce();
        // The sink is out of use.
        let audit = scene.audit();
        let free = |audit: &Audit| audit.bulk.free + audit.bulk.returning;
        assert_eq!(free(&audit), free(&before) - 1, "{keeps:?}");
        assert_eq!(
            (audit.exposures, audit.windows.held),
            (0, 0),
            "{keeps:?}: no call waits for it"
        );
        let stats = scene.world.clients[0].handle().stats();
        assert_eq!((stats.rights_lost, stats.buffers_leaked), (1, 0), "{keeps:?}");
        // Others have what they need.
        log.lock().expect("one thread").iter().for_each(|log| log.end());
        if scene.world.clients[0].handle().connections() == 0 {
            scene.peer = scene.world.connect(0);
        }
        scene.call(Order::Answer);
        scene.world.completion(0, |done| assert!(done.result().is_ok(), "{keeps:?}"));
        let Scene { world, watch, .. } = scene;
        drop(world);
        assert!(watch.regions.load(Ordering::Relaxed) > 0, "{keeps:?}: it is mapped for good");
    }
}

/// The caller's own bytes, dropped while the peer may read them: they are not used again before the
/// call is over, and then they are.
#[test]
fn bytes_that_a_peer_may_read_are_kept_when_their_owner_drops_them() {
    let mut scene = Scene::new();
    let mut buffer = scene.world.clients[0].turn(1).buffer().expect("a buffer");
    write_pattern(&mut buffer, 0);
    let free = scene.audit().bulk.free;
    let bytes = RegisteredBytes::new(buffer);
    let script = Script::new(1, &[Part::Bulk(LEN)], &[]).order(Order::Elsewhere);
    let start = part_offset(script.seed, 0);
    let mut call = scene.world.clients[0].call(scene.peer, 9).expect("a free slot");
    call.payload().put_fixed(&script.head());
    write_parts(call.payload(), script.seed, &script.call, |payload, _, len| {
        payload.place(bytes.slice(start..start + len as usize).expect("within"));
    });
    drop(bytes);
    call.submit().expect("there is a way");
    scene
        .world
        .until("the call is there", |world| !world.servers[0].handler().elsewhere.is_empty());
    scene.world.quiesce();
    let audit = scene.audit();
    assert_eq!((audit.bulk.free, audit.bulk.returning), (free, 0), "the peer may still read them");
    scene.answer();
    scene.world.completion(0, |done| assert!(done.result().is_ok()));
    scene.world.quiesce();
    let audit = scene.audit();
    assert_eq!(audit.bulk.free + audit.bulk.returning, free + 1, "with the end of the call");
}

/// A segment that is longer than a buffer takes as many Reads as the device's scatter lists ask
/// for.
#[test]
fn reads_scatter_no_further_than_the_device_can() {
    for (read_sge, reads) in [(1, 4), (2, 2), (3, 2), (4, 1), (30, 1)] {
        let mut scene = Scene::of(|caps| caps.read_sge = read_sge);
        let script = Script::new(1, &[Part::Bulk(LEN)], &[]);
        scene.world.round(0, scene.peer, &script);
        let stats = scene.world.servers[0].handle().stats();
        assert_eq!(stats.rdma_reads, reads, "four buffers, {read_sge} in a list");
        assert_eq!(scene.exposed(), CLOSED);
    }
}

// RFC 8166 3.5.2: what was written is there when the reply is.
#[test]
fn results_are_there_when_their_reply_is() {
    let mut scene = Scene::new();
    for seed in 0..40 {
        let parts = [Part::Inline(seed), Part::Bulk(LEN - seed), Part::Inline(7)];
        let script = Script::new(seed, &parts, &parts);
        scene.world.round(0, scene.peer, &script);
    }
    let served = scene.world.servers[0].handle().stats();
    assert!(
        served.rdma_reads >= 40 && served.rdma_writes >= 40,
        "{} {}",
        served.rdma_reads,
        served.rdma_writes
    );
    assert_eq!(scene.exposed(), CLOSED);
}

/// Two shards that call each other wait for each other unless each keeps something for the other's
/// calls: what own calls may use of the engine's buffers is one half of them.
// wire.md P12
#[test]
fn a_right_is_taken_back_by_the_last_transmission_of_a_reply() {
    let fabric = Fabric::new();
    let watch = Arc::new(Watch::default());
    let open = || CheckedProvider::new(fabric.clone(), Arc::clone(&watch));
    let mut plan =
        Plan { serve: large(LEN as usize), call: large(LEN as usize), ..Plan::default() };
    for raw in [&mut plan.serve, &mut plan.call] {
        raw.features.placement = false;
        raw.receive.placement.count = 0;
        // Arguments are read, replies are continued.
        raw.connections.request_transmissions_max = 1;
    }
    let (mut world, peer) = World::pair(&open, &plan);
    for (len, ended) in [(100, 0), (5_000, 1), (9_000, 2), (20_000, 3)] {
        let script = Script::new(len, &[Part::Bulk(LEN)], &[Part::Inline(len)]);
        world.round(0, peer, &script);
        assert_eq!(watch.groups_ended.load(Ordering::Relaxed), ended, "{len}");
    }
    assert_eq!(world.servers[0].handle().stats().rdma_reads, 4);
    world.check_all_returned();
}

#[test]
fn own_calls_leave_half_of_the_buffers_to_calls_of_peers() {
    for (count, calls) in [(1, 0), (2, 1), (3, 1), (8, 4)] {
        let fabric = Fabric::new();
        let open = || fabric.clone();
        let mut plan =
            Plan { serve: large(LEN as usize), call: large(LEN as usize), ..Plan::default() };
        for raw in [&mut plan.serve, &mut plan.call] {
            raw.features.placement = false;
            raw.features.continuation = false;
            raw.receive.placement.count = 0;
        }
        plan.call.explicit.buffers.count = count;
        let (mut world, peer) = World::pair(&open, &plan);
        let script = Script::new(1, &[], &[Part::Bulk(LEN)]).order(Order::Never);
        for _ in 0..calls {
            world.call(0, peer, &script).expect("a buffer");
            world.quiesce();
        }
        let refused = world.call(0, peer, &script).expect_err("no buffer is left for it");
        assert_eq!(refused.is_transient(), calls > 0, "{count} buffers: {refused}");
    }
}

// RFC 8166 4.5.4
#[test]
fn memory_that_cannot_be_closed_costs_the_connection_before_its_call_is_over() {
    let mut scene = Scene::new();
    // No work request takes a key back any more: only the end of the queue pair does.
    scene.watch.spoils_invalidations.store(true, Ordering::Relaxed);
    scene.call(Order::Answer);
    let watch = Arc::clone(&scene.watch);
    let mut seen = None;
    scene.world.completion(0, |mut done| {
        let is_back = done.take_sink(0).is_some();
        seen = Some((watch.open.load(Ordering::Relaxed), is_back));
    });
    assert_eq!(seen, Some((0, true)), "dead when the program is notified");
    assert_eq!(scene.exposed(), CLOSED);
    let stats = scene.world.clients[0].handle().stats();
    assert!(stats.completions_failed > 0, "it was tried");
    assert_eq!(scene.world.clients[0].handle().connections(), 0, "and the connection is gone");
}
