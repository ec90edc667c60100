//! The server of the stress test `sessions`: numbers by key, in a file, and a reply cache.
//!
//! ```text
//!   file:   counts │ value by key │ by call: the process that has executed it last
//! ```
//!
//! What it has written to the file survives when it is killed. The cache does not: a call that is sent
//! again to the next process is executed again, and to the same one never.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma::{
    Address, Admission, Answer, Call, CloseReason, ConnectionId, Engine, Handler, PeerLimits,
    Reply, Shm,
};
use rpcrdma_tests::script::Random;
use rpcrdma_tests::setup::checked;

use crate::Wanted;
use crate::children::end_with_parent;
use crate::survivor::config;

/// A call, as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// No two calls have the same.
    pub number: u32,
    pub key: u32,
    /// Whether its number becomes the value of the key. The reply is the value.
    pub puts: bool,
}

/// The file.
#[derive(Debug)]
pub struct Store(File);

/// What the processes have counted, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub executed: u64,
    /// Calls that came again, and were answered out of the cache.
    pub repeated: u64,
    /// Calls that were executed again by another process.
    pub again: u64,
    /// Calls that were executed twice by the same process.
    pub twice: u64,
}

/// Executes calls, each once.
struct Keeper {
    store: Store,
    counts: Counts,
    process: u32,
    /// By the peer and the xid. An xid is used again for another call.
    cache: HashMap<(Address, u32), (Order, u64)>,
    /// The oldest first.
    cached: VecDeque<(Address, u32)>,
    connected: Arc<Mutex<Vec<ConnectionId>>>,
}

/// Serves until it is commanded to stop, or killed. Cuts a connection on command.
pub fn serve(wanted: &Wanted) {
    end_with_parent();
    let at = wanted.at();
    let mut raw = config(false);
    raw.engine.idle.policy = "block".into();
    raw.engine.idle.spin = "20us".into();
    let config = checked(&raw);
    let device = Shm::from_config(&config).expect("shared memory");
    let mut engine = Engine::new(device, config).expect("an engine");
    let connected = Arc::<Mutex<Vec<ConnectionId>>>::default();
    let shared = Arc::clone(&connected);
    let shards = engine.start(move |_| Keeper::new(Store::open(at), Arc::clone(&shared)));
    let shards = shards.expect("a shard");
    engine.listen(at).expect("a free address");
    println!("listening");
    let mut random = Random(wanted.seed);
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let connected = connected.lock().unwrap_or_else(PoisonError::into_inner);
        match (line.as_str(), connected.len()) {
            ("cut", 0) => {}
            ("cut", count) => {
                // The next order is as good if there are too many.
                let _ = shards[0].close(connected[random.below(count as u32) as usize]);
            }
            _ => break,
        }
    }
    engine.stop();
}

impl Order {
    fn read(call: &Call<'_>) -> Order {
        let mut words = call.reader();
        let mut word = || words.u32().expect("three words");
        Order { number: word(), key: word(), puts: word() != 0 }
    }

    /// Its words.
    pub fn words(self) -> [u32; 3] {
        [self.number, self.key, self.puts.into()]
    }
}

impl Store {
    /// The file beside the socket.
    pub fn open(at: Address) -> Store {
        let Address::Shm(name) = at else { panic!("{at} is no socket") };
        let path = PathBuf::from(name.path().expect("a path")).with_extension("store");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        Store(file.expect("a file"))
    }

    /// The value of a key; 0 at first.
    pub fn value(&self, key: u32) -> u64 {
        self.word(VALUES_AT + 8 * u64::from(key))
    }

    pub fn counts(&self) -> Counts {
        let [executed, repeated, again, twice] = [0, 8, 16, 24].map(|at| self.word(at));
        Counts { executed, repeated, again, twice }
    }

    fn put(&self, key: u32, value: u64) {
        self.put_word(VALUES_AT + 8 * u64::from(key), value);
    }

    fn put_counts(&self, Counts { executed, repeated, again, twice }: Counts) {
        for (at, count) in [executed, repeated, again, twice].into_iter().enumerate() {
            self.put_word(8 * at as u64, count);
        }
    }

    /// The process that has executed a call last, if any has. Now it is `process`.
    fn executes(&self, number: u32, process: u32) -> Option<u32> {
        let at = CALLS_AT + 8 * u64::from(number);
        let before = self.word(at) as u32;
        self.put_word(at, process.into());
        (before != 0).then_some(before)
    }

    /// What was not written is 0.
    fn word(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.0.read_at(&mut word, at).expect("it is readable");
        u64::from_ne_bytes(word)
    }

    fn put_word(&self, at: u64, word: u64) {
        self.0.write_all_at(&word.to_ne_bytes(), at).expect("there is room");
    }
}

impl Keeper {
    fn new(store: Store, connected: Arc<Mutex<Vec<ConnectionId>>>) -> Keeper {
        let (counts, process) = (store.counts(), std::process::id());
        let (cache, cached) = (HashMap::new(), VecDeque::new());
        Keeper { store, counts, process, cache, cached, connected }
    }

    /// The value that the call is answered with.
    fn answer(&mut self, from: (Address, u32), order: Order) -> u64 {
        if let Some((earlier, value)) = self.cache.get(&from)
            && *earlier == order
        {
            self.counts.repeated += 1;
            return *value;
        }
        let value = self.execute(order);
        if self.cache.insert(from, (order, value)).is_none() {
            self.cached.push_back(from);
        }
        if self.cached.len() > CACHE_MAX
            && let Some(oldest) = self.cached.pop_front()
        {
            self.cache.remove(&oldest);
        }
        value
    }

    fn execute(&mut self, Order { number, key, puts }: Order) -> u64 {
        self.counts.executed += 1;
        match self.store.executes(number, self.process) {
            None => {}
            Some(process) if process == self.process => self.counts.twice += 1,
            Some(_) => self.counts.again += 1,
        }
        if puts {
            self.store.put(key, number.into());
        }
        self.store.value(key)
    }

    fn connected(&self) -> std::sync::MutexGuard<'_, Vec<ConnectionId>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Keeper {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let value = self.answer((call.address(), call.xid()), Order::read(&call));
        self.store.put_counts(self.counts);
        reply.payload().put_u64(value);
        reply.send()
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        _: Option<rpcrdma::provider::ConnectId>,
        _: &PeerLimits,
    ) -> Admission {
        self.connected().push(peer);
        Admission::Accept
    }

    fn on_close(&mut self, peer: ConnectionId, _: CloseReason) {
        self.connected().retain(|other| *other != peer);
    }
}

/// Keys that there are.
pub const KEYS: u32 = 64;
/// Replies that are kept: far more than there are calls at one time.
const CACHE_MAX: usize = 1 << 14;
const VALUES_AT: u64 = 64;
const CALLS_AT: u64 = VALUES_AT + 8 * KEYS as u64;
