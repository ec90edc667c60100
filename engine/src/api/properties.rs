//! Changes of transport properties on an established connection: requests, announcements, answers.

use rpcrdma_proto::{Changes, Misuse, PropertyError};
use rpcrdma_xdr::property::{PropId, Property};

use super::turn::Turn;
use crate::shard::peers::{ConnectionId, Peer, Phase};
use crate::shard::send::outbox::Outbox;

/// Why a change of properties could not be asked for or announced. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PropertiesRefused {
    /// There is no such connection any more.
    #[error("there is no such connection")]
    NoPeer,
    /// No send slot is free, or messages between the transports wait already: try again next turn.
    #[error("no send slot is free for a message between the transports")]
    Busy,
    /// The protocol does not let it go out.
    #[error("the properties cannot be changed: {0}")]
    Protocol(#[from] PropertyError),
}

impl Turn<'_> {
    /// Asks a peer to change properties of its own (\[XCHAR\] 4.2, REQPROP). The outcome comes to
    /// [`Handler::on_properties`](crate::Handler::on_properties); no answer in time counts as a refusal. One request at a time.
    ///
    /// # Errors
    /// [`PropertiesRefused`] says what is in the way.
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

    /// Tells a peer of changes of our own properties (\[XCHAR\] 4.4, UPDPROP). What is wider holds at
    /// once; what is narrower is asked of the peer, and what it sent before it knew is still taken.
    ///
    /// # Errors
    /// [`PropertiesRefused`] says what is in the way.
    pub fn announce_properties(
        &mut self,
        peer: ConnectionId,
        changes: &Changes,
    ) -> Result<(), PropertiesRefused> {
        let (peer, outbox) = self.takes_control(peer)?;
        // What is received lies in memory that was measured when the shard was made.
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

    /// A peer that a message between the transports can be sent to now.
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
