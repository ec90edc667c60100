//! The floors: two threads exchange cache lines as verbs do, without a protocol.
//!
//! ```text
//!   poster                               consumer
//!   payload lines  ── write, all ──▶     spin on the completion line
//!   completion     ── release ─────▶     acquire, read every payload line, answer
//! ```
//!
//! Per direction there is a ring of completion lines and a ring of payload buffers, apart from each
//! other as a completion queue and receive buffers are. A message is as many cache lines as the RPC
//! of the same run has on the wire, rounded up. Every word of every line is written by one side,
//! read and checked by the other. Nothing else is done: what an RPC takes above this is software.
//!
//! There are two floors. The *serial* one asks for the completion line, and for the payload when
//! that has come: two transfers, one after the other. The *prefetched* one asks for the first lines
//! of the payload with every look at the completion line, as the software fabric does: they travel
//! together. Neither copies data in or out, which every device does.
#![expect(unsafe_code, reason = "payload lines are shared between two threads; prefetches")]

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::call::Traffic;
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::pair::{self, Stop};
use crate::output::{PREFETCHED_FLOOR, SERIAL_FLOOR, title};
use crate::stats::{Contender, Meter, Quota, Round};

#[derive(Debug)]
pub struct Floor {
    order: ReadOrder,
    cores: CorePair,
    traffic: Traffic,
    timed: bool,
}

/// When the consumer asks for the payload lines of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOrder {
    /// When the completion line has come.
    Serial,
    /// With every look at the completion line.
    Prefetched,
}

impl Floor {
    /// A floor that times every round trip when `timed` and only one is under way; else it counts.
    pub fn new(order: ReadOrder, cores: CorePair, traffic: Traffic, timed: bool) -> Floor {
        assert!(traffic.window > 0, "a window of 0 would never send");
        Floor { order, cores, traffic, timed: timed && traffic.window == 1 }
    }

    /// Which floor it is, and what it does not do.
    pub fn note(&self) -> String {
        let does = match self.order {
            ReadOrder::Serial => "asks for the payload lines when the completion line has come",
            ReadOrder::Prefetched => {
                "asks for payload lines with the completion line, as the fabric does"
            }
        };
        let (name, title) = (self.name(), title(self.name()));
        format!("{name}: the {title} {does}; it does not copy data in and out, as devices do")
    }
}

impl Contender for Floor {
    fn name(&self) -> &'static str {
        match self.order {
            ReadOrder::Serial => SERIAL_FLOOR,
            ReadOrder::Prefetched => PREFETCHED_FLOOR,
        }
    }

    fn round(&mut self, quota: Quota) -> Result<Round, BenchError> {
        let (client, server) = connect(self.traffic, self.order);
        let timed = self.timed;
        let outcome = pair::run(
            self.cores,
            move |stop| {
                let meter = Meter::new(quota);
                if timed { ping(client, meter, stop) } else { stream(client, meter, stop) }
            },
            move |stop| answer(server, stop),
        )?;
        Ok(Round { preempted: outcome.preempted, ..outcome.client })
    }
}

fn ping(mut client: Client, mut meter: Meter, stop: &Stop) -> Result<Round, BenchError> {
    loop {
        let from = meter.now();
        client.request();
        while !client.reply()? {
            if stop.is_set() {
                return Err(BenchError::PeerGone { who: WHO });
            }
        }
        let to = meter.now();
        if !meter.timed(from, to) {
            return Ok(meter.finish());
        }
    }
}

/// Keeps the window full and counts.
fn stream(mut client: Client, mut meter: Meter, stop: &Stop) -> Result<Round, BenchError> {
    loop {
        while client.request() {}
        let mut count = 0;
        while client.reply()? {
            count += 1;
        }
        if count == 0 {
            if stop.is_set() {
                return Err(BenchError::PeerGone { who: WHO });
            }
        } else if !meter.counted(count) {
            return Ok(meter.finish());
        }
    }
}

/// Answers every request at once until the client is done.
fn answer(mut server: FloorServer, stop: &Stop) -> Result<(), BenchError> {
    loop {
        if !server.serve()? && stop.is_set() {
            return Ok(());
        }
    }
}

/// Both ends of a pair of rings.
fn connect(traffic: Traffic, order: ReadOrder) -> (Client, FloorServer) {
    let slots = (traffic.window as usize * 2).next_power_of_two().max(SLOTS_MIN);
    let requests = Arc::new(Ring::new(slots, lines(traffic.request_len), order));
    let replies = Arc::new(Ring::new(slots, lines(traffic.reply_len), order));
    let client = Client {
        requests: Arc::clone(&requests),
        replies: Arc::clone(&replies),
        sent: 0,
        received: 0,
        window: u64::from(traffic.window),
    };
    (client, FloorServer { requests, replies, served: 0 })
}

/// The only poster of requests and the only consumer of replies.
struct Client {
    requests: Arc<Ring>,
    replies: Arc<Ring>,
    sent: u64,
    received: u64,
    window: u64,
}

impl Client {
    /// Sends a request unless the window is full.
    #[inline]
    fn request(&mut self) -> bool {
        if self.sent - self.received >= self.window {
            return false;
        }
        // SAFETY: this is the only poster of the ring, and `sent` counts up by one. The slot's last
        // message was request `sent - slots`. Its reply was received, since fewer than `window`,
        // at most half the slots, are missing; and the server reads a request before it replies.
        unsafe { self.requests.post(self.sent, self.sent) };
        self.sent += 1;
        true
    }

    /// Takes the next reply if it is there, and checks its bytes.
    #[inline]
    fn reply(&mut self) -> Result<bool, BenchError> {
        // SAFETY: this is the only consumer of the ring, and `received` counts up by one. The
        // server overwrites a slot only for a request that was sent after this reply was read.
        let Some(sum) = (unsafe { self.replies.poll(self.received) }) else { return Ok(false) };
        if sum != self.replies.sum_of(self.received) {
            return Err(wrong(self.received, sum));
        }
        self.received += 1;
        Ok(true)
    }
}

/// The only consumer of requests and the only poster of replies.
struct FloorServer {
    requests: Arc<Ring>,
    replies: Arc<Ring>,
    served: u64,
}

impl FloorServer {
    /// Answers the next request if it is there, after checking its bytes.
    #[inline]
    fn serve(&mut self) -> Result<bool, BenchError> {
        // SAFETY: this is the only consumer of the ring, and `served` counts up by one. The client
        // overwrites a slot only after the reply to the request in it.
        let Some(sum) = (unsafe { self.requests.poll(self.served) }) else { return Ok(false) };
        if sum != self.requests.sum_of(self.served) {
            return Err(wrong(self.served, sum));
        }
        // SAFETY: this is the only poster of the ring, and `served` counts up by one. Request
        // `served` was sent, so the client has received reply `served - window` and all before:
        // `served - slots`, the slot's last, is among them.
        unsafe { self.replies.post(self.served, self.served) };
        self.served += 1;
        Ok(true)
    }
}

/// One direction: completion lines, and payload buffers beside them.
struct Ring {
    completions: Box<[Completion]>,
    payload: Box<[Payload]>,
    message_lines: usize,
    /// Lines of a message that are asked for with its completion line.
    prefetched_lines: usize,
    mask: u64,
}

impl Ring {
    fn new(slots: usize, message_lines: usize, order: ReadOrder) -> Ring {
        assert!(slots.is_power_of_two(), "the slot of a message is found by a mask");
        let prefetched_lines = match order {
            ReadOrder::Serial => 0,
            ReadOrder::Prefetched => message_lines.min(PREFETCHED_LINES_MAX),
        };
        Ring {
            completions: (0..slots).map(|_| Completion(AtomicU64::new(0))).collect(),
            payload: (0..slots * message_lines).map(|_| Payload::default()).collect(),
            message_lines,
            prefetched_lines,
            mask: slots as u64 - 1,
        }
    }

    /// Writes message `number`, every word of it `value`, and completes it.
    ///
    /// # Safety
    /// One thread posts, numbers count up by one from 0, and the message that the slot held before
    /// has been read.
    #[inline]
    unsafe fn post(&self, number: u64, value: u64) {
        let slot = (number & self.mask) as usize;
        let line = CacheLine([value; WORDS]);
        for payload in &self.payload[slot * self.message_lines..][..self.message_lines] {
            // SAFETY: the consumer has read the slot's last message and reads it again only after
            // the release below, and there is no other poster: this thread owns the line.
            unsafe { payload.0.get().write(line) };
        }
        self.completions[slot].0.store(number + 1, Ordering::Release);
    }

    /// Reads message `number` if it is complete: the sum of its words.
    ///
    /// # Safety
    /// One thread polls, and the poster does not write the slot again before this has returned.
    #[inline]
    unsafe fn poll(&self, number: u64) -> Option<u64> {
        let slot = (number & self.mask) as usize;
        let message = &self.payload[slot * self.message_lines..][..self.message_lines];
        message.iter().take(self.prefetched_lines).for_each(prefetch);
        if self.completions[slot].0.load(Ordering::Acquire) != number + 1 {
            return None;
        }
        let mut sum = 0u64;
        for payload in message {
            // SAFETY: the acquire above saw the poster's release after its writes of this message,
            // and by the contract of this function it does not write here now.
            let CacheLine(words) = unsafe { payload.0.get().read() };
            sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(*word));
        }
        Some(sum)
    }

    /// The sum of a message whose every word is `value`.
    #[inline]
    fn sum_of(&self, value: u64) -> u64 {
        value.wrapping_mul((self.message_lines * WORDS) as u64)
    }
}

/// A completion on a cache line of its own: the number of the message, counted from 1.
#[repr(align(64))]
struct Completion(AtomicU64);

/// A cache line of payload, in the hands of the poster or of the consumer.
#[derive(Default)]
struct Payload(UnsafeCell<CacheLine>);

// SAFETY: `Ring::post` and `Ring::poll` are the only ways to a line, and their contracts give it to
// one thread at a time, ordered by the release and the acquire of its completion.
unsafe impl Sync for Payload {}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct CacheLine([u64; WORDS]);

#[inline(always)]
fn prefetch(payload: &Payload) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no visible effect, at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(payload.0.get().cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = payload;
}

/// The cache lines that so many bytes take up, at least one.
fn lines(len: usize) -> usize {
    len.div_ceil(LINE).max(1)
}

#[cold]
fn wrong(number: u64, sum: u64) -> BenchError {
    let detail = format!("the words add up to {sum}");
    BenchError::WrongBytes { who: WHO, number, detail }
}

const LINE: usize = 64;
const WORDS: usize = LINE / 8;
/// Slots of a ring: a message does not meet the line that the other side has just let go of.
const SLOTS_MIN: usize = 16;
/// As many as the fabric prefetches behind the line that it polls.
const PREFETCHED_LINES_MAX: usize = 3;
const WHO: &str = "floor";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::End;

    const ORDERS: [ReadOrder; 2] = [ReadOrder::Serial, ReadOrder::Prefetched];

    fn traffic(window: u32) -> Traffic {
        Traffic { request_len: 136, reply_len: 120, window }
    }

    #[test]
    fn an_echo_of_64_bytes_is_three_lines_there_and_two_back() {
        assert_eq!((lines(136), lines(120)), (3, 2));
        assert_eq!((lines(0), lines(64), lines(65)), (1, 1, 2));
    }

    #[test]
    fn the_prefetched_floor_asks_for_the_lines_that_the_fabric_asks_for() {
        let asked = |lines, order| Ring::new(SLOTS_MIN, lines, order).prefetched_lines;
        assert_eq!([2, 3, 65].map(|lines| asked(lines, ReadOrder::Prefetched)), [2, 3, 3]);
        assert_eq!(asked(3, ReadOrder::Serial), 0);
    }

    #[test]
    fn a_floor_says_which_it_is_and_keeps_its_name() {
        let Ok(cores) = CorePair::choose(None) else { return };
        for (order, name, title) in [
            (ReadOrder::Serial, "floor", "the serial floor asks"),
            (ReadOrder::Prefetched, "prefetched_floor", "the prefetched floor asks"),
        ] {
            let floor = Floor::new(order, cores, traffic(1), true);
            assert_eq!(floor.name(), name);
            let note = floor.note();
            assert!(note.contains(title) && note.contains("does not copy data"), "{note}");
        }
        assert_eq!(title("rpc"), "rpc");
    }

    #[test]
    fn a_request_is_seen_once_complete_and_not_before() {
        let (mut client, mut server) = connect(traffic(1), ReadOrder::Serial);
        assert!(!server.serve().expect("nothing is wrong yet"));
        assert!(client.request());
        assert!(!client.request(), "the window is full");
        assert!(!client.reply().expect("nothing is wrong yet"));
        assert!(server.serve().expect("the bytes are right"));
        assert!(client.reply().expect("the bytes are right"));
        assert!(client.request(), "the window is open again");
    }

    #[test]
    fn messages_stay_right_over_many_turns_of_the_ring() {
        for (window, order) in
            [1, 3, 32].into_iter().flat_map(|window| ORDERS.map(|it| (window, it)))
        {
            let (mut client, mut server) = connect(traffic(window), order);
            for _ in 0..1000 {
                while client.request() {}
                while server.serve().expect("requests stay right") {}
                while client.reply().expect("replies stay right") {}
            }
            assert_eq!(client.received, 1000 * u64::from(window));
        }
    }

    #[test]
    fn a_wrong_word_is_noticed() {
        for order in ORDERS {
            let (mut client, mut server) = connect(traffic(1), order);
            assert!(client.request());
            // SAFETY: no other thread has the ring, and the server has not polled yet.
            unsafe { (*server.requests.payload[0].0.get()).0[7] ^= 1 };
            assert!(matches!(server.serve(), Err(BenchError::WrongBytes { number: 0, .. })));
        }
    }

    #[test]
    fn two_threads_exchange_the_requested_number_of_messages() {
        let Ok(cores) = CorePair::choose(None) else { return };
        let quota = Quota { warm_up: 10, end: End::Count(500) };
        for order in ORDERS {
            let floor = |window| Floor::new(order, cores, traffic(window), true).round(quota);
            let timed = floor(1).expect("the floor runs");
            assert_eq!((timed.completed, timed.latency.count()), (500, 500));
            let counted = floor(8).expect("the floor runs");
            assert!(counted.completed >= 500 && counted.latency.count() == 0, "{counted:?}");
        }
    }
}
