//! Stress tests of shared memory: processes that are killed, stopped, write where they like, sleep,
//! or are very many. Short runs are tests (`tests/tests/shm/stress.rs`); docs/testing.md has long
//! ones.

mod corrupt;
mod echo;
mod keeper;
mod kills;
mod load;
mod sessions;
mod sleep;
mod stop;
mod survivor;

use std::process::ExitCode;

use rpcrdma::Address;
use rpcrdma_testing::children;

const USAGE: &str = "stress kills [--rounds N] [--map yes|no|both] [--seed N]
stress corrupt [--seconds N] [--map yes|no|both] [--seed N]
stress stop [--rounds N] [--map yes|no|both] [--seed N]
stress sleep [--seconds N] [--clients N] [--seed N]
stress load [--clients N] [--calls N] [--slots N] [--staging LENGTH]
            [--idle POLICY]
stress sessions [--calls N] [--losses N] [--kills N] [--clients N] [--seed N]

  kills      kills a server or its client at any time, and counts what the other has left
  corrupt    a client writes at random over all the memory of its connections, beside others
  stop       a client is stopped in the middle of its calls, and goes on later
  sleep      processes call each other, and sleep before each message
  load       one client, and N clients, each a process, on one server
  sessions   kills and stops the server of a session, and cuts its connections

  --rounds N     kills or stops (kills: 40; stop: 4)
  --seconds N    how long (10)
  --clients N    processes that call (sleep: 2; load: 1000); connections (sessions: 3)
  --calls N      of each of them at a time (load: 100); of the session (sessions: 20000)
  --losses N, --kills N
                 connections cut (30), kills and stops of the server (5)
  --slots N, --staging LENGTH, --idle POLICY
                 shm.ring_slots (128), shm.staging (4MiB), engine.idle.policy (block)
  --map WHICH    whether pools are mapped (shm.map_pools); both: first no, then yes (both)
  --seed N       of what is drawn (from the clock)

Ends with 0 if all went well. The program `peer` must lie beside this one.";

/// The command line.
#[derive(Debug, Clone)]
struct Wanted {
    at: Option<Address>,
    rounds: Option<u32>,
    seconds: u64,
    clients: Option<u32>,
    calls: Option<u32>,
    losses: u32,
    kills: u32,
    slots: i64,
    staging: String,
    idle: String,
    maps: Vec<bool>,
    seed: u64,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let run: fn(&Wanted) = match args.next().as_deref() {
        Some("kills") => kills::run,
        Some("corrupt") => corrupt::run,
        Some("stop") => stop::run,
        Some("sleep") => sleep::run,
        Some("load") => load::run,
        Some("sessions") => sessions::run,
        // What these start.
        Some("corrupter") => corrupt::write_about,
        Some("answerer") => sleep::answer,
        Some("asker") => sleep::ask,
        Some("member") => load::take_part,
        Some("keeper") => keeper::serve,
        _ => return usage(),
    };
    let Some(wanted) = wanted(args) else { return usage() };
    run(&wanted);
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn wanted(mut args: impl Iterator<Item = String>) -> Option<Wanted> {
    let mut wanted = Wanted {
        at: None,
        rounds: None,
        seconds: 10,
        clients: None,
        calls: None,
        losses: 30,
        kills: 5,
        slots: 128,
        staging: "4MiB".to_owned(),
        idle: "block".to_owned(),
        maps: vec![false, true],
        seed: rpcrdma::Clock::new().now(),
    };
    while let Some(key) = args.next() {
        let value = args.next()?;
        match key.as_str() {
            "--at" => wanted.at = Some(value.parse().ok()?),
            "--rounds" => wanted.rounds = Some(value.parse().ok()?),
            "--seconds" => wanted.seconds = value.parse().ok()?,
            "--clients" => wanted.clients = Some(value.parse().ok()?),
            "--calls" => wanted.calls = Some(value.parse().ok()?),
            "--losses" => wanted.losses = value.parse().ok()?,
            "--kills" => wanted.kills = value.parse().ok()?,
            "--slots" => wanted.slots = value.parse().ok()?,
            "--staging" => wanted.staging = value,
            "--idle" => wanted.idle = value,
            "--seed" => wanted.seed = value.parse().ok()?,
            "--map" => {
                wanted.maps = match value.as_str() {
                    "no" => vec![false],
                    "yes" => vec![true],
                    "both" => vec![false, true],
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some(wanted)
}

impl Wanted {
    /// The options of a process that is started for this run.
    fn options(&self, at: Address, maps: bool, seed: u64) -> Vec<String> {
        let maps = if maps { "yes" } else { "no" };
        [
            ("--at", at.to_string()),
            ("--map", maps.to_owned()),
            ("--seed", seed.to_string()),
            ("--seconds", self.seconds.to_string()),
            ("--slots", self.slots.to_string()),
            ("--staging", self.staging.clone()),
            ("--idle", self.idle.clone()),
        ]
        .into_iter()
        .flat_map(|(key, value)| [key.to_owned(), value])
        .collect()
    }

    /// Where the process that was started finds the other.
    fn at(&self) -> Address {
        self.at.expect("the option --at is given")
    }
}
