//! Long tagged segments that come in pieces: nothing of one is written before all of it has come, and
//! what is wrong with it is found first.

use std::net::Shutdown;

use rpcrdma_conformance::host::*;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{Provider, QueueEvent, Queues, Remote, SendOp, WcStatus};

use super::raw::*;
use crate::Tcp;

/// The memory of the host is known.
fn filled(crc: bool) -> Scene {
    let mut scene = Scene::new(crc);
    scene.host.write(0, &[7; MEMORY]);
    scene
}

impl Scene {
    /// Opens `len` bytes at [`TARGET`] to writes.
    fn open(&mut self, len: usize) -> (u32, u64) {
        let range = (TARGET, len as u32);
        let rkey = self.host.bind(self.qp.qp, range, Access::REMOTE_READ | Access::REMOTE_WRITE);
        (rkey, self.host.at(TARGET))
    }

    /// Posts a Read of two pieces, and returns the key of its sink.
    fn read(&mut self, id: u64, pieces: [(usize, usize); 2]) -> u32 {
        let sgl = pieces.map(|(offset, len)| self.host.sge(offset, len as u32));
        self.host.post(self.qp.qp, id, SendOp::Read(Remote { addr: 5, rkey: 6 }), &sgl);
        let request = self.raw.receive().expect("a Read Request");
        u32::from_be_bytes(request[18..22].try_into().unwrap())
    }

    /// The connection has ended, with this reason, and the other has not.
    fn has_ended(mut self, reason: Option<(u8, u8, u8)>) {
        assert_eq!(self.host.events(), [QueueEvent::Disconnected { qp_num: self.qp.qp_num }]);
        if reason.is_none() {
            self.host.queues.destroy(self.qp.qp);
        }
        assert_eq!(self.raw.receive_end(), reason);
        self.other_goes_on(1);
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// The memory of a host after a conversation with long segments, cut at these places.
fn converse(crc: bool, cuts: impl Fn(usize) -> Vec<usize>) -> Vec<u8> {
    let mut scene = filled(crc);
    let (rkey, to) = scene.open(LONG);
    let sink = scene.read(77, [(130_000, 33_000), (170_000, 27_001)]);
    (0..3).for_each(|id| scene.host.recv(id, 1024 * id as usize, 1024));
    let bytes = pattern(LONG);
    let ulpdus = [
        send(1, b"before"),
        tagged(WRITE, rkey, to, &bytes[..40_001]),
        tagged(WRITE | LAST, rkey, to + 40_001, &bytes[40_001..]),
        send(2, b"between"),
        tagged(RESPONSE, sink, 0, &bytes[..45_003]),
        tagged(RESPONSE | LAST, sink, 45_003, &bytes[45_003..60_001]),
        send(3, b"behind"),
    ];
    let stream: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| scene.raw.fpdu(ulpdu)).collect();
    let (mut done, mut from) = (Vec::new(), 0);
    for until in cuts(stream.len()).into_iter().chain([stream.len()]) {
        scene.raw.send_bytes(&stream[from..until]);
        from = until;
        done.extend(scene.host.poll_dry());
    }
    let mut ids: Vec<_> = brief(&done);
    ids.sort_by_key(|(id, _)| *id);
    let expected = [0, 1, 2, 77].map(|id| (id, WcStatus::Success));
    assert_eq!(ids, expected);
    let memory = scene.host.read(0, MEMORY);
    scene.other_goes_on(1);
    assert_eq!(scene.host.events(), []);
    memory
}

#[test]
fn long_segments_that_are_cut_anywhere_go_where_they_belong() {
    let bytes = pattern(LONG);
    for crc in [false, true] {
        let whole = converse(crc, |_| vec![]);
        assert_eq!(whole[TARGET..TARGET + LONG], bytes);
        assert_eq!(whole[130_000..163_000], bytes[..33_000]);
        assert_eq!(whole[170_000..197_001], bytes[33_000..60_001]);
        assert!(whole[163_000..170_000].iter().all(|byte| *byte == 7), "between the pieces");
        // Around each head and each end, and within a segment.
        let mut edges: Vec<usize> = vec![0, 32];
        for len in [40_001, LONG - 40_001, 7, 45_003, 14_998] {
            let head = if len == 7 { 18 } else { 14 };
            edges.push(edges[edges.len() - 1] + (2 + head + len).next_multiple_of(4) + 4);
        }
        for edge in edges {
            for near in [0, 1, 2, 15, 16, 17, 20, 5_000, 33_000, 33_016, 33_017] {
                for cut in [edge + near, edge.saturating_sub(near)] {
                    let cut = |len: usize| vec![cut.min(len)];
                    assert!(converse(crc, cut) == whole, "{near} bytes from {edge}");
                }
            }
        }
        for step in [997, 8_192, 20_000, 65_536] {
            let cut = |len| (0..len).step_by(step).collect();
            assert!(converse(crc, cut) == whole, "cut every {step} bytes");
        }
    }
}

#[test]
fn a_long_write_that_may_not_be_writes_nothing() {
    let (readable, foreign) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
    for (case, reason) in [(1, 1, 1), (1, 1, 0), (0, 1, 2), (1, 1, 0)].into_iter().enumerate() {
        let mut scene = filled(false);
        let (rkey, to) = scene.open(LONG);
        let sge = scene.host.sge(TARGET, LONG as u32);
        let (rkey, to) = match case {
            0 => (rkey, to + 1),
            1 => (0x8765_4321, to),
            2 => (scene.host.expose(&sge, readable).unwrap(), to),
            _ => (scene.host.bind(scene.other_qp.qp, (TARGET, LONG as u32), foreign), to),
        };
        let fpdu = scene.raw.fpdu(&tagged(WRITE | LAST, rkey, to, &pattern(LONG)));
        scene.raw.send_bytes(&fpdu);
        assert_eq!(scene.host.poll_dry(), []);
        assert!(scene.host.read(0, MEMORY) == [7; MEMORY], "case {case}");
        scene.has_ended(Some(reason));
    }
}

#[test]
fn a_long_write_whose_key_is_taken_back_within_it_writes_nothing() {
    let mut scene = filled(false);
    let (rkey, to) = scene.open(LONG);
    let fpdu = scene.raw.fpdu(&tagged(WRITE | LAST, rkey, to, &pattern(LONG)));
    let (first, rest) = fpdu.split_at(30_016);
    scene.raw.send_bytes(first);
    assert_eq!(scene.host.poll_dry(), []);
    scene.host.post(scene.qp.qp, 5, SendOp::Invalidate { rkey }, &[]);
    assert_eq!(brief(&scene.host.poll_dry()), [(5, WcStatus::Success)]);
    scene.raw.send_bytes(rest);
    assert_eq!(scene.host.poll_dry(), []);
    assert!(scene.host.read(0, MEMORY) == [7; MEMORY]);
    scene.has_ended(Some((1, 1, 0)));
}

#[test]
fn a_long_response_that_answers_nothing_or_too_much_writes_nothing() {
    for (case, reason) in [(0, 2, 7), (1, 1, 1), (1, 1, 1), (1, 1, 0)].into_iter().enumerate() {
        let mut scene = filled(false);
        let sink = scene.read(77, [(TARGET, 30_000), (170_000, 9_999)]);
        let (sink, to, len, last) = match case {
            0 => (sink, 0, 39_998, LAST),
            1 => (sink, 0, 40_000, LAST),
            2 => (sink, 1, 39_998, LAST),
            _ => (sink + 1, 0, 39_999, LAST),
        };
        let fpdu = scene.raw.fpdu(&tagged(RESPONSE | last, sink, to, &pattern(len)));
        scene.raw.send_bytes(&fpdu);
        assert_eq!(brief(&scene.host.poll_dry()), [(77, WcStatus::Flushed)], "case {case}");
        assert!(scene.host.read(0, MEMORY) == [7; MEMORY], "case {case}");
        scene.has_ended(Some(reason));
    }
}

#[test]
fn a_long_response_to_memory_that_is_gone_writes_nothing() {
    let mut scene = filled(false);
    let region = map::<Tcp>(65_536);
    let keys = register(&scene.device, &region, Access::LOCAL_WRITE);
    let sge = |offset: u64, length| rpcrdma_mempool::Sge {
        addr: region.base().as_ptr() as u64 + offset,
        length,
        lkey: keys.lkey,
    };
    let remote = Remote { addr: 5, rkey: 6 };
    scene.host.post(scene.qp.qp, 77, SendOp::Read(remote), &[sge(0, 40_000)]);
    let request = scene.raw.receive().expect("a Read Request");
    let sink = u32::from_be_bytes(request[18..22].try_into().unwrap());
    // The next Read gets nothing of what is left.
    scene.read(78, [(TARGET, 30_000), (170_000, 9_999)]);
    let fpdu = scene.raw.fpdu(&tagged(RESPONSE | LAST, sink, 0, &pattern(40_000)));
    scene.raw.send_bytes(&fpdu[..20_000]);
    assert_eq!(scene.host.poll_dry(), []);
    scene.device.registrar().deregister(keys).unwrap();
    scene.raw.send_bytes(&fpdu[20_000..]);
    let done = brief(&scene.host.poll_dry());
    assert_eq!(done.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [77, 78]);
    assert!(done.iter().all(|(_, status)| *status != WcStatus::Success), "{done:?}");
    assert!(scene.host.read(0, MEMORY) == [7; MEMORY], "nothing else was written");
}

#[test]
fn a_peer_that_leaves_within_a_long_segment_takes_no_one_along() {
    for is_write in [true, false] {
        let mut scene = filled(false);
        let (rkey, to) = scene.open(LONG);
        let ulpdu = if is_write {
            tagged(WRITE | LAST, rkey, to, &pattern(LONG))
        } else {
            let sink = scene.read(77, [(TARGET, LONG - 5), (170_000, 5)]);
            tagged(RESPONSE | LAST, sink, 0, &pattern(LONG))
        };
        let fpdu = scene.raw.fpdu(&ulpdu);
        scene.raw.send_bytes(&fpdu[..30_000]);
        assert_eq!(scene.host.poll_dry(), []);
        scene.raw.stream.shutdown(Shutdown::Write).unwrap();
        let left: &[_] = if is_write { &[] } else { &[(77, WcStatus::Flushed)] };
        assert_eq!(brief(&scene.host.poll_dry()), left);
        scene.has_ended(None);
    }
}

#[test]
fn a_queue_pair_that_is_destroyed_within_a_long_segment_writes_nothing() {
    let mut scene = filled(false);
    let (rkey, to) = scene.open(LONG);
    let fpdu = scene.raw.fpdu(&tagged(WRITE | LAST, rkey, to, &pattern(LONG)));
    scene.raw.send_bytes(&fpdu[..30_016]);
    assert_eq!(scene.host.poll_dry(), []);
    scene.host.queues.destroy(scene.qp.qp);
    scene.raw.send_bytes(&fpdu[30_016..]);
    assert_eq!(scene.host.poll_dry(), []);
    assert!(scene.host.read(0, MEMORY) == [7; MEMORY]);
    scene.other_goes_on(1);
}

#[test]
fn a_long_write_with_a_wrong_crc_writes_nothing() {
    let mut scene = filled(true);
    let (rkey, to) = scene.open(LONG);
    let mut fpdu = scene.raw.fpdu(&tagged(WRITE | LAST, rkey, to, &pattern(LONG)));
    fpdu[40_000] ^= 1;
    for piece in fpdu.chunks(25_000) {
        scene.raw.send_bytes(piece);
        assert_eq!(scene.host.poll_dry(), []);
    }
    assert!(scene.host.read(0, MEMORY) == [7; MEMORY]);
    scene.has_ended(Some((2, 0, 2)));
}

#[test]
fn a_long_response_within_a_send_leaves_the_send_as_it_is() {
    let mut scene = filled(false);
    let sink = scene.read(77, [(TARGET, 20_000), (170_000, 10_000)]);
    scene.host.recv(1, 0, 1024);
    let bytes = pattern(30_000);
    let part = |offset: usize, end: usize, last: u16| {
        untagged(SEND | last, [0, 0, 1, offset as u32], &bytes[offset..end])
    };
    let ulpdus = [part(0, 300, 0), tagged(RESPONSE | LAST, sink, 0, &bytes), part(300, 700, LAST)];
    let stream: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| scene.raw.fpdu(ulpdu)).collect();
    let mut done = Vec::new();
    for piece in stream.chunks(9_000) {
        scene.raw.send_bytes(piece);
        done.extend(brief(&scene.host.poll_dry()));
    }
    done.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(done, [(1, WcStatus::Success), (77, WcStatus::Success)]);
    assert!(scene.host.read(0, 700) == bytes[..700]);
    assert!(scene.host.read(TARGET, 20_000) == bytes[..20_000]);
    assert!(scene.host.read(170_000, 10_000) == bytes[20_000..]);
    scene.other_goes_on(1);
}

/// Where peers write.
const TARGET: usize = 10_000;
/// Bytes of a long segment, or of two.
const LONG: usize = 60_500;
