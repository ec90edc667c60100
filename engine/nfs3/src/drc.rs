//! The duplicate request cache: a repeated call is not executed twice.
//!
//! A client that lost its connection repeats its unanswered calls over another connection. The
//! cache remembers the calls for which a second execution does harm, with their answers. A call is
//! identified by its XID, the client's address without the port (a client on RDMA does not choose
//! its port, RFC 8267), the procedure, and a checksum of the caller, the arguments and both ends of
//! the data; a restarted client may use an XID again. A call that is repeated during its execution
//! waits for the same answer. If too many repetitions wait, the oldest is dropped: the client has
//! given up its connection. If the connection of a call ends before a thread has begun the call,
//! the newest repetition takes it over. Without a repetition the cache forgets the call, and a
//! later repetition is executed.
//!
//! ```text
//!   connection   ── answers of its last calls ──   until it ends, whatever others do
//!     ended      ── the same, for its client  ──   as many answers as 64 full connections have
//! ```
//! A client repeats what it has no answer to, and has at most as many such calls as credits. So the
//! answers of each connection are kept apart: no client takes the place of another's. Of too many
//! answers of ended connections the first to go are the oldest of the client with the most.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Mutex;

use arrayvec::ArrayVec;
use rpcrdma::Origin;

use crate::call::CallOutcome;
use crate::credentials::Caller;
use crate::kept_answers::KeptAnswers;
use crate::locks::lock;

/// The identity of a call: two calls with the same fingerprint are one call and its repetition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    xid: u32,
    origin: Origin,
    procedure: u32,
    checksum: u64,
}

impl Fingerprint {
    /// The origin that the call is counted for.
    pub fn share(&self) -> Origin {
        self.origin.network()
    }
}

/// How to treat a call.
#[derive(Debug)]
pub enum Repetition<W> {
    /// It is new: execute it, and report the outcome with [`Drc::finish`].
    Execute(W),
    /// It waits for the answer to the same call; the oldest waiter is dropped if there are too
    /// many.
    Waits(Option<W>),
    /// It was executed, with this outcome.
    Answer(W, CallOutcome),
}

/// The content of a call that its fingerprint covers, without the XID.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// The caller, from the RPC header.
    pub caller: &'a Caller,
    /// The procedure.
    pub procedure: u32,
    /// The arguments without data.
    pub head: &'a [u8],
    /// The data, if there are any.
    pub data: &'a DataEnds,
}

/// The length of data and their first and last bytes: independent of the pieces that they arrived
/// in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DataEnds {
    len: usize,
    bytes: ArrayVec<u8, { 2 * END_LEN }>,
}

impl DataEnds {
    /// Computes them from pieces, which may end with padding behind `len` bytes.
    pub fn of<'a>(len: usize, pieces: impl Iterator<Item = &'a [u8]>) -> DataEnds {
        let first = 0..len.min(END_LEN);
        let last = len.saturating_sub(END_LEN).max(first.end)..len;
        let (mut bytes, mut at) = (ArrayVec::new(), 0);
        for piece in pieces {
            for end in [&first, &last] {
                let from = end.start.saturating_sub(at).min(piece.len());
                let to = end.end.saturating_sub(at).min(piece.len());
                bytes.extend(piece[from..to].iter().copied());
            }
            at += piece.len();
        }
        DataEnds { len, bytes }
    }
}

/// Waits for the answer to a call.
pub trait Waits {
    /// Identifies a connection.
    type Connection: Copy + Eq + Hash;

    /// The connection of the call.
    fn connection(&self) -> Self::Connection;
}

/// The calls in execution, and those executed last. All shards share it, because a client may
/// reconnect to another shard.
pub struct Drc<W: Waits> {
    calls: Mutex<KnownCalls<W>>,
    hasher: RandomState,
}

struct KnownCalls<W: Waits> {
    known: HashMap<Fingerprint, RepeatState<W>>,
    kept: KeptAnswers<W::Connection, Fingerprint>,
}

enum RepeatState<W: Waits> {
    /// In execution, for the connection that has asked last.
    Open {
        by: W::Connection,
        /// The repetitions that wait, the newest last.
        waiting: VecDeque<W>,
    },
    /// Executed; the answer is kept for this connection.
    Over { by: W::Connection, outcome: CallOutcome },
}

impl<W: Waits> Drc<W> {
    /// An empty cache for clients with at most `credits` unanswered calls on each connection.
    pub fn new(credits: usize) -> Drc<W> {
        // Twice as many: answers may be sent in another order than they are kept in.
        let kept = KeptAnswers::new(2 * credits);
        let calls = KnownCalls { known: HashMap::new(), kept };
        Drc { calls: Mutex::new(calls), hasher: RandomState::new() }
    }

    /// The fingerprint of a call.
    pub fn fingerprint(&self, xid: u32, origin: Origin, said: &Said<'_>) -> Fingerprint {
        let Said { caller, procedure, head, data } = *said;
        let checksum = self.hasher.hash_one((caller, head, data));
        Fingerprint { xid, origin, procedure, checksum }
    }

    /// Looks a call up, and records it if it is new.
    pub fn look_up(&self, fingerprint: &Fingerprint, waiter: W) -> Repetition<W> {
        let (mut calls, connection) = (lock(&self.calls), waiter.connection());
        let KnownCalls { known, kept } = &mut *calls;
        kept.begin(connection, fingerprint.share());
        match known.get_mut(fingerprint) {
            None => {
                let state = RepeatState::Open { by: connection, waiting: VecDeque::new() };
                known.insert(fingerprint.clone(), state);
                Repetition::Execute(waiter)
            }
            Some(RepeatState::Open { by, waiting }) => {
                let is_full = waiting.len() == WAITING_MAX;
                let oldest = if is_full { waiting.pop_front() } else { None };
                waiting.push_back(waiter);
                *by = connection;
                Repetition::Waits(oldest)
            }
            Some(RepeatState::Over { by, outcome }) => {
                let outcome = outcome.repeated();
                kept.release(*by, fingerprint);
                *by = connection;
                let forgotten = kept.keep(connection, fingerprint.share(), fingerprint);
                calls.forget(forgotten);
                Repetition::Answer(waiter, outcome)
            }
        }
    }

    /// Stores the outcome of a call, unless the call had no effect, and returns the waiting
    /// repetitions.
    pub fn finish(&self, fingerprint: &Fingerprint, outcome: &CallOutcome) -> VecDeque<W> {
        let mut calls = lock(&self.calls);
        let Some(state) = calls.known.get_mut(fingerprint) else { return VecDeque::new() };
        let RepeatState::Open { by, waiting } = state else { return VecDeque::new() };
        let (by, waiting) = (*by, std::mem::take(waiting));
        if outcome.was_executed() {
            *state = RepeatState::Over { by, outcome: outcome.repeated() };
            let forgotten = calls.kept.keep(by, fingerprint.share(), fingerprint);
            calls.forget(forgotten);
        } else {
            calls.known.remove(fingerprint);
        }
        waiting
    }

    /// A connection has ended: its client may repeat the calls over another.
    pub fn end(&self, connection: W::Connection) {
        let mut calls = lock(&self.calls);
        let forgotten = calls.kept.end(connection);
        calls.forget(forgotten);
    }

    /// The number of connections that are not known to have ended.
    #[cfg(test)]
    pub fn open_connections(&self) -> usize {
        lock(&self.calls).kept.open_connections()
    }

    /// Drops the waiting repetitions whose connections have ended. Looks at all known calls, once for
    /// each end of a connection: at most twice as many as credits, for each connection that is open
    /// or among the last that ended, and those in execution.
    pub fn let_go(&self, is_gone: impl Fn(&W) -> bool) {
        for state in lock(&self.calls).known.values_mut() {
            if let RepeatState::Open { waiting, .. } = state {
                waiting.retain(|waiter| !is_gone(waiter));
            }
        }
    }

    /// Hands a call that no thread has begun, and whose connection has ended, to its newest
    /// repetition. Without a repetition the call is forgotten.
    pub fn hand_over(&self, fingerprint: &Fingerprint) -> Option<W> {
        let mut calls = lock(&self.calls);
        let state = calls.known.get_mut(fingerprint)?;
        let RepeatState::Open { by, waiting } = state else { return None };
        let heir = waiting.pop_back();
        match &heir {
            Some(heir) => *by = heir.connection(),
            None => drop(calls.known.remove(fingerprint)),
        }
        heir
    }
}

impl<W: Waits> KnownCalls<W> {
    fn forget(&mut self, calls: impl IntoIterator<Item = Fingerprint>) {
        for call in calls {
            self.known.remove(&call);
        }
    }
}

/// The maximum number of repetitions that wait for one answer; clients have given up the
/// connections of all but the newest.
const WAITING_MAX: usize = 8;
/// Bytes of each end of the data.
const END_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rpcrdma::ulb::nfs3;

    use super::*;
    use crate::credentials::Credentials;
    use crate::kept_answers::ENDED_FULL;

    const HERE: Origin = Origin::Host(IpAddr::V4(Ipv4Addr::LOCALHOST));

    /// A number names a call; its thousands are the connection.
    impl Waits for u32 {
        type Connection = u32;

        fn connection(&self) -> u32 {
            self / 1000
        }
    }

    /// Executes a call of a waiter.
    fn execute(drc: &Drc<u32>, call: &Fingerprint, waiter: u32) {
        assert!(matches!(drc.look_up(call, waiter), Repetition::Execute(_)), "{call:?}");
        drc.finish(call, &results(7));
    }

    fn is_known(drc: &Drc<u32>, call: &Fingerprint, waiter: u32) -> bool {
        matches!(drc.look_up(call, waiter), Repetition::Answer(..))
    }

    fn call(drc: &Drc<u32>, xid: u32, procedure: u32, head: &[u8]) -> Fingerprint {
        let said = Said { caller: &Caller::Anonymous, procedure, head, data: &DataEnds::default() };
        drc.fingerprint(xid, HERE, &said)
    }

    /// A REMOVE of the host with this address.
    fn remove_of(drc: &Drc<u32>, host: IpAddr, xid: u32) -> Fingerprint {
        let (caller, data) = (&Caller::Anonymous, &DataEnds::default());
        let said = Said { caller, procedure: nfs3::REMOVE, head: b"", data };
        drc.fingerprint(xid, Origin::Host(host), &said)
    }

    /// Zeros with a one at offset `at`, in pieces.
    fn changed(at: usize, len: usize, piece: usize) -> DataEnds {
        let mut data = vec![0; len.next_multiple_of(4)];
        data[at] = 1;
        DataEnds::of(len, data.chunks(piece))
    }

    fn results(word: u8) -> CallOutcome {
        CallOutcome::Results { head: vec![word], data: None }
    }

    fn answer(treatment: Repetition<u32>) -> (u32, Vec<u8>) {
        match treatment {
            Repetition::Answer(waiter, CallOutcome::Results { head, .. }) => (waiter, head),
            other => panic!("it was executed before: {other:?}"),
        }
    }

    #[test]
    fn a_call_is_executed_once_and_its_repetitions_answered() {
        let drc = Drc::new(2);
        let call = call(&drc, 7, nfs3::CREATE, b"a");
        assert!(matches!(drc.look_up(&call, 1), Repetition::Execute(1)));
        assert!(matches!(drc.look_up(&call, 2), Repetition::Waits(None)));
        assert_eq!(drc.finish(&call, &results(5)), [2], "who waited has the same answer");
        assert_eq!(answer(drc.look_up(&call, 3)), (3, vec![5]));
    }

    #[test]
    fn calls_that_were_not_executed_are_not_cached() {
        let jukebox = 10_008_u32.to_be_bytes().to_vec();
        for outcome in [
            CallOutcome::Results { head: jukebox, data: None },
            CallOutcome::Denied(crate::rpc::CallDenial::Garbage),
        ] {
            let drc = Drc::new(2);
            let call = call(&drc, 7, nfs3::CREATE, b"a");
            assert!(matches!(drc.look_up(&call, 1), Repetition::Execute(1)));
            assert!(matches!(drc.look_up(&call, 2), Repetition::Waits(None)));
            assert_eq!(drc.finish(&call, &outcome), [2]);
            assert!(matches!(drc.look_up(&call, 3), Repetition::Execute(3)), "{outcome:?}");
        }
    }

    #[test]
    fn a_call_not_begun_goes_to_its_repetition_or_is_forgotten() {
        let drc = Drc::new(2);
        let call = call(&drc, 7, nfs3::CREATE, b"a");
        assert!(matches!(drc.look_up(&call, 1), Repetition::Execute(1)));
        for waiter in 2..5 {
            assert!(matches!(drc.look_up(&call, waiter), Repetition::Waits(None)));
        }
        drc.let_go(|&waiter| waiter == 4);
        assert_eq!([drc.hand_over(&call), drc.hand_over(&call)], [Some(3), Some(2)]);
        assert!(
            matches!(drc.look_up(&call, 5), Repetition::Waits(None)),
            "a repetition still waits"
        );
        drc.let_go(|&waiter| waiter == 5);
        assert_eq!(drc.hand_over(&call), None);
        assert!(matches!(drc.look_up(&call, 6), Repetition::Execute(6)), "it was not executed");
        drc.finish(&call, &results(5));
        assert_eq!(drc.hand_over(&call), None);
        assert_eq!(answer(drc.look_up(&call, 7)), (7, vec![5]), "what was executed stays so");
    }

    #[test]
    fn different_calls_are_not_taken_for_repetitions() {
        let drc = Drc::new(2);
        let elsewhere = Origin::Host(IpAddr::V4(Ipv4Addr::BROADCAST));
        let says = |uid, gid, groups: &[u32]| {
            Caller::Sys(Credentials { uid, gid, groups: groups.iter().copied().collect() })
        };
        let (caller, procedure, head) = (&Caller::Anonymous, nfs3::WRITE, &b"a"[..]);
        let said = Said { caller, procedure, head, data: &changed(1000, 2000, 1300) };
        let mut calls = vec![
            drc.fingerprint(7, HERE, &said),
            drc.fingerprint(8, HERE, &said),
            drc.fingerprint(7, elsewhere, &said),
            drc.fingerprint(7, HERE, &Said { procedure: nfs3::MKDIR, ..said }),
            drc.fingerprint(7, HERE, &Said { head: b"b", ..said }),
        ];
        for (at, len) in [(0, 2000), (255, 2000), (1744, 2000), (1999, 2000), (1000, 1999)] {
            let data = &changed(at, len, 1300);
            calls.push(drc.fingerprint(7, HERE, &Said { data, ..said }));
        }
        for caller in [says(0, 0, &[]), says(1, 0, &[]), says(0, 1, &[]), says(0, 0, &[0])] {
            calls.push(drc.fingerprint(7, HERE, &Said { caller: &caller, ..said }));
        }
        for call in calls {
            assert!(matches!(drc.look_up(&call, 1), Repetition::Execute(1)), "{call:?}");
        }
    }

    #[test]
    fn a_repetition_is_recognised_with_any_division_of_its_data() {
        for len in [1, 255, 256, 257, 300, 511, 512, 513, 1999] {
            for piece in [1, 100, 256, 300, 511, 2000] {
                let ends = changed(len / 2, len, piece);
                assert_eq!(ends, changed(len / 2, len, 4096), "{len} in pieces of {piece}");
                assert_eq!(ends.bytes.len(), len.min(512));
            }
        }
    }

    #[test]
    fn the_oldest_answer_is_forgotten_and_the_oldest_waiter_dropped() {
        let drc = Drc::new(1);
        let calls = [1, 2, 3].map(|xid| call(&drc, xid, nfs3::REMOVE, b""));
        for call in &calls {
            assert!(matches!(drc.look_up(call, 0), Repetition::Execute(0)));
            drc.finish(call, &results(0));
        }
        assert_eq!(answer(drc.look_up(&calls[1], 9)), (9, vec![0]));
        assert!(matches!(drc.look_up(&calls[0], 9), Repetition::Execute(9)));
        for waiter in 0..WAITING_MAX as u32 {
            assert!(matches!(drc.look_up(&calls[0], waiter), Repetition::Waits(None)));
        }
        assert!(matches!(drc.look_up(&calls[0], 100), Repetition::Waits(Some(0))));
        assert!(matches!(drc.look_up(&calls[0], 101), Repetition::Waits(Some(1))));
        assert_eq!(drc.finish(&calls[0], &results(1)), [2, 3, 4, 5, 6, 7, 100, 101]);
    }

    #[test]
    fn the_answers_of_a_connection_are_kept_whatever_others_do() {
        let drc = Drc::new(4);
        let remove = |xid| call(&drc, xid, nfs3::REMOVE, b"");
        for xid in 0..4 {
            execute(&drc, &remove(xid), 1000 + xid);
        }
        // Another connection of the same client, without an end.
        (100..5000).for_each(|xid| execute(&drc, &remove(xid), 2000));
        drc.end(1);
        (5000..9000).for_each(|xid| execute(&drc, &remove(xid), 2000));
        // Its repetitions come by a new connection, and again by another.
        for connection in [3000, 4000] {
            for xid in 0..4 {
                assert!(is_known(&drc, &remove(xid), connection), "call {xid}");
            }
            drc.end(connection / 1000);
            (9000..9100).for_each(|xid| execute(&drc, &remove(xid + connection), 2000));
        }
    }

    /// However a repetition comes, the answer is then kept for its connection, which is open, and
    /// not for one that has ended, whose answers make room for others.
    #[test]
    fn an_answer_is_kept_for_the_last_connection_that_has_asked() {
        let asks: [fn(&Drc<u32>, &Fingerprint); 3] = [
            // It waits, and the connection of the first call ends.
            |drc, call| {
                assert!(matches!(drc.look_up(call, 1000), Repetition::Execute(_)));
                assert!(matches!(drc.look_up(call, 2000), Repetition::Waits(None)));
                drc.end(1);
                drc.finish(call, &results(7));
            },
            // It takes the call over, and the connection of a later repetition has ended.
            |drc, call| {
                for waiter in [1000, 2000, 3000] {
                    drc.look_up(call, waiter);
                }
                drc.let_go(|&waiter| waiter == 3000);
                drc.end(3);
                drc.end(1);
                assert_eq!(drc.hand_over(call), Some(2000));
                drc.finish(call, &results(7));
            },
            // It is answered at once.
            |drc, call| {
                execute(drc, call, 1000);
                drc.end(1);
                assert!(is_known(drc, call, 2000));
            },
        ];
        for (case, ask) in asks.into_iter().enumerate() {
            let drc = Drc::new(1);
            let kept = call(&drc, 0, nfs3::REMOVE, b"");
            ask(&drc, &kept);
            for connection in 10..=10 + 2 * ENDED_FULL as u32 {
                execute(&drc, &call(&drc, connection, nfs3::REMOVE, b""), 1000 * connection);
                drc.end(connection);
            }
            assert!(is_known(&drc, &kept, 2001), "case {case}");
        }
    }

    #[test]
    fn a_client_that_reconnects_again_and_again_displaces_its_own_answers_only() {
        let drc = Drc::new(1);
        let of = |host, xid| remove_of(&drc, IpAddr::V4(Ipv4Addr::from(host)), xid);
        execute(&drc, &of(1, 0), 0);
        drc.end(0);
        let count = 3 * ENDED_FULL as u32;
        for connection in 1..=count {
            execute(&drc, &of(2, connection), 1000 * connection);
            drc.end(connection);
        }
        // A call that is in execution when its connection ends.
        let late = of(2, count + 1);
        assert!(matches!(drc.look_up(&late, 1000 * (count + 1)), Repetition::Execute(_)));
        drc.end(count + 1);
        drc.finish(&late, &results(7));
        let calls = lock(&drc.calls);
        assert_eq!(calls.known.len(), 2 * ENDED_FULL, "the whole is bounded");
        drop(calls);
        assert!(is_known(&drc, &late, 999_000) && is_known(&drc, &of(1, 0), 999_000));
        assert!(is_known(&drc, &of(2, count), 999_000), "the newest");
        assert!(!is_known(&drc, &of(2, 1), 999_000), "the oldest");
    }

    /// As the connections of mounts that end when they have done little.
    #[test]
    fn connections_with_few_answers_take_little_room() {
        let drc = Drc::new(8);
        let kept = [0, 1, 2].map(|xid| call(&drc, xid, nfs3::REMOVE, b""));
        kept.iter().for_each(|call| execute(&drc, call, 1000));
        drc.end(1);
        let count = 16 * ENDED_FULL as u32 - 3;
        for connection in 2..2 + count {
            execute(&drc, &call(&drc, connection + 10, nfs3::REMOVE, b""), 1000 * connection);
            drc.end(connection);
        }
        assert_eq!(lock(&drc.calls).known.len(), 16 * ENDED_FULL);
        assert!(lock(&drc.calls).known.contains_key(&kept[0]));
        execute(&drc, &call(&drc, 9, nfs3::REMOVE, b""), 9_000_000);
        drc.end(9000);
        assert!(!lock(&drc.calls).known.contains_key(&kept[0]), "one too many");
    }

    /// A host has any address of its network that it wants.
    #[test]
    fn a_host_with_many_addresses_displaces_its_own_answers_only() {
        let drc = Drc::new(1);
        let of = |text: &str, xid| remove_of(&drc, text.parse().expect("an address"), xid);
        let first = of("fd00:1::1", 1);
        execute(&drc, &first, 1000);
        drc.end(1);
        for connection in 2..2 + 3 * ENDED_FULL as u32 {
            let call = of(&format!("fd00:2::{connection:x}"), connection);
            execute(&drc, &call, 1000 * connection);
            drc.end(connection);
        }
        assert!(is_known(&drc, &first, 999_000));
        assert_ne!(of("fd00::1", 1), of("fd00::2", 1), "calls of two hosts");
    }
}
