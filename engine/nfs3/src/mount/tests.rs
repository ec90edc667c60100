//! The limits of a client of MOUNT: connections, memory and time.

use std::net::IpAddr;

use super::*;
use crate::tests::Scratch;

/// The service without its thread: the test calls its turns.
struct Bench {
    service: MountService,
    now: Instant,
    _scratch: Scratch,
}

impl Bench {
    fn new() -> Bench {
        let scratch = Scratch::new();
        let export = Arc::new(scratch.opened());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let service = MountService::new(listener, export);
        Bench { service, now: Instant::now(), _scratch: scratch }
    }

    /// A client that the service treats as one of this address.
    fn connect(&mut self, from: &str) -> TcpStream {
        let at = self.service.listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(at).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        // A connection that is established at this end may not be accepted yet at the other.
        let accepted = loop {
            if let Ok((accepted, _)) = self.service.listener.accept() {
                break accepted;
            }
        };
        accepted.set_nonblocking(true).expect("a socket");
        let from = SocketAddr::new(from.parse().expect("an address"), 700);
        self.service.admit(MountClient::new(accepted, from, self.now));
        stream
    }

    fn turn(&mut self) {
        self.service.turn(self.now);
    }

    /// Turns until the newest client has been read from.
    fn turn_until_read(&mut self) {
        let has_come = |service: &MountService| {
            let client = service.clients.last().expect("there is one");
            !client.pending.is_empty() || !client.record.is_empty() || !client.out.is_empty()
        };
        while !has_come(&self.service) {
            self.turn();
        }
    }

    fn pass(&mut self, seconds: u64) -> usize {
        self.now += Duration::from_secs(seconds);
        self.turn();
        self.service.clients.len()
    }
}

/// A call of a procedure that has no arguments, as a record.
fn call(procedure: u32) -> Vec<u8> {
    let words = [1 << 31 | 40, 9, 0, 2, 100_005, 3, procedure, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

const NULL: u32 = 0;
const DUMP: u32 = 2;

#[test]
fn a_host_has_a_limited_number_of_places_of_its_own() {
    let mut bench = Bench::new();
    let mut streams = vec![bench.connect("10.0.0.1")];
    for flood in ["10.0.0.2", "::ffff:10.0.0.2"].iter().cycle().take(100) {
        streams.push(bench.connect(flood));
    }
    let of = |bench: &Bench, from: &str| {
        let from = SocketAddr::new(from.parse().expect("an address"), 0);
        bench.service.clients.iter().filter(|client| host(client.from) == host(from)).count()
    };
    assert_eq!((of(&bench, "10.0.0.1"), of(&bench, "10.0.0.2")), (1, CLIENTS_OF_HOST_MAX));
    for interface in 0..100 {
        streams.push(bench.connect(&format!("fd00::{interface:x}")));
    }
    assert_eq!((of(&bench, "fd00::1"), of(&bench, "fd00:0:0:1::")), (CLIENTS_OF_HOST_MAX, 0));
    for network in 1..100 {
        streams.push(bench.connect(&format!("fd00:0:0:{network:x}::1")));
    }
    assert_eq!(bench.service.clients.len(), CLIENTS_MAX);
    assert_eq!(of(&bench, "10.0.0.1"), 1, "it was there first");
}

#[test]
fn calls_are_answered_one_at_a_time() {
    let mut bench = Bench::new();
    let mut stream = bench.connect("10.0.0.1");
    // More answers than the socket buffers hold: those of DUMP, the longest.
    let path = vec![b'/'; 1000];
    for host in 0..MOUNTED {
        let from = IpAddr::from([10, 0, 1, host]);
        bench.service.mounts.note(from, &path);
    }
    let calls: Vec<u8> = (0..50).flat_map(|_| call(DUMP)).collect();
    stream.write_all(&calls).expect("there is room for it");
    let one = usize::from(MOUNTED) * 1100;
    for _ in 0..1000 {
        bench.turn();
        let client = bench.service.clients.last().expect("it is there");
        assert!(client.out.capacity() <= 2 * one, "{} bytes", client.out.capacity());
        assert!(client.pending.capacity() <= 2 * PENDING_MAX);
    }
    // All calls are answered once the answers are read.
    let (mut taken, mut answered) = (Vec::new(), 0);
    while answered < 50 {
        bench.turn();
        let mut bytes = [0; 65_536];
        if let Ok(len) = stream.read(&mut bytes) {
            assert_ne!(len, 0, "it is not closed");
            taken.extend_from_slice(&bytes[..len]);
        }
        while let Some((mark, rest)) = taken.split_first_chunk::<4>() {
            let len = fragment_header::from(*mark).fragment_length() as usize;
            if rest.len() < len {
                break;
            }
            taken.drain(..4 + len);
            answered += 1;
        }
    }
    assert_eq!(bench.pass(59), 1, "what it did last was to take an answer");
    assert_eq!(bench.pass(1), 0);
}

#[test]
fn a_record_has_a_time_limit_however_slowly_it_arrives() {
    let mut bench = Bench::new();
    let mut stream = bench.connect("10.0.0.1");
    assert_eq!(bench.pass(59), 1, "it may be silent");
    for (at, byte) in call(NULL).iter().enumerate().take(10) {
        stream.write_all(&[*byte]).expect("it is open");
        while bench.service.clients[0].pending.len() <= at {
            bench.turn();
        }
        assert_eq!(bench.pass(u64::from(at > 0)), 1);
    }
    assert_eq!(bench.pass(1), 0, "that was 10 s");
}

#[test]
fn an_answer_has_a_time_limit_too() {
    let mut bench = Bench::new();
    let mut stream = bench.connect("10.0.0.1");
    for host in 0..MOUNTED {
        bench.service.mounts.note(IpAddr::from([10, 0, 1, host]), &[b'/'; 1000]);
    }
    let calls: Vec<u8> = (0..90).flat_map(|_| call(DUMP)).collect();
    stream.write_all(&calls).expect("there is room for it");
    bench.turn_until_read();
    while bench.service.clients[0].out.is_empty() {
        bench.turn();
    }
    assert_eq!(bench.pass(9), 1);
    assert_eq!(bench.pass(1), 0, "no client is served");
}

#[test]
fn a_record_is_as_long_as_the_longest_call_at_most() {
    const BEFORE: usize = 3000;
    let fragment = |len: usize, is_last| fragment_header::new(len as u32, is_last).into_xdr_buf();
    for (before, len) in [(0, RECORD_MAX), (BEFORE, RECORD_MAX - BEFORE)] {
        for longer in [0, 1, 4] {
            let mut bench = Bench::new();
            let mut stream = bench.connect("10.0.0.1");
            let first = [&fragment(before, false)[..], &vec![0; before]].concat();
            let last = fragment(len + longer, true);
            let sent = [if before > 0 { &first[..] } else { &[] }, &last[..]].concat();
            stream.write_all(&sent).expect("there is room for it");
            let is_read = |client: &MountClient| {
                client.record.len() == before && client.pending.len() == last.len()
            };
            while bench.service.clients.first().is_some_and(|client| !is_read(client)) {
                bench.turn();
            }
            bench.turn();
            let is_there = !bench.service.clients.is_empty();
            assert_eq!(is_there, longer == 0, "{before} and {len} bytes, and {longer}");
        }
    }
}

/// The number of mounts in the list.
const MOUNTED: u8 = 250;
