//! Placement: checking the items of a message that has arrived, finding their bytes, and
//! planning a message for a peer's buffers.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rpcrdma_proto::placement::resolve::{Rule, resolve};
use rpcrdma_proto::{
    BulkItem, CallDemand, Connection, ControlSend, Ingress, Opening, Part, Plan, Received, Role,
    Settings, ShardLedger,
};
use rpcrdma_xdr::{Array, Loc, MsgItem, RecvStructure, SegmentGroup, Tbsns, Writer};

const ITEM_LEN: u32 = 16_384;

/// 4 KiB for header and payload, four segments of 16 KiB for data.
fn structure() -> RecvStructure {
    let group = |count, length, placement| SegmentGroup { count, length, align: 4096, placement };
    RecvStructure::new(&[group(1, 4096, false), group(4, ITEM_LEN, true)]).expect("a usual shape")
}

/// Transmissions of which every segment is full.
fn parts(structure: &RecvStructure, count: u32) -> Vec<Part> {
    let byte_len = structure.total_len();
    let part = |buffer| Part { buffer, byte_len, payload_start: 100, payload_len: 200 };
    (0..count).map(part).collect()
}

/// Items of one segment each, in order.
fn items(count: u32) -> Vec<MsgItem<'static>> {
    (0..count)
        .map(|index| MsgItem {
            disp: 100 + index * (ITEM_LEN + 4),
            length: ITEM_LEN,
            loc: Loc::Tbsn { offset: 0, segments: Tbsns::run(index, 1) },
        })
        .collect()
}

fn arriving(c: &mut Criterion) {
    let mut group = c.benchmark_group("resolve and walk");
    let structure = structure();
    for count in [1_u32, 4, 16] {
        let parts = parts(&structure, count.div_ceil(4));
        let items = items(count);
        group.throughput(Throughput::Elements(count.into()));
        group.bench_function(format!("items: {count}"), |b| {
            b.iter(|| {
                let items = Array::from_slice(black_box(&items));
                let placed =
                    resolve(&structure, &parts, items, Rule::Request { explicit: false }, 64 << 20)
                        .expect("every item is valid");
                let pieces = placed.iter().flat_map(|item| item.pieces(&structure));
                pieces.map(|piece| u64::from(piece.len)).sum::<u64>()
            });
        });
    }
    group.finish();
}

/// A client's connection to a peer that has such buffers, too.
fn connect() -> (Connection, ShardLedger) {
    let settings =
        Settings { credits_requested: 32, credits_granted_max: 32, ..Settings::new(structure()) };
    let open = |role| {
        let mut ledger = ShardLedger::new(64, 1, 256, 256);
        let connection = Connection::open(role, 0, &settings, &Opening::of(role), &mut ledger);
        (connection.expect("room for one"), ledger)
    };
    let (mut client, mut ledger) = open(Role::Client);
    let (mut server, mut servers) = open(Role::Server);
    let hello = client.begin().expect("the client speaks first");
    let answer = hand_over(&client, &hello, &mut server, &mut servers);
    let answer = answer.expect("the server answers properties by its own");
    hand_over(&server, &answer, &mut client, &mut ledger);
    assert!(client.is_ready(), "both know each other's properties");
    (client, ledger)
}

fn hand_over(
    from: &Connection,
    control: &ControlSend,
    to: &mut Connection,
    ledger: &mut ShardLedger,
) -> Option<ControlSend> {
    let mut bytes = [0; 1024];
    let mut writer = Writer::new(&mut bytes);
    from.encode_control(control, &mut writer).expect("at most 1 KiB");
    let at = Received { buffer: 0, byte_len: writer.position() as u32 };
    let len = writer.position();
    match to.on_transmission(ledger, at, &bytes[..len]) {
        Ingress::Control(control) => control.answer,
        other => panic!("not properties: {other:?}"),
    }
}

/// Plans a call, encodes its headers and walks its gather lists: bytes of header and pieces.
fn plan(connection: &mut Connection, ledger: &mut ShardLedger, items: &[BulkItem]) -> u64 {
    let demand = CallDemand { items, gather_max: 14, ..CallDemand::inline(200, 200) };
    let id = connection.open_call(ledger, 1).expect("the table has room");
    let plan = connection.begin_sends(ledger, id, &demand).expect("credits are there");
    let mut sum = 0;
    match plan {
        Plan::Inline(plan) => sum += u64::from(plan.payload),
        Plan::Group(mut plan) => {
            let mut header = [0; 2048];
            while let Some(next) = connection.next_transmission(&mut plan) {
                let mut writer = Writer::new(&mut header);
                connection.encode_header(&plan, &next, &mut writer).expect("2 KiB are enough");
                let pieces = connection.pieces(&plan, &next).map(|piece| u64::from(piece.len()));
                sum += writer.position() as u64 + pieces.sum::<u64>();
            }
        }
    }
    connection.finish_call(ledger, id);
    sum
}

fn leaving(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan, encode, gather");
    let (mut connection, mut ledger) = connect();
    for count in [0, 1, 4, 16] {
        let items: Vec<BulkItem> = (0..count)
            .map(|index| BulkItem {
                position: 100 + index * (ITEM_LEN + 4),
                len: ITEM_LEN,
                origin: 0,
                pieces: 1,
            })
            .collect();
        group.throughput(Throughput::Elements(count.max(1).into()));
        group.bench_function(format!("items: {count}"), |b| {
            b.iter(|| plan(&mut connection, &mut ledger, black_box(&items)));
        });
    }
    group.finish();
}

criterion_group!(benches, arriving, leaving);
criterion_main!(benches);
