//! The handler: the program's callbacks on a shard.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::{self, NonNull};

use ::rpcrdma::{
    Address, Admission, Answer, BackwardSupport, Call, CloseReason, Completion, ConnectError,
    ConnectId, ConnectRequest, ConnectionId, Handler, Origin, PeerLimits, Reply, ShardHandle, Turn,
};

use crate::arguments::sized;
use crate::done::{Done, bytes_of};
use crate::failure::{Failure, c_text, fail, invalid};
use crate::handle::rpcrdma_handle;
use crate::limits::rpcrdma_limits;
use crate::loan::rpcrdma_slice;
use crate::message::{rpcrdma_completion, rpcrdma_connection, rpcrdma_message, rpcrdma_request};
use crate::polled::rpcrdma_polled;
use crate::reply::rpcrdma_reply;

/// The callbacks of a program on a shard. All run on the shard's thread, one at a time, and must
/// not block. A NULL callback has its default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_handler {
    /// `sizeof(rpcrdma_handler)`.
    pub size: usize,
    /// For `start`; shared by all shards.
    pub arg: *mut c_void,
    /// Makes the context of a shard, on its thread. The handle is valid while the context is; clone
    /// it to keep it for longer. NULL: `arg` is the context of every shard. The context may be NULL,
    /// too: nothing is read there.
    pub start:
        Option<unsafe extern "C" fn(arg: *mut c_void, shard: *const rpcrdma_handle) -> *mut c_void>,
    /// The shard has ended: frees the context.
    pub end: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// A call has arrived: answers it, or keeps the right to answer. NULL refuses every call.
    pub on_call: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            request: *const rpcrdma_request,
            reply: *mut rpcrdma_reply,
        ),
    >,
    /// Once a turn, after the queues: poll a disk or a timer here, and finish tickets. A shard that
    /// sleeps takes a turn at least every 10 ms while a call is to be answered.
    /// `shard` may be used as between polls, and ends with the callback.
    pub on_turn:
        Option<unsafe extern "C" fn(context: *mut c_void, shard: *mut rpcrdma_polled, now_ns: u64)>,
    /// A call of this shard has ended.
    pub on_reply:
        Option<unsafe extern "C" fn(context: *mut c_void, completion: *mut rpcrdma_completion)>,
    /// A peer requests a connection: 0 accepts it, a number up to 65535 rejects it with that code,
    /// a negative number without one. NULL accepts.
    pub admit: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            request: *const rpcrdma_connect_request,
        ) -> c_int,
    >,
    /// A connection is up. `attempt` is that of `rpcrdma_begin_connect`, or 0 if the peer made it.
    /// 0 keeps it; anything else closes it.
    pub on_connect: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            connection: rpcrdma_connection,
            attempt: u64,
            limits: *const rpcrdma_limits,
        ) -> c_int,
    >,
    /// A connection that this shard requested was not made; `status` states why.
    pub on_refused: Option<unsafe extern "C" fn(context: *mut c_void, attempt: u64, status: c_int)>,
    /// A connection has ended; `status` states why. Its calls have completed, its tickets are void.
    pub on_close: Option<
        unsafe extern "C" fn(context: *mut c_void, connection: rpcrdma_connection, status: c_int),
    >,
    /// Calls from servers that this shard accepts on connections that it requested, as
    /// `rpcrdma_backward`.
    pub backward: c_int,
    /// 0; another value is `RPCRDMA_E_INVALID`.
    pub reserved: u32,
}

/// A connection request from a peer. Later versions may add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_connect_request {
    /// The address of the peer, as text.
    pub address: *const c_char,
    /// Its origin: the host without the port, or the user without the process, as text.
    pub origin: *const c_char,
    /// Connections of the same origin that this shard has.
    pub connections: usize,
    /// The peer's private data, with padding.
    pub private_data: rpcrdma_slice,
    /// The process, user and group of a peer over shared memory, as the kernel states them;
    /// `UINT32_MAX` otherwise.
    pub pid: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl rpcrdma_handler {
    /// Each callback has its default.
    pub const NONE: rpcrdma_handler = rpcrdma_handler {
        size: size_of::<rpcrdma_handler>(),
        arg: ptr::null_mut(),
        start: None,
        end: None,
        on_call: None,
        on_turn: None,
        on_reply: None,
        admit: None,
        on_connect: None,
        on_refused: None,
        on_close: None,
        backward: 0,
        reserved: 0,
    };
}

/// What makes the contexts of shards.
#[derive(Clone)]
pub(crate) struct Factory(rpcrdma_handler);

// SAFETY: the header states that `start` runs on the thread of each shard, with `arg`, which they
// share.
unsafe impl Send for Factory {}

impl Factory {
    /// The handler of the program.
    ///
    /// # Safety
    /// `handler` is NULL or valid for the size that it states.
    pub unsafe fn of(handler: *const rpcrdma_handler) -> Result<Factory, c_int> {
        // SAFETY: the caller guarantees it.
        let table = unsafe { sized(handler, rpcrdma_handler::NONE, "handler") }?;
        if !(0..=2).contains(&table.backward) {
            return Err(invalid("handler.backward"));
        }
        if table.reserved != 0 {
            return Err(invalid("handler.reserved"));
        }
        Ok(Factory(table))
    }

    /// The callbacks of a shard, on its thread.
    pub fn make(&self, shard: ShardHandle) -> Callbacks {
        let mut made = self.later();
        made.start(shard);
        made
    }

    /// The callbacks of a shard that has no handle yet: [`Callbacks::start`] follows.
    pub fn later(&self) -> Callbacks {
        let table = self.0;
        Callbacks {
            on_call: table.on_call.unwrap_or(refuse),
            context: table.arg,
            table,
            shard: None,
        }
    }
}

/// The callbacks of a program on one shard.
pub(crate) struct Callbacks {
    on_call: unsafe extern "C" fn(*mut c_void, *const rpcrdma_request, *mut rpcrdma_reply),
    context: *mut c_void,
    table: rpcrdma_handler,
    /// Once it has started. In a box: the program keeps a pointer to it.
    shard: Option<Box<rpcrdma_handle>>,
}

impl Callbacks {
    /// Makes the context.
    pub fn start(&mut self, shard: ShardHandle) {
        let shard = self.shard.insert(Box::new(rpcrdma_handle(shard)));
        if let Some(start) = self.table.start {
            // SAFETY: the program gave it for this; the handle lives as long as the context.
            self.context = unsafe { start(self.table.arg, &**shard) };
        }
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let (Some(_), Some(end)) = (&self.shard, self.table.end) {
            // SAFETY: the program gave it for this; no other callback follows.
            unsafe { end(self.context) };
        }
    }
}

impl Handler for Callbacks {
    #[inline]
    fn on_call<'a>(&mut self, mut call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        let bytes = bytes_of(&call);
        let (connection, xid) = (rpcrdma_connection::of(call.peer()), call.xid());
        let mut message = rpcrdma_message::Call(NonNull::from(&mut call).cast());
        let message = ptr::from_mut(&mut message);
        let request = rpcrdma_request { connection, xid, reserved: 0, message, bytes };
        let mut reply = rpcrdma_reply::of(reply);
        // SAFETY: the program gave it for this; the call and the reply stay during the callback,
        // and nothing else uses them.
        unsafe { (self.on_call)(self.context, &request, &mut *reply) };
        reply.take_answer()
    }

    fn on_reply(&mut self, done: Completion<'_>) {
        Done::of(self.table.on_reply, self.context).report(done);
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        let (Some(on_turn), Some(handle)) = (self.table.on_turn, &self.shard) else { return };
        let now = turn.now();
        let mut shard = rpcrdma_polled::lent(turn, handle);
        // SAFETY: the program gave it for this; the shard stays during the callback.
        unsafe { on_turn(self.context, &mut shard, now) };
    }

    fn admit(&mut self, request: &ConnectRequest<'_>) -> Admission {
        let Some(admit) = self.table.admit else { return Admission::Accept };
        let (address, origin) = (c_text(&request.from), c_text(&Shown(request.from.origin())));
        let (pid, uid, gid) = match request.from {
            Address::Process(process) => (process.pid, process.uid, process.gid),
            _ => (u32::MAX, u32::MAX, u32::MAX),
        };
        let request = rpcrdma_connect_request {
            address: address.as_ptr(),
            origin: origin.as_ptr(),
            connections: request.connections,
            private_data: rpcrdma_slice::of(request.private),
            pid,
            uid,
            gid,
        };
        // SAFETY: the program gave it for this; the request stays during the callback.
        admission(unsafe { admit(self.context, &request) })
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        limits: &PeerLimits,
    ) -> Admission {
        let Some(on_connect) = self.table.on_connect else { return Admission::Accept };
        let (limits, attempt) = (rpcrdma_limits::of(limits), attempt.map_or(0, attempt_of));
        // SAFETY: the program gave it for this; the limits stay during the callback.
        let kept =
            unsafe { on_connect(self.context, rpcrdma_connection::of(peer), attempt, &limits) };
        admission(kept)
    }

    fn backward(&self) -> BackwardSupport {
        match self.table.backward {
            1 => BackwardSupport::None,
            2 => BackwardSupport::General,
            _ => BackwardSupport::Inline,
        }
    }

    fn on_refused(&mut self, id: ConnectId, why: ConnectError) {
        let Some(on_refused) = self.table.on_refused else { return };
        let status = fail(Failure::Connect(why));
        // SAFETY: the program gave it for this.
        unsafe { on_refused(self.context, attempt_of(id), status) };
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        let Some(on_close) = self.table.on_close else { return };
        let status = fail(Failure::Close(why));
        // SAFETY: the program gave it for this.
        unsafe { on_close(self.context, rpcrdma_connection::of(peer), status) };
    }
}

/// The number of an attempt, which is never 0.
pub(crate) fn attempt_of(id: ConnectId) -> u64 {
    id.0.wrapping_add(1)
}

/// The attempt with this number.
pub(crate) fn id_of(attempt: u64) -> ConnectId {
    ConnectId(attempt.wrapping_sub(1))
}

/// What the program answers to a request.
fn admission(answer: c_int) -> Admission {
    match u16::try_from(answer) {
        Ok(0) => Admission::Accept,
        Ok(code) => Admission::RefuseWith(code),
        Err(_) => Admission::Refuse,
    }
}

/// An origin as text.
struct Shown(Origin);

impl core::fmt::Display for Shown {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.0 {
            Origin::Host(host) => write!(f, "{host}"),
            Origin::Socket(name) => write!(f, "shm:{name}"),
            Origin::User(uid) => write!(f, "uid {uid}"),
            _ => f.write_str("unknown"),
        }
    }
}

/// What a shard without `on_call` does.
extern "C" fn refuse(
    _context: *mut c_void,
    _request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: it is called with a reply, by `Callbacks::on_call`.
    crate::reply::rpcrdma_reply_refuse(unsafe { reply.as_mut() });
}
