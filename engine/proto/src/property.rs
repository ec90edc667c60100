//! The exchange of transport properties, and its result: the peer's limits.
//!
//! ```text
//!   client ── CONNPROP(xid) ──▶ server                     wire.md B2
//!          ◀─ CONNPROP(xid) ──         both know each other
//!          ◀─ INVAL_OPTION ───         the server speaks version two, without properties: defaults
//!          ◀─ anything else ──         accepted; the server's properties may still come
//! ```
//! All of our own properties are stated at the start; those of our receive buffers and of remote
//! invalidation never change and are marked so. `property_update.rs` changes the others.

use arrayvec::ArrayVec;
use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::header::{Body, Header, Optional};
use rpcrdma_xdr::numbers::limit::{
    PROPERTIES_MAX, RECV_BUFFER_SIZE_MAX, RECV_BUFFER_SIZE_MIN, TRANSMISSIONS_MAX,
};
use rpcrdma_xdr::numbers::{VERSION_TWO, default};
use rpcrdma_xdr::private_data::PrivateData;
use rpcrdma_xdr::property::{
    BackwardSupport, ConnProp, Known, MayChange, PropId, PropIds, PropSet, PropSubset, Property,
    ReqProp, RespProp, RtrSupport, UpdProp,
};
use rpcrdma_xdr::rtr::structure::RecvStructure;

use crate::change::Question;
use crate::layout::{Target, places_items};
use crate::settings::Settings;
use crate::version::Version;

/// What is known of the peer. All sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct PeerLimits {
    /// The version that it speaks with us; `None` until its first message.
    pub version: Option<Version>,
    /// The longest transmission that it takes.
    pub recv_size: u32,
    /// The longest transmission that it sends.
    pub send_size: u32,
    /// How its receive buffers are cut.
    pub structure: RecvStructure,
    /// Whether items can be placed in its buffers.
    pub placement: bool,
    /// The most transmissions of a call that it takes; at least 1.
    pub request_rx_limit: u32,
    /// The most transmissions of a reply that it sends; at least 1.
    pub response_sx_limit: u32,
    /// Which operations of the extension it has.
    pub rtr: RtrSupport,
    /// Which backward calls it takes.
    pub backward: BackwardSupport,
    /// Whether its memory may be invalidated by our replies.
    pub remote_invalidation: bool,
}

impl PeerLimits {
    /// A peer without private data that receives and sends messages of this size.
    #[must_use]
    pub fn unstated(recv_size: u32) -> Self {
        Self {
            version: None,
            structure: RecvStructure::single(recv_size),
            recv_size,
            send_size: recv_size,
            placement: false,
            request_rx_limit: default::TRANSMISSIONS,
            response_sx_limit: default::TRANSMISSIONS,
            rtr: RtrSupport::empty(),
            backward: BackwardSupport::Inline,
            remote_invalidation: false,
        }
    }

    /// A peer of version one: each direction takes the size that both ends support (RFC 8166
    /// 3.3.2). Without private data the peer has 1024 bytes for both, independent of our own sizes.
    #[must_use]
    pub fn version_one(private: Option<&PrivateData>, own: &Settings) -> Self {
        let version = Some(Version::One);
        let Some(peer) = private else {
            return Self { version, ..Self::unstated(default::INLINE_V1) };
        };
        // What we stated is in whole KiB, and more than we stated is never sent.
        let stated = PrivateData::decode(&own.private_data().encode());
        let own = stated.unwrap_or(own.private_data());
        Self {
            version,
            send_size: peer.send_size.min(own.recv_size),
            remote_invalidation: peer.remote_invalidation,
            ..Self::unstated(peer.recv_size.min(own.send_size))
        }
    }

    /// Its receive buffers, as something to lay messages out for.
    #[inline]
    #[must_use]
    pub fn target(&self) -> Target<'_> {
        let Self { structure, recv_size: usable, placement, .. } = self;
        Target { structure, usable: *usable, placement: *placement }
    }

    fn set_buffers(&mut self, size: Option<u32>, structure: Option<RecvStructure>) {
        // wire.md E19, E22, P16
        let recv_size = match (size, &structure) {
            (Some(size), Some(structure)) => size.min(structure.total_len()),
            (None, Some(structure)) => structure.total_len(),
            (Some(size), None) => size,
            (None, None) => default::RECV_BUFFER_SIZE,
        };
        self.recv_size = recv_size.min(RECV_BUFFER_SIZE_MAX);
        self.structure = structure.unwrap_or_else(|| RecvStructure::single(self.recv_size));
        self.placement = places_items(&self.structure, self.recv_size);
    }

    /// Takes over a value that is in effect.
    fn set(&mut self, property: &Property<'_>) {
        let count = |count: u32| count.clamp(1, TRANSMISSIONS_MAX);
        match *property {
            Property::RequesterRemoteInvalidation(yes) => self.remote_invalidation = yes,
            Property::BackwardSupport(support) => self.backward = support,
            Property::RequestRxLimit(limit) => self.request_rx_limit = count(limit),
            Property::ResponseSxLimit(limit) => self.response_sx_limit = count(limit),
            Property::RtrSupport(support) => self.rtr = support,
            // The two that describe buffers are set together; the others mean nothing to us.
            Property::RecvBufferSize(_)
            | Property::RecvStructure(_)
            | Property::Default(_)
            | Property::Unusable(..)
            | Property::Unknown(_) => {}
        }
    }
}

/// What a set of properties did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It is in effect; so many of its values were not taken, for being unusable or fixed.
    Taken {
        /// Values not taken.
        skipped: u32,
    },
    /// A second CONNPROP: the first one counts (wire.md P7).
    Repeated,
}

/// The answer to a request for changes: which values of the request are in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyAnswer {
    /// A bit for each value of the request that is in effect.
    done: u64,
    /// Values in the request.
    asked: u32,
}

/// The peer's properties and how far the exchange is.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct PropertyExchange {
    /// The longest transmission that the peer may send as far as it knows: our receive buffers, or
    /// less if it asked for that (wire.md P11).
    own_recv_size: u32,
    limits: PeerLimits,
    /// The properties that the peer stated.
    stated: PropIds,
    /// Those that it said will not change.
    fixed: PropIds,
    received: bool,
    sent: bool,
    /// Whether the peer stated how its buffers are cut.
    structured: bool,
    /// The peer does not know requests for changes.
    pub(crate) refuses_requests: bool,
    /// The number of the last request for changes, which is a part of its xid.
    pub(crate) questions: u8,
    /// Our request for changes that is outstanding (wire.md P8: one at a time).
    pub(crate) question: Option<Question>,
}

impl PropertyExchange {
    /// Nothing exchanged: the first message has at most 1024 bytes (wire.md B1). Our own receive
    /// buffers take `own_recv_size`.
    #[must_use]
    pub fn new(own_recv_size: u32) -> Self {
        Self {
            own_recv_size,
            limits: PeerLimits::unstated(default::INLINE_V1),
            stated: PropIds::NONE,
            fixed: PropIds::NONE,
            received: false,
            sent: false,
            structured: false,
            refuses_requests: false,
            questions: 0,
            question: None,
        }
    }

    /// The peer turned out to support version two: what it sends has the default size now, unless
    /// it states another.
    pub fn on_accepted(&mut self) {
        self.limits.version.get_or_insert(Version::Two);
        if !self.received {
            self.limits.send_size = default::RECV_BUFFER_SIZE;
        }
    }

    /// It knows that we do, too: what it takes has its default size now (wire.md B1).
    pub(crate) fn on_answered(&mut self) {
        if !self.received {
            self.limits.set_buffers(None, None);
        }
    }

    /// Version one has no properties: what is known comes from elsewhere, and no more will come.
    pub(crate) fn leave_out(&mut self, limits: PeerLimits) {
        self.limits = limits;
        (self.sent, self.received, self.refuses_requests) = (true, true, true);
    }

    /// Takes over the peer's properties. They have been checked when they were decoded, so all of
    /// them apply (wire.md P4).
    pub fn on_connprop(&mut self, properties: &ConnProp<'_>) -> Applied {
        if self.received {
            return Applied::Repeated;
        }
        self.received = true;
        let (mut size, mut structure) = (None, None);
        let mut skipped = 0;
        for (index, value) in properties.start.iter().enumerate() {
            let Ok(property) = Property::decode(value) else { continue };
            match property.in_effect() {
                Property::RecvBufferSize(bytes) => size = Some(bytes),
                // wire.md W4: as for a size below that, which does not decode.
                Property::RecvStructure(groups) if groups.total_len() >= RECV_BUFFER_SIZE_MIN => {
                    structure = Some(groups);
                }
                Property::RecvStructure(_) | Property::Unusable(..) => skipped += 1,
                ref other => self.limits.set(other),
            }
            self.stated.insert(value.id);
            // wire.md P1
            if properties.nochg.contains(index) {
                self.fixed.insert(value.id);
            }
        }
        self.structured = structure.is_some();
        self.limits.set_buffers(size, structure);
        // A peer that states properties knows ours: it sends up to the size of our buffers.
        self.limits.send_size = u32::MAX;
        Applied::Taken { skipped }
    }

    /// Takes over changes of the peer's properties. What it did not state at the start, what it
    /// said to be fixed, and larger or differently cut buffers are skipped (wire.md P6, P11, E21).
    pub fn on_updprop(&mut self, update: &UpdProp<'_>) -> Applied {
        let mut skipped = 0;
        for value in update.now.iter() {
            let Ok(property) = Property::decode(value) else { continue };
            let Some(known) = Known::of(value.id) else { continue };
            if !self.may_change(value.id) || known.may_change() == MayChange::Neither {
                skipped += 1;
                continue;
            }
            match property.in_effect() {
                Property::RecvBufferSize(size) => skipped += u32::from(!self.shrink(size)),
                Property::Unusable(..) => skipped += 1,
                ref other => self.limits.set(other),
            }
        }
        Applied::Taken { skipped }
    }

    /// Whether the peer stated a property and did not mark it as fixed (wire.md P1, P6).
    #[must_use]
    pub fn may_change(&self, id: PropId) -> bool {
        self.stated.contains(id) && !self.fixed.contains(id)
    }

    /// A property of the peer has this value now, as we asked for.
    pub(crate) fn change(&mut self, property: &Property<'_>) {
        match property.in_effect() {
            Property::RecvBufferSize(size) => self.set_recv_size(size),
            ref other => self.limits.set(other),
        }
    }

    /// The peer's buffers take so much now, cut as they were.
    pub(crate) fn set_recv_size(&mut self, size: u32) {
        let structure = self.structured.then_some(self.limits.structure);
        self.limits.set_buffers(Some(size), structure);
    }

    /// The answer to a request for changes of our properties. The only change that is ever granted
    /// is that the peer sends less than our buffers hold (wire.md P11).
    #[must_use]
    pub fn on_reqprop(&mut self, request: &ReqProp<'_>, own: &Settings) -> PropertyAnswer {
        let mut done = 0;
        for (index, value) in request.want.iter().enumerate().take(PROPERTIES_MAX as usize) {
            // wire.md P3
            let wanted = Property::decode(value).map(Property::in_effect);
            if let Ok(Property::RecvBufferSize(size)) = wanted
                && size <= own.structure.total_len()
            {
                self.own_recv_size = size;
                done |= 1 << index;
            }
        }
        PropertyAnswer { done, asked: request.want.len() as u32 }
    }

    /// Notes that our own properties are on their way.
    pub fn on_sent(&mut self) {
        self.sent = true;
    }

    /// The peer does not know the operation: it is not tried again (wire.md E33).
    pub fn on_unsupported(&mut self, operation: RtrSupport) {
        self.limits.rtr.remove(operation);
    }

    /// Whether our own properties were sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sent
    }

    /// Whether the peer's properties have arrived.
    #[must_use]
    pub fn is_received(&self) -> bool {
        self.received
    }

    /// What is known of the peer.
    #[inline]
    #[must_use]
    pub fn limits(&self) -> &PeerLimits {
        &self.limits
    }

    /// The longest transmission that the peer may send.
    #[inline]
    #[must_use]
    pub fn own_recv_size(&self) -> u32 {
        self.own_recv_size
    }
}

/// What we state of ourselves.
fn own_value(own: &Settings, known: Known) -> Property<'static> {
    match known {
        Known::RecvBufferSize => Property::RecvBufferSize(own.structure.total_len()),
        Known::RequesterRemoteInvalidation => {
            Property::RequesterRemoteInvalidation(own.requester_invalidation)
        }
        Known::BackwardSupport => Property::BackwardSupport(own.backward),
        Known::RecvStructure => Property::RecvStructure(own.structure),
        Known::RequestRxLimit => Property::RequestRxLimit(own.request_rx_limit),
        Known::ResponseSxLimit => Property::ResponseSxLimit(own.response_sx_limit),
        Known::RtrSupport => Property::RtrSupport(own.rtr),
    }
}

/// Larger announced values are accepted from now on.
pub(crate) fn widen(own: &mut Settings, change: &Property<'_>) {
    match *change {
        Property::RequestRxLimit(count) => own.request_rx_limit = own.request_rx_limit.max(count),
        Property::ResponseSxLimit(count) => {
            own.response_sx_limit = own.response_sx_limit.max(count);
        }
        Property::RtrSupport(more) => own.rtr |= more,
        Property::BackwardSupport(support) => {
            if support as u32 > own.backward as u32 {
                own.backward = support;
            }
        }
        // These are not announced.
        Property::RecvBufferSize(_)
        | Property::RequesterRemoteInvalidation(_)
        | Property::RecvStructure(_)
        | Property::Default(_)
        | Property::Unusable(..)
        | Property::Unknown(_) => {}
    }
}

/// Encodes our properties, all that we know.
pub(crate) fn encode_connprop(
    xid: u32,
    credit: u32,
    own: &Settings,
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    let mut bytes = [[0; Property::LEN_MAX]; Known::COUNT];
    let mut start = ArrayVec::<_, { Known::COUNT }>::new();
    for (known, bytes) in Known::ALL.into_iter().zip(&mut bytes) {
        start.push(own_value(own, known).encode(bytes)?);
    }
    // wire.md P1: a bit that is set means "will not change". Both are in the order of the table.
    let nochg = [PropIds::OWN_FIXED.bits()];
    let body =
        ConnProp { start: PropSet::from_slice(&start), nochg: PropSubset::from_words(&nochg) };
    let body = Body::Optional(Optional::ConnProp(body));
    Header { xid, vers: VERSION_TWO, credit, body }.encode(writer)
}

/// Encodes the answer to a request for changes.
pub(crate) fn encode_resprop(
    xid: u32,
    credit: u32,
    answer: PropertyAnswer,
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    let all = match answer.asked {
        0 => 0,
        asked => u64::MAX >> (64 - asked.min(PROPERTIES_MAX)),
    };
    let words = |bits: u64| [bits as u32, (bits >> 32) as u32];
    let (done, rej) = (words(answer.done), words(all & !answer.done));
    let body = RespProp {
        done: PropSubset::from_words(&done),
        rej: PropSubset::from_words(&rej),
        other: Array::EMPTY,
    };
    let body = Body::Optional(Optional::RespProp(body));
    Header { xid, vers: VERSION_TWO, credit, body }.encode(writer)
}
