//! The connection: all state machines of one peer, and the only interface of the engine.

use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};
use rpcrdma_xdr::private_data::PrivateData;
use rpcrdma_xdr::rtr::fixed::Stamp;

use crate::calls::{self, CallId, CallTable};
use crate::change::ChangeKind;
use crate::chunks::{offer, resolve as lists};
use crate::credit::{CreditLedger, GrantPool, Inflow, ReplyReserve};
use crate::demand::{LastWant, Offered};
use crate::error::{Misuse, OpenError, Violation};
use crate::gate::Gate;
use crate::group::{GroupAssembler, OpenGroup, Part};
use crate::ingress::{ControlSend, Ignored, Message, Via};
use crate::opening::Opening;
use crate::placement::direct::{WantSet, check_directions};
use crate::placement::gather::Pieces;
use crate::placement::inline::{Direction, InlinePlan};
use crate::placement::placed::Placed;
use crate::placement::plan::{GroupPlan, Transmission};
use crate::placement::resolve::{Rule, resolve};
use crate::property::{PeerLimits, PropertyExchange, encode_connprop, encode_resprop};
use crate::report::Report;
use crate::settings::{Role, Settings};
use crate::version::{Met, Start, UNDECIDED};

/// Receives that the engine posts for each connection beyond those of the [`ShardLedger`]: for
/// CONNPROP, REQPROP, RESPROP or UPDPROP, and an error (wire.md P10).
pub const CONTROL_RECEIVES: u32 = 4;

/// The calls and receives that the connections of a shard share.
#[derive(Debug)]
pub struct ShardLedger {
    /// Own calls that are outstanding.
    pub calls: CallTable,
    /// Receives kept for the calls of peers.
    pub grants: GrantPool,
    /// Receives kept for the replies to own calls.
    pub replies: ReplyReserve,
}

impl ShardLedger {
    /// For `connections_max` connections and `calls_max` own calls, with so many receives reserved
    /// for incoming calls and for replies. Allocates the table of calls.
    ///
    /// # Panics
    /// If `calls_max` is not 1 to [`crate::calls::CALLS_MAX`].
    #[must_use]
    pub fn new(
        calls_max: u32,
        connections_max: u32,
        grant_receives: u32,
        reply_receives: u32,
    ) -> Self {
        Self {
            calls: CallTable::new(calls_max),
            grants: GrantPool::new(grant_receives, connections_max),
            replies: ReplyReserve::new(reply_receives),
        }
    }
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transmissions ignored, by [`Ignored`] as index.
    pub ignored: [u64; Ignored::COUNT],
    /// Messages reported to the peer as invalid.
    pub reported: u64,
    /// Errors received from the peer.
    pub errors: u64,
    /// Grants of zero, which count as one (wire.md B11).
    pub zero_grants: u64,
    /// Property values that were rejected.
    pub skipped_properties: u64,
}

/// One connection. Less than 2 KiB, without a pointer. The order of the fields is fixed: what every
/// message needs comes first, in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Connection {
    pub(crate) gate: Gate,
    pub(crate) role: Role,
    pub(crate) ready: bool,
    /// Which ends are known to speak the other's version.
    pub(crate) met: Met,
    /// Messages of the peer since the last call or reply (wire.md W13).
    pub(crate) idle_messages: u8,
    /// `rdma_vers` of all messages in both directions.
    pub(crate) vers: u32,
    pub(crate) peer: u32,
    /// Payload bytes of the longest reply that may come in one RDMA_MSG.
    reply_room: u32,
    /// Payload bytes of the longest RDMA_MSG that the peer can receive.
    plain_room: u32,
    pub(crate) credits: CreditLedger,
    pub(crate) inflow: Inflow,
    pub(crate) group: GroupAssembler,
    /// Only [`Connection::revise`] changes it, and both rooms with it.
    exchange: PropertyExchange,
    pub(crate) settings: Settings,
    pub(crate) last_want: LastWant,
    pub(crate) counters: Counters,
    /// Credits of cancelled calls.
    pub(crate) abandoned: u32,
    /// The peer's private data.
    pub(crate) private: Option<PrivateData>,
}

impl Connection {
    /// A new connection; `peer` is the engine's name for it, and `opening` its known parameters.
    ///
    /// # Errors
    /// [`OpenError`] if the settings are inconsistent or lack the first version, or no receive is
    /// left.
    pub fn open(
        role: Role,
        peer: u32,
        settings: &Settings,
        opening: &Opening,
        ledger: &mut ShardLedger,
    ) -> Result<Self, OpenError> {
        settings.check()?;
        if peer > calls::PEER_MAX {
            return Err(Misuse("numbers from 2^31 on name no connection").into());
        }
        let is_one = opening.version == Start::One;
        let vers = opening.vers(settings.versions);
        if vers != UNDECIDED && !settings.versions.speaks(vers) {
            return Err(Misuse("a connection begins with a version that is spoken").into());
        }
        if vers == UNDECIDED && role == Role::Client {
            return Err(Misuse("a client chooses the version to begin with").into());
        }
        ledger.grants.open().map_err(|_| OpenError::NoReceives)?;
        let mut conn = Self {
            gate: Gate::Shut,
            role,
            ready: role == Role::Client && (is_one || !settings.properties),
            met: Met::Neither,
            idle_messages: 0,
            vers,
            peer,
            reply_room: 0,
            plain_room: 0,
            credits: CreditLedger::new(settings.credits_requested),
            inflow: Inflow::new(settings.credits_granted_max),
            exchange: PropertyExchange::new(settings.structure.total_len()),
            settings: *settings,
            last_want: LastWant::default(),
            counters: Counters::default(),
            abandoned: 0,
            group: GroupAssembler::new(),
            private: opening.private,
        };
        conn.set_version(vers);
        Ok(conn)
    }

    /// Returns what the connection holds in the ledger. Its own calls must be finished before:
    /// [`CallTable::next_of`] finds them.
    pub fn close(self, ledger: &mut ShardLedger) {
        debug_assert_eq!(self.credits.in_flight(), 0, "all calls are finished before");
        ledger.grants.close(self.inflow.granted());
    }

    /// Whether calls can be sent.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Which side opened it.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The engine's name for it.
    #[inline]
    #[must_use]
    pub fn peer(&self) -> u32 {
        self.peer
    }

    /// The peer's known limits.
    #[inline]
    #[must_use]
    pub fn limits(&self) -> &PeerLimits {
        self.exchange.limits()
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Payload bytes of the longest reply that may come in one RDMA_MSG.
    #[inline]
    #[must_use]
    pub fn reply_room(&self) -> u32 {
        self.reply_room
    }

    /// Payload bytes of the longest RDMA_MSG that the peer can receive.
    #[inline]
    pub(crate) fn plain_room(&self) -> u32 {
        self.plain_room
    }

    /// The peer's properties, and the state of their exchange.
    #[inline]
    pub(crate) fn exchange(&self) -> &PropertyExchange {
        &self.exchange
    }

    /// Transmissions of own calls that can be sent now.
    #[inline]
    #[must_use]
    pub fn credits_available(&self) -> u32 {
        self.credits.available()
    }

    /// Transmissions of own calls that may be outstanding at one time.
    #[must_use]
    pub fn credits_limit(&self) -> u32 {
        self.credits.limit()
    }

    /// Whether the program waits for a sent call.
    #[must_use]
    pub fn is_calling(&self) -> bool {
        self.credits.in_flight() > self.abandoned
    }

    /// Whether a cancelled call may still be answered.
    #[must_use]
    pub fn has_abandoned(&self) -> bool {
        self.abandoned > 0
    }

    /// The credits of own calls.
    #[must_use]
    pub fn credits(&self) -> &CreditLedger {
        &self.credits
    }

    /// The group that is being received.
    #[must_use]
    pub fn open_group(&self) -> Option<&OpenGroup> {
        self.group.open()
    }

    /// What the peer is granted, and how much of it is in use.
    #[must_use]
    pub fn inflow(&self) -> &Inflow {
        &self.inflow
    }

    /// The transmissions parked for the open group; or all those of the last group that was
    /// completed or aborted, until the next one begins.
    #[inline]
    #[must_use]
    pub fn group(&self) -> &[Part] {
        self.group.parts()
    }

    /// The transmissions that are parked for the rest of their group: the engine releases them when
    /// the connection ends.
    #[must_use]
    pub fn parked(&self) -> &[Part] {
        self.group.parked()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Decodes the first transmission of the newly completed group again: its items and directions.
    /// `None` if `first_segment` is not the first one that [`Connection::group`] names.
    #[must_use]
    pub fn message<'a>(&self, first_segment: &'a [u8]) -> Option<Message<'a>> {
        Message::decode(*self.group().first()?, first_segment)
    }

    /// Checks the items and directions of a call, and finds the items. `parts` are all its
    /// transmissions. Not needed for a plain message.
    ///
    /// # Errors
    /// The first [`Violation`]; the call is to be rejected with [`Connection::reject_call`].
    pub fn resolve_call<'a>(
        &self,
        message: &Message<'a>,
        parts: &[Part],
    ) -> Result<Placed<'a>, Violation> {
        let Settings { structure, rpc_len_max: max, explicit, .. } = &self.settings;
        if message.via != Via::Xmt {
            offer::check_offer(self.limits(), message)?;
            return lists::resolve_call(message, *max);
        }
        let rule = Rule::Request { explicit: *explicit };
        let placed = resolve(structure, parts, message.dp, rule, *max)?;
        check_directions(&message.rsd, u64::from(placed.virtual_len()))?;
        Ok(placed)
    }

    /// Checks the items of a reply against the directions of its call, and finds them.
    ///
    /// # Errors
    /// The first [`Violation`]; the reply is to be rejected with [`Connection::reject_reply`].
    pub fn resolve_reply<'a>(
        &self,
        ledger: &ShardLedger,
        id: CallId,
        message: &Message<'a>,
        parts: &[Part],
        offered: &Offered<'_>,
    ) -> Result<Placed<'a>, Violation> {
        let (structure, max) = (&self.settings.structure, self.settings.rpc_len_max);
        let wants = match ledger.calls.find(id.xid(), self.peer) {
            Some((_, entry)) => entry.wants,
            None => WantSet::NONE,
        };
        if message.via != Via::Xmt {
            // wire.md E32: a base answer to a transmit request means that nothing was placed.
            let offered = if wants.is_empty() { offered } else { &Offered::NONE };
            return lists::resolve_reply(message, offered, max);
        }
        let rule = Rule::Response { wants: &wants, offered };
        resolve(structure, parts, message.dp, rule, max)
    }

    /// Checks the first bytes of a message that was moved by explicit RDMA, once they have arrived.
    ///
    /// # Errors
    /// [`Violation`] if they are not those of an RPC message of this xid and direction.
    pub fn check_body(&self, xid: u32, first: &[u8; 8], kind: MsgType) -> Result<(), Violation> {
        let prefix = RpcPrefix::decode(first).map_err(Violation::Undecodable)?;
        if prefix.xid != xid {
            return Err(Violation::BadHeader("the payload has another xid"));
        }
        if prefix.kind != kind {
            return Err(Violation::BadHeader("the operation and the payload disagree"));
        }
        Ok(())
    }

    // What is to be sent.

    /// The next transmission of a plan.
    pub fn next_transmission(&self, plan: &mut GroupPlan<'_>) -> Option<Transmission> {
        plan.next_transmission(&self.limits().structure)
    }

    /// The pieces that follow the header of a transmission.
    pub fn pieces<'p, 'a>(
        &'p self,
        plan: &'p GroupPlan<'a>,
        transmission: &Transmission,
    ) -> Pieces<'p, 'a> {
        plan.pieces(&self.limits().structure, transmission)
    }

    /// Encodes the header of an inline message: [`InlinePlan::HEADER_LEN`] bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if the writer has fewer.
    #[inline]
    pub fn encode_inline(&self, plan: &InlinePlan, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        plan.encode_header(self.stamp(plan.direction), writer)
    }

    /// Encodes the header of a transmission: `transmission.header_len` bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if the writer has fewer.
    pub fn encode_header(
        &self,
        plan: &GroupPlan<'_>,
        transmission: &Transmission,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let stamp = self.stamp(plan.direction());
        plan.encode_header(&self.limits().structure, transmission, stamp, writer)
    }

    /// Encodes a message between the transports: at most 1024 bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if the writer has fewer than needed.
    pub fn encode_control(
        &self,
        control: &ControlSend,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let credit = self.control_credit();
        match *control {
            ControlSend::ConnProp { xid } => encode_connprop(xid, credit, &self.settings, writer),
            ControlSend::RespProp { xid, answer } => encode_resprop(xid, credit, answer, writer),
            ControlSend::ReqProp { xid, changes } => {
                changes.encode(ChangeKind::Request, xid, credit, writer)
            }
            ControlSend::UpdProp { xid, changes } => {
                changes.encode(ChangeKind::Announcement, xid, credit, writer)
            }
        }
    }

    /// Encodes a report: at most 68 bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if the writer has fewer than needed.
    pub fn encode_report(&self, report: &Report, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let stamp = Stamp { vers: self.vers, credit: self.control_credit() };
        report.encode(stamp, self.settings.versions, writer)
    }

    /// The xid of our control messages, which no call has (wire.md P9).
    pub(crate) fn control_xid(&self) -> u32 {
        self.role.xid_bit()
    }

    /// What the headers of a message say of the connection.
    #[inline]
    pub(crate) fn stamp(&self, direction: Direction) -> Stamp {
        let credit = match direction {
            Direction::Call => self.credits.requested(),
            Direction::Reply => self.inflow.granted(),
        };
        Stamp { vers: self.vers, credit }
    }

    /// wire.md B11: between the transports, clients ask and servers grant.
    fn control_credit(&self) -> u32 {
        match self.role {
            Role::Client => self.credits.requested(),
            Role::Server => self.inflow.granted(),
        }
    }

    /// Changes what is known of the peer, and with it what follows from that: the only way to.
    pub(crate) fn revise<R>(
        &mut self,
        change: impl FnOnce(&mut PropertyExchange, &Settings) -> R,
    ) -> R {
        let result = change(&mut self.exchange, &self.settings);
        let len = self.limits().send_size.min(self.exchange.own_recv_size());
        self.reply_room = len - InlinePlan::HEADER_LEN;
        self.plain_room = self.limits().recv_size - InlinePlan::HEADER_LEN;
        self.last_want = LastWant::default();
        result
    }
}
