//! Processes that sleep before each message: no wake-up is missed.
//!
//! A shard sleeps for at most 10 ms when an engine runs it. Here it sleeps until it is woken, so
//! that a missed wake-up is not repaired: nothing moves any more, and the stress test fails.

use std::fs;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rpcrdma::Clock;
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::script::Random;
use rustix::process::Signal;

use crate::Wanted;
use crate::children::{Started, end_with_parent};
use crate::echo::{self, Echo};
use crate::survivor::{Survivor, client, config, socket};

/// One server and its clients, each a process.
pub fn run(wanted: &Wanted) {
    println!("seed {}", wanted.seed);
    let clients = wanted.clients.unwrap_or(2);
    let folder = Folder::new();
    let at = socket(&folder, "server.sock");
    let options = wanted.options(at, false, wanted.seed);
    let count = ["--clients".to_owned(), clients.to_string()];
    let mut server = Started::stress("answerer", [&options[..], &count].concat());
    assert_eq!(server.line().as_deref(), Some("listening"));
    let (sender, lines) = mpsc::channel();
    let mut ids = vec![server.id()];
    for index in 0..clients {
        let seed = wanted.seed.wrapping_add(u64::from(index) + 1);
        let mut asker = Started::stress("asker", wanted.options(at, false, seed));
        ids.push(asker.id());
        let sender = sender.clone();
        std::thread::spawn(move || {
            while let Some(line) = asker.line() {
                sender.send((index, line)).expect("the others wait for it");
            }
        });
    }
    drop(sender);
    // Each prints a line again and again, until it ends.
    let mut last = vec![Some(Instant::now()); clients as usize];
    while let Ok((index, line)) = lines.recv_timeout(MISSED) {
        let is_last = line.starts_with("asked");
        if is_last {
            println!("{line}");
        }
        last[index as usize] = (!is_last).then(Instant::now);
        let late = last.iter().flatten().find(|last| last.elapsed() > MISSED);
        assert!(late.is_none(), "a wake-up was missed: {:#?}", states(&ids));
    }
    let are_over = last.iter().all(Option::is_none);
    assert!(are_over, "a wake-up was missed: {:#?}", states(&ids));
    println!("{}", server.rest().join("; "));
}

/// What the kernel reports of processes that hang.
fn states(ids: &[u32]) -> Vec<String> {
    let of = |id: &u32| {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default();
        format!("process {id}: {}in {}: {}", read("stat"), read("wchan"), read("syscall"))
    };
    ids.iter().map(of).collect()
}

/// The server.
pub fn answer(wanted: &Wanted) {
    end_with_parent();
    let mut survivor = Survivor::new(&config(false), Echo::default(), wanted.at());
    println!("listening");
    let mut random = Random(wanted.seed);
    while survivor.server.handler().ended < wanted.clients.unwrap_or(2) {
        if !survivor.turn() {
            think(&mut random);
            survivor.server.wait(FOR_EVER);
        }
    }
    let stats = survivor.server.handle().stats();
    println!("answered {} calls, slept {} times", stats.replies_sent, stats.sleeps);
}

/// A client.
pub fn ask(wanted: &Wanted) {
    end_with_parent();
    let (_engine, mut client) = client(&config(false));
    let peer = client.connect(wanted.at()).expect("a connection");
    let (mut random, clock) = (Random(wanted.seed), Clock::new());
    let end = Instant::now() + Duration::from_secs(wanted.seconds);
    let (mut asked, mut longest, mut printed) = (0, Duration::ZERO, Instant::now());
    while Instant::now() < end {
        echo::call(&mut client, peer, asked).expect("there is one call at a time");
        let (mut is_back, begin) = (false, Instant::now());
        while !is_back {
            let busy = client.poll(clock.now(), |done| {
                echo::check(&done);
                is_back = true;
            });
            if !busy {
                think(&mut random);
                client.wait(FOR_EVER);
            }
        }
        asked += 1;
        longest = longest.max(begin.elapsed());
        if printed.elapsed() > Duration::from_secs(1) {
            printed = Instant::now();
            println!("goes on");
        }
        think(&mut random);
    }
    let sleeps = client.handle().stats().sleeps;
    println!("asked {asked} times, slept {sleeps} times, the longest call took {longest:.1?}");
    // Without closing: the sleeping server is woken for that, too.
    rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).expect("it is allowed");
}

/// Takes some time, mostly as short as the steps of falling asleep.
fn think(random: &mut Random) {
    let span = random.choose(&[1, 30, 300, 3000]);
    for _ in 0..random.below(span) {
        std::hint::spin_loop();
    }
}

/// A sleep that only a ring ends.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// Nothing has come for so long: a process sleeps that should not.
const MISSED: Duration = Duration::from_secs(60);
