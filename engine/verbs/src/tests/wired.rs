//! A connection from request to message, over a fake device that is wired to itself.

use std::time::Duration;

use rpcrdma_provider::{
    Attached, CmEvent, ConnParam, ConnectionManager, Provider, Queues, Waker, WcOpcode, WcStatus,
    WrId,
};

use super::rig::{Host, Pair, SMALL};
use crate::fake::Board;
use crate::{VerbsCm, VerbsQp};

/// The next event, which is there.
fn next(cm: &mut VerbsCm) -> CmEvent<VerbsCm> {
    let waker = Waker::new().expect("a descriptor");
    cm.next(&waker, Duration::ZERO).expect("the other end is heard")
}

/// Two hosts that their connection managers have connected.
fn connected() -> Pair {
    let device = Board::wired().open().expect("a device");
    let (mut a, mut b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let [mut there, mut here] = [(); 2].map(|()| device.open_cm().expect("a connection manager"));
    let param = |private| ConnParam { private, rnr_retry: 7 };
    let at = here.listen("192.0.2.1:20049".parse().expect("an address")).expect("a listener");
    let name = there.connect(at, &a.queues.handle(), &param(b"question")).expect("an attempt");
    let waker = Waker::new().expect("a descriptor");
    assert!(there.next(&waker, Duration::ZERO).is_none(), "the peer has not answered");
    let CmEvent::Request { request, private, .. } = next(&mut here) else { panic!("a request") };
    assert_eq!(private[..], *b"question");
    let accepted = here.accept(request, &b.queues.handle(), &param(b"answer")).expect("its own");
    let CmEvent::Connected { id, endpoint, private } = next(&mut there) else {
        panic!("an answer")
    };
    assert_eq!((id, &private[..]), (name, &b"answer"[..]));
    let qa = a.queues.attach(endpoint).expect("its own");
    let qb = b.queues.attach(accepted).expect("its own");
    assert!(here.next(&waker, Duration::ZERO).is_none(), "nothing failed");
    Pair { a, b, qa, qb }
}

#[test]
fn what_one_end_sends_the_other_receives() {
    let Pair { mut a, mut b, qa, qb } = connected();
    carries(&mut a, qa, &mut b, qb);
    carries(&mut b, qb, &mut a, qa);
}

fn carries(from: &mut Host, sender: Attached<VerbsQp>, to: &mut Host, receiver: Attached<VerbsQp>) {
    to.recvs(5..7, 1024, 16);
    from.write(0, b"patience");
    from.send(sender.qp, 3, 0, 8);
    let came = to.poll(1)[0];
    assert_eq!((came.wr_id, came.byte_len, came.qp_num), (WrId(5), 8, receiver.qp_num));
    assert_eq!((came.opcode, came.status), (WcOpcode::Recv, WcStatus::Success));
    assert_eq!(to.read(1024, 9), b"patience\0");
    assert_eq!(from.outcomes(1), [(3, WcStatus::Success)]);
    assert_eq!((from.poll_once(), to.poll_once()), (vec![], vec![]));
}

#[test]
fn a_message_without_a_receive_or_a_peer_fails() {
    let Pair { mut a, mut b, qa, qb } = connected();
    a.send(qa.qp, 1, 0, 8);
    assert_eq!(a.outcomes(1), [(1, WcStatus::RnrRetryExceeded)]);
    b.recvs(5..6, 0, 64);
    b.queues.destroy(qb.qp);
    b.queues.let_time_pass();
    b.queues.next_event();
    a.send(qa.qp, 2, 0, 8);
    assert_eq!(a.outcomes(1), [(2, WcStatus::RetryExceeded)]);
}
