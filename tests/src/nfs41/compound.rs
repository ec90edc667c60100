//! The arguments of COMPOUND: operations of the client as values, and their XDR.

use super::numbers::op;
use super::words::{FileHandle, SessionId, StateId, Words};
use crate::nfs::{Give, Take};

/// An operation.
#[derive(Debug, Clone)]
pub enum Op {
    /// Begins a COMPOUND of a session.
    Sequence(Sequence),
    /// Sets the current file handle to the root.
    PutRootFh,
    /// Sets the current file handle.
    PutFh(FileHandle),
    /// Returns the current file handle.
    GetFh,
    /// Goes to a name of the current directory.
    Lookup(Vec<u8>),
    /// The size of the file.
    Size,
    /// Opens a name of the current directory.
    Open(Open),
    /// Ends an open.
    Close(StateId),
    /// Reads.
    Read {
        /// The open, or a delegation.
        state: StateId,
        /// Where.
        offset: u64,
        /// How many bytes at most.
        count: u32,
        /// How the data come.
        take: Take,
    },
    /// Writes to stable storage.
    Write {
        /// The open, or a delegation.
        state: StateId,
        /// Where.
        offset: u64,
        /// What.
        data: Vec<u8>,
        /// How the data go.
        give: Give,
    },
    /// Returns a delegation.
    DelegReturn(StateId),
    /// Forgets a revoked state.
    FreeStateId(StateId),
    /// Names the client.
    ExchangeId {
        /// Which run of the client it is.
        verifier: [u8; 8],
        /// Which client it is.
        owner: Vec<u8>,
    },
    /// Makes a session.
    CreateSession(CreateSession),
    /// Associates this connection, in both directions, with a session.
    BindConnToSession(SessionId),
    /// Nothing is reclaimed.
    ReclaimComplete,
    /// Ends a session.
    DestroySession(SessionId),
    /// Ends the client.
    DestroyClientId(u64),
}

/// The arguments of SEQUENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence {
    /// The session.
    pub session: SessionId,
    /// The number of the request in its slot.
    pub sequence: u32,
    /// The slot.
    pub slot: u32,
    /// The highest slot in use.
    pub highest: u32,
}

/// The arguments of OPEN.
#[derive(Debug, Clone)]
pub struct Open {
    /// The client.
    pub client: u64,
    /// Who opens.
    pub owner: Vec<u8>,
    /// What for, and which delegation is wanted.
    pub access: u32,
    /// What is denied to others.
    pub deny: u32,
    /// The name.
    pub name: Vec<u8>,
}

/// The arguments of CREATE_SESSION.
#[derive(Debug, Clone)]
pub struct CreateSession {
    /// The client.
    pub client: u64,
    /// The number that EXCHANGE_ID has returned.
    pub sequence: u32,
    /// Flags.
    pub flags: u32,
    /// Limits of the forward direction.
    pub fore: Channel,
    /// Limits of the backward direction.
    pub back: Channel,
    /// The program number of callbacks.
    pub program: u32,
    /// The credentials of callbacks.
    pub security: Security,
}

/// Limits of a channel (`channel_attrs4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// The longest call (`ca_maxrequestsize`).
    pub request_max: u32,
    /// The longest reply (`ca_maxresponsesize`).
    pub response_max: u32,
    /// The longest reply that is kept (`ca_maxresponsesize_cached`).
    pub cached_max: u32,
    /// Operations of a COMPOUND (`ca_maxoperations`).
    pub operations_max: u32,
    /// Slots (`ca_maxrequests`).
    pub slots: u32,
}

/// The credentials that the server uses in callbacks (`callback_sec_parms4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS, as this user and group.
    Sys {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
}

impl Op {
    /// Its number.
    pub fn number(&self) -> u32 {
        match self {
            Op::Sequence(_) => op::SEQUENCE,
            Op::PutRootFh => op::PUTROOTFH,
            Op::PutFh(_) => op::PUTFH,
            Op::GetFh => op::GETFH,
            Op::Lookup(_) => op::LOOKUP,
            Op::Size => op::GETATTR,
            Op::Open(_) => op::OPEN,
            Op::Close(_) => op::CLOSE,
            Op::Read { .. } => op::READ,
            Op::Write { .. } => op::WRITE,
            Op::DelegReturn(_) => op::DELEGRETURN,
            Op::FreeStateId(_) => op::FREE_STATEID,
            Op::ExchangeId { .. } => op::EXCHANGE_ID,
            Op::CreateSession(_) => op::CREATE_SESSION,
            Op::BindConnToSession(_) => op::BIND_CONN_TO_SESSION,
            Op::ReclaimComplete => op::RECLAIM_COMPLETE,
            Op::DestroySession(_) => op::DESTROY_SESSION,
            Op::DestroyClientId(_) => op::DESTROY_CLIENTID,
        }
    }

    /// Its arguments; those of WRITE without the data.
    pub fn arguments(&self) -> Vec<u8> {
        let mut out = Words::default();
        match self {
            Op::PutRootFh | Op::GetFh => &mut out,
            Op::Sequence(Sequence { session, sequence, slot, highest }) => {
                // Nothing asks for its reply to be kept: what is repeated is repeated as new.
                out.fixed(session).u32(*sequence).u32(*slot).u32(*highest).u32(0)
            }
            Op::PutFh(handle) => out.opaque(&handle.0),
            Op::Lookup(name) => out.opaque(name),
            Op::Size => out.list(&[1 << SIZE]),
            Op::Open(open) => open.put(&mut out),
            Op::Close(state) => out.u32(0).state(state),
            Op::Read { state, offset, count, .. } => out.state(state).u64(*offset).u32(*count),
            Op::Write { state, offset, .. } => out.state(state).u64(*offset).u32(FILE_SYNC),
            Op::DelegReturn(state) | Op::FreeStateId(state) => out.state(state),
            // No flags, no protection of state, no name of the implementation.
            Op::ExchangeId { verifier, owner } => {
                out.fixed(verifier).opaque(owner).u32(0).u32(0).u32(0)
            }
            Op::CreateSession(arguments) => arguments.put(&mut out),
            Op::BindConnToSession(session) => {
                out.fixed(session).u32(super::numbers::direction::FORE_OR_BOTH).u32(0)
            }
            Op::ReclaimComplete => out.u32(0),
            Op::DestroySession(session) => out.fixed(session),
            Op::DestroyClientId(client) => out.u64(*client),
        };
        out.0
    }

    /// The most bytes that its result has, besides the data of READ.
    pub fn result_max(&self) -> u32 {
        match self {
            Op::Open(_) => 512,
            Op::ExchangeId { .. } => 2560,
            Op::CreateSession(_) | Op::GetFh => 256,
            _ => 128,
        }
    }
}

impl Open {
    fn put<'a>(&self, out: &'a mut Words) -> &'a mut Words {
        out.u32(0).u32(self.access).u32(self.deny).u64(self.client).opaque(&self.owner);
        // OPEN4_NOCREATE, CLAIM_NULL
        out.u32(0).u32(0).opaque(&self.name)
    }
}

impl CreateSession {
    fn put<'a>(&self, out: &'a mut Words) -> &'a mut Words {
        out.u64(self.client).u32(self.sequence).u32(self.flags);
        self.fore.put(out);
        self.back.put(out);
        out.u32(self.program).u32(1);
        match self.security {
            Security::None => out.u32(0),
            Security::Sys { uid, gid } => {
                out.u32(1).u32(0).opaque(b"callbacks").u32(uid).u32(gid).list(&[])
            }
        }
    }
}

impl Channel {
    /// Appends its XDR.
    pub fn put<'a>(&self, out: &'a mut Words) -> &'a mut Words {
        let Channel { request_max, response_max, cached_max, operations_max, slots } = *self;
        out.u32(0).u32(request_max).u32(response_max).u32(cached_max);
        out.u32(operations_max).u32(slots).list(&[])
    }
}

/// The number of the attribute `size` (RFC 8881 5.8.1.5).
pub const SIZE: u32 = 4;
/// `stable_how4`: data and attributes.
const FILE_SYNC: u32 = 2;
