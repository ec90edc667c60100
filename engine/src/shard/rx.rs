//! The way in: completion, transmission, group, call or reply, and the buffer back to the device.

use rpcrdma_mempool::{RecvPool, RecvToken};
use rpcrdma_proto::{
    CallId, Complete, Connection, Control, Ingress, Message, Part, Received, ReplyTo, Report,
    ShardLedger, Violation, payload_pieces,
};

use super::core::Core;
use super::peers::Phase;
use super::turn::REPLY;
use crate::client::completion::Completion;
use crate::error::{CallError, CloseReason};
use crate::incoming::{Buffers, Incoming, Map};
use crate::payload::Payload;
use crate::provider::Provider;
use crate::server::call::Call;
use crate::server::handler::Handler;
use crate::server::reply::Reply;
use crate::server::ticket::Directions;

/// A message that waits for a send slot.
#[derive(Debug)]
pub(crate) struct Waiting {
    token: RecvToken,
    byte_len: u32,
    qp_num: u32,
}

impl Waiting {
    /// The buffer, for whoever does not want the message.
    pub fn into_token(self) -> RecvToken {
        self.token
    }
}

/// What became of a transmission.
enum Fate {
    /// The transmission is done with.
    Done,
    /// It ended a group and is a message of its own: once more.
    Again,
    /// The buffers hold a call.
    Call(ReplyTo),
    /// The buffers hold the reply to a call.
    Reply(CallId),
    /// A call of ours failed.
    Failed(CallId, CallError),
    /// The connection must go.
    Close(CloseReason),
}

impl<P: Provider> Core<P> {
    /// A transmission has arrived.
    #[inline]
    pub fn on_receive<H: Handler>(
        &mut self,
        token: RecvToken,
        byte_len: u32,
        qp_num: u32,
        now: u64,
        handler: &mut H,
    ) {
        self.stats.received.add(1);
        // Whatever arrives may be a call, and a call must be answered: without a send slot it is
        // not even looked at. Order is kept.
        if self.outbox.send.free() == 0 || !self.waiting.is_empty() {
            self.waiting.push_back(Waiting { token, byte_len, qp_num });
            return;
        }
        self.receive(token, byte_len, qp_num, now, handler);
    }

    /// Takes up messages that wait, as many as there are send slots for.
    #[cold]
    pub fn serve_waiting<H: Handler>(&mut self, now: u64, handler: &mut H) {
        while self.outbox.send.free() > 0
            && let Some(Waiting { token, byte_len, qp_num }) = self.waiting.pop_front()
        {
            self.receive(token, byte_len, qp_num, now, handler);
        }
    }

    fn receive<H: Handler>(
        &mut self,
        token: RecvToken,
        byte_len: u32,
        qp_num: u32,
        now: u64,
        handler: &mut H,
    ) {
        let Some(index) = self.peers.find(qp_num) else {
            self.stats.late.add(1);
            self.free_buffer(token);
            return;
        };
        let mut buffers = Buffers::new();
        buffers.push(token);
        loop {
            match self.interpret(index, byte_len, &mut buffers, now) {
                Fate::Done => break,
                Fate::Again => continue,
                Fate::Call(to) => {
                    // The first message of a peer without properties is a call.
                    self.note_ready(index, now, handler);
                    self.deliver_call(index, to, &mut buffers, handler);
                    break;
                }
                Fate::Reply(id) => {
                    self.deliver_reply(index, id, &mut buffers, handler);
                    break;
                }
                Fate::Failed(id, error) => {
                    self.fail_call(index, id, error, handler);
                    break;
                }
                Fate::Close(why) => {
                    self.close(index, why, now, handler);
                    break;
                }
            }
        }
        self.note_ready(index, now, handler);
        for token in buffers {
            self.free_buffer(token);
        }
    }

    /// Asks the protocol what a transmission means. On return `buffers` holds what is to be
    /// delivered or to be freed; a buffer that stays parked is taken out.
    #[inline]
    fn interpret(&mut self, index: u32, byte_len: u32, buffers: &mut Buffers, now: u64) -> Fate {
        let Core { peers, pool, outbox, parked, map, directions, stats, life, .. } = self;
        let Some(peer) = peers.at(index) else { return Fate::Done };
        if matches!(peer.phase, Phase::Closing { .. }) {
            stats.late.add(1);
            return Fate::Done;
        }
        let token = &buffers[0];
        let at = Received { buffer: token.index(), byte_len };
        let first = first_segment(pool, token, byte_len);
        match peer.conn.on_transmission(&mut outbox.ledger, at, first) {
            Ingress::Call(message) => {
                let parts = core::slice::from_ref(&message.part);
                match prepare_call(&peer.conn, &message, parts, map, directions) {
                    Ok(()) => Fate::Call(message.reply_to()),
                    Err(violation) => {
                        let to = message.reply_to();
                        let report = peer.conn.reject_call(&mut outbox.ledger, &to, violation);
                        outbox.report(peer, &report);
                        Fate::Done
                    }
                }
            }
            Ingress::Reply(id, message) => {
                let parts = core::slice::from_ref(&message.part);
                match prepare_reply(&peer.conn, &outbox.ledger, id, &message, parts, map) {
                    Ok(()) => Fate::Reply(id),
                    Err(violation) => {
                        let report = peer.conn.reject_reply(&mut outbox.ledger, id, violation);
                        outbox.report(peer, &report);
                        Fate::Failed(id, CallError::BadReply(violation))
                    }
                }
            }
            Ingress::Partial => {
                if let Some(token) = buffers.pop() {
                    let at = token.index() as usize;
                    parked[at] = Some(token);
                }
                peer.group_until = Some(life.group_until(now));
                Fate::Done
            }
            Ingress::Control(Control { answer, .. }) => {
                if let Some(send) = answer {
                    outbox.control(peer, &send);
                }
                Fate::Done
            }
            Ingress::Failed(id, refusal) => Fate::Failed(id, CallError::Rejected(refusal)),
            Ingress::ReplyRefused { .. } => {
                stats.reported.add(1);
                Fate::Done
            }
            Ingress::Reject(report) => {
                outbox.report(peer, &report);
                Fate::Done
            }
            Ingress::Ignored(_) => {
                stats.ignored.add(1);
                Fate::Done
            }
            Ingress::Fatal(why) => Fate::Close(CloseReason::Protocol(why)),
            Ingress::Complete(complete) => self.complete(index, complete, buffers),
            Ingress::Aborted(aborted) => {
                self.abort(index, &aborted.report);
                if aborted.again { Fate::Again } else { Fate::Done }
            }
        }
    }

    /// The last transmission of a group is here: collects its buffers and prepares the message.
    #[cold]
    fn complete(&mut self, index: u32, complete: Complete, buffers: &mut Buffers) -> Fate {
        let Core { peers, pool, outbox, parked, map, directions, stats, .. } = self;
        let Some(peer) = peers.at(index) else { return Fate::Done };
        peer.group_until = None;
        stats.groups.add(1);
        let conn = &mut peer.conn;
        let last = buffers.pop();
        let parts = conn.group();
        for part in parts {
            buffers.extend(parked[part.buffer as usize].take());
        }
        buffers.extend(last);
        let Some((first, part)) = buffers.first().zip(parts.first()) else { return Fate::Done };
        debug_assert_eq!(buffers.len(), parts.len(), "a group is as long as its parts");
        let Some(message) = conn.message(first_segment(pool, first, part.byte_len)) else {
            return Fate::Done;
        };
        match complete {
            Complete::Call => match prepare_call(conn, &message, parts, map, directions) {
                Ok(()) => Fate::Call(message.reply_to()),
                Err(violation) => {
                    let to = message.reply_to();
                    let report = conn.reject_call(&mut outbox.ledger, &to, violation);
                    outbox.report(peer, &report);
                    Fate::Done
                }
            },
            // Its caller is gone.
            Complete::Unwanted => Fate::Done,
            Complete::Reply(id) => {
                match prepare_reply(conn, &outbox.ledger, id, &message, parts, map) {
                    Ok(()) => Fate::Reply(id),
                    Err(violation) => {
                        let report = conn.reject_reply(&mut outbox.ledger, id, violation);
                        outbox.report(peer, &report);
                        Fate::Failed(id, CallError::BadReply(violation))
                    }
                }
            }
        }
    }

    /// A group was given up: reports it and frees its buffers.
    #[cold]
    fn abort(&mut self, index: u32, report: &Report) {
        let Some(peer) = self.peers.at(index) else { return };
        self.outbox.report(peer, report);
        self.free_parked(index);
    }

    /// Frees the buffers of an open group.
    pub fn free_parked(&mut self, index: u32) {
        let Core { peers, parked, pool, .. } = self;
        let Some(peer) = peers.at(index) else { return };
        peer.group_until = None;
        for part in peer.conn.parked() {
            if let Some(token) = parked[part.buffer as usize].take() {
                pool.put(token);
            }
        }
    }

    #[inline]
    fn deliver_call<H: Handler>(
        &mut self,
        index: u32,
        to: ReplyTo,
        buffers: &mut Buffers,
        handler: &mut H,
    ) {
        let Core { peers, pool, outbox, map, directions, stats, life, handle, .. } = self;
        let Some(peer) = peers.at(index) else { return };
        if matches!(peer.phase, Phase::Closing { .. }) {
            return;
        }
        let slot = if life.is_stopping() { None } else { outbox.begin() };
        let Some(message) = slot else {
            let report = peer.conn.refuse(&mut outbox.ledger, &to);
            outbox.report(peer, &report);
            return;
        };
        stats.calls_in.add(1);
        peer.open_calls += 1;
        let call = Call::new(peer.id, to.xid, Incoming::new(pool, buffers, map, stats));
        let payload = Payload::begin(outbox, message, to.xid, REPLY);
        let _answer =
            handler.on_call(call, Reply::new(payload, peer, to, directions, handle.shard()));
    }

    #[inline]
    fn deliver_reply<H: Handler>(
        &mut self,
        index: u32,
        id: CallId,
        buffers: &mut Buffers,
        handler: &mut H,
    ) {
        let Core { peers, pool, outbox, map, stats, .. } = self;
        let Some(peer) = peers.at(index) else { return };
        let Some(finished) = peer.conn.finish_call(&mut outbox.ledger, id) else { return };
        stats.calls_done.add(1);
        let incoming = Incoming::new(pool, buffers, map, stats);
        handler.on_reply(Completion::new(peer.id, finished.token, Ok(incoming)));
    }

    /// Completes a call of ours with an error.
    #[cold]
    pub fn fail_call<H: Handler>(
        &mut self,
        index: u32,
        id: CallId,
        error: CallError,
        handler: &mut H,
    ) {
        let Some(peer) = self.peers.at(index) else { return };
        let finished = peer.conn.finish_call(&mut self.outbox.ledger, id);
        let Some(finished) = finished else { return };
        self.stats.calls_done.add(1);
        self.stats.calls_failed.add(1);
        handler.on_reply(Completion::new(peer.id, finished.token, Err(error)));
    }
}

/// The received bytes of a buffer's first segment, where the header must lie (wire.md W1).
#[inline]
fn first_segment<'a>(pool: &'a RecvPool, token: &'a RecvToken, byte_len: u32) -> &'a [u8] {
    let segment = pool.segment(token, 0);
    &segment[..segment.len().min(byte_len as usize)]
}

/// Checks a call and notes where its parts are.
#[inline]
fn prepare_call(
    conn: &Connection,
    message: &Message<'_>,
    parts: &[Part],
    map: &mut Map,
    directions: &mut Directions,
) -> Result<(), Violation> {
    directions.clear();
    if message.is_plain() && map.set_single(conn.settings().first_segment_len(), &message.part) {
        return Ok(());
    }
    let placed = conn.resolve_call(message, parts)?;
    map.set_payload(payload_pieces(&conn.settings().structure, parts));
    map.set_items(&conn.settings().structure, &placed);
    // wire.md W3: directions of more than 256 bytes are more than a call may carry.
    if !directions.set(&message.rsd) {
        return Err(Violation::BadHeader("the reply directions are longer than 256 bytes"));
    }
    Ok(())
}

/// Checks a reply and notes where its parts are.
#[inline]
fn prepare_reply(
    conn: &Connection,
    ledger: &ShardLedger,
    id: CallId,
    message: &Message<'_>,
    parts: &[Part],
    map: &mut Map,
) -> Result<(), Violation> {
    if message.is_plain() && map.set_single(conn.settings().first_segment_len(), &message.part) {
        return Ok(());
    }
    let placed = conn.resolve_reply(ledger, id, message, parts)?;
    map.set_payload(payload_pieces(&conn.settings().structure, parts));
    map.set_items(&conn.settings().structure, &placed);
    Ok(())
}
