//! The fabric by itself: both ends on one thread, so that no cache line travels.
//!
//! What is left is software: what posting, polling, matching and copying cost on both sides.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rpcrdma::fabric::{Fabric, FabricQueues};
use rpcrdma_bench::call::Traffic;
use rpcrdma_bench::contenders::raw::RawEnds;
use rpcrdma_bench::contenders::rpc::Rpc;
use rpcrdma_bench::device::Devices;
use rpcrdma_bench::modes::contest::Contest;

fn connect(request_len: usize, reply_len: usize, window: u32) -> RawEnds<FabricQueues> {
    let any = "127.0.0.1:0".parse().expect("an address");
    let traffic = Traffic { request_len, reply_len, window };
    RawEnds::connect(&Fabric::new(), any, traffic).expect("the fabric has room")
}

/// `count` requests and their replies, each way with one doorbell per turn.
fn round_trips(ends: &mut RawEnds<FabricQueues>, count: u64) {
    let RawEnds { client, server } = ends;
    let until = client.received() + count;
    client.send(count).expect("the window is open");
    while client.received() < until {
        server.poll().expect("requests are right");
        server.refill().expect("as many Receives as before");
        server.send(server.received() - server.sent()).expect("the send queue has room");
        client.poll().expect("replies are right");
        client.refill().expect("as many Receives as before");
    }
}

fn loopback(c: &mut Criterion) {
    let mut group = c.benchmark_group("round trip on one thread");
    for (name, request_len, reply_len, window) in [
        ("136 bytes there, 120 back", 136, 120, 1),
        ("136 bytes there, 120 back, 32 at a time", 136, 120, 32),
        ("80 bytes there, 4 KiB back", 80, 4096 + 56, 1),
        ("80 bytes there, 64 KiB back", 80, 65_536 + 56, 1),
    ] {
        let mut ends = connect(request_len, reply_len, window);
        group.throughput(Throughput::Elements(window.into()));
        group.bench_function(name, |b| b.iter(|| round_trips(&mut ends, window.into())));
    }
    group.finish();
}

/// The engine on top: client and server shard on one thread.
fn rpc(c: &mut Criterion) {
    let mut group = c.benchmark_group("RPC on one thread");
    for options in [
        "lat --op null",
        "lat",
        "rate",
        "lat --op read",
        "lat --op read --placement send",
        "lat --op write --placement send",
        "bw --window 1",
    ] {
        let contest = Contest::parse(options).expect("options of the command");
        // No plan on a machine with one core: its options name two.
        let Ok(plan) = contest.plan() else { continue };
        let (config, load) = (&plan.config, &plan.load);
        let device = Devices::fabrics(config).expect("a fabric");
        let mut rpc =
            Rpc::on(&device, "rpc", plan.cores, config, load, false).expect("the engine has room");
        let window = u64::from(load.window);
        group.throughput(Throughput::Elements(window));
        group.bench_function(options, |b| {
            b.iter(|| rpc.on_this_thread(window).expect("replies are right"));
        });
    }
    group.finish();
}

criterion_group!(benches, loopback, rpc);
criterion_main!(benches);
