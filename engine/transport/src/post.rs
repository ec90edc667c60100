//! Posting: plain Sends are sent at once; other requests wait, are executed locally, or go to the
//! peer.
#![expect(unsafe_code, reason = "the poster has promised to leave the memory alone")]

use std::num::NonZeroU64;

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{Remote, SendFlags, SendOp, SendWr, WcOpcode};

use super::body::{Header, INLINE_LEN, OP_READ, OP_SEND, OP_SEND_INVALIDATE, OP_WRITE, PIECES_MAX};
use super::carrier::{Carrier, Outgoing, Vacant};
use super::dma;
use super::keys::KeyCache;
use super::path::Path;
use super::qp::{Disposition, QueuePair, State, must_wait, opcode_of};
use super::queue_set::{Outbound, Posted, QueueSet};

/// The limits of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Outstanding requests.
    pub send_depth: u32,
    /// Gather entries of one request.
    pub send_sge: u32,
    /// Bytes of one message.
    pub message_len: u32,
    /// The device has windows.
    pub has_windows: bool,
}

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The send queue is full.
    Full,
    /// It exceeds a limit of the device.
    Invalid,
}

/// Posts plain Sends to a queue pair that is not in the error state, while each can be sent at
/// once. Returns their number, and whether these were all: [`post`] handles the others.
///
/// # Safety
/// That of `post_send`.
#[inline(always)]
pub(crate) unsafe fn post_plain<'a, C: Carrier>(
    path: &mut Path<C>,
    qp: &mut QueuePair,
    keys: &mut KeyCache,
    limits: &Limits,
    wrs: impl Iterator<Item = SendWr<'a>>,
    now: u64,
) -> (usize, bool) {
    // The time of publishing is noted one by one.
    if qp.state != State::Ready || !path.is_open() || limits.send_sge == 0 || now != 0 {
        return (0, false);
    }
    let (dst, num) = (qp.peer, qp.num);
    let room = limits.send_depth.saturating_sub(qp.outstanding.into()) as usize;
    // Counted from the first request that no signaled one covers.
    let first = usize::from(qp.unsignaled);
    let (mut end, mut covered, mut are_all) = (first, 0, true);
    let mut burst = path.burst();
    for wr in wrs {
        let is_plain = matches!(wr.op, SendOp::Send) && !wr.flags.contains(SendFlags::FENCE);
        let is_short = wr.flags.contains(SendFlags::INLINE);
        let byte_len = match wr.sgl {
            _ if !is_plain || end == first + room => None,
            [sge] if is_short => Some(sge.length).filter(|len| *len <= INLINE_LEN as u32),
            _ => allowed_len(&wr, limits, keys),
        };
        let Some(byte_len) = byte_len else {
            are_all = false;
            break;
        };
        let (wr_id, disposition, opcode) = (wr.wr_id, Disposition::Silent, WcOpcode::Send);
        let silent = Posted { wr_id, qp_num: num, covers: 0, disposition, opcode };
        let is_published = burst.send(silent, byte_len, keys, |slot| {
            let header = Header { dst, op: OP_SEND, byte_len, ..Header::empty() };
            // SAFETY: the caller keeps the memory readable; wrong keys are already rejected.
            unsafe { dma::gather(wr.sgl, header, keys, slot) };
        });
        if !is_published {
            are_all = false;
            break;
        }
        end += 1;
        if wr.flags.contains(SendFlags::SIGNALED) {
            burst.signal((end - covered) as u16);
            covered = end;
        }
    }
    let taken = end - first;
    if taken > 0 {
        path.end_burst();
        qp.outstanding += taken as u16;
        qp.unsignaled = (end - covered) as u16;
        qp.sent_until = NonZeroU64::new(path.tx.head());
    }
    (taken, are_all)
}

/// The length of a Send other than a single piece to be copied now, if it exceeds no limit and
/// names readable memory.
#[inline(never)]
fn allowed_len(wr: &SendWr<'_>, limits: &Limits, keys: &mut KeyCache) -> Option<u32> {
    keys.refresh();
    let is_allowed = wr.flags.contains(SendFlags::INLINE)
        || wr.sgl.iter().all(|sge| keys.allows(sge, Access::empty()));
    message_len(wr, limits).filter(|_| is_allowed)
}

/// Posts one request to a queue pair that is not in the error state.
///
/// # Safety
/// That of `post_send`.
#[inline(never)]
pub(crate) unsafe fn post<C: Carrier>(
    set: &mut QueueSet,
    path: &mut Path<C>,
    limits: &Limits,
    num: u32,
    wr: &SendWr<'_>,
    now: u64,
) -> Result<(), NotTaken> {
    let byte_len = byte_len(wr, limits).ok_or(NotTaken::Invalid)?;
    let reads_max = set.settings.reads_max.min(path.tx.reads_max());
    let QueueSet { qps, keys, .. } = &mut *set;
    let Some(qp) = qps.find(num) else { return Ok(()) };
    if u32::from(qp.outstanding) >= limits.send_depth {
        return Err(NotTaken::Full);
    }
    qp.outstanding += 1;
    let (disposition, covers) = qp.account(wr.flags.contains(SendFlags::SIGNALED));
    let is_fenced = wr.flags.contains(SendFlags::FENCE);
    let needed = match wr.op {
        SendOp::Read(_) => Access::LOCAL_WRITE,
        _ => Access::empty(),
    };
    let is_allowed =
        wr.flags.contains(SendFlags::INLINE) || wr.sgl.iter().all(|sge| keys.allows(sge, needed));
    let mut disposition = if is_allowed { disposition } else { Disposition::Protection };
    let waits_for_reads = must_wait(wr.op, is_fenced, qp.reads.into(), reads_max);
    let peer = qp.peer;
    let is_local = matches!(wr.op, SendOp::Bind(_) | SendOp::Invalidate { .. });
    // What is executed here does not wait for the peer, whose requests may need it.
    let is_ready =
        qp.state == State::Ready || is_local && qp.state == State::Opening && qp.backlog.is_empty();
    if is_allowed && is_ready && !qp.is_waiting && !waits_for_reads {
        let posted =
            Posted { wr_id: wr.wr_id, qp_num: num, covers, disposition, opcode: opcode_of(wr.op) };
        if is_local {
            if path.carry_out_here(set, None, posted, wr.op) {
                return Ok(());
            }
            disposition = Disposition::WindowBind;
        } else if path.push_op(qp, keys, Outbound { posted, op: wr.op, byte_len }, now, |slot| {
            let mut header = Header { dst: peer, byte_len, ..Header::empty() };
            set_op(&mut header, wr.op);
            if matches!(wr.op, SendOp::Read(_)) {
                slot.body().header = header;
                dma::refer(wr.sgl, keys, slot.body());
            } else {
                // SAFETY: the caller keeps the memory readable; wrong keys are already rejected.
                unsafe { dma::gather(wr.sgl, header, keys, slot) };
            }
        }) {
            return Ok(());
        }
    }
    let QueueSet { qps, keys, backlog, .. } = set;
    let Some(qp) = qps.find(num) else { return Ok(()) };
    backlog.append(&mut qp.backlog, wr.wr_id, disposition, covers, |request| {
        (request.op, request.is_fenced) = (wr.op, is_fenced);
        let header = &mut request.body.header;
        (header.dst, header.byte_len, header.pieces) = (peer, byte_len, 0);
        set_op(header, wr.op);
        if is_allowed {
            // SAFETY: as above.
            unsafe { dma::keep(wr, keys, &mut request.body) };
        }
    });
    if waits_for_reads && qp.state == State::Ready && !qp.is_waiting {
        qp.state = State::Held;
    }
    if qp.state == State::Ready && !std::mem::replace(&mut qp.is_waiting, true) {
        path.enqueue(num);
    }
    Ok(())
}

/// Fills in a slot's operation, and the key that it names.
#[inline]
fn set_op(header: &mut Header, op: SendOp) {
    let (op, rkey) = match op {
        SendOp::Write(Remote { rkey, .. }) => (OP_WRITE, rkey),
        SendOp::Read(Remote { rkey, .. }) => (OP_READ, rkey),
        SendOp::SendInvalidate { rkey } => (OP_SEND_INVALIDATE, rkey),
        SendOp::Send | SendOp::Bind(_) | SendOp::Invalidate { .. } => (OP_SEND, 0),
    };
    (header.op, header.rkey) = (op, rkey);
}

/// The bytes that a request transfers, if the device can execute it.
#[inline]
fn byte_len(wr: &SendWr<'_>, limits: &Limits) -> Option<u32> {
    let is_inline = wr.flags.contains(SendFlags::INLINE);
    let is_possible = match wr.op {
        SendOp::Bind(_) => limits.has_windows && wr.sgl.is_empty() && !is_inline,
        SendOp::Invalidate { .. } => wr.sgl.is_empty() && !is_inline,
        SendOp::Read(_) => !is_inline,
        SendOp::Send | SendOp::SendInvalidate { .. } | SendOp::Write(_) => true,
    };
    message_len(wr, limits).filter(|_| is_possible)
}

/// The length of a message, if the device can send it.
#[inline(always)]
fn message_len(wr: &SendWr<'_>, limits: &Limits) -> Option<u32> {
    let len: u64 = match wr.sgl {
        [sge] => sge.length.into(),
        sgl => sgl.iter().map(|sge: &Sge| u64::from(sge.length)).sum(),
    };
    let limit = if wr.flags.contains(SendFlags::INLINE) {
        INLINE_LEN as u64
    } else {
        limits.message_len.into()
    };
    (wr.sgl.len() <= (limits.send_sge as usize).min(PIECES_MAX) && len <= limit)
        .then_some(len as u32)
}
