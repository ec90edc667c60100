//! The thread that polls the session.

use std::convert::Infallible;
use std::time::Duration;

use async_channel::Sender;
use rpcrdma_engine::{Clock, Provider, Session};

use crate::desk::Desk;

/// What the thread owns. In this order it is dropped: calls are answered before their connections
/// end, and who waits for the end of the thread is told last.
pub(crate) struct Poller<P: Provider> {
    pub desk: Desk,
    pub session: Session<P>,
    is_ending: bool,
    /// Closed when it is dropped.
    _ended: Sender<Infallible>,
}

impl<P: Provider> Poller<P> {
    pub fn new(desk: Desk, session: Session<P>, _ended: Sender<Infallible>) -> Poller<P> {
        Poller { desk, session, is_ending: false, _ended }
    }

    /// Polls until the client is closed, and waits by the engine's idle policy.
    pub fn run(mut self) {
        let clock = Clock::new();
        while !self.is_over() {
            let now = clock.now();
            let busy = self.turn(now);
            match busy || !self.desk.is_short_of_buffers() {
                true => {
                    self.session.rest(busy, now);
                }
                false => self.session.wait(BUFFER_WAIT),
            }
        }
    }

    /// Does what there is to do, once. True if there was anything.
    pub fn turn(&mut self, now: u64) -> bool {
        let Poller { desk, session, .. } = self;
        let mut busy = desk.cancel(session);
        busy |= desk.submit(session);
        busy |= session.poll(now, |done| desk.complete(done));
        busy | desk.lend(session, now)
    }

    /// Whether the client was closed, and its connections have ended. Begins that.
    pub fn is_over(&mut self) -> bool {
        if !self.is_ending && self.desk.is_closed() {
            self.is_ending = true;
            self.desk.end();
            self.session.close();
        }
        self.session.is_closed()
    }
}

/// How often a thread that has nothing else to do looks for buffers that tasks wait for.
const BUFFER_WAIT: Duration = Duration::from_millis(1);
