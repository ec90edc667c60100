//! Kills at any time: of a client of this process, and of the server that it calls.
//!
//! ```text
//!   round   start a process ─▶ it calls, or is called ─▶ kill -9 ─▶ its connections have ended,
//!           calls have failed ─▶ this process holds what it held: memory, descriptors, buffers
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rpcrdma_tests::caller::Task;
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::script::Random;
use rpcrdma_tests::service::Service;

use crate::Wanted;
use crate::children::{Killed, Started};
use crate::survivor::{HUNG, Holdings, Survivor, config, resident, socket};

/// The test of one way to share memory.
struct StressTest {
    survivor: Survivor<Service>,
    folder: Folder,
    maps: &'static str,
    random: Random,
    /// What this process holds between two rounds.
    idle: Holdings,
    clients: Tally,
    servers: Tally,
    slowest: Slowest,
}

/// The round that has taken longest.
#[derive(Debug, Default)]
struct Slowest {
    took: Duration,
    /// What it was, and when each of its steps was over.
    what: String,
}

/// What the kills of one side have shown.
#[derive(Default)]
struct Tally {
    kills: usize,
    /// From the signal, and from the collected end of the process, to the end of its last
    /// connection as the polling thread sees it, in ns.
    since_sent: Vec<i128>,
    since_gone: Vec<i128>,
}

/// Whose process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Kills.
pub fn run(wanted: &Wanted) {
    println!("seed {}", wanted.seed);
    let rounds = wanted.rounds.unwrap_or(40) as usize / wanted.maps.len();
    for maps in &wanted.maps {
        let mut test = StressTest::new(*maps, Random(wanted.seed));
        let (mut half, begin) = (0, Instant::now());
        for round in 0..rounds {
            if round == rounds / 2 {
                half = resident("self").0;
            }
            test.round(if round % 2 == 0 { Side::Client } else { Side::Server });
        }
        test.report(begin.elapsed(), half);
    }
}

impl StressTest {
    fn new(maps: bool, random: Random) -> StressTest {
        let folder = Folder::new();
        let at = socket(&folder, "survivor.sock");
        let mut survivor = Survivor::new(&config(maps), Service::default(), at);
        let to = socket(&folder, OTHER);
        survivor.calls(Task { to, lines: 2, calls: u64::MAX, bytes_max: 30_000, again: true });
        let idle = survivor.idle_holdings();
        let maps = if maps { "yes" } else { "no" };
        let (clients, servers) = (Tally::default(), Tally::default());
        let slowest = Slowest::default();
        StressTest { survivor, folder, maps, random, idle, clients, servers, slowest }
    }

    fn round(&mut self, side: Side) {
        let (begin, before) = (Instant::now(), self.connections(side));
        let child = self.start(side);
        if self.random.below(4) > 0 {
            let target = self.progress(side) + u64::from(self.random.below(200));
            self.turns_until("the other process works", |it| it.progress(side) >= target);
            let time = self.random.below(2_000_000);
            self.turns_for(Duration::from_nanos(time.into()));
        } else {
            // While it starts or connects.
            let time = self.random.below(300_000);
            self.turns_for(Duration::from_micros(time.into()));
        }
        let worked = begin.elapsed();
        let killer = std::thread::spawn(move || child.kill());
        let mut last = (self.ended(side), None);
        self.turns_until("its connections end", |it| {
            let ended = it.ended(side);
            if ended > last.0 {
                last = (ended, Some(Instant::now()));
            }
            killer.is_finished() && ended == it.connections(side)
        });
        let killed = killer.join().expect("it kills");
        let ended = begin.elapsed();
        self.survivor.until_holds(&self.idle);
        self.slowest.note(begin.elapsed(), || {
            format!("{side:?}: to the kill {worked:.1?}, to the last end {ended:.1?}")
        });
        let tally = match side {
            Side::Client => &mut self.clients,
            Side::Server => &mut self.servers,
        };
        tally.kills += 1;
        if let (_, Some(end)) = last {
            tally.note(killed, end);
        } else {
            assert_eq!(self.connections(side), before, "each connection ends after the kill");
        }
        self.assert_calls_have_ends();
    }

    fn start(&self, side: Side) -> Started {
        let never = self.folder.join("never").display().to_string();
        let other = socket(&self.folder, OTHER).to_string();
        let options = match side {
            Side::Client => {
                ["call", &self.survivor.at.to_string(), "--until", &never].map(str::to_owned)
            }
            Side::Server => ["serve", &other, "--until", &never].map(str::to_owned),
        };
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Started::peer(&[&options, &["--map", self.maps][..]].concat())
    }

    /// What the two have done together, so far.
    fn progress(&mut self, side: Side) -> u64 {
        let Survivor { server, caller, .. } = &mut self.survivor;
        match side {
            Side::Client => server.handle().stats().transmissions_received,
            Side::Server => caller.iter().flat_map(|it| it.accounts()).map(|it| it.answered).sum(),
        }
    }

    /// Connections so far.
    fn connections(&mut self, side: Side) -> u64 {
        let Survivor { server, caller, .. } = &mut self.survivor;
        match side {
            Side::Client => server.handler().connected.len() as u64,
            Side::Server => caller.iter().flat_map(|it| it.accounts()).map(|it| it.connected).sum(),
        }
    }

    /// Those that have ended.
    fn ended(&mut self, side: Side) -> u64 {
        let up = self.survivor.caller.as_ref().map_or(0, |caller| caller.up()) as u64;
        match side {
            Side::Client => self.survivor.server.handler().closed.len() as u64,
            Side::Server => self.connections(side) - up,
        }
    }

    fn turns_until(&mut self, what: &str, mut is_so: impl FnMut(&mut StressTest) -> bool) {
        let hung = Instant::now() + HUNG;
        while !is_so(self) {
            self.survivor.turn();
            assert!(Instant::now() < hung, "it hangs until {what}: {}", self.survivor.state());
        }
    }

    fn turns_for(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.survivor.turn();
        }
    }

    /// Every call of either side has an answer or a reason.
    fn assert_calls_have_ends(&mut self) {
        let stats = self.survivor.server.handle().stats();
        let ends = [stats.replies_sent, stats.refusals_sent, stats.calls_unanswered];
        assert_eq!(stats.calls_received, ends.iter().sum::<u64>(), "{ends:?}");
        let caller = self.survivor.caller.as_mut().expect("it calls");
        let stats = caller.client().handle().stats();
        assert_eq!(stats.calls_sent, stats.calls_completed, "{stats:?}");
    }

    fn report(mut self, took: Duration, half: u64) {
        let StressTest { clients, servers, maps, .. } = &self;
        println!(
            "map {maps}: {} rounds in {took:.1?}, all as before",
            clients.kills + servers.kills
        );
        clients.report("clients");
        servers.report("servers");
        println!("  the slowest round: {:.1?}, {}", self.slowest.took, self.slowest.what);
        println!(
            "  resident: {half} KiB after half of the rounds, {} KiB after all",
            resident("self").0
        );
        for name in ["descriptors", "memfds", "mapped rw-s rpcrdma-link (deleted)"] {
            println!(
                "  {name}: {} before, {} after",
                self.idle.count(name),
                self.survivor.holdings().count(name)
            );
        }
        let stats = self.survivor.server.handle().stats();
        println!(
            "  calls of clients: {} answered, {} rejected, {} unanswered",
            stats.replies_sent, stats.refusals_sent, stats.calls_unanswered
        );
        let (mut answered, mut failed) = (0, BTreeMap::new());
        for account in self.survivor.caller.iter().flat_map(|caller| caller.accounts()) {
            answered += account.answered;
            for (why, count) in &account.failed {
                *failed.entry(why).or_insert(0) += count;
            }
        }
        println!("  calls to servers: {answered} answered, failed: {failed:?}");
    }
}

impl Slowest {
    fn note(&mut self, took: Duration, what: impl FnOnce() -> String) {
        if took > self.took {
            *self = Slowest { took, what: what() };
        }
    }
}

impl Tally {
    fn note(&mut self, killed: Killed, end: Instant) {
        let since = |when: Instant| {
            let late = end.saturating_duration_since(when).as_nanos() as i128;
            late - when.saturating_duration_since(end).as_nanos() as i128
        };
        self.since_sent.push(since(killed.sent));
        self.since_gone.push(since(killed.gone));
    }

    fn report(&self, who: &str) {
        let Tally { kills, since_sent, since_gone } = self;
        println!(
            "  {kills} {who} killed, {} of them connected; to the end of the last connection",
            since_sent.len()
        );
        for (from, times) in [("kill(2)", since_sent), ("the end of the process", since_gone)] {
            let mut times = times.clone();
            times.sort_unstable();
            let at = |part: usize| {
                times.get(times.len().saturating_sub(1) * part / 100).copied().unwrap_or(0) / 1000
            };
            println!(
                "    from {from}: median {} us, 99 % {} us, maximum {} us",
                at(50),
                at(99),
                at(100)
            );
        }
    }
}

/// Where the server listens that is killed.
const OTHER: &str = "other.sock";
