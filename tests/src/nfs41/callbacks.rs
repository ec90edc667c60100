//! The client's end of the back channel: CB_COMPOUNDs of the server are answered, and noted.

use std::collections::VecDeque;

use rpcrdma::onc::{AcceptStatus, CallHeader, HeaderRoom, ReplyHeader, RpcProgram};
use rpcrdma::{Answer, Call, ConnectionId, EndOfMessage, PayloadReader, Reply, Ticket};

use super::compound::Sequence;
use super::numbers::{cb, status};
use super::words::{FileHandle, SessionId, StateId, Take, Words};

/// The back channel of a client, with one session at a time.
#[derive(Debug)]
pub struct Callbacks {
    /// The program number that the client has named.
    pub program: u32,
    /// The session, once it exists.
    pub session: Option<SessionId>,
    /// What the server has called, in its order.
    pub seen: Vec<Seen>,
    /// How the next recalls are answered; [`RecallAnswer::Accept`] when it is empty.
    pub answers: VecDeque<RecallAnswer>,
    /// Answers that are held back.
    pub late: Vec<(Ticket, Vec<u8>)>,
    /// For each slot, the number of its last call and the answer.
    slots: Vec<(u32, Vec<u8>)>,
}

/// A call of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The connection that it came on.
    pub peer: ConnectionId,
    /// The flavor of its credentials.
    pub flavor: u32,
    /// Its length, from the transaction id on.
    pub len: usize,
    /// Its SEQUENCE; the calls that it refers to are not kept.
    pub sequence: Option<Sequence>,
    /// What it is.
    pub what: What,
    /// The status of its answer.
    pub status: u32,
}

/// What the server calls for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// CB_NULL.
    Null,
    /// CB_RECALL.
    Recall(Recall),
    /// A CB_COMPOUND with CB_SEQUENCE alone, or one that was rejected.
    Nothing,
    /// The repetition of a call that was answered.
    Repeated,
}

/// The arguments of CB_RECALL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    /// The delegation.
    pub state: StateId,
    /// Whether the file is about to be cut.
    pub truncate: bool,
    /// The file.
    pub handle: FileHandle,
}

/// How a recall is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecallAnswer {
    /// At once.
    Accept,
    /// With this error.
    Refuse(u32),
    /// As accepted, when the program says so.
    Later,
    /// Not at all: the ticket waits until its connection is gone.
    Never,
}

impl Callbacks {
    /// Of a client that has named this program number.
    pub fn new(program: u32) -> Callbacks {
        let (seen, answers) = (Vec::new(), VecDeque::new());
        Callbacks { program, session: None, seen, answers, late: Vec::new(), slots: Vec::new() }
    }

    /// A session begins, with this number of slots for callbacks.
    pub fn begin(&mut self, session: SessionId, slots: u32) {
        self.session = Some(session);
        self.slots = vec![(0, Vec::new()); slots as usize];
    }

    /// The recalls among the calls of the server.
    pub fn recalls(&self) -> impl Iterator<Item = (&Seen, &Recall)> {
        self.seen.iter().filter_map(|seen| match &seen.what {
            What::Recall(recall) => Some((seen, recall)),
            _ => None,
        })
    }

    /// Answers a call of the server.
    pub fn on_call<'a>(&mut self, call: &Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let (mut reader, mut room) = (call.reader(), HeaderRoom::new());
        let header = match reader.call_header(&mut room) {
            Ok(header) => header,
            Err(_) => return reply.refuse(),
        };
        let program = RpcProgram { number: self.program, version: 1, procedures: 2 };
        let CallHeader { procedure, credentials, .. } = header;
        if let Err(denial) = program.check(&header) {
            return reply.deny(&denial.into());
        }
        let len = call.payload().map(<[u8]>::len).sum();
        let seen = Seen {
            peer: call.peer(),
            flavor: credentials.flavor(),
            len,
            sequence: None,
            what: What::Null,
            status: status::OK,
        };
        if procedure == 0 {
            self.seen.push(seen);
            reply.payload().put_fixed(&ReplyHeader::SUCCESS);
            return reply.send();
        }
        match self.compound(seen, reader) {
            Ok((answer, recall_answer)) => self.give(reply, answer, recall_answer),
            Err(EndOfMessage) => reply.deny(&AcceptStatus::GarbageArguments.into()),
        }
    }

    fn give<'a>(
        &mut self,
        mut reply: Reply<'a>,
        answer: Vec<u8>,
        recall_answer: RecallAnswer,
    ) -> Answer<'a> {
        if matches!(recall_answer, RecallAnswer::Later | RecallAnswer::Never) {
            let (promise, ticket) = reply.defer();
            self.late.push((ticket, answer));
            return promise;
        }
        put(&mut reply, &answer);
        reply.send()
    }

    /// Carries out a CB_COMPOUND: the answer, and when it is given.
    fn compound(
        &mut self,
        mut seen: Seen,
        mut reader: PayloadReader<'_>,
    ) -> Result<(Vec<u8>, RecallAnswer), EndOfMessage> {
        let tag = reader.opaque()?;
        let (minor, _ident, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (mut results, mut done) = (Words::default(), 0);
        let (mut total, mut recall_answer) = (status::OK, RecallAnswer::Accept);
        let mut slot = None;
        seen.what = What::Nothing;
        if minor != 1 {
            total = status::MINOR_VERS_MISMATCH;
        }
        while done < count && total == status::OK {
            let operation = reader.u32()?;
            done += 1;
            match operation {
                cb::SEQUENCE if done == 1 => {
                    let sequence = read_sequence(&mut reader)?;
                    seen.sequence = Some(sequence);
                    match self.enter(&sequence) {
                        Ok(None) => slot = Some(sequence),
                        Ok(Some(again)) => {
                            seen.what = What::Repeated;
                            self.seen.push(seen);
                            return Ok((again, RecallAnswer::Accept));
                        }
                        Err(error) => total = error,
                    }
                    put_sequence(&mut results, &sequence, total, self.slots.len() as u32);
                }
                _ if slot.is_none() => {
                    total = status::OP_NOT_IN_SESSION;
                    results.u32(operation).u32(total);
                }
                cb::RECALL => {
                    let (state, truncate) = (reader.state()?, reader.u32()? != 0);
                    let handle = FileHandle(reader.opaque()?);
                    seen.what = What::Recall(Recall { state, truncate, handle });
                    recall_answer = self.answers.pop_front().unwrap_or(RecallAnswer::Accept);
                    if let RecallAnswer::Refuse(error) = recall_answer {
                        total = error;
                    }
                    results.u32(operation).u32(total);
                }
                _ => {
                    total = status::OP_ILLEGAL;
                    results.u32(cb::ILLEGAL).u32(total);
                }
            }
        }
        seen.status = total;
        self.seen.push(seen);
        let mut answer = Words::default();
        answer.u32(total).opaque(&tag).u32(done).fixed(&results.0);
        // What is never answered was as good as never received.
        if let Some(Sequence { slot, sequence, .. }) = slot
            && recall_answer != RecallAnswer::Never
        {
            self.slots[slot as usize] = (sequence, answer.0.clone());
        }
        Ok((answer.0, recall_answer))
    }

    /// Whether a call of the back channel is new, or the repetition of the last one of its slot.
    fn enter(&self, sequence: &Sequence) -> Result<Option<Vec<u8>>, u32> {
        if self.session != Some(sequence.session) {
            return Err(status::BADSESSION);
        }
        let (last, answer) = self.slots.get(sequence.slot as usize).ok_or(status::BADSLOT)?;
        match sequence.sequence.wrapping_sub(*last) {
            0 if !answer.is_empty() => Ok(Some(answer.clone())),
            1 => Ok(None),
            _ => Err(status::SEQ_MISORDERED),
        }
    }
}

/// Writes an answer behind its header.
pub fn put(reply: &mut Reply<'_>, answer: &[u8]) {
    reply.payload().put_fixed(&ReplyHeader::SUCCESS);
    reply.payload().put_fixed(answer);
}

fn read_sequence(reader: &mut PayloadReader<'_>) -> Result<Sequence, EndOfMessage> {
    let session = reader.array()?;
    let (sequence, slot, highest) = (reader.u32()?, reader.u32()?, reader.u32()?);
    // Whether to keep the answer: it is kept in any case.
    reader.u32()?;
    for _ in 0..reader.u32()? {
        reader.skip(16)?;
        for _ in 0..reader.u32()? {
            reader.skip(8)?;
        }
    }
    Ok(Sequence { session, sequence, slot, highest })
}

fn put_sequence(out: &mut Words, of: &Sequence, status: u32, slots: u32) {
    out.u32(cb::SEQUENCE).u32(status);
    if status == status::OK {
        out.fixed(&of.session).u32(of.sequence).u32(of.slot).u32(slots - 1).u32(slots - 1);
    }
}
