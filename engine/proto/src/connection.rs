//! The connection: all state machines of one peer, and the only type that the engine talks to.

use rpcrdma_xdr::chunk::ChunkLists;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::header::{Body, Header};
use rpcrdma_xdr::numbers::VERSION_TWO;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::property::{BackwardSupport, RtrSupport};
use rpcrdma_xdr::rpc::MsgType;

use crate::calls::{CallId, CallState, CallTable};
use crate::credit::{CreditLedger, GrantPool, Inflow, ReplyReserve};
use crate::error::{OpenError, SendError, Violation};
use crate::group::{GroupAssembler, Part};
use crate::ingress::{ControlSend, Ignored, Message, ReplyTo, Via};
use crate::placement::direct::{WantSet, check_directions};
use crate::placement::layout::LayoutError;
use crate::placement::plan::{Direction, GroupPlan, InlinePlan, Pieces, Plan, Transmission};
use crate::placement::resolve::{Placed, Rule, resolve};
use crate::property::{PeerLimits, PropertyExchange, encode_connprop, encode_resprop};
use crate::report::{Report, ReportKind, initial_of};
use crate::route::{self, Bounds, CALL_OPERATIONS, CallDemand, ReplyDemand};
use crate::settings::{Role, Settings};

/// Receives that the engine keeps posted for each connection beyond those of the [`ShardLedger`]:
/// for CONNPROP, REQPROP, RESPROP or UPDPROP, and an error (wire.md P10).
pub const CONTROL_RECEIVES: u32 = 4;

/// What the connections of a shard share: the calls and the receives.
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
    /// For `connections_max` connections and `calls_max` own calls, with so many receives kept for
    /// incoming calls and for replies. Allocates the table of calls.
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

/// How often something happened on a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transmissions ignored, by [`Ignored`] as index.
    pub ignored: [u32; Ignored::COUNT],
    /// Messages reported as bad to the peer.
    pub reported: u32,
    /// Errors received from the peer.
    pub errors: u32,
    /// Grants of zero, taken as one (wire.md B11).
    pub zero_grants: u32,
    /// Property values that were not taken.
    pub skipped_properties: u32,
}

/// An own call that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// As given to [`Connection::open_call`].
    pub token: u64,
}

/// One connection. Less than 2 KiB, without a pointer.
#[derive(Debug)]
pub struct Connection {
    pub(crate) role: Role,
    pub(crate) ready: bool,
    /// Whether the peer has shown that it speaks our version.
    pub(crate) accepted: bool,
    pub(crate) peer: u32,
    pub(crate) credits: CreditLedger,
    pub(crate) inflow: Inflow,
    pub(crate) exchange: PropertyExchange,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) group: GroupAssembler,
}

impl Connection {
    /// A connection that was just established; `peer` is the engine's name for it.
    ///
    /// # Errors
    /// [`OpenError`] if the settings contradict themselves, or no receive is left for it.
    pub fn open(
        role: Role,
        peer: u32,
        settings: &Settings,
        ledger: &mut ShardLedger,
    ) -> Result<Self, OpenError> {
        settings.check()?;
        ledger.grants.open().map_err(|_| OpenError::NoReceives)?;
        Ok(Self {
            role,
            ready: role == Role::Client && !settings.properties,
            accepted: false,
            peer,
            credits: CreditLedger::new(settings.credits_requested),
            inflow: Inflow::new(settings.credits_granted_max),
            exchange: PropertyExchange::new(),
            settings: *settings,
            counters: Counters::default(),
            group: GroupAssembler::new(),
        })
    }

    /// Gives back what the connection holds in the ledger. Its own calls must be finished before:
    /// [`CallTable::next_of`] finds them.
    pub fn close(self, ledger: &mut ShardLedger) {
        debug_assert_eq!(self.credits.in_flight(), 0, "all calls are finished before");
        ledger.grants.close(self.inflow.granted());
    }

    // Getters.

    /// Whether calls can be sent.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Who opened it.
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

    /// What is known of the peer.
    #[inline]
    #[must_use]
    pub fn limits(&self) -> &PeerLimits {
        self.exchange.limits()
    }

    /// What it was opened with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
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

    /// How often something happened.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Checks the items and directions of a call, and finds the items. `parts` are all its
    /// transmissions. Not needed if the message is plain.
    ///
    /// # Errors
    /// The first [`Violation`]; the call is to be rejected with [`Connection::reject_call`].
    pub fn resolve_call<'a>(
        &self,
        message: &Message<'a>,
        parts: &[Part],
    ) -> Result<Placed<'a>, Violation> {
        let (structure, max) = (&self.settings.structure, self.settings.rpc_len_max);
        let placed = resolve(structure, parts, message.dp, Rule::Request, max)?;
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
    ) -> Result<Placed<'a>, Violation> {
        let (structure, max) = (&self.settings.structure, self.settings.rpc_len_max);
        let wants = match ledger.calls.find(id.xid(), self.peer) {
            // wire.md E32: a plain answer means that nothing was placed.
            Some((_, entry)) if message.via == Via::Xmt => entry.wants,
            _ => WantSet::NONE,
        };
        resolve(structure, parts, message.dp, Rule::Response(&wants), max)
    }

    // Commands.

    /// Starts the exchange of properties: the first message of a client.
    pub fn begin(&mut self) -> Option<ControlSend> {
        if self.role == Role::Server || !self.settings.properties || self.exchange.is_sent() {
            return None;
        }
        self.exchange.on_sent();
        Some(ControlSend::ConnProp { xid: self.control_xid() })
    }

    /// Gives a call its xid. Nothing else is taken yet.
    ///
    /// # Errors
    /// [`SendError::NotReady`], [`SendError::NoBackward`], [`SendError::TableFull`].
    #[inline]
    pub fn open_call(&mut self, ledger: &mut ShardLedger, token: u64) -> Result<CallId, SendError> {
        if !self.ready {
            return Err(SendError::NotReady);
        }
        if self.is_backward() && self.limits().backward == BackwardSupport::None {
            return Err(SendError::NoBackward);
        }
        ledger
            .calls
            .open(self.role, self.peer, token)
            .map_err(|full| SendError::TableFull { max: full.max })
    }

    /// Plans a call, and takes its credits and the receives for its reply. From here on it ends
    /// with [`Connection::finish_call`].
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then, and the call may be tried again.
    #[inline]
    pub fn begin_call<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        demand: &CallDemand<'a>,
    ) -> Result<Plan<'a>, SendError> {
        let bounds = self.call_bounds();
        let reply = self.reply_bound(bounds, demand)?;
        let demand = reply.demand.as_ref().unwrap_or(demand);
        let wants = match demand.wants {
            [] => WantSet::NONE,
            wants => WantSet::of(wants)?,
        };
        let plan = route::plan_call(self.limits(), bounds, id.xid(), reply.count, demand)?;
        let (_, entry) = ledger
            .calls
            .find_mut(id.xid(), self.peer)
            .filter(|(_, entry)| entry.state == CallState::Opened)
            .ok_or(SendError::UnknownCall)?;
        let (need, have) = (plan.count(), self.credits.available());
        if need > have {
            return Err(SendError::NotEnoughCredits { need, have });
        }
        ledger.replies.reserve(reply.count).map_err(|shortage| SendError::NotEnoughReceives {
            need: shortage.need,
            have: shortage.have,
        })?;
        let taken = self.credits.take(need);
        debug_assert!(taken.is_ok(), "the credits were just found available");
        entry.state = CallState::Sent;
        entry.credits = need;
        entry.receives = reply.count;
        entry.reply_count_max = reply.count;
        entry.wants = wants;
        Ok(plan)
    }

    /// Ends an own call: answered, failed, given up, or never sent. Its credits and receives come
    /// back. `None` if it had ended before.
    #[inline]
    pub fn finish_call(&mut self, ledger: &mut ShardLedger, id: CallId) -> Option<Finished> {
        let entry = ledger.calls.remove(id, self.peer)?;
        self.credits.give_back(entry.credits);
        ledger.replies.release(entry.receives);
        Some(Finished { token: entry.token })
    }

    /// Plans a reply. The credits of its call are free again, and the grant grows if it can.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed then. The call can still be answered in another way, or
    /// refused.
    #[inline]
    pub fn begin_reply<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        demand: &ReplyDemand<'a>,
    ) -> Result<Plan<'a>, SendError> {
        let own = &self.settings;
        let count_max = match own.rtr.contains(RtrSupport::XCONT) {
            true => to.rsbuf.clamp(1, GROUP_MAX).min(own.response_sx_limit),
            false => 1,
        };
        let xmt = to.via == Via::Xmt && own.rtr.contains(RtrSupport::XRESP);
        let plan = route::plan_reply(self.limits(), Bounds { xmt, count_max }, to.xid, demand)?;
        self.settle(ledger, to);
        Ok(plan)
    }

    /// Answers a call by RDMA_ERROR: it was executed or not, and cannot be answered.
    pub fn refuse(&mut self, ledger: &mut ShardLedger, to: &ReplyTo) -> Report {
        self.settle(ledger, to);
        self.counters.reported += 1;
        Report { xid: to.xid, kind: ReportKind::BadHeader }
    }

    /// Answers a call that [`Connection::resolve_call`] found bad.
    pub fn reject_call(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        violation: Violation,
    ) -> Report {
        self.settle(ledger, to);
        self.counters.reported += 1;
        Report::of(violation, initial_of(to.xid, MsgType::Call), None)
    }

    /// Reports a reply that [`Connection::resolve_reply`] found bad. The call stays outstanding:
    /// the peer may answer once more (wire.md E35).
    pub fn reject_reply(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        violation: Violation,
    ) -> Report {
        if let Some((_, entry)) = ledger.calls.find_mut(id.xid(), self.peer) {
            entry.state = CallState::Sent;
        }
        self.counters.reported += 1;
        Report::of(violation, initial_of(id.xid(), MsgType::Reply), None)
    }

    // What is to be sent.

    /// Our properties, if we are a server whose client has called without stating its own: to be
    /// asked for after a reply (wire.md B2).
    pub fn next_control(&mut self) -> Option<ControlSend> {
        let due = self.role == Role::Server && self.settings.properties && self.accepted;
        if !due || self.exchange.is_sent() {
            return None;
        }
        self.exchange.on_sent();
        Some(ControlSend::ConnProp { xid: self.control_xid() })
    }

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
        let credit = self.credit_of(plan.direction);
        let body = Body::Msg(ChunkLists::EMPTY);
        Header { xid: plan.xid, vers: VERSION_TWO, credit, body }.encode(writer)
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
        plan.encode_header(transmission, self.credit_of(plan.direction()), writer)
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
        }
    }

    /// Encodes a report: at most 68 bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if the writer has fewer than needed.
    pub fn encode_report(&self, report: &Report, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        report.encode(self.control_credit(), writer)
    }

    /// Whether our own calls go against the direction of the connection.
    #[inline]
    fn is_backward(&self) -> bool {
        self.role == Role::Server
    }

    /// The xid of our control messages: no call has it (wire.md P9).
    pub(crate) fn control_xid(&self) -> u32 {
        self.role.xid_bit()
    }

    /// A call is answered.
    #[inline]
    fn settle(&mut self, ledger: &mut ShardLedger, to: &ReplyTo) {
        self.inflow.on_answer(to.credits);
        self.inflow.grow(&mut ledger.grants);
    }

    #[inline]
    fn credit_of(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Call => self.credits.requested(),
            Direction::Reply => self.inflow.granted(),
        }
    }

    /// wire.md B11: between the transports, clients ask and servers grant.
    fn control_credit(&self) -> u32 {
        match self.role {
            Role::Client => self.credits.requested(),
            Role::Server => self.inflow.granted(),
        }
    }

    #[inline]
    fn call_bounds(&self) -> Bounds {
        let (own, peer) = (&self.settings, self.limits());
        let both = own.rtr & peer.rtr;
        // wire.md P13: inline backward calls are single and without placement.
        let free = !self.is_backward() || peer.backward == BackwardSupport::General;
        let xmt = free && both.contains(CALL_OPERATIONS);
        let count_max = match both.contains(RtrSupport::XCONT) {
            // wire.md E6: a group that the grant never allows is not tried.
            true => own.call_count_max.min(peer.request_rx_limit).min(self.credits.limit()),
            false => 1,
        };
        Bounds { xmt, count_max: count_max.clamp(1, GROUP_MAX) }
    }

    /// How many transmissions the reply may have, if that is possible at all.
    #[inline]
    fn reply_bound<'a>(
        &self,
        bounds: Bounds,
        demand: &CallDemand<'a>,
    ) -> Result<ReplyBound<'a>, SendError> {
        let room = self.settings.structure.total_len() - InlinePlan::HEADER_LEN;
        if demand.wants.is_empty() && demand.reply_payload_max <= room {
            return Ok(ReplyBound { count: 1, demand: None });
        }
        self.reply_bound_of_many(bounds, demand, room)
    }

    #[cold]
    fn reply_bound_of_many<'a>(
        &self,
        bounds: Bounds,
        demand: &CallDemand<'a>,
        room: u32,
    ) -> Result<ReplyBound<'a>, SendError> {
        let (own, peer) = (&self.settings, self.limits());
        let bulk = demand.reply_bulk_max.iter().fold(0, |sum: u32, len| sum.saturating_add(*len));
        let payload = demand.reply_payload_max;
        let impossible = |transmissions, limit| SendError::NeedsExplicitRdma {
            payload,
            bulk,
            transmissions,
            limit,
        };
        if !bounds.xmt {
            // Nothing can be placed, so nothing is asked for, and all comes in one message.
            let padding = 3 * demand.reply_bulk_max.len() as u32;
            let whole = payload.saturating_add(bulk).saturating_add(padding);
            let demand = CallDemand { wants: &[], reply_bulk_max: &[], ..*demand };
            return match whole <= room {
                true => Ok(ReplyBound { count: 1, demand: Some(demand) }),
                false => Err(impossible(0, 1)),
            };
        }
        let both = own.rtr & peer.rtr;
        let limit = match both.contains(RtrSupport::XCONT) {
            true => own.response_rx_max.min(peer.response_sx_limit),
            false => 1,
        };
        match route::reply_count(own, demand) {
            Ok(count) if count <= limit => Ok(ReplyBound { count, demand: None }),
            Ok(count) | Err(LayoutError::Count(count)) => Err(impossible(count, limit)),
            Err(LayoutError::Pieces(_)) => Err(impossible(0, limit)),
        }
    }
}

/// What a call's reply needs.
struct ReplyBound<'a> {
    /// Transmissions; at least 1.
    count: u32,
    /// The call as it must be asked instead, if the peer does not place.
    demand: Option<CallDemand<'a>>,
}
