//! What a correct program does not do, and gets errors for.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;

use rpcrdma_capi::*;

use crate::rig::{ECHO, OK, Rig, check, made};

const INVALID: c_int = rpcrdma_status::RPCRDMA_E_INVALID as c_int;

/// What a server keeps of its calls.
#[derive(Default)]
struct Server {
    tickets: Vec<rpcrdma_ticket>,
    /// The results of what it did when it answered.
    results: Mutex<Vec<c_int>>,
}

fn with_server(server: &mut Server) -> rpcrdma_handler {
    rpcrdma_handler {
        arg: ptr::from_mut(server).cast(),
        on_call: Some(defer),
        on_turn: Some(resume),
        ..rpcrdma_handler::NONE
    }
}

unsafe extern "C" fn defer(
    context: *mut c_void,
    _request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: the context is the server, and the reply is valid in the callback.
    unsafe {
        let ticket = made(|out| rpcrdma_reply_defer(reply.as_mut(), out));
        (*context.cast::<Server>()).tickets.push(ticket);
    }
}

/// The shard that answers, and its server.
struct Answering {
    shard: *mut rpcrdma_shard,
    server: *mut Server,
    connection: rpcrdma_connection,
}

unsafe extern "C" fn resume(context: *mut c_void, shard: *mut rpcrdma_shard, _now: u64) {
    // SAFETY: the context is the server, and the turn is valid in the callback.
    unsafe {
        let server = context.cast::<Server>();
        while let Some(mut ticket) = (*server).tickets.pop() {
            let connection = ticket.connection;
            let mut answering = Answering { shard, server, connection };
            let arg = ptr::from_mut(&mut answering).cast();
            check(rpcrdma_ticket_resume(shard, &mut ticket, Some(answer), arg));
        }
    }
}

unsafe extern "C" fn answer(arg: *mut c_void, reply: *mut rpcrdma_reply) {
    // SAFETY: the argument is that of `resume`, and the reply is valid in the callback.
    unsafe {
        let Answering { shard, server, connection } = &*arg.cast::<Answering>();
        let payload = rpcrdma_reply_payload(reply.as_mut());
        rpcrdma_put_u32(payload, 1);
        let (mut loan, mut call) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let results = [
            rpcrdma_buffer(*shard, Some(&mut loan)),
            rpcrdma_begin_call(*shard, *connection, 1, Some(&mut call)),
        ];
        (**server).results.lock().expect("no panic").extend(results);
        rpcrdma_put_u32(rpcrdma_reply_payload(reply.as_mut()), 2);
        check(rpcrdma_reply_send(reply.as_mut()));
    }
}

#[test]
fn an_answer_cannot_use_its_shard() {
    let mut server = Server::default();
    let rig = Rig::new(&with_server(&mut server));
    rig.send(0, 0);
    let got = rig.wait(1);
    assert_eq!((got[0].status, &got[0].bytes[..]), (OK, &[0, 0, 0, 1, 0, 0, 0, 2][..]));
    drop(rig);
    assert_eq!(*server.results.lock().expect("no panic"), [INVALID, INVALID]);
}

/// A client, and the results of what its callback did with it.
struct Inside {
    client: *mut rpcrdma_client,
    kept: *mut rpcrdma_call,
    results: Vec<c_int>,
}

unsafe extern "C" fn free_inside(arg: *mut c_void, _completion: *mut rpcrdma_completion) {
    // SAFETY: the argument is that of the poll.
    unsafe {
        let inside = &mut *arg.cast::<Inside>();
        inside.results.push(rpcrdma_call_submit(inside.kept.as_mut(), None));
        rpcrdma_polled_free(inside.client);
        inside.results.push(rpcrdma_poll(inside.client, 0, None, ptr::null_mut()));
    }
}

#[test]
fn a_callback_cannot_free_its_client_nor_lose_a_refused_call() {
    let rig = Rig::new(&ECHO);
    let long = vec![0; 1 << 23];
    // SAFETY: all is that of the rig.
    unsafe {
        rig.send(0, 7);
        let mut loan = made(|out| rpcrdma_buffer(rig.client, out));
        loan.len = 4;
        let kept = ptr::from_mut(rig.call(1));
        let payload = rpcrdma_call_payload(kept.as_mut());
        check(rpcrdma_place(payload, &mut loan, 1));
        rpcrdma_put_fixed(rpcrdma_call_payload(kept.as_mut()), long.as_ptr(), long.len());
        assert!(rpcrdma_call_submit(kept.as_mut(), None) < 0);
        let mut inside = Inside { client: rig.client, kept, results: Vec::new() };
        while inside.results.is_empty() {
            let arg = ptr::from_mut(&mut inside).cast();
            assert!(rpcrdma_poll_for(rig.client, 1 << 30, Some(free_inside), arg) >= 0);
        }
        assert_eq!(inside.results, [INVALID, INVALID]);
        let mut places = [MaybeUninit::<rpcrdma_loan>::uninit()];
        let count =
            made(|out| rpcrdma_call_take_placed(kept.as_mut(), places.as_mut_ptr().cast(), 1, out));
        assert_eq!(count, 1, "its memory is there");
        rpcrdma_loan_free(Some(places[0].assume_init_mut()));
        rig.send(2, 8);
    }
    let got = rig.wait(1);
    assert_eq!((got[0].cookie, got[0].status), (2, OK));
}

#[test]
fn structures_of_no_size_are_refused() {
    let rig = Rig::new(&ECHO);
    let known = size_of::<rpcrdma_handler>();
    // Zeros follow, as in a structure of a later version.
    let mut room = [rpcrdma_handler::NONE; 64];
    for table in &mut room {
        // SAFETY: all zero is a handler without callbacks.
        *table = unsafe { MaybeUninit::zeroed().assume_init() };
    }
    let start = |size| {
        let mut room = room;
        room[0].size = size;
        // SAFETY: the handler has as many bytes as it states, or is refused.
        unsafe { rpcrdma_engine_start(rig.engine.as_mut(), room.as_ptr()) }
    };
    for size in [0, 7, 12, known - 4, known + 4, size_of_val(&room), usize::MAX - 7] {
        assert_eq!(start(size), INVALID, "{size}");
    }
    for size in [8, known - 8, known + 8] {
        assert_eq!(start(size), OK, "{size}");
    }
}

unsafe extern "C" fn stop_inside(
    context: *mut c_void,
    _request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: the context is the place of the engine, which is there.
    unsafe {
        let engine = *context.cast::<*mut rpcrdma_engine>();
        rpcrdma_engine_free(engine);
        let stopped = rpcrdma_engine_stop(engine.as_mut());
        rpcrdma_put_u32(rpcrdma_reply_payload(reply.as_mut()), stopped as u32);
        check(rpcrdma_reply_send(reply.as_mut()));
    }
}

#[test]
fn a_shard_cannot_wait_for_its_own_end() {
    let mut engine: *mut rpcrdma_engine = ptr::null_mut();
    let arg = ptr::from_mut(&mut engine).cast();
    let table = rpcrdma_handler { arg, on_call: Some(stop_inside), ..rpcrdma_handler::NONE };
    let rig = Rig::new(&table);
    engine = rig.engine;
    rig.send(0, 0);
    assert_eq!(rig.wait(1)[0].bytes, (INVALID as u32).to_be_bytes());
    // SAFETY: the engine is there.
    unsafe {
        let shard = rpcrdma_engine_shard(engine.as_ref(), 0);
        let running = rpcrdma_state::RPCRDMA_RUNNING as c_int;
        assert_eq!(rpcrdma_handle_state(shard.as_ref()), running);
    }
}
