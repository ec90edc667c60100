//! Commands: plans calls and replies, and takes their credits, receives and call slots.

use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::onc::MsgType;
use rpcrdma_xdr::property::{BackwardSupport, RtrSupport};

use crate::calls::{CallId, CallNeeds, CallState};
use crate::chunks::route::{Ends, check_exposed};
use crate::connection::{Connection, ShardLedger};
use crate::credit::Shortage;
use crate::demand::{CallDemand, CallForm, CallRoute, Explicit, Exposed, ReplyDemand};
use crate::error::{Misuse, SendError, Violation};
use crate::ingress::{ControlSend, Ignored, ReplyTo, Via};
use crate::item::ItemSet;
use crate::placement::direct::WantSet;
use crate::placement::inline::{Direction, InlinePlan};

use crate::placement::plan::Plan;
use crate::report::{Report, ReportKind, initial_of};
use crate::route::{self, Bounds, CALL_OPERATIONS, Outgoing};
use crate::settings::Role;
use crate::xmt;

impl Connection {
    /// Starts the exchange of properties: a client's first message.
    pub fn begin(&mut self) -> Option<ControlSend> {
        if self.role == Role::Server || !self.settings.properties || self.exchange().is_sent() {
            return None;
        }
        self.revise(|exchange, _| exchange.on_sent());
        Some(ControlSend::ConnProp { xid: self.control_xid() })
    }

    /// Assigns a call its xid and takes nothing else.
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

    /// Replaces the xid of a newly opened call by this one, so that a server recognizes it as a
    /// repetition of an earlier call.
    ///
    /// # Errors
    /// [`SendError::XidNotOurs`], [`SendError::XidInUse`], [`SendError::TableFull`] if too many
    /// calls with chosen xids are alike, [`SendError::UnknownCall`] if it was sent. The call is as
    /// before.
    pub fn choose_xid(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        xid: u32,
    ) -> Result<CallId, SendError> {
        ledger.calls.choose(self.role, id, self.peer, xid)
    }

    /// Returns the form that a call would have now, and the memory that it needs exposed. Changes
    /// nothing.
    ///
    /// # Errors
    /// [`SendError`] if no form is possible.
    #[inline]
    pub fn route_call(&self, demand: &CallDemand<'_>) -> Result<CallRoute, SendError> {
        if demand.is_plain()
            && demand.payload <= self.plain_room()
            && demand.reply_payload_max <= self.reply_room()
        {
            return Ok(CallRoute::inline(demand.payload, self.limits().recv_size));
        }
        self.route_other(demand)
    }

    #[inline(never)]
    fn route_other(&self, demand: &CallDemand<'_>) -> Result<CallRoute, SendError> {
        route::check_call(demand, self.settings.rpc_len_max)?;
        let bounds = self.call_bounds();
        let may_expose = demand.explicit.enabled && bounds.explicit;
        let explicit = if may_expose { demand.explicit } else { Explicit::NONE };
        let demand = &CallDemand { explicit, ..*demand };
        if !bounds.xmt {
            let by_base = may_expose.then(|| self.ends().route(demand));
            return match by_base {
                Some(Ok(route)) => Ok(route),
                Some(Err(why)) => self.route_plain(demand).map_err(|_| why),
                None => self.route_plain(demand),
            };
        }
        let by_extension = self.route_xmt(bounds.count_max, demand);
        if !may_expose {
            return by_extension;
        }
        // wire.md E6: a call that the credits do not allow now takes another form at once.
        let now = self.credits.available().max(1);
        match by_extension {
            Ok(route) if route.count <= now => Ok(route),
            Ok(route) => self
                .route_at_once(bounds, now, demand)
                .map_or_else(|| self.ends().route(demand).or(Ok(route)), Ok),
            Err(_) => self.ends().route(demand),
        }
    }

    /// The form of a call by the extension that takes fewer transmissions than with more credits,
    /// if its items need not go into the stream for that.
    fn route_at_once(
        &self,
        bounds: Bounds,
        now: u32,
        demand: &CallDemand<'_>,
    ) -> Option<CallRoute> {
        let route = self.route_xmt(bounds.count_max.min(now), demand).ok()?;
        let is_apart = !route.items.is_empty() || !route.placed.is_empty();
        (is_apart || demand.items.is_empty()).then_some(route)
    }

    /// The form of a call by the extension, in so many transmissions at most.
    fn route_xmt(&self, call_max: u32, demand: &CallDemand<'_>) -> Result<CallRoute, SendError> {
        let (own, peer) = (&self.settings, self.limits());
        let reply_max = self.reply_count_max();
        let own_recv_size = self.exchange().own_recv_size();
        xmt::Limits { peer, own, own_recv_size, call_max, reply_max }.route(demand)
    }

    /// The most transmissions that a reply to us may have.
    pub(crate) fn reply_count_max(&self) -> u32 {
        let (own, peer) = (&self.settings, self.limits());
        match (own.rtr & peer.rtr).contains(RtrSupport::XCONT) {
            true => own.response_rx_max.min(peer.response_sx_limit),
            false => 1,
        }
    }

    /// The form of a call without the extension and without exposed memory: one message, and one
    /// for its reply.
    fn route_plain(&self, demand: &CallDemand<'_>) -> Result<CallRoute, SendError> {
        let CallDemand { payload, items, wants, reply_payload_max, .. } = *demand;
        let CallDemand { gather_max, copy_max, .. } = *demand;
        let lens = wants.iter().map(|want| u64::from(want.max_len).next_multiple_of(4));
        let reply = u64::from(reply_payload_max) + lens.sum::<u64>();
        if reply > u64::from(self.reply_room()) {
            let bulk = wants.iter().fold(0, |sum: u32, want| sum.saturating_add(want.max_len));
            let (transmissions, limit) = (0, 1);
            let payload = reply_payload_max;
            return Err(SendError::NeedsExplicitRdma { payload, bulk, transmissions, limit });
        }
        let message = Outgoing { peer: self.limits(), payload, items, gather_max, copy_max };
        Ok(message.in_msg()?.route(CallForm::Msg, ItemSet::EMPTY, 1))
    }

    fn ends(&self) -> Ends<'_> {
        let reply_size = self.reply_room() + InlinePlan::HEADER_LEN;
        let reply_first = reply_size.min(self.settings.first_segment_len());
        Ends { peer: self.limits(), interop: &self.settings.interop, reply_size, reply_first }
    }

    /// Plans a call on its route, and takes its credits and the receives for its reply. The caller
    /// ends it with [`Connection::finish_call`].
    ///
    /// `demand` is the routed one, `exposed` the memory that the route names. A route fits the
    /// peer's buffers at its time: if they have changed, the caller routes the call again.
    ///
    /// # Errors
    /// [`SendError`], without effect; the caller may try again.
    #[inline]
    pub fn begin_call<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        demand: &CallDemand<'a>,
        route: &CallRoute,
        exposed: &Exposed<'a>,
    ) -> Result<Plan<'a>, SendError> {
        let mut route = *route;
        route.layout.header_len = self.take_for_routed(ledger, id, demand, &route, exposed)?;
        Ok(route::plan_call(id.xid(), &route, demand, exposed))
    }

    /// Takes what a routed call needs, all or nothing. Returns the length of its first header with
    /// what was exposed for it.
    pub(crate) fn take_for_routed(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        demand: &CallDemand<'_>,
        route: &CallRoute,
        exposed: &Exposed<'_>,
    ) -> Result<u32, SendError> {
        if route.recv_size != self.limits().recv_size {
            return Err(Misuse("the peer's buffers are others than the call was routed for").into());
        }
        let wants = match (route.form, demand.wants) {
            (CallForm::Msg | CallForm::NoMsg, _) | (_, []) => WantSet::NONE,
            (CallForm::Xmt, wants) => WantSet::of(wants, route.wants)?,
        };
        let header_len = match route.form {
            _ if !route.exposes() => route.layout.header_len,
            CallForm::Xmt => xmt::check_exposed(route, demand, exposed)?,
            CallForm::Msg | CallForm::NoMsg => check_exposed(route, demand, exposed)?,
        };
        let is_xmt = route.form == CallForm::Xmt;
        let (credits, receives) = (route.count, route.reply_count);
        self.take_for_call(ledger, id, CallNeeds { credits, receives, wants, is_xmt })?;
        Ok(header_len)
    }

    /// [`Connection::route_call`] and [`Connection::begin_call`] in one, for a call without exposed
    /// memory.
    ///
    /// # Errors
    /// [`SendError`], without effect.
    #[inline]
    pub fn begin_sends<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        demand: &CallDemand<'a>,
    ) -> Result<Plan<'a>, SendError> {
        let demand = CallDemand { explicit: Explicit::NONE, ..*demand };
        let route = self.route_call(&demand)?;
        self.begin_call(ledger, id, &demand, &route, &Exposed::NONE)
    }

    /// Takes what a call needs, all or nothing.
    #[inline]
    pub(crate) fn take_for_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        needs: CallNeeds,
    ) -> Result<(), SendError> {
        let CallNeeds { credits, receives, wants, is_xmt } = needs;
        let (_, entry) = ledger
            .calls
            .find_mut(id.xid(), self.peer)
            .filter(|(_, entry)| entry.state == CallState::Opened)
            .ok_or(SendError::UnknownCall)?;
        self.credits
            .take(credits)
            .map_err(|Shortage { need, have }| SendError::NotEnoughCredits { need, have })?;
        if let Err(Shortage { need: receives, have }) = ledger.replies.reserve(receives) {
            self.credits.give_back(credits);
            return Err(SendError::NotEnoughReceives { need: receives, have });
        }
        entry.state = CallState::Sent;
        entry.credits = credits;
        entry.receives = receives;
        entry.reply_count_max = receives;
        entry.wants = wants;
        entry.is_xmt = is_xmt;
        Ok(())
    }

    /// Plans a reply. The credits of its call are free again, and the grant grows if it can.
    ///
    /// # Errors
    /// [`SendError`], without effect. The caller can still answer the call in another form, or
    /// reject it.
    #[inline]
    pub fn begin_reply<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        demand: &ReplyDemand<'a>,
    ) -> Result<Plan<'a>, SendError> {
        if demand.items.is_empty() && demand.offer.is_none() && demand.payload <= self.plain_room()
        {
            self.release_credits(ledger, to);
            let (xid, direction, payload) = (to.xid, Direction::Reply, demand.payload);
            let invalidate = self.invalidated(to);
            return Ok(Plan::Inline(InlinePlan { xid, direction, payload, invalidate }));
        }
        self.begin_group_reply(ledger, to, demand)
    }

    #[inline(never)]
    fn begin_group_reply<'a>(
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
        let place = self.places();
        let (explicit, len_max) = (own.explicit, own.rpc_len_max);
        let bounds = Bounds { xmt, count_max, place, explicit, len_max };
        let mut plan = route::plan_reply(self.limits(), bounds, &own.interop, to.xid, demand)?;
        match &mut plan {
            Plan::Inline(plan) => plan.invalidate = self.invalidated(to),
            Plan::Group(plan) => plan.handle = self.invalidated(to),
        }
        self.release_credits(ledger, to);
        Ok(plan)
    }

    /// The handle that a reply may invalidate (wire.md P12, C9).
    #[inline]
    pub(crate) fn invalidated(&self, to: &ReplyTo) -> Option<u32> {
        let is_wanted = self.settings.interop.remote_invalidation;
        to.handle.filter(|_| is_wanted && self.limits().remote_invalidation)
    }

    /// Withdraws a planned reply that cannot be laid out: its call is unanswered again.
    #[cold]
    pub fn withdraw_reply(&mut self, to: &ReplyTo) {
        let taken = self.inflow.on_call(to.credits);
        debug_assert!(taken.is_ok(), "the plan has just given these credits back");
    }

    /// Answers a call by RDMA_ERROR: it has no other answer, executed or not.
    pub fn refuse(&mut self, ledger: &mut ShardLedger, to: &ReplyTo) -> Report {
        self.release_credits(ledger, to);
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
        self.release_credits(ledger, to);
        self.counters.reported += 1;
        Report::of(violation, initial_of(to.xid, MsgType::Call), None)
    }

    /// Reports a reply that [`Connection::resolve_reply`] found bad. Its call has failed (wire.md
    /// E35).
    pub fn reject_reply(&mut self, id: CallId, via: Via, violation: Violation) -> Option<Report> {
        // wire.md B7: a reply of a base type is dropped.
        if via != Via::Xmt {
            self.counters.ignored[Ignored::BadReply as usize] += 1;
            return None;
        }
        self.counters.reported += 1;
        Some(Report::of(violation, initial_of(id.xid(), MsgType::Reply), None))
    }

    /// Whether our own calls go in the backward direction.
    #[inline]
    fn is_backward(&self) -> bool {
        self.role == Role::Server
    }

    /// A call is answered: its credits are free.
    #[inline]
    pub(crate) fn release_credits(&mut self, ledger: &mut ShardLedger, to: &ReplyTo) {
        self.inflow.release(to.credits, &mut ledger.grants);
    }

    /// Whether items are placed in the peer's buffers.
    #[inline]
    pub(crate) fn places(&self) -> bool {
        self.settings.placement && self.limits().placement
    }

    #[inline]
    pub(crate) fn call_bounds(&self) -> Bounds {
        let (own, peer) = (&self.settings, self.limits());
        let both = own.rtr & peer.rtr;
        // wire.md P13: inline backward calls are single and without placement.
        let explicit = !self.is_backward() || peer.backward == BackwardSupport::General;
        let xmt = explicit && both.contains(CALL_OPERATIONS);
        let count_max = match both.contains(RtrSupport::XCONT) {
            // wire.md E6: a group that the grant never allows is not tried.
            true => own.call_count_max.min(peer.request_rx_limit).min(self.credits.limit()),
            false => 1,
        };
        let count_max = count_max.clamp(1, GROUP_MAX);
        Bounds { xmt, count_max, place: self.places(), explicit, len_max: own.rpc_len_max }
    }
}
