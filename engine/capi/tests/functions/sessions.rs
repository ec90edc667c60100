//! Sessions: calls that wait for a connection, deadlines, ends.

use std::ffi::{c_int, c_void};
use std::ptr;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{ECHO, Got, OK, Rig, check, collect, last_error, made, place, refused};

/// A session to the server of a rig.
fn session(rig: &Rig, options: Option<&rpcrdma_session_options>) -> *mut rpcrdma_session {
    let addresses = [rig.at.as_ptr()];
    // SAFETY: all pointers are those that the library gave, or to objects of this function.
    unsafe {
        let (engine, options) = (rig.engine.as_mut(), options.map_or(ptr::null(), ptr::from_ref));
        made(|out| rpcrdma_session_new(engine, addresses.as_ptr(), 1, options, out))
    }
}

fn wait(session: *mut rpcrdma_session, count: usize) -> Vec<Got> {
    let mut got: Vec<Got> = Vec::new();
    while got.len() < count {
        let arg = ptr::from_mut(&mut got).cast();
        // SAFETY: the session is the library's, and `collect` takes this argument.
        assert!(unsafe { rpcrdma_poll_for(session, 1 << 30, Some(collect), arg) } >= 0);
    }
    got
}

#[test]
fn calls_wait_for_a_connection_and_are_answered() {
    let rig = Rig::new(&ECHO);
    let session = session(&rig, None);
    // SAFETY: the session is the library's, and each call is used before the next.
    unsafe {
        for cookie in 0..5 {
            let call = &mut *made(|out| rpcrdma_session_call(session, cookie, out));
            rpcrdma_put_u64(rpcrdma_call_payload(Some(call)), cookie);
            check(rpcrdma_call_resend(Some(call), 1));
            refused(rpcrdma_call_xid(Some(call), 1), RPCRDMA_E_INVALID);
            check(rpcrdma_call_deadline(Some(call), u64::MAX));
            check(rpcrdma_call_submit(Some(call), None));
        }
        assert_eq!(rpcrdma_session_open_calls(session), 5);
        for (cookie, got) in wait(session, 5).iter().enumerate() {
            let cookie = cookie as u64;
            let answer = (got.cookie, got.status, &got.bytes[..]);
            assert_eq!(answer, (cookie, OK, &cookie.to_be_bytes()[..]));
        }
        let event = made(|out| rpcrdma_session_next_event(session, out));
        assert_eq!(event.kind, rpcrdma_session_event_kind::RPCRDMA_SESSION_CONNECTED as i32);
        assert_eq!(event.address[..64], rig.at);
        assert_eq!(rpcrdma_session_connections(session), 1);
        check(rpcrdma_session_close(session));
        while !rpcrdma_is_stopped(session) {
            rpcrdma_poll_for(session, 1 << 20, None, ptr::null_mut());
        }
        let call = made(|out| rpcrdma_session_call(session, 9, out)).as_mut();
        refused(rpcrdma_call_submit(call, None), RPCRDMA_E_CLOSED);
        rpcrdma_polled_free(session);
    }
}

#[test]
fn a_call_that_never_gets_a_connection_ends_by_its_deadline() {
    let mut rig = Rig::new(&ECHO);
    // There is no listener.
    for (place, byte) in rig.at.iter_mut().zip(b"127.0.0.1:1\0") {
        *place = *byte as _;
    }
    let options = rpcrdma_session_options {
        size: size_of::<rpcrdma_session_options>(),
        connections: 1,
        backoff_min_ns: 0,
        backoff_max_ns: 0,
        waiting_calls: 1,
        waiting_bytes: 0,
    };
    let session = session(&rig, Some(&options));
    // SAFETY: the session is the library's, and each call is used before the next.
    unsafe {
        let mut loan = rig.buffer(&[1; 10]);
        let call = &mut *made(|out| rpcrdma_session_call(session, 1, out));
        check(place(call, &mut loan));
        check(rpcrdma_call_deadline(Some(call), rpcrdma_now() + 1));
        check(rpcrdma_call_submit(Some(call), None));
        let call = &mut *made(|out| rpcrdma_session_call(session, 2, out));
        let mut loan = rig.buffer(&[2; 10]);
        check(place(call, &mut loan));
        refused(rpcrdma_call_submit(Some(call), None), RPCRDMA_E_QUEUE_FULL);
        let (out, place) = (&mut std::mem::MaybeUninit::uninit(), ptr::from_mut(&mut loan));
        check(rpcrdma_call_take_placed(Some(call), place, 1, Some(out)));
        assert_eq!((out.assume_init(), loan.len), (1, 10));
        rpcrdma_loan_free(Some(&mut loan));
        check(rpcrdma_call_discard(Some(call)));
        refused(wait(session, 1)[0].status, RPCRDMA_E_DEADLINE);
        let mut event = std::mem::MaybeUninit::uninit();
        while rpcrdma_session_next_event(session, Some(&mut event)) != OK {
            rpcrdma_poll_for(session, 1 << 30, None, ptr::null_mut());
        }
        refused(event.assume_init_ref().status, RPCRDMA_E_NO_LISTENER);
        rpcrdma_polled_free(session);
    }
}

/// A server that ends the connection of the first call, and answers the others.
struct Lossy {
    shard: *const rpcrdma_handle,
    first: Option<rpcrdma_ticket>,
    xids: Vec<u32>,
}

unsafe extern "C" fn start(arg: *mut c_void, shard: *const rpcrdma_handle) -> *mut c_void {
    // SAFETY: the argument is that of the handler, and there is one shard.
    unsafe { (*arg.cast::<Lossy>()).shard = shard };
    arg
}

unsafe extern "C" fn lose_or_answer(
    context: *mut c_void,
    request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: the context is the server; the others are valid in the callback.
    unsafe {
        let lossy = &mut *context.cast::<Lossy>();
        lossy.xids.push((*request).xid);
        if lossy.first.is_some() {
            return check(rpcrdma_reply_send(reply.as_mut()));
        }
        lossy.first = Some(made(|out| rpcrdma_reply_defer(reply.as_mut(), out)));
        check(rpcrdma_handle_close(lossy.shard.as_ref(), (*request).connection));
    }
}

/// What becomes of a call whose connection is lost: its status, its cause, and its xids at the
/// server.
fn lost(resend: rpcrdma_resend) -> (c_int, c_int, Vec<u32>) {
    let mut lossy = Lossy { shard: ptr::null(), first: None, xids: Vec::new() };
    let arg = ptr::from_mut(&mut lossy).cast();
    let (start, on_call) = (Some(start as _), Some(lose_or_answer as _));
    let table = rpcrdma_handler { arg, start, on_call, ..rpcrdma_handler::NONE };
    let rig = Rig::with(c"engine.shards = 1", &table);
    let session = session(&rig, None);
    // SAFETY: the session is the library's, and the call is used before the next.
    let (status, cause, _) = unsafe {
        let call = &mut *made(|out| rpcrdma_session_call(session, 1, out));
        check(rpcrdma_call_resend(Some(call), resend as c_int));
        check(rpcrdma_call_submit(Some(call), None));
        let mut ends = Ends::new();
        while ends.is_empty() {
            let arg: *mut c_void = ptr::from_mut(&mut ends).cast();
            assert!(rpcrdma_poll_for(session, 1 << 30, Some(note), arg) >= 0);
        }
        rpcrdma_polled_free(session);
        ends.remove(0)
    };
    // The shard ends with it.
    drop(rig);
    rpcrdma_ticket_drop(lossy.first.as_mut());
    (status, cause, lossy.xids)
}

#[test]
fn a_call_whose_connection_is_lost_is_sent_again_with_its_xid_if_it_says_so() {
    let (status, cause, xids) = lost(rpcrdma_resend::RPCRDMA_RESEND_SAME_XID);
    assert_eq!((status, cause, xids.len()), (OK, OK, 2));
    assert_eq!(xids[0], xids[1]);
    let (status, cause, xids) = lost(rpcrdma_resend::RPCRDMA_RESEND_NEVER);
    refused(status, RPCRDMA_E_CONNECTION_LOST);
    refused(cause, RPCRDMA_E_PEER_GONE);
    assert_eq!(xids.len(), 1);
}

/// How a call of a session ended: its status, its cause, and the text of its error.
type Ends = Vec<(c_int, c_int, String)>;

unsafe extern "C" fn note(arg: *mut c_void, completion: *mut rpcrdma_completion) {
    // SAFETY: both are valid in the callback.
    let (ends, done) = unsafe { (&mut *arg.cast::<Ends>(), &*completion) };
    let text = last_error();
    ends.push((done.status, done.cause, text));
}

#[test]
fn a_deadline_in_a_session_names_its_cause() {
    let mut rig = Rig::new(&ECHO);
    // There is no listener.
    for (place, byte) in rig.at.iter_mut().zip(b"127.0.0.1:1\0") {
        *place = *byte as _;
    }
    let session = session(&rig, None);
    let mut ends = Ends::new();
    let arg: *mut c_void = ptr::from_mut(&mut ends).cast();
    // SAFETY: the session is the library's, and each call is used before the next.
    unsafe {
        let mut event = std::mem::MaybeUninit::uninit();
        while rpcrdma_session_next_event(session, Some(&mut event)) != OK {
            rpcrdma_poll_for(session, 1 << 30, None, ptr::null_mut());
        }
        let call = &mut *made(|out| rpcrdma_session_call(session, 1, out));
        check(rpcrdma_call_deadline(Some(call), rpcrdma_now() + 1));
        check(rpcrdma_call_submit(Some(call), None));
        while (*arg.cast::<Ends>()).is_empty() {
            assert!(rpcrdma_poll_for(session, 1 << 30, Some(note), arg) >= 0);
        }
        rpcrdma_polled_free(session);
    }
    let (status, cause, text) = &ends[0];
    refused(*status, RPCRDMA_E_DEADLINE);
    refused(*cause, RPCRDMA_E_NO_LISTENER);
    assert!(text.contains("no listener") && text.contains("deadline"), "{text}");
}

#[test]
fn a_session_without_a_possible_address_ends_its_calls_with_the_reason() {
    let mut rig = Rig::new(&ECHO);
    // The fabric takes no such address.
    for (place, byte) in rig.at.iter_mut().zip(b"shm:/run/nothing.sock\0") {
        *place = *byte as _;
    }
    let session = session(&rig, None);
    let mut ends = Ends::new();
    let arg: *mut c_void = ptr::from_mut(&mut ends).cast();
    // SAFETY: the session is the library's, and each call is used before the next.
    unsafe {
        let call = &mut *made(|out| rpcrdma_session_call(session, 1, out));
        check(rpcrdma_call_submit(Some(call), None));
        while (*arg.cast::<Ends>()).is_empty() {
            assert!(rpcrdma_poll_for(session, 1 << 30, Some(note), arg) >= 0);
        }
        let event = made(|out| rpcrdma_session_next_event(session, out));
        assert_eq!(event.kind, rpcrdma_session_event_kind::RPCRDMA_SESSION_GIVEN_UP as i32);
        refused(event.status, RPCRDMA_E_WRONG_ADDRESS);
        let call = &mut *made(|out| rpcrdma_session_call(session, 2, out));
        refused(rpcrdma_call_submit(Some(call), None), RPCRDMA_E_WRONG_ADDRESS);
        rpcrdma_polled_free(session);
    }
    refused(ends[0].0, RPCRDMA_E_WRONG_ADDRESS);
    assert_eq!(ends[0].1, OK);
}

/// Submits a call that waits, and returns its id.
unsafe fn waiting(session: *mut rpcrdma_session) -> rpcrdma_call_id {
    // SAFETY: the session is the library's.
    let call = unsafe { &mut *made(|out| rpcrdma_session_call(session, 1, out)) };
    made(|out| rpcrdma_call_submit(Some(call), out))
}

#[test]
fn an_id_of_another_object_or_of_none_cancels_nothing() {
    let rig = Rig::new(&rpcrdma_handler::NONE);
    let sessions = [(); 2].map(|()| session(&rig, None));
    // SAFETY: the sessions and the client are the library's.
    unsafe {
        let ids = sessions.map(|session| waiting(session));
        let none = rpcrdma_call_id { words: [std::mem::MaybeUninit::new(0); 4] };
        let of_client = made(|out| rpcrdma_call_submit(Some(rig.call(1)), out));
        for (at, session) in sessions.into_iter().enumerate() {
            for id in [none, ids[1 - at], of_client] {
                refused(rpcrdma_cancel(session, id), RPCRDMA_E_INVALID);
            }
            assert_eq!(rpcrdma_session_open_calls(session), 1);
        }
        for id in [none, ids[0], ids[1]] {
            refused(rpcrdma_cancel(rig.client, id), RPCRDMA_E_INVALID);
        }
        check(rpcrdma_cancel(rig.client, of_client));
        for (session, id) in sessions.into_iter().zip(ids) {
            check(rpcrdma_cancel(session, id));
            refused(wait(session, 1)[0].status, RPCRDMA_E_CANCELLED);
            refused(rpcrdma_cancel(session, id), RPCRDMA_E_NOTHING);
            rpcrdma_polled_free(session);
        }
    }
}
