//! A server and a caller in this process, which other processes disturb, and the count of all that
//! they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use rpcrdma::shard::audit::Audit;
use rpcrdma::{Address, Client, Clock, Engine, Handler, Shard, Shm};
use rpcrdma_config::Raw;
use rpcrdma_tests::caller::{Caller, Task};
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::setup::{checked, small};

/// The server, and the caller if there is one. A turn never blocks.
pub struct Survivor<H: Handler> {
    // Dropped before their engines.
    pub server: Shard<Shm, H>,
    pub caller: Option<Caller<Shm>>,
    /// Where the server listens.
    pub at: Address,
    clock: Clock,
    calling: Engine<Shm>,
    _serving: Engine<Shm>,
}

/// All that this process holds, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holdings(BTreeMap<String, usize>);

impl<H: Handler> Survivor<H> {
    /// A server that listens at `at`.
    pub fn new(config: &Raw, handler: H, at: Address) -> Survivor<H> {
        let config = checked(config);
        let device = Shm::from_config(&config).expect("shared memory");
        let engine = Engine::new(device.clone(), config.clone()).expect("an engine");
        let calling = Engine::new(device, config).expect("an engine");
        let server = engine.shard(handler).expect("a shard");
        let at = engine.listen(at).expect("a free address");
        let (clock, caller) = (Clock::new(), None);
        Survivor { server, caller, at, clock, calling, _serving: engine }
    }

    /// Begins to call another server.
    pub fn calls(&mut self, task: Task) {
        self.caller = Some(Caller::new(&self.calling, task).expect("a client"));
    }

    /// One turn of both. True if there was something to do.
    pub fn turn(&mut self) -> bool {
        let is_busy = self.server.poll_once(self.clock.now());
        let is_calling = self.caller.as_mut().is_some_and(Caller::poll);
        is_busy | is_calling
    }

    /// What this process holds without connections. The first turns take what is kept for good.
    pub fn idle_holdings(&mut self) -> Holdings {
        self.turns(1000);
        loop {
            if !self.is_connecting() {
                let holdings = self.holdings();
                if !holdings.has_links() {
                    return holdings;
                }
            }
            self.turns(64);
        }
    }

    /// An attempt of the caller is under way: its socket and its memory come and go meanwhile.
    fn is_connecting(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.connecting() > 0)
    }

    fn turns(&mut self, count: u32) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// Turns until this process holds what it held.
    ///
    /// # Panics
    /// If it does not.
    pub fn until_holds(&mut self, before: &Holdings) {
        let hung = Instant::now() + HUNG;
        loop {
            self.turns(64);
            if self.is_connecting() && Instant::now() < hung {
                continue;
            }
            let now = self.holdings();
            if now == *before {
                return;
            }
            let differs = now.unlike(before);
            assert!(Instant::now() < hung, "it is left: {differs:?}; {}", self.state());
        }
    }

    /// All that this process holds now.
    pub fn holdings(&mut self) -> Holdings {
        let mut all = BTreeMap::new();
        count_memory(&mut all);
        count_audit("server", &self.server.audit(), &mut all);
        if let Some(caller) = &mut self.caller {
            all.insert("calls of the caller".to_owned(), caller.open());
            count_audit("caller", &caller.client().shard().audit(), &mut all);
        }
        Holdings(all)
    }

    /// What is known of a state in which it hangs.
    pub fn state(&mut self) -> String {
        let stats = self.server.handle().stats();
        let counted: Vec<_> = stats.iter().filter(|(_, count)| *count > 0).collect();
        let caller = self.caller.as_mut().map(|caller| caller.client().shard().audit());
        format!("server {counted:?} {:?}; caller {caller:?}", self.server.audit())
    }
}

impl Holdings {
    /// What differs: its name, how many there are and how many there were.
    pub fn unlike(&self, before: &Holdings) -> Vec<(String, usize, usize)> {
        let names = self.0.keys().chain(before.0.keys());
        let of = |all: &Holdings, name| all.0.get(name).copied().unwrap_or(0);
        let names: BTreeSet<&String> = names.collect();
        let counts = names.into_iter().map(|name| (name.clone(), of(self, name), of(before, name)));
        counts.filter(|(_, now, before)| now != before).collect()
    }

    fn has_links(&self) -> bool {
        self.0.keys().any(|name| name.contains("rpcrdma-link"))
    }

    /// How many of these there are.
    pub fn count(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// The memory of memfds that this process has mapped, and its descriptors.
fn count_memory(all: &mut BTreeMap<String, usize>) {
    let maps = fs::read_to_string("/proc/self/maps").expect("it is there");
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let rights = words.nth(1).unwrap_or_default();
        if let Some((_, name)) = line.split_once("/memfd:") {
            *all.entry(format!("mapped {rights} {name}")).or_default() += 1;
        }
    }
    for file in fs::read_dir("/proc/self/fd").expect("it is there").flatten() {
        *all.entry("descriptors".to_owned()).or_default() += 1;
        let target = fs::read_link(file.path()).unwrap_or_default();
        let is_memfd = target.to_string_lossy().contains("memfd:");
        *all.entry("memfds".to_owned()).or_default() += usize::from(is_memfd);
    }
}

/// What a shard has free or with its device. Nothing is elsewhere while it is idle, but what its
/// program keeps.
fn count_audit(of: &str, audit: &Audit, all: &mut BTreeMap<String, usize>) {
    let receives = audit.receives_free + audit.receives_posted + audit.receives_refill;
    for (name, count) in [
        ("connections", audit.peers.len()),
        ("calls", audit.calls as usize),
        ("credits granted", audit.granted as usize),
        ("Receives", receives),
        ("Receives missing", audit.receives - receives),
        ("segments", audit.spares.free + audit.spares.returning),
        ("bulk buffers", audit.bulk.free + audit.bulk.returning),
        ("RDMA buffers", audit.rdma_buffers.free + audit.rdma_buffers.returning),
        ("windows", audit.windows.free),
        ("send slots", audit.send.free),
        ("header slots", audit.headers.free),
        ("messages", audit.messages.free),
        ("exposures", audit.exposures),
        ("fetches", audit.fetches),
        ("buffers leaked", usize::try_from(audit.leaked).expect("few")),
    ] {
        all.insert(format!("{name} of the {of}"), count);
    }
}

/// A configuration for processes that call each other through shared memory.
pub fn config(maps_pools: bool) -> Raw {
    let mut raw = small();
    raw.engine.provider = "shm".into();
    raw.shm.map_pools = maps_pools;
    raw.connections.max = 8;
    raw.connections.stop_timeout = "2s".into();
    // The end of a peer is noticed, or the stress test hangs and fails.
    raw.connections.call_timeout = "0s".into();
    raw.connections.send_timeout = "0s".into();
    raw
}

/// A client, and an engine of its own, which is dropped after it.
pub fn client(raw: &Raw) -> (Engine<Shm>, Client<Shm>) {
    let config = checked(raw);
    let device = Shm::from_config(&config).expect("shared memory");
    let engine = Engine::new(device, config).expect("an engine");
    let client = engine.client().expect("a client");
    (engine, client)
}

/// The address of a socket in a folder.
pub fn socket(folder: &Folder, name: &str) -> Address {
    format!("shm:{}", folder.join(name).display()).parse().expect("a short path")
}

/// Resident memory of a process, in KiB: its own, and its share of what it shares.
pub fn resident(process: &str) -> (u64, u64) {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(path).expect("the process is there");
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).expect("it is there");
        line.split_whitespace().nth(1).and_then(|count| count.parse().ok()).expect("a number")
    };
    (of("Rss:"), of("Pss:"))
}

/// After this nothing is expected any more. Far more than anything takes on a busy machine.
pub const HUNG: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Echo;

    /// An attempt has a socket and memory for a moment: counted with it, a run waits until it happens
    /// to count during another one.
    #[test]
    fn what_is_held_when_idle_has_no_attempt_of_the_caller_in_it() {
        let folder = Folder::new();
        let at = socket(&folder, "survivor.sock");
        let mut survivor = Survivor::new(&config(false), Echo::default(), at);
        let to = socket(&folder, "nothing.sock");
        survivor.calls(Task { to, lines: 8, calls: u64::MAX, bytes_max: 100, again: true });
        let idle = survivor.idle_holdings();
        let attempts = |survivor: &Survivor<Echo>| -> u64 {
            let accounts = survivor.caller.iter().flat_map(Caller::accounts);
            accounts.flat_map(|account| account.unconnected.values()).sum()
        };
        while attempts(&survivor) < 150 {
            assert_eq!(survivor.idle_holdings().unlike(&idle), []);
        }
    }
}
