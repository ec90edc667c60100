//! The same echo by the functions of the C interface, as a C program calls them.
//!
//! They are called through pointers whose targets the compiler does not know, as those of a shared
//! library: nothing is inlined across them.
#![expect(unsafe_code, reason = "a C program passes pointers")]

use std::ffi::{c_char, c_int, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr;

use ::rpcrdma::Fabric;
use ::rpcrdma_config::Config;
use rpcrdma_capi::*;

use crate::cases::Case;
use crate::pair::{
    CALL_HEADER, ECHO_LEN, PATIENCE, REPLY_HEADER, REPLY_PAYLOAD_MAX, TURN_NS, begin_part, end_part,
};

/// The functions that a turn calls.
struct Functions {
    poll:
        unsafe extern "C" fn(*mut rpcrdma_polled, u64, rpcrdma_on_completion, *mut c_void) -> c_int,
    send: unsafe extern "C" fn(
        *mut rpcrdma_polled,
        rpcrdma_connection,
        u64,
        *const u8,
        usize,
        u32,
    ) -> c_int,
    reply_send_results: unsafe extern "C" fn(Option<&mut rpcrdma_reply>, *const u8, usize) -> c_int,
}

impl Functions {
    fn new() -> Functions {
        black_box(Functions {
            poll: rpcrdma_poll,
            send: rpcrdma_send,
            reply_send_results: rpcrdma_reply_send_results,
        })
    }
}

struct CapiPair {
    functions: Functions,
    client: *mut rpcrdma_client,
    shard: *mut rpcrdma_shard,
    connection: rpcrdma_connection,
    window: u64,
    now: u64,
    sent: u64,
    done: u64,
}

/// Makes the calls of a case.
pub fn run(fabric: Fabric, config: Config, case: Case, calls: [u64; 2]) {
    // A box: the server has a pointer to the functions.
    let mut pair = Box::new(CapiPair {
        functions: Functions::new(),
        client: ptr::null_mut(),
        shard: ptr::null_mut(),
        connection: rpcrdma_connection { id: 0 },
        window: case.window,
        now: 0,
        sent: 0,
        done: 0,
    });
    let engine = rpcrdma_engine::stepped_over(fabric, config, 1).expect("a fabric");
    let engine = Box::into_raw(engine);
    pair.connect(engine);
    let [warm_up, counted] = calls;
    pair.calls(warm_up);
    begin_part();
    pair.calls(counted);
    end_part();
    // SAFETY: all three are of the library, and not used any more.
    unsafe { rpcrdma_polled_free(pair.client) };
    // SAFETY: as above.
    unsafe { rpcrdma_polled_free(pair.shard) };
    // SAFETY: as above.
    unsafe { rpcrdma_engine_free(engine) };
}

impl CapiPair {
    fn connect(&mut self, engine: *mut rpcrdma_engine) {
        // SAFETY: the engine is the caller's, and used here only.
        let engine = unsafe { &mut *engine };
        self.client = made(|out| rpcrdma_client_new(Some(engine), out));
        let handler = rpcrdma_handler {
            arg: ptr::from_mut(&mut self.functions).cast(),
            on_call: Some(on_call),
            ..rpcrdma_handler::NONE
        };
        // SAFETY: the handler has its size.
        self.shard = made(|out| unsafe { rpcrdma_shard_new(Some(engine), &handler, out) });
        let mut at = [0 as c_char; 64];
        let any = c"127.0.0.1:0".as_ptr();
        // SAFETY: the address is a text, and there is room for so many bytes.
        let listening =
            unsafe { rpcrdma_engine_listen(Some(engine), any, at.as_mut_ptr(), at.len()) };
        assert_eq!(listening, 0);
        let to = at.as_ptr();
        // SAFETY: the address is a text.
        let attempt = made(|out| unsafe { rpcrdma_begin_connect(self.client, to, out) });
        let mut connection = MaybeUninit::uninit();
        let mut is_up = false;
        for _ in 0..2 * PATIENCE {
            self.now += TURN_NS;
            step(engine, self);
            // SAFETY: the client is the library's.
            let up = unsafe { rpcrdma_connected(self.client, attempt, Some(&mut connection)) };
            is_up |= up == 0;
        }
        assert!(is_up, "a connection in time");
        // SAFETY: the function has returned success.
        self.connection = unsafe { connection.assume_init() };
    }

    /// Makes so many calls, and waits until they are answered.
    fn calls(&mut self, count: u64) {
        let until = self.done + count;
        let mut patience = 100 * count;
        while self.done < until {
            self.now += TURN_NS;
            c_client_turn(self, until);
            c_server_turn(self);
            patience -= 1;
            assert!(patience > 0, "calls are answered");
        }
    }
}

/// An object that a function gives.
fn made<T>(make: impl FnOnce(Option<&mut MaybeUninit<T>>) -> c_int) -> T {
    let mut place = MaybeUninit::uninit();
    assert_eq!(make(Some(&mut place)), 0);
    // SAFETY: the function has returned success.
    unsafe { place.assume_init() }
}

fn step(engine: &mut rpcrdma_engine, pair: &CapiPair) {
    assert_eq!(rpcrdma_engine_step(Some(engine), 0), 0);
    // SAFETY: the client is the library's.
    unsafe { rpcrdma_poll(pair.client, pair.now, None, ptr::null_mut()) };
    // SAFETY: the shard is the library's.
    unsafe { rpcrdma_poll(pair.shard, pair.now, None, ptr::null_mut()) };
}

/// Fills the window and polls once: what the client is counted in.
#[inline(never)]
fn c_client_turn(pair: &mut CapiPair, until: u64) {
    while pair.sent < until && pair.sent - pair.done < pair.window {
        if !send(pair) {
            break;
        }
        pair.sent += 1;
    }
    let (client, now, poll) = (pair.client, pair.now, pair.functions.poll);
    let arg = ptr::from_mut(&mut pair.done).cast();
    // SAFETY: the client is the library's; `arg` is what `on_completion` takes.
    let busy = unsafe { poll(client, now, Some(on_completion), arg) };
    // What ends with a jump into another function has been left by then, for callgrind.
    black_box(busy);
}

/// Whether the next call was sent.
#[inline]
fn send(pair: &mut CapiPair) -> bool {
    let (to, cookie, send_it) = (pair.connection, pair.sent, pair.functions.send);
    let (data, len) = (MESSAGE.as_ptr(), MESSAGE.len());
    // SAFETY: the client is the library's, and there are so many bytes.
    unsafe { send_it(pair.client, to, cookie, data, len, REPLY_PAYLOAD_MAX) == 0 }
}

/// Looks at a reply.
unsafe extern "C" fn on_completion(arg: *mut c_void, completion: *mut rpcrdma_completion) {
    // SAFETY: the completion is valid in the callback.
    let completion = unsafe { &*completion };
    assert_eq!(completion.status, 0);
    assert_eq!(completion.bytes.len, RPCRDMA_PREFIX_LEN + REPLY_HEADER.len() + ECHO_LEN);
    // SAFETY: it is that of `c_client_turn`.
    unsafe { *arg.cast::<u64>() += 1 };
}

/// Polls once: what the server is counted in.
#[inline(never)]
fn c_server_turn(pair: &mut CapiPair) {
    // SAFETY: the shard is the library's.
    black_box(unsafe { (pair.functions.poll)(pair.shard, pair.now, None, ptr::null_mut()) });
}

/// Answers an echo.
unsafe extern "C" fn on_call(
    context: *mut c_void,
    request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: it is that of `CapiPair::connect`.
    let functions = unsafe { &*context.cast::<Functions>() };
    // SAFETY: the request is valid in the callback.
    let rpcrdma_slice { data, len } = unsafe { (*request).bytes };
    // SAFETY: the reply is valid in the callback.
    let reply = unsafe { &mut *reply };
    let arguments = RPCRDMA_PREFIX_LEN + CALL_HEADER.len();
    assert!(!data.is_null() && len >= arguments, "a short call");
    // SAFETY: the call is longer than this.
    let data = unsafe { data.add(arguments) };
    // SAFETY: there are so many bytes.
    unsafe { (functions.reply_send_results)(Some(reply), data, len - arguments) };
}

/// A whole message head, written at once.
static MESSAGE: [u8; CALL_HEADER.len() + ECHO_LEN] = {
    let mut message = [7; CALL_HEADER.len() + ECHO_LEN];
    let mut at = 0;
    while at < CALL_HEADER.len() {
        message[at] = CALL_HEADER[at];
        at += 1;
    }
    message
};
