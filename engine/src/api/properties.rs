//! Changes of transport properties on an established connection: requests, announcements, answers.

use rpcrdma_proto::{Changes, Misuse, PropertyError};
use rpcrdma_xdr::property::{PropId, Property};

use super::turn::Turn;
use crate::connection_id::ConnectionId;
use crate::state::peers::{Peer, Phase};
use crate::state::send::outbox::Outbox;

/// Why a change of properties could not be requested or announced. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropertiesRefused {
    /// The connection does not exist any more.
    #[error("no such connection: it has ended, or the handle is of another shard")]
    NoPeer,
    /// No send slot is free, or control messages are already waiting: try again next turn.
    #[error("no send slot is free for a control message; poll, then try again")]
    Busy,
    /// The protocol does not permit sending it.
    #[error("the properties cannot be changed: {0}")]
    Protocol(#[from] PropertyError),
}

impl Turn<'_> {
    /// Requests changes of a peer's own properties (\[XCHAR\] 4.2, REQPROP).
    /// [`Handler::on_properties`](crate::Handler::on_properties) receives the outcome; a timeout
    /// counts as a refusal. One request at a time.
    ///
    /// # Errors
    /// [`PropertiesRefused`] states the reason.
    pub fn request_properties(
        &mut self,
        peer: ConnectionId,
        changes: &Changes,
    ) -> Result<(), PropertiesRefused> {
        let now = self.now;
        let (peer, outbox) = self.takes_control(peer)?;
        let send = peer.conn.request_properties(changes)?;
        peer.asking_since = Some(now);
        outbox.control(peer, &send);
        Ok(())
    }

    /// Announces changes of this side's properties to a peer (\[XCHAR\] 4.4, UPDPROP). Widening
    /// takes effect at once. Narrowing asks the peer to comply; messages that it sent before it
    /// knew are still accepted.
    ///
    /// # Errors
    /// [`PropertiesRefused`] states the reason.
    pub fn announce_properties(
        &mut self,
        peer: ConnectionId,
        changes: &Changes,
    ) -> Result<(), PropertiesRefused> {
        let (peer, outbox) = self.takes_control(peer)?;
        // The size of receive memory is fixed when the shard is made.
        let most = peer.conn.settings().request_rx_limit;
        if let Some(Property::RequestRxLimit(count)) = changes.value(PropId::REQUEST_RX_LIMIT)
            && count > most
        {
            let why = Misuse("no more transmissions than the shard was made for");
            return Err(PropertyError::from(why).into());
        }
        let send = peer.conn.announce(changes)?;
        outbox.control(peer, &send);
        Ok(())
    }

    /// A peer that can be sent a control message now.
    fn takes_control(
        &mut self,
        peer: ConnectionId,
    ) -> Result<(&mut Peer, &mut Outbox), PropertiesRefused> {
        let up = self.peers.named(peer).filter(|peer| peer.phase == Phase::Up);
        let peer = up.ok_or(PropertiesRefused::NoPeer)?;
        match self.parts.outbox.takes_control(peer) {
            true => Ok((peer, &mut self.parts.outbox)),
            false => Err(PropertiesRefused::Busy),
        }
    }
}
