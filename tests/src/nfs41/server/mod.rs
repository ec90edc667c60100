//! A small server of NFS version 4.1: files in memory, and recalls of delegations over the connection
//! of the session.
//!
//! ```text
//!   mod      COMPOUNDs of the forward direction, from the call to the reply
//!   clients  clients, sessions and their slots
//!   tree     the root directory, its files and their attributes, opens and delegations
//!   back     CB_NULL and CB_COMPOUND, and what the client answers
//!   recalls  CB_RECALL of what stands in the way of an open
//! ```

mod back;
mod clients;
mod recalls;
mod tree;

use rpcrdma::onc::{AcceptStatus, ReplyHeader, RpcProgram};
use rpcrdma::ulb::{Items, Protection, nfs4};
use rpcrdma::{
    Answer, Call, CloseReason, Completion, ConnectionId, EndOfMessage, Handler, RegisteredSlice,
    Reply, Turn,
};

pub use back::{Answered, Back, CallBack, Ops};
pub use clients::{Clients, Made};
pub use recalls::Recalls;
pub use tree::{Conflict, Tree};

use super::numbers::{op, status};
use super::words::{Take, Words};

/// The server: the handler of a shard.
pub struct Server {
    /// The clients.
    pub clients: Clients,
    /// The files.
    pub tree: Tree,
    /// The back channel.
    pub back: Back,
    /// What it recalls by itself.
    pub recalls: Recalls,
    /// The operations that were executed, in their order, with their status.
    pub executed: Vec<(u32, u32)>,
    /// Connections that have ended.
    pub closed: Vec<(ConnectionId, CloseReason)>,
}

/// A COMPOUND under way.
#[derive(Debug)]
struct Compound {
    peer: ConnectionId,
    /// The current file handle.
    current: Option<u64>,
    /// The client, if SEQUENCE stands in front.
    client: Option<u64>,
}

/// What an operation results in.
#[derive(Debug, Default)]
struct Outcome {
    words: Words,
    /// Data behind the words.
    data: Option<RegisteredSlice>,
}

/// An operation that was executed.
#[derive(Debug)]
struct Executed {
    number: u32,
    /// Where it begins in the call.
    origin: u32,
    status: u32,
    outcome: Outcome,
}

impl Server {
    /// A server of these files.
    pub fn new(files: &[(&str, Vec<u8>)]) -> Server {
        Server {
            clients: Clients::default(),
            tree: Tree::new(files),
            back: Back::default(),
            recalls: Recalls::default(),
            executed: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// How often this operation was executed with success.
    pub fn count(&self, number: u32) -> usize {
        self.executed.iter().filter(|it| **it == (number, status::OK)).count()
    }

    fn compound(
        &mut self,
        peer: ConnectionId,
        items: &mut Items<'_>,
    ) -> Result<(Vec<u8>, Vec<Executed>), EndOfMessage> {
        let tag = items.reader().opaque()?;
        let (minor, count) = (items.reader().u32()?, items.reader().u32()?);
        let mut done: Vec<Executed> = Vec::new();
        let mut compound = Compound { peer, current: None, client: None };
        if minor != 1 {
            let (number, status) = (op::ILLEGAL, status::MINOR_VERS_MISMATCH);
            return Ok((
                tag,
                vec![Executed { number, origin: 0, status, outcome: Outcome::default() }],
            ));
        }
        for _ in 0..count {
            let number = items.reader().u32()?;
            let origin = items.operation(number);
            let result = self.execute(number, &mut compound, items)?;
            let (status, outcome) = match result {
                Ok(outcome) => (status::OK, outcome),
                Err(status) => (status, Outcome::default()),
            };
            self.executed.push((number, status));
            done.push(Executed { number, origin, status, outcome });
            if status != status::OK {
                break;
            }
        }
        Ok((tag, done))
    }

    /// Executes an operation: its results, or its status.
    fn execute(
        &mut self,
        number: u32,
        compound: &mut Compound,
        items: &mut Items<'_>,
    ) -> Result<Result<Outcome, u32>, EndOfMessage> {
        let reader = items.reader();
        let mut outcome = Outcome::default();
        let out = &mut outcome.words;
        let session = match number {
            op::SEQUENCE => {
                self.clients.sequence(reader, out)?.map(|client| compound.client = Some(client))
            }
            op::EXCHANGE_ID => {
                let named = self.clients.exchange_id(reader, out)?;
                self.clients.gone.drain(..).for_each(|client| self.tree.forget(client));
                named
            }
            op::CREATE_SESSION => self.clients.create_session(compound.peer, reader, out)?,
            op::BIND_CONN_TO_SESSION => self.clients.bind(compound.peer, reader, out)?,
            op::DESTROY_SESSION => self.clients.destroy_session(reader)?,
            op::DESTROY_CLIENTID => self.clients.destroy(reader)?,
            _ if compound.client.is_none() => Err(status::OP_NOT_IN_SESSION),
            op::RECLAIM_COMPLETE => reader.u32().map(|_| Ok(()))?,
            op::PUTROOTFH => {
                compound.current = Some(tree::ROOT);
                Ok(())
            }
            op::PUTFH => self.tree.handle(&reader.opaque()?).map(|it| compound.current = Some(it)),
            _ => match (compound.client, compound.current) {
                (Some(_), Some(current)) if number == op::WRITE => {
                    self.write(current, items, out)?
                }
                (Some(client), Some(current)) => {
                    let result = self.tree.execute(number, client, current, reader, out)?;
                    result.map(|result| {
                        compound.current = result.current;
                        outcome.data = result.data;
                    })
                }
                _ => Err(status::NOFILEHANDLE),
            },
        };
        Ok(session.map(|()| outcome))
    }

    /// WRITE, always to what stands for stable storage.
    fn write(
        &mut self,
        current: u64,
        items: &mut Items<'_>,
        out: &mut Words,
    ) -> Result<Result<(), u32>, EndOfMessage> {
        items.reader().state()?;
        let (offset, _stable) = (items.reader().u64()?, items.reader().u32()?);
        let data = items.data().map_err(|_| EndOfMessage)?;
        let bytes = data.to_vec();
        // How it is committed, and the write verifier.
        out.u32(data.len()).u32(FILE_SYNC).u64(0);
        Ok(self.tree.write(current, offset, &bytes))
    }
}

impl Handler for Server {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        const PROGRAM: RpcProgram =
            RpcProgram { number: nfs4::BINDING.program, version: 4, procedures: 2 };
        let (procedure, reader) = match call.arguments(&PROGRAM) {
            Ok(found) => found,
            Err(denial) => return reply.deny(&denial),
        };
        if procedure == nfs4::NULL {
            reply.payload().put_fixed(&ReplyHeader::SUCCESS);
            return reply.send();
        }
        let bound = nfs4::BINDING.bind(procedure, Protection::None).expect("one of two");
        let mut items = bound.arguments(&call, reader);
        let Ok((tag, done)) = self.compound(call.peer(), &mut items) else {
            return reply.deny(&AcceptStatus::GarbageArguments.into());
        };
        let mut reply = bound.reply(reply);
        reply.payload().put_fixed(&ReplyHeader::SUCCESS);
        reply.payload().put_u32(done.last().map_or(status::OK, |last| last.status));
        reply.payload().put_opaque(&tag);
        reply.payload().put_u32(done.len() as u32);
        for Executed { number, origin, status, outcome } in done {
            reply.payload().put_u32(number);
            reply.payload().put_u32(status);
            reply.operation(number, origin);
            reply.payload().put_fixed(&outcome.words.0);
            match outcome.data {
                None => {}
                Some(data) if data.is_empty() => reply.payload().put_opaque(&[]),
                Some(data) => reply.result(data).expect("READ is the only one with data"),
            }
        }
        reply.send()
    }

    fn on_reply(&mut self, done: Completion<'_>) {
        self.back.on_reply(&done);
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        self.tree.load(turn);
        self.recalls.on_turn(&mut self.clients, &mut self.tree, &mut self.back);
        self.back.on_turn(turn);
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        self.clients.lose(peer);
        self.closed.push((peer, why));
    }
}

/// `stable_how4`: data and attributes.
const FILE_SYNC: u32 = 2;
