//! Admission: the configuration, and then a shard, decide about each connection request.
//!
//! ```text
//!   request ─▶ allow, deny, max_per_peer ── no ──▶ rejected
//!                  │ yes
//!                  ▼
//!   the next shard that serves and has room ─Request─▶ Handler::admit
//!      │                      ▲ it has gone, or stops               │
//!      └ none, or too late    └──────────────────────── answer ◀────┘
//!           └─▶ rejected             rejected ◀─ no ──┴── yes ─▶ accepted ──Accepted──▶ the shard
//! ```
//! A rejection states its reason. A place of the shard is reserved from the request to the answer.
//! No thread waits for the answer, and a request without one is rejected when its time has
//! elapsed.

use std::time::Instant;

use rpcrdma_config::Who;
use rpcrdma_xdr::private_data::PrivateData;

use super::shared::{AdmissionAnswer, lock};
use crate::control::arrival::Arrival;
use crate::control::{CmRequest, Control, Pending};
use crate::error::SetupError;
use crate::provider::{Address, ConnectionManager, Credentials, PrivateBytes, Provider, Rejection};
use crate::trace;

impl<P: Provider> Control<P> {
    /// A peer requests a connection.
    pub(super) fn on_request(
        &mut self,
        request: CmRequest<P>,
        from: Address,
        private: PrivateBytes,
    ) {
        trace::requested(from);
        if !self.access.permits(who(&from)) {
            return self.reject(request, from, Rejection::NotAllowed);
        }
        let Some(permit) = self.quotas.acquire(from.origin()) else {
            return self.reject(request, from, Rejection::PeerFull);
        };
        let until = Instant::now() + self.shared.param.timeout;
        let request = Some(request);
        self.ask(Pending { number: 0, shard: 0, request, from, private, permit, until });
    }

    /// Asks the next shard that serves and has room.
    fn ask(&mut self, mut pending: Pending<P>) {
        self.asked += 1;
        pending.number = self.asked;
        let shared = self.shared.clone();
        let shards = lock(&shared.shards);
        let count = shards.len();
        let mut turn = (1..=count).map(|step| (self.last + step) % count);
        let chosen = turn.find(|&at| {
            let entry = &shards[at];
            entry.is_serving() && entry.wakeup.reserve(entry.connections_max)
        });
        let Some(at) = chosen else {
            let is_served = shards.iter().any(|entry| entry.is_serving());
            let why = if is_served { Rejection::Full } else { Rejection::Stopping };
            return self.reject_pending(&mut pending, why);
        };
        self.last = at;
        let Pending { number, from, ref private, .. } = pending;
        let question = Arrival::Request { number, from, private: private.clone() };
        match shards[at].arrivals.send(question) {
            Ok(()) => {
                pending.shard = shards[at].shard;
                self.pending.push(pending);
            }
            Err(_) => {
                shards[at].wakeup.disconnected();
                self.reject_pending(&mut pending, Rejection::Busy);
            }
        }
    }

    /// Rejects a pending request; a repetition has no effect.
    fn reject_pending(&mut self, pending: &mut Pending<P>, why: Rejection) {
        if let Some(request) = pending.request.take() {
            self.reject(request, pending.from, why);
        }
    }

    fn reject(&mut self, request: CmRequest<P>, from: Address, why: Rejection) {
        trace::rejected(from, why);
        self.shared.tally.rejected(why);
        self.cm.reject(request, &why.encode());
    }

    /// Rejects all pending requests: the control plane ends.
    pub(super) fn reject_all(&mut self) {
        for mut pending in core::mem::take(&mut self.pending) {
            self.reject_pending(&mut pending, Rejection::Stopping);
        }
    }

    /// A shard has answered.
    pub(super) fn on_answer(&mut self, answer: AdmissionAnswer) {
        let is_it = |it: &Pending<P>| (it.shard, it.number) == (answer.shard, answer.number);
        let Some(at) = self.pending.iter().position(is_it) else { return };
        let mut pending = self.pending.swap_remove(at);
        let shared = self.shared.clone();
        let shards = lock(&shared.shards);
        let Some(entry) = shards.iter().find(|entry| entry.shard == answer.shard) else {
            drop(shards);
            return self.ask(pending);
        };
        if let Err(code) = answer.outcome {
            let is_stopping = !entry.is_serving();
            drop(shards);
            if is_stopping {
                self.ask(pending)
            } else {
                self.reject_pending(&mut pending, Rejection::Refused { code })
            }
            return self.give_back(answer);
        }
        let accepted = pending.request.take().and_then(|request| {
            let param = shared.param.as_conn_param();
            let accepted = self.cm.accept(request, &entry.queues, &param);
            // A request that is not accepted is rejected by the connection manager.
            let on_error = |error: &SetupError| {
                trace::accept_failed(answer.from, error);
                shared.tally.rejected(Rejection::Busy);
            };
            accepted.inspect_err(on_error).ok()
        });
        drop(shards);
        let Some(endpoint) = accepted else { return self.give_back(answer) };
        shared.tally.accepted();
        trace::accepted(answer.from, answer.shard);
        let Pending { private, permit, .. } = pending;
        let private = PrivateData::decode(&private);
        let arrival = Arrival::Accepted { endpoint, from: answer.from, private, permit };
        self.deliver(answer.shard, arrival);
    }

    /// A request has ended without a connection: releases its shard's reserved place.
    pub(super) fn give_back(&self, answer: AdmissionAnswer) {
        if answer.outcome.is_ok() {
            return self.deliver(answer.shard, Arrival::Abandoned { from: answer.from });
        }
        let shards = lock(&self.shared.shards);
        if let Some(entry) = shards.iter().find(|entry| entry.shard == answer.shard) {
            entry.wakeup.disconnected();
        }
    }

    /// Rejects requests that were not answered in time, and reassigns those of a shard that is
    /// gone.
    pub(super) fn look_after_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let now = Instant::now();
        let shards: Vec<u32> = lock(&self.shared.shards).iter().map(|entry| entry.shard).collect();
        for mut pending in core::mem::take(&mut self.pending) {
            if !shards.contains(&pending.shard) {
                // A request that was rejected as late is not reassigned.
                if pending.request.is_some() {
                    self.ask(pending);
                }
                continue;
            }
            if pending.until <= now {
                self.reject_pending(&mut pending, Rejection::Busy);
            }
            // Its shard holds a place for it until it answers.
            self.pending.push(pending);
        }
    }
}

/// What the lists of the configuration can name.
fn who(from: &Address) -> Who {
    match *from {
        Address::Ip(address) => Who::Host(address.ip()),
        Address::Process(Credentials { uid, gid, .. }) => Who::Process { uid, gid },
        _ => Who::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_name_hosts_and_the_owners_of_processes() {
        let host: Address = "10.0.0.1:2049".parse().expect("an address");
        assert_eq!(who(&host), Who::Host([10, 0, 0, 1].into()));
        let process = Address::Process(Credentials { pid: 1, uid: 2, gid: 3 });
        assert_eq!(who(&process), Who::Process { uid: 2, gid: 3 });
        let name: Address = "shm:@name".parse().expect("an address");
        assert_eq!(who(&name), Who::Unknown);
    }
}
