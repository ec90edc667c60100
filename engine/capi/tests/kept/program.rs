//! What a C program needs.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::*;

pub const OK: c_int = 0;

pub fn last_error() -> String {
    // SAFETY: the text stays until the next call of this thread.
    unsafe { CStr::from_ptr(rpcrdma_last_error()) }.to_string_lossy().into_owned()
}

/// Fails with the text of the last error.
#[track_caller]
pub fn check(number: c_int) {
    assert_eq!(number, OK, "{}", last_error());
}

/// An object that a function gives.
#[track_caller]
pub fn made<T>(make: impl FnOnce(Option<&mut MaybeUninit<T>>) -> c_int) -> T {
    let mut place = MaybeUninit::uninit();
    check(make(Some(&mut place)));
    // SAFETY: the function has returned success.
    unsafe { place.assume_init() }
}

pub fn handler() -> rpcrdma_handler {
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
        reserved: 0,
    }
}

pub unsafe extern "C" fn echo(
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

/// Completions, and what is known about the execution of the last.
#[derive(Default)]
pub struct Got(pub Vec<(u64, c_int, Vec<u8>)>, pub c_int);

pub unsafe extern "C" fn take(arg: *mut c_void, completion: *mut rpcrdma_completion) {
    // SAFETY: both are valid in the callback.
    let (got, done) = unsafe { (&mut *arg.cast::<Got>(), &*completion) };
    let bytes = match done.bytes.data.is_null() {
        true => Vec::new(),
        // SAFETY: the slice is valid in the callback.
        false => unsafe { std::slice::from_raw_parts(done.bytes.data, done.bytes.len) }.to_vec(),
    };
    got.1 = done.execution;
    got.0.push((done.cookie, done.status, bytes));
}

/// An engine with shards of this handler, and a client that is connected to it.
pub struct Pair {
    pub engine: *mut rpcrdma_engine,
    pub client: *mut rpcrdma_client,
    pub at: [c_char; 128],
    pub name: rpcrdma_connection,
    pub got: Got,
}

impl Pair {
    pub fn new(config: &CStr, table: &rpcrdma_handler) -> Pair {
        // SAFETY: all pointers are those that the library gave, and the texts end with a NUL.
        unsafe {
            let config = made(|out| rpcrdma_config_parse(config.as_ptr(), out));
            let engine = made(|out| rpcrdma_engine_new(config.as_ref(), out));
            rpcrdma_config_free(config);
            check(rpcrdma_engine_start(engine.as_mut(), table));
            let mut at = [0; 128];
            let to = c"127.0.0.1:0".as_ptr();
            check(rpcrdma_engine_listen(engine.as_mut(), to, at.as_mut_ptr(), at.len()));
            let client = made(|out| rpcrdma_client_new(engine.as_mut(), out));
            let name = made(|out| rpcrdma_client_connect(client, at.as_ptr(), out));
            Pair { engine, client, at, name, got: Got::default() }
        }
    }

    /// Begins a call.
    pub fn call(&self, cookie: u64) -> *mut rpcrdma_call {
        // SAFETY: the client is there.
        made(|out| unsafe { rpcrdma_client_call(self.client, self.name, cookie, out) })
    }

    /// Makes a call with these arguments.
    pub fn send(&self, cookie: u64, arguments: u64) {
        let call = self.call(cookie);
        // SAFETY: the call is the client's, which is not used meanwhile.
        unsafe {
            rpcrdma_put_u64(rpcrdma_call_payload(call.as_mut()), arguments);
            check(rpcrdma_call_submit(call.as_mut(), None));
        }
    }

    /// Polls until so many calls are over.
    pub fn wait(&mut self, calls: usize) {
        while self.got.0.len() < calls {
            let arg = ptr::from_mut(&mut self.got).cast();
            // SAFETY: the client is there, and the argument is that of the callback.
            let busy = unsafe { rpcrdma_client_poll_for(self.client, 1 << 30, Some(take), arg) };
            assert!(busy >= 0, "{}", last_error());
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: both are there, and nothing uses them any more.
        unsafe {
            rpcrdma_client_free(self.client);
            rpcrdma_engine_free(self.engine);
        }
    }
}
