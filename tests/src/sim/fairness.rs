//! Fairness: a thousand equal clients of 64 shards, under a seeded schedule in virtual time.
//!
//! ```text
//!   every step: all servers and clients in a new order, one in eight of them not at all,
//!               and the time moves on
//!   at the end: Jain's index over the replies of each client, and the longest wait of any of them
//! ```
//! Each client keeps as many calls under way as it can. Together the clients of a shard have more
//! calls under way than it takes in a turn: who is served, and when, is decided by the engine. With
//! an unfair [`Schedule`] the outcome must be another.
//!
//! If a shard has credits for half of them only ([`Size::is_scarce`]), those who came first keep
//! theirs, and the others go on with one each: no client waits long, and shares are not equal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpcrdma::control::Control;
use rpcrdma::fabric::{DeviceClock, FabricOptions};
use rpcrdma::{Address, Answer, Call, Client, ConnectionId, Engine, Fabric, Handler, Reply, Shard};
use rpcrdma_config::Raw;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Coverage, Failure, Outcome, Violation};
use crate::done::is_passing;
use crate::script::Random;
use crate::setup::{checked, small};

/// Who is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// All alike.
    Equal,
    /// Every fourth client only in every 32nd step: it gets fewer replies than the others.
    Slow,
    /// One client not at all for a quarter of the time: it waits longer than the others.
    Stalled,
}

/// How many there are, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Serving shards.
    pub shards: usize,
    /// Clients, each a shard of its own with one connection.
    pub clients: usize,
    /// Steps that are measured.
    pub steps: u32,
    /// Whether a shard grants only half of the credits that its clients want.
    pub is_scarce: bool,
}

impl Size {
    /// That of the test: 64 shards and 1000 clients.
    pub const LARGE: Size = Size { shards: 64, clients: 1000, steps: 400, is_scarce: false };
}

/// What a run has shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Replies in all.
    pub replies: u64,
    /// The fewest and the most replies of a client.
    pub least_most: (u64, u64),
    /// Jain's index of the replies of all clients: 1 if all have as many, 1/n if one has all.
    pub jain: f64,
    /// The longest time that a client has waited for its next reply, in virtual nanoseconds.
    pub longest_ns: u64,
    /// The virtual time of the run, in nanoseconds.
    pub elapsed_ns: u64,
    /// The fewest and the most clients of a shard.
    pub clients_of_shard: (usize, usize),
}

impl Seen {
    /// Whether the clients were treated alike, and none waited too long.
    ///
    /// # Errors
    /// What is not so, with the number and the bound.
    pub fn check(&self) -> Result<(), String> {
        if self.jain < JAIN_MIN {
            return Err(format!(
                "unfair: Jain's index is {:.4}, below {JAIN_MIN}: {self:?}",
                self.jain
            ));
        }
        if self.longest_ns > WAIT_MAX_NS {
            let ns = self.longest_ns;
            return Err(format!("a client waited {ns} ns, longer than {WAIT_MAX_NS}: {self:?}"));
        }
        Ok(())
    }
}

/// Runs one seed.
///
/// # Panics
/// If an engine cannot be made, or a call fails.
pub fn run(seed: u64, size: Size, schedule: Schedule) -> Seen {
    allow_descriptors(DESCRIPTORS_PER_SHARD * (size.shards + size.clients) as u64);
    let mut fleet = Fleet::connected(seed, size);
    for _ in 0..WARM_UP {
        fleet.step(|_, _| true);
    }
    fleet.begin();
    for step in 0..size.steps {
        let is_stalled = (size.steps / 4..size.steps / 2).contains(&step);
        fleet.step(|client, number| match schedule {
            Schedule::Equal => true,
            Schedule::Slow => client % 4 != 0 || number % 32 == 0,
            Schedule::Stalled => client != 0 || !is_stalled,
        });
    }
    fleet.seen()
}

/// As [`run`], of the size of the test, with a check, for `tests/run simulate`.
///
/// # Errors
/// If the clients were not treated alike, or one waited too long.
pub fn run_checked(seed: u64) -> Result<Outcome, Box<Failure>> {
    let seen = run(seed, Size::LARGE, Schedule::Equal);
    match seen.check() {
        Ok(()) => Ok(Outcome {
            hash: seen.longest_ns ^ seen.replies,
            events: seen.replies,
            coverage: Coverage::from([("replies", seen.replies)]),
        }),
        Err(detail) => Err(Box::new(Failure {
            seed,
            options: "--scenario fairness".to_owned(),
            violation: Violation { check: "equal clients are treated alike", detail },
            setup: format!("{:?}", Size::LARGE),
            story: Vec::new(),
        })),
    }
}

/// Answers each call at once.
struct Echo;

impl Handler for Echo {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let Ok(word) = call.reader().u32() else { return reply.refuse() };
        reply.payload().put_u32(word);
        reply.send()
    }
}

/// A client with its calls.
struct Caller {
    client: Client<Fabric>,
    peer: ConnectionId,
    under_way: u32,
    replies: u64,
    /// The last reply, or the beginning.
    last_ns: u64,
    longest_ns: u64,
}

impl Caller {
    /// Makes as many calls as it can, and takes replies.
    fn turn(&mut self, now: u64) {
        let Caller { client, peer, under_way, replies, last_ns, longest_ns } = self;
        while *under_way < WINDOW {
            let made = client.call(*peer, now).and_then(|mut call| {
                call.payload().put_u32(WORD);
                call.reply_payload_max(16);
                call.submit()
            });
            match made {
                Ok(()) => *under_way += 1,
                Err(why) if is_passing(why) => break,
                Err(why) => panic!("a call: {why}"),
            }
        }
        client.poll(now, |done| {
            done.result().expect("every call is answered");
            // From the call, or from the reply before: a client without a credit has no call.
            let since = done.cookie().min(*last_ns);
            *longest_ns = (*longest_ns).max(now - since);
            *replies += 1;
            *under_way -= 1;
            *last_ns = now;
        });
    }
}

/// All shards, on one device and one thread.
struct Fleet {
    random: Random,
    clock: Arc<AtomicU64>,
    now: u64,
    began: u64,
    steps: u32,
    /// Servers and clients by number, servers first.
    order: Vec<usize>,
    servers: Vec<Shard<Fabric, Echo>>,
    callers: Vec<Caller>,
    controls: [Control<Fabric>; 2],
    _engines: [Engine<Fabric>; 2],
}

impl Fleet {
    /// Connects every client.
    fn connected(seed: u64, size: Size) -> Fleet {
        let clock = Arc::new(AtomicU64::new(1));
        let options = FabricOptions {
            slots: RING_SLOTS,
            delay_ns: DELAY_NS,
            clock: DeviceClock::Virtual(Arc::clone(&clock)),
            key_seed: Some(0),
            ..FabricOptions::default()
        };
        let fabric = Fabric::with_options(options).expect("slots are a power of two");
        let engine = |raw: &Raw| {
            let made = Engine::without_threads(fabric.clone(), checked(raw)).expect("an engine");
            made.0.seed_xids(seed);
            made
        };
        let per_shard = size.clients.div_ceil(size.shards);
        let (serving, mut control) = engine(&serving_config(per_shard, size.is_scarce));
        let (calling, calls) = engine(&calling_config());
        let at = control.listen("127.0.0.1:0".parse::<Address>().expect("it is one"));
        let at = at.expect("a free port");
        let servers = (0..size.shards).map(|_| serving.shard(Echo).expect("a server")).collect();
        let clients: Vec<_> =
            (0..size.clients).map(|_| calling.client().expect("a client")).collect();
        let mut fleet = Fleet {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            clock,
            now: 1,
            began: 1,
            steps: 0,
            order: (0..size.shards + size.clients).collect(),
            servers,
            callers: Vec::with_capacity(size.clients),
            controls: [control, calls],
            _engines: [serving, calling],
        };
        fleet.connect(clients, at);
        fleet
    }

    fn connect(&mut self, clients: Vec<Client<Fabric>>, at: Address) {
        // Some at a time: a server has room for as many arrivals as connections.
        let mut waiting = clients.into_iter();
        let mut asked = Vec::new();
        for _ in 0..CONNECT_TURNS {
            for mut client in waiting.by_ref().take(self.servers.len()) {
                let id = client.begin_connect(at).expect("an attempt");
                asked.push((client, id));
            }
            self.now += STEP_NS;
            self.clock.store(self.now, Ordering::Release);
            for control in &mut self.controls {
                control.step(std::time::Duration::ZERO);
            }
            for server in &mut self.servers {
                server.poll_once(self.now);
            }
            let now = self.now;
            for (mut client, id) in std::mem::take(&mut asked) {
                client.poll(now, |_| {});
                match client.connected(id) {
                    None => asked.push((client, id)),
                    Some(peer) => self.callers.push(Caller {
                        client,
                        peer: peer.expect("a connection"),
                        under_way: 0,
                        replies: 0,
                        last_ns: now,
                        longest_ns: 0,
                    }),
                }
            }
            if asked.is_empty() && waiting.len() == 0 {
                return;
            }
        }
        panic!("{} clients are not connected after {CONNECT_TURNS} turns", asked.len());
    }

    /// One step. `is_polled` is asked for the number of a client and of the step.
    fn step(&mut self, is_polled: impl Fn(usize, u32) -> bool) {
        self.now += STEP_NS / 2 + u64::from(self.random.below(STEP_NS as u32));
        self.clock.store(self.now, Ordering::Release);
        for last in (1..self.order.len()).rev() {
            self.order.swap(last, self.random.below(last as u32 + 1) as usize);
        }
        for at in 0..self.order.len() {
            if self.random.below(SKIPPED) == 0 {
                continue;
            }
            let one = self.order[at];
            match one.checked_sub(self.servers.len()) {
                None => _ = self.servers[one].poll_once(self.now),
                Some(client) if is_polled(client, self.steps) => {
                    self.callers[client].turn(self.now);
                }
                Some(_) => {}
            }
        }
        self.steps += 1;
    }

    /// Everything before does not count.
    fn begin(&mut self) {
        self.began = self.now;
        for caller in &mut self.callers {
            (caller.replies, caller.last_ns, caller.longest_ns) = (0, self.now, 0);
        }
    }

    fn seen(&self) -> Seen {
        let replies: Vec<u64> = self.callers.iter().map(|caller| caller.replies).collect();
        let waits = self.callers.iter().map(|it| it.longest_ns.max(self.now - it.last_ns));
        let clients: Vec<usize> =
            self.servers.iter().map(|server| server.handle().connections()).collect();
        let ends = |of: &[usize]| (of.iter().min().copied(), of.iter().max().copied());
        let (fewest, most) = ends(&clients);
        Seen {
            replies: replies.iter().sum(),
            least_most: (
                replies.iter().min().copied().unwrap_or(0),
                replies.iter().max().copied().unwrap_or(0),
            ),
            jain: jain(&replies),
            longest_ns: waits.max().unwrap_or(0),
            elapsed_ns: self.now - self.began,
            clients_of_shard: (fewest.unwrap_or(0), most.unwrap_or(0)),
        }
    }
}

/// Jain's index of fairness: the square of the sum, divided by the sum of the squares and their
/// number. 1 if all are equal; 1/n if one has everything; 0 of nothing.
pub fn jain(of: &[u64]) -> f64 {
    let sum: f64 = of.iter().map(|one| *one as f64).sum();
    let squares: f64 = of.iter().map(|one| (*one as f64).powi(2)).sum();
    if squares > 0.0 { sum * sum / (squares * of.len() as f64) } else { 0.0 }
}

/// A server of as many clients.
fn serving_config(clients: usize, is_scarce: bool) -> Raw {
    let mut raw = frugal();
    // The control plane gives each shard its turn; a few more if two ask at once.
    raw.connections.max = clients as i64 + 4;
    raw.connections.credits = WINDOW.into();
    raw.connections.calls_max = 0;
    let control = (4 * (clients as u32 + 4)).min(64);
    let wanted = (clients as u32 + 4) * WINDOW;
    raw.receive.buffers = (if is_scarce { wanted / 2 } else { wanted } + control).into();
    raw.send.slots = 64;
    raw.send.signal_every = 8;
    raw
}

fn calling_config() -> Raw {
    let mut raw = frugal();
    raw.connections.max = 1;
    raw.connections.credits = 1;
    raw.connections.credits_requested = WINDOW.into();
    raw.connections.calls_max = WINDOW.into();
    raw.send.slots = i64::from(WINDOW) + 2;
    raw.send.signal_every = 4;
    raw
}

/// As little memory as there can be.
fn frugal() -> Raw {
    let mut raw = small();
    raw.fabric.ring_slots = RING_SLOTS.into();
    raw.fabric.delay = format!("{DELAY_NS}ns").as_str().into();
    raw.features.continuation = false;
    raw.features.placement = false;
    raw.explicit.enabled = false;
    raw.receive.inline = "4KiB".into();
    raw.receive.spares = 0;
    raw.connections.call_transmissions_max = 1;
    raw.connections.reply_transmissions_max = 1;
    raw.connections.request_transmissions_max = 1;
    raw.connections.response_transmissions_max = 1;
    raw.send.length = "1KiB".into();
    raw.send.zero = "4KiB".into();
    raw.app.bulk.count = 0;
    raw
}

/// Raises the limit of open files as far as it may be.
fn allow_descriptors(needed: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed) {
        let most = maximum.map_or(needed, |maximum| needed.min(maximum));
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum });
        raised.expect("a process may raise its limit up to the hard one");
        assert!(most >= needed, "the hard limit of open files is {most}, and {needed} are needed");
    }
}

/// Equal clients have at least this index.
pub const JAIN_MIN: f64 = 0.95;
/// No client waits longer for its next reply, in virtual nanoseconds.
pub const WAIT_MAX_NS: u64 = 50_000;
/// Calls that a client wants under way.
const WINDOW: u32 = 8;
const WORD: u32 = 0x600d_f00d;
const DELAY_NS: u64 = 2000;
const RING_SLOTS: u32 = 16;
/// The mean time of a step.
const STEP_NS: u64 = 1000;
/// One in so many is not polled in a step.
const SKIPPED: u32 = 8;
/// Steps before the measurement: credits are shared out.
const WARM_UP: u32 = 100;
const CONNECT_TURNS: usize = 10_000;
/// Descriptors of a shard: those that wake it.
const DESCRIPTORS_PER_SHARD: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_of_equals_and_a_share_of_one_who_has_all() {
        assert_eq!(jain(&[7, 7, 7, 7]), 1.0);
        assert_eq!(jain(&[12, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[0, 0]), 0.0);
        assert!((jain(&[2, 1]) - 0.9).abs() < 1e-9);
    }
}
