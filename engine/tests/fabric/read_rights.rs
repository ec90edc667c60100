//! Registrations of the buffers that RDMA Reads fill, on a device where the peer writes to them
//! (iWARP): for the Reads alone, with devices that fail to make or to end them, and with shards and
//! connections that end meanwhile.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma::provider::interposed::{Hooks, Interposed, Promised, PromisedBytes, QueueHooks};
use rpcrdma::provider::{DeviceCaps, Provider, QueueAttr, Queues, Requests, SendOp, SendWr, Taken};
use rpcrdma::{ConnectionId, Fabric, Snapshot};
use rpcrdma_mempool::{Access, RegisterError};
use rpcrdma_suite::scenarios::explicit::plan;
use rpcrdma_suite::script::{Part, Script};
use rpcrdma_suite::world::World;

/// The argument of a call: four buffers.
const LEN: u32 = 50_001;
const BUFFERS: u32 = 4;
/// An argument of one buffer.
const SHORT: u32 = 5_000;
/// Calls that the server reads at a time.
const READING_MAX: i64 = 2;
const MS: u64 = 1_000_000;

/// What a device has registered, and what it does wrong.
#[derive(Default)]
struct Rights {
    /// Bytes that peers may write to, in the order of their registration.
    open: VecDeque<Range<u64>>,
    /// Bytes whose registration could not be ended.
    kept: Vec<Range<u64>>,
    /// How many more registrations succeed; all without it.
    room: Option<u32>,
    /// How many requests to end a registration fail.
    keeps: u32,
    /// Whether queues with a Read take requests from then on and do nothing.
    is_dead: bool,
}

/// A device whose Reads expose their buffers. Its clients register nothing.
#[derive(Clone)]
struct Device {
    caps: DeviceCaps,
    rights: Arc<Mutex<Rights>>,
}

/// The hooks of a set of queues.
struct Watched {
    rights: Arc<Mutex<Rights>>,
    is_dead: bool,
}

impl Watched {
    fn rights(&self) -> MutexGuard<'_, Rights> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hooks<Fabric> for Device {
    type Queues = Watched;
    type Cm = ();

    fn caps<'a>(&'a self, _: &'a Fabric) -> &'a DeviceCaps {
        &self.caps
    }

    fn queue_hooks(&self, _: &Fabric, _: &QueueAttr) -> Watched {
        Watched { rights: Arc::clone(&self.rights), is_dead: false }
    }

    fn cm_hooks(&self, _: &Fabric) {}
}

impl<Q: Queues> QueueHooks<Q> for Watched {
    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        let rights = self.rights.lock().unwrap_or_else(PoisonError::into_inner);
        for wr in wrs.requests().filter(|wr| matches!(wr.op, SendOp::Read(_))) {
            let is_open = |addr: u64| rights.open.iter().any(|open| open.contains(&addr));
            let is_within = wr.sgl.iter().all(|sge| is_open(sge.addr));
            assert!(is_within, "a Read into memory that is not registered for it");
            self.is_dead |= rights.is_dead;
        }
        if self.is_dead {
            return Taken::without_error(wrs.requests().len());
        }
        drop(rights);
        wrs.post_send(inner, qp)
    }

    fn expose(&mut self, _: &mut Q, bytes: PromisedBytes<'_>) -> Result<u32, RegisterError> {
        assert_eq!(bytes.access(), Access::REMOTE_WRITE, "of the buffer of a Read");
        let mut rights = self.rights();
        if let Some(room) = &mut rights.room {
            *room = room.checked_sub(1).ok_or(RegisterError::Full { held: 0 })?;
        }
        let sge = bytes.sge();
        rights.open.push_back(sge.addr..sge.addr + u64::from(sge.length));
        // The fabric's Reads write by the local key: that of the region stands for both.
        Ok(sge.lkey)
    }

    fn conceal(&mut self, _: &mut Q, _: u32) -> std::io::Result<()> {
        let mut rights = self.rights();
        if rights.keeps > 0 {
            rights.keeps -= 1;
            let kept = rights.open.pop_front().expect("each is closed once");
            rights.kept.push(kept);
            return Err(std::io::ErrorKind::ResourceBusy.into());
        }
        // One call at a time: its buffers are closed in their order.
        rights.open.pop_front().expect("each is closed once");
        Ok(())
    }
}

struct Scene {
    world: World<Interposed<Fabric, Device>>,
    peer: ConnectionId,
    rights: Arc<Mutex<Rights>>,
}

impl Scene {
    fn new() -> Scene {
        let fabric = Fabric::new();
        let rights = Arc::new(Mutex::default());
        let caps = DeviceCaps { reads_expose: true, read_sge: 1, ..fabric.caps().clone() };
        let device = Device { caps, rights: Arc::clone(&rights) };
        let mut plan = plan("two");
        plan.call.explicit.exposure = "windows".into();
        plan.serve.explicit.exposure = "registration".into();
        plan.serve.explicit.fetches = READING_MAX;
        let open = || Interposed::new(fabric.clone(), device.clone());
        let (world, peer) = World::pair(&open, &plan);
        Scene { world, peer, rights }
    }

    fn rights(&self) -> MutexGuard<'_, Rights> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> Snapshot {
        self.world.servers[0].handle().stats()
    }

    fn call(&mut self, len: u32) {
        let script = Script::new(1, &[Part::Inline(9), Part::Bulk(len)], &[]);
        self.world.call(0, self.peer, &script).expect("there is room");
    }

    /// Makes a call; whether it succeeded.
    fn try_call(&mut self, len: u32) -> bool {
        self.call(len);
        let done = self.world.finish();
        assert_eq!(done.len(), 1);
        done[0].result.is_ok()
    }

    /// Turns the server alone until a call's Reads run.
    fn begin_reading(&mut self, len: u32) {
        self.call(len);
        self.world.turn_client(0);
        for _ in 0..1_000 {
            if !self.rights().open.is_empty() {
                return;
            }
            self.world.turn_servers();
        }
        panic!("no Reads are posted");
    }
}

/// Whether a byte is mapped.
fn is_mapped(addr: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the memory of this process");
    let number = |text| u64::from_str_radix(text, 16).expect("a number");
    let mut ranges = maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-'));
    ranges.any(|(start, end)| (number(start)..number(end)).contains(&addr))
}

#[test]
fn a_registration_that_fails_rejects_its_call_alone() {
    let mut scene = Scene::new();
    for room in 0..=BUFFERS {
        scene.rights().room = Some(room);
        assert_eq!(scene.try_call(LEN), room == BUFFERS, "{room} registrations");
        assert!(scene.rights().open.is_empty(), "after {room} registrations");
    }
    scene.rights().room = None;
    assert!(scene.try_call(LEN));
    assert_eq!(scene.stats().rights_lost, 0);
    scene.world.check_all_returned();
    scene.world.check_nothing_leaked();
}

#[test]
fn registrations_that_stay_cost_their_buffers_and_no_reads() {
    let mut scene = Scene::new();
    let free = |scene: &Scene| scene.world.servers[0].audit().rdma_buffers.free;
    let before = free(&scene);
    for lost in 1..=2 * READING_MAX as usize {
        scene.rights().keeps = 1;
        assert!(!scene.try_call(SHORT), "the peer may still change its bytes");
        assert_eq!(scene.stats().rights_lost, lost as u64);
        assert_eq!(free(&scene), before - lost);
    }
    assert!(scene.try_call(SHORT), "the messages of the lost ones are free");
    assert_eq!(scene.world.servers[0].audit().fetches, 0);
    let kept = std::mem::take(&mut scene.rights().kept);
    drop(scene);
    assert!(kept.iter().all(|kept| is_mapped(kept.start)), "memory that the peer can write to");
}

#[test]
fn a_shard_that_is_dropped_while_reads_run_closes_their_buffers() {
    for keeps in [0, 1] {
        let mut scene = Scene::new();
        scene.begin_reading(LEN);
        assert_eq!(scene.rights().open.len() as u32, BUFFERS);
        scene.rights().keeps = keeps;
        scene.world.servers.clear();
        assert!(scene.rights().open.is_empty(), "what no one can use any more");
        let kept = std::mem::take(&mut scene.rights().kept);
        assert_eq!(kept.len() as u32, keeps);
        drop(scene);
        assert!(kept.iter().all(|kept| is_mapped(kept.start)), "memory that the peer can write to");
    }
}

#[test]
fn buffers_of_reads_that_never_end_are_closed_to_the_peer() {
    for keeps in [0, 1] {
        let mut scene = Scene::new();
        scene.rights().is_dead = true;
        scene.begin_reading(LEN);
        scene.rights().keeps = keeps;
        scene.world.drop_client(0);
        for _ in 0..10_000 {
            scene.world.now += 10 * MS;
            scene.world.step();
            if scene.world.servers[0].handle().connections() == 0 {
                break;
            }
        }
        assert_eq!(scene.world.servers[0].handle().connections(), 0);
        assert!(scene.stats().buffers_leaked > 0, "the message of the Reads");
        assert!(scene.rights().open.is_empty(), "other peers have no right to them");
        assert_eq!(scene.stats().rights_lost, u64::from(keeps));
        let kept = std::mem::take(&mut scene.rights().kept);
        drop(scene);
        assert!(kept.iter().all(|kept| is_mapped(kept.start)), "memory that the peer can write to");
    }
}
