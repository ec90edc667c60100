//! Sides whose staging areas differ.

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_provider::{
    CmEvent, ConnParam, ConnectError, ConnectionManager, Provider, Queues, Rejection,
};

use super::rules::Host;
use crate::{Shm, ShmOptions};

/// What becomes of a connection between sides with these staging areas.
fn outcome(asking: u32, asked: u32) -> Result<(), ConnectError> {
    let device = |staging| {
        let options = ShmOptions { staging, ..ShmOptions::default() };
        Shm::with_options(options).expect("allowed")
    };
    let (asking, asked) = (device(asking), device(asked));
    let (caller, host) = (Host::new(&asking, &SMALL), Host::new(&asked, &SMALL));
    let (mut connecting, mut listening) =
        (asking.open_cm().expect("a set of sockets"), asked.open_cm().expect("a set of sockets"));
    let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
    let at = listening.listen(Shm::address()).expect("a free name");
    connecting.connect(at, &caller.queues.handle(), &param).expect("begun");
    if let Some(CmEvent::Request { request, .. }) = next(&mut listening) {
        listening.accept(request, &host.queues.handle(), &param).expect("accepted");
    }
    match next(&mut connecting) {
        Some(CmEvent::Connected { .. }) => Ok(()),
        Some(CmEvent::Refused { reason, .. }) => Err(reason),
        _ => panic!("no answer"),
    }
}

/// It would wait for room that never comes, for its longest messages.
#[test]
fn a_listener_rejects_a_staging_area_that_is_shorter_than_its_messages() {
    assert_eq!(outcome(1 << 16, 1 << 17), Err(ConnectError::Rejected(Rejection::Unfit)));
    assert_eq!(outcome(1 << 17, 1 << 17), Ok(()));
    assert_eq!(outcome(1 << 17, 1 << 16), Ok(()));
}

/// Unmapping it would take the shard's time.
#[test]
fn a_listener_rejects_memory_that_is_much_larger_than_its_own() {
    assert_eq!(outcome(1 << 26, 1 << 16), Ok(()));
    assert_eq!(outcome(1 << 27, 1 << 16), Err(ConnectError::Rejected(Rejection::Unfit)));
    assert_eq!(outcome(1 << 27, 1 << 27), Ok(()));
}
