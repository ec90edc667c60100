//! Connecting: requests, rejections, private data, limits, and endpoints that are not attached.

use std::time::Duration;

use rpcrdma_provider::{
    CmEvent, ConnParam, ConnectError, ConnectionManager, QueueAttr, QueueEvent, Queues, Rejection,
    SetupError, Waker, WcStatus,
};

use crate::host::*;
use crate::subject::Subject;

const QUIET: ConnParam<'static> = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(600);

/// The next event, which comes.
fn event<C: ConnectionManager>(cm: &mut C) -> CmEvent<C> {
    cm.next(&Waker::new().unwrap(), LONG).expect("something happens")
}

/// The next event, which is a request.
fn request<C: ConnectionManager>(cm: &mut C) -> (C::Request, Vec<u8>) {
    match event(cm) {
        CmEvent::Request { request, private, .. } => (request, private.to_vec()),
        _ => panic!("no request"),
    }
}

pub(crate) fn private_data_go_both_ways<S: Subject>() {
    let device = S::plain();
    let (a, b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let mut cm = device.open_cm().unwrap();
    let at = cm.listen(S::address()).unwrap();
    for (asked, answered) in [(&[7; 56][..], &[1, 2, 3][..]), (&[], &[9; 56])] {
        let param = ConnParam { private: asked, ..QUIET };
        let attempt = cm.connect(at, &a.queues.handle(), &param).unwrap();
        let (request, private) = request(&mut cm);
        assert_eq!(private, asked);
        let param = ConnParam { private: answered, ..QUIET };
        let _endpoint = cm.accept(request, &b.queues.handle(), &param).unwrap();
        let CmEvent::Connected { id, private, .. } = event(&mut cm) else { panic!("no answer") };
        assert_eq!((id, private.as_slice()), (attempt, answered));
    }
}

pub(crate) fn a_rejected_attempt_has_its_reason_and_gives_its_queue_pair_back<S: Subject>() {
    let device = S::plain();
    let host = Host::new(&device, &QueueAttr { qp_max: 1, ..SMALL });
    let mut cm = device.open_cm().unwrap();
    let at = cm.listen(S::address()).unwrap();
    let encoded = Rejection::Refused { code: 7 }.encode();
    let rejected = ConnectError::Rejected;
    let cases = [
        (None, rejected(Rejection::Unstated)),
        (Some(&encoded[..]), rejected(Rejection::Refused { code: 7 })),
        (Some(&b"no"[..]), rejected(Rejection::Unstated)),
        (Some(&encoded[..7]), rejected(Rejection::Unstated)),
        (Some(&[0xff; 148]), rejected(Rejection::Unstated)),
    ];
    for (private, why) in cases {
        let attempt = cm.connect(at, &host.queues.handle(), &QUIET).unwrap();
        match (request(&mut cm).0, private) {
            (request, None) => drop(request),
            (request, Some(private)) => cm.reject(request, private),
        }
        let CmEvent::Refused { id, reason } = event(&mut cm) else { panic!("it is refused") };
        assert_eq!((id, reason), (attempt, why));
    }
}

pub(crate) fn an_attempt_without_a_listener_is_refused_and_gives_its_queue_pair_back<S: Subject>() {
    let device = S::plain();
    let host = Host::new(&device, &QueueAttr { qp_max: 1, ..SMALL });
    let mut cm = device.open_cm().unwrap();
    for _ in 0..3 {
        let attempt = cm.connect(S::nowhere(), &host.queues.handle(), &QUIET).unwrap();
        let CmEvent::Refused { id, reason } = event(&mut cm) else { panic!("it is refused") };
        assert_eq!((id, reason), (attempt, ConnectError::NoListener));
    }
}

pub(crate) fn queue_pairs_private_data_and_retries_have_limits<S: Subject>() {
    let device = S::plain();
    let host = Host::new(&device, &QueueAttr { qp_max: 2, ..SMALL });
    let mut cm = device.open_cm().unwrap();
    let at = cm.listen(S::address()).unwrap();
    let handle = host.queues.handle();
    let long = ConnParam { private: &[0; 57], ..QUIET };
    let eager = ConnParam { rnr_retry: 8, ..QUIET };
    for param in [long, eager] {
        assert!(matches!(cm.connect(at, &handle, &param), Err(SetupError::Invalid { .. })));
    }
    cm.connect(at, &handle, &QUIET).unwrap();
    cm.connect(at, &handle, &QUIET).unwrap();
    let third = cm.connect(at, &handle, &QUIET);
    assert!(matches!(third, Err(SetupError::Limit { needed: 3, limit: 2, .. })));
    // The accepting side has the same limits.
    let (request, _) = request(&mut cm);
    let full = cm.accept(request, &handle, &QUIET);
    assert!(matches!(full, Err(SetupError::Limit { .. })));
}

pub(crate) fn an_endpoint_that_is_dropped_disconnects_the_other<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (ours, theirs) = endpoints(&pair.device, &pair.a, &pair.b, 7);
    let qb = pair.b.queues.attach(theirs).unwrap();
    drop(ours);
    pair.b.poll_dry();
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
    pair.b.send(qb.qp, 1, b"to no one").unwrap();
    assert_eq!(brief(&pair.b.poll_dry()), [(1, WcStatus::Flushed)]);
}

pub(crate) fn an_endpoint_belongs_to_the_queues_it_was_made_for<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (ours, theirs) = endpoints(&pair.device, &pair.a, &pair.b, 7);
    assert!(matches!(pair.b.queues.attach(ours), Err(SetupError::Invalid { .. })));
    let qb = pair.b.queues.attach(theirs).unwrap();
    pair.b.poll_dry();
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
}

pub(crate) fn a_waiting_manager_is_woken_by_an_event_and_by_its_waker<S: Subject>() {
    let device = S::plain();
    let host = Host::new(&device, &SMALL);
    let mut server = device.open_cm().unwrap();
    let at = server.listen(S::address()).unwrap();
    let waker = Waker::new().unwrap();
    let ringer = waker.clone();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            // The request is dropped, which is how the other side knows that it has come.
            assert!(matches!(server.next(&waker, LONG), Some(CmEvent::Request { .. })));
            assert!(server.next(&waker, LONG).is_none());
        });
        let mut client = device.open_cm().unwrap();
        client.connect(at, &host.queues.handle(), &QUIET).unwrap();
        let CmEvent::Refused { reason, .. } = event(&mut client) else { panic!("it is refused") };
        assert_eq!(reason, ConnectError::Rejected(Rejection::Unstated));
        ringer.ring();
        server.join().unwrap();
    });
}
