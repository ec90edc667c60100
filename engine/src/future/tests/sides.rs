//! The clients that the tests are about.

use std::pin::Pin;

use crate::future::awaited::Outcome;
use crate::future::poller::Poller;
use crate::future::{AsyncClient, AsyncError, AsyncOptions, LocalClient, Request};
use crate::{Fabric, Loan, Outage, Session, SessionEvent};

/// A future of a client.
pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// A client, and what polls its session.
pub(super) trait Side: Sized {
    /// With so many places for calls that are queued, if it has places.
    fn new(session: Session<Fabric>, queued_calls: usize) -> Self;
    fn call(&self, request: Request) -> Boxed<Outcome>;
    fn buffer(&self) -> Boxed<Result<Loan, AsyncError>>;
    fn next_event(&self) -> Boxed<Option<SessionEvent>>;
    /// The connections that are up, and why there is none.
    fn state(&self) -> (usize, Option<Outage>);
    /// Polls once.
    fn turn(&mut self, now: u64);
    fn session<T>(&mut self, with: impl FnOnce(&mut Session<Fabric>) -> T) -> T;
    /// Calls that the session has.
    fn open(&self) -> usize;
    fn close(&mut self) -> Boxed<()>;
}

/// A client with a thread of its own, without it.
pub(super) struct OwnThread {
    /// None once it is closed.
    pub client: Option<AsyncClient>,
    pub poller: Poller<Fabric>,
}

impl OwnThread {
    pub fn client(&self) -> &AsyncClient {
        self.client.as_ref().expect("it is not closed")
    }
}

impl Side for OwnThread {
    fn new(session: Session<Fabric>, queued_calls: usize) -> OwnThread {
        let (client, poller) = AsyncClient::new(session, &AsyncOptions { queued_calls });
        OwnThread { client: Some(client), poller }
    }

    fn call(&self, request: Request) -> Boxed<Outcome> {
        Box::pin(self.client().call(request))
    }

    fn buffer(&self) -> Boxed<Result<Loan, AsyncError>> {
        Box::pin(self.client().buffer())
    }

    fn next_event(&self) -> Boxed<Option<SessionEvent>> {
        Box::pin(self.client().next_event())
    }

    fn state(&self) -> (usize, Option<Outage>) {
        (self.client().connections(), self.client().outage())
    }

    fn turn(&mut self, now: u64) {
        if !self.poller.turn(now) {
            let Poller { calls, session, .. } = &mut self.poller;
            assert!(!calls.submit(session), "a thread that may sleep has passed on what it can");
        }
        self.poller.is_over();
    }

    fn session<T>(&mut self, with: impl FnOnce(&mut Session<Fabric>) -> T) -> T {
        with(&mut self.poller.session)
    }

    fn open(&self) -> usize {
        self.poller.calls.open()
    }

    fn close(&mut self) -> Boxed<()> {
        Box::pin(self.client().close())
    }
}

impl Side for LocalClient<Fabric> {
    fn new(session: Session<Fabric>, _: usize) -> LocalClient<Fabric> {
        LocalClient::new(session)
    }

    fn call(&self, request: Request) -> Boxed<Outcome> {
        Box::pin(LocalClient::call(self, request))
    }

    fn buffer(&self) -> Boxed<Result<Loan, AsyncError>> {
        Box::pin(LocalClient::buffer(self))
    }

    fn next_event(&self) -> Boxed<Option<SessionEvent>> {
        Box::pin(LocalClient::next_event(self))
    }

    fn state(&self) -> (usize, Option<Outage>) {
        (self.connections(), self.outage())
    }

    fn turn(&mut self, now: u64) {
        self.turn_once(now);
    }

    fn session<T>(&mut self, with: impl FnOnce(&mut Session<Fabric>) -> T) -> T {
        self.with_session(with)
    }

    fn open(&self) -> usize {
        LocalClient::open(self)
    }

    fn close(&mut self) -> Boxed<()> {
        Box::pin(LocalClient::close(self))
    }
}

/// Tests of both clients, of functions of a side.
macro_rules! both {
    ($($test:ident),+ $(,)?) => {
        mod own_thread {
            $(#[test]
            fn $test() {
                super::$test::<super::OwnThread>();
            })+
        }

        mod local {
            $(#[test]
            fn $test() {
                super::$test::<super::LocalClient<super::Fabric>>();
            })+
        }
    };
}
pub(super) use both;
