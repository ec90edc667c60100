//! What the program polls: one use at a time, and at most one call under construction.

use core::cell::{Cell, UnsafeCell};
use core::ffi::c_int;
use core::mem::transmute;
use core::ptr::{self, NonNull};
use core::time::Duration;

use ::rpcrdma::{
    Address, Armed, CallBuilder, CallHandle, CallRefused, ConnectError, ConnectId, ConnectionId,
    Resend, SessionEvent, SetupError, ShardHandle, Turn,
};

use crate::arguments::{OK, caught, taken_back};
use crate::call_id::rpcrdma_call_id;
use crate::done::Done;
use crate::failure::{Failure, fail, invalid};
use crate::handle::rpcrdma_handle;
use crate::message::rpcrdma_connection;
use crate::payload::{Draft, rpcrdma_payload};
use crate::provider::AnySessionCall;

/// What a program polls: a shard that serves, a client or a session. Also a shard with a thread of
/// its own, which is lent to its program in `on_turn`: it is not polled, and ends with the callback.
pub struct rpcrdma_polled {
    // Dropped before what it borrows from.
    call: UnsafeCell<rpcrdma_call>,
    /// A callback of it runs.
    is_busy: Cell<bool>,
    object: UnsafeCell<Held>,
    handle: NonNull<rpcrdma_handle>,
    /// The handle, unless it is a callback's.
    own: Option<Box<rpcrdma_handle>>,
    pub(crate) fd: c_int,
}

/// A shard that serves the engine's listeners, and that its program polls; or one that is lent to
/// `on_turn`.
pub type rpcrdma_shard = rpcrdma_polled;

/// A shard that only sends calls, and that its program polls.
pub type rpcrdma_client = rpcrdma_polled;

/// A service behind one or several addresses: it connects, connects again, spreads calls over its
/// connections, and keeps calls while there is none.
pub type rpcrdma_session = rpcrdma_polled;

/// A call under construction. It belongs to the client, session or shard that began it, which has
/// one at a time: beginning another discards it. Until it is submitted or discarded, its owner does
/// nothing else (`RPCRDMA_E_INVALID`): take buffers before.
pub struct rpcrdma_call {
    pub(crate) payload: rpcrdma_payload,
    /// Whose it is.
    pub(crate) owner: *const rpcrdma_polled,
    pub(crate) connection: rpcrdma_connection,
    pub(crate) cookie: u64,
    pub(crate) deadline: Option<u64>,
    /// If the program has chosen one.
    pub(crate) xid: Option<u32>,
    pub(crate) resend: Resend,
    /// Results requested so far.
    pub(crate) wants: usize,
}

/// What a client, a session and a shard do alike, and what only one of them does.
pub(crate) trait Polled {
    fn poll(&mut self, now: u64, done: &Done) -> bool;

    fn poll_for(&mut self, timeout: Duration, done: &Done) -> bool;

    fn idle(&mut self, busy: bool, now: u64, timeout: Duration) -> bool;

    fn arm(&mut self, now: u64) -> Armed;

    fn wait(&mut self, timeout: Duration);

    fn is_stopped(&mut self) -> bool;

    /// Polls until it is stopped.
    fn run(&mut self) -> Result<(), c_int> {
        Err(invalid("shard: a client or session does not run"))
    }

    /// Connects, and waits for that.
    fn connect(&mut self, _to: Address) -> Result<Result<ConnectionId, SetupError>, c_int> {
        Err(not_a_client())
    }

    fn begin_connect(&mut self, _to: Address) -> Result<Result<ConnectId, SetupError>, c_int> {
        Err(not_a_client())
    }

    fn connected(
        &mut self,
        _attempt: ConnectId,
    ) -> Result<Option<Result<ConnectionId, ConnectError>>, c_int> {
        Err(not_a_client())
    }

    /// What only a session does.
    fn session(&mut self) -> Result<&mut dyn PolledSession, c_int> {
        Err(invalid("session: it is none"))
    }

    /// Runs `act` with the shard. Its time has no effect on what is done here.
    fn with_turn(&mut self, act: &mut dyn FnMut(&mut Turn<'_>));

    /// Begins a call in its place.
    fn begin(
        &mut self,
        to: rpcrdma_connection,
        cookie: u64,
        place: &mut rpcrdma_call,
    ) -> Result<(), c_int> {
        with(self, |turn| {
            let begun = turn.call(to.name(), cookie);
            begun.map(|builder| place.begin(builder, to, cookie)).map_err(not_begun)
        })
    }

    /// Begins a call, writes these bytes, and submits it.
    fn send(&mut self, to: ConnectionId, cookie: u64, message: &Message<'_>) -> Result<(), c_int> {
        with(self, |turn| message.submit(turn.call(to, cookie)))
    }

    /// Ends a call of the shard with this number before its reply; false if it is over.
    fn cancel(&mut self, call: &rpcrdma_call_id, shard: u32) -> Result<bool, c_int> {
        let name: CallHandle = call.name(shard)?;
        Ok(with(self, |turn| turn.cancel(name)))
    }
}

/// What only a session does.
pub(crate) trait PolledSession {
    fn call(&mut self, cookie: u64) -> AnySessionCall;

    fn next_event(&mut self) -> Option<SessionEvent>;

    fn connections(&self) -> usize;

    fn open_calls(&self) -> usize;

    fn close(&mut self);
}

/// A message that is sent at once.
pub(crate) struct Message<'a> {
    pub bytes: &'a [u8],
    /// 0 for the default.
    pub reply_payload_max: u32,
}

impl Message<'_> {
    #[inline(always)]
    pub fn submit(&self, begun: Result<CallBuilder<'_>, CallRefused>) -> Result<(), c_int> {
        let sent = begun.and_then(|mut call| {
            call.payload().put_fixed(self.bytes);
            if self.reply_payload_max != 0 {
                call.reply_payload_max(self.reply_payload_max);
            }
            call.submit()
        });
        sent.map_err(not_begun)
    }
}

/// The object behind what the program polls.
enum Held {
    Own(Box<dyn Polled>),
    /// In its callback.
    Lent(Lent),
}

/// A shard in its callback `on_turn`.
struct Lent(NonNull<Turn<'static>>);

impl Polled for Lent {
    fn with_turn(&mut self, act: &mut dyn FnMut(&mut Turn<'_>)) {
        // SAFETY: the turn is in its callback, and no call borrows from it: `free` has looked.
        act(unsafe { self.0.as_mut() });
    }

    fn begin_connect(&mut self, _: Address) -> Result<Result<ConnectId, SetupError>, c_int> {
        Err(inside())
    }

    fn poll(&mut self, _: u64, _: &Done) -> bool {
        false
    }

    fn poll_for(&mut self, _: Duration, _: &Done) -> bool {
        false
    }

    fn idle(&mut self, _: bool, _: u64, _: Duration) -> bool {
        false
    }

    fn arm(&mut self, _: u64) -> Armed {
        Armed::Ready
    }

    fn wait(&mut self, _: Duration) {}

    fn is_stopped(&mut self) -> bool {
        false
    }
}

#[expect(clippy::mut_from_ref, reason = "one use at a time: `is_busy`, and the header")]
impl rpcrdma_polled {
    /// For the program to poll.
    pub(crate) fn new<T: Polled + 'static>(
        object: T,
        handle: ShardHandle,
        fd: c_int,
    ) -> Box<rpcrdma_polled> {
        let own = Box::new(rpcrdma_handle(handle));
        let (handle, own) = (NonNull::from(&*own), Some(own));
        Box::new(rpcrdma_polled::of(Held::Own(Box::new(object)), handle, own, fd))
    }

    /// A shard in its callback `on_turn`, which this ends with.
    pub(crate) fn lent(turn: &mut Turn<'_>, handle: &rpcrdma_handle) -> rpcrdma_polled {
        // SAFETY: only the lifetime changes. This ends with the callback.
        let turn = unsafe { transmute::<&mut Turn<'_>, &mut Turn<'static>>(turn) };
        rpcrdma_polled::of(Held::Lent(Lent(turn.into())), handle.into(), None, -1)
    }

    fn of(
        object: Held,
        handle: NonNull<rpcrdma_handle>,
        own: Option<Box<rpcrdma_handle>>,
        fd: c_int,
    ) -> rpcrdma_polled {
        let (call, is_busy) = (UnsafeCell::new(rpcrdma_call::nothing()), Cell::new(false));
        rpcrdma_polled { call, is_busy, object: UnsafeCell::new(object), handle, own, fd }
    }

    /// The object, and the place of its call, which is discarded.
    #[inline(always)]
    pub(crate) fn beginning(&self) -> Result<(&mut dyn Polled, &mut rpcrdma_call), c_int> {
        if self.is_busy.get() {
            return Err(inside());
        }
        // SAFETY: one thread at a time uses this, and no callback of it runs: no other reference
        // exists, because every function gives its own up when it returns.
        let call = unsafe { &mut *self.call.get() };
        call.clear();
        // SAFETY: as above; the call that borrowed from it is discarded.
        Ok((unsafe { self.object() }, call))
    }

    /// The object, if no call is under construction.
    #[inline(always)]
    pub(crate) fn free(&self) -> Result<&mut dyn Polled, c_int> {
        if self.is_busy.get() {
            return Err(inside());
        }
        // SAFETY: as in `beginning`.
        if unsafe { &*self.call.get() }.is_open() {
            return Err(under_construction());
        }
        // SAFETY: as in `beginning`; no call borrows from it.
        Ok(unsafe { self.object() })
    }

    /// Uses the object while its callbacks run: they cannot use it.
    #[inline(always)]
    fn using<R>(&self, act: impl FnOnce(&mut dyn Polled) -> R) -> Result<R, c_int> {
        let object = self.free()?;
        let busy = Busy::new(&self.is_busy);
        let result = act(object);
        drop(busy);
        Ok(result)
    }

    /// As `using`, for what a shard does not do in its own callback.
    #[inline(always)]
    pub(crate) fn polling<R>(&self, act: impl FnOnce(&mut dyn Polled) -> R) -> Result<R, c_int> {
        if self.own.is_none() {
            return Err(inside());
        }
        self.using(act)
    }

    /// Runs `act` with the shard. What the program does meanwhile cannot use the object again.
    pub(crate) fn with_turn<R>(&self, act: impl FnOnce(&mut Turn<'_>) -> R) -> Result<R, c_int> {
        self.using(|object| with(object, act))
    }

    /// The object, for a call of it that was refused and borrows nothing.
    pub(crate) fn with_kept_call(&self) -> Result<&mut dyn Polled, c_int> {
        if self.is_busy.get() {
            return Err(inside());
        }
        // SAFETY: as in `beginning`; the only call of the object is the caller's.
        Ok(unsafe { self.object() })
    }

    /// # Safety
    /// No other reference to it exists.
    #[inline(always)]
    unsafe fn object(&self) -> &mut (dyn Polled + 'static) {
        // SAFETY: the caller guarantees it.
        match unsafe { &mut *self.object.get() } {
            Held::Own(object) => &mut **object,
            Held::Lent(lent) => lent,
        }
    }

    /// To reach it from other threads.
    pub(crate) fn handle(&self) -> &rpcrdma_handle {
        // SAFETY: it is this one's, or that of the callbacks, which is there during each of them.
        unsafe { self.handle.as_ref() }
    }
}

/// Frees an object that the program was given, unless a callback of it runs.
///
/// # Safety
/// `polled` is NULL or from [`give`](crate::arguments::give), and the program does not use it any
/// more, but perhaps in the callbacks of its end.
pub(crate) unsafe fn free(polled: *mut rpcrdma_polled) {
    // SAFETY: the caller guarantees it.
    let Some(object) = (unsafe { polled.as_ref() }) else { return };
    // Those callbacks cannot use it, or free it again.
    if object.own.is_none() || object.is_busy.replace(true) {
        inside();
        return;
    }
    // SAFETY: as above.
    let mut object = unsafe { taken_back(polled) };
    caught(|| {
        // The program may still have it: it is empty before its callbacks run.
        if let Some(object) = &mut object {
            object.call.get_mut().clear();
        }
        drop(object);
        OK
    });
}

impl rpcrdma_call {
    /// The place of the calls of an object, one after the other.
    fn nothing() -> rpcrdma_call {
        rpcrdma_call {
            payload: rpcrdma_payload(Draft::Nothing),
            owner: ptr::null(),
            connection: rpcrdma_connection::NONE,
            cookie: 0,
            deadline: None,
            xid: None,
            resend: Resend::Never,
            wants: 0,
        }
    }

    /// Begins a call in its place, which is empty.
    #[inline(always)]
    pub(crate) fn begin(&mut self, builder: CallBuilder<'_>, to: rpcrdma_connection, cookie: u64) {
        // SAFETY: only the lifetime changes. The call ends before what it borrows from is used
        // again: `rpcrdma_polled` sees to that.
        let builder = unsafe { transmute::<CallBuilder<'_>, CallBuilder<'static>>(builder) };
        self.payload.0.set(Draft::Call(builder));
        (self.connection, self.cookie, self.wants) = (to, cookie, 0);
        (self.deadline, self.xid) = (None, None);
    }

    /// Begins a call of a session in its place, which is empty.
    #[inline(always)]
    pub(crate) fn begin_for_session(&mut self, draft: AnySessionCall, cookie: u64) {
        self.payload.0.set(Draft::Session(draft));
        (self.cookie, self.resend, self.wants) = (cookie, Resend::Never, 0);
    }

    /// Discards the call that is in its place.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if !matches!(self.payload.0, Draft::Nothing) {
            self.payload.0 = Draft::Nothing;
        }
    }

    /// Whether a call is under construction, which borrows from its owner.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.payload.0, Draft::Nothing | Draft::Answered(_) | Draft::Kept(_))
    }
}

/// What `act` returns with the shard.
pub(crate) fn with<R>(
    object: &mut (impl Polled + ?Sized),
    act: impl FnOnce(&mut Turn<'_>) -> R,
) -> R {
    let (mut act, mut done) = (Some(act), None);
    object.with_turn(&mut |turn| done = act.take().map(|act| act(turn)));
    done.expect("it was called")
}

/// While a callback runs.
struct Busy<'a>(&'a Cell<bool>);

impl<'a> Busy<'a> {
    fn new(flag: &'a Cell<bool>) -> Busy<'a> {
        flag.set(true);
        Busy(flag)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cold]
fn inside() -> c_int {
    invalid("the object is used inside its own callback")
}

#[cold]
pub(crate) fn under_construction() -> c_int {
    invalid("a call is under construction: submit or discard it first")
}

#[cold]
fn not_a_client() -> c_int {
    invalid("client: it is none")
}

#[cold]
pub(crate) fn not_begun(why: CallRefused) -> c_int {
    fail(Failure::Refused(why))
}
