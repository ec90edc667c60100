//! A failed call is named: in the error, or among the device's events. What it made before ends.

use std::time::Duration;

use rpcrdma_provider::{
    CmEvent, ConnParam, ConnectError, ConnectionManager, CqError, PostError, Provider, Queues,
    SendFlags, SendOp, SendWr, Waker, WrId,
};

use super::rig::{Host, SMALL};
use crate::VerbsOptions;
use crate::fake::Fake;

const PARAM: ConnParam<'_> = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };

#[test]
fn looking_up_the_device_of_an_address_leaves_nothing() {
    let fake = Fake::new();
    let address = Some("192.0.2.1".parse().expect("an address"));
    let options = VerbsOptions { address, ..VerbsOptions::default() };
    // The fake device's ids have no port.
    fake.open_with(&options).expect_err("no port has the address");
    assert!(fake.calls().contains(&"rdma_bind_addr"));
    assert!(fake.alive().is_empty(), "{:?}", fake.alive());
}

#[test]
fn a_port_that_cannot_be_queried_is_an_error_of_that_call() {
    let fake = Fake::new();
    drop(fake.open().expect("nothing fails"));
    let calls = fake.calls();
    let queries = calls.iter().enumerate().filter(|it| *it.1 == "ibv_query_port");
    let queries: Vec<usize> = queries.map(|it| it.0).collect();
    assert_eq!(queries.len(), 2);
    for at in queries {
        fake.fail_at(Some(at));
        let error = fake.open().expect_err("a query fails").to_string();
        assert!(error.contains("ibv_query_port") && error.contains("os error 5"), "{error}");
    }
}

#[test]
fn a_call_that_fails_while_connecting_is_named_to_the_caller() {
    for function in [
        "rdma_create_id",
        "rdma_resolve_addr",
        "rdma_resolve_route",
        "ibv_create_qp",
        "rdma_init_qp_attr",
        "ibv_modify_qp",
        "rdma_connect",
    ] {
        for errno in [libc::EPERM, libc::EIO] {
            let fake = Fake::wired();
            let device = fake.open().expect("a device");
            let queues = device.open_queues(&SMALL).expect("queues");
            let [mut there, mut here] =
                [(); 2].map(|()| device.open_cm().expect("a connection manager"));
            let at = "192.0.2.1:20049".parse().expect("an address");
            here.listen(at).expect("a listener");
            fake.refuse(function, Some(errno));
            let name = there.connect(at, &queues.handle(), &PARAM).expect("an attempt");
            let waker = Waker::new().expect("a descriptor");
            let Some(CmEvent::Refused { id, reason }) = there.next(&waker, Duration::ZERO) else {
                panic!("{function} has failed");
            };
            assert_eq!(id, name);
            let ConnectError::CallFailed { call, errno: number, .. } = reason else {
                panic!("{function}: {reason}");
            };
            assert_eq!((call, number), (function, errno));
            let (text, events) = (reason.to_string(), device.events());
            assert!(text.contains(function) && text.contains("os error"), "{text}");
            assert_eq!(events.failures, 1, "{function}");
            assert!(events.last_failure.expect("there was one").contains(function));
        }
    }
}

#[test]
fn an_entry_of_the_gid_table_that_cannot_be_read_is_not_there() {
    let fake = Fake::new();
    let options = VerbsOptions { gid: Some(0), ..VerbsOptions::default() };
    drop(fake.open_with(&options).expect("the port has it"));
    fake.refuse("ibv_query_gid", Some(libc::EIO));
    let error = fake.open_with(&options).expect_err("it cannot be read").to_string();
    assert!(error.contains("with a GID 0 in its table"), "{error}");
    assert!(fake.alive().is_empty(), "{:?}", fake.alive());
}

/// Its peer waits for its time limit.
#[test]
fn a_rejection_that_is_not_sent_leaves_nothing_and_the_listener_goes_on() {
    let fake = Fake::wired();
    let device = fake.open().expect("a device");
    let queues = device.open_queues(&SMALL).expect("queues");
    let [mut there, mut here] = [(); 2].map(|()| device.open_cm().expect("a connection manager"));
    let at = here.listen("192.0.2.1:20049".parse().expect("an address")).expect("a listener");
    let waker = Waker::new().expect("a descriptor");
    for errno in [Some(libc::EIO), None] {
        fake.refuse("rdma_reject", errno);
        there.connect(at, &queues.handle(), &PARAM).expect("an attempt");
        assert!(there.next(&waker, Duration::ZERO).is_none(), "the peer has not answered");
        let Some(CmEvent::Request { request, .. }) = here.next(&waker, Duration::ZERO) else {
            panic!("a request");
        };
        here.reject(request, b"no room");
        assert_eq!(there.next(&waker, Duration::ZERO).is_some(), errno.is_none(), "{errno:?}");
    }
    assert_eq!(device.events().failures, 0);
    drop((there, here, queues, device));
    assert!(fake.alive().is_empty(), "{:?}", fake.alive());
}

#[test]
fn an_invalid_argument_of_a_queue_pair_is_no_missing_route() {
    let fake = Fake::wired();
    let device = fake.open().expect("a device");
    let queues = device.open_queues(&SMALL).expect("queues");
    let mut cm = device.open_cm().expect("a connection manager");
    let at = "192.0.2.1:20049".parse().expect("an address");
    cm.listen(at).expect("a listener");
    for (function, is_route) in [("ibv_modify_qp", false), ("rdma_resolve_addr", true)] {
        fake.refuse(function, Some(libc::EINVAL));
        cm.connect(at, &queues.handle(), &PARAM).expect("an attempt");
        let waker = Waker::new().expect("a descriptor");
        let Some(CmEvent::Refused { reason, .. }) = cm.next(&waker, Duration::ZERO) else {
            panic!("{function} has failed");
        };
        assert_eq!(reason == ConnectError::NoRoute, is_route, "{function}: {reason}");
    }
}

#[test]
fn a_device_whose_events_cannot_be_read_is_lost_and_the_cause_is_kept() {
    let fake = Fake::new();
    let device = fake.open().expect("a device");
    let mut cm = device.open_cm().expect("a connection manager");
    fake.refuse("ibv_get_async_event", Some(libc::EIO));
    assert!(cm.next(&Waker::new().expect("a descriptor"), Duration::ZERO).is_none());
    let events = device.events();
    assert_eq!((events.devices_lost, events.failures), (1, 1));
    assert!(events.last_failure.expect("there was one").contains("ibv_get_async_event"));
}

#[test]
fn a_notification_is_read_after_a_sleep_and_only_an_error_of_it_ends_the_queues() {
    let fake = Fake::new();
    let device = fake.open().expect("a device");
    let mut queues = device.open_queues(&SMALL).expect("queues");
    for (errno, expected) in [
        (None, Ok(())),
        (Some(libc::EINTR), Ok(())),
        (Some(libc::EIO), Err(CqError::Device(libc::EIO))),
    ] {
        fake.refuse("ibv_get_cq_event", errno);
        fake.forget_calls();
        queues.disarm(false).expect("nothing has rung");
        assert!(!fake.calls().contains(&"ibv_get_cq_event"));
        assert_eq!(queues.disarm(true), expected);
        assert!(fake.calls().contains(&"ibv_get_cq_event"));
    }
}

#[test]
fn a_refused_post_is_kept_with_its_cause_unless_the_queue_is_full() {
    let fake = Fake::new();
    let device = fake.open().expect("a device");
    let mut host = Host::new(&device, &SMALL);
    let endpoint = host.queues.handle().port.create(None).map_err(|(_, error)| error);
    let qp = host.queues.attach(endpoint.expect("a queue pair")).expect("its own").qp;
    let wr = SendWr { wr_id: WrId(1), op: SendOp::Send, sgl: &[], flags: SendFlags::SIGNALED };
    fake.refuse("ibv_post_send", Some(libc::EIO));
    let outcome = host.post_all(qp, &[wr]).expect_err("it fails");
    assert_eq!(outcome.1, PostError::QpGone);
    let said = device.events().last_failure.expect("there was one");
    assert!(said.contains("ibv_post_send") && said.contains("os error 5"), "{said}");
    fake.refuse("ibv_post_srq_recv", Some(libc::EIO));
    let sgl = [host.sge(0, 64)];
    host.recv_at(1, &sgl).expect_err("it fails");
    let said = device.events().last_failure.expect("there was one");
    assert!(said.contains("ibv_post_srq_recv"), "{said}");
    let before = device.events().failures;
    fake.refuse("ibv_post_send", Some(libc::ENOMEM));
    host.post_all(qp, &[wr]).expect_err("it fails");
    assert_eq!(device.events().failures, before, "a full queue is no failure");
    fake.refuse("ibv_post_send", Some(libc::ENOTCONN));
    host.post_all(qp, &[wr]).expect_err("it fails");
    assert_eq!(device.events().failures, before, "the peer's disconnection is reported as such");
    host.queues.disconnect(qp);
    fake.refuse("ibv_post_send", Some(libc::EINVAL));
    host.post_all(qp, &[wr]).expect_err("it fails");
    let events = device.events();
    assert_eq!(events.failures, before, "a queue pair in error takes nothing");
    assert!(events.last_failure.expect("the last one").contains("ibv_post_srq_recv"));
}
