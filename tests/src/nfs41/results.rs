//! The results of COMPOUND: decoded from a reply, operation by operation.

use rpcrdma::onc::{AcceptStatus, DecodeError, HeaderRoom, ReplyHeader};
use rpcrdma::ulb::{BindError, Bound, ItemError, Items};
use rpcrdma::{CallError, CallRefused, EndOfMessage, Incoming, PayloadReader};

use super::compound::{Channel, Sequence};
use super::numbers::{op, status};
use super::words::{FileHandle, SessionId, StateId, Take};

/// The result of an operation that was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// It has no result.
    Nothing,
    /// Of SEQUENCE.
    Sequence {
        /// What was asked, as the server states it.
        of: Sequence,
        /// The slot that the server would like to be the highest.
        target: u32,
        /// `sr_status_flags`.
        flags: u32,
    },
    /// Of GETFH.
    Handle(FileHandle),
    /// The size of a file.
    Size(u64),
    /// Of OPEN.
    Open {
        /// The state of the open.
        state: StateId,
        /// The delegation.
        delegation: Delegation,
    },
    /// Of CLOSE: the state is over.
    Closed,
    /// Of READ.
    Read {
        /// Whether the file ends here.
        eof: bool,
        /// The data.
        data: Vec<u8>,
        /// Whether they were moved by DDP.
        placed: bool,
    },
    /// Of WRITE.
    Written(u32),
    /// Of EXCHANGE_ID.
    Client {
        /// The client.
        client: u64,
        /// The number of the next CREATE_SESSION.
        sequence: u32,
    },
    /// Of CREATE_SESSION.
    Session {
        /// The session.
        session: SessionId,
        /// What was agreed on.
        flags: u32,
        /// Limits of the forward direction.
        fore: Channel,
        /// Limits of the backward direction.
        back: Channel,
    },
    /// Of BIND_CONN_TO_SESSION: the directions that were agreed on.
    Bound(u32),
}

/// The delegation of an OPEN (`open_delegation4`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delegation {
    /// None, and the reason if one is stated.
    None(Option<u32>),
    /// To read.
    Read(StateId),
    /// To write.
    Write(StateId),
}

/// Why a COMPOUND has no results.
#[derive(Debug)]
pub enum Failure {
    /// The call was not sent.
    Bind(BindError),
    /// It has no reply.
    Call(CallError),
    /// The reply violates the upper-layer binding.
    Item(ItemError),
    /// The reply is cut off.
    End,
    /// The reply has no header.
    Header(DecodeError),
    /// The server accepted it and did not execute it.
    NotExecuted(AcceptStatus),
    /// The server denied it.
    Denied,
    /// The results are not those of the operations.
    Unexpected(String),
    /// An operation failed.
    Status {
        /// Its number.
        operation: u32,
        /// The status.
        status: u32,
    },
}

impl Failure {
    /// The status of the operation that failed.
    pub fn status(&self) -> Option<u32> {
        match self {
            Failure::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Failure {
        Failure::Bind(error)
    }
}

impl From<CallRefused> for Failure {
    fn from(error: CallRefused) -> Failure {
        Failure::Bind(error.into())
    }
}

impl From<ItemError> for Failure {
    fn from(error: ItemError) -> Failure {
        Failure::Item(error)
    }
}

impl From<EndOfMessage> for Failure {
    fn from(_: EndOfMessage) -> Failure {
        Failure::End
    }
}

/// The results of a reply to a COMPOUND.
///
/// # Errors
/// The first operation that failed, or a reply that is none.
pub fn read(bound: &Bound, incoming: &Incoming<'_>) -> Result<Vec<Done>, Failure> {
    let mut items = bound.results(incoming);
    match items.reader().reply_header(&mut HeaderRoom::new()).map_err(Failure::Header)? {
        ReplyHeader::Accepted { status: AcceptStatus::Success, .. } => {}
        ReplyHeader::Accepted { status, .. } => return Err(Failure::NotExecuted(status)),
        ReplyHeader::RpcMismatch { .. } | ReplyHeader::AuthError { .. } => {
            return Err(Failure::Denied);
        }
    }
    let total = items.reader().u32()?;
    items.reader().opaque()?;
    let count = items.reader().u32()?;
    let mut done = Vec::new();
    for _ in 0..count {
        let operation = items.reader().u32()?;
        items.operation(operation);
        let status = items.reader().u32()?;
        if status != status::OK {
            return Err(Failure::Status { operation, status });
        }
        done.push(one(operation, &mut items)?);
    }
    if total != status::OK {
        return Err(Failure::Status { operation: op::ILLEGAL, status: total });
    }
    items.end()?;
    match items.reader().u32() {
        Err(EndOfMessage) => Ok(done),
        Ok(word) => Err(Failure::Unexpected(format!("{word:#x} is behind the results"))),
    }
}

fn one(operation: u32, items: &mut Items<'_>) -> Result<Done, Failure> {
    let reader = items.reader();
    Ok(match operation {
        op::SEQUENCE => sequence(reader)?,
        op::GETFH => Done::Handle(FileHandle(reader.opaque()?)),
        op::GETATTR => {
            let (which, values) = (reader.list()?, reader.opaque()?);
            let size = <[u8; 8]>::try_from(&values[..]).map(u64::from_be_bytes);
            Done::Size(size.map_err(|_| Failure::Unexpected(format!("attributes {which:?}")))?)
        }
        op::OPEN => opened(reader)?,
        op::CLOSE => reader.state().map(|_| Done::Closed)?,
        op::READ => {
            let eof = reader.u32()? != 0;
            let data = items.data()?;
            let placed = data.placed_index().is_some();
            Done::Read { eof, data: data.to_vec(), placed }
        }
        op::WRITE => {
            let count = reader.u32()?;
            // Committed how, and the write verifier.
            reader.skip(12)?;
            Done::Written(count)
        }
        op::EXCHANGE_ID => named(reader)?,
        op::CREATE_SESSION => {
            let (session, _sequence, flags) = (reader.array()?, reader.u32()?, reader.u32()?);
            let (fore, back) = (channel(reader)?, channel(reader)?);
            Done::Session { session, flags, fore, back }
        }
        op::BIND_CONN_TO_SESSION => {
            let _session: SessionId = reader.array()?;
            let directions = reader.u32()?;
            reader.u32()?;
            Done::Bound(directions)
        }
        _ => Done::Nothing,
    })
}

fn sequence(reader: &mut PayloadReader<'_>) -> Result<Done, EndOfMessage> {
    let session = reader.array()?;
    let (sequence, slot, highest) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let of = Sequence { session, sequence, slot, highest };
    Ok(Done::Sequence { of, target: reader.u32()?, flags: reader.u32()? })
}

fn opened(reader: &mut PayloadReader<'_>) -> Result<Done, Failure> {
    let state = reader.state()?;
    // How the directory has changed, and flags.
    reader.skip(4 + 16 + 4)?;
    reader.list()?;
    let delegation = match reader.u32()? {
        0 => Delegation::None(None),
        1 => {
            let state = reader.state()?;
            reader.u32()?;
            entry(reader)?;
            Delegation::Read(state)
        }
        2 => {
            let state = reader.state()?;
            reader.u32()?;
            // By size, or by blocks and their size: both are two words.
            reader.skip(12)?;
            entry(reader)?;
            Delegation::Write(state)
        }
        3 => {
            let why = reader.u32()?;
            if why == 1 || why == 2 {
                reader.u32()?;
            }
            Delegation::None(Some(why))
        }
        other => return Err(Failure::Unexpected(format!("a delegation of type {other}"))),
    };
    Ok(Done::Open { state, delegation })
}

/// An entry of an access control list (`nfsace4`).
fn entry(reader: &mut PayloadReader<'_>) -> Result<(), EndOfMessage> {
    reader.skip(12)?;
    reader.opaque().map(drop)
}

fn named(reader: &mut PayloadReader<'_>) -> Result<Done, Failure> {
    let (client, sequence, _flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
    let protection = reader.u32()?;
    if protection != 0 {
        return Err(Failure::Unexpected(format!("protection {protection} of the state")));
    }
    reader.u64()?;
    reader.opaque()?;
    reader.opaque()?;
    for _ in 0..reader.u32()? {
        reader.opaque()?;
        reader.opaque()?;
        reader.skip(12)?;
    }
    Ok(Done::Client { client, sequence })
}

/// Limits of a channel.
///
/// # Errors
/// If the message is cut off.
pub fn channel(reader: &mut PayloadReader<'_>) -> Result<Channel, EndOfMessage> {
    reader.u32()?;
    let channel = Channel {
        request_max: reader.u32()?,
        response_max: reader.u32()?,
        cached_max: reader.u32()?,
        operations_max: reader.u32()?,
        slots: reader.u32()?,
    };
    reader.list()?;
    Ok(channel)
}
