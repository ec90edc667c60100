//! The model: all calls and their outcomes, and the connections with a cause for anomalies.
//!
//! ```text
//!   called ──▶ arrived, at most once ──▶ answered or refused ──▶ done, exactly once
//! ```
//! Programs report what they see. An impossible event is a violation. An event that needs a fault
//! of the connection is a suspicion, which is examined after the turn.

use std::collections::{HashMap, HashSet};
use std::fmt;

use rpcrdma::provider::ConnectError;
use rpcrdma::{CallError, CloseReason, ConnectionId, Execution};

use super::trace::{Event, Trace};
use crate::script::{Order, POISON, Script, is_system_error};

/// A violation.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The name of the check.
    pub check: &'static str,
    /// What was seen.
    pub detail: String,
}

/// One end of a connection: a shard, and its identifier of the connection.
pub type End = (usize, ConnectionId);

/// The known faults of a connection.
#[derive(Debug, Clone, Default)]
pub struct Link {
    /// Bytes of a message on it were changed.
    pub is_changed: bool,
    /// An end of it was closed or lost.
    pub is_broken: bool,
    /// A call on it may have been cancelled: its reply may be written to memory that is no longer
    /// exposed.
    pub is_late: bool,
}

/// The state of a call.
#[derive(Debug)]
pub struct Record {
    /// The caller.
    pub from: End,
    /// The script.
    pub script: Script,
    /// How often it arrived.
    pub arrived: u32,
    /// How often it was completed.
    pub done: u32,
    /// The program that received it does not answer, or may be unable to.
    pub is_refused: bool,
    /// Its program may cancel it.
    pub is_unsure: bool,
    /// It was cancelled before it was sent.
    pub is_unsent: bool,
}

/// An event that is valid only after a fault of its connection.
#[derive(Debug, Clone)]
pub enum Suspicion {
    /// The received bytes differ from the sent bytes.
    Content(String),
    /// A completed call has arrived.
    Late(u32),
    /// A call was rejected that no handler rejected.
    Rejected(CallError, Script),
    /// A connection ended.
    Closed(CloseReason),
    /// A call did not arrive at the other end of its connection.
    Elsewhere(End),
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Suspicion::Content(what) => write!(f, "{what}"),
            Suspicion::Late(id) => write!(f, "call {id} arrived and was over"),
            Suspicion::Rejected(why, script) => write!(f, "{why}: {script:?}"),
            Suspicion::Closed(why) => write!(f, "{why}"),
            Suspicion::Elsewhere(from) => write!(f, "a call of {from:?}"),
        }
    }
}

/// The coverage: how often each kind of event was seen.
pub type Coverage = HashMap<&'static str, u64>;

/// The model of a run.
#[derive(Debug, Default)]
pub struct Model {
    /// The trace.
    pub trace: Trace,
    /// The first violation that a program saw.
    pub violation: Option<Violation>,
    /// The suspicions to examine after the turn.
    pub suspicions: Vec<(End, Suspicion)>,
    /// Calls, by their number.
    pub calls: HashMap<u32, Record>,
    /// Connections by their ends.
    pub links: HashMap<End, usize>,
    /// Ends that may cancel calls.
    doubting: HashSet<End>,
    /// What is known of them.
    pub about: Vec<Link>,
    /// Ends that their program has closed or rejected.
    pub ordered: Vec<End>,
    /// Failed attempts to connect that were not examined yet, with the shard and the reason.
    pub not_up: Vec<(usize, ConnectError)>,
    /// The coverage.
    pub coverage: Coverage,
    /// Open calls of each shard.
    open: HashMap<usize, usize>,
    next: u32,
}

impl Model {
    /// Counts an event for the coverage.
    pub fn saw(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    /// Records a violation; only the first is kept.
    pub fn violated(&mut self, check: &'static str, detail: String) {
        self.violation.get_or_insert(Violation { check, detail });
    }

    /// A number for a call, unique in the run.
    pub fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A call has been submitted.
    pub fn called(&mut self, from: End, script: &Script) {
        self.trace.note(Event::Called(from.0, from.1, script.seed));
        let script = script.clone();
        let record = Record {
            from,
            arrived: 0,
            done: 0,
            is_refused: false,
            is_unsure: false,
            is_unsent: false,
            script,
        };
        self.calls.insert(record.script.seed, record);
        *self.open.entry(from.0).or_default() += 1;
    }

    /// Records the arrival of a stream as a call. Returns the call, if it is one.
    pub fn arrived(&mut self, at: End, stream: &[u8]) -> Option<Script> {
        let script = Script::parse(stream).filter(|script| stream == script.call_stream());
        let script = script.filter(|script| {
            let record = self.calls.get(&script.seed);
            record.is_some_and(|record| record.script.head() == script.head())
        });
        let Some(script) = script else {
            self.trace.note(Event::Garbled(at.0, at.1));
            self.check_stale(stream);
            let detail = format!("{} bytes that were never sent as a call", stream.len());
            self.suspicions.push((at, Suspicion::Content(detail)));
            return None;
        };
        self.trace.note(Event::Arrived(at.0, at.1, script.seed));
        let record = self.calls.get_mut(&script.seed).expect("it was found");
        record.arrived += 1;
        let (arrived, from) = (record.arrived, record.from);
        // A cancelled call that had been sent is not waited for.
        let is_late = record.done > 0 && (record.is_unsent || !record.is_unsure);
        if arrived > 1 {
            self.violated(ONCE_DELIVERED, format!("call {} on {at:?}", script.seed));
        }
        if is_late {
            self.suspicions.push((at, Suspicion::Late(script.seed)));
        }
        if !self.links.contains_key(&at) || self.links.get(&at) != self.links.get(&from) {
            self.suspicions.push((at, Suspicion::Elsewhere(from)));
        }
        Some(script)
    }

    /// The program has rejected a call, or may have to.
    pub fn refused(&mut self, shard: usize, id: u32) {
        self.trace.note(Event::Refused(shard, id));
        self.may_be_refused(id);
    }

    /// A call may be rejected without the program.
    pub fn may_be_refused(&mut self, id: u32) {
        if let Some(record) = self.calls.get_mut(&id) {
            record.is_refused = true;
        }
    }

    /// The program may cancel a call. Its memory is withdrawn before the completion, and the peer
    /// may use it too late.
    pub fn may_give_up(&mut self, id: u32) {
        let Some(record) = self.calls.get_mut(&id) else { return };
        record.is_unsure = true;
        let from = record.from;
        self.doubting.insert(from);
        if let Some(link) = self.link(from) {
            link.is_late = true;
        }
    }

    /// A call was cancelled. It is known whether it had been sent.
    fn given_up(&mut self, at: End, id: u32, execution: Execution) {
        let is_unsent = execution == Execution::NotExecuted;
        self.saw(if is_unsent { "calls taken back in time" } else { "calls given up" });
        let Some(record) = self.calls.get_mut(&id) else { return };
        record.is_unsent = is_unsent;
        let (is_unsure, arrived) = (record.is_unsure, record.arrived);
        if !is_unsure {
            self.violated(ONCE_DONE, format!("call {id} was not cancelled"));
        }
        if is_unsent && arrived > 0 {
            self.suspicions.push((at, Suspicion::Late(id)));
        }
    }

    /// A call was lost with its connection. It is known whether it had been sent.
    fn lost(&mut self, id: u32, execution: Execution) {
        let is_unsent = execution == Execution::NotExecuted;
        self.saw(if is_unsent { "calls lost before they were sent" } else { "calls lost" });
        let Some(record) = self.calls.get_mut(&id) else { return };
        record.is_unsent |= is_unsent;
        let arrived = record.arrived;
        if is_unsent && arrived > 0 {
            self.violated(ONCE_DONE, format!("call {id} has arrived, and is said to be unsent"));
        }
    }

    /// A call is complete: its reply as one stream, or the error.
    pub fn done(&mut self, at: End, cookie: u64, result: Result<&[u8], CallError>) {
        let id = cookie as u32;
        self.trace.note(Event::Done(at.0, id, result.map(drop)));
        let Some(record) = self.calls.get_mut(&id) else {
            return self.violated(ONCE_DONE, format!("call {cookie} on {at:?} was never made"));
        };
        record.done += 1;
        if record.done == 1 {
            *self.open.entry(record.from.0).or_default() -= 1;
        }
        let Record { from, done, arrived, is_refused, ref script, .. } = *record;
        let is_wrong = result.is_ok_and(|stream| !is_expected(script, stream));
        let script = script.clone();
        if done > 1 || from != at {
            self.violated(ONCE_DONE, format!("call {id} of {from:?}, {done} times, now on {at:?}"));
        }
        match result {
            Ok(stream) if is_refused && is_system_error(stream) => self.saw("calls not answered"),
            Ok(stream) => {
                if arrived == 0 {
                    let detail = format!("call {id} has a reply and never arrived");
                    self.suspicions.push((at, Suspicion::Content(detail)));
                }
                if is_wrong {
                    self.check_stale(stream);
                    let detail = format!("the reply to call is another: {script:?}");
                    self.suspicions.push((at, Suspicion::Content(detail)));
                }
                self.saw("replies");
            }
            Err(CallError::ConnectionLost(why, execution)) => {
                self.lost(id, execution);
                self.suspicions.push((at, Suspicion::Closed(why)));
            }
            Err(CallError::DeadlineExceeded(execution) | CallError::Cancelled(execution)) => {
                self.given_up(at, id, execution);
            }
            Err(why) if is_refused && matches!(why, CallError::Rejected(..)) => {
                self.saw("calls refused");
            }
            Err(why) => {
                self.suspicions.push((at, Suspicion::Rejected(why, script)));
            }
        }
    }

    /// Open calls of a shard.
    pub fn open(&self, shard: usize) -> usize {
        self.open.get(&shard).copied().unwrap_or(0)
    }

    /// Whether every call is complete.
    pub fn is_idle(&self) -> bool {
        self.open.values().all(|count| *count == 0)
    }

    /// The connection of an end.
    pub fn link(&mut self, end: End) -> Option<&mut Link> {
        let at = *self.links.get(&end)?;
        self.about.get_mut(at)
    }

    /// Whether an end with an unknown other end has cancelled a call.
    pub fn is_any_doubting(&self) -> bool {
        self.doubting.iter().any(|end| !self.links.contains_key(end))
    }

    /// Both ends of a connection are known.
    pub fn join(&mut self, ends: [End; 2]) {
        let at = self.about.len();
        // A call may have been made before the other end was known.
        let is_late = ends.iter().any(|end| self.doubting.contains(end));
        self.about.push(Link { is_late, ..Link::default() });
        ends.into_iter().for_each(|end| {
            self.links.insert(end, at);
        });
    }

    /// A message must not contain memory that was never written.
    fn check_stale(&mut self, stream: &[u8]) {
        let stale = [POISON; STALE_LEN];
        if let Some(at) = stream.windows(STALE_LEN).position(|bytes| bytes == stale) {
            self.violated(STALE, format!("at {at} of {} bytes", stream.len()));
        }
    }
}

/// Whether a reply matches the script of its call.
fn is_expected(script: &Script, stream: &[u8]) -> bool {
    let placed = stream.get(4..8).map_or(0, |word| {
        let word = word.try_into().expect("four bytes");
        u32::from_be_bytes(word)
    });
    if script.order != Order::Relay {
        return stream == script.reply_stream(placed);
    }
    let bulk = script.first_bulk();
    let mut expected = [script.seed.to_be_bytes(), placed.to_be_bytes()].concat();
    if let Some(bytes) = bulk {
        expected.extend((bytes.len() as u32).to_be_bytes());
        expected.extend_from_slice(&bytes);
        expected.resize(expected.len().next_multiple_of(4), 0);
    }
    stream == expected
}

/// The pattern of messages does not contain this byte, and at most four bytes are changed.
const STALE_LEN: usize = 6;

/// The coverage when a program closes a new connection.
pub const CLOSED_AT_ONCE: &str = "connections rejected by programs";
/// The coverage when a program does not admit a peer.
pub const NOT_ADMITTED: &str = "peers not admitted";
/// A name of a check.
pub const ONCE_DELIVERED: &str = "a call is delivered once";
/// A name of a check.
pub const ONCE_DONE: &str = "a call is completed once";
/// A name of a check.
pub const STALE: &str = "no stale byte is delivered";

/// The coverage when a connection ends with this reason.
pub fn name_of(why: CloseReason) -> &'static str {
    match why {
        CloseReason::Local => "ended: closed",
        CloseReason::Stopped => "ended: stopped",
        CloseReason::PeerGone => "ended: the peer is gone",
        CloseReason::Protocol(_) => "ended: a rule is broken",
        CloseReason::NotTaking => "ended: nothing taken",
        CloseReason::Invalid => "ended: invalid",
        CloseReason::Transport(_) => "ended: a request failed",
        CloseReason::TimedOut => "ended: not gone on",
        CloseReason::NotAnswering => "ended: no answer",
        CloseReason::Idle => "ended: idle",
        CloseReason::Refused => "ended: rejected",
        CloseReason::Failed => "ended: the queue pair is given up",
        CloseReason::Unasked => "ended: completed unasked",
        CloseReason::DeviceLost => "ended: the device is lost",
        CloseReason::Queue(_) => "ended: the queue is lost",
        why => panic!("a reason without a name: {why}"),
    }
}
