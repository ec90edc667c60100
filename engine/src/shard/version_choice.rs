//! Version negotiation: the version that a connection begins with, and the effect of the answer.
//!
//! ```text
//!   asked ─▶ known as old ────────────────────────────▶ begins with one
//!         └▶ begins with two ─▶ answered ─────────────▶ two, or one after ERR_VERS
//!                             └▶ silent, or lost ─▶ gone ─▶ asked once more ─▶ begins with one
//! ```
//! The program sees one attempt in every case (wire.md B4, B16).

use std::sync::Arc;

use rpcrdma_proto::{Fatal, Settings, Start, Version, Versions};
use rpcrdma_xdr::BackwardSupport;

use crate::control::Attachment;
use crate::control::arrival::{Arrival, ConnectOrder};
use crate::error::CloseReason;
use crate::mailbox::Mailbox;
use crate::provider::{Address, ConnectId, Provider};
use crate::state::parts::Parts;
use crate::state::peers::{Peer, Phase};
use crate::stats::Stats;
use crate::trace;

/// A shard's entry in the engine, and the settings of its connections.
pub(crate) struct Link<P: Provider> {
    attachment: Option<Attachment<P>>,
    arrivals: Arc<Mailbox<Arrival<P>>>,
    settings: Settings,
}

impl<P: Provider> Link<P> {
    /// Without an entry in the control plane yet.
    pub fn new(arrivals: Mailbox<Arrival<P>>, settings: Settings) -> Link<P> {
        Link { attachment: None, arrivals: Arc::new(arrivals), settings }
    }

    /// The mailbox for arrivals from the connection manager.
    pub fn arrivals(&self) -> &Arc<Mailbox<Arrival<P>>> {
        &self.arrivals
    }

    /// Enters the control plane.
    pub fn attach(&mut self, attachment: Attachment<P>) {
        self.attachment = Some(attachment);
    }

    /// Leaves the control plane.
    pub fn detach(&mut self) {
        self.attachment = None;
    }

    /// The entry in the control plane, if there is one.
    pub fn attachment(&self) -> Option<&Attachment<P>> {
        self.attachment.as_ref()
    }

    /// The settings of new connections.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets which calls of servers are accepted on connections that this side requested.
    pub fn set_backward(&mut self, backward: BackwardSupport) {
        self.settings.backward = backward;
    }

    /// The version that a connection to `to` begins with. `again` states that version two has just
    /// failed.
    pub fn begins_with(&self, to: Address, again: bool, now: u64, stats: &Stats) -> Start {
        let memory = self.attachment.as_ref().map(|attachment| attachment.memory());
        if !self.is_free_to_choose() {
            let is_one = self.settings.versions == Versions::ONE;
            return if is_one { Start::One } else { Start::Two };
        }
        if again {
            // Not earlier: an unreachable peer is not shown to be old.
            memory.inspect(|memory| memory.note_one(to, now));
            return Start::One;
        }
        if memory.is_some_and(|memory| memory.is_one(to, now)) {
            stats.versions_remembered.add(1);
            return Start::One;
        }
        Start::Two
    }

    /// Records what the peer's first answer decides.
    #[cold]
    pub fn note_version(&self, peer: &mut Peer, to: &Address, now: u64, stats: &Stats) {
        let Some(asked) = &mut peer.connect else { return };
        asked.is_trying = false;
        match peer.conn.version() {
            Some(Version::One) => {
                stats.fallbacks_error.add(1);
                trace::version_fallback(*to, "the peer reported ERR_VERS");
                // [V2] 5.2: if this connection is lost, the next one need not probe again.
                self.remember(*to, now);
            }
            _ if self.settings.properties && !peer.conn.knows_properties() => {
                stats.properties_refused.add(1);
                trace::properties_refused(*to);
            }
            _ => {}
        }
    }

    /// Whether to retry an ending connection with version one; records why.
    pub fn tries_again(
        &self,
        peer: &Peer,
        to: &Address,
        was: Phase,
        why: CloseReason,
        now: u64,
        Parts { timers, stats, .. }: &Parts,
    ) -> bool {
        let is_free = self.is_free_to_choose() && !timers.is_stopping();
        let Some(asked) = peer.connect else { return false };
        if let CloseReason::Protocol(Fatal::VersionRefused { .. }) = why {
            stats.versions_refused.add(1);
            trace::version_refused(*to);
            // A peer of version two may have been recorded as an old one.
            if let Some(attachment) = &self.attachment {
                attachment.memory().forget(*to);
            }
            return false;
        }
        if !asked.is_trying || !is_free {
            return false;
        }
        let (counter, reason) = match why {
            CloseReason::TimedOut => (&stats.fallbacks_silence, "the peer was silent"),
            CloseReason::PeerGone | CloseReason::Transport(_) => {
                (&stats.fallbacks_loss, "the connection was lost")
            }
            _ => return false,
        };
        // A call served as the first message: it has failed, and the next attempt uses version one.
        let was_asked = was == Phase::Up && has_asked(peer);
        let is_opening = was == Phase::Opening;
        if is_opening || was_asked {
            counter.add(1);
            trace::version_fallback(*to, reason);
        }
        if was_asked {
            self.remember(*to, now);
        }
        is_opening
    }

    /// Requests a connection again after its predecessor is gone. Its reservation remains. False if
    /// it cannot be requested.
    pub fn ask_again(&self, id: ConnectId, to: Address, shard: u32) -> bool {
        let order = ConnectOrder { shard, to, id, again: true };
        self.attachment.as_ref().is_some_and(|attachment| attachment.ask(order))
    }

    /// Whether the peer may decide the version.
    pub fn is_free_to_choose(&self) -> bool {
        self.settings.versions == Versions::all()
    }

    fn remember(&self, to: Address, now: u64) {
        if let Some(attachment) = &self.attachment {
            attachment.memory().note_one(to, now);
        }
    }
}

/// Whether an own call waits for its answer.
pub(crate) fn has_asked(peer: &Peer) -> bool {
    peer.conn.credits().in_flight() > 0
}
