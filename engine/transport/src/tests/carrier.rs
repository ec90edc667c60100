//! A carrier other than rings: it copies all bytes through a staging area, and the sides do not
//! share keys.
//!
//! It has as many slots as a test needs and uses none twice, on one thread. So what these tests
//! show is what the transport owes to no carrier: decision 0016.
#![expect(unsafe_code, reason = "a device reads and writes memory that has no Rust name")]

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rpcrdma_mempool::{Access, Keys, Region, RegionSpec, Registrar, Rights as Own, Sge};
use rpcrdma_provider::{
    QueueAttr, QueueEvent, RecvWr, Remote, SendFlags, SendOp, SendWr, WcBatch, WcStatus,
    WorkCompletion, WrId,
};

use crate::Transport;
use crate::body::{Acks, Body, Header, OP_READ, Refusal};
use crate::carrier::{Carrier, DmaError, EndId, Incoming, Outgoing, Vacant};
use crate::clock::FabricClock;
use crate::conn::{Conn, Progress};
use crate::keys::{KeyCache, KeyTable};
use crate::qp::Connected;
use crate::queue_set::Settings;
use crate::rights::{Granted, Rights};

/// Slots that may be under way in one direction.
const SLOTS: u64 = 4;
/// Slots that there are in all.
const ALL: usize = 64;
/// Bytes that are handed out at one time.
const RUN: usize = 100;

/// One direction.
#[derive(Default)]
struct Way {
    slots: Vec<OnceCell<Slot>>,
    acked: Cell<u64>,
    refused: Cell<u64>,
    is_closed: Cell<bool>,
    is_abandoned: Cell<bool>,
}

struct Slot {
    body: Body,
    /// The bytes that the body refers to.
    staged: Vec<u8>,
    target: u64,
    is_withdrawn: Cell<bool>,
    verdict: Cell<Option<Result<(), Refusal>>>,
    /// The bytes that a Read has asked for, until the requester has fetched them.
    answer: RefCell<Vec<u8>>,
}

struct Staging(EndId);

struct Sending {
    way: Rc<Way>,
    head: u64,
    freed: u64,
}

struct Receiving {
    way: Rc<Way>,
    next: u64,
}

struct Claimed<'a> {
    tx: &'a mut Sending,
    body: Body,
    target: u64,
}

impl Carrier for Staging {
    type Tx = Sending;
    type Rx = Receiving;

    fn id(&self) -> EndId {
        self.0
    }

    fn wake_peer(&self) {}
}

impl Sending {
    fn slot(&self, position: u64) -> &Slot {
        self.way.slots[position as usize].get().expect("it was published")
    }
}

/// The memory of its own side that a body refers to.
fn places(body: &Body, keys: &KeyCache) -> Option<Vec<(usize, usize)>> {
    let at = |key, offset, len| keys.locate(key, offset, len).map(|at| at as usize);
    body.pieces().map(|it| Some((at(it.key, it.offset, it.len)?, it.len as usize))).collect()
}

// SAFETY: memory of a request is read when it is published, and written when its data land, which
// the transport asks for before the slot is freed and not after it was withdrawn.
unsafe impl Outgoing for Sending {
    type Vacant<'a> = Claimed<'a>;

    fn slots(&self) -> u64 {
        SLOTS
    }

    fn claim(&mut self, _: u32) -> Option<Claimed<'_>> {
        self.has_room().then(|| Claimed { tx: self, body: Body::empty(), target: 0 })
    }

    fn has_room(&self) -> bool {
        self.head - self.freed < SLOTS
    }

    fn head(&self) -> u64 {
        self.head
    }

    fn freed(&self) -> u64 {
        self.freed
    }

    fn free(&mut self, acks: Acks, until: u64) {
        self.freed = until.min(acks.taken());
    }

    fn acks(&self) -> Acks {
        Acks::up_to(self.way.acked.get())
    }

    fn refused(&self) -> u64 {
        self.way.refused.get()
    }

    fn verdict(&self, position: u64) -> Option<Result<(), Refusal>> {
        self.slot(position).verdict.get()
    }

    fn land(&mut self, position: u64, keys: &KeyCache) -> Result<(), Refusal> {
        let slot = self.slot(position);
        let answer = slot.answer.take();
        let mut left = answer.as_slice();
        for (at, len) in places(&slot.body, keys).ok_or(Refusal::Unreadable)? {
            let (part, rest) = left.split_at(len);
            let to = std::ptr::with_exposed_provenance_mut::<u8>(at);
            // SAFETY: the requester has lent its memory until the Read has completed.
            unsafe { to.copy_from_nonoverlapping(part.as_ptr(), len) };
            left = rest;
        }
        Ok(())
    }

    fn taken_at(&self, _: u64) -> u64 {
        0
    }

    fn withdraw(&self, position: u64) {
        self.slot(position).is_withdrawn.set(true);
    }

    fn settle(&self) {}

    fn is_abandoned(&self) -> bool {
        self.way.is_abandoned.get()
    }

    fn reclaim(&mut self, _: Acks) -> Acks {
        self.freed = self.head;
        Acks::up_to(self.head)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.way.is_closed.set(true);
    }
}

impl Vacant for Claimed<'_> {
    fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    fn stamp(&mut self, _: u64) {}

    fn aim(&mut self, addr: u64) {
        self.target = addr;
    }

    fn publish(mut self, acks: Acks, keys: &KeyCache) {
        self.body.header.acks = acks;
        let Claimed { tx, body, target } = self;
        let is_read = body.header.op == OP_READ;
        let pieces = if is_read { Some(Vec::new()) } else { places(&body, keys) };
        let pieces = pieces.expect("it is registered");
        let mut staged = Vec::new();
        for (at, len) in pieces {
            let from = std::ptr::with_exposed_provenance::<u8>(at);
            // SAFETY: the poster of the request keeps its memory readable.
            staged.extend_from_slice(unsafe { std::slice::from_raw_parts(from, len) });
        }
        let (is_withdrawn, verdict, answer) = Default::default();
        let slot = Slot { body, staged, target, is_withdrawn, verdict, answer };
        assert!(tx.way.slots[tx.head as usize].set(slot).is_ok(), "no slot is used twice");
        tx.head += 1;
    }
}

impl Receiving {
    /// Unless its sender has withdrawn it or is gone.
    fn living(&self, position: u64) -> Option<&Slot> {
        let slot = self.way.slots[position as usize].get()?;
        (!slot.is_withdrawn.get() && !self.way.is_closed.get()).then_some(slot)
    }
}

// SAFETY: what is handed out is staged, and staged bytes are never written again.
unsafe impl Incoming for Receiving {
    fn front(&self) -> Option<Header> {
        self.peek(self.next)
    }

    fn bytes(&self) -> *const u8 {
        self.way.slots[self.next as usize].get().expect("it is there").body.bytes.as_ptr()
    }

    fn peek(&self, position: u64) -> Option<Header> {
        Some(self.way.slots[position as usize].get()?.body.header)
    }

    fn prefetch_front(&self) {}

    fn is_cancelled(&self) -> bool {
        self.living(self.next).is_none()
    }

    fn target(&self) -> u64 {
        self.way.slots[self.next as usize].get().map_or(0, |slot| slot.target)
    }

    fn published_at(&self) -> u64 {
        0
    }

    fn next(&self) -> u64 {
        self.next
    }

    fn pull(
        &self,
        _: &Header,
        _: &KeyCache,
        mut put: impl FnMut(*const u8, usize) -> Result<(), DmaError>,
    ) -> Option<Result<(), DmaError>> {
        let mut runs = self.living(self.next)?.staged.chunks(RUN);
        Some(runs.try_for_each(|run| put(run.as_ptr(), run.len())))
    }

    fn answer(
        &self,
        position: u64,
        _: &Header,
        _: &KeyCache,
        from: Granted,
    ) -> Option<Result<(), DmaError>> {
        let slot = self.living(position)?;
        let at = std::ptr::with_exposed_provenance::<u8>(from.addr() as usize);
        // SAFETY: the bytes were granted, and their owner leaves them alone.
        let bytes = unsafe { std::slice::from_raw_parts(at, from.len() as usize) };
        slot.answer.replace(bytes.to_vec());
        Some(Ok(()))
    }

    fn finish(&self, position: u64, outcome: Result<(), Refusal>) {
        let slot = self.way.slots[position as usize].get().expect("it was published");
        slot.verdict.set(Some(outcome));
    }

    fn release(&mut self) {
        self.next += 1;
    }

    fn refuse(&mut self, why: Refusal) {
        self.finish(self.next, Err(why));
        self.way.refused.set(self.way.refused.get() + 1);
        self.release();
    }

    fn stamp_taken(&self, _: u64) {}

    fn acks(&self) -> Acks {
        Acks::up_to(self.next)
    }

    fn announce(&self) {
        self.way.acked.set(self.next);
    }

    fn is_closed(&self) -> bool {
        self.way.is_closed.get()
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.way.is_abandoned.set(true);
    }
}

/// Queues with one queue pair, with memory and keys of their own.
struct Side {
    transport: Transport<Staging>,
    num: u32,
    keys: Keys,
    /// Receive buffers that are described.
    buffers: u32,
    region: Region,
}

impl Side {
    fn new(
        side: usize,
        [there, back]: [&Rc<Way>; 2],
        conn: &Arc<Conn>,
        [num, peer]: [u32; 2],
    ) -> Side {
        let table = Arc::new(KeyTable::default());
        // The keys of one side name nothing on the other.
        for _ in 0..side {
            table.insert(0, 1, Access::empty()).unwrap();
        }
        let region = map(MEMORY);
        let keys = table.register(&region, Own::own(Access::LOCAL_WRITE)).unwrap();
        let rights = Rights::new(side as u64, Arc::new(AtomicU32::new(0)));
        let clock = FabricClock::Virtual(Arc::default());
        let (delay_ns, rnr_timer_ns, reads_max, message_len) = (0, 0, 2, 1 << 20);
        let has_windows = false;
        let settings =
            Settings { delay_ns, rnr_timer_ns, reads_max, message_len, has_windows, clock };
        let mut transport = Transport::new(&ATTR, (Arc::clone(&table), rights), settings);
        let qp =
            Connected { num, peer, peer_rnr_retry: 7, side: side as u8, conn: Arc::clone(conn) };
        let end = EndId { link: 1, side };
        let tx = Sending { way: Rc::clone(there), head: 0, freed: 0 };
        let rx = Receiving { way: Rc::clone(back), next: 0 };
        transport.attach(qp, end, || Some((Staging(end), tx, rx))).unwrap();
        conn.set(side, Progress::Attached);
        Side { transport, num, keys, buffers: 0, region }
    }

    fn sge(&self, offset: usize, length: u32) -> Sge {
        let addr = self.region.base().as_ptr() as u64 + offset as u64;
        Sge { addr, length, lkey: self.keys.lkey }
    }

    fn bytes(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset + len <= MEMORY);
        let at = self.region.base().as_ptr().wrapping_add(offset);
        // SAFETY: within the region; what the device has at the time is not asked for.
        unsafe { std::slice::from_raw_parts_mut(at, len) }
    }

    fn recv(&mut self, id: u64, sgl: &[Sge]) {
        let wr = [RecvWr { wr_id: WrId(id), buffer: self.buffers }];
        self.buffers += 1;
        // SAFETY: the buffer was never posted.
        unsafe { self.transport.describe_recv(wr[0].buffer, sgl) };
        // SAFETY: the region lives as long as the side, and the tests let posted memory be.
        assert_eq!(unsafe { self.transport.post_srq_recv(wr.into_iter()) }.of(1), (1, None));
    }

    fn post(&mut self, id: u64, op: SendOp, sgl: &[Sge]) {
        let wr = [SendWr { wr_id: WrId(id), op, sgl, flags: SendFlags::SIGNALED }];
        // SAFETY: as above.
        assert_eq!(unsafe { self.transport.post_send(self.num, wr.into_iter()) }.of(1), (1, None));
    }

    fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut out = WcBatch::new();
        self.transport.poll_cq(&mut out).unwrap();
        out.to_vec()
    }

    fn events(&mut self) -> Vec<QueueEvent> {
        std::iter::from_fn(|| self.transport.next_event()).collect()
    }
}

fn pair() -> [Side; 2] {
    let slots = || (0..ALL).map(|_| OnceCell::new()).collect();
    let way = || Rc::new(Way { slots: slots(), ..Way::default() });
    let ([there, back], conn) = ([way(), way()], Conn::new());
    let nums = [0x100, 0x200];
    let a = Side::new(0, [&there, &back], &conn, nums);
    let b = Side::new(1, [&back, &there], &conn, [nums[1], nums[0]]);
    [a, b]
}

/// Polls both until nothing more comes: what A and what B have completed.
fn settle([a, b]: &mut [Side; 2]) -> [Vec<WorkCompletion>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..100 {
        all[1].extend(b.poll());
        all[0].extend(a.poll());
    }
    all
}

fn map(bytes: usize) -> Region {
    let mut spec = RegionSpec::new(bytes);
    spec.pages = rpcrdma_mempool::PageSize::Base4K;
    spec.lock = false;
    Region::map(&spec).unwrap()
}

/// What a completion is judged by.
fn brief(completions: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|wc| (wc.wr_id.0, wc.status)).collect()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

const MEMORY: usize = 64 << 10;
const ATTR: QueueAttr =
    QueueAttr { srq_depth: 32, cq_depth: 256, qp_max: 2, send_depth: 16, send_sge: 4, recv_sge: 3 };
const READ: Access = Access::REMOTE_READ;
const WRITE: Access = Access::REMOTE_WRITE;

#[test]
fn short_and_long_messages_are_staged_and_scattered() {
    for len in [0, 1, 224, 225, 5000] {
        let mut pair = pair();
        let [a, b] = &mut pair;
        let (head, tail) = (len / 3, len - len / 3);
        let sent = pattern(len, 1);
        a.bytes(0, head).copy_from_slice(&sent[..head]);
        a.bytes(9000, tail).copy_from_slice(&sent[head..]);
        let to = [b.sge(100, 200), b.sge(1000, 6000)];
        b.recv(7, &to);
        let from = [a.sge(0, head as u32), a.sge(9000, tail as u32)];
        a.post(1, SendOp::Send, &from);
        let [of_a, of_b] = settle(&mut pair);
        assert_eq!(brief(&of_a), [(1, WcStatus::Success)]);
        assert_eq!(brief(&of_b), [(7, WcStatus::Success)]);
        assert_eq!(of_b[0].byte_len as usize, len);
        let mut got = pair[1].bytes(100, len.min(200)).to_vec();
        got.extend_from_slice(pair[1].bytes(1000, len.saturating_sub(200)));
        assert!(got == sent, "{len} bytes");
    }
}

#[test]
fn memory_is_written_and_read_under_keys_of_its_own_side() {
    for len in [8_usize, 3000] {
        let mut pair = pair();
        let [a, b] = &mut pair;
        a.bytes(0, len).copy_from_slice(&pattern(len, 2));
        b.bytes(20_000, len).copy_from_slice(&pattern(len, 3));
        let (into, from) = (b.sge(10_000, len as u32), b.sge(20_000, len as u32));
        let write = Remote { addr: into.addr, rkey: b.transport.expose(&into, WRITE).unwrap() };
        let read = Remote { addr: from.addr, rkey: b.transport.expose(&from, READ).unwrap() };
        let (out, back) = (a.sge(0, len as u32), a.sge(30_000, len as u32));
        a.post(1, SendOp::Write(write), &[out]);
        a.post(2, SendOp::Read(read), &[back]);
        let [of_a, of_b] = settle(&mut pair);
        assert_eq!(brief(&of_a), [(1, WcStatus::Success), (2, WcStatus::Success)]);
        assert!(of_b.is_empty());
        assert!(pair[1].bytes(10_000, len) == pattern(len, 2));
        assert!(pair[0].bytes(30_000, len) == pattern(len, 3));
    }
}

#[test]
fn requests_wait_for_the_credits_of_the_carrier_and_keep_their_order() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    for id in 0..12 {
        let (from, to) = (a.sge(0, 8), b.sge(0, 8));
        b.recv(100 + id, &[to]);
        a.post(id, SendOp::Send, &[from]);
    }
    assert_eq!(a.transport.paths[0].tx.head(), SLOTS, "there is no room for more");
    let [of_a, of_b] = settle(&mut pair);
    assert!(brief(&of_a) == (0..12).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
    assert!(brief(&of_b) == (100..112).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
}

#[test]
fn a_wrong_key_is_refused_and_ends_both_sides() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let (from, to) = (a.sge(0, 3000), b.sge(0, 3000));
    let rkey = b.transport.expose(&to, READ).unwrap();
    a.post(1, SendOp::Write(Remote { addr: to.addr, rkey }), &[from]);
    a.post(2, SendOp::Send, &[a.sge(0, 8)]);
    let [of_a, of_b] = settle(&mut pair);
    assert_eq!(brief(&of_a), [(1, WcStatus::RemoteAccess), (2, WcStatus::Flushed)]);
    assert!(of_b.is_empty());
    for side in &mut pair {
        let qp_num = side.num;
        assert_eq!(side.events(), [QueueEvent::Disconnected { qp_num }]);
    }
}

#[test]
fn a_withdrawn_message_takes_no_receive() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let from = a.sge(0, 3000);
    a.post(1, SendOp::Send, &[from]);
    assert!(b.poll().is_empty(), "it waits for a Receive");
    a.transport.disconnect(a.num);
    let to = b.sge(0, 3000);
    b.recv(9, &[to]);
    let [of_a, of_b] = settle(&mut pair);
    assert_eq!(brief(&of_a), [(1, WcStatus::Flushed)]);
    assert!(of_b.is_empty());
    let qp_num = pair[1].num;
    assert_eq!(pair[1].events(), [QueueEvent::Disconnected { qp_num }]);
}

#[test]
fn dropping_one_side_flushes_the_other() {
    let [mut a, b] = pair();
    let from = a.sge(0, 3000);
    a.post(1, SendOp::Send, &[from]);
    drop(b);
    let mut done = Vec::new();
    (0..40).for_each(|_| done.extend(a.poll()));
    assert_eq!(brief(&done), [(1, WcStatus::Flushed)]);
    assert_eq!(a.events(), [QueueEvent::Disconnected { qp_num: a.num }]);
}
