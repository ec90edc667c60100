//! Replays the saved inputs of the fuzzer.

use rpcrdma_tests::checks::{connection, corpus, group, header, placement, shard};

#[test]
fn every_input_of_the_header_corpus_does_no_harm() {
    corpus::replay(env!("CARGO_MANIFEST_DIR"), "header", 50, header::check);
}

#[test]
fn every_input_of_the_group_corpus_does_no_harm() {
    corpus::replay(env!("CARGO_MANIFEST_DIR"), "group", 100, group::check);
}

#[test]
fn every_input_of_the_placement_corpus_does_no_harm() {
    corpus::replay(env!("CARGO_MANIFEST_DIR"), "placement", 100, placement::check);
}

#[test]
fn every_input_of_the_connection_corpus_does_no_harm() {
    corpus::replay(env!("CARGO_MANIFEST_DIR"), "connection", 100, connection::check);
}

#[test]
fn every_input_of_the_shard_corpus_does_no_harm() {
    corpus::replay(env!("CARGO_MANIFEST_DIR"), "shard", 100, shard::check);
}
