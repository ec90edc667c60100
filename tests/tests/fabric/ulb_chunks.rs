//! Upper-layer bindings over explicit RDMA: the assignment of results to chunks, and results that
//! were sent inline although they had a chunk.

use rpcrdma::ulb::{ItemError, Protection, nfs3, nfs4};
use rpcrdma::{Answer, Call, Loan, Reply, Sink, Want};
use rpcrdma_config::Raw;
use rpcrdma_tests::pair::{Pair, Respond};
use rpcrdma_tests::raw_peer::{RawPeer, properties, transmission};
use rpcrdma_xdr::numbers::VERSION_TWO;
use rpcrdma_xdr::{Array, Body, Header, Loc, MsgItem, Optional, Tbsns, XmtReq};

/// What the server does with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// It has no result.
    Fails = 0,
    /// The result is given as its binding says.
    Gives = 1,
    /// The result is put into the stream, whatever was offered for it.
    Writes = 2,
}

use Does::{Fails, Gives, Writes};

/// How the client wants a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// In memory of its own.
    Sink,
    /// Apart, if that is needed at all; a few bytes.
    Few,
    /// In the stream.
    InLine,
}

/// An operation of a call: what is wanted, what is done, and how long the result is.
type Operation = (Wants, Does, u32);

/// A READ for each operation of the call: what to do, and how many bytes.
fn serve<'a>(loans: &mut Vec<Loan>, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
    let bound = nfs4::BINDING.bind(nfs4::COMPOUND, Protection::None).expect("it exists");
    let mut arguments = bound.arguments(&call, call.reader());
    let mut reply = bound.reply(reply);
    let count = arguments.reader().u32().expect("how many");
    for index in 0..count {
        let origin = arguments.operation(nfs4::OP_READ);
        let does = arguments.reader().u32().expect("what to do");
        let len = arguments.reader().u32().expect("how long");
        reply.operation(nfs4::OP_READ, origin);
        reply.payload().put_bool(does != Fails as u32);
        let mut loan = loans.pop().expect("on_turn ran before");
        loan.truncate(len as usize);
        loan.fill(1 + index as u8);
        if does == Gives as u32 {
            reply.result(loan).expect("the data of a READ");
        } else if does == Writes as u32 {
            reply.payload().put_opaque(&loan);
        }
    }
    reply.send()
}

/// A result: its length, and the want whose memory it is in.
type Found = (u32, Option<usize>);

fn call(pair: &mut Pair, operations: &[Operation]) -> Result<Vec<Found>, ItemError> {
    let bound = nfs4::BINDING.bind(nfs4::COMPOUND, Protection::None).expect("it exists");
    let sinks: Vec<Sink> = operations.iter().map(|_| pair.buffer(&[0; LEN]).into()).collect();
    let mut sinks = sinks.into_iter();
    let mut call = bound.call(pair.begin());
    call.payload().put_u32(operations.len() as u32);
    for &(wants, does, len) in operations {
        call.operation(nfs4::OP_READ);
        call.payload().put_u32(does as u32);
        call.payload().put_u32(len);
        let len_max = LEN as u32;
        match wants {
            Wants::Sink => {
                call.result_into(Want { len_min: 0, len_max }, sinks.next().expect("one each"))
            }
            Wants::Few => call.result(Want { len_min: 0, len_max: FEW }),
            Wants::InLine => call.result_in_line(len_max),
        }
        .expect("the data of a READ");
    }
    // Room for a server that puts into the stream what does not belong there.
    let written = operations.iter().filter(|(_, does, _)| *does == Writes);
    call.asks(200 + written.map(|(.., len)| len).sum::<u32>());
    call.submit().expect("there is a way");
    pair.complete(|done| {
        let mut seen = Vec::new();
        let reply = done.result().expect("an answer");
        let mut results = bound.results(reply);
        for index in 0..operations.len() {
            results.operation(nfs4::OP_READ);
            if results.reader().u32()? == 0 {
                continue;
            }
            let data = results.data()?;
            let is_its_own = data.slices().flatten().all(|&byte| byte == 1 + index as u8);
            assert!(is_its_own, "{operations:?}: the bytes of result {index}");
            seen.push((data.len(), data.want()));
        }
        results.end()?;
        for (len, want) in &seen {
            let sink = want.and_then(|want| done.take_sink(want));
            assert_eq!(sink.is_some(), want.is_some(), "{operations:?}: {len} bytes");
        }
        Ok(seen)
    })
}

fn version_one() -> Pair {
    Pair::configured(serve, |raw| {
        raw.protocol.version = "one".into();
        raw.interop.write_chunks_max = 4;
    })
}

fn base_of_version_two() -> Pair {
    Pair::configured(serve, |raw| {
        raw.protocol.version = "two".into();
        raw.interop.write_chunks_max = 4;
        without_extension(raw);
    })
}

fn without_extension(raw: &mut Raw) {
    raw.features.placement = false;
    raw.features.continuation = false;
    raw.receive.placement.count = 0;
    raw.receive.inline = "16KiB".into();
}

// RFC 8166 4.3.2.1, 4.3.2.2, 4.3.2.3; wire.md C5
#[test]
fn results_take_the_chunks_in_order_whatever_fails_or_is_empty() {
    use Wants::{Few, InLine, Sink};
    let cases: [(&[Operation], &[Found]); 9] = [
        (&[(Sink, Gives, 3000)], &[(3000, Some(0))]),
        (&[(Sink, Gives, 500), (Sink, Gives, 600)], &[(500, Some(0)), (600, Some(1))]),
        // The chunk of an operation that failed goes to the next.
        (&[(Sink, Fails, 0), (Sink, Gives, 600)], &[(600, Some(0))]),
        (&[(Sink, Gives, 500), (Sink, Fails, 0)], &[(500, Some(0))]),
        // An empty result uses its chunk up, or does not.
        (&[(Sink, Gives, 0), (Sink, Gives, 600)], &[(0, None), (600, Some(1))]),
        (&[(Sink, Writes, 0), (Sink, Gives, 600)], &[(0, None), (600, Some(0))]),
        (&[(Sink, Writes, 0)], &[(0, None)]),
        // An empty chunk asks for its result in line.
        (&[(Few, Gives, 9), (Sink, Gives, 600)], &[(9, None), (600, Some(1))]),
        // Behind the last chunk all is in line.
        (&[(Sink, Gives, 501), (InLine, Gives, 600)], &[(501, Some(0)), (600, None)]),
    ];
    for mut pair in [version_one(), base_of_version_two()] {
        for (operations, expected) in &cases {
            assert_eq!(call(&mut pair, operations).as_deref(), Ok(*expected), "{operations:?}");
        }
        assert!(pair.served().rdma_writes > 0, "results are written");
        let found = cases.iter().flat_map(|(_, expected)| *expected);
        let placed: u64 = found.filter(|found| found.1.is_some()).map(|found| found.0 as u64).sum();
        assert_eq!(pair.served().bytes_written, placed);
        assert_eq!(pair.counts().bytes_written, placed);
    }
}

// RFC 8166 6.1; wire.md C11
#[test]
fn an_inline_result_beside_its_write_chunk_is_an_error() {
    use Wants::{InLine, Sink};
    for mut pair in [version_one(), base_of_version_two()] {
        let not_reduced = |position| Err(ItemError::NotReduced { position });
        // Behind transaction id, message type, a word and its length.
        assert_eq!(call(&mut pair, &[(Sink, Writes, 3000)]), not_reduced(16));
        let second = [(Sink, Gives, 500), (Sink, Writes, 600)];
        assert_eq!(call(&mut pair, &second), not_reduced(16 + 500 + 8));
        let behind_empty = [(Sink, Gives, 0), (Sink, Writes, 600)];
        assert_eq!(call(&mut pair, &behind_empty), not_reduced(16 + 8));
        // What is not given as a result does not use its empty chunk up, so the next one does.
        let few = [(Wants::Few, Writes, 9), (Sink, Gives, 600)];
        assert_eq!(call(&mut pair, &few), not_reduced(16 + 12 + 8));
        // The chunk that one leaves is the next one's.
        let (stated, placed) = (500, 600);
        let other = Err(ItemError::Length { position: 16, stated, placed });
        assert_eq!(call(&mut pair, &[(Sink, Writes, stated), (Sink, Gives, placed)]), other);
        // Where nothing was offered there is nothing to keep to, and the connection goes on.
        assert_eq!(call(&mut pair, &[(InLine, Writes, 3000)]), Ok(vec![(3000, None)]));
    }
}

// [RTR] 7.4; wire.md E26
#[test]
fn an_inline_result_is_valid_in_the_extension() {
    let mut pair = Pair::configured(serve, |raw| raw.receive.inline = "16KiB".into());
    assert_eq!(call(&mut pair, &[(Wants::Sink, Writes, 3000)]), Ok(vec![(3000, None)]));
    assert_eq!(call(&mut pair, &[(Wants::Sink, Gives, 3000)]), Ok(vec![(3000, Some(0))]));
    assert_eq!(pair.served().rdma_writes, 1);
}

/// Says how long the data of a WRITE are, and their sum.
fn sum<'a>(_: &mut Vec<Loan>, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
    let bound = nfs3::BINDING.bind(nfs3::WRITE, Protection::None).expect("it exists");
    let mut arguments = bound.arguments(&call, call.reader());
    let read = arguments.data().and_then(|data| arguments.end().map(|()| data));
    let Ok(data) = read else { return reply.refuse() };
    reply.payload().put_u32(data.len());
    reply.payload().put_u32(data.slices().flatten().map(|&byte| u32::from(byte)).sum());
    reply.send()
}

// RFC 8166 3.4.5.2; wire.md C3
#[test]
fn padding_that_was_placed_with_an_argument_is_not_its_data() {
    let answer: Respond = sum;
    let mut pair = Pair::configured(answer, |raw| raw.connections.max = 2);
    let mut raw = RawPeer::new(&pair.fabric);
    raw.connect(pair.at);
    let meet = |pair: &mut Pair, raw: &mut RawPeer<_>, bytes: Option<&[u8]>| -> Vec<u8> {
        let mut bytes = bytes;
        for _ in 0..10_000 {
            pair.step_server();
            raw.turn().expect("a connection");
            if raw.is_connected()
                && let Some(bytes) = bytes.take()
            {
                raw.send(bytes);
            }
            if let Some(answer) = raw.recv() {
                return answer;
            }
        }
        panic!("no answer");
    };
    meet(&mut pair, &mut raw, Some(&properties(0x99, 16)));
    // (stated, placed, whether it is the data)
    for (xid, (stated, placed, is_good)) in
        (1..).zip([(101, 101, true), (101, 104, true), (101, 103, false), (101, 105, false)])
    {
        let payload = [xid, 0, stated].map(u32::to_be_bytes).concat();
        let loc = Loc::Tbsn { offset: 0, segments: Tbsns::from_slice(&[0]) };
        let items = [MsgItem { disp: 12, length: placed, loc }];
        let (dp, rsd, pslen) = (Array::from_slice(&items), Array::EMPTY, 12);
        let body = Optional::XmtReq(XmtReq { dp, rsd, count: 1, rsbuf: 1, pslen });
        let header = Header { xid, vers: VERSION_TWO, credit: 16, body: Body::Optional(body) };
        let mut bytes = transmission(&header, &payload);
        bytes.resize(INLINE_DEFAULT, 0);
        bytes.resize(INLINE_DEFAULT + placed as usize, 1);
        let answer = meet(&mut pair, &mut raw, Some(&bytes));
        let (header, len) = Header::decode(&answer).expect("a header");
        let words = answer[len..].chunks_exact(4).map(|word| word.try_into().expect("a word"));
        let words: Vec<u32> = words.map(u32::from_be_bytes).collect();
        let expected: &[u32] = if is_good { &[xid, 1, stated, stated] } else { &[] };
        assert_eq!((header.xid, words.as_slice()), (xid, expected), "{stated}, {placed} placed");
    }
}

/// The leading segment of a receive buffer.
const INLINE_DEFAULT: usize = 4096;
/// The longest result.
const LEN: usize = 4000;
/// The longest result that is not worth memory.
const FEW: u32 = 16;
