//! One end of the ping-pong: its queues, its buffers, and which of them the device owns.
//!
//! ```text
//!   send buffers      free ──send──▶ freed..sent ──signaled completion──▶ free
//!   receive buffers   arrived ──refill──▶ shared receive queue ──poll──▶ arrived
//! ```
#![expect(
    unsafe_code,
    reason = "this is the ping-pong on the seam itself, whose posting is unsafe"
)]

use std::hint::black_box;

use arrayvec::ArrayVec;
use rpcrdma::provider::{
    Provider, QueueAttr, Queues, RecvWr, SendFlags, SendWr, Taken, WC_BATCH, WcBatch, WcOpcode,
    WcStatus, WorkCompletion, WrId,
};
use rpcrdma_mempool::{
    Access, PageSize, Pool, PoolSpec, Region, RegionSpec, Registered, Rights, Sge, Token, kind,
};

use crate::contenders::blocks::pattern;
use crate::error::BenchError;

#[derive(Debug, Clone, Copy)]
pub struct Lengths {
    pub send: usize,
    pub recv: usize,
}

/// One end of a connection with buffers of its own.
///
/// Send buffers are a ring: message `n` leaves from buffer `n` modulo the depth of the send queue,
/// and messages `freed..sent` are in the device's hands. Everything that does not change from
/// message to message is filled in beforehand.
pub struct RawEnd<Q: Queues> {
    queues: Q,
    qp: Q::Qp,
    recv: Pool<kind::Recv>,
    send: Pool<kind::Send>,
    recv_buffers: Buffers<kind::Recv>,
    sends: SendRing,
    lengths: Lengths,
    pages: PageSize,
    /// Every message after its number, for the whole comparison.
    pattern: Box<[u8]>,
    completions: WcBatch,
    /// Receive buffers that were read and not yet posted again.
    arrived: ArrayVec<u32, WC_BATCH>,
    /// Messages whose place in the send queue is free again.
    freed: u64,
    sent: u64,
    received: u64,
    doorbells: u64,
    polled: u64,
}

/// Send buffers in a ring, and how their requests look.
struct SendRing {
    buffers: Buffers<kind::Send>,
    flags: SendFlags,
    /// Powers of two less one: how many sends for a signal, how many buffers.
    signal_mask: u64,
    mask: u64,
}

impl SendRing {
    #[inline]
    fn request(&self, number: u64) -> SendWr<'_> {
        let is_signaled = number & self.signal_mask == self.signal_mask;
        let signal = if is_signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let sgl = &self.buffers.sgls[(number & self.mask) as usize];
        SendWr::send(WrId(SEND | number), sgl, self.flags | signal)
    }
}

/// Buffers by number, and how each is named to the device.
struct Buffers<K> {
    tokens: Box<[Token<K>]>,
    sgls: Box<[[Sge; 1]]>,
}

impl<K> Buffers<K> {
    fn of(pool: &mut Pool<K>, len: usize) -> Buffers<K> {
        let tokens: Box<[Token<K>]> = std::iter::from_fn(|| pool.pop()).collect();
        let sgls = tokens.iter().map(|token| [pool.sge(token, 0..len)]).collect();
        Buffers { tokens, sgls }
    }
}

/// What both ends need of their queues for a window.
pub fn attr(window: u32) -> QueueAttr {
    let srq_depth = receives(window);
    let send_depth = send_depth(window);
    QueueAttr {
        srq_depth,
        cq_depth: srq_depth + send_depth,
        qp_max: 1,
        send_depth,
        send_sge: 1,
        recv_sge: 1,
    }
}

impl<Q: Queues> RawEnd<Q> {
    /// Maps and registers memory, fills the send buffers and posts all Receives.
    pub fn new<P: Provider<Queues = Q>>(
        provider: &P,
        queues: Q,
        qp: Q::Qp,
        lengths: Lengths,
        window: u32,
    ) -> Result<RawEnd<Q>, BenchError> {
        let recv_spec = spec(receives(window), lengths.recv);
        let send_spec = spec(send_depth(window), lengths.send);
        let bytes = recv_spec.region_len().map_err(memory)?
            + send_spec.region_len().map_err(memory)?
            + recv_spec.align;
        let region = Region::map(&RegionSpec::new(bytes)).map_err(memory)?;
        let pages = region.page_size();
        let mut registered =
            Registered::new(region, provider.registrar(), Rights::own(Access::LOCAL_WRITE))
                .map_err(memory)?;
        let is_inline = lengths.send <= provider.caps().inline_len as usize;
        let mut recv = Pool::new(&mut registered, &recv_spec).map_err(memory)?;
        let mut send = Pool::new(&mut registered, &send_spec).map_err(memory)?;
        let recv_buffers = Buffers::of(&mut recv, lengths.recv);
        let mask = u64::from(send_depth(window)) - 1;
        let sends = SendRing {
            buffers: Buffers::of(&mut send, lengths.send),
            flags: if is_inline { SendFlags::INLINE } else { SendFlags::empty() },
            signal_mask: mask >> 2,
            mask,
        };
        let mut end = RawEnd {
            queues,
            qp,
            recv,
            send,
            recv_buffers,
            sends,
            lengths,
            pages,
            pattern: pattern(lengths.recv.max(lengths.send)),
            completions: WcBatch::new(),
            arrived: ArrayVec::new(),
            freed: 0,
            sent: 0,
            received: 0,
            doorbells: 0,
            polled: 0,
        };
        end.fill_send_buffers();
        end.post_all_receives()?;
        Ok(end)
    }

    /// Sends up to `count` messages with one doorbell, as many as the send queue and a chain take.
    #[inline]
    pub fn send(&mut self, count: u64) -> Result<(), BenchError> {
        let room = self.sends.mask + 1 - (self.sent - self.freed);
        let count = count.min(room).min(WC_BATCH as u64);
        for number in self.sent..self.sent + count {
            let token = &mut self.sends.buffers.tokens[(number & self.sends.mask) as usize];
            self.send.bytes_mut(token)[..NUMBER_LEN].copy_from_slice(&number.to_le_bytes());
        }
        let (sent, sends) = (self.sent, &self.sends);
        let requests = (0..count as usize).map(|at| sends.request(sent + at as u64));
        // SAFETY: the buffers of `count` messages from `sent` on are in no one's hands: `room`
        // allows as many, so the message before in each buffer was freed by a completion of itself
        // or of a later message. They are written again only when `freed` has passed these
        // messages, too.
        let posted = unsafe { self.queues.post_send(self.qp, requests) };
        self.sent += count;
        self.doorbells += u64::from(count > 0);
        all_taken(posted, count as usize)
    }

    /// Polls once, and touches and checks what has arrived: how many messages it was. Their
    /// buffers must be posted again by [`RawEnd::refill`] before the next poll.
    #[inline]
    pub fn poll(&mut self) -> Result<u64, BenchError> {
        self.completions.clear();
        self.queues
            .poll_cq(&mut self.completions)
            .map_err(|error| BenchError::device(WHO, error))?;
        self.polled += self.completions.len() as u64;
        let before = self.received;
        for index in 0..self.completions.len() {
            let completion = self.completions[index];
            if completion.status != WcStatus::Success {
                return Err(failed(completion));
            }
            match completion.opcode {
                WcOpcode::Recv => self.take(completion)?,
                // It posts nothing but Sends.
                _ => self.freed = (completion.wr_id.0 & !SEND) + 1,
            }
        }
        Ok(self.received - before)
    }

    /// Posts the buffers that were read by [`RawEnd::poll`] again.
    #[inline]
    pub fn refill(&mut self) -> Result<(), BenchError> {
        let requests = self.arrived.iter();
        let requests = requests.map(|&buffer| RecvWr { wr_id: WrId(buffer.into()), buffer });
        // SAFETY: the buffers' Receives have completed and were read; they are read again only
        // after the completion of these. None is listed twice, since each was pushed by its own
        // completion.
        let posted = unsafe { self.queues.post_srq_recv(requests) };
        let count = self.arrived.len();
        self.arrived.clear();
        all_taken(posted, count)
    }

    /// Messages sent since the connection was made.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages received since the connection was made.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Doorbells, Sends and completions since the connection was made.
    pub fn spent(&self) -> [u64; 3] {
        [self.doorbells, self.sent, self.polled]
    }

    /// From now on takes the next message to have this number.
    #[cfg(test)]
    pub fn expect_number(&mut self, number: u64) {
        self.received = number;
    }

    pub fn note(&self) -> String {
        let how = if self.sends.flags.contains(SendFlags::INLINE) { "inline" } else { "gathered" };
        format!(
            "{} Receives of {} bytes and {how} sends of {} in pages of {}",
            self.recv.capacity(),
            self.lengths.recv,
            self.lengths.send,
            self.pages
        )
    }

    /// One message: length, number, a byte of every line, and now and then all bytes.
    #[inline]
    fn take(&mut self, completion: WorkCompletion) -> Result<(), BenchError> {
        let buffer = completion.wr_id.0 as u32;
        let token = &self.recv_buffers.tokens[buffer as usize];
        let bytes = &self.recv.bytes(token)[..self.lengths.recv];
        let number = self.received;
        let (head, rest) = bytes.split_at(NUMBER_LEN);
        let lines = rest.chunks(LINE).fold(0u8, |sum, line| sum.wrapping_add(line[0]));
        black_box(lines);
        let is_right = completion.byte_len as usize == self.lengths.recv
            && head == number.to_le_bytes()
            && (!number.is_multiple_of(COMPARE_EVERY) || rest == &self.pattern[..rest.len()]);
        if !is_right {
            return Err(wrong(number, completion.byte_len, bytes));
        }
        self.received += 1;
        self.arrived.push(buffer);
        Ok(())
    }

    fn fill_send_buffers(&mut self) {
        for token in &mut self.sends.buffers.tokens {
            let bytes = &mut self.send.bytes_mut(token)[NUMBER_LEN..];
            bytes.copy_from_slice(&self.pattern[..bytes.len()]);
        }
    }

    fn post_all_receives(&mut self) -> Result<(), BenchError> {
        for buffer in 0..self.recv_buffers.tokens.len() as u32 {
            let list = &self.recv_buffers.sgls[buffer as usize];
            // SAFETY: the buffer was never posted.
            unsafe { self.queues.describe_recv(buffer, list) };
            self.arrived.push(buffer);
            if self.arrived.is_full() {
                self.refill()?;
            }
        }
        self.refill()
    }
}

fn spec(slots: u32, len: usize) -> PoolSpec {
    PoolSpec { slots, slot_len: len, align: LINE }
}

/// Receives of one end: the window, and as many again while a batch is being read.
fn receives(window: u32) -> u32 {
    window + window.min(WC_BATCH as u32)
}

/// Places of a send queue: a quarter is signaled at a time, so three quarters hold the window.
fn send_depth(window: u32) -> u32 {
    (window * 2).next_power_of_two().max(64)
}

/// What it posts there is room for.
#[inline]
fn all_taken(posted: Taken, requests: usize) -> Result<(), BenchError> {
    match posted.of(requests) {
        (_, None) => Ok(()),
        (_, Some(why)) => Err(BenchError::device(WHO, why)),
    }
}

#[cold]
fn failed(completion: WorkCompletion) -> BenchError {
    let WorkCompletion { wr_id, status, .. } = completion;
    BenchError::device(WHO, format!("work request {:#x} ended with {status:?}", wr_id.0))
}

#[cold]
fn memory(error: impl std::fmt::Display) -> BenchError {
    BenchError::device(WHO, format!("memory: {error}"))
}

#[cold]
fn wrong(number: u64, byte_len: u32, bytes: &[u8]) -> BenchError {
    let head = &bytes[..bytes.len().min(32)];
    let detail = format!("{byte_len} bytes came, beginning {head:02x?}");
    BenchError::WrongBytes { who: WHO, number, detail }
}

/// Marks the work requests of sends; the rest is the number of the message.
const SEND: u64 = 1 << 63;
const NUMBER_LEN: usize = 8;
/// One message in so many is compared as a whole.
const COMPARE_EVERY: u64 = 1024;
const LINE: usize = 64;
/// The name in errors.
pub(super) const WHO: &str = "raw";
