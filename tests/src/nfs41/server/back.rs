//! Calls of the server to its client, on the connection of the session.

use std::collections::{BTreeMap, VecDeque};

use rpcrdma::onc::{Auth, CallHeader, auth_flavor};
use rpcrdma::{CallRefused, Completion, ConnectionId, EndOfMessage, PayloadReader, Turn};

use super::clients::Made;
use crate::nfs41::numbers::cb;
use crate::nfs41::words::{FileHandle, StateId, Take, Words, root_credentials};

/// The calls to clients.
#[derive(Debug, Default)]
pub struct Back {
    /// To be made as soon as credits allow.
    queue: VecDeque<(u64, CallBack)>,
    /// Made and not answered.
    open: BTreeMap<u64, ()>,
    /// What became of each: the results, or why there are none.
    pub done: BTreeMap<u64, Result<Answered, String>>,
    /// Calls that can never be made.
    pub refused: BTreeMap<u64, CallRefused>,
    /// The most that were open at one time.
    pub open_max: usize,
    next: u64,
}

/// A call to a client.
#[derive(Debug, Clone)]
pub struct CallBack {
    peer: ConnectionId,
    procedure: u32,
    program: u32,
    /// The flavor of its credentials.
    flavor: u32,
    arguments: Vec<u8>,
}

/// The operations of a CB_COMPOUND.
#[derive(Debug, Clone, Default)]
pub struct Ops {
    words: Words,
    count: u32,
}

/// What a client has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The status of the whole; 0 of CB_NULL.
    pub status: u32,
    /// The operations and their statuses.
    pub operations: Vec<(u32, u32)>,
    /// The words of the result of CB_SEQUENCE.
    pub sequence: Vec<u32>,
}

impl Ops {
    /// CB_SEQUENCE.
    pub fn sequence(mut self, session: &Made, slot: u32, sequence: u32) -> Ops {
        self.words.u32(cb::SEQUENCE).fixed(&session.id).u32(sequence).u32(slot).u32(slot);
        // It need not be kept, and refers to no calls.
        self.words.u32(0).u32(0);
        self.count += 1;
        self
    }

    /// CB_RECALL.
    pub fn recall(mut self, state: &StateId, file: &FileHandle) -> Ops {
        self.words.u32(cb::RECALL).state(state).u32(0).opaque(&file.0);
        self.count += 1;
        self
    }
}

impl CallBack {
    /// CB_NULL.
    pub fn null(session: &Made) -> CallBack {
        let (peer, program, flavor) = (session.peer, session.program, auth_flavor::NONE);
        CallBack { peer, procedure: 0, program, flavor, arguments: Vec::new() }
    }

    /// CB_COMPOUND, with a tag, in the first flavor that the client has named.
    pub fn compound(session: &Made, tag: &[u8], ops: &Ops) -> CallBack {
        let mut arguments = Words::default();
        arguments.opaque(tag).u32(1).u32(0).u32(ops.count).fixed(&ops.words.0);
        let (peer, program) = (session.peer, session.program);
        let flavor = session.flavors.first().copied().unwrap_or(auth_flavor::NONE);
        CallBack { peer, procedure: 1, program, flavor, arguments: arguments.0 }
    }
}

impl Back {
    /// Makes a call as soon as there are credits. Returns its number.
    pub fn call(&mut self, call: CallBack) -> u64 {
        self.next += 1;
        self.queue.push_back((self.next, call));
        self.next
    }

    /// Whether nothing is to be made or answered.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.open.is_empty()
    }

    /// Makes what can be made now.
    pub fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while let Some((number, call)) = self.queue.front() {
            match make(turn, *number, call) {
                Ok(()) => {
                    self.open.insert(*number, ());
                    self.open_max = self.open_max.max(self.open.len());
                }
                Err(why) if why.is_transient() => return,
                Err(why) => {
                    self.refused.insert(*number, why);
                }
            }
            self.queue.pop_front();
        }
    }

    /// Takes what became of a call.
    pub fn on_reply(&mut self, done: &Completion<'_>) {
        self.open.remove(&done.cookie());
        let answered = match done.result() {
            Ok(reply) => match reply.results() {
                Ok(reader) => read(reader).map_err(|why| why.to_string()),
                Err(why) => Err(why.to_string()),
            },
            Err(why) => Err(why.to_string()),
        };
        self.done.insert(done.cookie(), answered);
    }
}

fn make(turn: &mut Turn<'_>, number: u64, call: &CallBack) -> Result<(), CallRefused> {
    let mut builder = turn.call(call.peer, number)?;
    // Linux takes CB_NULL without credentials, and CB_COMPOUND with those that it has named.
    let body = root_credentials();
    let credentials = match call.flavor {
        auth_flavor::SYS => Auth::new(auth_flavor::SYS, &body).expect("they are short"),
        _ => Auth::NONE,
    };
    let CallBack { program, procedure, .. } = *call;
    let (version, verifier) = (1, Auth::NONE);
    let header = CallHeader { program, version, procedure, credentials, verifier };
    builder.payload().put_fixed(&header.bytes());
    builder.payload().put_fixed(&call.arguments);
    builder.reply_payload_max(REPLY_MAX);
    builder.submit()
}

fn read(mut reader: PayloadReader<'_>) -> Result<Answered, EndOfMessage> {
    let mut answered = Answered { status: 0, operations: Vec::new(), sequence: Vec::new() };
    // CB_NULL has no results.
    let Ok(status) = reader.u32() else { return Ok(answered) };
    answered.status = status;
    reader.opaque()?;
    for _ in 0..reader.u32()? {
        let (operation, status) = (reader.u32()?, reader.u32()?);
        answered.operations.push((operation, status));
        if operation == cb::SEQUENCE && status == 0 {
            answered.sequence = (0..8).map(|_| reader.u32()).collect::<Result<_, _>>()?;
        }
    }
    Ok(answered)
}

/// The longest reply to a callback.
const REPLY_MAX: u32 = 1024;
