//! One end of the ping-pong: its queues, its buffers, and what of them is in the device's hands.
//!
//! ```text
//!   home ──send──▶ in_flight (sent - freed, oldest first) ──signaled completion──▶ home
//!   home ──refill──▶ shared receive queue ──poll──▶ arrived ──refill──▶ shared receive queue
//! ```
#![expect(
    unsafe_code,
    reason = "this is the ping-pong on the seam itself, whose posting is unsafe"
)]

use std::collections::VecDeque;
use std::hint::black_box;

use arrayvec::ArrayVec;
use rpcrdma_engine::provider::{
    Provider, QueueAttr, Queues, RecvWr, SendFlags, SendWr, WC_BATCH, WcBatch, WcOpcode, WcStatus,
    WorkCompletion, WrId,
};
use rpcrdma_mempool::{
    Access, PageSize, Pool, PoolSpec, RecvToken, Region, RegionSpec, Registered, SendToken, Sge,
    Token, kind,
};

use super::WHO;
use crate::error::BenchError;

/// Bytes of the messages of one end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub send: usize,
    pub recv: usize,
}

/// One end of a connection with buffers of its own.
pub(super) struct End<Q: Queues> {
    queues: Q,
    qp: Q::Qp,
    recv: Pool<kind::Recv>,
    send: Pool<kind::Send>,
    lengths: Lengths,
    flags: SendFlags,
    pages: PageSize,
    /// Every message after its number, for the whole comparison.
    pattern: Box<[u8]>,
    completions: WcBatch,
    /// Receive buffers that were read and not yet posted again.
    arrived: ArrayVec<RecvToken, WC_BATCH>,
    /// Send buffers in the device's hands, by the raw number of their token, oldest first.
    in_flight: VecDeque<u32>,
    /// Messages whose place in the send queue is free again.
    freed: u64,
    sent: u64,
    received: u64,
    signal_every: u64,
    send_depth: u64,
}

/// What both ends need of their queues for a window.
pub(super) fn attr(window: u32) -> QueueAttr {
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

impl<Q: Queues> End<Q> {
    /// Maps and registers memory, fills the send buffers and posts all Receives.
    pub(super) fn new<P: Provider<Queues = Q>>(
        provider: &P,
        queues: Q,
        qp: Q::Qp,
        lengths: Lengths,
        window: u32,
    ) -> Result<End<Q>, BenchError> {
        let recv_spec = spec(receives(window), lengths.recv);
        let send_spec = spec(send_depth(window), lengths.send);
        let bytes = recv_spec.region_len().map_err(memory)?
            + send_spec.region_len().map_err(memory)?
            + recv_spec.align;
        let region = Region::map(&RegionSpec::new(bytes)).map_err(memory)?;
        let pages = region.page_size();
        let mut registered =
            Registered::new(region, provider.registrar(), Access::LOCAL_WRITE).map_err(memory)?;
        let is_inline = lengths.send <= provider.caps().inline_len as usize;
        let send_depth = u64::from(send_depth(window));
        let mut end = End {
            queues,
            qp,
            recv: Pool::new(&mut registered, &recv_spec).map_err(memory)?,
            send: Pool::new(&mut registered, &send_spec).map_err(memory)?,
            lengths,
            flags: if is_inline { SendFlags::INLINE } else { SendFlags::empty() },
            pages,
            pattern: pattern(lengths.recv.max(lengths.send)),
            completions: WcBatch::new(),
            arrived: ArrayVec::new(),
            in_flight: VecDeque::with_capacity(send_depth as usize),
            freed: 0,
            sent: 0,
            received: 0,
            signal_every: send_depth / 4,
            send_depth,
        };
        end.fill_send_buffers();
        end.post_all_receives()?;
        Ok(end)
    }

    /// Sends up to `count` messages with one doorbell, as many as the send queue and a chain take.
    #[inline]
    pub(super) fn send(&mut self, count: u64) -> Result<(), BenchError> {
        let room = self.send_depth - (self.sent - self.freed);
        let count = count.min(room).min(WC_BATCH as u64);
        let mut tokens: ArrayVec<SendToken, WC_BATCH> = ArrayVec::new();
        let mut sges: ArrayVec<[Sge; 1], WC_BATCH> = ArrayVec::new();
        for number in self.sent..self.sent + count {
            let mut token = self.send.pop().expect("there are as many buffers as places to send");
            self.send.bytes_mut(&mut token)[..NUMBER_LEN].copy_from_slice(&number.to_le_bytes());
            sges.push([self.send.sge(&token, 0..self.lengths.send)]);
            tokens.push(token);
        }
        let mut requests: ArrayVec<SendWr<'_>, WC_BATCH> = ArrayVec::new();
        for (number, sgl) in (self.sent..).zip(&sges) {
            let signaled = (number + 1).is_multiple_of(self.signal_every);
            let signal = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
            let wr_id = WrId(SEND | number);
            requests.push(SendWr { wr_id, sgl, flags: self.flags | signal });
        }
        // SAFETY: every gather entry names a send buffer whose token was taken from the pool above.
        // Unless the bytes are copied by the call, the token becomes a number in `in_flight`, and
        // a token again only in `sent_until`, after a completion of it or a later message.
        let posted = unsafe { self.queues.post_send(self.qp, &requests) };
        posted.map_err(device)?;
        self.sent += count;
        if self.flags.contains(SendFlags::INLINE) {
            tokens.into_iter().for_each(|token| self.send.push(token));
        } else {
            self.in_flight.extend(tokens.into_iter().map(Token::into_raw));
        }
        Ok(())
    }

    /// Polls once, and touches and checks what has arrived: how many messages it was. Nothing new
    /// may arrive before [`End::refill`] has posted their buffers again.
    #[inline]
    pub(super) fn poll(&mut self) -> Result<u64, BenchError> {
        self.completions.clear();
        self.queues.poll_cq(&mut self.completions).map_err(device)?;
        let mut count = 0;
        for index in 0..self.completions.len() {
            let completion = self.completions[index];
            if completion.status != WcStatus::Success {
                return Err(failed(completion));
            }
            match completion.opcode {
                WcOpcode::Recv => {
                    self.take(completion)?;
                    count += 1;
                }
                WcOpcode::Send => self.sent_until(completion.wr_id.0 & !SEND),
            }
        }
        Ok(count)
    }

    /// Posts the buffers that were read by [`End::poll`] again.
    #[inline]
    pub(super) fn refill(&mut self) -> Result<(), BenchError> {
        let sges: ArrayVec<[Sge; 1], WC_BATCH> =
            self.arrived.iter().map(|token| [self.recv.sge(token, 0..self.lengths.recv)]).collect();
        let mut requests: ArrayVec<RecvWr<'_>, WC_BATCH> = ArrayVec::new();
        for (token, sgl) in self.arrived.drain(..).zip(&sges) {
            requests.push(RecvWr { wr_id: WrId(token.into_raw().into()), sgl });
        }
        // SAFETY: every scatter entry names a receive buffer whose token has just become the
        // number of the work request; `take` makes it a token again from the completion.
        unsafe { self.queues.post_srq_recv(&requests) }.map_err(device)
    }

    /// Messages sent since the connection was made.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages received since the connection was made.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// From now on takes the next message to have this number.
    #[cfg(test)]
    pub(super) fn expect_number(&mut self, number: u64) {
        self.received = number;
    }

    /// Its memory, for the report.
    pub(super) fn note(&self) -> String {
        let how = if self.flags.contains(SendFlags::INLINE) { "inline" } else { "gathered" };
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
        // SAFETY: the number is that of a receive buffer's token, given up in `refill` for this one
        // completion, and a completed Receive is no longer the device's.
        let token: RecvToken = unsafe { Token::from_raw(completion.wr_id.0 as u32) };
        let bytes = &self.recv.bytes(&token)[..self.lengths.recv];
        let number = self.received;
        let (head, rest) = bytes.split_at(NUMBER_LEN);
        let lines = rest.iter().step_by(LINE).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        black_box(lines);
        let is_right = completion.byte_len as usize == self.lengths.recv
            && head == number.to_le_bytes()
            && (!number.is_multiple_of(COMPARE_EVERY) || rest == &self.pattern[..rest.len()]);
        if !is_right {
            return Err(wrong(number, completion.byte_len, bytes));
        }
        self.received += 1;
        self.arrived.push(token);
        Ok(())
    }

    /// Everything up to message `last` has left: its buffers come home.
    fn sent_until(&mut self, last: u64) {
        while self.freed <= last {
            self.freed += 1;
            if let Some(raw) = self.in_flight.pop_front() {
                // SAFETY: the number was given up in `send` and is taken out of the list once; the
                // completion of this message or a later one says that the device is done with it.
                let token = unsafe { Token::from_raw(raw) };
                self.send.push(token);
            }
        }
    }

    fn fill_send_buffers(&mut self) {
        let mut tokens = Vec::new();
        while let Some(mut token) = self.send.pop() {
            let bytes = &mut self.send.bytes_mut(&mut token)[NUMBER_LEN..];
            bytes.copy_from_slice(&self.pattern[..bytes.len()]);
            tokens.push(token);
        }
        tokens.into_iter().for_each(|token| self.send.push(token));
    }

    fn post_all_receives(&mut self) -> Result<(), BenchError> {
        while let Some(token) = self.recv.pop() {
            self.arrived.push(token);
            if self.arrived.is_full() {
                self.refill()?;
            }
        }
        self.refill()
    }
}

/// Slots of a message's length.
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

/// What a message carries after its number.
fn pattern(len: usize) -> Box<[u8]> {
    (0..len).map(|index| (index * 7 + index / 251) as u8).collect()
}

#[cold]
fn device(error: impl std::fmt::Display) -> BenchError {
    BenchError::Device { who: WHO, what: error.to_string() }
}

#[cold]
fn failed(completion: WorkCompletion) -> BenchError {
    device(format!("work request {:#x} ended with {:?}", completion.wr_id.0, completion.status))
}

#[cold]
fn memory(error: impl std::fmt::Display) -> BenchError {
    BenchError::Device { who: WHO, what: format!("memory: {error}") }
}

#[cold]
fn wrong(number: u64, byte_len: u32, bytes: &[u8]) -> BenchError {
    let head = &bytes[..bytes.len().min(32)];
    let detail = format!("{byte_len} bytes came, beginning {head:02x?}");
    BenchError::WrongBytes { who: WHO, number, detail }
}

/// Marks the work requests of sends; the rest is the number of the message.
const SEND: u64 = 1 << 63;
/// The number of the message at its start.
const NUMBER_LEN: usize = 8;
/// One message in so many is compared as a whole.
const COMPARE_EVERY: u64 = 1024;
/// Bytes of a cache line.
const LINE: usize = 64;
