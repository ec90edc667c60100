//! A carrier other than rings: it copies all bytes through a staging area, and the sides do not
//! share keys.
//!
//! It has as many slots as a test needs and uses none twice, on one thread. A test may play one side
//! itself, and publish and acknowledge what no transport would.
#![expect(unsafe_code, reason = "a device reads and writes memory that has no Rust name")]

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rpcrdma_mempool::{Access, Keys, Region, RegionSpec, Registrar, Rights as Own, Sge};
use rpcrdma_provider::{
    QueueAttr, QueueEvent, RecvWr, SendFlags, SendOp, SendWr, WcBatch, WcStatus, WorkCompletion,
    WrId,
};

use crate::Transport;
use crate::body::{Acks, Body, Header, INLINE_LEN, OP_READ, Refusal};
use crate::carrier::{Carrier, DmaError, EndId, Incoming, Outgoing, Vacant};
use crate::clock::DeviceClock;
use crate::conn::{Conn, Progress};
use crate::keys::{KeyCache, KeyTable};
use crate::qp::Connected;
use crate::rights::{Granted, Rights};
use crate::settings::Settings;

/// Slots that may be under way in one direction.
pub(super) const SLOTS: u64 = 8;
/// Bytes of long messages that may be under way in one direction.
pub(super) const ROOM: usize = 8000;
/// Bytes that are handed out at one time.
const RUN: usize = 100;

/// One direction.
#[derive(Default)]
pub(super) struct Way {
    slots: Vec<OnceCell<Slot>>,
    pub acked: Cell<u64>,
    refused: Cell<u64>,
    pub is_closed: Cell<bool>,
    pub is_abandoned: Cell<bool>,
    /// Looks for a front so far.
    pub looks: Cell<u64>,
    /// How often its sender was woken.
    pub wakes: Cell<u64>,
}

pub(super) struct Slot {
    pub body: Body,
    /// Another header, which every second look sees.
    pub other: Option<Header>,
    /// The bytes that the body refers to.
    pub staged: Vec<u8>,
    /// The room that they take.
    pub len: usize,
    pub target: u64,
    pub is_withdrawn: Cell<bool>,
    pub outcome: Cell<Option<Result<(), Refusal>>>,
    /// The bytes that a Read has asked for, until the requester has fetched them.
    pub answer: RefCell<Vec<u8>>,
}

/// An end, and its way from the peer.
pub(super) struct Staging(EndId, Rc<Way>);

pub(super) struct Sending {
    way: Rc<Way>,
    head: u64,
    freed: u64,
}

pub(super) struct Receiving {
    way: Rc<Way>,
    next: u64,
}

pub(super) struct Claimed<'a> {
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

    fn wake_peer(&self) {
        self.1.wakes.set(self.1.wakes.get() + 1);
    }
}

impl Way {
    pub(super) fn new() -> Rc<Way> {
        Way::with(64)
    }

    /// With so many slots in all.
    pub(super) fn with(slots: usize) -> Rc<Way> {
        Rc::new(Way { slots: (0..slots).map(|_| OnceCell::new()).collect(), ..Way::default() })
    }

    pub(super) fn slot(&self, position: u64) -> &Slot {
        self.slots[position as usize].get().expect("it was published")
    }

    pub(super) fn is_published(&self, position: u64) -> bool {
        self.slots[position as usize].get().is_some()
    }

    pub(super) fn publish(&self, position: u64, slot: Slot) {
        let place = &self.slots[position as usize];
        assert!(place.set(slot).is_ok(), "no slot is used twice");
    }
}

impl Slot {
    pub(super) fn new(body: Body, staged: Vec<u8>) -> Slot {
        let (target, is_withdrawn, outcome, answer) = Default::default();
        let len = staged.len();
        Slot { body, other: None, staged, len, target, is_withdrawn, outcome, answer }
    }
}

impl Sending {
    fn slot(&self, position: u64) -> &Slot {
        self.way.slot(position)
    }
}

/// The bytes of a message that are not in its slot.
fn len_outside(byte_len: u32) -> usize {
    let len = byte_len as usize;
    if len > INLINE_LEN { len } else { 0 }
}

/// The memory of its own side that a body refers to.
fn places(body: &Body, keys: &KeyCache) -> Option<Vec<(usize, usize)>> {
    let at = |key, offset, len| keys.locate(key, offset, len).map(|at| at as usize);
    body.pieces().map(|it| Some((at(it.key, it.offset, it.len)?, it.len as usize))).collect()
}

// SAFETY: memory of a request is read when it is published, and written when its data are placed,
// which the transport asks for before the slot is freed and not after it was withdrawn.
unsafe impl Outgoing for Sending {
    type Vacant<'a> = Claimed<'a>;

    fn slots(&self) -> u64 {
        SLOTS
    }

    fn claim(&mut self, byte_len: u32) -> Option<Claimed<'_>> {
        let taken: usize = (self.freed..self.head).map(|position| self.slot(position).len).sum();
        let len = len_outside(byte_len);
        let has_room = self.has_room() && (len == 0 || taken + len <= ROOM);
        has_room.then(|| Claimed { tx: self, body: Body::empty(), target: 0 })
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

    fn outcome(&self, position: u64) -> Option<Result<(), Refusal>> {
        self.slot(position).outcome.get()
    }

    fn place_read(&mut self, position: u64, keys: &KeyCache) -> Result<(), Refusal> {
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

    fn quiesce(&self) {}

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

    fn set_target(&mut self, addr: u64) {
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
        let len = len_outside(body.header.byte_len);
        tx.way.publish(tx.head, Slot { len, target, ..Slot::new(body, staged) });
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
        self.way.slot(self.next).body.bytes.as_ptr()
    }

    fn peek(&self, position: u64) -> Option<Header> {
        let looks = self.way.looks.replace(self.way.looks.get() + 1);
        let slot = self.way.slots.get(position as usize)?.get()?;
        let other = slot.other.filter(|_| looks % 2 == 1);
        Some(other.unwrap_or(slot.body.header))
    }

    fn prefetch_front(&self) {}

    fn is_cancelled(&self) -> bool {
        self.way.slot(self.next).is_withdrawn.get()
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

    fn finish(&mut self, position: u64, outcome: Result<(), Refusal>) {
        self.way.slot(position).outcome.set(Some(outcome));
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

/// Queues with memory and keys of their own.
pub(super) struct Side {
    pub transport: Transport<Staging>,
    /// The number of their first queue pair.
    pub num: u32,
    pub keys: Keys,
    pub table: Arc<KeyTable>,
    /// Receive buffers that are described.
    buffers: u32,
    region: Region,
}

impl Side {
    /// Side 0 or 1 of its connections, the first of which has `num`.
    pub(super) fn new(side: usize, num: u32, attr: &QueueAttr) -> Side {
        let table = Arc::new(KeyTable::default());
        // The keys of one side name nothing on the other.
        for _ in 0..side {
            table.insert(0, 1, Access::empty()).unwrap();
        }
        let region = map(MEMORY);
        let keys = table.register(&region, Own::own(Access::LOCAL_WRITE)).unwrap();
        let rights = Rights::new(side as u64, Arc::new(AtomicU32::new(0)));
        let clock = DeviceClock::Virtual(Arc::default());
        let (delay_ns, rnr_timer_ns, reads_max, message_len) = (0, 0, 2, 1 << 20);
        let windows = 0;
        let settings = Settings { delay_ns, rnr_timer_ns, reads_max, message_len, windows, clock };
        let transport = Transport::new(attr, Arc::clone(&table), rights, settings);
        Side { transport, num, keys, table, buffers: 0, region }
    }

    /// Attaches a queue pair, on a path of its own if there are ways.
    pub(super) fn attach(
        &mut self,
        (link, side): (u64, usize),
        ways: Option<[&Rc<Way>; 2]>,
        conn: &Arc<Conn>,
        [num, peer]: [u32; 2],
    ) {
        let qp =
            Connected { num, peer, peer_rnr_retry: 7, side: side as u8, conn: Arc::clone(conn) };
        let end = EndId { link, side };
        let carrier = ways.map(|[there, back]| {
            let tx = Sending { way: Rc::clone(there), head: 0, freed: 0 };
            let carrier = Staging(end, Rc::clone(back));
            (carrier, tx, Receiving { way: Rc::clone(back), next: 0 })
        });
        self.transport.attach(qp, end, || Ok(carrier.expect("the first of its path"))).unwrap();
        conn.set(side, Progress::Attached);
    }

    pub(super) fn sge(&self, offset: usize, length: u32) -> Sge {
        let addr = self.region.base().as_ptr() as u64 + offset as u64;
        Sge { addr, length, lkey: self.keys.lkey }
    }

    pub(super) fn bytes(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset + len <= MEMORY);
        let at = self.region.base().as_ptr().wrapping_add(offset);
        // SAFETY: within the region; what the device has at the time is not asked for.
        unsafe { std::slice::from_raw_parts_mut(at, len) }
    }

    pub(super) fn recv(&mut self, id: u64, sgl: &[Sge]) {
        let wr = [RecvWr { wr_id: WrId(id), buffer: self.buffers }];
        self.buffers += 1;
        // SAFETY: the buffer was never posted.
        unsafe { self.transport.describe_recv(wr[0].buffer, sgl) };
        // SAFETY: the region lives as long as the side, and the tests let posted memory be.
        assert_eq!(unsafe { self.transport.post_srq_recv(wr.into_iter()) }.of(1), (1, None));
    }

    pub(super) fn post(&mut self, id: u64, op: SendOp, sgl: &[Sge]) {
        self.post_to(self.num, id, op, sgl);
    }

    pub(super) fn post_to(&mut self, num: u32, id: u64, op: SendOp, sgl: &[Sge]) {
        let wr = [SendWr { wr_id: WrId(id), op, sgl, flags: SendFlags::SIGNALED }];
        // SAFETY: as above.
        assert_eq!(unsafe { self.transport.post_send(num, wr.into_iter()) }.of(1), (1, None));
    }

    pub(super) fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut out = WcBatch::new();
        self.transport.poll_cq(&mut out).unwrap();
        out.to_vec()
    }

    pub(super) fn events(&mut self) -> Vec<QueueEvent> {
        std::iter::from_fn(|| self.transport.next_event()).collect()
    }
}

pub(super) fn pair() -> [Side; 2] {
    pair_over([&Way::new(), &Way::new()])
}

/// As [`pair`], over these ways: from the first one to the other, and back.
pub(super) fn pair_over([there, back]: [&Rc<Way>; 2]) -> [Side; 2] {
    let conn = Conn::new();
    let nums = [0x100, 0x200];
    let mut pair = [0, 1].map(|side| Side::new(side, nums[side], &ATTR));
    pair[0].attach((1, 0), Some([there, back]), &conn, nums);
    pair[1].attach((1, 1), Some([back, there]), &conn, [nums[1], nums[0]]);
    pair
}

/// Polls both until nothing more comes: what A and what B have completed.
pub(super) fn poll_until_idle([a, b]: &mut [Side; 2]) -> [Vec<WorkCompletion>; 2] {
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

/// What tests compare of a completion.
pub(super) fn brief(completions: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|wc| (wc.wr_id.0, wc.status)).collect()
}

pub(super) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

pub(super) const MEMORY: usize = 64 << 10;
pub(super) const ATTR: QueueAttr =
    QueueAttr { srq_depth: 32, cq_depth: 256, qp_max: 2, send_depth: 16, send_sge: 4, recv_sge: 3 };
