//! What functions refuse: NULL, objects that were given away, wrong sizes, the wrong time.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{OK, Rig, check, last_error, made, refused, want};

#[test]
fn null_is_refused() {
    let null = ptr::null();
    // SAFETY: NULL is what the functions look for.
    let numbers = unsafe {
        [
            rpcrdma_config_parse(null, None),
            rpcrdma_config_load(null, None),
            rpcrdma_config_get(None, null, ptr::null_mut(), 0),
            rpcrdma_engine_new(None, null.cast(), None),
            rpcrdma_engine_listen(None, null, ptr::null_mut(), 0),
            rpcrdma_engine_start(None, ptr::null()),
            rpcrdma_engine_stop(None),
            rpcrdma_engine_step(None, 0),
            rpcrdma_shard_new(None, ptr::null(), None),
            rpcrdma_run(ptr::null_mut()),
            rpcrdma_fd(ptr::null_mut()),
            rpcrdma_handle_state(None),
            rpcrdma_handle_finish(None, None, ptr::null()),
            rpcrdma_handle_inspect(None, 0, None),
            rpcrdma_engine_serve_metrics(None, null, ptr::null_mut(), 0),
            rpcrdma_on_event(0, None, ptr::null_mut()),
            rpcrdma_client_new(None, None),
            rpcrdma_begin_call(ptr::null_mut(), rpcrdma_connection { id: 0 }, 0, None),
            rpcrdma_poll(ptr::null_mut(), 0, None, ptr::null_mut()),
            rpcrdma_buffer(ptr::null_mut(), None),
            rpcrdma_call_want(None, 0, 0),
            rpcrdma_call_submit(None, None),
            rpcrdma_call_discard(None),
            rpcrdma_place(None, ptr::null_mut(), 0),
            rpcrdma_reply_send(None),
            rpcrdma_reply_defer(None, None),
            rpcrdma_reader_init(None, None),
            rpcrdma_get_u32(None, None),
            rpcrdma_message_take(None, 0, 0, None),
            rpcrdma_ticket_resume(ptr::null_mut(), ptr::null_mut(), None, ptr::null_mut()),
            rpcrdma_bytes_new(None, None),
            rpcrdma_session_new(None, ptr::null(), 0, ptr::null(), None),
            rpcrdma_session_call(ptr::null_mut(), 0, None),
            rpcrdma_poll(ptr::null_mut(), 0, None, ptr::null_mut()),
        ]
    };
    for (at, number) in numbers.into_iter().enumerate() {
        assert_eq!(number, RPCRDMA_E_INVALID.number(), "function {at}");
    }
    assert!(last_error().starts_with("invalid: "), "{}", last_error());
    rpcrdma_put_u32(None, 1);
    rpcrdma_loan_free(None);
    rpcrdma_ticket_drop(None);
    // SAFETY: as above.
    unsafe {
        rpcrdma_engine_free(ptr::null_mut());
        rpcrdma_polled_free(ptr::null_mut());
        assert!(rpcrdma_handle_of(ptr::null_mut()).is_null());
    }
}

#[test]
fn an_error_has_a_number_and_a_text_with_its_values() {
    let mut place = MaybeUninit::uninit();
    let text = c"[engine]\nshards = \"many\"\n".as_ptr();
    // SAFETY: the text is one.
    let number = unsafe { rpcrdma_config_parse(text, Some(&mut place)) };
    refused(number, RPCRDMA_E_CONFIG);
    assert!(last_error().contains("shards"), "{}", last_error());
    assert!(!rpcrdma_is_transient(number));
    let meaning = |number| {
        // SAFETY: the text is constant.
        unsafe { std::ffi::CStr::from_ptr(rpcrdma_strerror(number)) }.to_str().expect("ASCII")
    };
    assert!(meaning(number).contains("configuration"), "{}", meaning(number));
    assert_eq!((meaning(OK), meaning(12345)), ("success", "unknown status"));
}

#[test]
fn a_text_is_cut_off_where_it_does_not_fit() {
    // SAFETY: NULL is the default.
    let config = made(|out| unsafe { rpcrdma_config_parse(ptr::null(), out) });
    let mut text = [b'x' as c_char; 8];
    let (key, out) = (c"engine.provider".as_ptr(), text.as_mut_ptr());
    // SAFETY: the configuration is the library's, and there is room for so many bytes.
    unsafe {
        refused(rpcrdma_config_get(config.as_ref(), key, out, 3), RPCRDMA_E_TRUNCATED);
        assert_eq!(text[..4].iter().map(|c| *c as u8).collect::<Vec<_>>(), *b"\"a\0x");
        refused(rpcrdma_config_get(config.as_ref(), key, out, 0), RPCRDMA_E_TRUNCATED);
        check(rpcrdma_config_get(config.as_ref(), key, out, 8));
        let none = rpcrdma_config_get(config.as_ref(), c"engine.no".as_ptr(), out, 8);
        refused(none, RPCRDMA_E_INVALID);
        rpcrdma_config_free(config);
    }
}

/// A handler of a later version of the library.
#[repr(C)]
struct Later {
    handler: rpcrdma_handler,
    more: usize,
}

#[test]
fn structures_of_options_grow() {
    // SAFETY: all pointers are those that the library gave, or to objects of this function.
    unsafe {
        let engine = made(|out| rpcrdma_engine_new(None, ptr::null(), out));
        let start = |handler: *const rpcrdma_handler| {
            let mut place = MaybeUninit::uninit();
            let number = rpcrdma_shard_new(engine.as_mut(), handler, Some(&mut place));
            if number == OK {
                rpcrdma_polled_free(place.assume_init());
            }
            number
        };
        let sized = |size| rpcrdma_handler { size, backward: 9, ..rpcrdma_handler::NONE };
        refused(start(&sized(0)), RPCRDMA_E_INVALID);
        refused(start(&sized(size_of::<rpcrdma_handler>())), RPCRDMA_E_INVALID);
        refused(
            start(&rpcrdma_handler { reserved: 1, ..rpcrdma_handler::NONE }),
            RPCRDMA_E_INVALID,
        );
        // What is behind its end is not looked at.
        check(start(&sized(size_of::<usize>())));
        check(start(&sized(std::mem::offset_of!(rpcrdma_handler, backward))));
        let mut later = Later { handler: rpcrdma_handler::NONE, more: 0 };
        later.handler.size = size_of::<Later>();
        check(start(ptr::from_ref(&later).cast()));
        later.more = 1;
        refused(start(ptr::from_ref(&later).cast()), RPCRDMA_E_INVALID);
        rpcrdma_engine_free(engine);
    }
}

unsafe extern "C" fn use_inside(arg: *mut c_void, _completion: *mut rpcrdma_completion) {
    // SAFETY: the argument is that of the test.
    let (rig, seen) = unsafe { &mut *arg.cast::<(&Rig, Vec<c_int>)>() };
    // SAFETY: the client is the library's.
    unsafe {
        let (to, none) = (rig.connection, ptr::null_mut());
        let mut call = MaybeUninit::uninit();
        seen.extend([
            rpcrdma_begin_call(rig.client, to, 1, Some(&mut call)),
            rpcrdma_send(rig.client, to, 1, none, 0, 0),
            rpcrdma_poll(rig.client, 0, None, none.cast()),
            rpcrdma_buffer(rig.client, Some(&mut MaybeUninit::uninit())),
        ]);
    }
}

#[test]
fn an_object_is_not_used_inside_its_callback() {
    let rig = Rig::new(&rpcrdma_handler::NONE);
    // SAFETY: the client is the library's.
    check(unsafe { rpcrdma_send(rig.client, rig.connection, 1, b"call".as_ptr(), 4, 0) });
    let mut inside: (&Rig, Vec<c_int>) = (&rig, Vec::new());
    while inside.1.is_empty() {
        let arg = ptr::from_mut(&mut inside).cast();
        // SAFETY: as above; `use_inside` takes this argument.
        let polled = unsafe { rpcrdma_poll_for(rig.client, 1 << 30, Some(use_inside), arg) };
        assert!(polled >= 0);
    }
    assert_eq!(inside.1, [RPCRDMA_E_INVALID.number(); 4]);
    refused(rig.ask(b"call").status, RPCRDMA_E_CALL_REJECTED);
}

#[test]
fn a_call_under_construction_is_submitted_or_discarded_first() {
    let rig = Rig::new(&rpcrdma_handler::NONE);
    let call = rig.call(1);
    // SAFETY: the client is the library's.
    unsafe {
        let mut loan = MaybeUninit::uninit();
        refused(rpcrdma_buffer(rig.client, Some(&mut loan)), RPCRDMA_E_INVALID);
        let poll = rpcrdma_poll(rig.client, 0, None, ptr::null_mut());
        refused(poll, RPCRDMA_E_INVALID);
        check(rpcrdma_call_discard(Some(call)));
        assert!(rpcrdma_call_payload(Some(call)).is_none());
        refused(rpcrdma_call_submit(Some(call), None), RPCRDMA_E_INVALID);
        check(rpcrdma_buffer(rig.client, Some(&mut loan)));
        rpcrdma_loan_free(Some(loan.assume_init_mut()));
    }
    // Another one discards it.
    rig.call(2);
    rig.call(3);
    refused(rig.ask(b"call").status, RPCRDMA_E_CALL_REJECTED);
}

#[test]
fn wants_and_sinks_have_bounds() {
    let rig = Rig::with(c"app.bulk.count = 32", &rpcrdma_handler::NONE);
    let call = rig.call(1);
    for _ in 0..RPCRDMA_WANTS_MAX {
        check(rpcrdma_call_want(Some(call), 0, 1));
    }
    refused(rpcrdma_call_want(Some(call), 0, 1), RPCRDMA_E_INVALID);
    check(rpcrdma_call_discard(Some(call)));
    let mut many: Vec<rpcrdma_loan> = (0..17).map(|_| rig.buffer(b"a")).collect();
    // SAFETY: the loans are there; NULL is what the functions look for.
    unsafe {
        let call = rig.call(2);
        let none = rpcrdma_call_want_into(Some(call), &want(1, ptr::null_mut(), 1));
        refused(none, RPCRDMA_E_INVALID);
        let number = rpcrdma_call_want_into(Some(call), &want(1, many.as_mut_ptr(), 17));
        refused(number, RPCRDMA_E_INVALID);
        rpcrdma_loan_free(Some(&mut many[1]));
        let number = rpcrdma_call_want_into(Some(call), &want(1, many.as_mut_ptr(), 2));
        refused(number, RPCRDMA_E_INVALID);
        refused(
            rpcrdma_place(rpcrdma_call_payload(Some(call)), ptr::null_mut(), 3),
            RPCRDMA_E_INVALID,
        );
        check(rpcrdma_call_discard(Some(call)));
    }
    check(rpcrdma_call_discard(Some(rig.call(3))));
    many.iter_mut().for_each(|piece| rpcrdma_loan_free(Some(piece)));
}

#[test]
fn a_reader_ends_with_its_bytes() {
    let data = b"\0\0\0\x05five!\0\0\0\0\0\0\x01";
    let slice = rpcrdma_slice { data: data.as_ptr(), len: data.len() };
    // SAFETY: there are so many bytes, and room for what is read.
    unsafe {
        let mut reader = made(|out| rpcrdma_reader_init_bytes(out, slice));
        let mut out = [0; 8];
        let mut before = reader;
        let mut len = MaybeUninit::uninit();
        let short = rpcrdma_get_opaque(Some(&mut before), out.as_mut_ptr(), 4, Some(&mut len));
        refused(short, RPCRDMA_E_OPAQUE_TOO_LONG);
        assert_eq!(len.assume_init(), 5);
        let len = made(|len| rpcrdma_get_opaque(Some(&mut reader), out.as_mut_ptr(), 8, len));
        assert_eq!(&out[..len], b"five!");
        assert_eq!(rpcrdma_reader_position(Some(&reader)), 12);
        assert_eq!(made(|out| rpcrdma_get_u32(Some(&mut reader), out)), 1);
        let end = rpcrdma_get_u64(Some(&mut reader), Some(&mut MaybeUninit::uninit()));
        refused(end, RPCRDMA_E_END);
        refused(rpcrdma_skip(Some(&mut reader), 1), RPCRDMA_E_END);
    }
    let mut none = rpcrdma_reader { state: 0, words: [MaybeUninit::new(0); 7] };
    let mut word = MaybeUninit::uninit();
    refused(rpcrdma_get_u32(Some(&mut none), Some(&mut word)), RPCRDMA_E_INVALID);
}

#[test]
fn counters_have_names() {
    let rig = Rig::new(&rpcrdma_handler::NONE);
    rig.ask(b"call");
    // SAFETY: the handle is the client's, and there is room for so many counters.
    unsafe {
        let handle = rpcrdma_handle_of(rig.client).as_ref();
        let name = c"calls_completed".as_ptr();
        assert_eq!(made(|out| rpcrdma_handle_counter(handle, name, out)), 1);
        let mut all = [rpcrdma_counter { name: ptr::null(), value: 0 }; 200];
        let count = made(|out| rpcrdma_handle_stats(handle, all.as_mut_ptr(), all.len(), out));
        assert!((40..200).contains(&count));
        let is_it =
            |counter: &&rpcrdma_counter| std::ffi::CStr::from_ptr(counter.name) == c"calls_failed";
        assert_eq!(all[..count].iter().find(is_it).map(|counter| counter.value), Some(1));
        let mut unknown = MaybeUninit::uninit();
        let number = rpcrdma_handle_counter(handle, c"calls".as_ptr(), Some(&mut unknown));
        refused(number, RPCRDMA_E_INVALID);
        let server = rpcrdma_engine_shard(rig.engine.as_ref(), 0).as_ref();
        assert_eq!(rpcrdma_handle_state(server), rpcrdma_state::RPCRDMA_RUNNING as c_int);
        check(rpcrdma_engine_stop(rig.engine.as_mut()));
        assert_eq!(rpcrdma_handle_state(server), rpcrdma_state::RPCRDMA_ENDED as c_int);
    }
}
