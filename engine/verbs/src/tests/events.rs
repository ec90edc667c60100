//! Events of the device and of librdmacm: the limit of waiting events, and the end of the channel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rpcrdma_provider::{
    Armed, CmEvent, ConnParam, ConnectError, ConnectionManager, Provider, QueueEvent, Queues,
    SetupError, Waker,
};

use super::rig::SMALL;
use crate::fake::Fake;
use crate::sys::verbs as sys;

const PARAM: ConnParam<'_> = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };

#[test]
fn a_port_that_goes_up_and_down_leaves_its_last_states_and_is_counted() {
    let fake = Fake::new();
    let device = fake.open().expect("a device");
    let mut queues = device.open_queues(&SMALL).expect("queues");
    let mut cm = device.open_cm().expect("a connection manager");
    let waker = Waker::new().expect("a descriptor");
    for _ in 0..100 {
        for event in [sys::IBV_EVENT_PORT_ERR, sys::IBV_EVENT_PORT_ACTIVE] {
            fake.report(std::ptr::without_provenance_mut(1), event);
        }
    }
    assert!(cm.next(&waker, Duration::ZERO).is_none());
    assert!(matches!(queues.arm(), Ok(Armed::Ready)), "no thread sleeps before it has read them");
    let events: Vec<_> = std::iter::from_fn(|| queues.next_event()).collect();
    assert_eq!(events, [QueueEvent::PortDown, QueueEvent::PortUp]);
    assert!(matches!(queues.arm(), Ok(Armed::AtMost(_))));
    for event in [sys::IBV_EVENT_PORT_ERR, sys::IBV_EVENT_PORT_ACTIVE, sys::IBV_EVENT_PORT_ERR] {
        fake.report(std::ptr::without_provenance_mut(1), event);
    }
    assert!(cm.next(&waker, Duration::ZERO).is_none());
    let events: Vec<_> = std::iter::from_fn(|| queues.next_event()).collect();
    assert_eq!(events, [QueueEvent::PortUp, QueueEvent::PortDown], "as it is now is said last");
    let events = device.events();
    assert_eq!((events.ports_down, events.ports_up), (102, 101));
}

#[test]
fn without_connection_events_connections_end_and_none_is_made() {
    let fake = Fake::new();
    let device = fake.open().expect("a device");
    let mut queues = device.open_queues(&SMALL).expect("queues");
    let mut cm = device.open_cm().expect("a connection manager");
    let waker = Waker::new().expect("a descriptor");
    let at = "192.0.2.1:20049".parse().expect("an address");
    cm.listen(at).expect("a listener");
    let name = cm.connect(at, &queues.handle(), &PARAM).expect("an attempt");
    fake.ask(1);
    let request = match cm.next(&waker, Duration::ZERO) {
        Some(CmEvent::Request { request, .. }) => request,
        _ => panic!("a peer has asked"),
    };
    // A signal says nothing of the channel.
    fake.refuse("rdma_get_cm_event", Some(libc::EINTR));
    assert!(cm.next(&waker, Duration::ZERO).is_none());
    assert_eq!(device.events().devices_lost, 0);
    // Another peer sends a request, which stays unread until the end.
    fake.refuse("rdma_get_cm_event", None);
    fake.ask(1);
    let once = AtomicBool::new(true);
    fake.on("rdma_get_cm_event", move || {
        if !once.swap(false, Ordering::Relaxed) {
            fake.refuse("rdma_get_cm_event", Some(libc::EIO));
        }
    });
    match cm.next(&waker, Duration::ZERO) {
        Some(CmEvent::Refused { id, reason }) => {
            assert_eq!((id, reason), (name, ConnectError::Lost))
        }
        _ => panic!("it ends"),
    }
    assert_eq!(queues.next_event(), Some(QueueEvent::DeviceLost));
    let events = device.events();
    assert_eq!((events.devices_lost, events.failures), (1, 1));
    assert!(events.last_failure.expect("there was one").contains("rdma_get_cm_event"));
    // Its descriptor stays readable. It is not polled, or every sleep would end at once.
    fake.ring_channel();
    fake.forget_calls();
    let before = fake.looks();
    assert!(cm.next(&waker, Duration::from_millis(20)).is_none());
    assert!(!fake.calls().contains(&"rdma_get_cm_event"));
    let looks = fake.looks() - before;
    assert!(looks < 5, "{looks}");
    assert!(cm.accept(request, &queues.handle(), &PARAM).is_err());
    let lost = SetupError::connect(at, ConnectError::Lost);
    let refused = cm.connect(at, &queues.handle(), &PARAM).expect_err("it is lost");
    assert_eq!(refused.to_string(), lost.to_string());
    assert!(cm.listen(at).is_err());
    assert!(cm.next(&waker, Duration::ZERO).is_none());
    assert_eq!(fake.alive().get("id"), None, "the listener ended, and the request was rejected");
}
