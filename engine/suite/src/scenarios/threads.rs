//! Shards on their own threads, as the engine starts them; clients on other threads.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma::provider::ConnectId;
use rpcrdma::{
    Address, Admission, Answer, Call, CallError, CallRefused, Client, Clock, CloseReason,
    ConnectionId, Engine, Execution, Finished, Handler, Loan, PeerLimits, Provider, Reply,
    ShardHandle, Ticket, Turn,
};
use rpcrdma_config::Raw;

use crate::script::{Order, Part, Random, Script, unreduced_reply};
use crate::service::{Service, Source};
use crate::setup::suited;
use crate::world::{Open, is_passing, small};

/// Threads that pause and yield when there is nothing to do.
pub fn shards_that_back_off_serve_clients<P: Provider>(open: Open<'_, P>) {
    serve_from_threads(open, &threaded("backoff"), 2, 400);
}

/// Threads that sleep when there is nothing to do.
pub fn shards_that_block_serve_clients<P: Provider>(open: Open<'_, P>) {
    serve_from_threads(open, &threaded("block"), 2, 400);
}

/// Several clients, each with a connection to every shard.
pub fn shards_share_several_clients<P: Provider>(open: Open<'_, P>) {
    let mut raw = threaded("block");
    raw.connections.max = 5;
    serve_from_threads(open, &raw, 5, 150);
}

/// An engine that is stopped under load completes every call, with a reply or an error.
pub fn a_stop_completes_every_call<P: Provider>(open: Open<'_, P>) {
    let raw = threaded("block");
    let (mut engine, at, elsewhere) = serving(open, &raw);
    let finisher = thread::spawn(move || elsewhere.run());
    thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        for seed in 0..2 {
            let (raw, begun) = (raw.clone(), begun.clone());
            scope.spawn(move || {
                let calling = started(open, &raw);
                let mut caller = Caller::new(&calling, at);
                let mut random = Random(seed);
                let mut is_sent = false;
                let lost = caller.run(usize::MAX, &mut random, |done| {
                    if done > 50 && !is_sent {
                        is_sent = begun.send(()).is_ok();
                    }
                });
                assert!(lost.is_some(), "the server was stopped");
            });
        }
        drop(begun);
        has_begun.recv().expect("a client gets on");
        has_begun.recv().expect("so does the other");
        engine.stop();
    });
    drop(engine);
    finisher.join().expect("the finisher ends with the shards");
}

fn threaded(policy: &str) -> Raw {
    let mut raw = small();
    raw.engine.shards = 2;
    raw.engine.idle.policy = policy.into();
    raw.engine.idle.spin = "20us".into();
    raw.connections.stop_timeout = "500ms".into();
    raw.receive.spares = 64;
    raw
}

fn serve_from_threads<P: Provider>(open: Open<'_, P>, raw: &Raw, clients: u64, calls: usize) {
    let (mut engine, at, elsewhere) = serving(open, raw);
    let finisher = thread::spawn(move || elsewhere.run());
    thread::scope(|scope| {
        for seed in 0..clients {
            let raw = raw.clone();
            scope.spawn(move || {
                let calling = started(open, &raw);
                let mut caller = Caller::new(&calling, at);
                let lost = caller.run(calls, &mut Random(seed), |_| {});
                assert_eq!(lost, None);
                assert_eq!(caller.client.handle().stats().buffers_leaked, 0);
            });
        }
    });
    engine.stop();
    drop(engine);
    let finished = finisher.join().expect("the finisher ends with the shards");
    assert!(finished > 50, "{finished} answers and segments went through another thread");
}

/// Work of another thread: finishes tickets, drops segments.
struct Elsewhere {
    tickets: mpsc::Receiver<(ShardHandle, Ticket, Finished)>,
    segments: mpsc::Receiver<Loan>,
}

impl Elsewhere {
    /// Works until the shards have ended. Returns the amount of work.
    fn run(self) -> usize {
        let mut count = 0;
        for (handle, ticket, finished) in self.tickets {
            handle.finish(ticket, finished).expect("there is room for every ticket");
            count += 1 + self.segments.try_iter().count();
        }
        count + self.segments.iter().count()
    }
}

pub(super) fn started<P: Provider>(open: Open<'_, P>, raw: &Raw) -> Engine<P> {
    let device = open.open();
    let config = suited(&device, raw);
    Engine::new(device, config).expect("an engine")
}

fn serving<P: Provider>(open: Open<'_, P>, raw: &Raw) -> (Engine<P>, Address, Elsewhere) {
    let mut engine = started(open, raw);
    let (finish, tickets) = mpsc::channel();
    let (keep, segments) = mpsc::channel();
    let factory = move |handle| {
        let (finish, keep) = (finish.clone(), keep.clone());
        Serving { service: Service::default(), handle, finish, keep }
    };
    let handles = engine.start(factory).expect("two shards");
    assert_eq!(handles.len(), 2);
    let at = engine.listen(open.at()).expect("a port");
    (engine, at, Elsewhere { tickets, segments })
}

/// The service, with a channel to another thread.
struct Serving {
    service: Service,
    handle: ShardHandle,
    finish: mpsc::Sender<(ShardHandle, Ticket, Finished)>,
    keep: mpsc::Sender<Loan>,
}

impl Handler for Serving {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        self.service.on_call(call, reply)
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        self.service.on_turn(turn);
        for (ticket, finished) in self.service.elsewhere.drain(..) {
            // The receiver is gone if the test has failed.
            let _ = self.finish.send((self.handle.clone(), ticket, finished));
        }
        for segment in self.service.kept.drain(..) {
            let _ = self.keep.send(segment);
        }
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        limits: &PeerLimits,
    ) -> Admission {
        self.service.on_connect(peer, attempt, limits)
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        self.service.on_close(peer, why);
    }
}

/// A client on the thread of a test.
struct Caller<P: Provider> {
    // Dropped before the client that it is of.
    source: Source,
    client: Client<P>,
    peers: Vec<ConnectionId>,
    clock: Clock,
}

impl<P: Provider> Caller<P> {
    fn new(engine: &Engine<P>, at: Address) -> Caller<P> {
        let mut client = engine.client().expect("a client");
        let peers = (0..2).map(|_| client.connect(at).expect("a connection")).collect();
        let (clock, mut source) = (Clock::new(), Source::default());
        source.prepare(&mut client.turn(clock.now()));
        Caller { source, client, peers, clock }
    }

    /// Makes calls and checks every reply, until all are made or a connection is lost, which is
    /// returned. `progress` is called with the number of those that are over.
    fn run(
        &mut self,
        calls: usize,
        random: &mut Random,
        mut progress: impl FnMut(usize),
    ) -> Option<CallError> {
        let until = Instant::now() + PATIENCE;
        let mut open: Vec<Option<Script>> = Vec::new();
        let (mut done, mut lost) = (0, None);
        while done < open.len() || (lost.is_none() && open.len() < calls) {
            assert!(Instant::now() < until, "{done} of {} calls are over", open.len());
            let mut next = any_script(random);
            while lost.is_none() && open.len() < calls {
                let peer = self.peers[open.len() % 2];
                match self.call(peer, open.len() as u64, &next) {
                    Ok(()) => open.push(Some(std::mem::replace(&mut next, any_script(random)))),
                    Err(why) if is_passing(why) => break,
                    Err(CallRefused::NoPeer) => {
                        lost = Some(CallError::ConnectionLost(
                            CloseReason::PeerGone,
                            Execution::Unknown,
                        ));
                    }
                    Err(why) => panic!("{why}: {next:?}"),
                }
            }
            let busy = self.client.poll(self.clock.now(), |completion| {
                let script = open[completion.cookie() as usize].take();
                let script = script.expect("a call is completed once");
                done += 1;
                match completion.result() {
                    Ok(reply) => check(&script, &unreduced_reply(reply, &script)),
                    Err(CallError::Rejected(..)) if script.order == Order::Refuse => {}
                    Err(why) => lost = Some(why),
                }
            });
            progress(done);
            if !busy {
                self.client.wait(Duration::from_micros(200));
            }
        }
        lost
    }

    fn call(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
        script: &Script,
    ) -> Result<(), CallRefused> {
        self.source.submit(self.client.call(peer, cookie)?, script)
    }
}

fn any_script(random: &mut Random) -> Script {
    let order = random.choose(&[
        Order::Answer,
        Order::Answer,
        Order::Later,
        Order::Elsewhere,
        Order::Refuse,
        Order::Keep,
    ]);
    match order {
        // As much as fits an answer that is made elsewhere, and as there are buffers for.
        Order::Elsewhere => {
            let reply = [Part::Inline(random.below(100)), Part::Inline(random.below(40))];
            Script::new(random.below(1 << 20), &[Part::Bulk(random.below(9_000))], &reply)
        }
        _ => random.script(30_000),
    }
    .order(order)
}

fn check(script: &Script, stream: &[u8]) {
    let placed = stream.get(4..8).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes);
    let expected = script.reply_stream(placed.expect("two words"));
    assert!(stream == expected, "the reply is as its script says: {script:?}");
}

/// How long a test may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);
