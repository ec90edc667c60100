//! One connection: its socket, what is to be sent, and the Reads of this side.
//!
//! The queues' thread uses it, through both ends of the carrier. Before that the connection manager
//! holds it, and uses nothing but its name. So the locks are never contended: taking one is one
//! atomic instruction. What waits for TCP has room for short messages in all slots, and allocates when
//! it is longer than ever before; so do Responses that TCP does not take at once, which are copied.
#![expect(unsafe_code, reason = "memory that was granted to a peer is sent from where it is")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma_transport::carrier::EndId;
use rpcrdma_transport::conn::{Conn, Progress};
use rpcrdma_transport::rights::Granted;
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::calls::Calls;
use crate::output::{Lent, Output};
use crate::port::Port;
use crate::reads::Reads;
use crate::socket::Socket;
use crate::terms::{First, ReadyToReceive, Terms};
use crate::wire::fpdu::ULPDU_MAX;
use crate::wire::segment::{
    QUEUE_READ, QUEUE_TERMINATE, ReadRequest, Segment, TAGGED_LEN, Tagged, TaggedOp, Untagged,
    UntaggedOp,
};
use crate::wire::terminate::Terminate;
use crate::wire::violation::Violation;

/// What a connection is made of.
pub(crate) struct LinkSpec {
    pub end: EndId,
    pub socket: Socket,
    pub terms: Terms,
    pub port: Arc<Port>,
    pub qp_num: u32,
    pub conn: Arc<Conn>,
    /// The longest message that arrives.
    pub message_len: u32,
}

/// A connection.
pub(crate) struct Link {
    pub end: EndId,
    pub socket: Socket,
    pub terms: Terms,
    pub port: Arc<Port>,
    pub qp_num: u32,
    pub message_len: u32,
    conn: Arc<Conn>,
    out: Mutex<Output>,
    reads: Mutex<Reads>,
    /// Slots of this side that TCP has taken.
    taken: AtomicU64,
    /// Bytes that it has not taken.
    pending: AtomicU64,
    /// Nothing more arrives or leaves.
    is_over: AtomicBool,
    /// The peer may have sent its first FPDU: this side may send.
    has_begun: AtomicBool,
    /// The stream is not read: a message waits to be taken.
    is_paused: AtomicBool,
    /// Bytes were received that were not looked at.
    has_unread: AtomicBool,
}

impl Link {
    pub(crate) fn new(spec: LinkSpec) -> Arc<Link> {
        let LinkSpec { end, socket, terms, port, qp_num, conn, message_len } = spec;
        let link = Link {
            end,
            socket,
            port,
            qp_num,
            message_len,
            conn,
            out: Mutex::new(Output::new(SLOTS as usize, terms.checks_crc)),
            reads: Mutex::new(Reads::new(SLOTS as usize)),
            taken: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            has_begun: AtomicBool::new(matches!(terms.first, First::Ours { .. })),
            is_paused: AtomicBool::new(false),
            has_unread: AtomicBool::new(false),
            terms,
        };
        if let First::Ours { ready: Some(ready) } = link.terms.first {
            link.send_ready(ready);
        }
        Arc::new(link)
    }

    /// The first message of a connection whose ends may both send at once (RFC 6581 9).
    fn send_ready(&self, ready: ReadyToReceive) {
        let mut out = self.out();
        match ready {
            ReadyToReceive::Fpdu => out.push_short(&[], &[]),
            ReadyToReceive::Write => {
                let write = Tagged { op: TaggedOp::Write, is_last: true, stag: 0, to: 0 };
                out.push_short(&write.encode(), &[]);
            }
            ReadyToReceive::Read => {
                let empty = rpcrdma_transport::body::Body::empty();
                let sink_stag = self.reads().begin(None, &empty);
                let read =
                    ReadRequest { sink_stag, sink_to: 0, len: 0, source_stag: 0, source_to: 0 };
                out.push_short(&read_header(FIRST_NUMBER).encode(), &read.encode());
            }
        }
        out.end_message(false);
    }

    /// Whether the first message took the first number of the Read Requests.
    pub(crate) fn has_read_at_start(&self) -> bool {
        matches!(self.terms.first, First::Ours { ready: Some(ReadyToReceive::Read) })
    }

    pub(crate) fn out(&self) -> MutexGuard<'_, Output> {
        lock(&self.out)
    }

    pub(crate) fn reads(&self) -> MutexGuard<'_, Reads> {
        lock(&self.reads)
    }

    /// Slots that TCP has taken.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether so few bytes wait for TCP that more may be added.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.pending.load(Ordering::Relaxed) < PENDING_MAX
    }

    /// Whether bytes wait for TCP, which may take some in this poll.
    #[inline]
    pub(crate) fn can_flush(&self) -> bool {
        self.has_pending() && self.port.may_write(self.qp_num)
    }

    /// Whether bytes wait for TCP.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Something was added: [`Link::flush`] sends it.
    #[inline]
    pub(crate) fn note_pending(&self, out: &Output) {
        self.pending.store(out.pending(), Ordering::Relaxed);
    }

    /// Sets whether the stream is not read for now.
    #[inline]
    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Whether bytes were received that may be a message.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        self.has_unread.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_unread(&self, has_unread: bool) {
        self.has_unread.store(has_unread, Ordering::Relaxed);
    }

    /// Whether a poll finds work that the transport does not know of.
    pub(crate) fn has_work(&self) -> bool {
        let is_paused = self.is_paused.load(Ordering::Relaxed);
        let is_readable = self.has_unread() || self.port.is_readable(self.qp_num);
        !is_paused && is_readable || self.has_pending() && self.port.is_writable(self.qp_num)
    }

    /// Nothing more arrives or leaves.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn set_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Notes the outcome of a system call that asked for `asked` bytes, at least one. Returns how many
    /// came.
    #[inline]
    pub(crate) fn received(&self, outcome: Result<usize, Errno>, asked: usize) -> usize {
        match outcome {
            Ok(0) => self.set_over(),
            Ok(received) => {
                self.port.note_asked(true);
                if received < asked {
                    self.port.note_read_all(self.qp_num);
                }
            }
            Err(Errno::AGAIN) => {
                self.port.note_asked(false);
                self.port.note_read_all(self.qp_num);
            }
            Err(Errno::INTR) => {}
            Err(_) => self.set_over(),
        }
        outcome.unwrap_or(0)
    }

    /// The first FPDU of the peer has come: this side may send, too.
    #[inline]
    pub(crate) fn begin(&self) {
        if !self.has_begun.load(Ordering::Relaxed) {
            self.has_begun.store(true, Ordering::Relaxed);
            self.conn.set(1 - self.end.side, Progress::Attached);
        }
    }

    /// Sends what TCP takes.
    pub(crate) fn flush(&self) {
        self.flush_now(&mut self.out());
    }

    fn flush_now(&self, out: &mut Output) {
        match out.flush(&self.socket) {
            0 => {}
            slots => self.taken.store(self.taken() + slots, Ordering::Relaxed),
        }
        self.note_pending(out);
        if self.has_pending() {
            self.port.note_full(self.qp_num);
        }
        if out.take_end() {
            self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Sends what TCP takes, and drops the requests among the rest: from now on their memory is not
    /// read.
    #[cold]
    pub(crate) fn cut(&self) {
        let mut out = self.out();
        self.flush_now(&mut out);
        let before = self.taken();
        let dropped = out.cut();
        self.reads().end_from(before);
        self.taken.store(before + dropped, Ordering::Relaxed);
        self.flush_now(&mut out);
    }

    /// Sends the Responses to a Read of the peer. Memory that TCP does not take at once is copied.
    pub(crate) fn respond(&self, sink: &ReadRequest, from: Granted) {
        let mut out = self.out();
        let before = out.queued();
        // SAFETY: the memory was granted to the peer for the time of this call, and `keep` ends the
        // use of it.
        let lent = unsafe { Lent::new(from.addr(), from.len()) };
        out.push_long(&[lent], ULPDU_MAX - TAGGED_LEN, |offset, is_last| {
            let to = sink.sink_to.wrapping_add(offset.into());
            let op = TaggedOp::ReadResponse;
            Tagged { op, is_last, stag: sink.sink_stag, to }.encode()
        });
        out.end_message(false);
        self.flush_now(&mut out);
        out.keep(before);
    }

    /// Reports to the peer what it has done wrong, as the last message. `offending` is the segment,
    /// or what is known of it, with its length.
    #[cold]
    pub(crate) fn terminate(&self, why: Violation, offending: Option<(&[u8], u16)>) {
        let header = Untagged {
            op: UntaggedOp::Terminate,
            is_last: true,
            invalidates: 0,
            queue: QUEUE_TERMINATE,
            number: FIRST_NUMBER,
            offset: 0,
        };
        let segment = offending.map(|(segment, _)| Segment::decode(segment));
        let is_tagged = matches!(segment, Some(Ok((Segment::Tagged(_), _))));
        let reason = if is_tagged { why.terminate_tagged() } else { why.terminate() };
        let mut out = self.out();
        out.end_with(&header.encode(), &reason.encode(offending));
        self.flush_now(&mut out);
    }

    /// Ends the stream.
    #[cold]
    pub(crate) fn end(&self) {
        self.out().end();
        self.flush();
    }

    /// The peer has reported that this side has done something wrong.
    #[cold]
    pub(crate) fn was_terminated(&self, payload: &[u8]) {
        if Terminate::blames_read(payload) {
            self.reads().refuse_next();
        }
        self.end();
        self.set_over();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.port.remove(&self.socket);
        // Closing a socket whose input was not read resets it, and what is under way to the peer is
        // lost.
        self.socket.shutdown(Shutdown::Write);
        self.socket.discard();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The header of a Read Request with this number.
pub(crate) fn read_header(number: u32) -> Untagged {
    let (op, queue) = (UntaggedOp::ReadRequest, QUEUE_READ);
    Untagged { op, is_last: true, invalidates: 0, queue, number, offset: 0 }
}

/// The number of the first message of a queue.
pub(crate) const FIRST_NUMBER: u32 = 1;
/// Requests of this side under way: a power of two.
pub(crate) const SLOTS: u64 = 256;
/// Bytes that wait for TCP while more may be added.
const PENDING_MAX: u64 = 1 << 20;
