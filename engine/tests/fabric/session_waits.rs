//! Where a call waits its deadline runs, and what cannot succeed ends with its cause. The places:
//!
//! | the call waits | test |
//! |---|---|
//! | in its session: no connection can be made | `without_a_connection_a_deadline_names_the_last_failure` |
//! | in its session: a connection is being made | `a_deadline_runs_while_a_connection_is_being_made` |
//! | in its session: no credit is free | `a_deadline_runs_while_a_call_waits_for_credits` |
//! | in its session: its connection was lost, and it is to be sent again | `a_deadline_runs_after_the_connection_was_lost` |
//! | in the shard, or with the peer | `deadlines::a_call_ends_at_most_a_millisecond_after_its_deadline_and_not_before` |
//! | for its memory to be exposed, or to come back | `given_up::memory_returns_when_no_peer_can_write_to_it` |
//! | for a place in the queue of an `AsyncClient` | `rpcrdma::future::tests::waits::a_deadline_runs_while_the_queue_is_full` |
//! | on its way to the thread of an `AsyncClient` | `rpcrdma::future::tests::waits::a_deadline_runs_before_the_thread_takes_the_call` |
//! | in the thread of an `AsyncClient`, whose session is full | `rpcrdma::future::tests::waits::a_deadline_runs_while_the_session_is_full` |
//! | the same, while the thread sleeps | `threads::a_call_that_waits_for_room_ends_while_the_thread_sleeps` |
//! | in a session of C | `functions::sessions::a_deadline_in_a_session_names_its_cause` |

use std::time::Duration;

use rpcrdma::provider::{ConnectError, Rejection};
use rpcrdma::{
    Address, CallError, CloseReason, Engine, Execution, Fabric, Outage, RefuseCalls, Resend,
    Session, SessionCallId, SessionError, SessionEvent, SessionOptions, SessionRefused,
};
use rpcrdma_suite::setup::{checked, small};

use super::sessions::{MS, Town, address, raw};

const NOT: Execution = Execution::NotExecuted;

impl Town {
    /// Makes a call with a deadline so many milliseconds from now.
    fn call_until(&mut self, cookie: u32, resend: Resend, ms: u64) -> SessionCallId {
        let mut call = self.session.call(cookie.into());
        call.put_u32(cookie);
        call.resend(resend);
        call.deadline(self.now + ms * MS);
        call.submit().expect("there is room")
    }
}

#[test]
fn without_a_connection_a_deadline_names_the_last_failure() {
    let mut town = Town::new(2, &SessionOptions::default());
    let call = town.call_until(1, Resend::Never, 50);
    assert_eq!(town.session.execution(call), Some(NOT));
    town.until("it is over", |town| town.done.len() == 1);
    assert_eq!(town.session.execution(call), None);
    assert!(town.now >= 50 * MS);
    let outage = Outage::NotConnected(ConnectError::NoListener);
    assert_eq!(town.done, [(1, Err(SessionError::DeadlineExceeded(outage, NOT)))]);
    assert_eq!(town.session.outage(), Some(outage));
    let text = "the call exceeded its deadline without a connection: the last attempt to connect \
                failed: no listener at this address (connection refused); the call was not executed";
    assert_eq!(town.done[0].1.expect_err("it failed").to_string(), text);
}

#[test]
fn a_deadline_runs_while_a_connection_is_being_made() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.call_until(1, Resend::Never, 5);
    while town.done.is_empty() {
        // The control plane does nothing: the attempt has no outcome.
        town.now += MS / 10;
        let Town { session, done, now, .. } = &mut town;
        session.poll(*now, |it| done.push((it.cookie(), it.result().map(|_| 0))));
        assert!(*now < 100 * MS, "it waits without end");
    }
    let late = SessionError::Call(CallError::DeadlineExceeded(NOT));
    assert_eq!(town.done, [(1, Err(late))]);
    assert_eq!(town.session.outage(), None, "nothing went wrong");
}

#[test]
fn a_deadline_runs_while_a_call_waits_for_credits() {
    let mut town = Town::new(1, &SessionOptions::default());
    town.begin(0);
    town.log.borrow_mut().holds = true;
    town.until("there is a connection", |town| town.session.connections() == 1);
    // More than there are credits.
    (0..40).for_each(|cookie| town.call(cookie, Resend::Never));
    town.call_until(40, Resend::Never, 5);
    town.until("it is over", |town| !town.done.is_empty());
    let late = SessionError::Call(CallError::DeadlineExceeded(NOT));
    assert_eq!(town.done, [(40, Err(late))]);
    assert!(!town.seen().contains(&40));
}

#[test]
fn a_deadline_runs_after_the_connection_was_lost() {
    let options = SessionOptions { backoff_min: Duration::from_secs(1), ..Default::default() };
    let mut town = Town::new(1, &options);
    town.begin(0);
    town.log.borrow_mut().holds = true;
    town.until("there is a connection", |town| town.session.connections() == 1);
    let call = town.call_until(1, Resend::SameXid, 100);
    town.until("it is there", |town| town.seen().len() == 1);
    assert_eq!(town.session.execution(call), Some(Execution::Unknown));
    town.now += 50 * MS;
    town.kill(0);
    town.until("it is over", |town| !town.done.is_empty());
    let [(1, Err(SessionError::DeadlineExceeded(outage, Execution::Unknown)))] = town.done[..]
    else {
        panic!("{:?}", town.done)
    };
    // The first attempt after the loss has a delay, unless the connection had not lasted.
    let refused = Outage::NotConnected(ConnectError::NoListener);
    assert!([Outage::Lost(CloseReason::PeerGone), refused].contains(&outage), "{outage}");
}

/// A session over the fabric, polled with its control plane. Returns its events.
fn events(session: &mut Session<Fabric>, step: &mut dyn FnMut()) -> Vec<SessionEvent> {
    let mut now = MS;
    for _ in 0..200 {
        now += 100 * MS;
        step();
        session.poll(now, |done| panic!("no call was made: {}", done.cookie()));
    }
    std::iter::from_fn(|| session.next_event()).collect()
}

#[test]
fn an_address_that_the_provider_cannot_use_ends_the_session_at_once() {
    let (engine, mut control) =
        Engine::without_threads(Fabric::new(), checked(&small())).expect("an engine");
    let wrong: Address = "shm:/run/nothing.sock".parse().expect("an address");
    let client = engine.client().expect("a client");
    let mut session =
        Session::seeded(client, [wrong], &SessionOptions::default(), 5).expect("a session");
    let (mut now, mut ends) = (MS, Vec::new());
    let mut call = session.call(1);
    call.put_u32(1);
    call.submit().expect("it may yet be sent");
    for _ in 0..100 {
        now += 1_000;
        control.step(Duration::ZERO);
        session.poll(now, |done| ends.push((done.cookie(), done.result().map(drop))));
    }
    let [(1, Err(SessionError::NoConnection(why, NOT)))] = ends[..] else { panic!("{ends:?}") };
    assert!(matches!(why, ConnectError::WrongAddress { .. }), "{why}");
    let mut call = session.call(2);
    call.put_u32(2);
    let refused = call.submit().expect_err("there will be no connection").why();
    assert_eq!(refused, SessionRefused::NoConnection(why));
    let events = events(&mut session, &mut || control.step(Duration::ZERO));
    let [SessionEvent::GivenUp { address, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*address, wrong);
    assert_eq!(session.open_calls(), 0);
    session.close();
    while !session.is_closed() {
        now += MS;
        session.poll(now, |_| ());
    }
}

#[test]
fn an_address_that_rejects_this_host_is_tried_once_and_the_next_is_used() {
    let fabric = Fabric::new();
    let mut servers = Vec::new();
    for (at, deny) in [(0, true), (1, false)] {
        let mut raw = small();
        if deny {
            raw.connections.deny = vec!["127.0.0.1".into()];
        }
        let (engine, mut control) =
            Engine::without_threads(fabric.clone(), checked(&raw)).expect("an engine");
        let shard = engine.shard(RefuseCalls).expect("a shard");
        control.listen(address(at)).expect("a listener");
        servers.push((shard, control, engine));
    }
    let (engine, mut control) =
        Engine::without_threads(fabric, checked(&small())).expect("an engine");
    let client = engine.client().expect("a client");
    let options = SessionOptions::default();
    let mut session = Session::seeded(client, [0, 1].map(address), &options, 5).expect("a session");
    let mut now = MS;
    let mut step = |servers: &mut Vec<_>| {
        now += 100_000;
        for (shard, control, _) in servers.iter_mut() {
            let shard: &mut rpcrdma::Shard<Fabric, RefuseCalls> = shard;
            let control: &mut rpcrdma::control::Control<Fabric> = control;
            control.step(Duration::ZERO);
            shard.poll_once(now);
        }
        control.step(Duration::ZERO);
    };
    let first = events(&mut session, &mut || step(&mut servers));
    let [
        SessionEvent::GivenUp { address: denied, why },
        SessionEvent::Connected { address: at, .. },
    ] = &first[..]
    else {
        panic!("{first:?}")
    };
    assert_eq!((*denied, *at), (address(0), address(1)));
    assert_eq!(why.as_connect_error(), ConnectError::Rejected(Rejection::NotAllowed));
    // The other ends. It may come back: the session goes on, and tries the first no more.
    servers.pop();
    let later = events(&mut session, &mut || step(&mut servers));
    let is_other = |event: &SessionEvent| match event {
        SessionEvent::Lost { address: at, .. } | SessionEvent::NotConnected { address: at, .. } => {
            *at == address(1)
        }
        _ => false,
    };
    assert!(later.len() > 2 && later.iter().all(is_other), "{later:?}");
}

// wire.md B4
#[test]
fn a_server_without_the_version_of_the_session_is_given_up() {
    let why = ConnectError::Version { low: 2, high: 2 };
    for connections in [1, 2, 3] {
        let options = SessionOptions { connections, ..SessionOptions::default() };
        let mut call = raw();
        call.protocol.version = "one".into();
        let mut town = Town::with(1, &options, &call);
        town.serve.protocol.version = "two".into();
        town.begin(0);
        for number in 0..6 {
            town.call(number, Resend::SameXid);
        }
        town.until("all are over", |town| town.done.len() == 6);
        let ends: Vec<_> = town.done.iter().map(|(_, end)| end.expect_err("no server")).collect();
        assert_eq!(ends, [SessionError::NoConnection(why, NOT); 6]);
        assert!(town.seen().is_empty());
        let next = town.session.call(7).submit().expect_err("there will be no connection").why();
        assert_eq!(next, SessionRefused::NoConnection(why));
        let events: Vec<_> = std::iter::from_fn(|| town.session.next_event()).collect();
        let given_up = |event: &&SessionEvent| matches!(event, SessionEvent::GivenUp { .. });
        assert_eq!(events.iter().filter(given_up).count(), 1, "{events:?}");
        (0..20_000).for_each(|_| town.step());
        assert!(town.session.next_event().is_none(), "it is not tried again");
    }
}

#[test]
fn a_call_that_a_server_refuses_for_its_version_goes_to_the_next_address() {
    let mut call = raw();
    call.protocol.version = "one".into();
    let mut town = Town::with(2, &SessionOptions::default(), &call);
    town.serve.protocol.version = "two".into();
    town.begin(0);
    town.serve.protocol.version = "one".into();
    town.begin(1);
    town.call(1, Resend::Never);
    town.until("it is over", |town| town.done.len() == 1);
    let [(1, Err(SessionError::Call(CallError::ConnectionLost(_, NOT))))] = town.done[..] else {
        panic!("{:?}", town.done);
    };
    town.call(2, Resend::SameXid);
    town.until("the other is answered", |town| town.done.len() == 2);
    assert_eq!(town.done[1], (2, Ok(2)));
}

/// It may have been recorded as one of version one by mistake.
#[test]
fn a_server_that_refuses_one_of_two_versions_is_tried_with_the_other() {
    let mut call = raw();
    call.protocol.version = "auto".into();
    let mut town = Town::with(1, &SessionOptions::default(), &call);
    town.serve.protocol.version = "one".into();
    town.begin(0);
    town.call(1, Resend::SameXid);
    town.until("version one", |town| town.done.len() == 1);
    town.kill(0);
    town.serve.protocol.version = "two".into();
    town.begin(0);
    town.call(2, Resend::SameXid);
    town.until("version two", |town| town.done.len() == 2);
    assert_eq!(town.done, [(1, Ok(1)), (2, Ok(2))]);
}
