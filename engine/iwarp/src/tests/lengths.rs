//! Messages of all lengths and in several pieces, both ways, with and without CRC; and Reads up to
//! the agreed depth.
#![expect(unsafe_code, reason = "the test reads and writes the memory of a region")]

use rpcrdma_conformance::host::*;
use rpcrdma_mempool::{Access, Keys, Region, Sge};
use rpcrdma_provider::{Attached, Remote, SendFlags, SendOp, WcStatus};

use super::raw::{self, *};
use super::rules::{Host, Qp};
use crate::{Tcp, TcpOptions};

/// Memory with room for long messages.
struct Memory {
    region: Region,
    keys: Keys,
}

impl Memory {
    fn new(device: &Tcp, access: Access) -> Memory {
        let region = map::<Tcp>(2 * LONGEST);
        let keys = register(device, &region, access);
        Memory { region, keys }
    }

    fn sge(&self, offset: usize, length: usize) -> Sge {
        let addr = self.region.base().as_ptr() as u64 + offset as u64;
        Sge { addr, length: length as u32, lkey: self.keys.lkey }
    }

    fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= 2 * LONGEST);
        // SAFETY: the region has room for them, and no request is under way.
        unsafe { self.region.base().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Its first bytes.
    fn read(&self, len: usize) -> Vec<u8> {
        assert!(len <= 2 * LONGEST);
        let mut bytes = vec![0; len];
        // SAFETY: the region has that many bytes, and no request is under way.
        unsafe {
            self.region.base().as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        }
        bytes
    }
}

/// Both hosts, with their memory.
struct Scene {
    a: Host,
    b: Host,
    qa: Attached<Qp>,
    at_a: Memory,
    at_b: Memory,
}

impl Scene {
    fn new(crc: bool) -> Scene {
        let device = Tcp::with_options(TcpOptions { crc, ..TcpOptions::default() }).unwrap();
        let (mut a, mut b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
        let (qa, _) = connect(&device, &mut a, &mut b, 7);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let at_a = Memory::new(&device, access);
        let at_b = Memory::new(&device, access);
        Scene { a, b, qa, at_a, at_b }
    }

    /// Polls both until A has completed a request and B, if it is to, a Receive.
    fn poll_until_done(&mut self, receives: usize) {
        let (mut done, mut got) = (Vec::new(), Vec::new());
        for _ in 0..100_000 {
            got.extend(self.b.poll());
            done.extend(self.a.poll());
            if done.len() == 1 && got.len() == receives {
                break;
            }
        }
        assert_eq!(brief(&done), [(1, WcStatus::Success)]);
        assert!(got.iter().all(|wc| wc.status == WcStatus::Success) && got.len() == receives);
    }
}

/// A length in up to four pieces with gaps between them, of which some are empty.
fn pieces(len: usize, count: usize) -> Vec<(usize, usize)> {
    let (mut offset, mut left) = (0, len);
    (0..count)
        .map(|index| {
            let now = if index + 1 == count { left } else { left / 3 };
            let piece = (offset, now);
            (offset, left) = (offset + now + 7, left - now);
            piece
        })
        .collect()
}

/// As many bytes as a message of this length touches, and more.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len + 64).map(|at| (at * 7 + at / 251 + seed) as u8).collect()
}

#[test]
fn messages_of_all_lengths_and_pieces_arrive() {
    for crc in [false, true] {
        let mut scene = Scene::new(crc);
        for (round, len) in LENGTHS.into_iter().enumerate() {
            for (from, to) in [(1, 1), (2, 1), (4, 3), (3, 2)] {
                send_and_check(&mut scene, round, len, (from, to));
                write_and_check(&mut scene, round, len, from);
                read_and_check(&mut scene, round, len, from);
            }
        }
        assert_eq!((scene.a.events(), scene.b.events()), (vec![], vec![]));
    }
}

/// The bytes of pieces of memory.
fn gathered(bytes: &[u8], pieces: &[(usize, usize)]) -> Vec<u8> {
    pieces.iter().flat_map(|(at, len)| &bytes[*at..*at + *len]).copied().collect()
}

fn send_and_check(scene: &mut Scene, seed: usize, len: usize, (from, to): (usize, usize)) {
    let (ours, theirs) = (pattern(len, seed), pattern(len, seed + 100));
    scene.at_a.fill(&ours);
    scene.at_b.fill(&theirs);
    let (from, to) = (pieces(len, from), pieces(len, to));
    let sgl: Vec<Sge> = to.iter().map(|(at, len)| scene.at_b.sge(*at, *len)).collect();
    scene.b.recv_at(9, &sgl).unwrap();
    let sgl: Vec<Sge> = from.iter().map(|(at, len)| scene.at_a.sge(*at, *len)).collect();
    scene.a.send_from(scene.qa.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
    scene.poll_until_done(1);
    let found = scene.at_b.read(len + 64);
    assert!(gathered(&found, &to) == gathered(&ours, &from), "a Send of {len} bytes");
    let mut expected = theirs;
    to.iter()
        .for_each(|(at, len)| expected[*at..*at + *len].copy_from_slice(&found[*at..*at + *len]));
    assert!(found == expected, "nothing else is written");
}

fn write_and_check(scene: &mut Scene, seed: usize, len: usize, count: usize) {
    let (ours, theirs) = (pattern(len, seed), pattern(len, seed + 100));
    scene.at_a.fill(&ours);
    scene.at_b.fill(&theirs);
    let from = pieces(len, count);
    let sgl: Vec<Sge> = from.iter().map(|(at, len)| scene.at_a.sge(*at, *len)).collect();
    let remote = Remote { addr: scene.at_b.sge(5, 0).addr, rkey: scene.at_b.keys.rkey };
    scene.a.post(scene.qa.qp, 1, SendOp::Write(remote), &sgl);
    // A Send behind it shows that it is there.
    scene.b.recv(9, 0, 64);
    scene.a.post_with(scene.qa.qp, 2, SendOp::Send, &[], SendFlags::empty()).unwrap();
    scene.poll_until_done(1);
    let mut expected = theirs;
    expected[5..5 + len].copy_from_slice(&gathered(&ours, &from));
    assert!(scene.at_b.read(len + 64) == expected, "a Write of {len} bytes");
}

fn read_and_check(scene: &mut Scene, seed: usize, len: usize, count: usize) {
    let (ours, theirs) = (pattern(len, seed), pattern(len, seed + 100));
    scene.at_a.fill(&ours);
    scene.at_b.fill(&theirs);
    let to = pieces(len, count);
    let sgl: Vec<Sge> = to.iter().map(|(at, len)| scene.at_a.sge(*at, *len)).collect();
    let remote = Remote { addr: scene.at_b.sge(3, 0).addr, rkey: scene.at_b.keys.rkey };
    scene.a.post(scene.qa.qp, 1, SendOp::Read(remote), &sgl);
    scene.poll_until_done(0);
    let (mut expected, mut from) = (ours, 3);
    for (at, len) in to {
        expected[at..at + len].copy_from_slice(&theirs[from..from + len]);
        from += len;
    }
    assert!(scene.at_a.read(len + 64) == expected, "a Read of {len} bytes");
}

#[test]
fn reads_wait_beyond_the_agreed_depth() {
    for (ird, expected) in [(1, 1), (3, 3), (1000, 16)] {
        let device = Tcp::new().unwrap();
        let mut host = Host::new(&device, &SMALL);
        let start = Start { depths: Some((ird, 4)), ..PLAIN };
        let (mut raw, qp) = Raw::connect(&device, &mut host, start);
        raw.send(&[&[]; 1]);
        host.poll_dry();
        let sgl = [host.sge(0, 4)];
        for id in 0..20 {
            host.post(qp.qp, id, SendOp::Read(Remote { addr: id, rkey: 1 }), &sgl);
        }
        host.poll_dry();
        let sinks = |raw: &mut Raw, count: u32| -> Vec<u32> {
            let sink = |_| {
                let request = raw.receive().expect("a Read Request");
                assert_eq!(request[..2], [0x41, 0x41]);
                u32::from_be_bytes(request[18..22].try_into().unwrap())
            };
            (0..count).map(sink).collect()
        };
        let mut outstanding = sinks(&mut raw, expected);
        raw.stream.set_nonblocking(true).unwrap();
        assert!(raw.stream.peek(&mut [0]).is_err(), "no more than {expected}");
        raw.stream.set_nonblocking(false).unwrap();
        // Each that ends lets another begin.
        for done in 0..20 {
            let sink = outstanding.remove(0);
            raw.send(&[tagged(RESPONSE | LAST, sink, 0, &[done as u8; 4])]);
            assert_eq!(brief(&host.poll_dry()), [(done, WcStatus::Success)]);
            assert_eq!(host.read(0, 4), [done as u8; 4]);
            if done + u64::from(expected) < 20 {
                outstanding.extend(sinks(&mut raw, 1));
            }
        }
        assert_eq!(host.events(), []);
    }
}

#[test]
fn as_many_reads_are_served_as_were_agreed() {
    let device = Tcp::new().unwrap();
    let mut host = Host::new(&device, &SMALL);
    let start = Start { depths: Some((4, 3)), ..PLAIN };
    let (mut raw, _) = Raw::connect(&device, &mut host, start);
    let rkey = host.expose(&host.sge(0, 64), Access::REMOTE_READ).unwrap();
    host.write(0, b"0123456789");
    let mut number = 0;
    for _ in 0..10 {
        let reads = [0, 1, 2].map(|at| {
            number += 1;
            raw::read(number, (at, at.into()), 5, (rkey, host.at(at as usize)))
        });
        raw.send(&reads);
        assert_eq!(host.poll_dry(), []);
        for at in 0..3 {
            let bytes = &b"0123456789"[at..at + 5];
            let expected = tagged(RESPONSE | LAST, at as u32, at as u64, bytes);
            assert_eq!(raw.receive(), Some(expected));
        }
    }
    assert_eq!(host.events(), []);
}

/// The longest message of these tests.
const LONGEST: usize = 1 << 20;
/// No bytes, a slot and one more, a segment and one more, and many.
const LENGTHS: [usize; 9] = [0, 1, 224, 225, 1025, 65_000, 65_516, 65_521, LONGEST];
