//! Calls of one program: its procedures, its arguments, and what it denies.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{OK, Rig, check, made, refused};

/// Procedures 0 to 2.
const PROGRAM: rpcrdma_program = rpcrdma_program { number: 300, version: 4, procedures: 3 };

/// Replies with the procedure and the argument of a call.
unsafe extern "C" fn serve(
    _context: *mut c_void,
    request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: all are valid in the callback.
    let (message, reply) = unsafe { ((*request).message.as_ref(), &mut *reply) };
    let (mut procedure, mut reader) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let (to, from) = (Some(&mut procedure), Some(&mut reader));
    let number = rpcrdma_reply_arguments(Some(&mut *reply), message, Some(&PROGRAM), to, from);
    if number != OK {
        return refused(number, RPCRDMA_E_DENIED);
    }
    // SAFETY: the function has returned success.
    let (procedure, mut reader) = unsafe { (procedure.assume_init(), reader.assume_init()) };
    let argument = made(|out| rpcrdma_get_u32(Some(&mut reader), out));
    let payload = rpcrdma_reply_payload(Some(&mut *reply)).expect("it is open");
    rpcrdma_put_u32(Some(&mut *payload), procedure);
    rpcrdma_put_u32(Some(payload), argument);
    check(rpcrdma_reply_send(Some(reply)));
}

#[test]
fn a_call_is_denied_as_its_header_says_or_has_a_procedure_and_arguments() {
    let rig = Rig::new(&rpcrdma_handler { on_call: Some(serve), ..rpcrdma_handler::NONE });
    let accepted = |status: &[u32]| [&[0, 0, 0], status].concat();
    for (rpc, program, version, procedure, reply) in [
        (2, 300, 4, 2, vec![2, 77]),
        (2, 300, 4, 0, vec![0, 77]),
        (2, 300, 4, 3, accepted(&[3])),
        (2, 300, 5, 2, accepted(&[2, 4, 4])),
        (2, 301, 4, 2, accepted(&[1])),
        (3, 300, 4, 2, vec![1, 0, 2, 2]),
    ] {
        let words = [rpc, program, version, procedure, 0, 0, 0, 0, 77];
        let got = rig.ask(&words.map(u32::to_be_bytes).concat());
        assert_eq!(got.status, OK);
        let expected: Vec<u8> = reply.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(got.bytes, expected, "{words:?}");
    }
}
