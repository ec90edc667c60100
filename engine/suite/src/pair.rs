//! A server that answers with a function, and its client, on one thread.

use std::time::Duration;

use rpcrdma::control::Control;
use rpcrdma::stats::Snapshot;
use rpcrdma::{
    Address, Answer, Call, CallBuilder, CallError, Client, Completion, Config, ConnectionId,
    Counts, Engine, Fabric, Handler, Incoming, LatencyReport, Loan, Provider, Reply, Shard,
    ShardHandle, Turn,
};
use rpcrdma_config::Raw;

use crate::opener::{Open, Time};
use crate::setup::suited;

/// A handler that answers with a function, from registered buffers that it keeps.
pub struct Server {
    buffers: Vec<Loan>,
    answer: Respond,
}

/// The function that answers a call.
pub type Respond = for<'a> fn(&mut Vec<Loan>, Call<'a>, Reply<'a>) -> Answer<'a>;

impl Handler for Server {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        (self.answer)(&mut self.buffers, call, reply)
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while self.buffers.len() < 6
            && let Some(loan) = turn.buffer()
        {
            self.buffers.push(loan);
        }
    }
}

/// A server and a client on one thread.
pub struct Pair<P: Provider = Fabric> {
    // Shards first: they are dropped before their engine.
    client: Client<P>,
    server: Shard<P, Server>,
    control: Control<P>,
    peer: ConnectionId,
    now: u64,
    time: Time,
    /// The address that the server listens on.
    pub at: Address,
    /// Another opening of the device of both.
    pub fabric: P,
    _engine: Engine<P>,
}

impl Pair {
    /// A connected server and client.
    ///
    /// # Panics
    /// If they cannot connect.
    pub fn new(answer: Respond) -> Pair {
        Pair::configured(answer, |_| {})
    }

    /// The same, with a changed configuration.
    ///
    /// # Panics
    /// If they cannot connect.
    pub fn configured(answer: Respond, change: impl FnOnce(&mut Raw)) -> Pair {
        let fabric = Fabric::new();
        Pair::on(&move || fabric.clone(), answer, change)
    }
}

impl<P: Provider> Pair<P> {
    /// The same, on any device.
    ///
    /// # Panics
    /// If they cannot connect.
    pub fn on(open: Open<'_, P>, answer: Respond, change: impl FnOnce(&mut Raw)) -> Pair<P> {
        let mut raw = Config::default().raw().clone();
        raw.connections.max = 1;
        raw.app.bulk.length = "128KiB".into();
        change(&mut raw);
        let device = open.open();
        let config = suited(&device, &raw);
        let (engine, mut control) = Engine::without_threads(device, config).expect("an engine");
        let mut server =
            engine.shard(Server { buffers: Vec::new(), answer }).expect("a serving shard");
        let mut client = engine.client().expect("a client");
        let at = control.listen(open.at()).expect("a port");
        let attempt = client.begin_connect(at).expect("an attempt");
        let (mut now, time) = (0, open.time());
        let mut patience = time.patience();
        let peer = loop {
            assert!(patience.is_left(), "they come together");
            now = time.behind(now);
            control.step(Duration::ZERO);
            server.poll_once(now);
            client.poll(now, |_| {});
            if let Some(outcome) = client.connected(attempt) {
                break outcome.expect("a connection");
            }
        };
        let fabric = open.open();
        Pair { client, server, control, peer, now, time, at, fabric, _engine: engine }
    }

    /// A registered buffer of the client with these bytes.
    ///
    /// # Panics
    /// If none is left.
    pub fn buffer(&mut self, bytes: &[u8]) -> Loan {
        let mut loan = self.client.turn(self.now).buffer().expect("a buffer");
        loan.truncate(bytes.len());
        loan.copy_from_slice(bytes);
        loan
    }

    /// Begins a call.
    ///
    /// # Panics
    /// If no slot is free.
    pub fn begin(&mut self) -> CallBuilder<'_> {
        self.client.call(self.peer, 0).expect("a call slot")
    }

    /// Polls both until the submitted call is complete.
    ///
    /// # Panics
    /// If it does not complete.
    pub fn finish<T>(&mut self, read: impl FnOnce(Result<&Incoming<'_>, CallError>) -> T) -> T {
        self.complete(|done| read(done.result()))
    }

    /// The same, with the whole completion.
    ///
    /// # Panics
    /// If it does not complete.
    pub fn complete<T>(&mut self, read: impl FnOnce(&mut Completion<'_>) -> T) -> T {
        let mut read = Some(read);
        let mut outcome = None;
        let mut patience = self.time.patience();
        while patience.is_left() {
            self.step_server();
            self.client.poll(self.now, |mut done| {
                outcome = read.take().map(|read| read(&mut done));
            });
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        panic!("the call does not end");
    }

    /// Polls the server only, for other clients.
    pub fn step_server(&mut self) {
        self.now = self.time.behind(self.now);
        self.control.step(Duration::ZERO);
        self.server.poll_once(self.now);
    }

    /// The latencies of the server, and of the client.
    pub fn latencies(&self) -> [LatencyReport; 2] {
        [self.server.handle(), self.client.handle()].map(ShardHandle::latencies)
    }

    /// The counters of the server.
    pub fn served(&self) -> Snapshot {
        self.server.handle().stats()
    }

    /// What the connections of the server have counted.
    pub fn counts(&mut self) -> Counts {
        self.server.inspect().counts()
    }
}
