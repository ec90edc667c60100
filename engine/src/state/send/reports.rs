//! Control messages between transports, and error reports.

use rpcrdma_proto::{Connection, ControlSend, Report};
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;

use super::outbox::{Outbox, UNSOLICITED_MAX};
use crate::state::peers::Peer;

impl Outbox {
    /// Sends an error message about a transmission that is not a call. False if it cannot be sent:
    /// a peer that causes errors and accepts no reports gets no more of the shard's slots, and its
    /// connection must be closed, or it would wait forever (RFC 8166 4.5.4).
    #[cold]
    #[must_use]
    pub fn report(&mut self, peer: &mut Peer, report: &Report) -> bool {
        self.stats.violations.add(1);
        // A conforming peer has a Receive for each of its calls, any of which may be in error.
        let has_room = peer.lane.unsolicited() < peer.conn.inflow().granted() + UNSOLICITED_MAX;
        peer.lane.add_unsolicited();
        let is_sent =
            has_room && self.small(peer, |conn, writer| conn.encode_report(report, writer));
        self.stats.violations_unreported.add(u64::from(!is_sent));
        is_sent
    }

    /// Sends the error message that answers a call. The caller has a slot free for it.
    pub fn answer(&mut self, peer: &mut Peer, report: &Report) {
        let is_sent = self.small(peer, |conn, writer| conn.encode_report(report, writer));
        debug_assert!(is_sent, "a call is looked at only when a slot is free to answer it");
    }

    /// wire.md B2: a client that began with a call gets the properties behind the reply, or behind
    /// a later one if nothing can be sent now.
    pub fn offer_properties(&mut self, peer: &mut Peer) {
        if peer.conn.owes_properties()
            && self.takes_control(peer)
            && let Some(send) = peer.conn.next_control()
        {
            self.control(peer, &send);
        }
    }

    /// Whether a control message can be sent now.
    pub fn takes_control(&self, peer: &Peer) -> bool {
        peer.lane.unsolicited() < UNSOLICITED_MAX && self.slots_free() > 0
    }

    /// Sends a control message, unless too many wait or no slot is free.
    #[cold]
    pub fn control(&mut self, peer: &mut Peer, send: &ControlSend) -> bool {
        if peer.lane.unsolicited() >= UNSOLICITED_MAX {
            self.stats.violations_unreported.add(1);
            return false;
        }
        peer.lane.add_unsolicited();
        self.small(peer, |conn, writer| conn.encode_control(send, writer))
    }

    fn small(
        &mut self,
        peer: &mut Peer,
        encode: impl FnOnce(&Connection, &mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> bool {
        let Some(mut slot) = self.take_slot() else {
            self.stats.calls_not_sent_local.add(1);
            return false;
        };
        let mut writer = Writer::new(slot.payload_mut());
        if encode(&peer.conn, &mut writer).is_err() {
            debug_assert!(false, "a control message has at most 1024 bytes, as has every slot");
            self.slots.put(slot);
            return false;
        }
        let len = writer.position() as u32;
        let sge = slot.sge(0, len as usize);
        let message = self.message(slot, sge);
        self.enqueue(&mut peer.lane, peer.id.index, message);
        true
    }
}
