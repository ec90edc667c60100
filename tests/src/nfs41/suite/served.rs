//! The Linux kernel's client of NFS version 4.1 on our small server: it mounts, takes delegations,
//! and is called on the connection that it made.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rpcrdma::{Address, CallRefused, Clock, Engine, Provider, Shard};

use super::pattern;
use crate::nfs41::numbers::{cb, op, status};
use crate::nfs41::server::{Answered, CallBack, Ops, Server};
use crate::nfs41::words::StateId;

/// The server, and the time of its turns.
struct Serving<P: Provider> {
    shard: Shard<P, Server>,
    clock: Clock,
}

/// The kernel of this machine mounts the server, reads, is called back, and unmounts.
///
/// # Panics
/// If it does not.
pub fn the_kernel_mounts_and_is_called_back<P: Provider>(engine: &Engine<P>, at: Address) {
    let files = [
        ("small", pattern(51, 1_000)),
        ("large", pattern(52, 200_000)),
        ("late", pattern(53, 30_000)),
    ];
    let shard = engine.shard(Server::new(&files)).expect("a shard");
    let mut serving = Serving { shard, clock: Clock::new() };
    let at = engine.listen(at).expect("a port");
    let Address::Ip(at) = at else { panic!("{at}") };
    let (host, port) = (at.ip(), at.port());
    serving.shell(&format!("kernel_mount4 {host}:/ /mnt/served port={port}"));
    for (name, bytes) in &files {
        serving.shell(&format!("cp /mnt/served/{name} /tmp/served"));
        assert!(fs::read("/tmp/served").expect("the copy") == *bytes, "{name}");
    }
    let server = serving.shard.handler();
    assert_eq!(server.count(op::CREATE_SESSION), 1);
    let made = server.clients.made[0].clone();
    println!("the kernel's back channel: {:?}, flavors {:?}", made.back, made.flavors);
    let null = server.back.call(CallBack::null(&made));
    let unknown = Ops::default().sequence(&made, 0, 1);
    let unknown = unknown.recall(&StateId::ANONYMOUS, &server.tree.handle_of("small"));
    let unknown = server.back.call(CallBack::compound(&made, b"unknown", &unknown));
    serving.until("CB_NULL and a recall are answered", |server| server.back.is_idle());
    let server = serving.shard.handler();
    assert_eq!(server.back.done[&null].clone().map(|it| it.status), Ok(0));
    let answered = server.back.done[&unknown].clone().expect("an answer");
    println!("a recall of what it has not: {answered:?}");
    assert_eq!(answered.operations[0], (cb::SEQUENCE, status::OK));
    assert_ne!(answered.status, status::OK, "it has no such delegation");

    for (sequence, name) in (2..).zip(["small", "large"]) {
        let server = serving.shard.handler();
        let state = server.tree.delegation_of(name).expect("it was opened");
        let (before, handle) = (server.count(op::DELEGRETURN), server.tree.handle_of(name));
        let ops = Ops::default().sequence(&made, 0, sequence).recall(&state, &handle);
        let call = server.back.call(CallBack::compound(&made, b"", &ops));
        serving.until("a delegation is returned", |server| {
            server.back.is_idle() && server.tree.delegation_of(name).is_none()
        });
        let server = serving.shard.handler();
        let answered = server.back.done[&call].clone().expect("an answer");
        let operations = vec![(cb::SEQUENCE, status::OK), (cb::RECALL, status::OK)];
        assert_eq!((answered.status, &answered.operations), (status::OK, &operations));
        let stated = words_of(&made.id);
        assert_eq!(answered.sequence[..4], stated, "its session");
        assert_eq!(answered.sequence[4..6], [sequence, 0], "its request and slot");
        assert_eq!(server.count(op::DELEGRETURN), before + 1);
    }
    // Another session, and a number that is neither the last nor the next.
    let mut other = made.clone();
    other.id[15] ^= 0xff;
    let wrong = [(&other, 1, status::BADSESSION), (&made, 99, status::SEQ_MISORDERED)];
    for (session, sequence, expected) in wrong {
        let ops = Ops::default().sequence(session, 0, sequence);
        let answered = serving.ask(CallBack::compound(&made, b"", &ops));
        let answered = answered.expect("it fits").expect("an answer");
        assert_eq!(answered.status, expected, "{answered:?}");
    }
    several(&mut serving, &made, &files[1].1);
    assert_eq!(serving.shard.handler().closed, [], "one connection for all");
    serving.shell("kernel_unmount /mnt/served");
    serving.until("the client is gone", |server| server.count(op::DESTROY_CLIENTID) == 1);
    let server = serving.shard.handler();
    assert_eq!((server.count(op::DESTROY_SESSION), server.clients.made.len()), (1, 0));
    let stats = serving.shard.handle().stats();
    assert_eq!(
        (stats.buffers_leaked, stats.completions_failed, stats.violations),
        (0, 0, 0),
        "{stats:?}"
    );
}

/// Several calls of the backward direction at a time, in front of calls of the forward direction. No
/// more than a few: Linux's client posts Receives only when it takes a reply, so that very many calls
/// without one leave it none.
fn several<P: Provider>(serving: &mut Serving<P>, made: &crate::nfs41::server::Made, bytes: &[u8]) {
    let server = serving.shard.handler();
    let reads = server.count(op::READ);
    let calls: Vec<u64> = (0..8).map(|_| server.back.call(CallBack::null(made))).collect();
    serving.shell(
        "for turn in 1 2 3; do echo 3 >/proc/sys/vm/drop_caches; cp /mnt/served/large /tmp/served; done",
    );
    serving.until("all are answered", |server| server.back.is_idle());
    assert!(fs::read("/tmp/served").expect("the copy") == bytes);
    let server = serving.shard.handler();
    assert!(server.count(op::READ) > reads, "it has read meanwhile");
    for call in calls {
        assert_eq!(server.back.done[&call].clone().map(|it| it.status), Ok(0));
    }
    println!("{} callbacks were open at once", server.back.open_max);
    assert!(server.back.open_max > 1, "the kernel grants more than one");
}

impl<P: Provider> Serving<P> {
    /// Makes a call and waits for its answer.
    fn ask(&mut self, call: CallBack) -> Result<Result<Answered, String>, CallRefused> {
        let number = self.shard.handler().back.call(call);
        self.until("a callback is over", |server| server.back.is_idle());
        let back = &mut self.shard.handler().back;
        match back.refused.remove(&number) {
            Some(why) => Err(why),
            None => Ok(back.done[&number].clone()),
        }
    }

    /// Runs a command of the emulated machine, and serves meanwhile.
    fn shell(&mut self, command: &str) {
        let line = format!("set -e; . /usr/lib/guest.sh; {command}");
        let child = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).spawn();
        let mut child = child.expect("a shell");
        let end = Instant::now() + WAIT_MAX;
        let status = loop {
            if let Some(status) = child.try_wait().expect("it is a child") {
                break status;
            }
            if Instant::now() > end {
                let _ = child.kill();
                panic!("{command}: {:?}", self.shard.handler().executed);
            }
            self.poll();
        };
        assert!(status.success(), "{command}: {:?}", self.shard.handler().executed);
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Server) -> bool) {
        let end = Instant::now() + WAIT_MAX;
        while !is_so(self.shard.handler()) {
            assert!(Instant::now() < end, "{what}: {:?}", self.shard.handler().executed);
            self.poll();
        }
    }

    fn poll(&mut self) {
        if !self.shard.poll_once(self.clock.now()) {
            self.shard.wait(Duration::from_millis(1));
        }
    }
}

fn words_of(bytes: &[u8; 16]) -> Vec<u32> {
    let words = bytes.chunks_exact(4).map(|word| word.try_into().expect("four bytes"));
    words.map(u32::from_be_bytes).collect()
}

/// Time after which a test has hung.
const WAIT_MAX: Duration = Duration::from_secs(60);
