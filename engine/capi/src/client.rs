//! The client: a calling shard that its program polls. Connections that it or a shard requests.

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd};

use ::rpcrdma::{
    Address, Armed, Client, ConnectError, ConnectId, ConnectionId, Provider, SetupError,
    ShardState, Turn,
};

use crate::arguments::{OK, address, caught, give, given, shared, value};
use crate::done::Done;
use crate::engine::rpcrdma_engine;
use crate::failure::{Failure, fail, plain, setup};
use crate::handler::{attempt_of, id_of};
use crate::message::rpcrdma_connection;
use crate::polled::{Message, Polled, not_begun, rpcrdma_call, rpcrdma_polled};
use crate::provider::{AnyEngine, each};
use crate::status::rpcrdma_status::RPCRDMA_E_PENDING;

/// A client for the calling thread to poll. Freed by `rpcrdma_polled_free`.
///
/// Thread: one at a time; the calling thread polls it.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_client_new(
    engine: Option<&mut rpcrdma_engine>,
    client: Option<&mut MaybeUninit<*mut rpcrdma_polled>>,
) -> c_int {
    given!(engine, client);
    caught(|| match each!(AnyEngine, &engine.engine, it => it.client().map(made)) {
        Ok(made) => give(client, made),
        Err(error) => setup(&error),
    })
}

/// Connects a client and waits until calls can be made. Completions of other calls that arrive
/// meanwhile are lost: connect first. Needs an engine with a control thread.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_connect(
    client: *mut rpcrdma_polled,
    to: *const c_char,
    connection: Option<&mut MaybeUninit<rpcrdma_connection>>,
) -> c_int {
    shared!(client);
    given!(connection);
    // SAFETY: the program passes a text.
    let to = value!(unsafe { address(to) });
    let client = value!(client.free());
    caught(|| match value!(client.connect(to)) {
        Ok(name) => {
            connection.write(rpcrdma_connection::of(name));
            OK
        }
        Err(error) => setup(&error),
    })
}

/// Requests a connection of a client, whose outcome `rpcrdma_connected` returns after some polls, or
/// of a shard, whose `on_connect` or `on_refused` receives it with `attempt`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_begin_connect(
    polled: *mut rpcrdma_polled,
    to: *const c_char,
    attempt: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    shared!(polled);
    given!(attempt);
    // SAFETY: the program passes a text.
    let to = value!(unsafe { address(to) });
    let object = value!(polled.free());
    caught(|| match value!(object.begin_connect(to)) {
        Ok(id) => {
            attempt.write(attempt_of(id));
            OK
        }
        Err(error) => setup(&error),
    })
}

/// The outcome of a client's attempt to connect, once: 0 with `connection`, `RPCRDMA_E_PENDING` if
/// it is open (or was returned), otherwise why there is none.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_connected(
    client: *mut rpcrdma_polled,
    attempt: u64,
    connection: Option<&mut MaybeUninit<rpcrdma_connection>>,
) -> c_int {
    shared!(client);
    given!(connection);
    match value!(value!(client.free()).connected(id_of(attempt))) {
        None => plain(RPCRDMA_E_PENDING),
        Some(Err(why)) => fail(Failure::Connect(why)),
        Some(Ok(name)) => {
            connection.write(rpcrdma_connection::of(name));
            OK
        }
    }
}

fn made<P: Provider>(client: Client<P>) -> Box<rpcrdma_polled> {
    let (handle, fd) = (client.handle().clone(), client.as_fd().as_raw_fd());
    rpcrdma_polled::new(client, handle, fd)
}

impl<P: Provider> Polled for Client<P> {
    fn poll(&mut self, now: u64, done: &Done) -> bool {
        Client::poll(self, now, |it| done.report(it))
    }

    fn poll_for(&mut self, timeout: Duration, done: &Done) -> bool {
        Client::poll_for(self, timeout, |it| done.report(it))
    }

    fn idle(&mut self, busy: bool, now: u64, timeout: Duration) -> bool {
        Client::idle(self, busy, now, timeout)
    }

    fn arm(&mut self, now: u64) -> Armed {
        Client::arm(self, now)
    }

    fn wait(&mut self, timeout: Duration) {
        Client::wait(self, timeout);
    }

    fn is_stopped(&mut self) -> bool {
        matches!(self.handle().state(), ShardState::Ended | ShardState::Panicked)
    }

    fn connect(&mut self, to: Address) -> Result<Result<ConnectionId, SetupError>, c_int> {
        Ok(Client::connect(self, to))
    }

    fn begin_connect(&mut self, to: Address) -> Result<Result<ConnectId, SetupError>, c_int> {
        Ok(Client::begin_connect(self, to))
    }

    fn connected(
        &mut self,
        attempt: ConnectId,
    ) -> Result<Option<Result<ConnectionId, ConnectError>>, c_int> {
        Ok(Client::connected(self, attempt))
    }

    fn with_turn(&mut self, act: &mut dyn FnMut(&mut Turn<'_>)) {
        act(&mut self.turn(0));
    }

    fn begin(
        &mut self,
        to: rpcrdma_connection,
        cookie: u64,
        place: &mut rpcrdma_call,
    ) -> Result<(), c_int> {
        let begun = self.call(to.name(), cookie);
        begun.map(|builder| place.begin(builder, to, cookie)).map_err(not_begun)
    }

    fn send(&mut self, to: ConnectionId, cookie: u64, message: &Message<'_>) -> Result<(), c_int> {
        message.submit(self.call(to, cookie))
    }
}
