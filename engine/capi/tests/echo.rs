//! Echo through the functions of the header, as a C program calls them.
#![expect(unsafe_code, reason = "a C program passes pointers")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "it is a C program, as far as it can be")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::*;

const OK: c_int = 0;

fn last_error() -> String {
    // SAFETY: the text stays until the next call of this thread.
    unsafe { CStr::from_ptr(rpcrdma_last_error()) }.to_string_lossy().into_owned()
}

/// Fails with the text of the last error.
#[track_caller]
fn check(number: c_int) {
    assert_eq!(number, OK, "{}", last_error());
}

/// An object that a function gives.
#[track_caller]
fn made<T>(make: impl FnOnce(Option<&mut MaybeUninit<T>>) -> c_int) -> T {
    let mut place = MaybeUninit::uninit();
    check(make(Some(&mut place)));
    // SAFETY: the function has returned success.
    unsafe { place.assume_init() }
}

fn handler() -> rpcrdma_handler {
    rpcrdma_handler {
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
    }
}

unsafe extern "C" fn echo(
    _context: *mut c_void,
    request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: both are valid in the callback.
    unsafe {
        let bytes = (*request).bytes;
        let payload = rpcrdma_reply_payload(reply.as_mut());
        let body = bytes.data.add(RPCRDMA_PREFIX_LEN);
        rpcrdma_put_fixed(payload, body, bytes.len - RPCRDMA_PREFIX_LEN);
        check(rpcrdma_reply_send(reply.as_mut()));
    }
}

#[derive(Default)]
struct Got(Vec<(u64, c_int, Vec<u8>)>);

unsafe extern "C" fn take(arg: *mut c_void, completion: *mut rpcrdma_completion) {
    // SAFETY: both are valid in the callback.
    let (got, done) = unsafe { (&mut *arg.cast::<Got>(), &*completion) };
    let bytes = match done.bytes.data.is_null() {
        true => Vec::new(),
        // SAFETY: the slice is valid in the callback.
        false => unsafe { std::slice::from_raw_parts(done.bytes.data, done.bytes.len) }.to_vec(),
    };
    got.0.push((done.cookie, done.status, bytes));
}

#[test]
fn a_call_is_answered_with_its_own_bytes() {
    let config = made(|out| rpcrdma_config_default(out));
    // SAFETY: all pointers are those that the library gave.
    unsafe {
        let engine = made(|out| rpcrdma_engine_new(config.as_ref(), out));
        let table = rpcrdma_handler { on_call: Some(echo), ..handler() };
        check(rpcrdma_engine_start(engine.as_mut(), &table));
        let mut at = [0 as c_char; 64];
        let to = c"127.0.0.1:0".as_ptr();
        check(rpcrdma_engine_listen(engine.as_mut(), to, at.as_mut_ptr(), at.len()));
        let client = made(|out| rpcrdma_client_new(engine.as_mut(), out));
        let name = made(|out| rpcrdma_client_connect(client, at.as_ptr(), out));
        let mut got = Got::default();
        for cookie in 0..10 {
            let call = made(|out| rpcrdma_client_call(client, name, cookie, out));
            rpcrdma_put_u64(rpcrdma_call_payload(call.as_mut()), cookie);
            check(rpcrdma_call_submit(call.as_mut(), None));
        }
        while got.0.len() < 10 {
            let arg = ptr::from_mut(&mut got).cast();
            assert!(rpcrdma_client_poll_for(client, 1 << 30, Some(take), arg) >= 0);
        }
        for (cookie, (of, status, bytes)) in got.0.iter().enumerate() {
            assert_eq!((*of, *status), (cookie as u64, OK));
            assert_eq!(bytes[8..], (cookie as u64).to_be_bytes());
        }
        rpcrdma_client_free(client);
        rpcrdma_engine_free(engine);
        rpcrdma_config_free(config);
    }
}
