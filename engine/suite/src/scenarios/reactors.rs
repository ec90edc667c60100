//! Shards and clients in event loops of their own: what their descriptors say, and that no thread
//! that sleeps by them is left asleep.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rpcrdma::provider::{Armed, readable};
use rpcrdma::{
    Address, Answer, Call, Client, Clock, CloseReason, ConnectionId, Engine, Finished, Handler,
    Provider, Reply, Shard, ShardHandle, Ticket,
};

use super::threads::started;
use crate::script::Random;
use crate::world::{Open, small};

/// A descriptor stays readable until the next poll, and is silent after it.
pub fn a_descriptor_is_readable_until_the_next_poll<P: Provider>(open: Open<'_, P>) {
    let mut loops = Loops::new(open);
    for cookie in 0..20 {
        loops.park();
        let call = loops.client.call(loops.peer, cookie).expect("a credit");
        call.submit().expect("it is short");
        assert_eq!(loops.client.arm(loops.clock.now()), Armed::Ready, "it has something to send");
        loops.client.poll(loops.clock.now(), |_| {});
        assert!(is_readable(&loops.server, LIMIT), "the call ends the sleep of the server");
        assert!(is_readable(&loops.server, Duration::ZERO), "until it is polled");
        let mut is_done = false;
        while !is_done {
            loops.server.poll_once(loops.clock.now());
            is_done = loops.poll_client();
        }
    }
}

/// A shard that other threads write to wakes up, and one that they have written to does not sleep.
pub fn a_message_of_another_thread_ends_a_sleep<P: Provider>(open: Open<'_, P>) {
    let mut loops = Loops::new(open);
    let handle = loops.server.handle().clone();
    for _ in 0..20 {
        loops.park();
        handle.wake();
        assert!(is_readable(&loops.server, Duration::ZERO), "it is woken");
        loops.server.poll_once(loops.clock.now());
        handle.wake();
        assert_eq!(loops.server.arm(loops.clock.now()), Armed::Ready);
        loops.server.poll_once(loops.clock.now());
    }
    // A second announcement is one too.
    loops.park();
    loops.server.arm(loops.clock.now());
    assert!(!is_readable(&loops.server, Duration::ZERO));
}

/// The steps of falling asleep meet those of waking up at all distances.
pub fn sleeping_shards_and_clients_are_always_woken<P: Provider>(open: Open<'_, P>) {
    let engine = started(open, &small());
    let (elsewhere, tickets) = mpsc::channel();
    let mut server = engine.shard(Doubling::new(elsewhere)).expect("a shard");
    let at = engine.listen(open.at()).expect("a port");
    let handle = server.handle().clone();
    let finisher = thread::spawn(move || finish(&handle, tickets));
    let sleeps = thread::scope(|scope| {
        scope.spawn(|| {
            let (mut random, clock) = (Random(7), Clock::new());
            while server.handler().ended < CLIENTS {
                if !server.poll_once(clock.now()) {
                    think(&mut random);
                    sleep(|limit| server.wait(limit));
                }
            }
        });
        let asking: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                let engine = started(open, &small());
                scope.spawn(move || ask(&engine, at, &mut Random(seed as u64)))
            })
            .collect();
        asking.into_iter().map(|it| it.join().expect("it is woken")).sum::<u64>()
    });
    assert!(sleeps > 0 && server.handle().stats().sleeps > 0);
    drop((server, engine));
    finisher.join().expect("it ends with the shard");
}

/// A server and a client in the loop of one thread.
struct Loops<P: Provider> {
    server: Shard<P, Doubling>,
    client: Client<P>,
    peer: ConnectionId,
    clock: Clock,
    _engine: Engine<P>,
}

impl<P: Provider> Loops<P> {
    fn new(open: Open<'_, P>) -> Loops<P> {
        let engine = started(open, &small());
        let mut server = engine.shard(Doubling::default()).expect("a shard");
        let at = engine.listen(open.at()).expect("a port");
        let mut client = engine.client().expect("a client");
        let attempt = client.begin_connect(at).expect("there is room");
        let clock = Clock::new();
        let peer = loop {
            server.poll_once(clock.now());
            client.poll(clock.now(), |_| {});
            if let Some(outcome) = client.connected(attempt) {
                break outcome.expect("a connection");
            }
        };
        Loops { server, client, peer, clock, _engine: engine }
    }

    /// Polls both until the server may sleep and nothing wakes it.
    fn park(&mut self) {
        let mut quiet = 0;
        while quiet < 20 {
            self.poll_client();
            let busy = self.server.poll_once(self.clock.now());
            let armed = self.server.arm(self.clock.now());
            let is_woken = busy || armed == Armed::Ready || is_readable(&self.server, BRIEF);
            quiet = if is_woken { 0 } else { quiet + 1 };
        }
    }

    /// Whether a call is over.
    fn poll_client(&mut self) -> bool {
        let mut is_done = false;
        self.client.poll(self.clock.now(), |done| {
            done.result().expect("it is answered");
            is_done = true;
        });
        is_done
    }
}

/// Calls one at a time, and sleeps without a limit. Returns how often.
fn ask<P: Provider>(engine: &Engine<P>, at: Address, random: &mut Random) -> u64 {
    let mut client = engine.client().expect("a client");
    let peer = client.connect(at).expect("a connection");
    let clock = Clock::new();
    for cookie in 0..CALLS {
        let mut call = client.call(peer, cookie).expect("there is one call at a time");
        call.payload().put_u32(cookie as u32);
        call.submit().expect("it is short");
        let mut answer = None;
        while answer.is_none() {
            let busy = client.poll(clock.now(), |done| {
                let reply = done.result().expect("it is answered");
                answer = reply.reader().u32().ok();
            });
            if !busy {
                think(random);
                sleep(|limit| client.wait(limit));
            }
        }
        assert_eq!(answer, Some(2 * cookie as u32));
        think(random);
    }
    client.handle().stats().sleeps
}

/// Answers with twice the number that it is sent, some of them on another thread.
#[derive(Default)]
struct Doubling {
    elsewhere: Option<mpsc::Sender<(Ticket, u32)>>,
    ended: usize,
}

impl Doubling {
    fn new(elsewhere: mpsc::Sender<(Ticket, u32)>) -> Doubling {
        Doubling { elsewhere: Some(elsewhere), ended: 0 }
    }
}

impl Handler for Doubling {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let number = call.reader().u32().unwrap_or(0);
        if let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| number.is_multiple_of(3)) {
            let (answer, ticket) = reply.defer();
            elsewhere.send((ticket, 2 * number)).expect("it lives as long");
            return answer;
        }
        reply.payload().put_u32(2 * number);
        reply.send()
    }

    fn on_close(&mut self, _peer: ConnectionId, _why: CloseReason) {
        self.ended += 1;
    }
}

/// Answers what it is given, a little later.
fn finish(shard: &ShardHandle, tickets: mpsc::Receiver<(Ticket, u32)>) {
    let mut random = Random(3);
    for (ticket, number) in tickets {
        think(&mut random);
        let mut finished = Finished::default();
        finished.head.extend(number.to_be_bytes());
        shard.finish(ticket, finished).expect("the shard is there");
    }
}

fn is_readable(of: &impl AsFd, limit: Duration) -> bool {
    readable([of.as_fd().as_raw_fd()], limit).expect("it can be waited for") == [true]
}

/// Sleeps as long as it takes.
fn sleep(sleep: impl FnOnce(Duration)) {
    let begun = Instant::now();
    sleep(LIMIT);
    assert!(begun.elapsed() < LIMIT, "it was not woken");
}

/// Takes some time, mostly as short as the steps of falling asleep.
fn think(random: &mut Random) {
    let span = random.choose(&[1, 30, 300, 3000]);
    for _ in 0..random.below(span) {
        std::hint::spin_loop();
    }
}

const CLIENTS: usize = 2;
const CALLS: u64 = 1000;
/// What no sleeper sleeps.
const LIMIT: Duration = Duration::from_secs(30);
/// What is on its way has arrived by then.
const BRIEF: Duration = Duration::from_micros(100);
