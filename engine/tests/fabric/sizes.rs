//! The figures of the chapter "Sizes" in docs/tuning.md are the sums of the configuration.

use rpcrdma::{Fabric, Provider, ShardNeeds};
use rpcrdma_config::Config;

const PAGE: &str = include_str!("../../../docs/tuning.md");

/// Shards that serve 100,000 connections.
const SHARDS: u64 = 10;

/// One shard with 10,000 connections: by the profile for sizes, and by "storage" with as many
/// connections and Receives.
fn shards() -> [(Config, ShardNeeds); 2] {
    let large = Config::profile("storage-large").expect("it is there");
    let mut raw = Config::profile("storage").expect("it is there").raw().clone();
    raw.connections.max = large.connections().max.value().into();
    raw.receive.buffers = large.receive().buffers.value().into();
    let raised = Config::try_from(raw).expect("the sums hold");
    [large, raised].map(|config| {
        let needs = ShardNeeds::new(&config, Fabric::new().caps()).expect("a fabric has it");
        (config, needs)
    })
}

/// 1234567 as 1,234,567.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups = groups.map(|group| std::str::from_utf8(group).expect("digits"));
    groups.collect::<Vec<_>>().join(",")
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64)
}

/// Bytes of the send queues in the memory of a host, at least: a request has its inline data or its
/// gather entries, and 64 bytes more, in whole 64 bytes.
fn send_queues(config: &Config, needs: &ShardNeeds) -> u64 {
    let inline = u64::from(config.verbs().inline_len.value());
    u64::from(needs.queue_pairs) * u64::from(needs.sends) * (inline + 64).next_multiple_of(64)
}

/// The rows that the page must have.
fn rows() -> Vec<String> {
    let [(large, needs), (raised, other)] = shards();
    let count = |what: &str, of: fn(&ShardNeeds) -> u32| {
        let (one, other) = (u64::from(of(&needs)), u64::from(of(&other)));
        let all = thousands(one * SHARDS);
        format!("| {what} | {} | {all} | {} |", thousands(one), thousands(other))
    };
    let bytes = |what: &str, of: &dyn Fn(&Config, &ShardNeeds) -> u64| {
        let (one, other) = (of(&large, &needs), of(&raised, &other));
        format!("| {what} | {} | {} | {} |", gib(one), gib(one * SHARDS), gib(other))
    };
    let each = |what: &str, of: fn(&ShardNeeds) -> u32| {
        let of = [of(&needs), of(&needs), of(&other)].map(u64::from).map(thousands);
        format!("| {what} | {} | {} | {} |", of[0], of[1], of[2])
    };
    vec![
        count("connections, queue pairs (`max_qp`)", |it| it.queue_pairs),
        count("Receives of the shared receive queues", |it| it.receives),
        each("of one of them (`max_srq_wr`)", |it| it.receives),
        count("credits to grant", |it| it.credits),
        each("work requests of a send queue (`max_qp_wr`)", |it| it.sends),
        each("entries of one completion queue (`max_cqe`)", |it| it.completions),
        count("memory windows (`max_mw`)", |it| it.windows),
        bytes("registered memory", &|_, needs| needs.memory),
        bytes("of it, Receives", &|config, needs| {
            let structure = config.recv_structure();
            u64::from(needs.receives) * u64::from(structure.total_len())
        }),
        bytes("send queues of a driver, at least", &send_queues),
    ]
}

#[test]
fn the_page_has_the_sums_of_the_configuration() {
    let rows = rows();
    let missing: Vec<&String> = rows.iter().filter(|row| !PAGE.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/tuning.md lacks these rows:\n{}", rows.join("\n"));
}

#[test]
fn ten_shards_are_a_hundred_thousand_connections() {
    let [(_, needs), _] = shards();
    assert_eq!(u64::from(needs.queue_pairs) * SHARDS, 100_000);
}
