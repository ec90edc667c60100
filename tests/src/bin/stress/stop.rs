//! Clients that are stopped at any time (SIGSTOP), beside one that goes on.

use std::fs;
use std::time::{Duration, Instant};

use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::script::Random;
use rpcrdma_tests::service::Service;
use rustix::process::Signal;

use crate::Wanted;
use crate::children::Started;
use crate::survivor::{HUNG, Survivor, config, socket};

/// A server in this process, and what its clients have in common.
struct StressTest {
    survivor: Survivor<Service>,
    folder: Folder,
    maps: &'static str,
    random: Random,
}

/// The messages of a client, and the time that they took.
#[derive(Default)]
struct Pace {
    messages: u64,
    time: Duration,
}

/// Stops and continues.
pub fn run(wanted: &Wanted) {
    println!("seed {}", wanted.seed);
    let rounds = wanted.rounds.unwrap_or(4) / wanted.maps.len() as u32;
    for maps in &wanted.maps {
        StressTest::new(*maps, Random(wanted.seed)).run(rounds);
    }
}

impl StressTest {
    fn new(maps: bool, random: Random) -> StressTest {
        let folder = Folder::new();
        let at = socket(&folder, "server.sock");
        let survivor = Survivor::new(&config(maps), Service::default(), at);
        StressTest { survivor, folder, maps: if maps { "yes" } else { "no" }, random }
    }

    fn run(mut self, rounds: u32) {
        let idle = self.survivor.idle_holdings();
        let (mut alone, mut beside) = (Pace::default(), Pace::default());
        let one = self.client();
        self.come(200);
        alone.add(&self.come(MESSAGES));
        let other = self.client();
        for _ in 0..rounds {
            for (stopped, begins) in [(&one, false), (&other, false), (&one, true), (&other, true)]
            {
                let any = self.random.below(2000);
                self.come(any.into());
                // One that is stopped while it begins, or none.
                let beginner = begins.then(|| self.stopped_at_begin());
                stopped.signal(Signal::STOP);
                // What it has sent before may come first; then all is the other's, which was
                // stopped before and goes on.
                self.come(100);
                beside.add(&self.come(MESSAGES));
                stopped.signal(Signal::CONT);
                beginner.map(Started::kill);
            }
        }
        fs::write(self.folder.join("enough"), "").expect("the folder is writable");
        for client in [one, other] {
            self.ends(client);
        }
        self.survivor.until_holds(&idle);
        println!(
            "map {}: {} stops; a client has {:.0} messages/s alone, {:.0} messages/s beside stopped \
             ones; the server holds what it held",
            self.maps,
            4 * rounds,
            alone.rate(),
            beside.rate(),
        );
    }

    fn client(&self) -> Started {
        let until = self.folder.join("enough").display().to_string();
        let to = self.survivor.at.to_string();
        let options = ["--until", &until, "--lines", "1", "--map", self.maps, "--seconds", "3600"];
        Started::peer(&[&["call", &to][..], &options].concat())
    }

    /// A client that is stopped while it starts, connects, or makes its first calls.
    fn stopped_at_begin(&mut self) -> Started {
        let beginner = self.client();
        let time = Duration::from_micros(self.random.below(60_000).into());
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.survivor.turn();
        }
        beginner.signal(Signal::STOP);
        beginner
    }

    /// Serves until so many messages have come.
    fn come(&mut self, messages: u64) -> Pace {
        let before = self.survivor.server.handle().stats().transmissions_received;
        let begin = Instant::now();
        loop {
            self.survivor.turn();
            let came = self.survivor.server.handle().stats().transmissions_received - before;
            if came >= messages {
                return Pace { messages: came, time: begin.elapsed() };
            }
            assert!(begin.elapsed() < HUNG, "{came} of {messages}: {}", self.survivor.state());
        }
    }

    /// Serves until a client has ended, with all its calls answered.
    fn ends(&mut self, mut client: Started) {
        let begin = Instant::now();
        let status = loop {
            self.survivor.turn();
            if let Some(status) = client.has_ended() {
                break status;
            }
            assert!(begin.elapsed() < HUNG, "a client does not end: {}", self.survivor.state());
        };
        let printed = client.rest().join("; ");
        // A call that was open for as long as a timeout has failed when its process goes on.
        assert!(matches!(status.code(), Some(0 | 3)), "{status}: {printed}");
        println!("map {}: {status}: {printed}", self.maps);
    }
}

impl Pace {
    fn add(&mut self, other: &Pace) {
        self.messages += other.messages;
        self.time += other.time;
    }

    fn rate(&self) -> f64 {
        self.messages as f64 / self.time.as_secs_f64()
    }
}

/// Messages that are timed.
const MESSAGES: u64 = 200;
