//! Peers that break the rules: each is sent the reason, loses its connection, changes no
//! memory, and disturbs no other connection.

use std::net::Shutdown;
use std::sync::Arc;

use rpcrdma_conformance::host::*;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{Attached, QueueEvent, Queues, Remote, SendFlags, SendOp, WcStatus};

use super::raw::{self, *};
use super::rules::{Host, Qp};
use crate::TcpOptions;

/// Layer, type and code of a Terminate message.
type Reason = (u8, u8, u8);

/// A host with a connection that breaks rules and one that does not.
struct Scene {
    host: Host,
    raw: Raw,
    qp: Attached<Qp>,
    other: Raw,
    other_qp: Attached<Qp>,
    /// A key for bytes 64 to 128 that may be read and written, and the address of the first.
    open: (u32, u64),
    /// A key that only the other connection has, for the same bytes.
    foreign: u32,
    /// Keys that permit only reading, or only writing.
    readable: u32,
    writable: u32,
}

impl Scene {
    fn new(crc: bool) -> Scene {
        Scene::with(Start { crc, ..PLAIN })
    }

    fn with(start: Start) -> Scene {
        let options = TcpOptions { message_len: 64 << 10, ..TcpOptions::default() };
        let scene = raw::Scene::with(options, start);
        let raw::Scene { mut host, raw, qp, other, other_qp, .. } = scene;
        let both = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let sge = host.sge(64, 64);
        let open = (host.expose(&sge, both).unwrap(), host.at(64));
        let readable = host.expose(&sge, Access::REMOTE_READ).unwrap();
        let writable = host.expose(&sge, Access::REMOTE_WRITE).unwrap();
        let foreign = host.bind(other_qp.qp, (64, 64), both);
        host.write(0, &[7; MEMORY]);
        Scene { host, raw, qp, other, other_qp, open, foreign, readable, writable }
    }

    /// The peer sends bytes that break a rule, and receives the reason on the wire.
    fn send_bytes(mut self, what: &str, bytes: &[u8], reason: Reason) {
        self.host.recv(10, 1024, 64);
        self.raw.send_bytes(bytes);
        assert_eq!(self.host.poll_dry(), [], "{what}");
        self.ends(what, Some(reason));
    }

    /// As [`Scene::send_bytes`], of whole FPDUs.
    fn send<U: AsRef<[u8]>>(self, what: &str, ulpdus: &[U], reason: Reason) {
        let bytes: Vec<u8> = ulpdus.iter().flat_map(|it| self.raw.fpdu(it.as_ref())).collect();
        self.send_bytes(what, &bytes, reason);
    }

    /// The connection has ended, with this reason, and nothing else has happened. One Receive is
    /// posted.
    fn ends(mut self, what: &str, reason: Option<Reason>) {
        let events = self.host.events();
        self.has_ended(what, reason, &events);
    }

    /// As [`Scene::ends`], with events that were taken.
    fn has_ended(mut self, what: &str, reason: Option<Reason>, events: &[QueueEvent]) {
        assert_eq!(self.raw.receive_end(), reason, "{what}");
        let lost = QueueEvent::Disconnected { qp_num: self.qp.qp_num };
        assert_eq!(events, [lost], "{what}");
        assert_eq!(self.host.read(0, MEMORY), [7; MEMORY], "{what}");
        self.host.queues.destroy(self.qp.qp);
        self.other.send(&[send(1, b"fine")]);
        assert_eq!(self.host.poll_dry(), [received(10, self.other_qp, 4)], "{what}");
        assert_eq!(self.host.events(), [], "{what}");
    }
}

#[test]
fn fpdus_that_are_none() {
    for crc in [false, true] {
        for len in 1..14 {
            Scene::new(crc).send_bytes("too short", &[0, len], (2, 0, 3));
        }
    }
    for changed in 0..28 {
        let scene = Scene::new(true);
        let mut fpdu = scene.raw.fpdu(&send(1, b"hello"));
        assert_eq!(fpdu.len(), 32);
        fpdu[2 + changed] ^= 0x10;
        scene.send_bytes("a byte changed", &fpdu, (2, 0, 2));
    }
}

#[test]
fn versions_and_operations_that_do_not_exist() {
    for crc in [false, true] {
        for version in [0, 0x200, 0x300] {
            let write = tagged(WRITE & !0x300 | version, 0, 0, &[]);
            Scene::new(crc).send("DDP, tagged", &[write], (1, 1, 4));
            let send = untagged(SEND & !0x300 | version, [0, 0, 1, 0], &[]);
            Scene::new(crc).send("DDP, untagged", &[send], (1, 2, 6));
        }
        for version in [0, 0x80, 0xc0] {
            let write = tagged(WRITE & !0xc0 | version, 0, 0, &[]);
            Scene::new(crc).send("RDMAP, tagged", &[write], (0, 2, 5));
            let send = untagged(SEND & !0xc0 | version, [0, 0, 1, 0], &[]);
            Scene::new(crc).send("RDMAP, untagged", &[send], (0, 2, 5));
        }
        for op in [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] {
            let segment = tagged(0xc140 | op, 0, 0, b"payload");
            Scene::new(crc).send("tagged", &[segment], (0, 2, 6));
        }
        for op in [0, 2, 8, 9, 10, 11, 12, 13, 14, 15] {
            let segment = untagged(0x4140 | op, [0, 0, 1, 0], b"payload");
            Scene::new(crc).send("untagged", &[segment], (0, 2, 6));
        }
    }
}

#[test]
fn queues_numbers_and_offsets_out_of_order() {
    let read = read_payload((1, 0), 0, (0, 0));
    for (op, own, payload) in [(SEND, 0, &b"hello"[..]), (READ, 1, &read), (TERMINATE, 2, &[1; 4])]
    {
        for queue in [0, 1, 2, 3, 0x100, u32::MAX] {
            if queue != own {
                let segment = untagged(op | LAST, [0, queue, 1, 0], payload);
                Scene::new(false).send("a queue", &[segment], (1, 2, 1));
            }
        }
        for number in [0, 2, 257, u32::MAX] {
            let segment = untagged(op | LAST, [0, own, number, 0], payload);
            Scene::new(false).send("a number", &[segment], (1, 2, 3));
        }
        for offset in [1, 4, u32::MAX] {
            let segment = untagged(op | LAST, [0, own, 1, offset], payload);
            Scene::new(false).send("an offset", &[segment], (1, 2, 4));
        }
    }
    let part = |number, offset| untagged(SEND, [0, 0, number, offset], b"part");
    for offset in [0, 3, 5, 8] {
        Scene::new(false).send("a gap", &[part(1, 0), part(1, offset)], (1, 2, 4));
    }
    Scene::new(false).send("another message within", &[part(1, 0), part(2, 0)], (1, 2, 3));
    let other = untagged(SEND_INVALIDATE, [0, 0, 1, 4], b"part");
    Scene::new(false).send("another operation within", &[part(1, 0), other], (0, 2, 6));
}

#[test]
fn requests_within_a_send() {
    for crc in [false, true] {
        let scene = Scene::new(crc);
        let (stag, to) = scene.open;
        let part = untagged(SEND, [0, 0, 1, 0], b"part");
        scene.send("a Write", &[part.clone(), tagged(WRITE | LAST, stag, to, b"x")], (0, 2, 6));
        let scene = Scene::new(crc);
        scene.send("a Read", &[part, raw::read(1, (1, 0), 4, (stag, to))], (0, 2, 6));
    }
}

/// The memory that a request for four bytes names, and why it is refused.
fn refusals(scene: &Scene, does_write: bool) -> [((u32, u64), Reason); 9] {
    let (open, at) = scene.open;
    let forbidden = if does_write { scene.readable } else { scene.writable };
    let rights = (0, 1, 2);
    let [unknown, bounds, wraps] = match does_write {
        true => [(1, 1, 0), (1, 1, 1), (1, 1, 3)],
        false => [(0, 1, 0), (0, 1, 1), (0, 1, 4)],
    };
    [
        ((0, at), unknown),
        ((0x8765_4321, at), unknown),
        ((open ^ 0x100, at), unknown),
        ((scene.foreign, at), unknown),
        ((scene.host.keys.rkey, at), unknown),
        ((forbidden, at), rights),
        ((open, at - 1), bounds),
        ((open, at + 61), bounds),
        ((open, u64::MAX - 2), wraps),
    ]
}

#[test]
fn writes_to_memory_that_is_not_theirs() {
    for crc in [false, true] {
        for case in 0..9 {
            let scene = Scene::new(crc);
            let ((stag, to), reason) = refusals(&scene, true)[case];
            let write = tagged(WRITE | LAST, stag, to, &[1; 4]);
            scene.send(&format!("a Write, {case}"), &[write], reason);
        }
        let scene = Scene::new(crc);
        let (stag, to) = scene.open;
        let long = tagged(WRITE | LAST, stag, to, &[1; 65]);
        scene.send("a byte too much", &[long], (1, 1, 1));
    }
}

#[test]
fn reads_of_memory_that_is_not_theirs() {
    for crc in [false, true] {
        for case in 0..9 {
            let scene = Scene::new(crc);
            let (source, reason) = refusals(&scene, false)[case];
            let read = raw::read(1, (1, 0), 4, source);
            scene.send(&format!("a Read, {case}"), &[read], reason);
        }
        for len in [65, 64 << 10, (64 << 10) + 1, u32::MAX] {
            let scene = Scene::new(crc);
            let read = raw::read(1, (1, 0), len, scene.open);
            scene.send("bytes too many", &[read], (0, 1, 1));
        }
    }
}

#[test]
fn reads_that_break_the_rules_of_reads() {
    for payload in [0, 27, 29, 60] {
        let read = untagged(READ | LAST, [0, 1, 1, 0], &vec![0; payload]);
        Scene::new(false).send("its length", &[read], (0, 2, 7));
    }
    let part = untagged(READ, [0, 1, 1, 0], &read_payload((1, 0), 0, (0, 0)));
    Scene::new(false).send("in segments", &[part], (0, 2, 7));
    // One at a time, as was agreed.
    let scene = Scene::with(Start { depths: Some((1, 1)), ..PLAIN });
    let reads = [1, 2].map(|number| raw::read(number, (1, 0), 4, scene.open));
    scene.send("one more than was agreed", &reads, (0, 2, 7));
    // What waits for a peer that does not read is copied: no more than the longest message.
    for len in [64 << 10, (64 << 10) + 1] {
        let mut scene = Scene::new(false);
        let all =
            scene.host.expose(&scene.host.sge(0, MEMORY as u32), Access::REMOTE_READ).unwrap();
        let read = raw::read(1, (1, 0), len, (all, scene.host.at(0)));
        if len > 64 << 10 {
            scene.send("longer than any message", &[read], (0, 1, 1));
        } else {
            scene.raw.send(&[read]);
            assert_eq!((scene.host.poll_dry(), scene.host.events()), (vec![], vec![]));
        }
    }
}

#[test]
fn keys_that_they_cannot_invalidate() {
    for crc in [false, true] {
        for case in 0..5 {
            let scene = Scene::new(crc);
            let keys = [0, 0x8765_4321, scene.open.0, scene.foreign, scene.host.keys.rkey];
            let send = untagged(SEND_INVALIDATE | LAST, [keys[case], 0, 1, 0], b"x");
            scene.send(&format!("an invalidation, {case}"), &[send], (0, 2, 9));
        }
    }
}

#[test]
fn a_message_longer_than_its_receive_or_than_any() {
    for crc in [false, true] {
        let mut scene = Scene::new(crc);
        scene.host.recv(9, 1024, 64);
        scene.host.recv(10, 1024, 64);
        scene.raw.send(&[send(1, &[1; 65])]);
        assert_eq!(brief(&scene.host.poll_dry()), [(9, WcStatus::LocalLength)]);
        scene.ends("longer than its Receive", Some((1, 2, 5)));
        let part = |offset: u32| untagged(SEND, [0, 0, 1, offset], &[1; 1 << 14]);
        let parts: Vec<_> = (0..5).map(|index| part(index << 14)).collect();
        Scene::new(crc).send("longer than any", &parts, (1, 2, 5));
    }
}

#[test]
fn a_message_whose_segments_fill_the_buffer_with_their_headers() {
    for crc in [false, true] {
        let mut scene = Scene::new(crc);
        scene.host.recv(10, 1024, 64);
        let mut offset = 0;
        let lost = loop {
            let part = |at| scene.raw.fpdu(&untagged(SEND, [0, 0, 1, at], b"x"));
            let parts: Vec<u8> = (offset..offset + 64).flat_map(part).collect();
            offset += 64;
            assert!(offset < 60_000, "it is within the longest message");
            scene.raw.send_bytes(&parts);
            assert_eq!(scene.host.poll(), []);
            if let Some(event) = scene.host.queues.next_event() {
                break event;
            }
        };
        assert!(offset > 10_000, "a message has room with short segments, too");
        scene.has_ended("segments of a byte", Some((1, 2, 5)), &[lost]);
    }
}

/// A host whose Read of 100 bytes has come to the peer, and the key of its sink.
fn reading(crc: bool) -> (Scene, u32) {
    let mut scene = Scene::new(crc);
    let sgl = [scene.host.sge(2048, 60), scene.host.sge(4096, 40)];
    scene.raw.send(&[&[]; 1]);
    assert_eq!(scene.host.poll_dry(), []);
    let remote = Remote { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };
    scene.host.post(scene.qp.qp, 77, SendOp::Read(remote), &sgl);
    let request = scene.raw.receive().expect("a Read Request");
    let sink = u32::from_be_bytes(request[18..22].try_into().unwrap());
    let source = (0x99aa_bbcc, 0x1122_3344_5566_7788);
    assert_eq!(request, raw::read(1, (sink, 0), 100, source));
    (scene, sink)
}

#[test]
fn responses_that_answer_nothing() {
    for crc in [false, true] {
        let none = tagged(RESPONSE | LAST, 1, 0, b"data");
        Scene::new(crc).send("without a Read", &[none], (0, 2, 7));
        for (case, (change, to, len, is_last, reason)) in [
            (1, 0, 100, true, (1, 1, 0)),
            (0, 1, 99, true, (1, 1, 1)),
            (0, u64::MAX - 99, 99, true, (1, 1, 1)),
            (0, 0, 101, true, (1, 1, 1)),
            (0, 0, 101, false, (1, 1, 1)),
            (0, 0, 99, true, (0, 2, 7)),
            (0, 0, 0, true, (0, 2, 7)),
        ]
        .into_iter()
        .enumerate()
        {
            let (mut scene, sink) = reading(crc);
            scene.host.recv(10, 1024, 64);
            let control = if is_last { RESPONSE | LAST } else { RESPONSE };
            scene.raw.send(&[tagged(control, sink ^ change, to, &vec![1; len])]);
            assert_eq!(brief(&scene.host.poll_dry()), [(77, WcStatus::Flushed)], "{case}");
            scene.ends(&format!("a Response, {case}"), Some(reason));
        }
    }
}

#[test]
fn a_response_goes_on_behind_all_bytes() {
    let (mut scene, sink) = reading(false);
    scene.host.recv(10, 1024, 64);
    scene.raw.send(&[tagged(RESPONSE, sink, 0, &[7; 100])]);
    assert_eq!(scene.host.poll_dry(), [], "an empty last segment may follow");
    scene.raw.send(&[tagged(RESPONSE | LAST, sink, 100, b"x")]);
    assert_eq!(brief(&scene.host.poll_dry()), [(77, WcStatus::Flushed)]);
    scene.ends("a byte more", Some((1, 1, 1)));
}

#[test]
fn a_response_twice() {
    let (mut scene, sink) = reading(false);
    scene.host.recv(10, 1024, 64);
    let response = tagged(RESPONSE | LAST, sink, 0, &[7; 100]);
    scene.raw.send(&[&response, &response]);
    assert_eq!(brief(&scene.host.poll_dry()), [(77, WcStatus::Success)]);
    scene.ends("a Response twice", Some((0, 2, 7)));
}

#[test]
fn a_terminate_message_ends_the_connection_and_fails_the_oldest_read() {
    for crc in [false, true] {
        for (payload, status) in [
            (&[0x01, 0, 0, 0][..], WcStatus::RemoteAccess),
            (&[0x01, 2, 0, 0, 1, 2, 3], WcStatus::RemoteAccess),
            (&[0x12, 3, 0, 0], WcStatus::Flushed),
            (&[], WcStatus::Flushed),
            (&[1], WcStatus::Flushed),
            (&[0xff; 200], WcStatus::Flushed),
        ] {
            let (mut scene, _) = reading(crc);
            scene.host.recv(10, 1024, 64);
            let behind = [scene.host.sge(0, 8)];
            let remote = Remote { addr: 0, rkey: 1 };
            scene.host.post(scene.qp.qp, 78, SendOp::Read(remote), &behind);
            scene.raw.receive().expect("a Read Request");
            scene.raw.send(&[terminate(1, payload), send(1, b"behind it")]);
            let expected = [(77, status), (78, WcStatus::Flushed)];
            assert_eq!(brief(&scene.host.poll_dry()), expected);
            assert_eq!(scene.raw.receive(), None, "the stream ends");
            scene.ends("a Terminate message", None);
        }
    }
    Scene::new(false).send("a second one", &[terminate(2, &[0; 4])], (1, 2, 3));
    let part = untagged(TERMINATE, [0, 2, 1, 0], &[0; 4]);
    Scene::new(false).send("in segments", &[part], (1, 2, 5));
}

#[test]
fn a_send_that_stands_behind_a_read_that_a_terminate_message_blames_is_flushed() {
    let (mut scene, _) = reading(false);
    scene.host.recv(10, 1024, 64);
    let sgl = [scene.host.sge(0, 8)];
    scene.host.send_from(scene.qp.qp, 79, &sgl, SendFlags::SIGNALED).unwrap();
    assert_eq!(scene.host.poll_dry(), []);
    assert_eq!(scene.raw.receive(), Some(send(1, &[7; 8])), "TCP has taken it");
    scene.raw.send(&[terminate(1, &[0x01, 0, 0, 0])]);
    let expected = [(77, WcStatus::RemoteAccess), (79, WcStatus::Flushed)];
    assert_eq!(brief(&scene.host.poll_dry()), expected);
    assert_eq!(scene.raw.receive(), None, "the stream ends");
    scene.ends("a Terminate message", None);
}

#[test]
fn half_an_fpdu_and_silence_or_the_end() {
    for crc in [false, true] {
        let whole = fpdu(&send(1, b"hello"), crc);
        for len in 0..whole.len() {
            let mut scene = Scene::new(crc);
            scene.host.recv(10, 1024, 64);
            scene.raw.send_bytes(&whole[..len]);
            assert_eq!(scene.host.poll_dry(), []);
            assert_eq!(scene.host.events(), [], "it may come yet");
            scene.other.send(&[send(1, b"before")]);
            assert_eq!(scene.host.poll_dry(), [received(10, scene.other_qp, 6)]);
            scene.host.write(1024, &[7; 64]);
            scene.raw.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(scene.host.poll_dry(), []);
            let lost = QueueEvent::Disconnected { qp_num: scene.qp.qp_num };
            assert_eq!(scene.host.events(), [lost], "{len} bytes");
            scene.host.queues.destroy(scene.qp.qp);
            assert_eq!(scene.raw.receive(), None);
        }
    }
}

#[test]
fn bytes_without_any_sense() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..200 {
        let mut scene = Scene::new(false);
        scene.host.recv(10, 1024, 64);
        let bytes: Vec<u8> = (0..600)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                (seed >> 32) as u8
            })
            .collect();
        scene.raw.send_bytes(&bytes);
        scene.raw.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(scene.host.poll_dry(), []);
        let lost = QueueEvent::Disconnected { qp_num: scene.qp.qp_num };
        assert_eq!(scene.host.events(), [lost]);
        assert_eq!(scene.host.read(0, MEMORY), [7; MEMORY]);
    }
}

/// FPDUs that cost their sender next to nothing: without a segment, and segments without bytes that
/// end nothing.
fn without_effect() -> [Vec<u8>; 3] {
    [vec![], tagged(WRITE | LAST, 0, 0, &[]), untagged(SEND, [0, 0, 1, 0], &[])]
}

#[test]
fn fpdus_without_effect_are_limited_in_a_row() {
    for (crc, ulpdu) in
        [false, true].into_iter().flat_map(|crc| without_effect().map(|it| (crc, it)))
    {
        let mut scene = Scene::new(crc);
        scene.host.recv(10, 1024, 64);
        let mut allowed = vec![ulpdu.clone(); 64];
        allowed.push(send(1, b"an end"));
        scene.raw.send(&allowed);
        assert_eq!(scene.host.poll_dry(), [received(10, scene.qp, 6)], "{ulpdu:?}");
        scene.host.write(1024, &[7; 6]);
        // A part of the next Send, if it is one.
        let ulpdu = if ulpdu.len() == 18 { untagged(SEND, [0, 0, 2, 0], &[]) } else { ulpdu };
        scene.send("one more", &vec![ulpdu; 65], (0, 2, 7));
    }
}

#[test]
fn responses_without_bytes_are_limited_in_a_row() {
    // The connection has begun with an empty FPDU.
    for count in [63, 64] {
        let (mut scene, sink) = reading(false);
        scene.host.recv(10, 1024, 64);
        let mut ulpdus = vec![tagged(RESPONSE, sink, 0, &[]); count];
        ulpdus.push(tagged(RESPONSE | LAST, sink, 0, &[7; 100]));
        scene.raw.send(&ulpdus);
        let status = if count == 63 { WcStatus::Success } else { WcStatus::Flushed };
        assert_eq!(brief(&scene.host.poll_dry()), [(77, status)]);
        if count > 63 {
            scene.ends("one more", Some((0, 2, 7)));
        }
    }
}

/// What a poll does for one connection, another waits for.
#[test]
fn a_poll_looks_at_so_many_fpdus_and_no_more() {
    let mut scene = Scene::new(false);
    scene.host.recv(10, 4096, 4096);
    let part = |at: u32| untagged(SEND | if at == 2999 { LAST } else { 0 }, [0, 0, 1, at], b"x");
    let parts: Vec<u8> = (0..3000).flat_map(|at| scene.raw.fpdu(&part(at))).collect();
    scene.raw.send_bytes(&parts);
    let link = Arc::clone(&scene.host.queues.transport().carriers().next().expect("two").0);
    while rustix::io::ioctl_fionread(link.socket.fd()).unwrap() < parts.len() as u64 {
        std::thread::yield_now();
    }
    let mut ended = 0;
    let got = loop {
        let got = scene.host.poll();
        if !got.is_empty() {
            break got;
        }
        let (_, rx) = scene.host.queues.transport().ends().expect("two connections");
        ended += u32::from(rx.looks == 0);
    };
    assert_eq!(got, [received(10, scene.qp, 3000)]);
    assert_eq!(ended, 2, "polls that had more to look at");
    assert_eq!(scene.host.read(4096, 3000), [b'x'; 3000]);
}

#[test]
fn a_read_of_more_than_the_longest_message_is_refused_though_its_key_opens_as_much() {
    const LONGEST: u32 = 64 << 10;
    for len in [LONGEST, LONGEST + 1] {
        let mut scene = Scene::new(false);
        scene.host.recv(10, 1024, 64);
        let sge = scene.host.sge(0, 2 * LONGEST);
        let key = scene.host.expose(&sge, Access::REMOTE_READ).unwrap();
        scene.raw.send(&[raw::read(1, (5, 0), len, (key, scene.host.at(0)))]);
        assert_eq!(scene.host.poll_dry(), []);
        if len > LONGEST {
            scene.ends("a byte too much", Some((0, 1, 1)));
            continue;
        }
        let mut got = 0;
        while got < len as usize {
            got += scene.raw.receive().expect("a Response").len() - 14;
        }
    }
}
