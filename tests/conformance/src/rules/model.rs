//! Random posting, polling and disconnecting, compared with a simple model.
//!
//! The model has a list of messages for each queue pair and knows what the receiving side may see
//! next. It does not know when: that is the device's choice.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use rpcrdma_provider::{
    Attached, PostError, Provider, QueueAttr, QueueEvent, Queues, SendFlags, WcOpcode, WcStatus,
    WorkCompletion,
};

use super::cases;
use crate::host::*;
use crate::subject::{Options, Subject};

#[derive(Debug, Clone)]
enum Step {
    Send { side: usize, qp: usize, len: u32, signaled: bool, inline: bool },
    Recv { side: usize },
    Poll { side: usize },
    Disconnect { side: usize, qp: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let side = 0..2_usize;
    let qp = 0..QPS;
    prop_oneof![
        8 => (side.clone(), qp.clone(), 0..BUFFER as u32, any::<bool>(), any::<bool>())
            .prop_map(|(side, qp, len, signaled, inline)| Step::Send { side, qp, len, signaled, inline }),
        8 => side.clone().prop_map(|side| Step::Recv { side }),
        8 => side.clone().prop_map(|side| Step::Poll { side }),
        1 => (side, qp).prop_map(|(side, qp)| Step::Disconnect { side, qp }),
    ]
}

/// One direction of one queue pair.
#[derive(Default)]
struct Flow {
    /// Sent and not seen by the receiver: what it is made of.
    under_way: VecDeque<(u8, u32)>,
    /// Posted and not completed: number and whether a completion is due on success.
    posted: VecDeque<(u64, bool)>,
    is_failed: bool,
}

struct Side<Q: Queues> {
    host: Host<Q>,
    qps: Vec<Attached<Q::Qp>>,
    /// Posted Receives, oldest first: the number of the buffer.
    receives: VecDeque<u64>,
    next_buffer: u64,
    next_send: u64,
    disconnects: HashMap<u32, u32>,
}

struct World<Q: Queues> {
    sides: [Side<Q>; 2],
    /// By sending side and queue pair.
    flows: [[Flow; QPS]; 2],
    has_left: [[bool; QPS]; 2],
}

impl<Q: Queues> World<Q> {
    fn new<S: Subject + Provider<Queues = Q>>(first_slot: u64) -> World<Q> {
        let device = S::made(&Options { first_slot, ..FEW }).expect("allowed");
        let attr = QueueAttr { srq_depth: BUFFERS as u32, send_depth: 24, ..SMALL };
        let (mut a, mut b) = (Host::new(&device, &attr), Host::new(&device, &attr));
        let mut qps = [vec![], vec![]];
        for _ in 0..QPS {
            let (qa, qb) = connect(&device, &mut a, &mut b, 7);
            qps[0].push(qa);
            qps[1].push(qb);
        }
        let sides = [a, b].into_iter().zip(qps).map(|(host, qps)| Side {
            host,
            qps,
            receives: VecDeque::new(),
            next_buffer: 0,
            next_send: 0,
            disconnects: HashMap::new(),
        });
        let sides: Vec<_> = sides.collect();
        World {
            sides: sides.try_into().ok().unwrap(),
            flows: Default::default(),
            has_left: Default::default(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Send { side, qp, len, signaled, inline } => {
                self.send(side, qp, len, signaled, inline)
            }
            Step::Recv { side } => self.recv(side),
            Step::Poll { side } => self.poll(side),
            Step::Disconnect { side, qp } => {
                let name = self.sides[side].qps[qp].qp;
                self.sides[side].host.queues.disconnect(name);
                self.has_left[side][qp] = true;
                self.flows[side][qp].is_failed = true;
            }
        }
    }

    fn send(&mut self, at: usize, qp: usize, len: u32, signaled: bool, inline: bool) {
        let side = &mut self.sides[at];
        let id = side.next_send;
        let fill = id as u8;
        // Each send has memory of its own for as long as it can be outstanding.
        let offset = BUFFERS * BUFFER + (id as usize % SEND_BUFFERS) * BUFFER;
        let inline = inline && len <= 224;
        let memory_is_free = self.flows[at]
            .iter()
            .all(|flow| flow.posted.front().is_none_or(|(old, _)| old + SEND_BUFFERS as u64 > id));
        if !memory_is_free {
            return;
        }
        side.host.write(offset, &vec![fill; len as usize]);
        let sgl = [side.host.sge(offset, len / 3), side.host.sge(offset, len - len / 3)];
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, signaled);
        flags.set(SendFlags::INLINE, inline);
        let flow = &mut self.flows[at][qp];
        match side.host.send_from(side.qps[qp].qp, id, &sgl, flags) {
            Ok(()) => {
                flow.posted.push_back((id, signaled));
                // What is posted in the error state is flushed and goes nowhere.
                if !self.has_left[at][qp] {
                    flow.under_way.push_back((fill, len));
                }
                side.next_send += 1;
            }
            Err((0, PostError::QueueFull)) => assert!(flow.posted.len() >= 24),
            Err(other) => panic!("{other:?}"),
        }
        if inline {
            side.host.write(offset, &vec![!fill; len as usize]);
        }
    }

    fn recv(&mut self, at: usize) {
        let side = &mut self.sides[at];
        if side.receives.len() == BUFFERS {
            return;
        }
        let buffer = side.next_buffer;
        side.next_buffer += 1;
        let offset = (buffer as usize % BUFFERS) * BUFFER;
        let sgl = [side.host.sge(offset, 100), side.host.sge(offset + 100, BUFFER as u32 - 100)];
        side.host.recv_at(buffer, &sgl).unwrap();
        side.receives.push_back(buffer);
    }

    fn poll(&mut self, at: usize) {
        for completion in self.sides[at].host.poll() {
            let qps = &self.sides[at].qps;
            let qp = qps.iter().position(|qp| qp.qp_num == completion.qp_num).unwrap();
            match completion.opcode {
                WcOpcode::Recv => self.received(at, qp, &completion),
                _ => self.sent(at, qp, &completion),
            }
        }
        for event in self.sides[at].host.events() {
            let QueueEvent::Disconnected { qp_num } = event else { panic!("{event:?}") };
            let qp = self.sides[at].qps.iter().position(|qp| qp.qp_num == qp_num).unwrap();
            assert!(self.has_left[1 - at][qp]);
            self.flows[at][qp].is_failed = true;
            let disconnects = self.sides[at].disconnects.entry(qp_num).or_default();
            *disconnects += 1;
            assert_eq!(*disconnects, 1);
        }
    }

    fn received(&mut self, at: usize, qp: usize, completion: &WorkCompletion) {
        assert_eq!(completion.status, WcStatus::Success);
        let side = &mut self.sides[at];
        assert_eq!(side.receives.pop_front(), Some(completion.wr_id.0));
        let (fill, len) = self.flows[1 - at][qp].under_way.pop_front().expect("it was sent");
        assert_eq!(completion.byte_len, len);
        let offset = (completion.wr_id.0 as usize % BUFFERS) * BUFFER;
        assert_eq!(side.host.read(offset, len as usize), vec![fill; len as usize]);
    }

    fn sent(&mut self, at: usize, qp: usize, completion: &WorkCompletion) {
        let flow = &mut self.flows[at][qp];
        let is_success = completion.status == WcStatus::Success;
        if !is_success {
            assert_eq!(completion.status, WcStatus::Flushed);
            flow.is_failed = true;
        }
        // Unsignaled ones before it have succeeded silently.
        loop {
            let (id, signaled) = flow.posted.pop_front().expect("it was posted and not completed");
            if id == completion.wr_id.0 {
                assert!(signaled || !is_success);
                return;
            }
            assert!(!signaled, "completions come in the order of posting");
        }
    }

    /// Polls until nothing more happens and checks that nothing is missing.
    fn poll_until_idle(mut self) {
        for _ in 0..200 {
            for side in 0..2 {
                for _ in 0..4 {
                    self.recv(side);
                }
                self.poll(side);
            }
        }
        for (at, flows) in self.flows.iter().enumerate() {
            for (qp, flow) in flows.iter().enumerate() {
                let is_up = !self.has_left[0][qp] && !self.has_left[1][qp];
                assert!(!is_up || flow.under_way.is_empty(), "all messages arrived");
                let signaled = flow.posted.iter().filter(|(_, signaled)| *signaled).count();
                assert_eq!(signaled, 0, "every signaled send has completed");
                let was_reported =
                    self.sides[at].disconnects.contains_key(&self.sides[at].qps[qp].qp_num);
                assert!(was_reported || !self.has_left[1 - at][qp] || self.has_left[at][qp]);
            }
        }
    }
}

const QPS: usize = 3;
const BUFFERS: usize = 16;
const BUFFER: usize = 512;
const SEND_BUFFERS: usize = 128;

pub(crate) fn behaves_as_the_naive_model<S: Subject>() {
    let steps = prop::collection::vec(step(), 0..400);
    let first_slot = prop_oneof![Just(0), (1 << 32) - 300..1_u64 << 32];
    proptest!(cases(400, file!()), |(steps in steps, first_slot in first_slot)| {
        let mut world = World::new::<S>(first_slot);
        for step in &steps {
            world.step(step);
        }
        world.poll_until_idle();
    });
}
