//! Version negotiation: what decides the version of a connection, and what follows from it.
//!
//! ```text
//!   client, Two ──any message but an error──────▶ version two
//!               ──ERR_VERS with 1 in its range──▶ version one, on the same connection  (wire.md B4)
//!               ──ERR_VERS without──────────────▶ Fatal::VersionRefused
//!   client, One ──▶ version one, at once
//!   server, Either ──first message──▶ its version if we speak it, else ERR_VERS and still undecided
//! ```
//! Once decided it never changes (\[V2\] 5.3). Version one has no properties, no groups and no
//! placement by Send: the sizes of inline messages come from private data or are 1024 (RFC 8797).

use rpcrdma_xdr::header::Prefix;
use rpcrdma_xdr::numbers::{VERSION_ONE, VERSION_TWO, proc};

use crate::connection::{Connection, ShardLedger};
use crate::error::Fatal;
use crate::ingress::{Control, ControlSend, Ingress};
use crate::property::PeerLimits;
use crate::report::Refusal;
use crate::settings::Role;
use crate::version::{Met, UNDECIDED, Version, Versions};

impl Connection {
    /// The version, once it is decided: by the peer's first message, or for a client that begins
    /// with version one from the start.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        match self.vers {
            VERSION_ONE => Some(Version::One),
            VERSION_TWO if self.is_accepted() => Some(Version::Two),
            _ => None,
        }
    }

    /// Whether the peer has stated its properties.
    #[must_use]
    pub fn knows_properties(&self) -> bool {
        self.vers == VERSION_TWO && self.exchange().is_received()
    }

    #[cold]
    pub(crate) fn accept(&mut self) {
        self.met = Met::Peer;
        self.ready = true;
        self.revise(|exchange, _| exchange.on_accepted());
        if self.role == Role::Client || self.exchange().is_sent() {
            self.end_meeting();
        }
    }

    /// Handles a transmission before both sides know that they use the same version.
    #[cold]
    pub(crate) fn meet(&mut self, bytes: &[u8]) {
        if self.vers == UNDECIDED {
            self.decide_version(bytes);
        }
        if self.met == Met::Peer {
            // [V2] 5: a peer that sends a second message has the answer to the first.
            self.revise(|exchange, _| exchange.on_answered());
            if !self.owes_properties() {
                self.met = Met::Both;
            }
        }
    }

    /// The peer knows our version, or will before the next message: its buffers now hold more than
    /// a first message (wire.md B1).
    fn end_meeting(&mut self) {
        self.met = Met::Both;
        self.set_gate();
        self.revise(|exchange, _| exchange.on_answered());
    }

    /// Our properties, if we are a server whose client has sent a call but not its own: they
    /// request the client's after a reply (wire.md B2).
    pub fn next_control(&mut self) -> Option<ControlSend> {
        self.owes_properties().then(|| self.state_properties(self.control_xid()))
    }

    /// Whether [`Connection::next_control`] has something to send.
    #[inline]
    #[must_use]
    pub fn owes_properties(&self) -> bool {
        let is_stated = !self.settings.properties || self.exchange().is_sent();
        self.role == Role::Server && self.met == Met::Peer && !is_stated
    }

    /// Our properties, under this xid: the answer of a server, or what follows it.
    pub(crate) fn state_properties(&mut self, xid: u32) -> ControlSend {
        self.revise(|exchange, _| exchange.on_sent());
        self.end_meeting();
        ControlSend::ConnProp { xid }
    }

    /// Whether the peer has shown that it supports our version.
    #[inline]
    pub(crate) fn is_accepted(&self) -> bool {
        self.met != Met::Neither
    }

    /// The first message of a peer decides the version, except errors and messages that are too
    /// short to parse (wire.md B12).
    #[cold]
    fn decide_version(&mut self, bytes: &[u8]) {
        let Ok(prefix) = Prefix::decode(bytes) else { return };
        let Prefix { vers, proc, .. } = prefix;
        let is_whole = bytes.len() >= prefix.shortest() && proc != proc::ERROR;
        if is_whole && self.settings.versions.speaks(vers) {
            self.set_version(vers);
        }
    }

    /// Continues in this version.
    pub(crate) fn set_version(&mut self, vers: u32) {
        self.vers = vers;
        let private = self.private;
        self.revise(|exchange, own| {
            if vers == VERSION_ONE {
                exchange.leave_out(PeerLimits::version_one(private.as_ref(), own));
            }
        });
    }

    /// ERR_VERS before anything else: the peer does not support the version of our first message.
    /// With any xid and version, the error can only be about that message.
    #[cold]
    pub(crate) fn on_version_refused<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        [low, high]: [u32; 2],
    ) -> Ingress<'a> {
        let has_one = (low..=high).contains(&VERSION_ONE);
        let may_change = self.vers == VERSION_TWO && self.settings.versions.contains(Versions::ONE);
        if !has_one || !may_change {
            return Ingress::Fatal(Fatal::VersionRefused { low, high });
        }
        // wire.md B4. The error's credit does not apply to version one: the first reply grants.
        self.set_version(VERSION_ONE);
        self.met = Met::Both;
        let became_ready = !self.ready;
        self.ready = true;
        match self.fail_sent(ledger, xid) {
            Some(Ok((id, _))) => Ingress::Failed(id, Refusal::Version { low, high }),
            Some(Err(_)) | None => Ingress::Control(Control { became_ready, answer: None }),
        }
    }
}
