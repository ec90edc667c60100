//! Interprets a transmission through the protocol, and reports violations.

use rpcrdma_mempool::RecvToken;
use rpcrdma_proto::{
    Aborted, CallId, Complete, Control, Ignored, Ingress, Part, Received, Refusal, ReplyTo, Report,
    Via, Violation,
};

use super::Receive;
use super::disposition::Disposition;
use super::prepare::{ExposedReply, Whole, prepare_call, prepare_reply, prepare_segmented};
use crate::error::{CallError, CloseReason, Execution, Sent};
use crate::message::incoming::Buffers;
use crate::message::reading::first_segment;
use crate::state::parts::Parts;
use crate::state::peers::{Peer, Phase};

impl Receive {
    /// Interprets a transmission by the protocol.
    #[inline]
    pub(super) fn interpret(
        &mut self,
        peer: &mut Peer,
        parts: &mut Parts,
        byte_len: u32,
        token: &RecvToken,
    ) -> Disposition {
        if matches!(peer.phase, Phase::Closing | Phase::Leaving) {
            self.stats.completions_late.add(1);
            return Disposition::Done;
        }
        let Receive { pool, map, saved_offer, stats, .. } = self;
        let at = Received { buffer: token.index(), byte_len };
        let first = first_segment(pool, token, byte_len);
        match peer.conn.on_transmission(&mut parts.ledger, at, first) {
            Ingress::Call(message) => {
                let transmissions = core::slice::from_ref(&message.part);
                let (conn, rdma) = (&peer.conn, &parts.rdma);
                let result = prepare_call(conn, &message, transmissions, map, saved_offer, rdma);
                let (to, part) = (message.reply_to(), message.part);
                classify_call(peer, parts, to, part, result)
            }
            Ingress::Reply(id, message) => {
                let transmissions = core::slice::from_ref(&message.part);
                let result = prepare_reply(&peer.conn, parts, id, &message, transmissions, map);
                let (via, part) = (message.via, message.part);
                classify_reply(peer, parts, id, via, part, result)
            }
            Ingress::Partial => Disposition::Park,
            Ingress::Control(Control { answer, .. }) => {
                if let Some(send) = answer {
                    parts.outbox.control(peer, &send);
                }
                Disposition::Done
            }
            Ingress::PropertiesAnswered(outcome) => Disposition::Properties(outcome),
            Ingress::Failed(id, refusal) => refused(id, CallError::Rejected, refusal),
            Ingress::Again(id, refusal) => refused(id, CallError::FormRefused, refusal),
            Ingress::ReplyRefused { .. } => {
                stats.errors_reported_by_peers.add(1);
                Disposition::Done
            }
            Ingress::BadReply { id, violation, report } => {
                // The call fails here, whether the responder receives the report or not.
                let _is_sent = parts.outbox.report(peer, &report);
                Disposition::Failed(id, CallError::BadReply(violation))
            }
            Ingress::Reject(report) => reported(parts.outbox.report(peer, &report)),
            Ingress::Ignored(reason) => {
                stats.transmissions_ignored.add(1);
                stats.replies_late.add((reason == Ignored::LateReply).into());
                Disposition::Done
            }
            Ingress::Fatal(why) => Disposition::Close(CloseReason::Protocol(why)),
            Ingress::Complete(complete) => Disposition::Complete(complete),
            Ingress::Aborted(Aborted { report, again, failed }) => {
                match (self.abort(peer, parts, &report), failed) {
                    (false, _) => Disposition::Close(CloseReason::NotTaking),
                    (true, Some((id, why))) => Disposition::Aborted { again, id, why },
                    (true, None) if again => Disposition::Again,
                    (true, None) => Disposition::Done,
                }
            }
        }
    }

    /// Collects the buffers of a group and prepares the message.
    pub(super) fn complete(
        &mut self,
        peer: &mut Peer,
        parts: &mut Parts,
        complete: Complete,
        last: RecvToken,
        buffers: &mut Buffers,
    ) -> Disposition {
        let Receive { pool, parked, map, saved_offer, stats, .. } = self;
        peer.group_until = None;
        stats.groups_completed.add(1);
        let conn = &mut peer.conn;
        let transmissions = conn.group();
        let mut bytes = 0;
        for part in transmissions {
            bytes += u64::from(part.byte_len);
            buffers.extend(parked[part.buffer as usize].take());
        }
        stats.bytes_continued.add(bytes);
        peer.totals.counted.bytes_continued += bytes;
        buffers.push(last);
        let Some((first, part)) = buffers.first().zip(transmissions.first()) else {
            return Disposition::Done;
        };
        debug_assert_eq!(buffers.len(), transmissions.len(), "a group is as long as its parts");
        let first = first_segment(pool, first, part.byte_len);
        if let Complete::Reply(id) = complete
            && prepare_segmented(conn, parts, id, first, map)
        {
            return Disposition::Reply(id);
        }
        let Some(message) = conn.message(first) else { return Disposition::Done };
        match complete {
            Complete::Call => {
                let rdma = &parts.rdma;
                let result = prepare_call(conn, &message, transmissions, map, saved_offer, rdma);
                let (to, part) = (message.reply_to(), message.part);
                classify_call(peer, parts, to, part, result)
            }
            Complete::Reply(id) => {
                let result = prepare_reply(conn, parts, id, &message, transmissions, map);
                let (via, part) = (message.via, message.part);
                classify_reply(peer, parts, id, via, part, result)
            }
            // Its call was abandoned.
            Complete::Unwanted => {
                stats.replies_late.add(1);
                Disposition::Done
            }
        }
    }

    /// Reports a dropped group and frees its buffers. False if it cannot be reported.
    #[cold]
    pub(super) fn abort(&mut self, peer: &mut Peer, parts: &mut Parts, report: &Report) -> bool {
        let is_sent = parts.outbox.report(peer, report);
        peer.group_until = None;
        self.unpark(peer.conn.group());
        is_sent
    }
}

/// An own call that its peer has refused.
fn refused(
    id: CallId,
    error: fn(Refusal, Execution) -> CallError,
    refusal: Refusal,
) -> Disposition {
    Disposition::Failed(id, CallError::of(Sent::Here, |known| error(refusal, known)))
}

/// Reports a call that violates a rule of placement; it was not executed.
fn classify_call(
    peer: &mut Peer,
    parts: &mut Parts,
    to: ReplyTo,
    part: Part,
    result: Result<Whole, Violation>,
) -> Disposition {
    match result {
        Ok(Whole::Here) => Disposition::Call(to),
        Ok(Whole::Remote(found)) => Disposition::Fetch(to, part, found),
        Err(violation) => {
            parts.reject(peer, &to, violation);
            Disposition::Done
        }
    }
}

/// Reports a reply that violates a rule of placement, and fails its call.
fn classify_reply(
    peer: &mut Peer,
    parts: &mut Parts,
    id: CallId,
    via: Via,
    part: Part,
    result: Result<Option<ExposedReply>, Violation>,
) -> Disposition {
    let violation = match result {
        Ok(None) => return Disposition::Reply(id),
        Ok(Some(reply)) => return Disposition::Exposed(reply, part),
        Err(violation) => violation,
    };
    if let Some(report) = peer.conn.reject_reply(id, via, violation) {
        // The call fails here, whether the responder receives the report or not.
        let _is_sent = parts.outbox.report(peer, &report);
    }
    Disposition::Failed(id, CallError::BadReply(violation))
}

/// The disposition for a connection whose peer was, or was not, sent a report.
fn reported(is_sent: bool) -> Disposition {
    if is_sent { Disposition::Done } else { Disposition::Close(CloseReason::NotTaking) }
}
