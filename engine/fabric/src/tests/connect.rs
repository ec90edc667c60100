//! Connecting: listeners, requests, rejections, private data, and messages before both sides are
//! attached.

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::{Options, Subject};
use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectError, ConnectionManager, Provider, QueueAttr, QueueEvent,
    Queues, SetupError, WcStatus,
};

use super::rules::Pair;
use crate::Fabric;

const QUIET: ConnParam<'static> = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };

#[test]
fn private_data_goes_both_ways_and_ports_are_given_out() {
    let device = Fabric::new();
    let (a, b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let mut server = device.open_cm().unwrap();
    let mut client = device.clone().open_cm().unwrap();
    let one = server.listen("10.0.0.1:0".parse().unwrap()).unwrap();
    let other = server.listen("10.0.0.1:0".parse().unwrap()).unwrap();
    let port = |at: Address| at.as_ip().expect("an IP address").port();
    assert!(one != other);
    // RFC 6335 6: the ports that nothing is registered at.
    assert!(port(one) >= 49_152 && port(other) >= 49_152, "{one} {other}");
    let param = ConnParam { private: &[7; 56], rnr_retry: 7, send_timeout: None };
    let id = client.connect(other, &a.queues.handle(), &param).unwrap();
    let Some(CmEvent::Request { request, from, private }) = next(&mut server) else { panic!() };
    assert_eq!((from.origin(), private.as_slice()), (other.origin(), &[7; 56][..]));
    let answer = ConnParam { private: &[1, 2, 3], rnr_retry: 7, send_timeout: None };
    let _endpoint = server.accept(request, &b.queues.handle(), &answer).unwrap();
    let Some(CmEvent::Connected { id: connected, private, .. }) = next(&mut client) else {
        panic!()
    };
    assert_eq!((connected, private.as_slice()), (id, &[1, 2, 3][..]));
    client.connect(other, &a.queues.handle(), &param).unwrap();
    let Some(CmEvent::Request { from: second, .. }) = next(&mut server) else { panic!() };
    assert!(port(from) >= 49_152 && port(second) >= 49_152 && from != second, "{from} {second}");
}

#[test]
fn an_address_has_one_listener_until_its_manager_is_dropped() {
    let device = Fabric::new();
    let at = "10.0.0.1:20049".parse().unwrap();
    let mut first = device.open_cm().unwrap();
    let mut second = device.open_cm().unwrap();
    assert_eq!(first.listen(at).unwrap(), at);
    assert!(matches!(second.listen(at), Err(SetupError::Listen { address, .. }) if *address == at));
    drop(first);
    assert_eq!(second.listen(at).unwrap(), at);
}

#[test]
fn an_address_of_another_kind_is_refused_with_those_that_are_taken() {
    let device = Fabric::new();
    let host = Host::new(&device, &SMALL);
    let mut cm = device.open_cm().unwrap();
    for text in ["shm:/run/store.sock", "shm:@store"] {
        let at: Address = text.parse().unwrap();
        let said = cm.listen(at).expect_err("no socket is made").to_string();
        let taken = "the software fabric takes only IP addresses (ADDR:PORT)";
        assert_eq!(said, format!("cannot listen on {text}: {taken}"));
        let refused = cm.connect(at, &host.queues.handle(), &QUIET).expect_err("no socket");
        assert_eq!(refused.to_string(), format!("cannot connect to {text}: {taken}"));
        let SetupError::Connect { to, reason } = refused else { panic!("{refused}") };
        assert!(*to == at && matches!(reason, ConnectError::WrongAddress { .. }));
        cm.unlisten(at);
    }
    let in_use = device.in_use();
    assert_eq!((in_use.listeners, in_use.queue_pairs), (0, 0));
}

#[test]
fn options_and_attributes_beyond_the_device_are_refused() {
    for slots in [0, 8, 48, 131_072] {
        let options = Options { slots: Some(slots), ..Options::default() };
        assert!(matches!(Fabric::made(&options), Err(SetupError::Invalid { .. })));
    }
    let device = Fabric::new();
    let limit = device.caps().send_sge;
    assert!(device.open_queues(&QueueAttr { send_sge: limit, ..SMALL }).is_ok());
    let refused = device.open_queues(&QueueAttr { send_sge: limit + 1, ..SMALL });
    assert!(matches!(refused, Err(SetupError::Limit { needed, .. }) if needed == 15));
    let sum = QueueAttr { qp_max: 1 << 16, send_depth: 1 << 14, ..SMALL };
    assert!(matches!(device.open_queues(&sum), Err(SetupError::Limit { .. })));
}

#[test]
fn the_first_message_of_the_accepting_side_waits_until_the_other_is_attached() {
    let mut pair = Pair::small();
    let (ours, theirs) = endpoints(&pair.device, &pair.a, &pair.b, 7);
    let qb = pair.b.queues.attach(theirs).unwrap();
    pair.a.recv(10, 0, 64);
    pair.b.send(qb.qp, 1, b"early").unwrap();
    assert_eq!(pair.b.poll_dry(), []);
    assert_eq!(pair.a.poll_dry(), []);
    // Other connections of the same two are not held up.
    pair.a.recv(11, 64, 64);
    pair.b.send(pair.qb.qp, 2, b"other").unwrap();
    assert_eq!(pair.a.poll(), [received(10, pair.qa, 5)]);
    let qa = pair.a.queues.attach(ours).unwrap();
    pair.b.poll();
    assert_eq!(pair.a.poll(), [received(11, qa, 5)]);
    assert_eq!(pair.a.read(64, 5), b"early");
    pair.a.poll_dry();
    assert_eq!(brief(&pair.b.poll_dry()), [(2, WcStatus::Success), (1, WcStatus::Success)]);
}

#[test]
fn an_endpoint_dropped_before_it_was_attached_disconnects_the_other() {
    let mut pair = Pair::small();
    let (ours, theirs) = endpoints(&pair.device, &pair.a, &pair.b, 7);
    let qb = pair.b.queues.attach(theirs).unwrap();
    pair.b.send(qb.qp, 1, b"to no one").unwrap();
    drop(ours);
    assert_eq!(brief(&pair.b.poll_dry()), [(1, WcStatus::Flushed)]);
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
}
