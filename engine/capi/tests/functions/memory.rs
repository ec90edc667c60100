//! What stays with the program: handles, names, refused calls, loans, memory behind results.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::*;

use crate::rig::{ECHO, Got, OK, Rig, check, collect, last_error, made};

const INVALID: c_int = rpcrdma_status::RPCRDMA_E_INVALID as c_int;

/// The header says how much.
#[test]
fn everything_is_made_on_the_stack_that_the_header_states() {
    let stack = std::thread::Builder::new().stack_size(512 << 10);
    let thread = stack.spawn(|| {
        let rig = Rig::new(&ECHO);
        assert_eq!(rig.ask(b"little room!").bytes, b"little room!");
    });
    thread.expect("a thread").join().expect("no panic");
}

#[test]
fn a_handle_of_a_shard_stays_when_more_shards_start() {
    let table = ECHO;
    let rig = Rig::new(&table);
    // SAFETY: the engine is there.
    unsafe {
        let first = rpcrdma_engine_shard(rig.engine.as_ref(), 0);
        for _ in 0..5 {
            check(rpcrdma_engine_start(rig.engine.as_mut(), &table));
        }
        assert_eq!(rpcrdma_engine_shard(rig.engine.as_ref(), 0), first);
        assert_eq!(rpcrdma_handle_state(first.as_ref()), OK);
    }
}

#[test]
fn no_connection_has_the_name_of_none() {
    let mut rig = Rig::new(&ECHO);
    // Each takes the place of the last; its generation wraps.
    for _ in 0..4 {
        assert_ne!(rig.connection.id, 0);
        rig.send(1, 1);
        rig.wait(1);
        // SAFETY: the client is there.
        unsafe {
            let handle = rpcrdma_handle_of(rig.client);
            check(rpcrdma_handle_close(handle.as_ref(), rig.connection));
            while rpcrdma_handle_connections(handle.as_ref()) > 0 {
                assert!(rpcrdma_poll_for(rig.client, 1 << 20, None, ptr::null_mut()) >= 0);
            }
            rig.connection = made(|out| rpcrdma_connect(rig.client, rig.at.as_ptr(), out));
        }
    }
}

/// Keeps the rights to answer, and the xids.
#[derive(Default)]
struct Waiting {
    tickets: Vec<rpcrdma_ticket>,
    xids: Vec<u32>,
}

unsafe extern "C" fn keep(
    context: *mut c_void,
    request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: the context is that of the handler; the others are valid in the callback.
    unsafe {
        let waiting = &mut *context.cast::<Waiting>();
        waiting.xids.push((*request).xid);
        waiting.tickets.push(made(|out| rpcrdma_reply_defer(reply.as_mut(), out)));
    }
}

#[test]
fn a_refused_call_keeps_its_xid_and_deadline_and_a_ticket_its_shard() {
    const XID: u32 = 0x0012_3456;
    const SOON: u64 = 1 << 31;
    const LONG: [u8; 2 * RPCRDMA_FINISHED_HEAD_LEN] = [7; 2 * RPCRDMA_FINISHED_HEAD_LEN];
    let clock = Cell::new(1 << 30);
    let mut waiting = Waiting::default();
    let arg = ptr::from_mut(&mut waiting).cast();
    let table = rpcrdma_handler { arg, on_call: Some(keep), ..rpcrdma_handler::NONE };
    // SAFETY: all is that of this test; the program polls the shard and the client in turn.
    unsafe {
        let config = made(|out| rpcrdma_config_parse(ptr::null(), out));
        let engine = made(|out| rpcrdma_engine_new(config.as_ref(), ptr::null(), out));
        rpcrdma_config_free(config);
        let shard = made(|out| rpcrdma_shard_new(engine.as_mut(), &table, out));
        let mut at = [0; 128];
        let to = c"127.0.0.1:0".as_ptr();
        check(rpcrdma_engine_listen(engine.as_mut(), to, at.as_mut_ptr(), at.len()));
        let client = made(|out| rpcrdma_client_new(engine.as_mut(), out));
        let attempt = made(|out| rpcrdma_begin_connect(client, at.as_ptr(), out));
        let mut got: Vec<Got> = Vec::new();
        let arg: *mut c_void = ptr::from_mut(&mut got).cast();
        let poll = || {
            assert!(
                rpcrdma_poll(shard, rpcrdma_now(), None, ptr::null_mut()) >= 0,
                "{}",
                last_error()
            );
            assert!(rpcrdma_poll(client, clock.get(), Some(collect), arg) >= 0);
        };
        let mut place = MaybeUninit::uninit();
        while rpcrdma_connected(client, attempt, Some(&mut place)) != OK {
            poll();
        }
        let name = place.assume_init();
        let mut refused = OK;
        let mut cookie = 0;
        let mut call = ptr::null_mut();
        while refused == OK {
            call = made(|out| rpcrdma_begin_call(client, name, cookie, out));
            rpcrdma_put_u64(rpcrdma_call_payload(call.as_mut()), cookie);
            check(rpcrdma_call_xid(call.as_mut(), XID + cookie as u32));
            check(rpcrdma_call_deadline(call.as_mut(), SOON));
            refused = rpcrdma_call_submit(call.as_mut(), None);
            cookie += 1;
            assert!(cookie < 1000);
        }
        assert!(rpcrdma_is_transient(refused), "{}", last_error());
        let calls = cookie as usize;
        while waiting.tickets.len() < calls - 1 {
            poll();
        }
        let handle = rpcrdma_handle_of(shard);
        let finished = rpcrdma_finished {
            size: size_of::<rpcrdma_finished>(),
            // Longer than what is kept in place.
            head: rpcrdma_slice { data: LONG.as_ptr(), len: LONG.len() },
            bulk: ptr::null_mut(),
            bulk_count: 0,
            tail: rpcrdma_slice { data: ptr::null(), len: 0 },
            origin: 0,
            reserved: 0,
        };
        for ticket in &mut waiting.tickets {
            check(rpcrdma_handle_finish(handle.as_ref(), Some(ticket), &finished));
        }
        while got.len() < calls - 1 {
            poll();
        }
        assert!(got.iter().all(|got| got.bytes == LONG));
        check(rpcrdma_call_submit(call.as_mut(), None));
        while waiting.xids.len() < calls {
            poll();
        }
        assert_eq!(waiting.xids[calls - 1], XID + calls as u32 - 1);
        clock.set(2 * SOON);
        while got.len() < calls {
            poll();
        }
        let last = &got[calls - 1];
        let late = rpcrdma_status::RPCRDMA_E_DEADLINE as c_int;
        let unknown = rpcrdma_execution::RPCRDMA_MAY_BE_EXECUTED as c_int;
        assert_eq!((last.cookie, last.status, last.execution), (calls as u64 - 1, late, unknown));

        let mut ticket = waiting.tickets.pop().expect("that of the last call");
        let other = rpcrdma_handle_of(client);
        // Whatever is refused, the loans stay with the program.
        let mut loans = [(); 2].map(|()| made(|out| rpcrdma_buffer(client, out)));
        let kept = loans.each_ref().map(|loan| loan.data);
        let bulk_count = loans.len();
        let finished = rpcrdma_finished { bulk: loans.as_mut_ptr(), bulk_count, ..finished };
        let refused = rpcrdma_handle_finish(other.as_ref(), Some(&mut ticket), &finished);
        assert_eq!(refused, rpcrdma_status::RPCRDMA_E_NO_PEER as c_int);
        assert_eq!(loans.each_ref().map(|loan| loan.data), kept);
        let handle = rpcrdma_handle_clone(handle.as_ref());
        rpcrdma_polled_free(shard);
        let refused = rpcrdma_handle_finish(handle.as_ref(), Some(&mut ticket), &finished);
        assert_eq!(refused, rpcrdma_status::RPCRDMA_E_STOPPED as c_int);
        assert_eq!(loans.each_ref().map(|loan| loan.data), kept);
        loans.iter_mut().for_each(|loan| rpcrdma_loan_free(Some(loan)));
        rpcrdma_ticket_drop(Some(&mut ticket));
        rpcrdma_handle_free(handle);
        rpcrdma_polled_free(client);
        rpcrdma_engine_free(engine);
    }
}

#[test]
fn a_message_without_room_takes_all_loans() {
    let config = c"app.bulk.count = 40\napp.bulk.length = \"4KiB\"\n";
    let rig = Rig::with(config, &ECHO);
    // SAFETY: all is that of the rig.
    unsafe {
        for _ in 0..2 {
            let mut loans: Vec<rpcrdma_loan> =
                (0..40).map(|_| made(|out| rpcrdma_buffer(rig.client, out))).collect();
            let call = ptr::from_mut(rig.call(1));
            let payload = rpcrdma_call_payload(call.as_mut());
            check(rpcrdma_place(payload, loans.as_mut_ptr(), loans.len()));
            assert!(loans.iter().all(|loan| loan.data.is_null()));
            let refused = rpcrdma_call_submit(call.as_mut(), None);
            assert_eq!(refused, rpcrdma_status::RPCRDMA_E_TOO_MANY_PIECES as c_int);
            check(rpcrdma_call_discard(call.as_mut()));
            // What was dropped returns.
            assert!(rpcrdma_poll(rig.client, 0, None, ptr::null_mut()) >= 0);
        }
    }
}

#[test]
fn results_leave_the_memory_behind_them_alone() {
    let message = [0, 0, 0, 3, 7, 8, 9, 0];
    let bytes = rpcrdma_slice { data: message.as_ptr(), len: message.len() };
    // SAFETY: the message stays.
    unsafe {
        let mut reader = made(|out| rpcrdma_reader_init_bytes(out, bytes));
        let mut out = [0xAA; 8];
        let len =
            made(|len| rpcrdma_get_opaque(Some(&mut reader), out.as_mut_ptr(), out.len(), len));
        assert_eq!((len, out), (3, [7, 8, 9, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA]));
        assert_eq!(rpcrdma_reader_position(Some(&reader)), 8);
    }
}

#[test]
fn an_address_that_is_cut_off_is_listened_on() {
    let rig = Rig::new(&ECHO);
    // The port of the software fabric, which no other engine shares.
    let listen = |text: &mut [c_char]| {
        let at = c"192.0.2.1:20049".as_ptr();
        // SAFETY: the engine is there, and the text has so many bytes.
        unsafe { rpcrdma_engine_listen(rig.engine.as_mut(), at, text.as_mut_ptr(), text.len()) }
    };
    let mut text = [1; 5];
    assert_eq!(listen(&mut text), rpcrdma_status::RPCRDMA_E_TRUNCATED as c_int);
    assert_eq!(text.map(|byte| byte as u8), *b"192.\0");
    let again = listen(&mut [1; RPCRDMA_ADDRESS_MAX]);
    assert_eq!(again, rpcrdma_status::RPCRDMA_E_LISTEN as c_int);
}

#[test]
fn a_session_states_why_it_is_not_made() {
    let rig = Rig::new(&ECHO);
    let mut session = MaybeUninit::uninit();
    let mut new = |at: *const c_char| {
        let count = usize::from(!at.is_null());
        let (engine, session) = (rig.engine, Some(&mut session));
        // SAFETY: the engine is the rig's, and there are so many addresses.
        unsafe { rpcrdma_session_new(engine.as_mut(), &at, count, ptr::null(), session) }
    };
    assert_eq!(new(c"nonsense".as_ptr()), rpcrdma_status::RPCRDMA_E_ADDRESS as c_int);
    assert_eq!(new(ptr::null()), rpcrdma_status::RPCRDMA_E_CONFIG as c_int);
}

#[test]
fn counters_are_counted_where_there_is_no_room_for_them() {
    let rig = Rig::new(&ECHO);
    // SAFETY: the client and the engine are there, and the places are as many as is said.
    unsafe {
        let handle = rpcrdma_handle_of(rig.client).as_ref();
        let all = made(|out| rpcrdma_handle_stats(handle, ptr::null_mut(), 0, out));
        assert!(all > 1, "{all}");
        let mut one = MaybeUninit::uninit();
        assert_eq!(made(|out| rpcrdma_handle_stats(handle, one.as_mut_ptr(), 1, out)), all);
        let first: rpcrdma_counter = one.assume_init();
        let value = made(|out| rpcrdma_handle_counter(handle, first.name, out));
        assert_eq!(value, first.value);
        let engine = rig.engine.as_ref();
        let all = made(|out| rpcrdma_engine_stats(engine, ptr::null_mut(), 0, out));
        assert_eq!(all, 8);
    }
}

#[test]
fn data_that_are_too_long_state_their_length() {
    let message = [0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let bytes = rpcrdma_slice { data: message.as_ptr(), len: message.len() };
    // SAFETY: the message stays.
    unsafe {
        let mut reader = made(|out| rpcrdma_reader_init_bytes(out, bytes));
        let (mut out, mut len) = ([0xAA; 4], MaybeUninit::uninit());
        let read =
            rpcrdma_get_opaque(Some(&mut reader), out.as_mut_ptr(), out.len(), Some(&mut len));
        assert_eq!(read, rpcrdma_status::RPCRDMA_E_OPAQUE_TOO_LONG as c_int);
        assert_eq!((len.assume_init(), rpcrdma_reader_position(Some(&reader))), (8, 4));
    }
}

#[test]
fn values_are_read_as_they_were_written() {
    let rig = Rig::new(&ECHO);
    // SAFETY: all is that of the rig and of this test.
    unsafe {
        let call = ptr::from_mut(rig.call(1));
        let payload = || rpcrdma_call_payload(call.as_mut());
        rpcrdma_put_u32(payload(), 2);
        rpcrdma_put_u32(payload(), 1);
        rpcrdma_put_u32(payload(), 0);
        for text in ["a name", "", "n\0l", "a name"] {
            rpcrdma_put_opaque(payload(), text.as_ptr(), text.len());
        }
        rpcrdma_put_fixed(payload(), b"fixed".as_ptr(), 5);
        rpcrdma_put_u32(payload(), 2);
        check(rpcrdma_call_submit(call.as_mut(), None));
        let got = rig.wait(1).pop().expect("one was waited for");
        let slice = rpcrdma_slice { data: got.bytes.as_ptr(), len: got.bytes.len() };
        let mut reader = made(|out| rpcrdma_reader_init_bytes(out, slice));
        assert_eq!(made(|out| rpcrdma_get_u32(Some(&mut reader), out)), 2);
        let bools = [(); 2].map(|()| made(|out| rpcrdma_get_bool(Some(&mut reader), out)));
        assert_eq!(bools, [true, false]);
        let mut place = [1 as c_char; 7];
        let (to, room) = (place.as_mut_ptr(), place.len());
        for text in [c"a name", c""] {
            check(rpcrdma_get_string(Some(&mut reader), to, room));
            assert_eq!(CStr::from_ptr(to), text);
        }
        let other = rpcrdma_get_string(Some(&mut reader), to, room);
        assert_eq!(other, rpcrdma_status::RPCRDMA_E_OTHER as c_int);
        assert!(last_error().contains("NUL at byte 1"), "{}", last_error());
        let long = rpcrdma_get_string(Some(&mut reader), to, room - 1);
        assert_eq!(long, rpcrdma_status::RPCRDMA_E_OPAQUE_TOO_LONG as c_int);
        assert_eq!(rpcrdma_get_string(Some(&mut reader), to, 0), INVALID);
        let mut raw = [0; 6];
        check(rpcrdma_get_bytes(Some(&mut reader), raw.as_mut_ptr(), raw.len()));
        assert_eq!(&raw, b"a name");
        check(rpcrdma_skip(Some(&mut reader), 2));
        let mut fixed = [0; 5];
        check(rpcrdma_get_fixed(Some(&mut reader), fixed.as_mut_ptr(), fixed.len()));
        assert_eq!(&fixed, b"fixed");
        let mut value = MaybeUninit::uninit();
        let bad = rpcrdma_get_bool(Some(&mut reader), Some(&mut value));
        assert_eq!(bad, rpcrdma_status::RPCRDMA_E_BAD_BOOL as c_int);
        assert!(last_error().contains("boolean is 2"), "{}", last_error());
        assert_eq!(rpcrdma_reader_position(Some(&reader)), got.bytes.len());
    }
}
