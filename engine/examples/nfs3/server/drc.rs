//! The duplicate request cache: a call that is repeated is not executed twice.
//!
//! A client that has lost its connection sends again, over another, what it had no answer to. For
//! most procedures that does no harm; those that do are remembered, with their answers, by
//! transaction id, address without port - a client on RDMA does not choose its port (RFC 8267) - ,
//! procedure, and a checksum of the arguments, because a client that was started anew may use a
//! transaction id again. A call that is repeated while it is executed waits for the same answer.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rpcrdma_engine::ulb::nfs3;

use super::procedures::Outcome;
use super::work::Waiter;

/// What makes a call the same call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    xid: u32,
    address: IpAddr,
    procedure: u32,
    checksum: u64,
}

/// What is to be done with a call.
#[derive(Debug)]
pub enum Verdict {
    /// It is new: execute it, and say what became of it.
    Execute(Waiter),
    /// It waits for the answer to the same call.
    Waits,
    /// It was executed: this is the answer.
    Answer(Waiter, Outcome),
    /// It was repeated more often than anybody waits for.
    TooOften(Waiter),
}

/// The calls that were executed last, and those that are being executed. All shards share it: a
/// client may come back to another.
#[derive(Debug)]
pub struct Drc {
    calls: Mutex<Calls>,
    hasher: RandomState,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Calls {
    known: HashMap<Fingerprint, State>,
    /// Those that are over, the oldest first.
    over: VecDeque<Fingerprint>,
}

#[derive(Debug)]
enum State {
    /// Being executed; these have asked again.
    Open(Vec<Waiter>),
    Over(Outcome),
}

impl Drc {
    /// Remembers `capacity` answers.
    pub fn new(capacity: usize) -> Drc {
        Drc { calls: Mutex::default(), hasher: RandomState::new(), capacity }
    }

    /// Whether a procedure does harm if it is executed again.
    pub fn concerns(procedure: u32) -> bool {
        use nfs3::{CREATE, LINK, MKDIR, MKNOD, REMOVE, RENAME, RMDIR, SETATTR, SYMLINK, WRITE};
        // A WRITE that comes late would put back what was overwritten since.
        let changes = [SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK];
        changes.contains(&procedure)
    }

    /// The fingerprint of a call.
    pub fn fingerprint(
        &self,
        xid: u32,
        address: IpAddr,
        procedure: u32,
        arguments: &[u8],
    ) -> Fingerprint {
        Fingerprint { xid, address, procedure, checksum: self.hasher.hash_one(arguments) }
    }

    /// What is to be done with a call.
    pub fn judge(&self, fingerprint: &Fingerprint, waiter: Waiter) -> Verdict {
        let mut calls = lock(&self.calls);
        match calls.known.get_mut(fingerprint) {
            None => {
                calls.known.insert(fingerprint.clone(), State::Open(Vec::new()));
                Verdict::Execute(waiter)
            }
            Some(State::Open(waiting)) if waiting.len() < WAITING_MAX => {
                waiting.push(waiter);
                Verdict::Waits
            }
            Some(State::Open(_)) => Verdict::TooOften(waiter),
            Some(State::Over(outcome)) => Verdict::Answer(waiter, outcome.repeated()),
        }
    }

    /// Takes note of an answer, and returns those who wait for it as well.
    pub fn finish(&self, fingerprint: &Fingerprint, outcome: &Outcome) -> Vec<Waiter> {
        let mut calls = lock(&self.calls);
        let state = State::Over(outcome.repeated());
        let waiting = match calls.known.insert(fingerprint.clone(), state) {
            Some(State::Open(waiting)) => waiting,
            Some(State::Over(_)) | None => Vec::new(),
        };
        calls.over.push_back(fingerprint.clone());
        while calls.over.len() > self.capacity
            && let Some(oldest) = calls.over.pop_front()
        {
            calls.known.remove(&oldest);
        }
        waiting
    }
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Repetitions that wait for one answer: each is a connection that its client gave up.
const WAITING_MAX: usize = 8;
