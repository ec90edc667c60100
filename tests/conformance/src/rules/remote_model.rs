//! Random Reads, Writes, Sends, bindings and invalidations, compared with a map of bytes.
//!
//! Each side has an area that the other reads and writes under the key of one window. Writes of a
//! queue pair are carried out in order, so the area always is some version of the model: that after
//! the first n Writes. The model knows which n are possible, and no more: when something arrives is
//! the device's choice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{
    Attached, QueueAttr, Queues, Remote, SendFlags, SendOp, WcOpcode, WcStatus, Window,
    WorkCompletion,
};

use super::cases;
use crate::host::*;
use crate::subject::{Options, Subject};

#[derive(Debug, Clone)]
enum Step {
    Write { side: usize, at: u8, len: u8, fence: bool, inline: bool, signaled: bool },
    Read { side: usize, at: u8, len: u8, fence: bool },
    Send { side: usize, fence: bool },
    SendInvalidate { side: usize, fence: bool },
    Bind { side: usize },
    Invalidate { side: usize },
    Stale { side: usize, is_read: bool },
    Disconnect { side: usize },
    Poll { side: usize },
    Advance { ns: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let side = || 0..2_usize;
    let yes = any::<bool>;
    prop_oneof![
        8 => (side(), any::<u8>(), any::<u8>(), yes(), yes(), yes()).prop_map(
            |(side, at, len, fence, inline, signaled)| Step::Write { side, at, len, fence, inline, signaled }),
        6 => (side(), any::<u8>(), any::<u8>(), yes())
            .prop_map(|(side, at, len, fence)| Step::Read { side, at, len, fence }),
        3 => (side(), yes()).prop_map(|(side, fence)| Step::Send { side, fence }),
        1 => (side(), yes()).prop_map(|(side, fence)| Step::SendInvalidate { side, fence }),
        4 => side().prop_map(|side| Step::Bind { side }),
        1 => side().prop_map(|side| Step::Invalidate { side }),
        1 => (side(), yes()).prop_map(|(side, is_read)| Step::Stale { side, is_read }),
        1 => side().prop_map(|side| Step::Disconnect { side }),
        10 => side().prop_map(|side| Step::Poll { side }),
        8 => (0..700_u64).prop_map(|ns| Step::Advance { ns }),
    ]
}

/// What one side has asked of the other.
#[derive(Default)]
struct Flow {
    /// The other's area after each Write since the connection is there.
    versions: Vec<Vec<u8>>,
    /// Requests not completed, in order.
    posted: VecDeque<Posted>,
    /// The other's area is at least this version.
    at_least: usize,
    next: u64,
}

struct Posted {
    id: u64,
    opcode: WcOpcode,
    is_signaled: bool,
    /// Writes posted before it and itself.
    version: usize,
    /// Of a Read: the last version that it can have found, if a fence has said so.
    until: Option<usize>,
    at: usize,
    len: usize,
}

struct Side<Q: Queues> {
    host: Host<Q>,
    qp: Attached<Q::Qp>,
    window: Window,
    /// The key under which the other may use our area.
    key: Option<u32>,
    flow: Flow,
    receives: u64,
    /// Versions of our area that Sends of the other have announced, not received yet.
    announced: VecDeque<(usize, Option<u32>)>,
}

struct World<S: Subject> {
    device: S,
    now: Arc<AtomicU64>,
    sides: [Side<S::Queues>; 2],
    /// The connection is lost, or may be: a key was used that had died.
    is_doubtful: bool,
    has_left: [bool; 2],
}

const AREA: usize = 512;
const SOURCE: usize = 4096;
const SLOT: usize = 512;
const SLOTS: usize = 64;
const RECEIVE: usize = SOURCE + SLOT * SLOTS;

impl<S: Subject> World<S> {
    fn new(delay_ns: u64, rd_atomic: u32, first_slot: u64) -> World<S> {
        let (now, clock) = virtual_clock();
        let rd_atomic = Some(rd_atomic);
        let options = Options { clock, rd_atomic, delay_ns, first_slot, ..FEW };
        let device = S::made(&options).expect("allowed");
        let attr = QueueAttr { send_depth: 48, qp_max: 2, ..SMALL };
        let (mut a, mut b) = (Host::new(&device, &attr), Host::new(&device, &attr));
        let (qa, qb) = connect(&device, &mut a, &mut b, 7);
        let sides = [(a, qa), (b, qb)].map(|(mut host, qp)| {
            let window = host.queues.open_window().unwrap();
            let flow = Flow { versions: vec![vec![0; AREA]], ..Flow::default() };
            let mut side =
                Side { host, qp, window, key: None, flow, receives: 0, announced: VecDeque::new() };
            (0..24).for_each(|_| side.refill());
            side
        });
        World { device, now, sides, is_doubtful: false, has_left: [false; 2] }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { side, at, len, fence, inline, signaled } => {
                self.write(side, (at, len), fence, inline, signaled);
            }
            Step::Read { side, at, len, fence } => self.read(side, (at, len), fence),
            Step::Send { side, fence } => self.send(side, fence, None),
            Step::SendInvalidate { side, fence } => {
                if let Some(rkey) = self.sides[1 - side].key.take() {
                    // What is under way may find the key dead.
                    let flow = &self.sides[side].flow;
                    let reads = flow.posted.iter().any(|posted| posted.opcode == WcOpcode::Read);
                    self.is_doubtful |= reads && !fence;
                    self.send(side, fence, Some(rkey));
                }
            }
            Step::Bind { side } => self.bind(side),
            Step::Invalidate { side } => self.invalidate(side),
            Step::Stale { side, is_read } => {
                let rkey = self.sides[1 - side].window.rkey;
                if self.sides[1 - side].key.is_none() && !self.is_announced(1 - side) {
                    self.is_doubtful = true;
                    let remote = Remote { addr: self.sides[1 - side].host.at(0), rkey };
                    let op = if is_read { SendOp::Read(remote) } else { SendOp::Write(remote) };
                    self.post(side, op, (0, 8), SendFlags::SIGNALED);
                    self.poll_until_idle();
                }
            }
            Step::Disconnect { side } => {
                let qp = self.sides[side].qp.qp;
                self.sides[side].host.queues.disconnect(qp);
                self.is_doubtful = true;
                self.has_left[side] = true;
                self.poll_until_idle();
            }
            Step::Poll { side } => self.poll(side),
            Step::Advance { ns } => advance(&self.now, ns),
        }
    }

    /// Whether a Send that invalidates the key of a side is still under way to it.
    fn is_announced(&self, side: usize) -> bool {
        self.sides[side].announced.iter().any(|(_, rkey)| rkey.is_some())
    }

    fn range((at, len): (u8, u8)) -> (usize, usize) {
        let at = usize::from(at) * 2;
        (at, usize::from(len).min(AREA - at))
    }

    fn write(&mut self, side: usize, range: (u8, u8), fence: bool, inline: bool, signaled: bool) {
        let Some(rkey) = self.sides[1 - side].key else { return };
        let (at, len) = World::<S>::range(range);
        let remote = Remote { addr: self.sides[1 - side].host.at(at), rkey };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, fence);
        flags.set(SendFlags::INLINE, inline && len <= 224);
        flags.set(SendFlags::SIGNALED, signaled);
        self.post(side, SendOp::Write(remote), (at, len), flags);
    }

    fn read(&mut self, side: usize, range: (u8, u8), fence: bool) {
        let Some(rkey) = self.sides[1 - side].key else { return };
        let (at, len) = World::<S>::range(range);
        let remote = Remote { addr: self.sides[1 - side].host.at(at), rkey };
        let mut flags = SendFlags::SIGNALED;
        flags.set(SendFlags::FENCE, fence);
        self.post(side, SendOp::Read(remote), (at, len), flags);
    }

    fn send(&mut self, side: usize, fence: bool, invalidate: Option<u32>) {
        if self.sides[1 - side].announced.len() >= 20 {
            return;
        }
        let mut flags = SendFlags::SIGNALED;
        flags.set(SendFlags::FENCE, fence);
        let op = invalidate.map_or(SendOp::Send, |rkey| SendOp::SendInvalidate { rkey });
        if self.post(side, op, (0, 16), flags) {
            let version = self.sides[side].flow.versions.len() - 1;
            self.sides[1 - side].announced.push_back((version, invalidate));
        }
    }

    fn bind(&mut self, side: usize) {
        if self.sides[side].key.is_some() || self.is_announced(side) {
            return;
        }
        let mut window = self.sides[side].window;
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let (op, rkey) = self.sides[side].host.binding(&mut window, (0, AREA as u32), access);
        if self.post(side, op, (0, 0), SendFlags::empty()) {
            self.sides[side].window = window;
            self.sides[side].key = Some(rkey);
            // It may have to wait behind a fence: the key is not used before.
            self.poll_until_idle();
        }
    }

    fn invalidate(&mut self, side: usize) {
        let Some(rkey) = self.sides[side].key else { return };
        let flow = &self.sides[1 - side].flow;
        // Without acks a Write that has completed may be under way.
        let is_under_way = !S::HAS_ACKS && flow.at_least < flow.versions.len() - 1;
        let is_in_use = is_under_way
            || flow
                .posted
                .iter()
                .any(|posted| matches!(posted.opcode, WcOpcode::Write | WcOpcode::Read));
        if self.post(side, SendOp::Invalidate { rkey }, (0, 0), SendFlags::SIGNALED) {
            self.sides[side].key = None;
            self.is_doubtful |= is_in_use;
            self.poll_until_idle();
        }
    }

    /// Posts a request; what it moves is in a slot of its own.
    fn post(
        &mut self,
        side: usize,
        op: SendOp,
        (at, len): (usize, usize),
        flags: SendFlags,
    ) -> bool {
        let Side { host, qp, flow, .. } = &mut self.sides[side];
        if flow.posted.len() >= 40 {
            return false;
        }
        let id = flow.next;
        let place = SOURCE + (id as usize % SLOTS) * SLOT;
        let opcode = match op {
            SendOp::Write(_) => WcOpcode::Write,
            SendOp::Read(_) => WcOpcode::Read,
            SendOp::Bind(_) => WcOpcode::Bind,
            SendOp::Invalidate { .. } => WcOpcode::Invalidate,
            SendOp::Send | SendOp::SendInvalidate { .. } => WcOpcode::Send,
        };
        let bytes = vec![id as u8 | 1; len];
        host.write(place, if opcode == WcOpcode::Read { &[0; SLOT] } else { &bytes });
        let is_local = matches!(opcode, WcOpcode::Bind | WcOpcode::Invalidate);
        let sgl =
            [host.sge(place, len as u32 / 2), host.sge(place + len / 2, (len - len / 2) as u32)];
        let sgl = if is_local { &[][..] } else { &sgl[..] };
        if host.post_with(qp.qp, 1000 + id, op, sgl, flags).is_err() {
            return false;
        }
        flow.next += 1;
        if flags.contains(SendFlags::FENCE) {
            let version = flow.versions.len() - 1;
            flow.posted.iter_mut().for_each(|posted| {
                posted.until.get_or_insert(version);
            });
        }
        if opcode == WcOpcode::Write {
            let mut area = flow.versions.last().unwrap().clone();
            area[at..at + len].copy_from_slice(&bytes);
            flow.versions.push(area);
        }
        let version = flow.versions.len() - 1;
        let is_signaled = flags.contains(SendFlags::SIGNALED);
        flow.posted.push_back(Posted { id, opcode, is_signaled, version, until: None, at, len });
        true
    }

    fn poll(&mut self, side: usize) {
        for completion in self.sides[side].host.poll() {
            if completion.wr_id.0 < 1000 {
                self.received(side, &completion);
            } else {
                self.completed(side, &completion);
            }
        }
        if !self.sides[side].host.events().is_empty() {
            assert!(self.is_doubtful, "a connection was lost without a reason");
        }
    }

    fn received(&mut self, side: usize, completion: &WorkCompletion) {
        assert_eq!(completion.status, WcStatus::Success);
        let (version, invalidated) = self.sides[side].announced.pop_front().expect("it was sent");
        assert_eq!(completion.invalidated, invalidated);
        let area = self.sides[side].host.read(0, AREA);
        let versions = &self.sides[1 - side].flow.versions;
        let found = versions[version..].contains(&area);
        assert!(found, "what was written before a Send is there when it arrives");
        self.sides[1 - side].flow.at_least = version.max(self.sides[1 - side].flow.at_least);
        self.sides[side].refill();
    }

    fn completed(&mut self, side: usize, completion: &WorkCompletion) {
        let flow = &mut self.sides[side].flow;
        let is_success = completion.status == WcStatus::Success;
        if !is_success {
            let may_fail = [WcStatus::Flushed, WcStatus::RemoteAccess, WcStatus::MemoryWindowBind];
            assert!(self.is_doubtful && may_fail.contains(&completion.status), "{completion:?}");
        }
        let id = completion.wr_id.0 - 1000;
        let done = loop {
            let posted = flow.posted.pop_front().expect("it was posted and not completed");
            if posted.id == id {
                break posted;
            }
            assert!(!posted.is_signaled, "completions come in the order of posting");
            assert!(is_success || posted.opcode != WcOpcode::Write || self.is_doubtful);
        };
        if !is_success {
            return;
        }
        assert!(done.is_signaled);
        assert_eq!(completion.opcode, done.opcode);
        // A Read is done when the peer has executed what was sent before it.
        if S::HAS_ACKS || done.opcode == WcOpcode::Read {
            flow.at_least = flow.at_least.max(done.version);
        }
        if done.opcode == WcOpcode::Read {
            let last = done.until.unwrap_or(flow.versions.len() - 1);
            let range = done.at..done.at + done.len;
            let place = SOURCE + (id as usize % SLOTS) * SLOT;
            let got = self.sides[side].host.read(place, SLOT);
            let found = self.sides[side].flow.versions[done.version..=last]
                .iter()
                .any(|area| area[range.clone()] == got[..done.len]);
            assert!(found, "a Read brings what was there between its posting and its completion");
            assert!(got[done.len..].iter().all(|byte| *byte == 0), "and nothing else");
        }
    }

    /// Polls until nothing more happens, and begins anew if the connection was lost.
    fn poll_until_idle(&mut self) {
        for _ in 0..300 {
            for side in 0..2 {
                self.poll(side);
            }
            advance(&self.now, 100);
        }
        for side in 0..2 {
            let area = self.sides[1 - side].host.read(0, AREA);
            let flow = &mut self.sides[side].flow;
            if self.is_doubtful {
                assert!(flow.versions[flow.at_least..].contains(&area), "a Write is whole or not");
            } else {
                assert!(*flow.versions.last().unwrap() == area);
                let left = flow.posted.iter().filter(|posted| posted.is_signaled).count();
                assert_eq!(left, 0, "everything has completed");
                assert!(self.sides[1 - side].announced.is_empty(), "everything has arrived");
            }
            let flow = &mut self.sides[side].flow;
            (flow.versions, flow.at_least) = (vec![area], 0);
            flow.posted.iter_mut().for_each(|posted| posted.version = 0);
        }
        if self.is_doubtful {
            self.reconnect();
        }
    }

    fn reconnect(&mut self) {
        for side in &mut self.sides {
            side.host.queues.destroy(side.qp.qp);
            side.key = None;
            side.flow.posted.clear();
            side.announced.clear();
        }
        let [a, b] = &mut self.sides;
        (a.qp, b.qp) = connect(&self.device, &mut a.host, &mut b.host, 7);
        self.is_doubtful = false;
        self.has_left = [false; 2];
    }
}

impl<Q: Queues> Side<Q> {
    fn refill(&mut self) {
        let id = self.receives % 32;
        self.receives += 1;
        self.host.recv(id, RECEIVE + id as usize * 64, 64);
    }
}

pub(crate) fn every_byte_agrees_with_the_model<S: Subject>() {
    let delay_ns = prop_oneof![Just(0), Just(250_u64)];
    let first_slot = prop_oneof![Just(0), (1 << 32) - 200..1_u64 << 32];
    let steps = prop::collection::vec(step(), 0..250);
    proptest!(cases(200, file!()), |(
        delay_ns in delay_ns,
        rd_atomic in 1..4_u32,
        first_slot in first_slot,
        steps in steps,
    )| {
        let mut world = World::<S>::new(delay_ns, rd_atomic, first_slot);
        for step in &steps {
            world.step(step);
        }
        world.poll_until_idle();
    });
}
