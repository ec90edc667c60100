//! The upper-layer binding and a server with known defects: padding in Write chunks, and targets of
//! links that are in the payload stream whatever was offered.

use rpcrdma::ulb::{ItemError, Protection, nfs3};
use rpcrdma::{Client, ConnectionId, Fabric, Loan, Sink, Want};
use rpcrdma_tests::raw_peer::{RawPeer, transmission};
use rpcrdma_tests::world::{Plan, World};
use rpcrdma_xdr::numbers::VERSION_ONE;
use rpcrdma_xdr::{Array, Body, ChunkLists, Header, List, RdmaSegment, WriteChunk};

/// A client in version one, and a raw server.
struct Scene {
    world: World<Fabric>,
    raw: RawPeer<Fabric>,
    peer: ConnectionId,
}

/// A call as it arrived: its xid, its Write chunk and its Reply chunk.
struct Arrived {
    xid: u32,
    chunk: Vec<RdmaSegment>,
    reply: Vec<RdmaSegment>,
}

/// What the binding makes of a result: its length as returned, its bytes, and whether it was placed.
type Found = Result<(u32, Vec<u8>, bool), ItemError>;

impl Scene {
    fn new(change: impl Fn(&mut rpcrdma_config::Raw)) -> Scene {
        let (fabric, mut plan) = (Fabric::new(), Plan::default());
        plan.call.protocol.version = "one".into();
        change(&mut plan.call);
        let mut world = World::new(&|| fabric.clone(), &plan);
        let mut raw = RawPeer::new(&fabric);
        let at = raw.listen();
        let id = world.clients[0].begin_connect(at).expect("there is room");
        let outcome = world.outcome_with(0, id, || raw.turn().expect("it listens"));
        let peer = outcome.expect("a connection");
        Scene { world, raw, peer }
    }

    /// A call for a result of at most `len_max` bytes, in a result buffer.
    fn call(&mut self, procedure: u32, len_max: u32) -> Arrived {
        let bound = nfs3::BINDING.bind(procedure, Protection::None).expect("it exists");
        let client: &mut Client<Fabric> = &mut self.world.clients[0];
        let mut loan: Loan = client.turn(self.world.now).buffer().expect("a buffer");
        loan.truncate(len_max as usize);
        let mut call = bound.call(client.call(self.peer, 1).expect("a credit"));
        call.payload().put_u32(procedure);
        let want = Want { len_min: 0, len_max };
        call.result_into(want, Sink::from(loan)).expect("it is eligible");
        call.submit().expect("there is a way");
        for _ in 0..1_000 {
            self.turn(|_| {});
            let Some(bytes) = self.raw.recv() else { continue };
            let (header, _) = Header::decode(&bytes).expect("a header");
            assert_eq!(header.vers, VERSION_ONE);
            let Body::Msg(lists) = header.body else { panic!("{header:?}") };
            let segments = |chunk: WriteChunk<'_>| chunk.0.iter().collect();
            return Arrived {
                xid: header.xid,
                chunk: lists.writes.iter().next().map(segments).unwrap_or_default(),
                reply: lists.reply.map(segments).unwrap_or_default(),
            };
        }
        panic!("the call does not arrive");
    }

    fn turn(&mut self, on: impl FnMut(rpcrdma::Completion<'_>)) {
        self.world.now += 1_000;
        self.world.clients[0].poll(self.world.now, on);
        let _ = self.raw.turn();
    }

    /// The result in the reply to the call.
    fn found(&mut self, procedure: u32) -> Found {
        let bound = nfs3::BINDING.bind(procedure, Protection::None).expect("it exists");
        let mut found = None;
        for _ in 0..1_000 {
            self.turn(|done| {
                let mut items = bound.results(done.result().expect("a reply"));
                let data = items.data().and_then(|data| {
                    items.end().map(|()| (data.len(), data.to_vec(), data.placed_index().is_some()))
                });
                found = Some(data);
            });
            if let Some(found) = found.take() {
                return found;
            }
        }
        panic!("the call is not completed");
    }

    /// A READ of at most `room` bytes whose reply states `stated` bytes, and for which `written` are
    /// in the Write chunk.
    fn read(&mut self, room: u32, stated: u32, written: &[u8]) -> Found {
        let Arrived { xid, chunk, .. } = self.call(nfs3::READ, room);
        let [segment] = chunk.as_slice() else { panic!("{chunk:?}") };
        assert_eq!(segment.length, room, "the chunk is as long as the result can be");
        self.raw.write(segment, written);
        let length = written.len() as u32;
        let returned = [RdmaSegment { length, ..*segment }];
        let chunks = [WriteChunk(Array::from_slice(&returned))];
        let lists = ChunkLists { writes: List::from_slice(&chunks), ..ChunkLists::EMPTY };
        self.raw.send(&reply(xid, lists, &stated.to_be_bytes()));
        self.found(nfs3::READ)
    }
}

/// A reply: its results begin with the length of the item.
fn reply(xid: u32, lists: ChunkLists<'_>, results: &[u8]) -> Vec<u8> {
    let header = Header { xid, vers: VERSION_ONE, credit: 16, body: Body::Msg(lists) };
    let prefix = [xid, 1].map(u32::to_be_bytes).concat();
    transmission(&header, &[&prefix, results].concat())
}

/// Data, and behind them what is no data.
fn padded(len: u32, more: u32) -> Vec<u8> {
    [vec![0x44; len as usize], vec![0xee; more as usize]].concat()
}

// wire.md C12
#[test]
fn up_to_three_bytes_of_padding_are_no_data() {
    let mut scene = Scene::new(|raw| raw.interop.write_chunk_padding = true);
    for len in [1, 2, 3, 4, 101, 1000, 3999] {
        for more in 0..=3 {
            let found = scene.read(4000.max(len + more), len, &padded(len, more));
            assert_eq!(found, Ok((len, padded(len, 0), true)), "{len} bytes and {more}");
        }
        for more in [4, 5, 64] {
            let found = scene.read(5000, len, &padded(len, more));
            let (stated, placed) = (len, len + more);
            assert_eq!(found, Err(ItemError::Length { position: 12, stated, placed }));
        }
        // Fewer bytes than stated are no result.
        let found = scene.read(5000, len, &padded(len - 1, 0));
        assert!(found.is_err(), "{len} bytes, of which one is missing");
    }
    // In a chunk without room there is none.
    assert_eq!(scene.read(101, 101, &padded(101, 0)), Ok((101, padded(101, 0), true)));
}

// RFC 8166 3.4.6.2
#[test]
fn without_the_key_padding_is_an_error() {
    let mut scene = Scene::new(|_| {});
    for len in [1, 2, 3, 4, 101] {
        for more in 1..=4 {
            let found = scene.read(4000, len, &padded(len, more));
            let (stated, placed) = (len, len + more);
            assert_eq!(found, Err(ItemError::Length { position: 12, stated, placed }));
        }
        assert_eq!(scene.read(4000, len, &padded(len, 0)), Ok((len, padded(len, 0), true)));
    }
}

#[test]
fn targets_of_links_have_no_write_chunk() {
    for is_on in [false, true] {
        let mut scene = Scene::new(|raw| raw.interop.links_in_line = is_on);
        let (target, room) = (padded(15, 1), 200);
        let Arrived { xid, chunk, reply: whole } = scene.call(nfs3::READLINK, room);
        assert_eq!((chunk.len(), whole.len()), (usize::from(!is_on), 0));
        let results = [&15_u32.to_be_bytes()[..], &target].concat();
        scene.raw.send(&reply(xid, ChunkLists::EMPTY, &results));
        let found = scene.found(nfs3::READLINK);
        let expected = Err(ItemError::NotReduced { position: 12 });
        assert_eq!(found, if is_on { Ok((15, padded(15, 0), false)) } else { expected });
        // Data are requested as always.
        assert_eq!(scene.read(101, 101, &padded(101, 0)), Ok((101, padded(101, 0), true)));
    }
}

#[test]
fn a_target_that_may_be_long_has_a_reply_chunk() {
    let mut scene = Scene::new(|raw| raw.interop.links_in_line = true);
    let Arrived { xid, chunk, reply: whole } = scene.call(nfs3::READLINK, LINK_MAX);
    assert!(chunk.is_empty() && !whole.is_empty(), "{whole:?}");
    let target = padded(LINK_MAX, 0);
    let results = [&[xid, 1, LINK_MAX].map(u32::to_be_bytes).concat(), &target[..]].concat();
    let returned = [RdmaSegment { length: results.len() as u32, ..whole[0] }];
    scene.raw.write(&whole[0], &results);
    let lists =
        ChunkLists { reply: Some(WriteChunk(Array::from_slice(&returned))), ..ChunkLists::EMPTY };
    let header = Header { xid, vers: VERSION_ONE, credit: 16, body: Body::NoMsg(lists) };
    scene.raw.send(&transmission(&header, &[]));
    assert_eq!(scene.found(nfs3::READLINK), Ok((LINK_MAX, target, false)));
}

/// The longest path of Linux: no message of the test holds it.
const LINK_MAX: u32 = 4096;
