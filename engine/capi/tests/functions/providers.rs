//! Which provider an engine opens.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{ECHO, Rig, made, refused};

/// Those of a program that listens there, or connects.
fn options(at: Option<&CStr>) -> rpcrdma_engine_options {
    let address = at.map_or(ptr::null(), CStr::as_ptr);
    rpcrdma_engine_options { address, ..rpcrdma_engine_options::NONE }
}

/// The provider of an engine that is opened for an address, with a configuration in TOML.
fn opened(config: &CStr, at: Option<&CStr>) -> String {
    // SAFETY: all pointers are those that the library gave, or to objects of this function.
    unsafe {
        let config = made(|out| rpcrdma_config_parse(config.as_ptr(), out));
        let options = options(at);
        let engine = made(|out| rpcrdma_engine_new(config.as_ref(), &options, out));
        rpcrdma_config_free(config);
        let provider = CStr::from_ptr(rpcrdma_engine_provider(engine.as_ref()));
        rpcrdma_engine_free(engine);
        provider.to_string_lossy().into_owned()
    }
}

#[test]
fn an_address_chooses_the_provider_if_the_configuration_does_not() {
    assert_eq!(opened(c"", None), "fabric");
    assert_eq!(opened(c"", Some(c"shm:@no listener")), "shm");
    // No device has an address of documentation (RFC 5737), and the route to it may be one's.
    assert_eq!(opened(c"engine.provider = \"tcp\"", Some(c"203.0.113.1:7777")), "tcp");
    assert_eq!(opened(c"engine.provider = \"fabric\"", Some(c"127.0.0.1:7777")), "fabric");
    let nonsense = options(Some(c"shm:nonsense"));
    // SAFETY: the options are those of this function.
    let outcome = unsafe { rpcrdma_engine_new(None, &nonsense, Some(&mut MaybeUninit::uninit())) };
    refused(outcome, RPCRDMA_E_ADDRESS);
}

#[test]
fn a_call_is_answered_over_tcp() {
    let rig = Rig::with(c"engine.provider = \"tcp\"", &ECHO);
    assert_eq!(rig.ask(b"over streams").bytes, b"over streams");
}
