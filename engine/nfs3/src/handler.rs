//! The handler of a shard: turns calls into jobs, and answers into replies.

use std::collections::VecDeque;
use std::sync::Arc;

use rpcrdma::onc::{HeaderRoom, ReplyHeader, RpcProgram};
use rpcrdma::ulb::{Bound, Protection, nfs3};
use rpcrdma::{Answer, Call, CloseReason, ConnectionId, Handler, Origin, Reply, ShardHandle, Turn};

use crate::arguments::{Arguments, Unusable};
use crate::at_once;
use crate::buffers::Buffers;
use crate::call::{CallOutcome, CallTask};
use crate::drc::{Drc, Repetition, Said};
use crate::export::Export;
use crate::procedures::{Kind, PROCEDURES, Procedure, of};
use crate::rpc::{CallDenial, CheckedCall};
use crate::serving::Serves;
use crate::work::{AnswerQueue, FinishedJob, Job, JobQueue, Waiter};

/// Serves an export on one shard.
pub struct NfsHandler {
    export: Arc<Export>,
    drc: Arc<Drc<Waiter>>,
    queue: Arc<JobQueue>,
    answers: Arc<AnswerQueue>,
    /// Jobs that wait for registered memory, which is available only during a turn.
    without_memory: VecDeque<Job>,
    buffers: Buffers<Origin>,
    /// Answers that wait for a send slot.
    done: VecDeque<FinishedJob>,
    /// Says that the shard serves.
    _serves: Serves,
}

impl NfsHandler {
    /// A handler for a shard. Jobs go to `queue`.
    pub fn new(
        shard: ShardHandle,
        export: Arc<Export>,
        drc: Arc<Drc<Waiter>>,
        queue: Arc<JobQueue>,
        buffers: Buffers<Origin>,
        serves: Serves,
    ) -> NfsHandler {
        NfsHandler {
            export,
            drc,
            queue,
            answers: Arc::new(AnswerQueue::new(shard)),
            without_memory: VecDeque::new(),
            buffers,
            done: VecDeque::new(),
            _serves: serves,
        }
    }

    /// Answers a call at once, or passes it to a worker thread or to the call that it repeats.
    fn serve<'a>(
        &mut self,
        mut call: Call<'a>,
        called: &CheckedCall,
        row: &Procedure,
        arguments: Arguments,
        reply: Reply<'a>,
    ) -> Answer<'a> {
        let procedure = called.procedure;
        let who = self.export.policy().identity(&called.caller);
        let Arguments { head, data } = arguments;
        let mut task = CallTask { procedure, who, head, data: Vec::new(), into: None };
        if let Some(outcome) = at_once::execute(&self.export, &mut task) {
            return send(reply, procedure, outcome);
        }
        let fingerprint = (row.kind == Kind::Changes).then(|| {
            let (caller, head) = (&called.caller, &task.head[..]);
            let data = data.as_ref().map(|data| data.ends(&call)).unwrap_or_default();
            let said = Said { caller, procedure, head, data: &data };
            self.drc.fingerprint(call.xid(), call.address().origin(), &said)
        });
        let (answer, ticket) = reply.defer();
        let mut waiter = Waiter { ticket, procedure, answers: self.answers.clone() };
        if let Some(fingerprint) = &fingerprint {
            waiter = match self.drc.look_up(fingerprint, waiter) {
                Repetition::Execute(waiter) => waiter,
                // If too many wait, the ticket of the oldest is dropped. Its caller, if it is still
                // connected, gets SYSTEM_ERR deliberately: the answer goes to those that wait.
                Repetition::Waits(_oldest) => return answer,
                Repetition::Answer(waiter, outcome) => {
                    waiter.answer(outcome);
                    return answer;
                }
            };
        }
        task.data = data.map_or_else(Vec::new, |data| data.take(&mut call));
        let job = Job { waiter, repeat: fingerprint, task };
        if row.kind == Kind::Reads {
            self.without_memory.push_back(job);
        } else {
            self.queue.put(job, &self.drc);
        }
        answer
    }

    /// Gives memory to the jobs that wait for it, in their order, and begins them. Those of a client
    /// that has its share go on waiting.
    fn begin_reads(&mut self, turn: &mut Turn<'_>) {
        let mut waiting = 0;
        while let Some(job) = self.without_memory.get(waiting) {
            let client =
                turn.address(job.waiter.ticket.peer()).map(|address| address.origin().network());
            let buffer = client.and_then(|client| self.buffers.take(client, turn));
            let job = buffer.is_some().then(|| self.without_memory.remove(waiting)).flatten();
            let Some(mut job) = job else {
                waiting += 1;
                continue;
            };
            job.task.into = buffer;
            match at_once::execute(&self.export, &mut job.task) {
                Some(outcome) => self.done.push_back(job.waiter.done(outcome)),
                None => self.queue.put(job, &self.drc),
            }
        }
    }

    /// Sends the replies of finished jobs.
    fn answer(&mut self, turn: &mut Turn<'_>) {
        self.answers.collect(&mut self.done);
        for _each_once in 0..self.done.len() {
            let Some(FinishedJob { ticket, procedure, outcome }) = self.done.pop_front() else {
                break;
            };
            let mut outcome = Some(outcome);
            let resumed = turn.resume(ticket, |reply| {
                let outcome = outcome.take().unwrap_or(CallOutcome::Denied(CallDenial::Busy));
                send(reply, procedure, outcome)
            });
            let Err(ticket) = resumed else { continue };
            let Some(outcome) = outcome else { continue };
            if turn.is_open(&ticket) {
                // No send slot is free: try again in the next turn. No wake-up is needed: a
                // completion frees a slot, and causes a turn.
                self.done.push_back(FinishedJob { ticket, procedure, outcome });
                continue;
            }
            // The connection has ended; the memory stays with the server.
            if let CallOutcome::Results { data: Some(data), .. } = outcome {
                turn.release(data);
            }
        }
    }
}

impl Handler for NfsHandler {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        let (mut reader, mut room) = (call.reader(), HeaderRoom::new());
        let header = reader.call_header(&mut room).map_err(CallDenial::from);
        let called = match header.and_then(|header| CheckedCall::of(&header, &PROGRAM)) {
            Ok(called) => called,
            Err(denial) => return deny(reply, denial),
        };
        let (Some(bound), Ok(procedure)) = (bound(called.procedure), of(called.procedure)) else {
            return deny(reply, CallDenial::PROCEDURE);
        };
        let arguments = Arguments::read(procedure.arguments, &mut bound.arguments(&call, reader));
        match arguments {
            Ok(_) if called.procedure == nfs3::NULL => {
                send(reply, nfs3::NULL, CallOutcome::Results { head: Vec::new(), data: None })
            }
            Ok(arguments) => self.serve(call, &called, procedure, arguments, reply),
            Err(Unusable::Garbage) => deny(reply, CallDenial::Garbage),
            Err(Unusable::Misplaced) => reply.refuse(),
        }
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        self.begin_reads(turn);
        if !self.without_memory.is_empty() {
            self.buffers.count_returned(turn);
            self.begin_reads(turn);
        }
        self.answer(turn);
    }

    /// Jobs of this peer that no thread has begun are dropped. So a client that reconnects again
    /// and again has no more jobs in the queue than one that stays connected.
    fn on_close(&mut self, peer: ConnectionId, _why: CloseReason) {
        let is_gone = |waiter: &Waiter| waiter.is_of(&self.answers, peer);
        // First the waiting repetitions, so that no call below is handed over to them.
        self.drc.let_go(is_gone);
        self.queue.withdraw(is_gone, &self.drc);
        self.without_memory.retain_mut(|job| job.is_wanted(is_gone, &self.drc));
        self.drc.end(self.answers.connection(peer));
    }
}

fn bound(procedure: u32) -> Option<Bound> {
    // Credential flavors that do not permit DDP are rejected.
    nfs3::BINDING.bind(procedure, Protection::None).ok()
}

fn send(mut reply: Reply<'_>, procedure: u32, outcome: CallOutcome) -> Answer<'_> {
    let (head, data) = match outcome {
        CallOutcome::Results { head, data } => (head, data),
        CallOutcome::Denied(denial) => return deny(reply, denial),
    };
    let Some(bound) = bound(procedure) else { return deny(reply, CallDenial::PROCEDURE) };
    reply.payload().put_fixed(&ReplyHeader::SUCCESS);
    reply.payload().put_fixed(&head);
    let mut reply = bound.reply(reply);
    match data.map_or(Ok(()), |data| reply.result(data)) {
        Ok(()) => reply.send(),
        Err(_) => reply.refuse(),
    }
}

fn deny(reply: Reply<'_>, denial: CallDenial) -> Answer<'_> {
    reply.deny(&denial.reply())
}

/// The RPC program: NFS version 3.
const PROGRAM: RpcProgram = RpcProgram {
    number: nfs3::PROGRAM,
    version: nfs3::BINDING.version,
    procedures: PROCEDURES.len() as u32,
};
