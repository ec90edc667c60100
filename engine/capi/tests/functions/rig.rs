//! A server and a client over the fabric.

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

/// Checks that a call of a function has failed like this.
#[track_caller]
pub fn refused(number: c_int, status: rpcrdma_status) {
    assert_eq!(rpcrdma_status::of(number), Some(status), "{}", last_error());
}

/// What a function gives.
#[track_caller]
pub fn made<T>(make: impl FnOnce(Option<&mut MaybeUninit<T>>) -> c_int) -> T {
    let mut place = MaybeUninit::uninit();
    check(make(Some(&mut place)));
    // SAFETY: the function has returned success.
    unsafe { place.assume_init() }
}

/// The bytes of a slice.
pub fn bytes<'a>(slice: rpcrdma_slice) -> &'a [u8] {
    match slice.data.is_null() {
        true => &[],
        // SAFETY: the tests read slices in their callbacks.
        false => unsafe { std::slice::from_raw_parts(slice.data, slice.len) },
    }
}

/// Places a loan in a call.
pub fn place(call: &mut rpcrdma_call, loan: &mut rpcrdma_loan) -> c_int {
    // SAFETY: there is one loan.
    unsafe { rpcrdma_place(rpcrdma_call_payload(Some(call)), loan, 1) }
}

/// A result of so many bytes, into these pieces.
pub fn want(len_max: u32, sink: *mut rpcrdma_loan, sink_count: usize) -> rpcrdma_want {
    rpcrdma_want { len_max, sink, sink_count, ..rpcrdma_want::NONE }
}

/// Replies with the body of the call.
pub unsafe extern "C" fn echo(
    _context: *mut c_void,
    request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: all are valid in the callback.
    unsafe {
        let body = &bytes((*request).bytes)[RPCRDMA_PREFIX_LEN..];
        let payload = rpcrdma_reply_payload(reply.as_mut());
        rpcrdma_put_fixed(payload, body.as_ptr(), body.len());
        check(rpcrdma_reply_send(reply.as_mut()));
    }
}

pub const ECHO: rpcrdma_handler = rpcrdma_handler { on_call: Some(echo), ..rpcrdma_handler::NONE };

/// A completed call.
#[derive(Debug, PartialEq, Eq)]
pub struct Got {
    pub cookie: u64,
    pub status: c_int,
    pub execution: c_int,
    /// Behind transaction id and message type.
    pub bytes: Vec<u8>,
    pub placed: Vec<u8>,
}

pub unsafe extern "C" fn collect(arg: *mut c_void, completion: *mut rpcrdma_completion) {
    // SAFETY: both are valid in the callback.
    let (got, done) = unsafe { (&mut *arg.cast::<Vec<Got>>(), &*completion) };
    let mut placed = Vec::new();
    // SAFETY: the message is valid in the callback, or NULL.
    let message = unsafe { done.message.as_ref() };
    let mut about = MaybeUninit::uninit();
    for item in 0.. {
        if rpcrdma_message_placed(message, item, Some(&mut about)) != OK {
            break;
        }
        // SAFETY: the function has returned success.
        let about = unsafe { about.assume_init() };
        for segment in 0..about.segments as usize {
            let slice = made(|out| rpcrdma_message_segment(message, item, segment, out));
            placed.extend_from_slice(bytes(slice));
        }
    }
    let body = bytes(done.bytes).get(RPCRDMA_PREFIX_LEN..).unwrap_or_default().to_vec();
    let &rpcrdma_completion { cookie, status, execution, .. } = done;
    got.push(Got { cookie, status, execution, bytes: body, placed });
}

/// An engine with a server on its own thread, and a client with a connection.
pub struct Rig {
    pub engine: *mut rpcrdma_engine,
    pub client: *mut rpcrdma_client,
    pub connection: rpcrdma_connection,
    pub at: [c_char; 64],
}

impl Rig {
    pub fn new(handler: &rpcrdma_handler) -> Rig {
        Rig::with(c"", handler)
    }

    /// With a configuration in TOML.
    pub fn with(config: &CStr, handler: &rpcrdma_handler) -> Rig {
        // SAFETY: all pointers are those that the library gave, or to objects of this function.
        unsafe {
            let config = made(|out| rpcrdma_config_parse(config.as_ptr(), out));
            let engine = made(|out| rpcrdma_engine_new(config.as_ref(), ptr::null(), out));
            rpcrdma_config_free(config);
            check(rpcrdma_engine_start(engine.as_mut(), handler));
            let mut at = [0; 64];
            let any = c"127.0.0.1:0".as_ptr();
            check(rpcrdma_engine_listen(engine.as_mut(), any, at.as_mut_ptr(), at.len()));
            let client = made(|out| rpcrdma_client_new(engine.as_mut(), out));
            let connection = made(|out| rpcrdma_connect(client, at.as_ptr(), out));
            Rig { engine, client, connection, at }
        }
    }

    /// Begins a call.
    #[expect(clippy::mut_from_ref, reason = "the call is the library's")]
    pub fn call(&self, cookie: u64) -> &mut rpcrdma_call {
        // SAFETY: the client is the library's, and the call is used before the next.
        unsafe { &mut *made(|out| rpcrdma_begin_call(self.client, self.connection, cookie, out)) }
    }

    /// A buffer with these bytes.
    pub fn buffer(&self, content: &[u8]) -> rpcrdma_loan {
        // SAFETY: the client is the library's.
        let mut loan = made(|out| unsafe { rpcrdma_buffer(self.client, out) });
        assert!(loan.len as usize >= content.len());
        // SAFETY: the loan is this program's, and has room.
        unsafe { loan.data.copy_from_nonoverlapping(content.as_ptr(), content.len()) };
        loan.len = content.len() as u32;
        loan
    }

    /// Makes a call with these arguments.
    pub fn send(&self, cookie: u64, arguments: u64) {
        let call = self.call(cookie);
        rpcrdma_put_u64(rpcrdma_call_payload(Some(call)), arguments);
        check(rpcrdma_call_submit(Some(call), None));
    }

    /// Polls until so many calls are completed.
    pub fn wait(&self, count: usize) -> Vec<Got> {
        let mut got: Vec<Got> = Vec::new();
        let arg = ptr::from_mut(&mut got).cast();
        while got.len() < count {
            // SAFETY: the client is the library's, and `collect` takes this argument.
            let busy = unsafe { rpcrdma_poll_for(self.client, 1 << 30, Some(collect), arg) };
            assert!(busy >= 0, "{}", last_error());
        }
        got
    }

    /// Sends these bytes behind transaction id and message type, and waits for the reply.
    pub fn ask(&self, body: &[u8]) -> Got {
        let (to, data, len) = (self.connection, body.as_ptr(), body.len());
        // SAFETY: the client is the library's, and there are so many bytes.
        check(unsafe { rpcrdma_send(self.client, to, 1, data, len, 0) });
        self.wait(1).pop().expect("one was waited for")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // SAFETY: both are the library's, and not used any more.
        unsafe {
            rpcrdma_polled_free(self.client);
            rpcrdma_engine_free(self.engine);
        }
    }
}
