//! The server: the shards move segments and tickets, one worker has the values.
//!
//! ```text
//!   shard: on_call ── PUT: ticket, loans ─────────────────────▶ worker: the map
//!              └──── GET: ticket ─▶ on_turn: + a buffer ───────▶   │
//!   shard ◀──────────────── ShardHandle::finish ──────────────────┘
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use rpcrdma::onc::{AcceptStatus, ReplyHeader};
use rpcrdma::{
    Address, Answer, Call, Engine, Finished, Handler, Loan, PlacedItem, Provider, Reply,
    ShardHandle, Ticket, Turn,
};

use crate::protocol::{GET, NULL, PROGRAM, VALUE_MAX};
use crate::{Outcome, say};

/// Serves until it shall stop, and prints each second what it has done.
pub fn run<P: Provider>(mut engine: Engine<P>, at: Address, stopped: &AtomicBool) -> Outcome<()> {
    let server = SystemTime::UNIX_EPOCH.elapsed()?.as_nanos() as u64;
    let (jobs, queue) = channel();
    let worker = thread::spawn(move || work(&queue, server));
    engine.on_failure(|failure| say(format_args!("server: {failure}")));
    let shards =
        engine.start(move |shard| Store { shard, jobs: jobs.clone(), gets: VecDeque::new() })?;
    say(format_args!("server: listening at {}", engine.listen(at)?));
    while !stopped.load(Ordering::Relaxed) {
        thread::park_timeout(Duration::from_secs(1));
        report(&engine, &shards);
    }
    // Calls that were delivered are answered: the worker goes on until the handlers are gone.
    engine.stop();
    report(&engine, &shards);
    worker.join().map_err(|_| "the worker has panicked")?;
    say(format_args!("server: stopped"));
    Ok(())
}

fn report<P: Provider>(engine: &Engine<P>, shards: &[ShardHandle]) {
    for shard in shards {
        let (stats, number, up) = (shard.stats(), shard.shard(), shard.connections());
        say(format_args!(
            "server: shard {number}: {up} connections, {} calls, {} answers, {} segments taken",
            stats.calls_received, stats.replies_sent, stats.segments_taken
        ));
    }
    let peers = engine.admissions();
    say(format_args!(
        "server: {} peers accepted, {} not allowed",
        peers.accepted, peers.not_allowed
    ));
}

/// What the worker does for a call.
enum Task {
    /// Stores a value: `start`, then the bytes of the loans.
    Put { key: u64, start: Vec<u8>, loans: Vec<Loan> },
    /// Copies a value to registered memory.
    Get { key: u64, into: Loan },
}

struct Job {
    shard: ShardHandle,
    ticket: Ticket,
    task: Task,
}

/// The handler of a shard.
struct Store {
    shard: ShardHandle,
    /// Holds no more than the open calls, of which the credits are the bound.
    jobs: Sender<Job>,
    /// GETs that wait for registered memory, which only a turn can give.
    gets: VecDeque<(Ticket, u64)>,
}

impl Handler for Store {
    fn on_call<'a>(&mut self, mut call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let (procedure, key) = match read_key(&call) {
            Ok((NULL, _)) => {
                reply.payload().put_fixed(&ReplyHeader::SUCCESS);
                return reply.send();
            }
            Ok(read) => read,
            Err(denial) => return reply.deny(&denial),
        };
        if procedure == GET {
            let (answer, ticket) = reply.defer();
            self.gets.push_back((ticket, key)); // on_turn follows in this turn
            return answer;
        }
        match read_put(&mut call, key) {
            Ok(task) => {
                let (answer, ticket) = reply.defer();
                self.submit(ticket, task);
                answer
            }
            Err(denial) => reply.deny(&denial),
        }
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while !self.gets.is_empty()
            && let Some(into) = turn.buffer()
            && let Some((ticket, key)) = self.gets.pop_front()
        {
            self.submit(ticket, Task::Get { key, into });
        }
    }
}

impl Store {
    fn submit(&self, ticket: Ticket, task: Task) {
        // Without a worker the ticket is dropped: the caller gets SYSTEM_ERR.
        let _ = self.jobs.send(Job { shard: self.shard.clone(), ticket, task });
    }
}

fn read_key(call: &Call<'_>) -> Result<(u32, u64), ReplyHeader<'static>> {
    let (procedure, mut arguments) = call.arguments(&PROGRAM)?;
    Ok((procedure, if procedure == NULL { 0 } else { arguments.u64()? }))
}

/// Takes the value out of a PUT. A short value of a peer that places nothing is in the payload.
fn read_put(call: &mut Call<'_>, key: u64) -> Result<Task, ReplyHeader<'static>> {
    let (_, mut arguments) = call.arguments(&PROGRAM)?;
    arguments.u64()?;
    let len = arguments.u32()? as usize;
    let data = (Some(arguments.position() as u32), len);
    let is_right = |item: PlacedItem<'_>| (item.position(), item.len() as usize) == data;
    if len > VALUE_MAX || call.placed().len() > 1 || !call.placed().all(is_right) {
        return Err(AcceptStatus::GarbageArguments.into());
    }
    let Some(pieces) = call.placed().map(|item| item.segments().len()).next() else {
        let mut start = vec![0; len];
        arguments.fixed_into(&mut start)?;
        return Ok(Task::Put { key, start, loans: Vec::new() });
    };
    // The configuration has a spare segment for each one that a peer may send before an answer.
    let loans = (0..pieces).map(|piece| call.take(0, piece)).collect::<Result<_, _>>();
    let loans = loans.map_err(|_| AcceptStatus::SystemError)?;
    Ok(Task::Put { key, start: Vec::new(), loans })
}

/// The thread of the values.
fn work(queue: &Receiver<Job>, server: u64) {
    let mut values = HashMap::<u64, Vec<u8>>::new();
    for Job { shard, ticket, task } in queue {
        let mut finished = Finished::default();
        finished.head.put_fixed(&ReplyHeader::SUCCESS);
        finished.head.put_u64(server);
        match task {
            Task::Put { key, start: mut value, loans } => {
                // The segments return to the shard here, before the answer returns the credits.
                loans.into_iter().for_each(|loan| value.extend_from_slice(&loan));
                values.insert(key, value);
            }
            Task::Get { key, mut into } => {
                let value = values.get(&key);
                finished.head.put_bool(value.is_some());
                if let Some(value) = value {
                    into[..value.len()].copy_from_slice(value);
                    into.truncate(value.len());
                    finished.bulk.push(into);
                }
            }
        }
        // An error means that the shard is gone, and its connections with it.
        let _ = shard.finish(ticket, finished);
    }
}
