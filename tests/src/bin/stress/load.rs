//! Very many client processes on one server.

use std::io::BufRead;
use std::time::{Duration, Instant};

use rpcrdma::{Address, Client, ConnectionId, Engine, Shm};
use rpcrdma_config::Raw;
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::setup::checked;
use rustix::process::Signal;

use crate::Wanted;
use crate::children::{Started, end_with_parent};
use crate::echo::{self, Echo};
use crate::survivor::{HUNG, client, config, resident, socket};

/// One client, then all of them.
pub fn run(wanted: &Wanted) {
    let folder = Folder::new();
    let at = socket(&folder, "server.sock");
    let clients = wanted.clients.unwrap_or(1000);
    let mut raw = sized(wanted);
    raw.connections.max = i64::from(clients);
    let config = checked(&raw);
    let device = Shm::from_config(&config).expect("shared memory");
    let mut engine = Engine::new(device, config).expect("an engine");
    let shards = engine.start(|_| Echo::default()).expect("a shard");
    engine.listen(at).expect("a free path");
    println!(
        "{} slots, staging of {}, policy {}",
        wanted.slots, wanted.staging, raw.engine.idle.policy
    );

    let calls = u64::from(clients * wanted.calls.unwrap_or(100));
    let mut one = vec![begin(wanted, at)];
    all_connect(&mut one);
    let alone = all_call(&mut one, calls);
    println!(
        "1 client: {alone:.0} calls/s; the client has {} KiB",
        resident(&one[0].id().to_string()).1
    );
    let (with_one, started) = (resident("self"), Instant::now());
    let mut all: Vec<Started> = (1..clients).map(|_| begin(wanted, at)).collect();
    println!("{} more clients have started in {:.1?}", all.len(), started.elapsed());
    all_connect(&mut all);
    let hung = Instant::now() + HUNG;
    while shards[0].connections() < clients as usize {
        std::thread::yield_now();
        assert!(Instant::now() < hung, "{} of {clients} are connected", shards[0].connections());
    }
    all.append(&mut one);
    let with_all = resident("self");
    let (few, many) = (with_one.0 as f64, with_all.0 as f64);
    println!(
        "the server has {few} KiB with one, {many} KiB with all: {:.1} KiB for a connection",
        (many - few) / f64::from(clients - 1),
    );
    let mut shares: Vec<u64> = all.iter().map(|it| resident(&it.id().to_string()).1).collect();
    shares.sort_unstable();
    println!("a client has a share of {} KiB (median)", shares[shares.len() / 2]);
    for round in 0..3 {
        let together = all_call(&mut all, calls);
        println!(
            "round {round}: {clients} clients: {together:.0} calls/s, {:.2} of the rate of one",
            together / alone
        );
    }
    let stopped = all.pop().expect("there are some");
    stopped.signal(Signal::STOP);
    let beside = all_call(&mut all, calls);
    println!("beside a stopped one: {beside:.0} calls/s, {:.2} of the rate of one", beside / alone);
    stopped.signal(Signal::CONT);
    all.push(stopped);
    all_end(all);
    let hung = Instant::now() + HUNG;
    while shards[0].connections() > 0 {
        std::thread::yield_now();
        assert!(Instant::now() < hung, "{} are still connected", shards[0].connections());
    }
    println!("the server has {} KiB when all are gone", resident("self").0);
    engine.stop();
    assert_eq!(shards[0].stats().buffers_leaked, 0);
}

/// Starts a client, which waits for its orders.
fn begin(wanted: &Wanted, at: Address) -> Started {
    let mut member = Started::stress("member", wanted.options(at, false, 0));
    assert_eq!(member.line().as_deref(), Some("ready"));
    member
}

/// Lets all connect at once.
fn all_connect(all: &mut [Started]) {
    let begin = Instant::now();
    all.iter_mut().for_each(|member| member.send("connect"));
    let mut times: Vec<u64> = all.iter_mut().map(number).collect();
    let took = begin.elapsed();
    times.sort_unstable();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{} connected in {took:.1?}; median {median} us, maximum {most} us", all.len());
}

/// Lets all make calls, so many in all, and returns the rate.
fn all_call(all: &mut [Started], calls: u64) -> f64 {
    let each = calls / all.len() as u64;
    let begin = Instant::now();
    all.iter_mut().for_each(|member| member.send(&each.to_string()));
    let made: u64 = all.iter_mut().map(number).sum();
    assert_eq!(made, each * all.len() as u64, "every call is answered");
    made as f64 / begin.elapsed().as_secs_f64()
}

fn all_end(mut all: Vec<Started>) {
    all.iter_mut().for_each(|member| member.send("end"));
    for mut member in all {
        assert_eq!(member.line(), None);
    }
}

/// What a client prints next, which is a number.
fn number(member: &mut Started) -> u64 {
    let line = member.line().expect("it goes on");
    line.parse().unwrap_or_else(|_| panic!("it prints {line:?}"))
}

/// A client: connects on command, and makes as many calls as a command states.
pub fn take_part(wanted: &Wanted) {
    end_with_parent();
    let (_engine, mut client) = client(&sized(wanted));
    let mut peer = None;
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match (line.as_str(), peer) {
            ("connect", _) => {
                let begin = Instant::now();
                peer = Some(client.connect(wanted.at()).expect("a connection"));
                println!("{}", begin.elapsed().as_micros());
            }
            ("end", _) => return,
            (calls, Some(peer)) => {
                println!("{}", make_calls(&mut client, peer, calls.parse().expect("a number")));
            }
            (other, None) => panic!("{other} before connect"),
        }
    }
}

/// Makes calls, some at a time. Returns how many were answered.
fn make_calls(client: &mut Client<Shm>, peer: ConnectionId, calls: u64) -> u64 {
    let (mut made, mut answered) = (0, 0);
    let mut last = Instant::now();
    while answered < calls {
        while made < calls && made - answered < WINDOW && echo::call(client, peer, made).is_ok() {
            made += 1;
        }
        let before = answered;
        // A reply wakes it. A shorter sleep of very many takes the processors from the server.
        client.poll_for(Duration::from_secs(1), |completion| {
            echo::check(&completion);
            answered += 1;
        });
        if answered > before {
            last = Instant::now();
        }
        assert!(last.elapsed() < HUNG, "{answered} of {made} calls are answered");
    }
    answered
}

/// The configuration of both sides: small, with the dimensions that are asked for.
fn sized(wanted: &Wanted) -> Raw {
    let mut raw = config(false);
    raw.connections.max = 1;
    raw.connections.connect_timeout = "60s".into();
    raw.shm.ring_slots = wanted.slots;
    raw.shm.staging = wanted.staging.as_str().into();
    raw.engine.idle.policy = wanted.idle.as_str().into();
    raw.engine.idle.spin = "20us".into();
    raw
}

/// Calls of a client at one time.
const WINDOW: u64 = 8;
