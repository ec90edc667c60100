//! Calls of a shard that the program polls.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use rpcrdma_capi::*;

use crate::rig::{ECHO, Got, OK, Rig, check, collect, last_error, made};

/// What was reported to a shard.
struct Seen {
    connection: Option<rpcrdma_connection>,
    got: Vec<Got>,
    /// A call that was refused, to be sent in a callback.
    refused: Cell<*mut rpcrdma_call>,
    /// What became of that.
    inside: Vec<c_int>,
}

unsafe extern "C" fn connected(
    context: *mut c_void,
    connection: rpcrdma_connection,
    attempt: u64,
    _limits: *const rpcrdma_limits,
) -> c_int {
    if attempt != 0 {
        // SAFETY: the context is that of the handler.
        unsafe { (*context.cast::<Seen>()).connection = Some(connection) };
    }
    0
}

unsafe extern "C" fn completed(context: *mut c_void, completion: *mut rpcrdma_completion) {
    // SAFETY: the context is that of the handler, the completion is valid in the callback, and the
    // call is the shard's, or NULL.
    unsafe {
        let seen = &mut *context.cast::<Seen>();
        if let Some(call) = seen.refused.get().as_mut() {
            seen.inside.push(rpcrdma_call_submit(Some(call), None));
        }
        collect(ptr::from_mut(&mut seen.got).cast(), completion);
    }
}

/// # Safety
/// The shard is the library's.
unsafe fn poll(shard: *mut rpcrdma_shard) {
    // SAFETY: the caller guarantees it.
    let number = unsafe { rpcrdma_poll(shard, rpcrdma_now(), None, ptr::null_mut()) };
    assert!(number >= 0, "{}", last_error());
}

/// Connects.
///
/// # Safety
/// The shard is the library's, and `seen` what its callbacks get.
unsafe fn connection(
    rig: &Rig,
    shard: *mut rpcrdma_shard,
    seen: *const Seen,
) -> rpcrdma_connection {
    // SAFETY: the caller guarantees it.
    unsafe {
        made(|out| rpcrdma_begin_connect(shard, rig.at.as_ptr(), out));
        loop {
            poll(shard);
            if let Some(connection) = (*seen).connection {
                return connection;
            }
        }
    }
}

/// Sends calls until one is refused: it, and how many were sent.
///
/// # Safety
/// The shard is the library's, and `seen` what its callbacks get.
unsafe fn until_refused(
    rig: &Rig,
    shard: *mut rpcrdma_shard,
    seen: *const Seen,
) -> (*mut rpcrdma_call, u64) {
    // SAFETY: the caller guarantees it; all other pointers are those that the library gave.
    unsafe {
        let connection = connection(rig, shard, seen);
        let mut sent = 0;
        // Without polls, credits or slots run out.
        loop {
            let call = made(|out| rpcrdma_begin_call(shard, connection, sent, out));
            rpcrdma_put_u64(rpcrdma_call_payload(call.as_mut()), sent);
            let number = rpcrdma_call_submit(call.as_mut(), None);
            if number != OK {
                assert!(rpcrdma_is_transient(number), "{number}");
                return (call, sent);
            }
            sent += 1;
        }
    }
}

unsafe extern "C" fn ended(context: *mut c_void) {
    // SAFETY: the context is that of the handler, and the call is the shard's.
    unsafe {
        let seen = &mut *context.cast::<Seen>();
        let call = seen.refused.get().as_mut();
        seen.inside.push(rpcrdma_call_payload(call).is_some().into());
        seen.inside.push(rpcrdma_call_discard(seen.refused.get().as_mut()));
    }
}

/// What was refused is freed once, also when a callback of the end discards it.
#[test]
fn a_call_is_empty_when_its_shard_ends() {
    let rig = Rig::new(&ECHO);
    let refusal = Cell::new(ptr::null_mut());
    let mut seen = Seen { connection: None, got: Vec::new(), refused: refusal, inside: Vec::new() };
    let seen = ptr::from_mut(&mut seen);
    let arg = seen.cast();
    let table = rpcrdma_handler { arg, on_connect: Some(connected), end: Some(ended), ..ECHO };
    // SAFETY: all pointers are those that the library gave, or to objects of this function.
    unsafe {
        let shard = made(|out| rpcrdma_shard_new(rig.engine.as_mut(), &table, out));
        let (call, _) = until_refused(&rig, shard, seen);
        (*seen).refused.set(call);
        rpcrdma_polled_free(shard);
        assert_eq!((*seen).inside, [0, OK], "no payload, and nothing to discard");
    }
}

#[test]
fn a_call_that_a_shard_could_not_send_is_sent_later() {
    let rig = Rig::new(&ECHO);
    let refused = Cell::new(ptr::null_mut());
    let mut seen = Seen { connection: None, got: Vec::new(), refused, inside: Vec::new() };
    let seen = ptr::from_mut(&mut seen);
    let table = rpcrdma_handler {
        arg: seen.cast(),
        on_reply: Some(completed),
        on_connect: Some(connected),
        ..ECHO
    };
    // SAFETY: all pointers are those that the library gave, or to objects of this function.
    unsafe {
        let shard = made(|out| rpcrdma_shard_new(rig.engine.as_mut(), &table, out));
        let poll = || poll(shard);
        let look = || &*seen;
        let (call, sent) = until_refused(&rig, shard, seen);
        let calls = sent as usize;
        look().refused.set(call);
        while look().got.len() < calls {
            poll();
        }
        // The shard is in use, and the call stays.
        let invalid = rpcrdma_status::RPCRDMA_E_INVALID as c_int;
        assert_eq!(look().inside, vec![invalid; calls]);
        look().refused.set(ptr::null_mut());
        check(rpcrdma_call_submit(call.as_mut(), None));
        while look().got.len() <= calls {
            poll();
        }
        let last = &look().got[calls];
        let bytes = sent.to_be_bytes();
        assert_eq!((last.cookie, last.status, last.bytes.as_slice()), (sent, OK, &bytes[..]));
        rpcrdma_polled_free(shard);
    }
}

/// Its calls are never answered.
const UNANSWERED: rpcrdma_handler =
    rpcrdma_handler { on_call: Some(leave), ..rpcrdma_handler::NONE };

unsafe extern "C" fn leave(
    _context: *mut c_void,
    _request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: the reply is valid in the callback. The ticket is leaked.
    let _ = made(|out| rpcrdma_reply_defer(unsafe { reply.as_mut() }, out));
}

#[test]
fn a_poll_without_limit_ends_for_a_deadline_and_for_the_stop() {
    // The shard is one of the engine's: it may be connected with itself.
    let rig = Rig::new(&UNANSWERED);
    let refused = Cell::new(ptr::null_mut());
    let mut seen = Seen { connection: None, got: Vec::new(), refused, inside: Vec::new() };
    let seen = ptr::from_mut(&mut seen);
    let (on_reply, on_connect) = (Some(completed as _), Some(connected as _));
    let table = rpcrdma_handler { arg: seen.cast(), on_reply, on_connect, ..UNANSWERED };
    // SAFETY: all pointers are those that the library gave, or to objects of this function.
    unsafe {
        let shard = made(|out| rpcrdma_shard_new(rig.engine.as_mut(), &table, out));
        let to = connection(&rig, shard, seen);
        let poll_for = || rpcrdma_poll_for(shard, u64::MAX, None, ptr::null_mut());
        let call = made(|out| rpcrdma_begin_call(shard, to, 1, out));
        check(rpcrdma_call_deadline(call.as_mut(), rpcrdma_now() + 5_000_000));
        check(rpcrdma_call_submit(call.as_mut(), None));
        let look = || &*seen;
        while look().got.is_empty() {
            assert_eq!(poll_for(), 1, "{}", last_error());
        }
        assert_eq!(look().got[0].status, rpcrdma_status::RPCRDMA_E_DEADLINE as c_int);
        check(rpcrdma_handle_stop(rpcrdma_handle_of(shard).as_ref()));
        while !rpcrdma_is_stopped(shard) {
            poll_for();
        }
        assert_eq!(poll_for(), 0, "there is nothing to do any more");
        rpcrdma_polled_free(shard);
    }
}
