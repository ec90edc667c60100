//! Metrics over HTTP, events, the version.

use std::ffi::{CStr, c_int, c_void};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ptr;
use std::sync::Mutex;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{ECHO, Rig, check, last_error, refused};

/// What is served at an address.
fn get(at: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("it is served");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn an_engine_serves_its_metrics() {
    let rig = Rig::new(&ECHO);
    rig.ask(b"call");
    let mut text = [0; RPCRDMA_ADDRESS_MAX];
    let mut serve = |at: &CStr| {
        let (engine, room) = (rig.engine, text.len());
        // SAFETY: the engine is the rig's, and there is room for so many bytes.
        let number = unsafe {
            rpcrdma_engine_serve_metrics(engine.as_mut(), at.as_ptr(), text.as_mut_ptr(), room)
        };
        // SAFETY: the text ends with a NUL.
        (number, unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    };
    let (number, first) = serve(c"127.0.0.1:0");
    check(number);
    let metrics = get(&first);
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    let is_one =
        |line: &str| line.starts_with("rpcrdma_calls_received_total{") && line.ends_with("} 1");
    assert!(metrics.lines().any(is_one), "{metrics}");
    // Again, elsewhere: there it ends.
    let (number, second) = serve(c"127.0.0.1:0");
    check(number);
    assert!(get(&second).contains("rpcrdma_up"));
    assert!(TcpStream::connect(&first).is_err());
    refused(serve(c"localhost").0, RPCRDMA_E_INVALID);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = format!("{}\0", taken.local_addr().expect("an address"));
    refused(serve(CStr::from_bytes_with_nul(at.as_bytes()).expect("one NUL")).0, RPCRDMA_E_LISTEN);
    drop(rig);
    assert!(TcpStream::connect(&second).is_err(), "it ends with the engine");
}

type Events = Mutex<Vec<(c_int, String, String)>>;

unsafe extern "C" fn note(arg: *mut c_void, event: *const rpcrdma_event) {
    // SAFETY: both are valid in the callback, and the texts end with a NUL.
    unsafe {
        let text = |text| CStr::from_ptr(text).to_string_lossy().into_owned();
        let it = &*event;
        (*arg.cast::<Events>()).lock().expect("no panic").push((
            it.level,
            text(it.name),
            text(it.values),
        ));
    }
}

/// The events of other tests come, too: those of an engine are found by its address.
#[test]
fn events_reach_a_function_of_the_program() {
    let events = Events::default();
    let arg = ptr::from_ref(&events).cast_mut().cast();
    let seen = |level: rpcrdma_level, name: &str, values: &str| {
        let events = events.lock().expect("no panic");
        events.iter().any(|it| it.0 == level as c_int && it.1 == name && it.2.contains(values))
    };
    check(rpcrdma_on_event(rpcrdma_level::RPCRDMA_LEVEL_INFO as c_int, Some(note), arg));
    let rig = Rig::new(&ECHO);
    // SAFETY: the text ends with a NUL.
    let at = unsafe { CStr::from_ptr(rig.at.as_ptr()) }.to_string_lossy().into_owned();
    assert!(seen(rpcrdma_level::RPCRDMA_LEVEL_INFO, "listening", &format!("at={at}")));
    assert!(seen(rpcrdma_level::RPCRDMA_LEVEL_INFO, "connected", &format!("peer={at}")));
    assert!(events.lock().expect("no panic").iter().all(|it| it.0 <= 3), "no steps");
    check(rpcrdma_on_event(rpcrdma_level::RPCRDMA_LEVEL_ERROR as c_int, Some(note), arg));
    events.lock().expect("no panic").clear();
    drop(Rig::new(&ECHO));
    assert!(events.lock().expect("no panic").is_empty(), "no errors");
    check(rpcrdma_on_event(rpcrdma_level::RPCRDMA_LEVEL_DEBUG as c_int, None, arg));
    drop(rig);
    assert!(events.lock().expect("no panic").is_empty(), "it has ended");
    refused(rpcrdma_on_event(5, Some(note), arg), RPCRDMA_E_INVALID);
    assert!(last_error().contains("level"));
}

#[test]
fn the_version_is_that_of_the_crate() {
    // SAFETY: it is a constant text.
    let version = unsafe { CStr::from_ptr(rpcrdma_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
