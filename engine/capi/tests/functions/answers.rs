//! Answers of servers: at once, later, elsewhere, twice, never.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{OK, Rig, bytes, check, made, refused};

/// Answers by what the last byte of the call says.
unsafe extern "C" fn answer(
    _context: *mut c_void,
    request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: all are valid in the callback.
    let (request, reply) = unsafe { (&*request, &mut *reply) };
    match bytes(request.bytes) {
        [.., status, b'd'] => {
            let code = rpcrdma_reply_deny(Some(reply), c_int::from(*status));
            assert_eq!(code == OK, b"\x01\x03\x04\x05".contains(status), "{status}");
        }
        [.., b'h'] => {
            rpcrdma_put_reply_header(rpcrdma_reply_payload(Some(reply)));
            check(rpcrdma_reply_send(Some(reply)));
        }
        [.., b'2'] => {
            // SAFETY: there are so many bytes.
            check(unsafe { rpcrdma_reply_send_results(Some(reply), b"2".as_ptr(), 1) });
            refused(rpcrdma_reply_send(Some(reply)), RPCRDMA_E_INVALID);
            refused(rpcrdma_reply_refuse(Some(reply)), RPCRDMA_E_INVALID);
            refused(rpcrdma_reply_try_send(Some(reply)), RPCRDMA_E_INVALID);
            refused(rpcrdma_reply_deny(Some(reply), 5), RPCRDMA_E_INVALID);
            refused(rpcrdma_reply_operation(Some(reply), 0), RPCRDMA_E_INVALID);
            assert!(rpcrdma_reply_payload(Some(reply)).is_none());
        }
        [.., b'r'] => check(rpcrdma_reply_refuse(Some(reply))),
        [.., b't'] => check(rpcrdma_reply_try_send(Some(reply))),
        // No answer.
        _ => {}
    }
}

#[test]
fn a_second_answer_is_refused_and_none_refuses_the_call() {
    let rig = Rig::new(&rpcrdma_handler { on_call: Some(answer), ..rpcrdma_handler::NONE });
    let twice = rig.ask(b"___2");
    // The header of an accepted reply, its results and their padding.
    assert_eq!((twice.status, &twice.bytes[16..]), (OK, &b"2\0\0\0"[..]));
    assert_eq!(rig.ask(b"___t").status, OK);
    refused(rig.ask(b"___r").status, RPCRDMA_E_CALL_REJECTED);
    refused(rig.ask(b"___-").status, RPCRDMA_E_CALL_REJECTED);
    assert_eq!(rig.ask(b"___t").status, OK, "the server goes on");
}

#[test]
fn a_reply_without_results_states_why() {
    let rig = Rig::new(&rpcrdma_handler { on_call: Some(answer), ..rpcrdma_handler::NONE });
    // Accepted, with AUTH_NONE, and the status.
    let header = |status| [[0; 15].as_slice(), &[status]].concat();
    for status in [1, 3, 4, 5] {
        let denied = rig.ask(&[0, 0, status, b'd']);
        assert_eq!((denied.status, denied.bytes), (OK, header(status)));
    }
    for status in [0, 2, 6] {
        refused(rig.ask(&[0, 0, status, b'd']).status, RPCRDMA_E_CALL_REJECTED);
    }
    assert_eq!(rig.ask(b"___h").bytes, header(0));
}

unsafe extern "C" fn on_close(
    context: *mut c_void,
    _connection: rpcrdma_connection,
    status: c_int,
) {
    // SAFETY: the test passes it.
    unsafe { &*context.cast::<AtomicI32>() }.store(status, Ordering::SeqCst);
}

#[test]
fn the_end_of_a_connection_is_reported_with_its_reason() {
    let status = AtomicI32::new(OK);
    let arg = ptr::from_ref(&status).cast_mut().cast();
    let handler = rpcrdma_handler { arg, on_close: Some(on_close), ..rpcrdma_handler::NONE };
    // The engine stops at the end, if the connection is not closed yet.
    drop(Rig::new(&handler));
    let reasons = [RPCRDMA_E_PEER_GONE, RPCRDMA_E_SHARD_STOPPED];
    let status = status.into_inner();
    assert!(reasons.iter().any(|reason| reason.number() == status), "{status}");
}

#[test]
fn a_handler_without_callbacks_refuses_calls() {
    refused(Rig::new(&rpcrdma_handler::NONE).ask(b"call").status, RPCRDMA_E_CALL_REJECTED);
}

/// What a shard passes to another thread.
struct Late {
    ticket: rpcrdma_ticket,
    shard: *mut rpcrdma_handle,
}

// SAFETY: the header states that any thread may use both.
unsafe impl Send for Late {}

/// The context of a shard.
struct Keeper {
    shard: *const rpcrdma_handle,
    later: Sender<Late>,
}

unsafe extern "C" fn start(arg: *mut c_void, shard: *const rpcrdma_handle) -> *mut c_void {
    // SAFETY: the argument is that of the test.
    let later = unsafe { &*arg.cast::<Sender<Late>>() }.clone();
    Box::into_raw(Box::new(Keeper { shard, later })).cast()
}

unsafe extern "C" fn end(context: *mut c_void) {
    // SAFETY: it is from `start`.
    drop(unsafe { Box::from_raw(context.cast::<Keeper>()) });
}

unsafe extern "C" fn defer(
    context: *mut c_void,
    _request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: all are valid in the callback.
    unsafe {
        let keeper = &*context.cast::<Keeper>();
        let ticket = made(|out| rpcrdma_reply_defer(reply.as_mut(), out));
        refused(rpcrdma_reply_send(reply.as_mut()), RPCRDMA_E_INVALID);
        let shard = rpcrdma_handle_clone(keeper.shard.as_ref());
        keeper.later.send(Late { ticket, shard }).expect("the test is there");
    }
}

/// `other` is the handle of another shard.
fn finish_all(calls: &Receiver<Late>, mut data: Vec<rpcrdma_loan>, other: *const rpcrdma_handle) {
    while let Ok(Late { mut ticket, shard }) = calls.recv() {
        let bulk = data.pop();
        let mut bulk: Vec<rpcrdma_loan> = bulk.into_iter().collect();
        let finished = rpcrdma_finished {
            size: size_of::<rpcrdma_finished>(),
            head: rpcrdma_slice { data: b"head".as_ptr(), len: 4 },
            bulk: bulk.as_mut_ptr(),
            bulk_count: bulk.len(),
            tail: rpcrdma_slice { data: b"tail".as_ptr(), len: 4 },
            origin: 0,
            reserved: 0,
        };
        // SAFETY: the handle is a clone, and `finished` points to this function's.
        unsafe {
            assert_ne!(ticket.xid, 0);
            let later = rpcrdma_finished { reserved: 1, ..finished };
            let number = rpcrdma_handle_finish(shard.as_ref(), Some(&mut ticket), &later);
            refused(number, RPCRDMA_E_INVALID);
            let number = rpcrdma_handle_finish(other.as_ref(), Some(&mut ticket), &finished);
            refused(number, RPCRDMA_E_NO_PEER);
            assert!(bulk.iter().all(|loan| !loan.data.is_null()), "the loans are back");
            check(rpcrdma_handle_finish(shard.as_ref(), Some(&mut ticket), &finished));
            assert!(bulk.iter().all(|loan| loan.data.is_null()), "the loans were given away");
            let number = rpcrdma_handle_finish(shard.as_ref(), Some(&mut ticket), &finished);
            refused(number, RPCRDMA_E_INVALID);
            assert_eq!(ticket.xid, 0);
            rpcrdma_handle_free(shard);
        }
    }
}

#[test]
fn another_thread_answers_by_a_ticket() {
    let (later, calls) = channel();
    let arg = ptr::from_ref(&later).cast_mut().cast();
    let (start, end) = (Some(start as _), Some(end as _));
    let handler =
        rpcrdma_handler { arg, start, end, on_call: Some(defer), ..rpcrdma_handler::NONE };
    let rig = Rig::new(&handler);
    drop(later);
    let loan = rig.buffer(&[9; 64]);
    struct Moved {
        data: Vec<rpcrdma_loan>,
        other: *mut rpcrdma_handle,
    }
    // SAFETY: the header states that any thread may own a loan, and use a handle.
    unsafe impl Send for Moved {}
    // SAFETY: the rig has a client.
    let other = unsafe { rpcrdma_handle_clone(rpcrdma_handle_of(rig.client).as_ref()) };
    let moved = Moved { data: vec![loan], other };
    let thread = std::thread::spawn(move || {
        let Moved { data, other } = { moved };
        finish_all(&calls, data, other);
        // SAFETY: it is a clone, and not used any more.
        unsafe { rpcrdma_handle_free(other) };
    });
    let call = rig.call(1);
    check(rpcrdma_call_want(Some(call), 0, 64));
    check(rpcrdma_call_submit(Some(call), None));
    let got = rig.wait(1).pop().expect("one was waited for");
    assert_eq!((got.status, got.placed), (OK, vec![9; 64]));
    assert_eq!(got.bytes, b"head\0\0\0\x40tail");
    let call = rig.call(2);
    check(rpcrdma_call_submit(Some(call), None));
    assert_eq!(rig.wait(1)[0].bytes, b"headtail");
    drop(rig);
    thread.join().expect("it does not panic");
}

/// What a program keeps that polls its shard.
#[derive(Default)]
struct Turns {
    tickets: Vec<rpcrdma_ticket>,
    answered: usize,
    /// The time of the last turn.
    now: u64,
}

unsafe extern "C" fn keep(
    context: *mut c_void,
    _request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: all are valid in the callback.
    unsafe {
        let ticket = made(|out| rpcrdma_reply_defer(reply.as_mut(), out));
        (*context.cast::<Turns>()).tickets.push(ticket);
    }
}

unsafe extern "C" fn resume(context: *mut c_void, shard: *mut rpcrdma_shard, now: u64) {
    unsafe extern "C" fn answer(arg: *mut c_void, reply: *mut rpcrdma_reply) {
        // SAFETY: both are valid in the callback.
        unsafe {
            rpcrdma_put_u32(rpcrdma_reply_payload(reply.as_mut()), 6);
            check(rpcrdma_reply_send(reply.as_mut()));
            *arg.cast::<usize>() += 1;
        }
    }
    // SAFETY: all are valid in the callback.
    unsafe {
        let turns = &mut *context.cast::<Turns>();
        turns.now = now;
        let arg = ptr::from_mut(&mut turns.answered).cast();
        for mut ticket in turns.tickets.drain(..) {
            assert!(rpcrdma_ticket_is_open(shard, Some(&ticket)));
            check(rpcrdma_ticket_resume(shard, &mut ticket, Some(answer), arg));
            let again = rpcrdma_ticket_resume(shard, &mut ticket, Some(answer), arg);
            refused(again, RPCRDMA_E_INVALID);
            assert!(!rpcrdma_ticket_is_open(shard, Some(&ticket)));
        }
    }
}

#[test]
fn one_thread_steps_the_engine_and_polls_both_ends() {
    let mut turns = Turns::default();
    let arg = ptr::from_mut(&mut turns).cast();
    let handler = rpcrdma_handler {
        arg,
        on_call: Some(keep),
        on_turn: Some(resume),
        ..rpcrdma_handler::NONE
    };
    // SAFETY: all pointers are those that the library gave, or to objects of this function.
    unsafe {
        let options = rpcrdma_engine_options { is_stepped: true, ..rpcrdma_engine_options::NONE };
        let engine = made(|out| rpcrdma_engine_new(None, &options, out));
        let shard = made(|out| rpcrdma_shard_new(engine.as_mut(), &handler, out));
        let client = made(|out| rpcrdma_client_new(engine.as_mut(), out));
        let mut at = [0 as c_char; 64];
        let any = c"127.0.0.1:0".as_ptr();
        check(rpcrdma_engine_listen(engine.as_mut(), any, at.as_mut_ptr(), at.len()));
        let attempt = made(|out| rpcrdma_begin_connect(client, at.as_ptr(), out));
        let mut got: Vec<crate::rig::Got> = Vec::new();
        let step = |got: &mut Vec<_>| {
            check(rpcrdma_engine_step(engine.as_mut(), 0));
            let now = rpcrdma_now();
            assert!(rpcrdma_poll(shard, now, None, ptr::null_mut()) >= 0);
            assert_eq!((*arg.cast::<Turns>()).now, now);
            let got = ptr::from_mut(got).cast();
            assert!(rpcrdma_poll(client, now, Some(crate::rig::collect), got) >= 0);
        };
        let mut place = std::mem::MaybeUninit::uninit();
        let connection = loop {
            step(&mut got);
            match rpcrdma_connected(client, attempt, Some(&mut place)) {
                OK => break place.assume_init(),
                pending => refused(pending, RPCRDMA_E_PENDING),
            }
        };
        check(rpcrdma_send(client, connection, 5, b"call".as_ptr(), 4, 0));
        while got.is_empty() {
            step(&mut got);
        }
        assert_eq!((got[0].cookie, got[0].bytes.as_slice()), (5, &[0, 0, 0, 6][..]));
        assert_eq!(turns.answered, 1);
        let state = || rpcrdma_handle_state(rpcrdma_handle_of(shard).as_ref());
        assert_eq!(state(), rpcrdma_state::RPCRDMA_RUNNING as c_int);
        check(rpcrdma_handle_stop(rpcrdma_handle_of(shard).as_ref()));
        assert_eq!(state(), rpcrdma_state::RPCRDMA_STOPPING as c_int);
        rpcrdma_polled_free(client);
        rpcrdma_polled_free(shard);
        rpcrdma_engine_free(engine);
    }
}

unsafe extern "C" fn admit(context: *mut c_void, request: *const rpcrdma_connect_request) -> c_int {
    // SAFETY: all are valid in the callback.
    unsafe {
        let origin = std::ffi::CStr::from_ptr((*request).origin);
        assert_eq!(origin, c"127.0.0.1");
        *context.cast::<c_int>()
    }
}

#[test]
fn a_handler_admits_or_refuses_connections() {
    let mut answer: c_int = 0;
    let arg = ptr::from_mut(&mut answer).cast();
    let rig = Rig::new(&rpcrdma_handler { arg, admit: Some(admit), ..rpcrdma_handler::NONE });
    // SAFETY: the server reads it when a peer connects, which this thread waits for.
    unsafe { *arg.cast::<c_int>() = 7 };
    let mut place = std::mem::MaybeUninit::uninit();
    // SAFETY: the client and the address are the rig's.
    let number = unsafe { rpcrdma_connect(rig.client, rig.at.as_ptr(), Some(&mut place)) };
    refused(number, RPCRDMA_E_REFUSED);
    assert!(crate::rig::last_error().contains("code 7"));
}
