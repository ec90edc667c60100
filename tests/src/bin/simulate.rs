//! Runs the simulation over many seeds, or repeats one seed.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rpcrdma::{Fabric, Shm, Tcp};
use rpcrdma_tests::sim::provider::VirtualTcp;
use rpcrdma_tests::sim::{self, Failure, Outcome};

const USAGE: &str = "simulate [--seeds N] [--from S] [--jobs J] [--seconds T] [--provider P]
         [--scenario W]

  --seeds N     the number of seeds (10000)
  --from S      the first seed (0)
  --jobs J      the number of threads (1)
  --seconds T   the time limit
  --provider P  fabric, virtual-tcp, shm or tcp (fabric). Runs over shm and tcp are not the same each
                time; virtual-tcp is TCP over a network that splits, delays and cuts
  --scenario W  faults, or fairness: 64 shards with 1000 equal clients; over the fabric only (faults)

Exits with 1 at the first violation, and prints how to repeat it.";

/// The command line.
struct Wanted {
    seeds: u64,
    from: u64,
    jobs: u64,
    seconds: u64,
    run: Run,
}

/// Runs one seed.
type Run = fn(u64) -> Result<Outcome, Box<Failure>>;

fn main() -> ExitCode {
    let Some(wanted) = wanted() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A panic of the engine is reported as a violation, after the events before it.
    std::panic::set_hook(Box::new(|_| ()));
    let began = Instant::now();
    let (next, done, events) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let has_failed = AtomicBool::new(false);
    let coverage = Mutex::new(BTreeMap::<&str, u64>::new());
    let said = Mutex::new(began);
    std::thread::scope(|scope| {
        for _ in 0..wanted.jobs {
            scope.spawn(|| {
                while !has_failed.load(Ordering::Relaxed)
                    && began.elapsed().as_secs() < wanted.seconds
                {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= wanted.seeds {
                        return;
                    }
                    match (wanted.run)(wanted.from + seed) {
                        Ok(outcome) => {
                            events.fetch_add(outcome.events, Ordering::Relaxed);
                            let mut coverage =
                                coverage.lock().expect("no thread panicked with the lock");
                            for (what, count) in outcome.coverage {
                                *coverage.entry(what).or_default() += count;
                            }
                        }
                        Err(failure) => {
                            if !has_failed.swap(true, Ordering::Relaxed) {
                                println!("{failure}");
                            }
                        }
                    }
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    let mut said = said.lock().expect("no thread panicked with the lock");
                    if said.elapsed() > Duration::from_secs(10) {
                        *said = Instant::now();
                        progress(&wanted, done, began);
                    }
                }
            });
        }
    });
    progress(&wanted, done.into_inner(), began);
    if has_failed.into_inner() {
        return ExitCode::FAILURE;
    }
    println!("{} events, no violation; seen:", events.into_inner());
    for (what, count) in coverage.into_inner().expect("no thread panicked with the lock") {
        println!("  {count:>10}  {what}");
    }
    ExitCode::SUCCESS
}

fn progress(wanted: &Wanted, done: u64, began: Instant) {
    let rate = done as f64 / began.elapsed().as_secs_f64();
    println!("{done} of {} seeds from {}, {rate:.0} a second", wanted.seeds, wanted.from);
}

fn wanted() -> Option<Wanted> {
    let run = sim::run::<Fabric>;
    let (mut over, mut scenario) = (None, None);
    let mut wanted = Wanted { seeds: 10_000, from: 0, jobs: 1, seconds: u64::MAX, run };
    let mut args = std::env::args().skip(1);
    while let Some(key) = args.next() {
        let value = args.next()?;
        match (key.as_str(), value.as_str()) {
            ("--seeds", count) => wanted.seeds = count.parse().ok()?,
            ("--from", seed) => wanted.from = seed.parse().ok()?,
            ("--jobs", count) => wanted.jobs = count.parse().ok()?,
            ("--seconds", limit) => wanted.seconds = limit.parse().ok()?,
            ("--provider", "fabric") => over = None,
            ("--provider", "shm") => over = Some(sim::run::<Shm> as Run),
            ("--provider", "tcp") => over = Some(sim::run::<Tcp>),
            ("--provider", "virtual-tcp") => over = Some(sim::run::<VirtualTcp>),
            ("--scenario", "faults") => scenario = None,
            ("--scenario", "fairness") => scenario = Some(sim::fairness::run_checked as Run),
            _ => return None,
        }
    }
    match (over, scenario) {
        (None, None) => {}
        (Some(run), None) | (None, Some(run)) => wanted.run = run,
        (Some(_), Some(_)) => return None,
    }
    Some(wanted)
}
