//! Which version a connection speaks: what it begins with, and what follows from the answer.
//!
//! ```text
//!   asked ─▶ known as old ────────────────────────────▶ begins with one
//!         └▶ begins with two ─▶ answered ─────────────▶ two, or one after ERR_VERS
//!                             └▶ silent, or lost ─▶ gone ─▶ asked once more ─▶ begins with one
//! ```
//! The program sees one attempt, whichever way it goes (wire.md B4, B16).

use std::net::SocketAddr;

use rpcrdma_proto::{Fatal, Start, Version, Versions};

use super::Core;
use super::arrival::ConnectOrder;
use super::peers::{Attempt, Peer, Phase};
use crate::api::handler::Handler;
use crate::error::CloseReason;
use crate::provider::{ConnectError, Provider};

impl<P: Provider> Core<P> {
    /// What a connection to `to` begins with. `again` says that version two was tried just before.
    pub fn begins_with(&self, to: SocketAddr, again: bool, now: u64) -> Start {
        let memory = self.attachment.as_ref().map(|attachment| attachment.memory());
        if !self.is_free_to_choose() {
            let is_one = self.settings.versions == Versions::ONE;
            return if is_one { Start::One } else { Start::Two };
        }
        if again {
            // Not earlier: a peer that cannot be had at all has not shown that it is old.
            memory.inspect(|memory| memory.note_one(to, now));
            return Start::One;
        }
        if memory.is_some_and(|memory| memory.is_one(to, now)) {
            self.parts.stats.versions_remembered.add(1);
            return Start::One;
        }
        Start::Two
    }

    /// Notes what the peer's first answer has decided.
    #[cold]
    pub fn note_version(&mut self, index: u32, now: u64) {
        let Some(peer) = self.peers.at(index) else { return };
        let Some(asked) = &mut peer.connect else { return };
        asked.is_trying = false;
        let to = asked.to;
        match peer.conn.version() {
            Some(Version::One) => {
                self.parts.stats.fallbacks_error.add(1);
                // [V2] 5.2: if this connection is lost, the next one need not ask again.
                self.remember(to, now);
            }
            _ if self.settings.properties && !peer.conn.knows_properties() => {
                self.parts.stats.properties_refused.add(1);
            }
            _ => {}
        }
    }

    /// Whether a connection that ends is to be tried once more with version one, and notes why.
    pub fn tries_again(&mut self, index: u32, was: Phase, why: CloseReason, now: u64) -> bool {
        let is_free = self.is_free_to_choose() && !self.parts.timers.is_stopping();
        let Some(peer) = self.peers.at(index) else { return false };
        let Some(asked) = peer.connect else { return false };
        if let CloseReason::Protocol(Fatal::VersionRefused { .. }) = why {
            self.parts.stats.versions_refused.add(1);
            // A peer of version two may have been taken for an old one.
            if let Some(attachment) = &self.attachment {
                attachment.memory().forget(asked.to);
            }
            return false;
        }
        if !asked.is_trying || !is_free {
            return false;
        }
        let counter = match why {
            CloseReason::TimedOut => &self.parts.stats.fallbacks_silence,
            CloseReason::PeerGone | CloseReason::Transport(_) => &self.parts.stats.fallbacks_loss,
            _ => return false,
        };
        match was {
            Phase::Opening { .. } => {
                counter.add(1);
                true
            }
            // A call stood for the first message: it has failed, and the next attempt knows.
            Phase::Up if has_asked(peer) => {
                counter.add(1);
                self.remember(asked.to, now);
                false
            }
            _ => false,
        }
    }

    /// Asks once more for a connection whose predecessor is gone. Its place is still reserved.
    pub fn ask_again<H: Handler>(&mut self, asked: Attempt, handler: &mut H) {
        let order = ConnectOrder {
            shard: self.parts.handle.shard(),
            to: asked.to,
            id: asked.id,
            again: true,
        };
        if !self.attachment.as_ref().is_some_and(|attachment| attachment.ask(order)) {
            self.parts.handle.wakeup().disconnected();
            handler.on_refused(asked.id, ConnectError::Failed);
        }
    }

    /// A first call that is not answered is a first message that is not answered.
    pub fn check_first_call<H: Handler>(&mut self, index: u32, now: u64, handler: &mut H) {
        let until = self.parts.timers.negotiation_until(now);
        let is_free = self.is_free_to_choose();
        let Some(peer) = self.peers.at(index) else { return };
        let waits = is_free && has_asked(peer);
        let Some(asked) = peer.connect.as_mut().filter(|asked| asked.is_trying && waits) else {
            return;
        };
        if now >= *asked.until.get_or_insert(until) {
            self.close(index, CloseReason::TimedOut, now, handler);
        }
    }

    /// Whether the peer may decide the version.
    pub fn is_free_to_choose(&self) -> bool {
        self.settings.versions == Versions::all()
    }

    fn remember(&self, to: SocketAddr, now: u64) {
        if let Some(attachment) = &self.attachment {
            attachment.memory().note_one(to, now);
        }
    }
}

/// Whether a call of ours waits for its answer.
fn has_asked(peer: &Peer) -> bool {
    peer.conn.credits().in_flight() > 0
}
