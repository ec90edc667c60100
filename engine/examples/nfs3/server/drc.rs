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
pub enum Verdict<W> {
    /// It is new: execute it, and say what became of it.
    Execute(W),
    /// It waits for the answer to the same call.
    Waits,
    /// It was executed: this is the answer.
    Answer(W, Outcome),
    /// It was repeated more often than anybody waits for.
    TooOften(W),
}

/// The calls that were executed last, and those that are being executed. All shards share it: a
/// client may come back to another.
#[derive(Debug)]
pub struct Drc<W = Waiter> {
    calls: Mutex<Calls<W>>,
    hasher: RandomState,
    capacity: usize,
}

#[derive(Debug)]
struct Calls<W> {
    known: HashMap<Fingerprint, State<W>>,
    /// Those that are over, the oldest first.
    over: VecDeque<Fingerprint>,
}

#[derive(Debug)]
enum State<W> {
    /// Being executed; these have asked again.
    Open(Vec<W>),
    Over(Outcome),
}

impl<W> Drc<W> {
    /// Remembers `capacity` answers.
    pub fn new(capacity: usize) -> Drc<W> {
        let calls = Calls { known: HashMap::new(), over: VecDeque::new() };
        Drc { calls: Mutex::new(calls), hasher: RandomState::new(), capacity }
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
    pub fn judge(&self, fingerprint: &Fingerprint, waiter: W) -> Verdict<W> {
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

    /// Takes note of an answer, if something may have been done, and returns those who wait for it as well.
    pub fn finish(&self, fingerprint: &Fingerprint, outcome: &Outcome) -> Vec<W> {
        let mut calls = lock(&self.calls);
        let waiting = match calls.known.remove(fingerprint) {
            Some(State::Open(waiting)) => waiting,
            Some(State::Over(_)) | None => Vec::new(),
        };
        if !outcome.was_executed() {
            return waiting;
        }
        calls.known.insert(fingerprint.clone(), State::Over(outcome.repeated()));
        calls.over.push_back(fingerprint.clone());
        while calls.over.len() > self.capacity
            && let Some(oldest) = calls.over.pop_front()
        {
            calls.known.remove(&oldest);
        }
        waiting
    }
}

/// Whether a procedure does harm if it is executed again.
pub fn concerns(procedure: u32) -> bool {
    use nfs3::{CREATE, LINK, MKDIR, MKNOD, REMOVE, RENAME, RMDIR, SETATTR, SYMLINK, WRITE};
    // A WRITE that comes late would put back what was overwritten since.
    let changes = [SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK];
    changes.contains(&procedure)
}

fn lock<W>(calls: &Mutex<Calls<W>>) -> MutexGuard<'_, Calls<W>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Repetitions that wait for one answer: each is a connection that its client gave up.
const WAITING_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn results(word: u8) -> Outcome {
        Outcome::Results { head: vec![word], data: None }
    }

    fn answer(verdict: Verdict<u32>) -> (u32, Vec<u8>) {
        match verdict {
            Verdict::Answer(waiter, Outcome::Results { head, .. }) => (waiter, head),
            other => panic!("it was executed before: {other:?}"),
        }
    }

    #[test]
    fn a_call_is_executed_once_and_answered_always() {
        let drc = Drc::new(2);
        let call = drc.fingerprint(7, HERE, nfs3::CREATE, b"a");
        assert!(matches!(drc.judge(&call, 1), Verdict::Execute(1)));
        assert!(matches!(drc.judge(&call, 2), Verdict::Waits));
        assert_eq!(drc.finish(&call, &results(5)), [2], "who waited has the same answer");
        assert_eq!(answer(drc.judge(&call, 3)), (3, vec![5]));
    }

    #[test]
    fn what_was_not_executed_is_not_remembered() {
        let jukebox = 10_008_u32.to_be_bytes().to_vec();
        for outcome in [
            Outcome::Results { head: jukebox, data: None },
            Outcome::Denied(crate::server::rpc::Denial::Garbage),
        ] {
            let drc = Drc::new(2);
            let call = drc.fingerprint(7, HERE, nfs3::CREATE, b"a");
            assert!(matches!(drc.judge(&call, 1), Verdict::Execute(1)));
            assert!(matches!(drc.judge(&call, 2), Verdict::Waits));
            assert_eq!(drc.finish(&call, &outcome), [2]);
            assert!(matches!(drc.judge(&call, 3), Verdict::Execute(3)), "{outcome:?}");
        }
    }

    #[test]
    fn other_calls_are_other_calls() {
        let drc = Drc::new(2);
        let elsewhere = IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
        for call in [
            drc.fingerprint(7, HERE, nfs3::CREATE, b"a"),
            drc.fingerprint(8, HERE, nfs3::CREATE, b"a"),
            drc.fingerprint(7, elsewhere, nfs3::CREATE, b"a"),
            drc.fingerprint(7, HERE, nfs3::MKDIR, b"a"),
            drc.fingerprint(7, HERE, nfs3::CREATE, b"b"),
        ] {
            assert!(matches!(drc.judge(&call, 1), Verdict::Execute(1)), "{call:?}");
        }
    }

    #[test]
    fn the_oldest_answer_is_forgotten_and_those_that_wait_are_limited() {
        let drc = Drc::new(2);
        let calls = [1, 2, 3].map(|xid| drc.fingerprint(xid, HERE, nfs3::REMOVE, b""));
        for call in &calls {
            assert!(matches!(drc.judge(call, 0), Verdict::Execute(0)));
            drc.finish(call, &results(0));
        }
        assert_eq!(answer(drc.judge(&calls[1], 9)), (9, vec![0]));
        assert!(matches!(drc.judge(&calls[0], 9), Verdict::Execute(9)));
        for waiter in 0..WAITING_MAX as u32 {
            assert!(matches!(drc.judge(&calls[0], waiter), Verdict::Waits));
        }
        assert!(matches!(drc.judge(&calls[0], 100), Verdict::TooOften(100)));
    }

    #[test]
    fn what_changes_something_is_remembered_and_nothing_else() {
        let remembered: Vec<u32> = (0..=nfs3::COMMIT).filter(|number| concerns(*number)).collect();
        assert_eq!(remembered, [2, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    }
}
