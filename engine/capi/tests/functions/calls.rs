//! Calls and their replies, with data in line and in place.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use rpcrdma_capi::rpcrdma_status::*;
use rpcrdma_capi::*;

use crate::rig::{OK, Rig, bytes, check, made, place, refused, want};

/// Replies with the body of the call, and with its first item as an item.
unsafe extern "C" fn echo(
    _context: *mut c_void,
    request: *const rpcrdma_request,
    reply: *mut rpcrdma_reply,
) {
    // SAFETY: all are valid in the callback.
    unsafe {
        let body = &bytes((*request).bytes)[RPCRDMA_PREFIX_LEN..];
        let payload = rpcrdma_reply_payload(reply.as_mut());
        rpcrdma_put_fixed(payload, body.as_ptr(), body.len());
        let message = (*request).message.as_mut();
        let mut placed = MaybeUninit::uninit();
        if rpcrdma_message_placed(message.as_deref(), 0, Some(&mut placed)) == OK {
            let mut loan = made(|out| rpcrdma_message_take(message, 0, 0, out));
            let again = rpcrdma_message_take((*request).message.as_mut(), 0, 0, None);
            refused(again, RPCRDMA_E_INVALID);
            let payload = rpcrdma_reply_payload(reply.as_mut());
            check(rpcrdma_place(payload, &mut loan, 1));
            assert!(loan.data.is_null(), "it was given away");
        }
        check(rpcrdma_reply_send(reply.as_mut()));
    }
}

const ECHO: rpcrdma_handler = rpcrdma_handler { on_call: Some(echo), ..rpcrdma_handler::NONE };

#[test]
fn a_call_is_answered_with_its_own_bytes() {
    let rig = Rig::new(&ECHO);
    for cookie in 0..10 {
        let call = rig.call(cookie);
        rpcrdma_put_u32(rpcrdma_call_payload(Some(call)), 7);
        rpcrdma_put_u64(rpcrdma_call_payload(Some(call)), cookie);
        // SAFETY: there are so many bytes.
        unsafe { rpcrdma_put_opaque(rpcrdma_call_payload(Some(call)), b"five!".as_ptr(), 5) };
        assert_eq!(rpcrdma_position(rpcrdma_call_payload(Some(call))), 8 + 4 + 8 + 12);
        check(rpcrdma_call_submit(Some(call), None));
    }
    let mut got = rig.wait(10);
    got.sort_by_key(|got| got.cookie);
    for (cookie, got) in got.iter().enumerate() {
        let cookie = cookie as u64;
        let sent = [&[0, 0, 0, 7][..], &cookie.to_be_bytes(), b"\0\0\0\x05five!\0\0\0"].concat();
        assert_eq!((got.cookie, got.status, &got.bytes), (cookie, OK, &sent));
    }
    assert_eq!(rig.ask(b"in one call.").bytes, b"in one call.");
}

#[test]
fn data_go_to_their_places_and_back() {
    let rig = Rig::new(&ECHO);
    let data: Vec<u8> = (0..4096_u32).map(|at| at as u8).collect();
    let mut loan = rig.buffer(&data);
    let call = rig.call(1);
    check(place(call, &mut loan));
    let place_again = place(call, &mut loan);
    refused(place_again, RPCRDMA_E_INVALID);
    check(rpcrdma_call_want(Some(call), 0, 4096));
    check(rpcrdma_call_submit(Some(call), None));
    let got = rig.wait(1);
    assert_eq!((got[0].status, &got[0].placed), (OK, &data));
}

#[test]
fn constant_bytes_are_sent_repeatedly() {
    let rig = Rig::new(&ECHO);
    let mut loan = rig.buffer(&[5; 100]);
    let constant = made(|out| rpcrdma_bytes_new(Some(&mut loan), out));
    assert!(loan.data.is_null());
    // SAFETY: the bytes are the library's until they are freed.
    unsafe {
        let other = rpcrdma_bytes_clone(constant.as_ref());
        rpcrdma_bytes_free(constant);
        for cookie in 0..3 {
            let call = rig.call(cookie);
            let payload = rpcrdma_call_payload(Some(call));
            refused(rpcrdma_place_bytes(payload, other.as_ref(), 90, 20), RPCRDMA_E_INVALID);
            let payload = rpcrdma_call_payload(Some(call));
            check(rpcrdma_place_bytes(payload, other.as_ref(), 20, 40));
            check(rpcrdma_call_want(Some(call), 0, 100));
            check(rpcrdma_call_submit(Some(call), None));
            assert_eq!(rig.wait(1)[0].placed, [5; 40]);
        }
        rpcrdma_bytes_free(other);
    }
}

/// The xid of a completion, and whether there is a reply.
unsafe extern "C" fn note_xid(arg: *mut c_void, completion: *mut rpcrdma_completion) {
    // SAFETY: all are valid in the callback.
    unsafe {
        let noted = &mut *arg.cast::<Vec<(u32, bool)>>();
        noted.push(((*completion).xid, (*completion).status == OK));
    }
}

#[test]
fn a_completion_has_the_xid_of_its_call_with_a_reply_and_without() {
    const XID: u32 = 0x0012_3456;
    let rig = Rig::new(&ECHO);
    for is_late in [false, true] {
        let call = rig.call(1);
        check(rpcrdma_call_xid(Some(call), XID));
        if is_late {
            check(rpcrdma_call_deadline(Some(call), 0));
        }
        check(rpcrdma_call_submit(Some(call), None));
        let mut noted: Vec<(u32, bool)> = Vec::new();
        while noted.is_empty() {
            let arg = ptr::from_mut(&mut noted).cast();
            // SAFETY: the client is the library's, and `note_xid` takes this argument.
            unsafe { rpcrdma_poll_for(rig.client, 1 << 30, Some(note_xid), arg) };
        }
        assert_eq!(noted, [(XID, !is_late)]);
    }
}

/// Takes the sink of a completion.
unsafe extern "C" fn take_sink(arg: *mut c_void, completion: *mut rpcrdma_completion) {
    // SAFETY: all are valid in the callback.
    unsafe {
        check((*completion).status);
        let pieces = &mut *arg.cast::<Vec<rpcrdma_loan>>();
        pieces.reserve(2);
        let (completion, place) = (completion.as_mut(), pieces.as_mut_ptr());
        let count = made(|out| rpcrdma_completion_take_sink(completion, 0, place, 2, out));
        pieces.set_len(count);
    }
}

#[test]
fn a_result_buffer_comes_back_with_the_completion() {
    let rig = Rig::new(&ECHO);
    let (mut item, mut sink) =
        (rig.buffer(&[3; 512]), [rig.buffer(&[0; 300]), rig.buffer(&[0; 300])]);
    let call = rig.call(1);
    check(place(call, &mut item));
    // SAFETY: there are two loans.
    unsafe {
        let pieces = sink.as_mut_ptr();
        let want = |len_max| want(len_max, pieces, 2);
        let short = rpcrdma_call_want_into(Some(call), &want(601));
        refused(short, RPCRDMA_E_INVALID);
        assert!(!sink[0].data.is_null(), "nothing was taken");
        for placement in [-1, 3] {
            let none = rpcrdma_want { placement, ..want(512) };
            refused(rpcrdma_call_want_into(Some(call), &none), RPCRDMA_E_INVALID);
        }
        check(rpcrdma_call_want_into(Some(call), &want(512)));
    }
    assert!(sink.iter().all(|piece| piece.data.is_null()));
    check(rpcrdma_call_submit(Some(call), None));
    let mut pieces: Vec<rpcrdma_loan> = Vec::new();
    while pieces.is_empty() {
        let arg = ptr::from_mut(&mut pieces).cast();
        // SAFETY: the client is the library's, and `take_sink` takes this argument.
        unsafe { rpcrdma_poll_for(rig.client, 1 << 30, Some(take_sink), arg) };
    }
    assert_eq!(pieces.iter().map(|piece| piece.len).sum::<u32>(), 600);
    for piece in &mut pieces {
        rpcrdma_loan_free(Some(piece));
        assert!(piece.data.is_null());
        // SAFETY: the client is the library's.
        refused(unsafe { rpcrdma_release(rig.client, Some(piece)) }, RPCRDMA_E_INVALID);
    }
}

#[test]
fn a_refused_call_stays_and_is_sent_later() {
    let rig = Rig::new(&ECHO);
    let mut sent = 0;
    // Without polls, credits or slots run out.
    let call = loop {
        let call = rig.call(sent);
        rpcrdma_put_u64(rpcrdma_call_payload(Some(call)), sent);
        let number = rpcrdma_call_submit(Some(call), None);
        if number != OK {
            assert!(rpcrdma_is_transient(number), "{number}");
            break call;
        }
        sent += 1;
    };
    assert!(rpcrdma_call_payload(Some(call)).is_none(), "it is written");
    let before = rig.wait(sent as usize);
    assert_eq!(before.len() as u64, sent);
    check(rpcrdma_call_submit(Some(call), None));
    let got = rig.wait(1);
    assert_eq!((got[0].cookie, got[0].bytes.as_slice()), (sent, &sent.to_be_bytes()[..]));
    refused(rpcrdma_call_submit(Some(call), None), RPCRDMA_E_INVALID);
}

#[test]
fn a_deadline_and_a_cancellation_end_calls() {
    unsafe extern "C" fn keep(
        context: *mut c_void,
        _request: *const rpcrdma_request,
        reply: *mut rpcrdma_reply,
    ) {
        // SAFETY: all are valid in the callback; the context is that of the test.
        unsafe {
            let kept = &*context.cast::<std::sync::Mutex<Vec<rpcrdma_ticket>>>();
            let ticket = made(|out| rpcrdma_reply_defer(reply.as_mut(), out));
            kept.lock().expect("no test panics in it").push(ticket);
        }
    }
    let kept = std::sync::Mutex::new(Vec::<rpcrdma_ticket>::new());
    let arg = ptr::from_ref(&kept).cast_mut().cast();
    let rig = Rig::new(&rpcrdma_handler { on_call: Some(keep), arg, ..rpcrdma_handler::NONE });
    let call = rig.call(1);
    check(rpcrdma_call_deadline(Some(call), rpcrdma_now() + 1));
    check(rpcrdma_call_submit(Some(call), None));
    let call = rig.call(2);
    let id = made(|out| rpcrdma_call_submit(Some(call), out));
    // SAFETY: the client is the library's.
    check(unsafe { rpcrdma_cancel(rig.client, id) });
    let mut got = rig.wait(2);
    got.sort_by_key(|got| got.cookie);
    refused(got[0].status, RPCRDMA_E_DEADLINE);
    refused(got[1].status, RPCRDMA_E_CANCELLED);
    // SAFETY: as above.
    refused(unsafe { rpcrdma_cancel(rig.client, id) }, RPCRDMA_E_NOTHING);
    drop(rig);
    for ticket in kept.lock().expect("no test panics in it").iter_mut() {
        rpcrdma_ticket_drop(Some(ticket));
    }
}
