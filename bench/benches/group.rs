//! Group assembly: cost of a message of one transmission and of many.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rpcrdma_proto::Part;
use rpcrdma_proto::group::{GroupAssembler, Initial, Step};
use rpcrdma_xdr::MsgType;
use rpcrdma_xdr::numbers::opttype;

fn part(buffer: u32) -> Part {
    Part { buffer, byte_len: 4096, payload_start: 44, payload_len: 4052 }
}

/// One message of `count` transmissions, all of them in order.
fn assemble(assembler: &mut GroupAssembler, xid: u32, count: u32) -> Step {
    let initial = Initial { xid, dir: MsgType::Call, count, limit: 64 };
    let mut step = assembler.on_initial(black_box(initial), part(0)).expect("within the limit");
    for number in 1..count {
        let (next, _) = assembler
            .on_continuation(xid, number, opttype::XMTREQ, black_box(part(number)))
            .expect("in order");
        step = next;
    }
    step
}

fn groups(c: &mut Criterion) {
    let mut group = c.benchmark_group("message");
    for count in [1, 4, 64] {
        group.throughput(Throughput::Elements(count.into()));
        group.bench_function(format!("transmissions: {count}"), |b| {
            let mut assembler = GroupAssembler::new();
            let mut xid = 0;
            b.iter(|| {
                xid += 1;
                assert_eq!(assemble(&mut assembler, xid, count), Step::Complete);
            });
        });
    }
    group.finish();
}

fn violations(c: &mut Criterion) {
    c.bench_function("continuation without a group", |b| {
        let mut assembler = GroupAssembler::new();
        b.iter(|| {
            let assembler = black_box(&mut assembler);
            assembler.on_continuation(7, 1, opttype::XMTREQ, black_box(part(1))).is_err()
        });
    });
}

criterion_group!(benches, groups, violations);
criterion_main!(benches);
