//! A shard sends only the bytes of a message and zeros, never old bytes of its memory. A raw peer
//! inspects the transmissions.

use rpcrdma::Fabric;
use rpcrdma::provider::ConnectId;
use rpcrdma_tests::raw_peer::{RawPeer, SEGMENT, properties, structure, transmission};
use rpcrdma_tests::script::{POISON, Part, Random, Script};
use rpcrdma_tests::world::{Plan, World};
use rpcrdma_xdr::numbers::VERSION_TWO;
use rpcrdma_xdr::{
    Array, Body, Header, Loc, MsgItem, Optional, RsdItem, RsdLoc, RsdSet, XmtReq, XmtResp,
};

/// Which bytes of the transmissions of a message mean something.
struct Meaning {
    transmissions: Vec<Vec<u8>>,
    meant: Vec<Vec<bool>>,
}

impl Meaning {
    /// Finds header, payload and items of every transmission of a group.
    fn of(transmissions: Vec<Vec<u8>>) -> Meaning {
        let meant = transmissions.iter().map(|bytes| vec![false; bytes.len()]).collect();
        let mut meaning = Meaning { transmissions, meant };
        let first = meaning.transmissions[0].clone();
        let (header, _) = Header::decode(&first).expect("a header");
        for t in 0..meaning.transmissions.len() {
            let bytes = meaning.transmissions[t].clone();
            let (header, len) = Header::decode(&bytes).expect("a header");
            let payload = match header.body {
                Body::Optional(Optional::XmtReq(req)) => req.pslen as usize,
                Body::Optional(Optional::XmtResp(resp)) => resp.pslen as usize,
                Body::Optional(Optional::XmtCont(cont)) => cont.pslen as usize,
                _ => bytes.len() - len,
            };
            meaning.mark(t, 0, len + payload);
        }
        let items = match header.body {
            Body::Optional(Optional::XmtReq(XmtReq { dp, .. })) => dp,
            Body::Optional(Optional::XmtResp(XmtResp { dp, .. })) => dp,
            _ => Array::EMPTY,
        };
        items.iter().for_each(|item| meaning.mark_item(&item));
        meaning
    }

    fn mark_item(&mut self, item: &MsgItem<'_>) {
        let Loc::Tbsn { offset, segments } = item.loc else { return };
        let (mut left, mut skip) = (item.length as usize, offset as usize);
        for number in segments.iter() {
            let (t, at) = structure().locate(number).expect("a segment");
            let part = left.min(SEGMENT as usize - skip);
            self.mark(t as usize, at.start as usize + skip, part);
            left -= part;
            skip = 0;
        }
        assert_eq!(left, 0, "the segments hold the item");
    }

    fn mark(&mut self, t: usize, start: usize, len: usize) {
        for is_meant in &mut self.meant[t][start..start + len] {
            assert!(!*is_meant, "two things in one place");
            *is_meant = true;
        }
    }

    /// Checks that all else is zero and that nothing is poison. Returns how much else there is.
    fn check(&self) -> usize {
        let mut padding = 0;
        for (bytes, meant) in self.transmissions.iter().zip(&self.meant) {
            assert_eq!(meant.last(), Some(&true), "nothing trails (wire.md E15)");
            for (at, (byte, is_meant)) in bytes.iter().zip(meant).enumerate() {
                assert!(*is_meant || *byte == 0, "byte {at} of the padding is {byte:#x}");
                padding += usize::from(!is_meant);
            }
        }
        padding
    }
}

/// The number of transmissions that a first one announces.
fn count_of(first: &[u8]) -> u32 {
    match Header::decode(first).expect("a header").0.body {
        Body::Optional(Optional::XmtReq(req)) => req.count,
        Body::Optional(Optional::XmtResp(resp)) => resp.count,
        _ => 1,
    }
}

fn scripts() -> impl Iterator<Item = Script> {
    let edges = [1, 2, 3, 5, 16_383, 16_384, 16_385, 40_001];
    let single = edges.map(|len| vec![Part::Inline(7), Part::Bulk(len), Part::Inline(2)]);
    let double = edges.map(|len| vec![Part::Bulk(len), Part::Inline(1), Part::Bulk(3)]);
    let fixed = single.into_iter().chain(double);
    let fixed = fixed.enumerate().map(|(seed, parts)| Script::new(seed as u32, &parts, &parts));
    let mut random = Random(21);
    fixed.chain((0..60).map(move |_| random.script(50_000)))
}

fn gather(raw: &mut RawPeer<Fabric>, world: &mut World<Fabric>) -> Vec<Vec<u8>> {
    let mut group: Vec<Vec<u8>> = Vec::new();
    for _ in 0..2_000 {
        world.step();
        raw.turn().expect("the connection is up");
        group.extend(std::iter::from_fn(|| raw.recv()));
        if group.first().is_some_and(|first| count_of(first) == group.len() as u32) {
            return group;
        }
    }
    panic!("no message; {} transmissions of one", group.len());
}

#[test]
fn the_padding_of_replies_is_zero() {
    let fabric = Fabric::new();
    let plan = Plan { clients: 0, ..Plan::default() };
    let mut world = World::new(&|| fabric.clone(), &plan);
    let mut raw = RawPeer::new(&fabric);
    raw.connect(world.at);
    while !raw.is_connected() {
        world.step();
        raw.turn().expect("there is room");
    }
    raw.send(&properties(1, 16));
    gather(&mut raw, &mut world);
    let mut padding = 0;
    for (xid, script) in (100..).zip(scripts()) {
        world.servers[0].poison(POISON);
        let call = Script { call: Vec::new(), ..script };
        let head = call.head();
        let payload = [&u32::to_be_bytes(xid)[..], &[0; 4], &head].concat();
        let items: Vec<RsdItem<'_>> =
            call.wants.iter().map(|_| RsdItem { min_len: 0, loc: RsdLoc::Tbsn }).collect();
        let end = payload.len() as u32;
        let sets = [RsdSet { begin: 0, end, items: Array::from_slice(&items) }];
        let rsd = if items.is_empty() { Array::EMPTY } else { Array::from_slice(&sets) };
        let req = XmtReq { dp: Array::EMPTY, rsd, count: 1, rsbuf: 16, pslen: end };
        let body = Body::Optional(Optional::XmtReq(req));
        raw.send(&transmission(&Header { xid, vers: VERSION_TWO, credit: 16, body }, &payload));
        let meaning = Meaning::of(gather(&mut raw, &mut world));
        padding += meaning.check();
        no_poison(&meaning);
    }
    assert!(padding > 200_000, "{padding} bytes of padding were seen");
}

#[test]
fn the_padding_of_calls_is_zero() {
    let fabric = Fabric::new();
    let mut world = World::new(&|| fabric.clone(), &Plan::default());
    let mut raw = RawPeer::new(&fabric);
    let at = raw.listen();
    let id: ConnectId = world.clients[0].begin_connect(at).expect("there is room");
    let hello = gather(&mut raw, &mut world).remove(0);
    let (header, _) = Header::decode(&hello).expect("a header");
    raw.send(&properties(header.xid, 32));
    let peer = world.outcome_with(0, id, || raw.turn().expect("it listens")).expect("a connection");
    let mut padding = 0;
    for script in scripts() {
        world.clients[0].shard().poison(POISON);
        world.call(0, peer, &script).expect("a credit");
        let group = gather(&mut raw, &mut world);
        let (header, _) = Header::decode(&group[0]).expect("a header");
        let (xid, body) = (header.xid, Body::Error(rpcrdma_xdr::RdmaError::BadHeader));
        raw.send(&transmission(&Header { xid, vers: VERSION_TWO, credit: 32, body }, &[]));
        let meaning = Meaning::of(group);
        padding += meaning.check();
        no_poison(&meaning);
        for _ in 0..200 {
            world.step();
            raw.turn().expect("the connection is up");
        }
        assert_eq!(world.open_calls(), 0, "the call is over");
    }
    assert!(padding > 200_000, "{padding} bytes of padding were seen");
}

/// The pattern has no poison, and header words only by accident: runs of it would be memory that
/// was never written.
fn no_poison(meaning: &Meaning) {
    for bytes in &meaning.transmissions {
        let run = bytes.windows(4).position(|window| window == [POISON; 4]);
        assert_eq!(run, None, "memory that was never written was sent");
    }
}
