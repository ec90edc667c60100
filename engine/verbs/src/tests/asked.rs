//! What a connection manager refuses: requests beyond those that may wait, however many came
//! before, and addresses of another kind.

use std::time::Duration;

use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectionManager, Provider, Queues, SetupError, Waker,
};

use super::rig::SMALL;
use crate::VerbsOptions;
use crate::fake::Fake;

#[test]
fn accepted_requests_make_room_and_further_ones_are_rejected() {
    let fake = Fake::new();
    let mut cm = fake.open().and_then(|device| device.open_cm()).expect("a connection manager");
    cm.listen("192.0.2.1:20049".parse().expect("an address")).expect("a listener");
    let waker = Waker::new().expect("a descriptor");
    let backlog = VerbsOptions::default().backlog as usize;
    let rejected = || fake.calls().iter().filter(|call| **call == "rdma_reject").count();
    for round in 1..=3 {
        let before = rejected();
        fake.ask(backlog + 2);
        let mut next = || cm.next(&waker, Duration::ZERO);
        let taken: Vec<_> = (0..backlog).map(|_| next()).collect();
        let is_request = |it: &Option<_>| matches!(it, Some(CmEvent::Request { .. }));
        assert!(taken.iter().all(is_request), "{round}");
        assert!(next().is_none(), "no more than may wait");
        assert_eq!(rejected() - before, 2, "{round}");
    }
}

#[test]
fn an_address_of_another_kind_is_refused_with_those_that_are_taken() {
    let fake = Fake::new();
    let device = fake.open().expect("a device");
    let queues = device.open_queues(&SMALL).expect("queues");
    let mut cm = device.open_cm().expect("a connection manager");
    let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
    fake.forget_calls();
    for text in ["shm:/run/store.sock", "shm:@store"] {
        let at: Address = text.parse().expect("an address");
        let taken = "an RDMA device takes only IP addresses (ADDR:PORT)";
        let said = cm.listen(at).expect_err("no device has it").to_string();
        assert_eq!(said, format!("cannot listen on {text}: {taken}"));
        let refused = cm.connect(at, &queues.handle(), &param).expect_err("no device reaches it");
        assert_eq!(refused.to_string(), format!("cannot connect to {text}: {taken}"));
        assert!(matches!(refused, SetupError::Connect { to, .. } if *to == at));
    }
    assert_eq!(fake.calls().len(), 0, "librdmacm was not asked");
}
