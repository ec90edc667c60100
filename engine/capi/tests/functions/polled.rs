//! What a shard, a client and a session do alike, and what only one of them does.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{ECHO, Rig, check, made, refused};

const INVALID: c_int = RPCRDMA_E_INVALID as c_int;

/// A shard, a client and a session on the engine of a rig.
fn all_of(rig: &Rig) -> [*mut rpcrdma_polled; 3] {
    let addresses = [rig.at.as_ptr()];
    // SAFETY: all pointers are those that the library gave, or to objects of this function.
    unsafe {
        let engine = || rig.engine.as_mut();
        [
            made(|out| rpcrdma_shard_new(engine(), &ECHO, out)),
            made(|out| rpcrdma_client_new(engine(), out)),
            made(|out| rpcrdma_session_new(engine(), addresses.as_ptr(), 1, ptr::null(), out)),
        ]
    }
}

#[test]
fn each_is_polled_waited_for_and_armed_by_the_same_functions() {
    let rig = Rig::new(&ECHO);
    for polled in all_of(&rig) {
        // SAFETY: it is the library's, and freed once.
        unsafe {
            let poll = || rpcrdma_poll(polled, rpcrdma_now(), None, ptr::null_mut());
            while poll() != 0 {}
            assert!(rpcrdma_fd(polled) > 2);
            assert_ne!(rpcrdma_handle_number(rpcrdma_handle_of(polled).as_ref()), 0);
            assert!(!rpcrdma_is_stopped(polled));
            check(rpcrdma_wait(polled, 1));
            assert!(rpcrdma_idle(polled, 0, rpcrdma_now(), 1) >= 0);
            assert!(rpcrdma_poll_for(polled, 1, None, ptr::null_mut()) >= 0);
            let mut most = MaybeUninit::uninit();
            while rpcrdma_arm(polled, rpcrdma_now(), Some(&mut most)) == 0 {
                assert!(poll() >= 0);
            }
            assert!(most.assume_init() > 0);
            let mut loan = made(|out| rpcrdma_buffer(polled, out));
            check(rpcrdma_release(polled, Some(&mut loan)));
            rpcrdma_polled_free(polled);
        }
    }
}

#[test]
fn what_only_one_of_them_does_is_refused_by_the_others() {
    let rig = Rig::new(&ECHO);
    let (to, none) = (rig.at.as_ptr(), rpcrdma_connection { id: 0 });
    let (mut call, mut attempt) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let (mut connection, mut event) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let refusals = all_of(&rig).map(|polled| {
        // SAFETY: it is the library's, and freed once; the address is a text.
        let numbers = unsafe {
            [
                rpcrdma_connect(polled, to, Some(&mut connection)),
                rpcrdma_begin_connect(polled, to, Some(&mut attempt)),
                rpcrdma_connected(polled, 7, Some(&mut connection)),
                rpcrdma_begin_call(polled, none, 1, Some(&mut call)),
                rpcrdma_send(polled, none, 1, ptr::null(), 0, 0),
                rpcrdma_session_next_event(polled, Some(&mut event)),
                rpcrdma_session_close(polled),
                rpcrdma_session_call(polled, 1, Some(&mut call)),
            ]
        };
        // SAFETY: as above.
        unsafe { rpcrdma_polled_free(polled) };
        numbers.map(|number| number == INVALID)
    });
    let [shard, client, session] = refusals;
    assert_eq!(shard, [true, false, true, false, false, true, true, true]);
    assert_eq!(client, [false, false, false, false, false, true, true, true]);
    assert_eq!(session, [true, true, true, true, true, false, false, false]);
}

#[test]
fn a_shard_runs_until_it_is_stopped_and_a_client_does_not_run() {
    let rig = Rig::new(&ECHO);
    // SAFETY: both are the library's, and freed once.
    unsafe {
        refused(rpcrdma_run(rig.client), RPCRDMA_E_INVALID);
        let shard = made(|out| rpcrdma_shard_new(rig.engine.as_mut(), &ECHO, out));
        check(rpcrdma_handle_stop(rpcrdma_handle_of(shard).as_ref()));
        check(rpcrdma_run(shard));
        assert!(rpcrdma_is_stopped(shard));
        rpcrdma_polled_free(shard);
    }
}

/// What a turn has found out.
struct Found {
    results: Vec<c_int>,
    number: u32,
    limits: rpcrdma_limits,
    peer: Cell<rpcrdma_connection>,
}

unsafe extern "C" fn look(context: *mut c_void, shard: *mut rpcrdma_shard, now: u64) {
    // SAFETY: the context is that of the handler, and the shard is valid in the callback.
    unsafe {
        let found = &mut *context.cast::<Found>();
        let peer = found.peer.get();
        if peer.id == 0 || !found.results.is_empty() {
            return;
        }
        found.results.extend([
            rpcrdma_poll(shard, now, None, ptr::null_mut()),
            rpcrdma_poll_for(shard, 1, None, ptr::null_mut()),
            rpcrdma_wait(shard, 1),
            rpcrdma_idle(shard, 0, now, 1),
            rpcrdma_arm(shard, now, Some(&mut MaybeUninit::uninit())),
            rpcrdma_run(shard),
        ]);
        rpcrdma_polled_free(shard);
        let mut loan = made(|out| rpcrdma_buffer(shard, out));
        check(rpcrdma_release(shard, Some(&mut loan)));
        found.limits = made(|out| rpcrdma_peer_limits(shard, peer, out));
        let mut text = [0; RPCRDMA_ADDRESS_MAX];
        check(rpcrdma_peer_address(shard, peer, text.as_mut_ptr(), text.len()));
        found.number = rpcrdma_handle_number(rpcrdma_handle_of(shard).as_ref());
    }
}

unsafe extern "C" fn note_peer(
    context: *mut c_void,
    request: *const rpcrdma_request,
    _reply: *mut rpcrdma_reply,
) {
    // SAFETY: the context is that of the handler, and the request is valid in the callback.
    unsafe { (*context.cast::<Found>()).peer.set((*request).connection) };
}

#[test]
fn a_shard_in_its_turn_is_used_but_not_polled() {
    let mut found = Found {
        results: Vec::new(),
        number: 0,
        // SAFETY: all zero are numbers and `false`.
        limits: unsafe { MaybeUninit::zeroed().assume_init() },
        peer: Cell::new(rpcrdma_connection { id: 0 }),
    };
    let arg = ptr::from_mut(&mut found).cast();
    let (on_call, on_turn) = (Some(note_peer as _), Some(look as _));
    let rig = Rig::with(
        c"engine.shards = 1",
        &rpcrdma_handler { arg, on_call, on_turn, ..rpcrdma_handler::NONE },
    );
    rig.ask(b"call");
    // SAFETY: the engine is there.
    let server = unsafe { rpcrdma_engine_shard(rig.engine.as_ref(), 0).as_ref() };
    let number = rpcrdma_handle_number(server);
    // SAFETY: as above; it waits for the last turn.
    check(rpcrdma_engine_stop(unsafe { rig.engine.as_mut() }));
    assert_eq!((&found.results[..], found.number), (&[INVALID; 6][..], number));
    assert!(found.limits.version > 0 && found.limits.credits > 0);
}
