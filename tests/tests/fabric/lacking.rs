//! Devices that lack something: the engine does without, or says at its start what is missing.
//!
//! A fabric says that it can do less, and hooks see to it that no more is asked of it.

use rpcrdma::provider::interposed::{Hooks, Interposed, Promised, PromisedBytes, QueueHooks};
use rpcrdma::provider::{
    DeviceCaps, Provider, QueueAttr, Queues, Requests, SendFlags, SendOp, SendWr, SetupError,
    Taken, Window,
};
use rpcrdma::{Engine, Fabric};
use rpcrdma_mempool::{Access, RegisterError};
use rpcrdma_suite::Scenario;
use rpcrdma_tests::opener::Open;
use rpcrdma_tests::script::{Part, Place, Script};
use rpcrdma_tests::setup::{checked, small};
use rpcrdma_tests::suite::explicit::plan;
use rpcrdma_tests::world::{Plan, World};

type Less = Interposed<Fabric, Limits>;

/// What the device says.
#[derive(Clone)]
struct Limits(DeviceCaps);

/// What a set of queues was asked for.
struct Asked {
    caps: DeviceCaps,
    windows: u32,
    /// Buffers that are open to writes of peers.
    open: usize,
}

impl Hooks<Fabric> for Limits {
    type Queues = Asked;
    type Cm = ();

    fn caps<'a>(&'a self, _: &'a Fabric) -> &'a DeviceCaps {
        &self.0
    }

    fn queue_hooks(&self, _: &Fabric, attr: &QueueAttr) -> Asked {
        let caps = self.0.clone();
        assert!(attr.send_sge <= caps.send_sge && attr.recv_sge <= caps.recv_sge);
        assert!(attr.srq_depth <= caps.srq_depth && attr.cq_depth <= caps.cq_depth);
        assert!(attr.send_depth <= caps.send_depth);
        Asked { caps, windows: 0, open: 0 }
    }

    fn cm_hooks(&self, _: &Fabric) {}
}

impl<Q: Queues> QueueHooks<Q> for Asked {
    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        let caps = &self.caps;
        for wr in wrs.requests() {
            let len: u32 = wr.sgl.iter().map(|sge| sge.length).sum();
            assert!(
                !wr.flags.contains(SendFlags::INLINE) || len <= caps.inline_len,
                "{len} inline"
            );
            assert!(wr.sgl.len() as u32 <= caps.send_sge, "{} entries", wr.sgl.len());
            match wr.op {
                SendOp::Read(_) => {
                    assert!(wr.sgl.len() as u32 <= caps.read_sge && caps.rd_atomic > 0);
                    assert!(!caps.reads_expose || self.open > 0, "a Read into a closed buffer");
                }
                SendOp::Bind(_) => assert!(caps.windows > 0),
                _ => {}
            }
        }
        wrs.post_send(inner, qp)
    }

    fn open_window(&mut self, inner: &mut Q) -> Result<Window, SetupError> {
        self.windows += 1;
        assert!(self.windows <= self.caps.windows, "{} windows", self.windows);
        inner.open_window()
    }

    fn expose(&mut self, inner: &mut Q, exposure: PromisedBytes<'_>) -> Result<u32, RegisterError> {
        if !self.caps.reads_expose {
            return exposure.expose(inner);
        }
        // The fabric's Reads write by the local key: that of the region stands for both.
        assert_eq!(exposure.access(), Access::REMOTE_WRITE, "of the buffer of a Read");
        self.open += 1;
        Ok(exposure.sge().lkey)
    }

    fn conceal(&mut self, inner: &mut Q, rkey: u32) -> std::io::Result<()> {
        if !self.caps.reads_expose {
            return inner.conceal(rkey);
        }
        self.open = self.open.checked_sub(1).expect("each is closed once");
        Ok(())
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        assert!(self.open == 0 || std::thread::panicking(), "{} buffers are open", self.open);
    }
}

/// Opens a fabric that can do less.
fn less(change: impl FnOnce(&mut DeviceCaps)) -> impl Fn() -> Less {
    let fabric = Fabric::new();
    let mut caps = fabric.caps().clone();
    change(&mut caps);
    move || Interposed::new(fabric.clone(), Limits(caps.clone()))
}

/// What a connection carries, in every form.
const CARRIED: &[&str] = &["inline", "placed", "explicit", "loans"];

/// Runs the scenarios of these subjects.
fn carries_everything(open: Open<'_, Less>) {
    let all = Scenario::<Less>::all();
    let chosen = all.iter().filter(|it| CARRIED.contains(&it.subject));
    assert!(chosen.map(|it| it.check(open)).count() > 5);
}

#[test]
fn a_device_without_inline_data_carries_everything() {
    carries_everything(&less(|caps| caps.inline_len = 0));
}

#[test]
fn a_device_that_reads_into_one_entry_at_a_time_carries_everything() {
    carries_everything(&less(|caps| caps.read_sge = 1));
}

#[test]
fn a_device_that_makes_one_read_at_a_time_carries_everything() {
    carries_everything(&less(|caps| caps.rd_atomic = 1));
}

#[test]
fn a_device_with_short_queues_carries_everything() {
    carries_everything(&less(|caps| caps.send_depth = 32));
}

#[test]
fn a_device_that_gathers_six_pieces_carries_everything() {
    carries_everything(&less(|caps| caps.send_sge = 6));
}

#[test]
fn a_device_without_windows_carries_everything() {
    carries_everything(&less(|caps| caps.windows = 0));
}

/// It lacks all that siw lacks but what [`buffers_of_reads_are_opened_for_the_time_of_the_reads`]
/// checks.
#[test]
fn the_whole_suite_passes_on_a_device_like_software_iwarp() {
    let open = less(|caps| {
        (caps.send_sge, caps.recv_sge, caps.read_sge) = (6, 6, 1);
        (caps.windows, caps.inline_len) = (0, 0);
    });
    Scenario::<Less>::all().iter().for_each(|it| it.check(&open));
}

/// A new capability is entered here, with the test that takes it away.
#[test]
fn every_capability_is_taken_away_by_a_test() {
    let DeviceCaps {
        name: _, // text
        // `a_device_that_gathers_six_pieces_carries_everything`, and the one like iWARP
        send_sge: _,
        // `what_cannot_be_done_without_is_named_at_the_start`
        recv_sge: _,
        srq_depth: _,
        cq_depth: _,
        message_len: _,
        // `a_device_that_reads_into_one_entry_at_a_time_carries_everything`
        read_sge: _,
        // `a_device_with_short_queues_carries_everything`
        send_depth: _,
        // `a_device_without_inline_data_carries_everything`
        inline_len: _,
        // `a_device_without_windows_carries_everything`, and the one like iWARP
        windows: _,
        // `a_device_that_makes_one_read_at_a_time_carries_everything`, and the one that makes none
        rd_atomic: _,
        // `buffers_of_reads_are_opened_for_the_time_of_the_reads`
        reads_expose: _,
    } = Fabric::new().caps().clone();
}

/// The start says that no data of calls is read; what needs none of it is carried.
#[test]
fn a_device_that_makes_no_reads_carries_what_needs_none() {
    let open = less(|caps| caps.rd_atomic = 0);
    let mut world = World::new(&open, &plan("two"));
    let peer = world.connect(0);
    let said = world.servers[0].handle().resources().to_string();
    assert!(said.contains("no data of calls are read"), "{said}");
    world.round(0, peer, &Script::new(1, &[Part::Inline(9)], &[Part::Inline(500)]));
    let all = Scenario::<Less>::all();
    let needs_none = all.iter().filter(|it| ["loans", "late"].contains(&it.subject));
    assert!(needs_none.filter(|it| it.version == "auto").map(|it| it.check(&open)).count() > 5);
}

/// Devices of one or two gather entries are known to none; short calls are carried all the same.
#[test]
fn a_device_that_gathers_nearly_nothing_carries_short_calls() {
    for send_sge in [1, 2] {
        let open = less(|caps| caps.send_sge = send_sge);
        let (mut world, peer) = World::pair(&open, &Plan::default());
        for len in [0, 1, 500, 3_000] {
            world.round(0, peer, &Script::new(len, &[Part::Inline(len)], &[Part::Inline(len)]));
        }
        world.check_nothing_leaked();
    }
}

/// iWARP: a buffer is open while it is read into, and closed before its call is delivered.
#[test]
fn buffers_of_reads_are_opened_for_the_time_of_the_reads() {
    let open = less(|caps| (caps.reads_expose, caps.read_sge, caps.inline_len) = (true, 1, 0));
    for (version, way) in [("two", "registration"), ("one", "registration"), ("two", "auto")] {
        let mut plan = plan(version);
        plan.call.explicit.exposure = "windows".into();
        plan.serve.explicit.exposure = if way == "auto" { "windows" } else { way }.into();
        let mut world = World::new(&open, &plan);
        let peer = world.connect(0);
        let resources = world.servers[0].handle().resources().clone();
        assert_eq!((resources.fetches > 0, resources.reads_expose), (way != "auto", way != "auto"));
        let said = resources.to_string();
        let expected =
            if way == "auto" { "no data of calls are read" } else { "can write meanwhile" };
        assert!(said.contains(expected), "{said}");
        if way == "auto" {
            continue;
        }
        for len in [5_000, 16_384, 50_001].repeat(3) {
            let parts = [Part::Inline(9), Part::Bulk(len)];
            world.round(0, peer, &Script::new(len, &parts, &[]));
            world.round(0, peer, &Script::new(len, &parts, &parts).place(Place::Into(3)));
            world.round(0, peer, &Script::new(len, &[Part::Inline(len)], &[]));
        }
        assert!(world.servers[0].handle().stats().rdma_reads > 0);
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

#[test]
fn what_cannot_be_done_without_is_named_at_the_start() {
    type Change = fn(&mut DeviceCaps);
    let changes: [(Change, &str); 6] = [
        (|caps| caps.recv_sge = 1, "receive.placement.count"),
        (|caps| caps.srq_depth = 8, "receive.buffers"),
        (|caps| caps.srq_depth = 0, "receive.buffers"),
        (|caps| caps.message_len = 512, "receive.placement.length"),
        (|caps| caps.cq_depth = 8, "completion queue"),
        (|caps| caps.windows = 1, "explicit.windows"),
    ];
    for (change, named) in changes {
        let mut raw = small();
        raw.explicit.windows = "4".into();
        let engine = Engine::without_threads(less(change)(), checked(&raw));
        let started = engine.and_then(|(engine, control)| {
            let client = engine.client().map(drop);
            drop(control);
            client
        });
        let error = started.expect_err(named).to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
}
