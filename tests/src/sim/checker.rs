//! The checker: checks a shard after its turn, and decides whether an anomaly has a valid cause.

use std::sync::atomic::{AtomicU64, Ordering};

use rpcrdma::provider::{ConnectError, CqError, WcStatus};
use rpcrdma::shard::audit::PeerAudit;
use rpcrdma::{CallError, CloseReason, ConnectionId, Rejection};
use rpcrdma_proto::{Fatal, Refusal};
use rpcrdma_testing::fault::FaultLog;

use super::invariants::{self, State};
use super::model::{End, Link, NOT_ADMITTED, Suspicion, Violation};
use super::provider::SimProvider;
use super::scenario::{EngineSetup, NEVER, Weather};
use super::scheduler::{Node, QueuesOf, Sim};

impl<P: SimProvider> Sim<P> {
    /// Checks a shard after its turn.
    ///
    /// # Errors
    /// The first violation.
    pub fn look(&mut self, at: usize) -> Result<(), Violation> {
        self.take_audit(at);
        self.note_full();
        self.note_handshake(at);
        self.note_changes();
        self.note_broken(at);
        if let Some(violation) = self.model.borrow_mut().violation.take() {
            return Err(violation);
        }
        let suspicions = std::mem::take(&mut self.model.borrow_mut().suspicions);
        for (end, suspicion) in suspicions {
            self.check_suspicion(end, &suspicion)?;
        }
        let not_up = std::mem::take(&mut self.model.borrow_mut().not_up);
        for (shard, why) in not_up {
            self.check_attempt(shard, why)?;
        }
        self.check_shard(at)?;
        self.check_quotas(at)?;
        self.check_pairs(at)
    }

    /// Audits the shard; changes since its last turn are added to the trace.
    fn take_audit(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let audit = node.shard.audit();
        for peer in &audit.peers {
            node.names.insert(peer.qp_num, peer.id);
        }
        let mut model = self.model.borrow_mut();
        let numbers = [
            audit.receives_posted as u64,
            audit.send.free as u64,
            audit.spares.free as u64,
            audit.bulk.free as u64,
            audit.calls.into(),
            audit.granted.into(),
            audit.peers.len() as u64,
        ];
        numbers.into_iter().for_each(|number| model.trace.number(number));
        self.nodes[at].audit = audit;
    }

    /// A new connection is an end of the current attempt. An attempt can make two connections, one
    /// after the other, if the first is lost before its version is known.
    fn note_handshake(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let mut new = Vec::new();
        for peer in &node.audit.peers {
            if node.seen.insert(peer.id) {
                new.push((at, peer.id));
            }
        }
        let attempts = std::mem::take(&mut node.shard.handler().attempts);
        let Some(handshake) = &mut self.handshake else { return };
        handshake.ends.extend(new);
        let by = handshake.by;
        // The rest of a first connection, which may still be closing, is not an end of the second.
        let nodes = &self.nodes;
        let find = |(at, id): &End| nodes[*at].audit.peers.iter().find(|peer| peer.id == *id);
        handshake.ends.retain(|end| find(end).is_some_and(|peer| !peer.is_closing));
        let sides = [true, false].map(|is_asked| {
            let mut ends = handshake.ends.iter().copied();
            ends.rfind(|end| find(end).is_some_and(|peer| peer.is_asked == is_asked))
        });
        if attempts.iter().any(|(id, _)| (at, *id) == by) {
            handshake.left = Some((self.controls.len(), vec![true; self.nodes.len()]));
        }
        // With two connections it is unknown which end belongs to which. The first may be lost and
        // the second made within one turn: no audit shows the first on the requesting side.
        if nodes[by.0].retries() > handshake.retries {
            handshake.ends.clear();
        } else if let [Some(one), Some(other)] = sides {
            let mut model = self.model.borrow_mut();
            model.join([one, other]);
            model.saw("connections");
            if let Some(link) = model.link(one) {
                link.is_changed = [one, other].iter().any(|end| self.strangers.contains(end));
            }
            handshake.ends.clear();
        }
        if let Some((0, shards)) = &mut handshake.left {
            // Every control plane was stepped since, so every shard has received its messages.
            shards[at] = false;
            if !shards.contains(&true) {
                self.handshake = None;
            }
        }
    }

    /// Records the shards without room for another connection; the current attempt counts.
    pub fn note_full(&mut self) {
        for node in &mut self.nodes {
            let max = self.setup.engines[node.of.engine].raw.connections.max;
            node.was_full |= node.shard.handle().connections() as i64 >= max;
        }
        for (at, engine) in self.setup.engines.iter().enumerate() {
            let shards = self.nodes.iter().filter(|node| node.of.engine == at);
            let count: usize = shards.map(|node| node.shard.handle().connections()).sum();
            let max = engine.raw.connections.max_per_peer;
            self.is_crowded |= max > 0 && count as i64 >= max;
        }
    }

    /// Records the connections on which bytes of a message were changed.
    fn note_changes(&mut self) {
        for (engine, log) in self.logs.iter().enumerate() {
            let mut changed = log.changed.lock().expect("no thread panicked with the lock");
            for (which, qp_num) in changed.drain(..) {
                let of = |node: &Node<P>| node.of == QueuesOf { engine, queues: which };
                let shard = self.nodes.iter().position(of).expect("queues are of a shard");
                let mut model = self.model.borrow_mut();
                model.saw("headers changed");
                let Some(&peer) = self.nodes[shard].names.get(&qp_num) else { continue };
                match model.link((shard, peer)) {
                    Some(link) => link.is_changed = true,
                    None => drop(self.strangers.insert((shard, peer))),
                }
            }
        }
    }

    /// Connections that this shard has closed or is closing.
    fn note_broken(&mut self, at: usize) {
        let mut model = self.model.borrow_mut();
        let ends: Vec<End> =
            model.links.keys().copied().filter(|(shard, _)| *shard == at).collect();
        for end in ends {
            let peer = self.nodes[at].audit.peers.iter().find(|peer| peer.id == end.1);
            if peer.is_none_or(|peer| peer.is_closing)
                && let Some(link) = model.link(end)
            {
                link.is_broken = true;
            }
        }
    }

    fn check_suspicion(&self, end: End, suspicion: &Suspicion) -> Result<(), Violation> {
        let (check, is_right) = match suspicion {
            Suspicion::Content(_) => (CONTENT, self.may_be_changed(end)),
            Suspicion::Late(_) => (CONTENT, self.may_be_broken(end)),
            Suspicion::Elsewhere(from) => {
                let [there, here] = [*from, end].map(|end| {
                    let model = self.model.borrow();
                    model.links.get(&end).copied()
                });
                // A call may arrive in the turn in which its connection becomes known.
                (ELSEWHERE, there.is_none() || there == here || self.may_be_changed(end))
            }
            // wire.md B16: without properties the first call finds out which version there is.
            Suspicion::Rejected(CallError::Rejected(Refusal::Version { .. }, _), _)
                if self.are_strangers() || self.is_noisy() =>
            {
                (FAILED, true)
            }
            Suspicion::Rejected(CallError::MemoryLost, _) => {
                let node = &self.nodes[end.0];
                (FAILED, is_leaky(node) || self.keeps_rights(node))
            }
            Suspicion::Rejected(_, script) => {
                let other = self.other(end);
                let may_reject = other.is_none_or(|(shard, _)| {
                    let node = &self.nodes[shard];
                    let is_short = self.setup.engines[node.of.engine].is_short_for(script);
                    is_short || is_leaky(node) || self.keeps_rights(node)
                });
                (FAILED, may_reject || self.may_be_changed(end))
            }
            Suspicion::Closed(why) => (CLOSED, self.may_close(end, *why)),
        };
        if is_right {
            return Ok(());
        }
        let link = self.model.borrow_mut().link(end).cloned();
        Err(Violation { check, detail: format!("{end:?}, {link:?}: {suspicion}") })
    }

    fn check_attempt(&self, shard: usize, why: ConnectError) -> Result<(), Violation> {
        let is_right = match why {
            ConnectError::Rejected(why) => self.may_reject(why),
            ConnectError::TimedOut => self.has_leapt || self.is_noisy(),
            ConnectError::NoListener => self.nodes.iter().any(|node| self.is_ending(node)),
            ConnectError::NoRoom => true,
            ConnectError::Lost => true,
            ConnectError::Version { .. } => self.are_strangers() || self.is_noisy(),
            _ => false,
        };
        match is_right {
            true => Ok(()),
            false => Err(Violation { check: NOT_UP, detail: format!("shard {shard}: {why}") }),
        }
    }

    /// Whether a server may reject the current attempt for this reason.
    fn may_reject(&self, why: Rejection) -> bool {
        let mut model = self.model.borrow_mut();
        let is_ending = || self.nodes.iter().any(|node| self.is_ending(node));
        match why {
            Rejection::Refused { code } => {
                // A program says its number, or nothing.
                model.coverage.contains_key(NOT_ADMITTED) && usize::from(code) < self.nodes.len()
            }
            Rejection::NotAllowed => {
                model.saw("peers not allowed");
                self.setup.engines.iter().any(|it| !it.raw.connections.allow.is_empty())
            }
            Rejection::PeerFull => {
                model.saw("peers with too many connections");
                self.is_crowded
            }
            Rejection::Full => is_ending() || self.nodes.iter().any(|node| node.was_full),
            Rejection::Stopping => is_ending(),
            // The device of a shard that ends makes no connection.
            Rejection::Busy => is_ending(),
            // Over shared memory, a listener that closes answers no peer. A connection that is cut
            // before the answer has no reason.
            Rejection::Unstated => is_ending() || self.base.cuts() > 0,
            _ => false,
        }
    }

    /// The number of faults of some kinds in the queues of an engine.
    fn seen(&self, engine: usize, kinds: Kinds) -> u64 {
        kinds(&self.logs[engine])
    }

    /// Whether faults of some kinds have happened in the queues of a shard, or of its engine.
    fn has_seen(&self, node: &Node<P>, kinds: Kinds) -> bool {
        self.seen(node.of.engine, kinds) > 0
    }

    fn has_any_seen(&self, kinds: Kinds) -> bool {
        (0..self.logs.len()).any(|engine| self.seen(engine, kinds) > 0)
    }

    /// Whether any connection may have ended without a shard's doing.
    fn may_any_be_broken(&self) -> bool {
        self.has_any_seen(BROKEN) || self.base.cuts() > 0
    }

    /// Whether the completion queue of a shard was lost, or that of another of its engine.
    pub fn has_lost_queue(&self, node: &Node<P>) -> bool {
        self.has_seen(node, |log| sum([&log.overrun, &log.cqs_failed]))
    }

    /// Whether the device of a shard failed to end a peer's right to memory.
    pub fn keeps_rights(&self, node: &Node<P>) -> bool {
        self.has_seen(node, KEPT) && node.shard.handle().stats().rights_lost > 0
    }

    /// Whether a shard was asked to stop, or must stop.
    fn is_ending(&self, node: &Node<P>) -> bool {
        node.is_stopping || self.has_lost_queue(node) || self.has_seen(node, LOST)
    }

    /// Whether this is a valid reason for the end of a connection.
    fn may_close(&self, end: End, why: CloseReason) -> bool {
        let node = &self.nodes[end.0];
        let times = &self.setup.engines[node.of.engine].raw.connections;
        let is_over = |time: &str| self.has_leapt || time != NEVER;
        match why {
            CloseReason::Local | CloseReason::Refused => self.model.borrow().ordered.contains(&end),
            CloseReason::Stopped => self.is_ending(node),
            CloseReason::PeerGone => {
                let is_gone = self.has_seen(node, |log| sum([&log.sends_gone]));
                is_gone || self.may_any_be_broken() || self.may_be_broken(end)
            }
            CloseReason::Transport(WcStatus::Flushed) => {
                self.may_any_be_broken() || self.may_be_broken(end)
            }
            CloseReason::Transport(WcStatus::RnrRetryExceeded) => self.may_lack_receives(),
            CloseReason::Transport(_) if self.may_be_late(end) => true,
            CloseReason::Queue(CqError::Overrun) => self.has_seen(node, |log| sum([&log.overrun])),
            CloseReason::Queue(CqError::Device(_)) => {
                self.has_seen(node, |log| sum([&log.cqs_failed]))
            }
            CloseReason::Failed => self.has_seen(node, |log| sum([&log.qps_failed])),
            CloseReason::Unasked => {
                self.has_seen(node, |log| sum([&log.send_ghosts, &log.recv_ghosts]))
            }
            CloseReason::DeviceLost => self.has_seen(node, LOST),
            CloseReason::NotAnswering => is_over(times.call_timeout.as_str()),
            CloseReason::Idle => is_over(times.idle_timeout.as_str()),
            CloseReason::NotTaking => {
                is_over(times.send_timeout.as_str()) || self.may_be_changed(end)
            }
            CloseReason::TimedOut => self.has_leapt || self.may_be_changed(end),
            CloseReason::Invalid => false,
            CloseReason::Protocol(Fatal::VersionRefused { .. }) => {
                // The content of a changed header may be remembered for later connections.
                self.are_strangers() || self.is_noisy()
            }
            _ => self.may_be_changed(end),
        }
    }

    /// Whether an engine does not support every version. A client that lost its connection before
    /// the first answer assumes that the server does not know version two.
    fn are_strangers(&self) -> bool {
        let engines = &self.setup.engines;
        engines.iter().any(|it| it.raw.protocol.version.as_str() != "auto")
    }

    /// Whether an end may have run out of Receives, because some are withheld, and the other timed
    /// out.
    fn may_lack_receives(&self) -> bool {
        let is_patient = |it: &EngineSetup| it.raw.connections.rnr_retry == 7;
        self.has_any_seen(STARVING) && !self.setup.engines.iter().all(is_patient)
    }

    fn may_be_broken(&self, end: End) -> bool {
        self.may_lack_receives()
            || self.about(end).is_none_or(|link| link.is_broken || link.is_changed)
    }

    /// Whether an end may use a key of a call that its other end has cancelled. If the other end is
    /// unknown, it may be any such end.
    fn may_be_late(&self, end: End) -> bool {
        self.about(end).map_or_else(|| self.model.borrow().is_any_doubting(), |link| link.is_late)
    }

    fn may_be_changed(&self, end: End) -> bool {
        self.is_noisy() && self.about(end).is_none_or(|link| link.is_changed)
    }

    /// Whether headers are changed.
    pub fn is_noisy(&self) -> bool {
        matches!(self.setup.weather, Weather::Noise | Weather::Ruin)
    }

    fn about(&self, end: End) -> Option<Link> {
        self.model.borrow_mut().link(end).cloned()
    }

    /// The other end of a connection.
    fn other(&self, end: End) -> Option<End> {
        let model = self.model.borrow();
        let link = model.links.get(&end)?;
        let mut ends = model.links.iter().filter(|(at, of)| *of == link && **at != end);
        ends.next().map(|(at, _)| *at)
    }

    fn check_shard(&mut self, at: usize) -> Result<(), Violation> {
        let calls_open = self.model.borrow().open(at);
        let node = &mut self.nodes[at];
        let loans_kept = node.shard.handler().loans_held();
        let node = &self.nodes[at];
        invariants::check(&State {
            shard: at,
            audit: &node.audit,
            stats: node.shard.handle().stats(),
            loans_kept,
            keys_open: self.watch.open.load(Ordering::Relaxed),
            // A right that was lost stays open.
            is_exposed: self.nodes.iter().any(|node| node.audit.exposures > 0 || is_leaky(node)),
            keys_kept: (0..self.logs.len()).map(|engine| self.seen(engine, KEPT)).sum(),
            keeps_rights: self.keeps_rights(node),
            calls_open,
            control_reserve: node.control_reserve,
            is_starved: self.is_starved(node) && !self.is_quiet,
            is_lost: is_leaky(node),
        })
    }

    /// Checks that no peer has more connections to an engine than its quota: all shards are of one
    /// host or user.
    fn check_quotas(&self, at: usize) -> Result<(), Violation> {
        let engine = self.nodes[at].of.engine;
        let connections = &self.setup.engines[engine].raw.connections;
        let max = match (connections.allow.is_empty(), connections.max_per_peer) {
            // The list names no peer of the run.
            (false, _) => 0,
            (true, 0) => usize::MAX,
            (true, max) => max as usize,
        };
        let shards = self.nodes.iter().filter(|node| node.of.engine == engine);
        let peers = shards.flat_map(|node| &node.audit.peers).filter(|peer| !peer.is_asked);
        let count = peers.count();
        match count <= max {
            true => Ok(()),
            false => Err(Violation {
                check: "a peer has no more connections than its quota",
                detail: format!("engine {engine}: {count} of {max}"),
            }),
        }
    }

    /// Whether the device of a shard has refused Receives, and may do so again.
    fn is_starved(&self, node: &Node<P>) -> bool {
        self.has_seen(node, STARVING) || self.has_seen(node, LOST)
    }

    /// Checks both ends of every unchanged connection of a shard.
    fn check_pairs(&self, at: usize) -> Result<(), Violation> {
        for peer in self.nodes[at].audit.peers.iter().filter(|peer| peer.is_up) {
            let end = (at, peer.id);
            let is_whole = self.about(end).is_some_and(|link| !link.is_changed && !link.is_broken);
            let Some((shard, name)) = self.other(end).filter(|_| is_whole) else { continue };
            if let Some(other) = self.peer(shard, name).filter(|other| other.is_up) {
                invariants::check_pair([peer, other])?;
            }
        }
        Ok(())
    }

    fn peer(&self, shard: usize, name: ConnectionId) -> Option<&PeerAudit> {
        self.nodes[shard].audit.peers.iter().find(|peer| peer.id == name)
    }
}

/// Whether the device of a shard did not release memory.
fn is_leaky(node: &Node<impl SimProvider>) -> bool {
    node.shard.handle().stats().buffers_leaked > 0
}

/// Some kinds of faults.
type Kinds = fn(&FaultLog) -> u64;
/// A right is kept.
const KEPT: Kinds = |log| sum([&log.windows_kept, &log.exposures_kept]);
/// A queue pair is in the error state.
const BROKEN: Kinds = |log| sum([&log.disconnected, &log.flushed, &log.qps_failed]);
/// A device is lost, or a receive queue.
const LOST: Kinds = |log| sum([&log.devices_lost, &log.recvs_gone]);
/// Receives are not posted, or not at once.
const STARVING: Kinds = |log| {
    let FaultLog { recvs_refused, recvs_cut, recvs_failed, recvs_silent, recvs_withheld, .. } = log;
    sum([recvs_refused, recvs_cut, recvs_failed, recvs_silent, recvs_withheld])
};

fn sum<const N: usize>(counts: [&AtomicU64; N]) -> u64 {
    counts.into_iter().map(|count| count.load(Ordering::Relaxed)).sum()
}

const CONTENT: &str = "what is delivered is what was sent";
const ELSEWHERE: &str = "a call arrives at the other end of its connection";
const FAILED: &str = "a call is rejected for a reason";
const NOT_UP: &str = "a connection is refused for a reason";
const CLOSED: &str = "a connection ends for a reason";
