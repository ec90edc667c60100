//! The server and the client against each other, and the server against clients that err.

use std::io::sink;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma_engine::{CallBuilder, Fabric, Payload};

use crate::args::Args;
use crate::client::ClientError;
use crate::files::{Input, Target};
use crate::passes::{self, Blocks};
use crate::rpc::{self, BLOCK_MAX, Procedure};
use crate::setup::{Pair, Shape};
use crate::store::Temporary;

/// A file of so many bytes that do not repeat.
fn file(len: usize) -> Temporary {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("block_store-test-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 253 + at / 65_521) as u8).collect();
    std::fs::write(&path, bytes).expect("the directory is writable");
    Temporary(path)
}

fn args(file: &Temporary) -> Args {
    Args {
        file: Some(file.0.clone()),
        // Two tests make two files: each its own store.
        store: Some(store_of(file)),
        direct: true,
        blocks: vec![4 << 10, 64 << 10, 256 << 10, BLOCK_MAX],
        continuation: vec![true, false],
        window: 4,
        workers: 2,
        spares: None,
        verbs: None,
    }
}

fn store_of(file: &Temporary) -> PathBuf {
    file.0.with_extension("data")
}

/// A server of an empty store, and its client.
fn pair(file: &Temporary, continuation: bool) -> (Pair<Fabric>, Target, Temporary) {
    let target = Target::make(Some(&store_of(file)), &file.0, true).expect("a new file");
    let (provider, block_max) = ("fabric", BLOCK_MAX);
    let shape = Shape { provider, block_max, window: 4, spares: None, continuation };
    let pair = Pair::start(
        (Fabric::new(), Ipv4Addr::LOCALHOST.into()),
        &shape,
        &target.path,
        target.direct,
        1,
    )
    .expect("starts");
    let remove = Temporary(target.path.clone());
    (pair, target, remove)
}

fn header(payload: &mut Payload<'_>, words: [u32; 4]) {
    words.iter().for_each(|word| payload.put_u32(*word));
    [0; 4].iter().for_each(|word| payload.put_u32(*word));
}

#[test]
fn files_of_any_length_come_back_as_they_were() {
    for len in [0, 1, 4096, (3 << 20) + 4099] {
        let file = file(len);
        let args = args(&file);
        crate::run(&args, &mut sink()).expect("every byte is compared");
        let store = Temporary(store_of(&file));
        let (sent, stored) = (std::fs::read(&file.0), std::fs::read(&store.0));
        assert!(sent.expect("there") == stored.expect("kept"), "{len} bytes");
    }
}

#[test]
fn segments_that_cannot_be_taken_are_written_where_they_are() {
    for spares in [0, 5] {
        let file = file((2 << 20) + 77);
        let _store = Temporary(store_of(&file));
        crate::run(&Args { spares: Some(spares), ..args(&file) }, &mut sink())
            .expect("slower, but right");
    }
}

#[test]
fn the_page_cache_does_as_well() {
    let file = file((1 << 20) + 5);
    let _store = Temporary(store_of(&file));
    crate::run(&Args { direct: false, ..args(&file) }, &mut sink())
        .expect("every byte is compared");
}

#[test]
fn a_byte_that_changes_in_the_store_is_found() {
    let file = file(1 << 20);
    let input = Input::open(Some(&file.0), &mut sink()).expect("there");
    let (mut pair, target, _remove) = pair(&file, true);
    let blocks = Blocks { file: &input.file, len: input.len, block: 256 << 10 };
    let sent = passes::write(&mut pair.session, blocks, 4).expect("written");
    assert_eq!(target.checksum().expect("readable"), sent.checksum);

    let mut stored = std::fs::read(&target.path).expect("readable");
    stored[777_777] ^= 0x10;
    std::fs::write(&target.path, &stored).expect("writable");
    assert_ne!(target.checksum().expect("readable"), sent.checksum);
    let error = passes::read(&mut pair.session, blocks, 4).expect_err("a byte differs");
    let ClientError::Differs { offset, want, got } = error else { panic!("{error}") };
    assert_eq!((offset, want ^ got), (777_777, 0x10));
    pair.stop();
}

#[test]
fn a_store_that_is_too_short_is_found() {
    let file = file(100_000);
    let input = Input::open(Some(&file.0), &mut sink()).expect("there");
    let (mut pair, ..) = pair(&file, true);
    let _store = Temporary(store_of(&file));
    let blocks = Blocks { file: &input.file, len: input.len, block: 64 << 10 };
    passes::write(&mut pair.session, blocks, 4).expect("written");
    passes::empty(&mut pair.session).expect("emptied");
    let error = passes::read(&mut pair.session, blocks, 1).expect_err("nothing is there");
    assert!(
        matches!(error, ClientError::Length { offset: 0, want: 65_536, got: 0, .. }),
        "{error}"
    );
    pair.stop();
}

#[test]
fn calls_that_are_not_of_the_program_are_denied() {
    let file = file(0);
    let (mut pair, _target, _remove) = pair(&file, true);
    let (program, version) = (rpc::PROGRAM, rpc::VERSION);
    for (words, denial) in [
        ([3, program, version, 0], &[1, 0, 2, 2][..]),
        ([2, program + 1, version, 0], &[0, 0, 0, 1]),
        ([2, program, version + 1, 0], &[0, 0, 0, 2, version, version]),
        ([2, program, version, 5], &[0, 0, 0, 3]),
        ([2, program, version, 2], &[0, 0, 0, 4]),
    ] {
        let reply = pair.session.raw(|call| header(call.payload(), words));
        assert_eq!(reply, denial, "{words:?}");
    }
    let reply = pair.session.raw(|call| header(call.payload(), [2, program, version, 0]));
    assert_eq!(reply, [0; 4], "procedure 0 has no results");
    pair.stop();
}

#[test]
fn what_cannot_be_done_comes_back_as_an_error_number() {
    let file = file(0);
    let (mut pair, _target, _remove) = pair(&file, true);
    let mut status = |procedure, offset, len| {
        let reply = pair.session.raw(|call| {
            rpc::put_call(call.payload(), procedure);
            call.payload().put_u64(offset);
            call.payload().put_u32(len);
        });
        assert_eq!(reply[..4], [0; 4], "accepted");
        reply[4..].to_vec()
    };
    assert_eq!(status(Procedure::Read, 0, BLOCK_MAX as u32 + 1), [libc::EMSGSIZE as u32]);
    assert_eq!(status(Procedure::Read, 1 << 63, 4096), [libc::EINVAL as u32]);
    assert_eq!(status(Procedure::Read, 1 << 40, 4096), [0, 0], "behind the end is nothing");
    assert_eq!(status(Procedure::Write, 0, 0), [0, 0], "nothing is written");
    pair.stop();
}

#[test]
fn data_in_the_payload_stream_are_written_as_well() {
    let file = file(0);
    let (mut pair, target, _remove) = pair(&file, true);
    let data: Vec<u8> = (0..3001_u32).map(|at| (at / 3) as u8).collect();
    let write = |call: &mut CallBuilder<'_>| {
        rpc::put_call(call.payload(), Procedure::Write);
        call.payload().put_u64(11);
        call.payload().put_opaque(&data);
    };
    assert_eq!(pair.session.raw(write), [0, 0, 0, 0, 0, 3001]);
    assert_eq!(std::fs::read(&target.path).expect("readable")[11..], data);
    assert_eq!(pair.own_writes.load(Ordering::Relaxed), 1);
    pair.stop();
}
