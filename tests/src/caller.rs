//! A client that continues to call under faults, and reports the outcome of its calls.
//!
//! ```text
//!   line   waiting ── begin_connect ──▶ connecting ──▶ up ── every call answered ──▶ over
//!             ▲                              │         │
//!             └──── again, after a pause ────┴─────────┴── otherwise ──▶ over
//! ```

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rpcrdma::provider::ConnectId;
use rpcrdma::{
    Address, CallError, CallRefused, Client, Clock, ConnectionId, Engine, Provider, SetupError,
};

use crate::done::is_passing;
use crate::script::{Order, Random, Script, unreduced_reply};
use crate::service::Source;

/// The task of a caller.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// The server's address.
    pub to: Address,
    /// The number of independent connections (lines).
    pub lines: usize,
    /// The number of calls of each that must be answered.
    pub calls: u64,
    /// The maximum number of bytes of a call and of its reply.
    pub bytes_max: u32,
    /// Whether a lost line connects again, and repeats its failed calls.
    pub again: bool,
}

/// The outcome of one line: a connection, or several one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Calls with correct replies.
    pub answered: u64,
    /// Calls that failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// How often it connected.
    pub connected: u64,
    /// Why it did not connect.
    pub unconnected: BTreeMap<String, u64>,
}

/// A client and its connections.
pub struct Caller<P: Provider> {
    // Dropped before the client that it is of.
    source: Source,
    client: Client<P>,
    clock: Clock,
    task: Task,
    lines: Vec<Line>,
    open: HashMap<u64, Script>,
    random: Random,
    cookie: u64,
}

struct Line {
    state: State,
    open: u64,
    account: Account,
}

enum State {
    Resting(Instant),
    Connecting(ConnectId),
    Up(ConnectionId),
    Over,
}

impl<P: Provider> Caller<P> {
    /// A client of the engine.
    ///
    /// # Errors
    /// If the client cannot be made.
    pub fn new(engine: &Engine<P>, task: Task) -> Result<Caller<P>, SetupError> {
        let (client, clock) = (engine.client()?, Clock::new());
        let lines = (0..task.lines).map(|_| Line::new()).collect();
        let (open, random) = (HashMap::new(), Random(task.calls));
        Ok(Caller {
            source: Source::default(),
            client,
            clock,
            task,
            lines,
            open,
            random,
            cookie: 0,
        })
    }

    /// One turn, which may wait for a millisecond. False when every line is over.
    ///
    /// # Panics
    /// If a reply is not what its call asked for.
    pub fn turn(&mut self) -> bool {
        if !self.poll() {
            self.client.wait(Duration::from_millis(1));
        }
        self.lines.iter().any(|line| line.open > 0 || !matches!(line.state, State::Over))
    }

    /// One turn without waiting. True if there was something to do.
    ///
    /// # Panics
    /// If a reply is not what its call asked for.
    pub fn poll(&mut self) -> bool {
        self.source.prepare(&mut self.client.turn(self.clock.now()));
        for line in 0..self.lines.len() {
            self.advance(line);
        }
        let (open, lines, again) = (&mut self.open, &mut self.lines, self.task.again);
        self.client.poll(self.clock.now(), |done| {
            let script = open.remove(&done.cookie()).expect("a call is completed once");
            let line = &mut lines[(done.cookie() >> LINE) as usize];
            line.open -= 1;
            match done.result() {
                Ok(reply) => {
                    check(&script, &unreduced_reply(reply, &script));
                    line.account.answered += 1;
                }
                Err(CallError::Rejected(..)) if script.order == Order::Refuse => {
                    line.account.answered += 1;
                }
                Err(why) => {
                    *line.account.failed.entry(why.to_string()).or_default() += 1;
                    line.down(again);
                }
            }
        })
    }

    /// Makes no further calls: waits for the open ones, and repeats none.
    pub fn finish(&mut self) {
        self.task.calls = 0;
        self.task.again = false;
    }

    /// The outcome of each line.
    pub fn accounts(&self) -> impl ExactSizeIterator<Item = &Account> {
        self.lines.iter().map(|line| &line.account)
    }

    /// Lines that are connected.
    pub fn up(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line.state, State::Up(_))).count()
    }

    /// Lines that are being connected.
    pub fn connecting(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line.state, State::Connecting(_))).count()
    }

    /// Calls that are neither answered nor failed.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// The client.
    pub fn client(&mut self) -> &mut Client<P> {
        &mut self.client
    }

    fn advance(&mut self, index: usize) {
        let line = &mut self.lines[index];
        match line.state {
            State::Resting(until) if Instant::now() >= until => {
                let id = self.client.begin_connect(self.task.to);
                line.state = State::Connecting(id.expect("there is room for every line"));
            }
            State::Connecting(id) => match self.client.connected(id) {
                Some(Ok(peer)) => {
                    line.account.connected += 1;
                    line.state = State::Up(peer);
                }
                Some(Err(why)) => {
                    *line.account.unconnected.entry(why.to_string()).or_default() += 1;
                    line.down(self.task.again);
                }
                None => {}
            },
            State::Up(peer) => self.make_calls(index, peer),
            State::Resting(_) if !self.task.again => line.state = State::Over,
            State::Resting(_) | State::Over => {}
        }
    }

    fn make_calls(&mut self, index: usize, peer: ConnectionId) {
        while self.lines[index].open < OPEN_MAX
            && self.lines[index].account.answered + self.lines[index].open < self.task.calls
        {
            let script = any_script(&mut self.random, self.task.bytes_max);
            let cookie = self.cookie | (index as u64) << LINE;
            match self.call(peer, cookie, &script) {
                Ok(()) => {
                    self.cookie += 1;
                    self.lines[index].open += 1;
                    self.open.insert(cookie, script);
                }
                // Its shard may have ended, with all its connections.
                Err(CallRefused::NoPeer | CallRefused::Stopping) => {
                    return self.lines[index].down(self.task.again);
                }
                Err(why) if is_passing(why) => return,
                Err(why) => panic!("{why}: {script:?}"),
            }
        }
        let line = &mut self.lines[index];
        if line.open == 0 && line.account.answered >= self.task.calls {
            line.state = State::Over;
        }
    }

    fn call(
        &mut self,
        peer: ConnectionId,
        cookie: u64,
        script: &Script,
    ) -> Result<(), CallRefused> {
        if !self.source.is_ready() {
            return Err(CallRefused::Busy);
        }
        self.source.submit(self.client.call(peer, cookie)?, script)
    }
}

impl Line {
    fn new() -> Line {
        Line { state: State::Resting(Instant::now()), open: 0, account: Account::default() }
    }

    /// The connection was lost, or not established. Called once for each of its calls; one pause is
    /// enough.
    fn down(&mut self, again: bool) {
        self.state = match self.state {
            State::Resting(until) => State::Resting(until),
            _ if again => State::Resting(Instant::now() + PAUSE),
            _ => State::Over,
        };
    }
}

fn any_script(random: &mut Random, bytes_max: u32) -> Script {
    let order = random.choose(&[Order::Answer, Order::Answer, Order::Later, Order::Refuse]);
    random.script(bytes_max).order(order)
}

fn check(script: &Script, stream: &[u8]) {
    let placed = stream.get(4..8).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes);
    let expected = script.reply_stream(placed.expect("two words"));
    assert!(stream == expected, "the reply is as its script says: {script:?}");
}

/// Calls of a line at one time.
const OPEN_MAX: u64 = 4;
/// Before a line connects again.
const PAUSE: Duration = Duration::from_millis(200);
/// The position of the line's number in a cookie.
const LINE: u32 = 48;
