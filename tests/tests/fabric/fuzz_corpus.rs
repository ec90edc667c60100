//! Replays the saved inputs of the fuzzer.

use std::fs::File;
use std::io::Read;
use std::panic::catch_unwind;
use std::path::Path;

use rpcrdma_tests::checks::{connection, ddp, group, header, link, mpa, placement, rdmap, shard};
use tar::Archive;

/// Checks every saved input of `target`, of which there are `least` or more.
fn replay(target: &str, least: usize, check: fn(&[u8])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let path = path.with_extension("tar");
    let file = File::open(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let mut archive = Archive::new(file);
    let mut count = 0;
    for entry in archive.entries().expect("the archive can be read") {
        let mut entry = entry.expect("the archive is whole");
        let mut input = Vec::new();
        entry.read_to_end(&mut input).expect("an input can be read");
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let is_harmless = catch_unwind(|| check(&input)).is_ok();
        assert!(is_harmless, "the input {name} in {} does harm", path.display());
        count += 1;
    }
    assert!(count >= least, "only {count} inputs in {}", path.display());
}

#[test]
fn every_input_of_the_header_corpus_does_no_harm() {
    replay("header", 50, header::check);
}

#[test]
fn every_input_of_the_group_corpus_does_no_harm() {
    replay("group", 100, group::check);
}

#[test]
fn every_input_of_the_placement_corpus_does_no_harm() {
    replay("placement", 100, placement::check);
}

#[test]
fn every_input_of_the_connection_corpus_does_no_harm() {
    replay("connection", 100, connection::check);
}

#[test]
fn every_input_of_the_link_corpus_does_no_harm() {
    replay("link", 100, link::check);
}

#[test]
fn every_input_of_the_shard_corpus_does_no_harm() {
    replay("shard", 100, shard::check);
}

#[test]
fn every_input_of_the_mpa_corpus_does_no_harm() {
    replay("mpa", 90, mpa::check);
}

#[test]
fn every_input_of_the_ddp_corpus_does_no_harm() {
    replay("ddp", 100, ddp::check);
}

#[test]
fn every_input_of_the_rdmap_corpus_does_no_harm() {
    replay("rdmap", 20, rdmap::check);
}
