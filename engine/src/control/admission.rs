//! Requests of peers: a shard is asked about each before it is accepted.
//!
//! ```text
//!   request ─▶ the next shard that serves and has room ──Asked──▶ Handler::admit
//!      │                      ▲ it has gone, or stops               │
//!      └ nobody, or too late  └──────────────────────── verdict ◀───┘
//!           └─▶ rejected               rejected ◀─ no ──┴── yes ─▶ accepted ──Accepted──▶ the shard
//! ```
//! A place of the shard is reserved from the first question on. Nobody waits for its answer, and a
//! request that gets none is rejected when its time is over.

use std::net::SocketAddr;
use std::time::Instant;

use rpcrdma_xdr::private_data::PrivateData;

use super::office::{Verdict, lock};
use super::{CmRequest, Control};
use crate::provider::{ConnectionManager, PrivateBytes, Provider};
use crate::shard::letters::Arrival;

/// A request that a shard was asked about.
pub(super) struct Pending<P: Provider> {
    /// What the shard's answer names it by.
    number: u64,
    shard: u32,
    /// None when it was rejected because the answer took too long.
    request: Option<CmRequest<P>>,
    from: SocketAddr,
    private: PrivateBytes,
    until: Instant,
}

impl<P: Provider> Control<P> {
    /// A peer asks for a connection.
    pub(super) fn on_request(
        &mut self,
        request: CmRequest<P>,
        from: SocketAddr,
        private: PrivateBytes,
    ) {
        let until = Instant::now() + self.office.param.timeout;
        let request = Some(request);
        self.ask(Pending { number: 0, shard: 0, request, from, private, until });
    }

    /// Asks the next shard that serves and has room.
    fn ask(&mut self, mut pending: Pending<P>) {
        self.asked += 1;
        pending.number = self.asked;
        let office = self.office.clone();
        let desks = lock(&office.desks);
        let count = desks.len();
        let mut turn = (1..=count).map(|step| (self.last + step) % count);
        let chosen = turn.find(|&at| {
            let desk = &desks[at];
            desk.is_serving() && desk.bell.reserve(desk.connections_max)
        });
        let Some(at) = chosen else { return self.reject(&mut pending) };
        self.last = at;
        let Pending { number, from, ref private, .. } = pending;
        let question = Arrival::Asked { number, from, private: private.clone() };
        match desks[at].arrivals.send(question) {
            Ok(()) => {
                pending.shard = desks[at].shard;
                self.pending.push(pending);
            }
            Err(_) => {
                desks[at].bell.disconnected();
                self.reject(&mut pending);
            }
        }
    }

    /// Rejects a request; one that was rejected stays so.
    fn reject(&mut self, pending: &mut Pending<P>) {
        if let Some(request) = pending.request.take() {
            self.cm.reject(request, &[]);
        }
    }

    /// A shard has answered.
    pub(super) fn on_verdict(&mut self, verdict: Verdict) {
        let is_it = |it: &Pending<P>| (it.shard, it.number) == (verdict.shard, verdict.number);
        let Some(at) = self.pending.iter().position(is_it) else { return };
        let mut pending = self.pending.swap_remove(at);
        let office = self.office.clone();
        let desks = lock(&office.desks);
        let Some(desk) = desks.iter().find(|desk| desk.shard == verdict.shard) else {
            drop(desks);
            return self.ask(pending);
        };
        if !verdict.accepts {
            let is_stopping = !desk.is_serving();
            drop(desks);
            if is_stopping {
                self.ask(pending)
            } else {
                self.reject(&mut pending)
            }
            return self.give_back(verdict);
        }
        let accepted = pending.request.take().and_then(|request| {
            self.cm.accept(request, &desk.queues, &office.param.as_conn_param()).ok()
        });
        drop(desks);
        let Some(endpoint) = accepted else { return self.give_back(verdict) };
        let private = PrivateData::decode(&pending.private);
        let arrival = Arrival::Accepted { endpoint, from: verdict.from, private };
        self.deliver(verdict.shard, arrival);
    }

    /// Nothing comes of a request: the place that its shard has reserved is free.
    pub(super) fn give_back(&self, verdict: Verdict) {
        if verdict.accepts {
            return self.deliver(verdict.shard, Arrival::Abandoned { from: verdict.from });
        }
        let desks = lock(&self.office.desks);
        if let Some(desk) = desks.iter().find(|desk| desk.shard == verdict.shard) {
            desk.bell.disconnected();
        }
    }

    /// Rejects requests that were not answered in time, and asks others where a shard has gone.
    pub(super) fn look_after_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let now = Instant::now();
        let shards: Vec<u32> = lock(&self.office.desks).iter().map(|desk| desk.shard).collect();
        for mut pending in core::mem::take(&mut self.pending) {
            if !shards.contains(&pending.shard) {
                // One that was rejected for being late has nothing left to ask for.
                if pending.request.is_some() {
                    self.ask(pending);
                }
                continue;
            }
            if pending.until <= now {
                self.reject(&mut pending);
            }
            // Its shard holds a place for it until it answers.
            self.pending.push(pending);
        }
    }
}
