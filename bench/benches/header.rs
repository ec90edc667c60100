//! Transport headers: cost of encoding and decoding, from the most common to one with many items.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rpcrdma_xdr::{
    Array, Body, ChunkLists, Header, Loc, MsgItem, Optional, RsdItem, RsdLoc, RsdSet, Tbsns,
    Writer, XmtReq, XmtResp,
};

/// What every call without bulk data carries: goal C1 is encode and decode of this one.
fn minimal() -> Header<'static> {
    Header { xid: 0x5ca1ab1e, vers: 2, credit: 32, body: Body::Msg(ChunkLists::EMPTY) }
}

fn optional(body: Optional<'_>) -> Header<'_> {
    Header { xid: 0x5ca1ab1e, vers: 2, credit: 32, body: Body::Optional(body) }
}

/// `count` items, each in four segments of its own.
fn items(count: u32) -> Vec<MsgItem<'static>> {
    (0..count)
        .map(|index| MsgItem {
            disp: 100 + index * 20_000,
            length: 16_384,
            loc: Loc::Tbsn { offset: 0, segments: Tbsns::run(index * 4, 4) },
        })
        .collect()
}

fn both_ways(c: &mut Criterion, name: &str, header: &Header<'_>) {
    let mut group = c.benchmark_group(name);
    let mut bytes = [0; 4096];
    let len = encode(header, &mut bytes);
    group.bench_function("encode", |b| {
        let mut to = [0; 4096];
        b.iter(|| encode(black_box(header), black_box(&mut to)));
    });
    group.bench_function("decode", |b| {
        b.iter(|| Header::decode(black_box(&bytes[..len])).map(|(header, len)| (header.xid, len)));
    });
    group.bench_function("encode and decode", |b| {
        let mut to = [0; 4096];
        b.iter(|| {
            let len = encode(black_box(header), black_box(&mut to));
            Header::decode(black_box(&to[..len])).map(|(header, len)| (header.xid, len))
        });
    });
    group.finish();
}

fn encode(header: &Header<'_>, to: &mut [u8]) -> usize {
    let mut writer = Writer::new(to);
    header.encode(&mut writer).expect("4 KiB hold any of these headers");
    writer.position()
}

fn headers(c: &mut Criterion) {
    both_ways(c, "minimal RDMA_MSG", &minimal());
    let plain = XmtReq { dp: Array::EMPTY, rsd: Array::EMPTY, count: 4, rsbuf: 0, pslen: 1000 };
    both_ways(c, "XMTREQ without items", &optional(Optional::XmtReq(plain)));
    for count in [1, 16] {
        let dp = items(count);
        let direction = [RsdItem { min_len: 1024, loc: RsdLoc::Tbsn }];
        let sets = [RsdSet { begin: 40, end: 41, items: Array::from_slice(&direction) }];
        let request = XmtReq {
            dp: Array::from_slice(&dp),
            rsd: Array::from_slice(&sets),
            count: 8,
            rsbuf: 8,
            pslen: 200,
        };
        let name = format!("XMTREQ with a direction, items: {count}");
        both_ways(c, &name, &optional(Optional::XmtReq(request)));
        let response = XmtResp { dp: Array::from_slice(&dp), count: 8, pslen: 200 };
        let name = format!("XMTRESP, items: {count}");
        both_ways(c, &name, &optional(Optional::XmtResp(response)));
    }
}

criterion_group!(benches, headers);
criterion_main!(benches);
