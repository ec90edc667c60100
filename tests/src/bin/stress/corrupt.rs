//! A client that writes at random over all the memory of its connections, beside others.
//!
//! ```text
//!   this process    serves all, and holds in the end what it held
//!   two peers       every call is answered; bytes are compared on both sides
//!   the corrupter   calls by an engine while another thread writes into its memory; or publishes
//!                   anything without an engine; comes again when it was thrown out
//! ```

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rpcrdma::provider::ConnectId;
use rpcrdma::{
    Address, Admission, Answer, BackwardSupport, Call, CallRefused, Client, Clock, CloseReason,
    ConnectRequest, ConnectionId, Engine, Handler, PeerLimits, Reply, Shm, Turn,
};
use rpcrdma_shm::hostile_peer::{self, HostilePeer, Reach};
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::script::{Order, Part, Random, Script, unreduced};
use rpcrdma_tests::service::{Service, Source};

use crate::Wanted;
use crate::children::{Started, end_with_parent};
use crate::survivor::{self, HUNG, Survivor, config, socket};

/// A service that rejects what is not a call of a peer of the tests.
#[derive(Default)]
struct Wary {
    service: Service,
    rejected: u64,
}

/// A run beside corrupters.
pub fn run(wanted: &Wanted) {
    println!("seed {}", wanted.seed);
    let time = Duration::from_secs(wanted.seconds) / wanted.maps.len() as u32;
    for maps in &wanted.maps {
        beside_corrupters(*maps, time, wanted);
    }
}

fn beside_corrupters(maps: bool, time: Duration, wanted: &Wanted) {
    let folder = Folder::new();
    let path = |name: &str| folder.join(name).display().to_string();
    let at = socket(&folder, "server.sock");
    let mut survivor = Survivor::new(&config(maps), Wary::default(), at);
    let idle = survivor.idle_holdings();
    let (enough, hang) = (path("enough"), (time + HUNG).as_secs().to_string());
    let good: Vec<Started> = ["400", "30000"]
        .iter()
        .map(|bytes| {
            let map = if maps { "yes" } else { "no" };
            let options = ["--until", &enough, "--seconds", &hang, "--lines", "1", "--map", map];
            let to = at.to_string();
            Started::peer(&[&["call", &to, "--bytes", bytes], &options[..]].concat())
        })
        .collect();
    let mut seed = wanted.seed;
    let begin = Instant::now();
    while begin.elapsed() < time {
        seed += 1;
        let slice = Wanted { seconds: SLICE.min(time.as_secs().max(1)), ..wanted.clone() };
        let mut corrupter = Started::stress("corrupter", slice.options(at, maps, seed));
        let status = loop {
            work(&mut survivor);
            if let Some(status) = corrupter.has_ended() {
                break status;
            }
        };
        let printed = corrupter.rest();
        assert!(status.success(), "the corrupter of seed {seed}: {status}: {printed:#?}");
        println!("map {maps}, seed {seed}: {}", printed.join("; "));
    }
    fs::write(&enough, "").expect("the folder is writable");
    for mut peer in good {
        let status = loop {
            work(&mut survivor);
            if let Some(status) = peer.has_ended() {
                break status;
            }
        };
        let printed = peer.rest();
        assert!(status.success(), "{printed:#?}");
        println!("map {maps}: good client: {}", printed.join("; "));
    }
    forget(survivor.server.handler());
    survivor.until_holds(&idle);
    let stats = survivor.server.handle().stats();
    let Wary { rejected, service } = survivor.server.handler();
    println!(
        "map {maps}: {} connections in {:.1?}; {} calls answered, {rejected} rejected as damaged; \
         {} violations; the server holds what it held",
        service.connected.len(),
        begin.elapsed(),
        stats.replies_sent,
        stats.violations + stats.violations_unreported,
    );
}

fn work(survivor: &mut Survivor<Wary>) {
    if !survivor.turn() {
        survivor.server.wait(Duration::from_millis(1));
    }
}

/// Gives back what damaged calls made the service keep.
fn forget(Wary { service, .. }: &mut Wary) {
    service.kept.clear();
    service.never.clear();
    service.elsewhere.clear();
}

impl Handler for Wary {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        if is_of_peers(&call) {
            return self.service.on_call(call, reply);
        }
        self.rejected += 1;
        reply.refuse()
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        self.service.on_turn(turn);
    }

    fn backward(&self) -> BackwardSupport {
        self.service.backward()
    }

    fn admit(&mut self, request: &ConnectRequest<'_>) -> Admission {
        self.service.admit(request)
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        limits: &PeerLimits,
    ) -> Admission {
        self.service.on_connect(peer, attempt, limits)
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        self.service.on_close(peer, why);
    }
}

/// Whether a call is one that the program `peer` makes.
fn is_of_peers(call: &Call<'_>) -> bool {
    let mut left = call.payload().flatten().count();
    let mut at = 0;
    for item in call.placed() {
        let Some(position) = item.position().map(|position| position as usize) else {
            return false;
        };
        let before = position.checked_sub(at).filter(|_| position.is_multiple_of(4));
        let Some(rest) = before.and_then(|before| left.checked_sub(before)) else { return false };
        (left, at) = (rest, position + (item.len() as usize).next_multiple_of(4));
    }
    let stream = unreduced(call);
    let Some(script) = Script::parse(&stream) else { return false };
    let is_short = |part: &Part| matches!(part, Part::Inline(..=LEN_MAX) | Part::Bulk(..=LEN_MAX));
    let is_made = matches!(script.order, Order::Answer | Order::Later | Order::Refuse);
    is_made && script.reply.iter().all(is_short) && stream == script.call_stream()
}

/// The corrupter.
pub fn write_about(wanted: &Wanted) {
    end_with_parent();
    let Address::Shm(name) = wanted.at() else { panic!("{} is not a socket", wanted.at()) };
    let end = Instant::now() + Duration::from_secs(wanted.seconds);
    let mut random = Random(wanted.seed);
    let mut caller = Corrupter::new(wanted);
    let is_over = AtomicBool::new(false);
    let (mut hostile, mut writes) = (0, 0_u64);
    std::thread::scope(|scope| {
        let seed = wanted.seed.wrapping_mul(3);
        let is_over = &is_over;
        let writer = scope.spawn(move || corrupt_until(is_over, Random(seed)));
        while Instant::now() < end {
            if random.below(3) == 0 {
                hostile += u32::from(be_hostile(&name, &mut random).is_ok());
            } else {
                caller.be_served(&mut random);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        writes = writer.join().expect("it only writes");
    });
    let Corrupter { connected, refused, lost, answered, failed, .. } = caller;
    println!(
        "connected {connected} times and lost {lost} times, not connected {refused} times, \
         {hostile} times without an engine; {answered} replies, {failed} calls failed; \
         {writes} writes"
    );
}

/// Writes into all memory of connections of this process. Returns how often.
fn corrupt_until(is_over: &AtomicBool, mut random: Random) -> u64 {
    let mut writes = 0;
    while !is_over.load(Ordering::Relaxed) {
        let all = hostile_peer::reach();
        if all.is_empty() {
            std::thread::yield_now();
            continue;
        }
        // Some damage comes late: the connection works for a while.
        let count = random.choose(&[1, 10, 1000]);
        for _ in 0..count {
            corrupt(&all[random.below(all.len() as u32) as usize], &mut random);
            writes += 1;
        }
        drop(all);
        for _ in 0..random.below(2000) {
            std::hint::spin_loop();
        }
    }
    writes
}

/// Writes words to a random place: more often where positions and headers are.
fn corrupt(memory: &Reach, random: &mut Random) {
    let len = memory.memory_len() as u32;
    let span = if random.below(2) == 0 { len.min(72 << 10) } else { len };
    let mut bytes = [0; 16];
    let kind = random.below(4);
    bytes.iter_mut().for_each(|byte| {
        *byte = match kind {
            0 => 0xff,
            1 => u8::from(random.below(16) == 0),
            _ => random.below(256) as u8,
        }
    });
    let count = random.choose(&[1, 4, 8, 16]);
    memory.corrupt(random.below(span) as usize / count * count, &bytes[..count]);
}

/// Connects without an engine, and publishes slots of any content.
fn be_hostile(name: &rpcrdma::ShmName, random: &mut Random) -> std::io::Result<()> {
    let mut peer = HostilePeer::connect(name, 4 << 20)?;
    let end = Instant::now() + Duration::from_millis(20);
    while !peer.is_accepted() {
        if Instant::now() > end {
            return Ok(());
        }
    }
    for position in 0..random.below(400) {
        let bytes: Vec<u8> = (0..random.below(225)).map(|_| random.below(256) as u8).collect();
        let any = |random: &mut Random| {
            u64::from(random.below(1 << 31)) << 31 | u64::from(random.below(1 << 31))
        };
        let op = u64::from(random.below(8)) << 32 | u64::from(random.below(3)) << 40;
        match random.below(8) {
            0 => peer.publish([any(random), any(random), any(random)], &bytes),
            1 => peer.acknowledge(any(random) % 500, any(random) % 500),
            2 => peer.set_outcome(u64::from(position), random.below(256)),
            3 => peer.send(&bytes),
            4 => corrupt(&peer.reach(), random),
            _ => peer.publish([0, op, bytes.len() as u64], &bytes),
        }
    }
    Ok(())
}

/// A client whose memory is damaged while it calls.
struct Corrupter {
    // Dropped before the client that it is of.
    source: Source,
    client: Client<Shm>,
    clock: Clock,
    to: Address,
    connected: u64,
    refused: u64,
    lost: u64,
    answered: u64,
    failed: u64,
    _engine: Engine<Shm>,
}

impl Corrupter {
    fn new(wanted: &Wanted) -> Corrupter {
        let mut raw = config(wanted.maps == [true]);
        raw.connections.connect_timeout = "1s".into();
        let (engine, client) = survivor::client(&raw);
        Corrupter {
            source: Source::default(),
            client,
            clock: Clock::new(),
            to: wanted.at(),
            connected: 0,
            refused: 0,
            lost: 0,
            answered: 0,
            failed: 0,
            _engine: engine,
        }
    }

    /// Connects, and calls until it is thrown out or some time is over.
    fn be_served(&mut self, random: &mut Random) {
        self.source.prepare(&mut self.client.turn(self.clock.now()));
        let Ok(peer) = self.client.connect(self.to) else {
            self.refused += 1;
            return;
        };
        self.connected += 1;
        let end = Instant::now() + Duration::from_millis(random.choose(&[1, 10, 100]));
        while Instant::now() < end {
            let script = random.script(30_000);
            let made = self.client.call(peer, 0);
            match made.and_then(|call| self.source.submit(call, &script)) {
                Err(CallRefused::NoPeer) => {
                    self.lost += 1;
                    break;
                }
                Ok(()) | Err(_) => self.poll(),
            }
        }
        self.client.handle().close(peer);
        let hung = Instant::now() + HUNG;
        while self.client.handle().connections() > 0 {
            self.poll();
            assert!(Instant::now() < hung, "its connection does not end");
        }
    }

    fn poll(&mut self) {
        let (answered, failed) = (&mut self.answered, &mut self.failed);
        self.client.poll(self.clock.now(), |done| match done.result() {
            Ok(_) => *answered += 1,
            Err(_) => *failed += 1,
        });
    }
}

/// Seconds of one process that corrupts its memory.
const SLICE: u64 = 10;
/// No part of a peer's reply is longer.
const LEN_MAX: u32 = 64 << 10;
