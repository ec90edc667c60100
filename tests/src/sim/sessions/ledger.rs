//! The ledger: every call of the sessions, and what may become of it.
//!
//! ```text
//!   called ──▶ arrived: Never once at most, SameXid once on a connection, with one xid ──▶ done, once
//! ```

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use rpcrdma::{
    CallError, CallRefused, ConnectionId, Execution, Resend, SessionError, SessionRefused,
};

use crate::script::{Order, Script, is_system_error};
use crate::sim::model::{Coverage, Violation};

/// A call.
#[derive(Debug)]
pub struct Known {
    session: usize,
    /// Its content.
    pub script: Script,
    resend: Resend,
    deadline: Option<u64>,
    is_cancelled: bool,
    /// The connections on which it arrived, each with the life of its server.
    arrived: Vec<(u32, ConnectionId)>,
    xid: u32,
    /// What is known about its execution, once it is over.
    over: Option<Execution>,
}

/// All calls of a run.
#[derive(Default)]
pub struct Ledger {
    /// By number.
    pub calls: HashMap<u32, Known>,
    /// The first violation.
    pub violation: Option<Violation>,
    /// The coverage.
    pub coverage: Coverage,
    /// Sessions that the program has closed.
    pub closed: Vec<usize>,
    last: VecDeque<(&'static str, u64, u64)>,
    hasher: DefaultHasher,
    events: u64,
}

impl Ledger {
    /// Records an event.
    pub fn note(&mut self, what: &'static str, of: u64, which: u64) {
        (what, of, which).hash(&mut self.hasher);
        self.events += 1;
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back((what, of, which));
    }

    /// Counts an event for the coverage.
    pub fn saw(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    /// The last events.
    pub fn story(&self) -> Vec<String> {
        self.last.iter().map(|(what, of, which)| format!("{what}: {of}, {which}")).collect()
    }

    /// The hash of all events, and their number.
    pub fn hash(&self) -> (u64, u64) {
        (self.hasher.finish(), self.events)
    }

    fn violated(&mut self, check: &'static str, id: u32, what: &str) {
        let detail = format!("call {id}, {:?}: {what}", self.calls.get(&id));
        self.violation.get_or_insert(Violation { check, detail });
    }

    /// A call of a session is submitted.
    pub fn called(&mut self, session: usize, script: Script, resend: Resend, until: Option<u64>) {
        let id = script.seed;
        self.note("called", session as u64, id.into());
        let known = Known {
            session,
            script,
            resend,
            deadline: until,
            is_cancelled: false,
            arrived: Vec::new(),
            xid: 0,
            over: None,
        };
        self.calls.insert(id, known);
    }

    /// It was not accepted.
    pub fn refused(&mut self, session: usize, id: u32, why: SessionRefused) {
        self.note("refused", session as u64, id.into());
        let is_right = match why {
            SessionRefused::Full => true,
            SessionRefused::Closed => self.closed.contains(&session),
            SessionRefused::Call(why) => is_for_ever(why),
            SessionRefused::NoConnection(why) => !why.is_transient(),
            _ => false,
        };
        if !is_right {
            self.violated(ENDS, id, &format!("refused: {why}"));
        }
        self.saw("session calls refused");
        if let Some(known) = self.calls.get_mut(&id) {
            known.over = Some(Execution::NotExecuted);
        }
    }

    /// The program has cancelled it, or was notified that it is over.
    pub fn cancelled(&mut self, id: u32, is_open: bool) {
        let Some(known) = self.calls.get_mut(&id) else { return };
        known.is_cancelled |= is_open;
        if is_open == known.over.is_some() {
            self.violated(ENDS, id, &format!("cancelled, and said to be open: {is_open}"));
        }
    }

    /// A call is at a server in this life of it.
    pub fn arrived(&mut self, at: (u32, ConnectionId), xid: u32, stream: &[u8]) {
        let script = Script::parse(stream).filter(|script| stream == script.call_stream());
        let id = script.map_or(0, |script| script.seed);
        self.note("arrived", at.0.into(), id.into());
        let Some(known) = self.calls.get_mut(&id) else {
            return self.violated(CONTENT, id, "it was never sent");
        };
        let is_again = known.arrived.contains(&at);
        let has_other_xid = !known.arrived.is_empty() && known.xid != xid;
        known.arrived.push(at);
        known.xid = xid;
        let (count, session, is_open) = (known.arrived.len(), known.session, known.over.is_none());
        let (resend, is_never) = (known.resend, known.over == Some(Execution::NotExecuted));
        if is_again || (count > 1 && resend == Resend::Never) {
            self.violated(ONCE, id, "it was executed once more than it was sent");
        }
        if is_never {
            self.violated(ONCE, id, "it was executed after it was known not to be");
        }
        if has_other_xid {
            self.violated(XID, id, &format!("sent again with the xid {xid:#x}"));
        }
        if count > 1 {
            self.saw("session calls sent again");
        }
        let shares = |(of, it): (&u32, &Known)| {
            let is_it = it.session == session && it.over.is_none() && !it.arrived.is_empty();
            is_it && *of != id && it.xid == xid
        };
        if is_open && self.calls.iter().any(shares) {
            self.violated(XID, id, &format!("another open call has the xid {xid:#x}"));
        }
    }

    /// A call is over.
    pub fn done(&mut self, session: usize, id: u32, result: Result<&[u8], SessionError>, now: u64) {
        self.note(if result.is_ok() { "answered" } else { "failed" }, session as u64, id.into());
        let is_closed = self.closed.contains(&session);
        let Some(known) = self.calls.get_mut(&id) else {
            return self.violated(ENDS, id, "it was never made");
        };
        let execution = result.map_or_else(|error| error.execution(), |_| Execution::Unknown);
        let is_first = known.over.replace(execution).is_none() && known.session == session;
        let is_late = known.deadline.is_some_and(|at| at <= now);
        let is_right = match result {
            Ok(stream) => {
                // The ticket of a call that is never answered may be dropped.
                let is_dropped = known.script.order == Order::Never && is_system_error(stream);
                !known.arrived.is_empty() && (is_dropped || is_reply(&known.script, stream))
            }
            Err(SessionError::Closed(_)) => is_closed,
            Err(SessionError::Refused(why, _)) => is_for_ever(why),
            Err(SessionError::DeadlineExceeded(..)) => is_late,
            Err(SessionError::NoConnection(why, _)) => !why.is_transient(),
            Err(SessionError::Call(why)) => match why {
                CallError::ConnectionLost(..) => known.resend == Resend::Never,
                CallError::Cancelled(_) => known.is_cancelled,
                CallError::DeadlineExceeded(_) => is_late,
                CallError::Rejected(..) => true,
                // One that may have been executed before is not sent with another xid.
                CallError::FormRefused(_, execution) => {
                    known.resend == Resend::Never || execution == Execution::Unknown
                }
                _ => false,
            },
            Err(_) => false,
        };
        let is_known = execution != Execution::NotExecuted || known.arrived.is_empty();
        if !is_first || !is_right || !is_known {
            let result = result.map(<[u8]>::len);
            self.violated(ENDS, id, &format!("{result:?}, first: {is_first}, {is_known}"));
        }
        self.saw(match result {
            Ok(_) => "session calls answered",
            Err(SessionError::Closed(_)) => "session calls closed",
            Err(SessionError::Refused(..)) => "session calls too large",
            Err(SessionError::DeadlineExceeded(..)) => "session calls too late for a connection",
            Err(SessionError::NoConnection(..)) => "session calls of a session without addresses",
            Err(SessionError::Call(CallError::ConnectionLost(..))) => "session calls lost",
            Err(SessionError::Call(CallError::Cancelled(_))) => "session calls cancelled",
            Err(SessionError::Call(CallError::DeadlineExceeded(_))) => "session calls too late",
            Err(SessionError::Call(_)) => "session calls rejected",
            Err(error) => panic!("an end without a name: {error}"),
        });
    }

    /// Calls of a session that are not over.
    pub fn open(&self, session: usize) -> usize {
        self.calls.values().filter(|it| it.session == session && it.over.is_none()).count()
    }

    /// All calls that are not over, as text.
    pub fn open_calls(&self) -> String {
        let open = self.calls.values().filter(|it| it.over.is_none());
        format!("{:?}", open.take(3).collect::<Vec<_>>())
    }

    /// Those of them whose deadline has passed.
    pub fn late(&self, session: usize, now: u64) -> usize {
        let is_late = |it: &&Known| {
            it.session == session && it.over.is_none() && it.deadline.is_some_and(|at| at <= now)
        };
        self.calls.values().filter(is_late).count()
    }
}

/// Whether a reply is that of its script.
fn is_reply(script: &Script, stream: &[u8]) -> bool {
    let placed = stream.get(4..8).map_or(0, |word| {
        let word = word.try_into().expect("four bytes");
        u32::from_be_bytes(word)
    });
    stream == script.reply_stream(placed)
}

/// Whether a call can never be sent.
fn is_for_ever(why: CallRefused) -> bool {
    let is_passing = matches!(why, CallRefused::NoPeer | CallRefused::Stopping);
    !why.is_transient() && !is_passing && why != CallRefused::Incomplete
}

/// Events that are kept for the report.
const KEPT: usize = 60;

const CONTENT: &str = "what a session sends is what was submitted";
const ENDS: &str = "a call of a session ends once, and as it may";
const ONCE: &str = "a call of a session is executed as often as it was sent";
const XID: &str = "a call of a session has its xid for itself, until it is over";
