//! Messages of several transmissions: their buffers are parked until the last is here.

use rpcrdma_mempool::{RecvPool, RecvToken};
use rpcrdma_proto::{Complete, Part, Report};

use super::prepare::{Parts, first_segment, prepare_call, prepare_reply};
use super::transmission::{Disposition, RecvInfo};
use crate::api::handler::Handler;
use crate::error::{CallError, CloseReason};
use crate::message::incoming::Buffers;
use crate::provider::Provider;
use crate::shard::core::Core;

impl<P: Provider> Core<P> {
    /// The last transmission of a group is here: delivers what the group carries.
    #[cold]
    pub fn on_group<H: Handler>(
        &mut self,
        index: u32,
        complete: Complete,
        last: RecvToken,
        recv: RecvInfo,
        handler: &mut H,
    ) {
        let mut buffers = Buffers::new();
        let disposition = self.complete(index, complete, last, &mut buffers);
        if !matches!(disposition, Disposition::Exposed(..)) {
            self.note_invalidated(index, recv);
        }
        match disposition {
            Disposition::Call(to) => self.deliver_call(index, to, &mut buffers, handler),
            Disposition::Reply(id) => self.deliver_reply(index, id, &mut buffers, handler),
            Disposition::Failed(id, error) => self.fail_call(index, id, error, handler),
            Disposition::Fetch(to, _, needs) => {
                let parts = self.parts_of(index);
                return self.fetch_call(index, to, needs, (buffers, &parts));
            }
            Disposition::Exposed(place, _) => {
                let parts = self.parts_of(index);
                return self.end_exposed(place, Ok((buffers, &parts)), recv.invalidated, handler);
            }
            _ => {}
        }
        self.free_buffers(buffers);
        self.offer_properties(index);
    }

    /// The transmissions of the group that was just completed.
    fn parts_of(&mut self, index: u32) -> Parts {
        let peer = self.peers.at(index);
        peer.map_or(Parts::new(), |peer| peer.conn.group().iter().copied().collect())
    }

    /// Keeps a buffer until its group is whole.
    #[cold]
    pub fn park(&mut self, index: u32, token: RecvToken, now: u64) {
        let until = self.life.group_until(now);
        if let Some(peer) = self.peers.at(index) {
            peer.group_until.get_or_insert(until);
        }
        let at = token.index() as usize;
        self.parked[at] = Some(token);
    }

    /// Collects the buffers of a group and prepares the message.
    fn complete(
        &mut self,
        index: u32,
        complete: Complete,
        last: RecvToken,
        buffers: &mut Buffers,
    ) -> Disposition {
        let Core { peers, pool, outbox, parked, map, saved_offer, stats, .. } = self;
        let Some(peer) = peers.at(index) else {
            buffers.push(last);
            return Disposition::Done;
        };
        peer.group_until = None;
        stats.groups.add(1);
        let conn = &mut peer.conn;
        let parts = conn.group();
        for part in parts {
            buffers.extend(parked[part.buffer as usize].take());
        }
        buffers.push(last);
        let Some((first, part)) = buffers.first().zip(parts.first()) else {
            return Disposition::Done;
        };
        debug_assert_eq!(buffers.len(), parts.len(), "a group is as long as its parts");
        let Some(message) = conn.message(first_segment(pool, first, part.byte_len)) else {
            return Disposition::Done;
        };
        match complete {
            Complete::Call => {
                let result =
                    prepare_call(conn, &message, parts, (map, saved_offer), &outbox.exposures);
                let to = message.reply_to();
                let part = message.part;
                self.judge_call(index, to, part, result)
            }
            Complete::Reply(id) => {
                let result = prepare_reply(conn, outbox, id, &message, parts, map);
                let (via, part) = (message.via, message.part);
                self.judge_reply(index, id, (via, part), result)
            }
            // Its call was given up.
            Complete::Unwanted => {
                stats.late_replies.add(1);
                Disposition::Done
            }
        }
    }

    /// A group was given up: reports it and frees its buffers. False if it cannot be reported.
    #[cold]
    pub fn abort(&mut self, index: u32, report: &Report) -> bool {
        let Core { peers, parked, pool, outbox, .. } = self;
        let Some(peer) = peers.at(index) else { return true };
        let is_told = outbox.report(peer, report);
        peer.group_until = None;
        unpark(parked, pool, peer.conn.group());
        is_told
    }

    /// Gives up a group that has stood open for too long: its sender is told what is missing, and
    /// then loses its connection (wire.md E39).
    #[cold]
    pub fn expire_group<H: Handler>(&mut self, index: u32, now: u64, handler: &mut H) {
        let Core { peers, outbox, .. } = self;
        let ended = peers.at(index).and_then(|peer| peer.conn.expire_group(&mut outbox.ledger));
        let is_told = ended.is_some_and(|ended| self.abort(index, &ended.report));
        if let Some((id, why)) = ended.and_then(|ended| ended.failed) {
            self.fail_call(index, id, CallError::BadReply(why), handler);
        }
        match is_told {
            true => self.leave(index, CloseReason::TimedOut, now, handler),
            false => self.close(index, CloseReason::TimedOut, now, handler),
        }
    }

    /// Frees the buffers of an open group.
    pub fn free_parked(&mut self, index: u32) {
        let Core { peers, parked, pool, .. } = self;
        let Some(peer) = peers.at(index) else { return };
        peer.group_until = None;
        unpark(parked, pool, peer.conn.parked());
    }
}

/// Takes the buffers of a group home.
fn unpark(parked: &mut [Option<RecvToken>], pool: &mut RecvPool, parts: &[Part]) {
    for part in parts {
        if let Some(token) = parked[part.buffer as usize].take() {
            pool.put(token);
        }
    }
}
